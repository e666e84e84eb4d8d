"""A small byte-level BPE tokenizer, trained once on lists of words and shipped.

A word has the same pieces wherever it stands: at the beginning of a sentence, before a
blank or a comma, in the plural, or in a name such as `list_cities`. A small model can
then find a word of the request in the tools, and copy it into a call. For this,

  * a space or underscore belongs to the word before it, and is merged with its last
    piece only after all letters have been merged;
  * whatever is merged in lower case is merged likewise after a capital;
  * a final `s` is a piece of its own, except in short words and after another `s`, an
    `i` or a `u`.

Pieces of JSON that occur in every message are single tokens.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, trainers
from tokenizers import pre_tokenizers as pre

END = "<|end|>"
SPECIAL = ("<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", END)
GLUE_WEIGHT = 9  # weight of a function word, in occurrences
# Words of so many domains are weighted so that they become single tokens.
MANY_DOMAINS, MANY_WEIGHT = 3, 40
WORDS = Path(__file__).with_name("words.txt")
SPACE = "Ġ"  # how byte-level BPE writes a space
STEM = r"[A-Za-z]{3,}(?<![siu])(?=s(?![A-Za-z]))"

Merge = tuple[str, str]


def train(
    syntax: Iterable[str], num_domains: Mapping[str, int], num_merges: int
) -> Tokenizer:
    """Return a BPE tokenizer whose merges are learnt from lists of words.

    Args:
      syntax: texts that become one token each, such as `{"name":"`. Single characters
        and duplicates are left out.
      num_domains: words in lower case besides those of the word list, and in how many
        domains each occurs.
      num_merges: number of merges of letters in lower case. The vocabulary is about
        four times as large.

    >>> bpe = train(['{"name":"'], {"exhibit": 3}, num_merges=500)
    >>> bpe.encode('{"name":"exhibit').tokens
    ['{"name":"', 'exhibit']
    >>> [bpe.encode(text).tokens for text in ("Exhibits ", "exhibit_")]
    [['Exhibit', 'sĠ'], ['exhibit_']]
    """
    weights = _weights(num_domains)
    lower = _merges(weights, num_merges)
    first = _at_the_beginning(weights, lower)
    merges = []
    for rank, (left, right) in enumerate(lower):
        merges.append((left, right))
        if rank in first:
            merges.append((left.capitalize(), right))
    letters = [chr(ord("a") + i) for i in range(26)]
    pieces = list(dict.fromkeys(map("".join, merges)))
    ends = [(x, SPACE) for x in (*letters, *map(str.upper, letters), *pieces)]
    named = {stem for word in _named(num_domains) for stem in _stems(word)}
    ends += [(x, "_") for x in pieces if x in named]
    tokens = (*SPECIAL, *sorted(pre.ByteLevel.alphabet()), *pieces, *map("".join, ends))
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}

    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[*merges, *ends]))
    tokenizer.pre_tokenizer = pre.Sequence(
        [
            pre.Split(Regex(STEM + r"|[A-Za-z]+[ _]?|[0-9]|[^A-Za-z0-9]"), "isolated"),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIAL])
    # These are not special tokens: they are ordinary text that takes one token.
    whole = [text for text in dict.fromkeys(syntax) if len(text) > 1]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in whole])
    return tokenizer


def words() -> set[str]:
    """Return the words of the word list, except the function words of English."""
    *content, _ = _paragraphs()
    return {word for paragraph in content for word in paragraph}


def _paragraphs() -> list[list[str]]:
    return [part.split() for part in WORDS.read_text().split("\n\n")]


def _weights(num_domains: Mapping[str, int]) -> Counter[str]:
    """Return how often the corpus has each stem; frequent ones are merged first."""
    content, services, names, glue = _paragraphs()
    counts = Counter[str]()
    for pool, weight in ((content, 1), (names, 1), (services, 3), (glue, GLUE_WEIGHT)):
        for word in pool:
            counts[word.lower()] += weight
    for word, num in num_domains.items():
        counts[word] += num**2 + (MANY_WEIGHT if num >= MANY_DOMAINS else 0)
    weights = Counter[str]()
    for word, count in counts.items():
        for stem in _stems(word):
            weights[stem] += count
    return weights


def _named(num_domains: Mapping[str, int]) -> Iterator[str]:
    """Yield the words that are often followed by an underscore."""
    _, services, _, glue = _paragraphs()
    yield from (*services, *glue)
    yield from (word for word, num in num_domains.items() if num >= MANY_DOMAINS)


def _stems(word: str) -> list[str]:
    """Return a word without the final `s` that is a piece of its own.

    >>> _stems("exhibits"), _stems("glass"), _stems("his")
    (['exhibit'], ['glass'], ['his'])
    """
    stem = re.match(STEM + "s$", word)
    return [word[:-1] if stem else word]


def _merges(weights: Mapping[str, int], num: int) -> list[Merge]:
    """Return merges of letters in lower case, in the order in which they are made."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre.Split(Regex("[a-z]+"), "isolated")
    alphabet = [chr(ord("a") + i) for i in range(26)]
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + num, initial_alphabet=alphabet, show_progress=False
    )
    corpus = (word for word, weight in weights.items() for _ in range(weight))
    learner.train_from_iterator(corpus, trainer)
    left_right = json.loads(learner.to_str())["model"]["merges"]
    return [(left, right) for left, right in left_right]


def _at_the_beginning(weights: Iterable[str], merges: Sequence[Merge]) -> set[int]:
    """Return the ranks of the merges that some word needs at its beginning."""
    rank, found = {merge: i for i, merge in enumerate(merges)}, set[int]()
    for word in weights:
        parts = [*word]
        while True:
            pairs = zip(parts, parts[1:], strict=False)
            best = min((rank.get(pair, len(merges)) for pair in pairs), default=None)
            if best is None or best == len(merges):
                break
            left, right = merges[best]
            if parts[:2] == [left, right]:
                found.add(best)
            i = 0
            while i < len(parts) - 1:
                if parts[i : i + 2] == [left, right]:
                    parts[i : i + 2] = [left + right]
                i += 1
    return found
