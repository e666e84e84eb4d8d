"""Misspell words of a text so that each can still be read. This runs on the host.

A misspelt word is one edit away from the word that is meant, keeps its first letter,
and is close to no other word of the texts. Names, numbers and capitalised words stay.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

MIN_LETTERS = 5  # of a word that is misspelt

# Keys of a keyboard, row by row; neighbours of a key in its row are typed by mistake.
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_WORD = re.compile(rf"(?<![\w'-])[a-z]{{{MIN_LETTERS},}}(?![\w'-])")


class Speller:
    """Misspells words of texts.

    The kinds of mistakes are those of a split: transposed and omitted letters in
    training, doubled letters and neighbouring keys in the test.

    Args:
      texts: the texts whose words must be told apart.

    >>> speller = Speller(["the start of a storm", "the state of the sea"])
    >>> sorted(speller.forms("storm", "train"))
    ['sorm', 'sotrm', 'stom', 'stomr', 'strm', 'strom']
    """

    def __init__(self, texts: Iterable[str]):
        self._near: dict[str, set[str]] = defaultdict(set)
        words = {x for text in texts for x in re.findall(r"[a-z]+", text.lower())}
        for word in words:
            for close in _shorter(word):
                self._near[close].add(word)

    def forms(self, word: str, split: str) -> list[str]:
        """Return the misspelt forms of a word that are close to no other word.

        Words are close if leaving out at most one letter of each makes them equal.

        Args:
          word: the word.
          split: "train" or "test".
        """
        made = dict.fromkeys(_trained(word) if split == "train" else _tested(word))
        return [
            form
            for form in made
            if form != word
            and not any(self._near.get(x, {word}) - {word} for x in _shorter(form))
        ]

    def misspelt(self, text: str, split: str, seed: str) -> str:
        """Misspell half of the words of a text that can be misspelt, rounded up.

        Args:
          text: the text.
          split: "train" or "test".
          seed: the words and their mistakes are a function of it and of the text.

        >>> Speller([]).misspelt("Find the Ritz and its opening hour", "test", "1")
        'Find the Ritz and its openiing hour'
        """
        rng = random.Random(f"{seed}:{text}")
        forms = {x: self.forms(x, split) for x in {*_WORD.findall(text)}}
        words = [x for x in _WORD.finditer(text) if forms[x[0]]]
        chosen = rng.sample(words, (len(words) + 1) // 2)
        for word in sorted(chosen, key=re.Match.start, reverse=True):
            form = rng.choice(forms[word[0]])
            text = text[: word.start()] + form + text[word.end() :]
        return text


def _shorter(word: str) -> Iterator[str]:
    """Yield a word, and what is left of it without one of its letters."""
    yield word
    for i in range(len(word)):
        yield word[:i] + word[i + 1 :]


def _trained(word: str) -> Iterator[str]:
    for i in range(1, len(word) - 1):
        yield word[:i] + word[i + 1] + word[i] + word[i + 2 :]
        yield word[:i] + word[i + 1 :]


def _tested(word: str) -> Iterator[str]:
    for i in range(1, len(word)):
        yield word[: i + 1] + word[i:]
        row = next(x for x in _ROWS if word[i] in x)
        at = row.index(word[i])
        for key in row[max(at - 1, 0) : at] + row[at + 1 : at + 2]:
            yield word[:i] + key + word[i + 1 :]
