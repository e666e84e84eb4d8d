"""The list of surface forms: every text that an environment can write or read.

A `Symbols` is built on the host. Adding texts returns their symbols, which are indices
into the list. `lexicon.build` makes the tables for the device from it. An environment
with surface forms of its own adds them in a subclass, or before it builds its lexicon
(see `environments/tools/worlds/symbols.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from openagent_jax.text.scalars import Digits

NUM_NUMBERS = 1000  # 0 to 999
# The texts of the compact style when the first worlds were drawn. What is drawn depends
# on the numbers of symbols, so this list stays as it is.
_FIRST = (
    "<|system|>", '{"description":"', '","name":"', '","parameters":[]', "}",
    '","parameters":["', '"]', '","', "<|user|>", "<|assistant|>", ',"code_from":"',
    '"', ',"call_after":"', '{"purpose":"', '","arguments":{}}', '","arguments":{"',
    '":"', '"}}', "Answer: ", "Refuse", "Ask", "<|end|>", "<|tool|>", '{"error":"',
    '"}', "cannot read this", "no such tool", "wrong arguments",
    "needs the code from ", "call first ", "failed, try again",
    "out of service for good", "replaced", "replaced by ", '{"', "[", "=", "; ", "]",
    "(", ": ", " / ", ")", "<", ">", "><", "</>", "ok ", " -> ", " & ", "!", "name",
    "arguments", "purpose", "code", "done", "result", "something", "I said all", ", ",
)  # fmt: skip


@dataclass(frozen=True)
class Range:
    """The symbols `low <= s < high`."""

    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low


class Symbols:
    """A growing list of surface forms; symbol 0 is the empty text.

    A new list has the texts of the first compact style and the numbers 0 to 999, of
    which larger numbers and fractions are composed (see `scalars.spell`). Styles add
    their other texts last, in `lexicon.build`. Symbols, and the worlds that are drawn
    from them, therefore do not depend on the style.

    >>> symbols = Symbols()
    >>> symbols.texts[symbols.numbers.low + 17]
    '17'
    >>> colours = symbols.add(["red", "green"])
    >>> symbols.one("green") - colours.low, len(colours)
    (1, 2)
    """

    def __init__(self):
        self.texts: list[str] = [""]
        self._index = {"": 0}
        for text in _FIRST:
            self.one(text)
        self.numbers = self.add([str(i) for i in range(NUM_NUMBERS)])
        self._padded: Range | None = None

    def digits(self) -> Digits:
        """Return the symbols that spell numbers, adding those that are missing."""
        if self._padded is None:
            sizes = ((10, 2), (100, 3))
            texts = [f"{i:0{size}}" for num, size in sizes for i in range(num)]
            self._padded = self.add(texts)
        ends = self.numbers.low, self._padded.low
        return Digits(*ends, self.one("-"), self.one("."))

    def one(self, text: str) -> int:
        """Return the first symbol of a text, adding the text if it is new."""
        if text not in self._index:
            self._index[text] = len(self.texts)
            self.texts.append(text)
        return self._index[text]

    def add(self, texts: Sequence[str]) -> Range:
        """Add texts as a new contiguous range of symbols, and return the range.

        A text that the list already has gets another symbol, so that the range has one
        symbol for each of `texts`, in order.
        """
        low = len(self.texts)
        self.texts.extend(texts)
        for symbol, text in enumerate(texts, low):
            self._index.setdefault(text, symbol)
        return Range(low, len(self.texts))
