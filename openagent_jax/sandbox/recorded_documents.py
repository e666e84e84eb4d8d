"""The documents of recorded tasks as arrays, and other words for what they say.

Tasks that show the same document share a row; what a tool needs of another one is of
the task.
"""

# Arrays are built in NumPy, and become JAX arrays at the end.
# pyright: reportArgumentType=false

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Int

from openagent_jax.sandbox import domain, style, wording
from openagent_jax.sandbox.log_mapping import Document
from openagent_jax.sandbox.symbols import Symbols
from openagent_jax.types import Limits

SYNONYMS = 3  # of a name or description, at most


class Documents(NamedTuple):
    """As arrays; row 0 is none."""

    name: Int[Array, "D"]
    description: Int[Array, "D W"]
    arg_name: Int[Array, "D A"]
    arg_low: Int[Array, "D A"]
    arg_high: Int[Array, "D A"]
    variants: domain.Variants  # [2 D ...]


class Table:
    """The documents of all tasks, and the symbols of values."""

    def __init__(self, symbols: Symbols, limits: Limits):
        self._symbols, self._limits = symbols, limits
        self._rows: dict[tuple, int] = {}
        self._values: dict[str, int] = {}

    def row(self, document: Document) -> int:
        """Where a document is; what it needs of others is no part of it."""
        return self._rows.setdefault(document[:3], len(self._rows) + 1)

    def value(self, text: str) -> int:
        """A symbol from the first number on: of these are all values of arguments."""
        symbol = self._values.get(text)
        if symbol is None:
            symbol = self._symbols.one(text)
            if symbol < self._symbols.numbers.low:  # a text of the style
                symbol = self._symbols.add([text]).low
            self._values[text] = symbol
        return symbol

    def arrays(self) -> Documents:
        D, A, W = len(self._rows) + 1, self._limits.num_args, self._limits.num_pieces
        one = self._symbols.one
        name, description = np.zeros(D, np.int32), np.zeros((D, W), np.int32)
        arg_name, numeric = np.zeros((D, A), np.int32), np.zeros((D, A), bool)
        variants = domain.Variants(
            np.zeros((2, D, SYNONYMS), np.int32),
            np.zeros((2, D, SYNONYMS), np.int32),
            np.zeros((2, D, A, SYNONYMS), np.int32),
        )
        said = _Said(self._rows)
        for (tool, pieces, arguments), d in self._rows.items():
            name[d] = one(tool)
            description[d, : len(pieces)] = list(map(one, pieces))
            for a, (argument, number) in enumerate(arguments):
                arg_name[d, a], numeric[d, a] = one(argument), number
            for s, split in enumerate(domain.SPLITS):
                variants.name[s, d] = self._fill(said.names(tool, pieces)[split])
                texts = said.descriptions(tool, pieces)[split]
                variants.description[s, d] = self._fill(texts)
                for a, (argument, _) in enumerate(arguments):
                    texts = said.arguments(argument)[split]
                    variants.arg_name[s, d, a] = self._fill(texts)
        numbers, end = self._symbols.numbers, len(self._symbols.texts)
        there = arg_name > 0
        low = np.where(there, numbers.low, 0)
        high = np.where(there, np.where(numeric, numbers.high, end), 0)
        low, high = low.astype(np.int32), high.astype(np.int32)
        return Documents(name, description, arg_name, low, high, variants)

    def _fill(self, texts: Sequence[str]) -> list[int]:
        return [self._symbols.one(texts[i % len(texts)]) for i in range(SYNONYMS)]


class _Said:
    """Other words for the same, no two alike, some of them for the test alone."""

    def __init__(self, documents: Iterable[tuple]):
        documents = list(documents)
        self._taken = {
            "name": {tool for tool, *_ in documents},
            "description": {"".join(pieces) for _, pieces, _ in documents},
            "argument": {style.CODE, *(x for *_, xs in documents for x, _ in xs)},
        }
        self._known: dict[tuple[str, str], dict[str, list[str]]] = {}

    def names(self, tool: str, pieces: tuple[str, ...]) -> dict[str, list[str]]:
        def made():
            return wording.names(tool, wording.doing(tool, "".join(pieces)))

        return self._pools("name", tool, made)

    def descriptions(self, tool: str, pieces: tuple[str, ...]) -> dict[str, list[str]]:
        def made():
            return wording.descriptions(wording.doing(tool, "".join(pieces)))

        return self._pools("description", "".join(pieces), made)

    def arguments(self, name: str) -> dict[str, list[str]]:
        return self._pools("argument", name, lambda: wording.arguments(name))

    def _pools(
        self, kind: str, text: str, made: Callable[[], dict[str, list[str]]]
    ) -> dict[str, list[str]]:
        if (kind, text) not in self._known:
            self._known[kind, text] = {
                split: wording.unclaimed(texts, self._taken[kind], SYNONYMS)
                for split, texts in made().items()
            }
        return self._known[kind, text]
