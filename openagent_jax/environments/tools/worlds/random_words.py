"""The vocabulary of random worlds: random words, and function words to join them."""

import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from openagent_jax.environments.tools.worlds import fixed_tokens
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import scalars
from openagent_jax.text import tokenizer as tokenizers
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.text.symbols import Range

NUM_WORDS = 4096
NUM_SLOTS = 1000  # words that name arguments and results
COMMON_SLOTS = 300  # how many of these are common words
NUM_FORMATTED = 4096  # values like dates, times, amounts and identifiers
MARKS = ("-", "/", ":", ".", "_", "@", "#", "+", "'", " ")
NUM_HEADS, NAMES_PER_HEAD = 256, 32  # of names that begin with the same word
GLUE = (
    "find the ", "get the ", "then the ", "and the ", "with the ", "now the ",
    "then find the ", "first the ", "please give the ", "give me the ", "also the ",
    "I need the ", "after that the ", "then use the ", "look for the ", "a ",
)  # fmt: skip
# The step that follows one of these has to be done first.
BACK = (
    "of the ", "after the ", "given the ", "from the ", "by the ", "near the ",
    "that needs the ", "once you have the ", "which follows the ",
)  # fmt: skip
OF = ("of ", "for ", "with ", "from ", "at ", "in ", "on ", "to ", "by ")
LINKS = (
    "of a ", "for the ", "in a ", "at the ", "near a ", "with ", "from a ", "by ",
    "to the ", "of the ", "and ",
)  # fmt: skip
GAPS = (" ", ", ")
# Between a value and the words that follow it.
JOINS = ("and its ", "and the ", "with its ", "and ", "its ", "the ")
ARTICLES = ("the ", "a ", "me the ", "its ")
TELL = ("tell me the ", "what is the ", "then say the ", "report the ", "show the ")
ENDS = (".", "?")


@dataclass(frozen=True)
class Words:
    """Ranges of symbols to draw from."""

    plain: Range  # words
    common: Range  # part of `plain`: words of one token, like most words of a text
    slots: Range  # part of `plain`: words that name arguments and results
    spaced: Range  # `plain`, each with a blank after it
    names: Range  # names of tools
    same_head: Range  # names of tools; names with the same first word are adjacent
    titles: Range  # like names of people and places; `plain` in title case comes last
    pairs: Range  # two words
    formatted: Range  # words, letters and digits, joined by marks
    capitals: Range  # `spaced`, capitalised
    openings: Range  # beginnings of a request
    glue: Range
    back: Range  # the step that follows has to be done first
    of: Range
    links: Range
    gaps: Range
    joins: Range
    articles: Range
    tell: Range
    ends: Range
    space: int
    digits: Range  # the texts of the numbers 0 to 999
    numbers: Range  # these numbers
    codes: Range

    def fixed_tokens(self, lexicon: Lexicon) -> set[int]:
        """Return the tokens of texts that are the same in all worlds.

        These are syntax, numbers, and the function words of a request.

        Args:
          lexicon: the spelling of all symbols.
        """
        fixed = np.zeros(lexicon.spans.start.shape[0], bool)
        fixed[: self.digits.high] = True  # syntax comes first
        for pool in (self.openings, self.glue, self.back, self.of, self.links,
                     self.gaps, self.joins, self.articles, self.tell,
                     self.ends):  # fmt: skip
            fixed[pool.low : pool.high] = True
        return fixed_tokens.of_symbols(lexicon, fixed)


def compile(symbols: ToolSymbols, tokenizer, avoid: set[str]) -> Words:
    """Add random words to the symbols.

    Args:
      symbols: the words are added to these.
      tokenizer: a `tokenizers.Tokenizer`; invented words are made of its tokens.
      avoid: words in lower case that are left out.
    """
    words = random_words(tokenizer, avoid)
    rng = np.random.default_rng(1)

    def joined(mark: str, seconds: Sequence[str] = words) -> list[str]:
        pairs = zip(
            rng.choice(words, NUM_WORDS), rng.choice(seconds, NUM_WORDS), strict=True
        )
        return list(dict.fromkeys(mark.join(pair) for pair in pairs))

    # Some names end in a letter and a number; so do all names of every second head.
    labels = [f"{letter}{n}" for letter in string.ascii_lowercase for n in range(100)]
    numbered = joined("_", labels)[: NUM_WORDS // 6]
    same_head = []
    for i, head in enumerate(rng.choice(words, NUM_HEADS, replace=False)):
        tails = rng.choice([words, labels][i % 2], NAMES_PER_HEAD, replace=False)
        same_head += [f"{head}_{tail}" for tail in tails]

    rng.shuffle(words)
    ends = ("", " ")
    spelled = [tokenizer.encode_batch([w + end for w in words]) for end in ends]
    rare = [max(map(len, both)) > 1 for both in zip(*spelled, strict=True)]
    words = [words[i] for i in np.argsort(rare, kind="stable")]
    plain = symbols.add(words)
    common = Range(plain.low, plain.low + rare.count(False))
    slots = max(common.high - COMMON_SLOTS, plain.low)
    return Words(
        plain=plain,
        common=common,
        slots=Range(slots, slots + NUM_SLOTS),
        spaced=symbols.add([word + " " for word in words]),
        names=symbols.add(joined("_") + numbered),
        same_head=symbols.add(same_head),
        titles=symbols.add([*map(str.title, joined(" ")), *map(str.title, words)]),
        pairs=symbols.add(joined(" ")),
        formatted=symbols.add(formatted(words)),
        capitals=symbols.add([word.capitalize() + " " for word in words]),
        openings=symbols.add([text.capitalize() for text in GLUE]),
        glue=symbols.add(GLUE),
        back=symbols.add(BACK),
        of=symbols.add(OF),
        links=symbols.add(LINKS),
        gaps=symbols.add(GAPS),
        joins=symbols.add(JOINS),
        articles=symbols.add(ARTICLES),
        tell=symbols.add(TELL),
        ends=symbols.add(ENDS),
        space=symbols.one(" "),
        digits=symbols.numbers,
        numbers=Range(*scalars.number_range(0, len(symbols.numbers) - 1, 0)),
        codes=symbols.codes,
    )


def formatted(words: Sequence[str]) -> list[str]:
    """Return values that look like dates, times, amounts, paths and identifiers.

    The same digits and marks come again and again in them, so that copying one takes
    keeping one's place in it.

    >>> formatted(["oak", "elm"])[:3]
    ["8052'Oak'Elm'Oak'Elm", '2699+Elm', '79399.45-Kf/f']
    """
    rng = np.random.default_rng(2)

    def part(kind: int) -> str:
        if kind < 3:
            size = rng.choice([1, 2, 2, 3, 4, 5])
            return "".join(rng.choice(list(string.digits), size))
        if kind == 3:
            size = rng.choice([1, 1, 2, 3])
            return "".join(rng.choice(list(string.ascii_letters), size))
        word = str(rng.choice(words))
        return word.title() if kind == 4 else word

    values = dict[str, None]()
    while len(values) < NUM_FORMATTED:
        size = rng.choice([2, 2, 3, 3, 4, 5, 6])
        # Half of the values have one mark and one kind of part throughout.
        marks, kinds = rng.choice(MARKS, size), rng.integers(0, 6, size)
        if rng.random() < 0.5:
            marks[:], kinds[1:] = marks[-1], kinds[-1]
        text = part(kinds[0])
        for mark, kind in zip(marks[1:], kinds[1:], strict=True):
            following = part(kind)
            # A blank is between digits only: a reader has to see where a value ends.
            if mark == " " and not (text[-1] + following).isdigit():
                mark = "-"
            text += mark + following
        values[text] = None
    return [*values]


def random_words(tokenizer, avoid: set[str]) -> list[str]:
    """Return listed words and invented ones, in lower case.

    An invented word is a concatenation of tokens. Some consist of short tokens, which
    many words share, so that the last token does not tell how the word continues.

    Args:
      tokenizer: a `tokenizers.Tokenizer`.
      avoid: words in lower case that are left out.

    Returns:
      `NUM_WORDS` different words.
    """
    known = sorted({word.lower() for word in tokenizers.words()} - avoid)
    tokens = [tokenizer.decode([i]) for i in range(tokenizer.get_vocab_size())]
    tokens = [t for t in tokens if t.isascii() and t.isalpha()]
    short = [t for t in tokens if len(t) <= 2]
    long = [t for t in tokens if len(t) > 2]
    rng = np.random.default_rng(0)
    words = dict.fromkeys(word for word in known if len(word) > 2)
    while len(words) < NUM_WORDS:
        if rng.random() < 0.3:
            word = "".join(rng.choice(short, rng.choice([2, 3])))
        else:
            word = "".join(rng.choice(long, rng.choice([1, 2])))
        if 3 <= len(word) <= 16 and word.lower() not in avoid:
            words[word.lower()] = None
    return list(words)[:NUM_WORDS]
