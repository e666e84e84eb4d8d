"""The tools' documents of logged tasks as arrays, with synonyms for perturbations.

Tasks that show the same document share a row. The dependencies of a tool on other tools
belong to the task, not to the document.
"""

# Arrays are built in NumPy, and become JAX arrays at the end.
# pyright: reportArgumentType=false

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Int

from openagent_jax.domains.limits import Limits
from openagent_jax.environments.logs.logged_task import Document
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import scalars, style, wording

NUM_SYNONYMS = 3  # of each name, description and argument, by split


class Documents(NamedTuple):
    """The documents of all tasks as symbols; row 0 stands for no document.

    Attributes:
      name: the name of each tool.
      description: the pieces of its description, padded with 0.
      arg_name: the names of its arguments, padded with 0.
      arg_low: the first symbol that an argument can have.
      arg_high: the end of its range of symbols, exclusive.
      arg_also: further ranges; there are none.
      variants: synonyms of all these by split, [2 D ...].
    """

    name: Int[Array, "D"]
    description: Int[Array, "D W"]
    arg_name: Int[Array, "D A"]
    arg_low: Int[Array, "D A"]
    arg_high: Int[Array, "D A"]
    arg_also: Int[Array, "D A Z 2"]
    variants: domain.Variants


class DocumentTable:
    """Collects the documents of all tasks, and the symbols of their values.

    Args:
      symbols: the table that surface forms are added to.
      limits: the sizes of the arrays.
    """

    def __init__(self, symbols: ToolSymbols, limits: Limits):
        self._symbols, self._limits = symbols, limits
        self._rows: dict[tuple, int] = {}
        self._values: dict[str, int] = {}

    def row(self, document: Document) -> int:
        """Return the row of a document; it is added if it is new."""
        # The key leaves out the dependencies on other tools.
        return self._rows.setdefault(document[:3], len(self._rows) + 1)

    def value(self, text: str) -> int:
        """Return the symbol of a value; it is added if it is new.

        Symbols of values are never below the symbol of the first number, since the
        ranges of arguments start there.
        """
        symbol = self._values.get(text)
        if symbol is None:
            symbol = self._symbols.one(text)
            # A text of the style has a symbol already, below those of values.
            if symbol < self._symbols.numbers.low:
                symbol = self._symbols.add([text]).low
            self._values[text] = symbol
        return symbol

    def arrays(self) -> Documents:
        """Return the documents as arrays; call this once all values are added."""
        D, A, W = len(self._rows) + 1, self._limits.num_args, self._limits.num_pieces
        one = self._symbols.one
        name, description = np.zeros(D, np.int32), np.zeros((D, W), np.int32)
        arg_name, numeric = np.zeros((D, A), np.int32), np.zeros((D, A), bool)
        variants = domain.Variants(
            np.zeros((2, D, NUM_SYNONYMS), np.int32),
            np.zeros((2, D, NUM_SYNONYMS), np.int32),
            np.zeros((2, D, A, NUM_SYNONYMS), np.int32),
            np.zeros((2, D, A, self._limits.depth - 1, NUM_SYNONYMS), np.int32),
        )
        synonyms = _Synonyms(self._rows)
        for (tool, pieces, arguments), d in self._rows.items():
            name[d] = one(tool)
            description[d, : len(pieces)] = list(map(one, pieces))
            for a, (argument, number) in enumerate(arguments):
                arg_name[d, a], numeric[d, a] = one(argument), number
            for s, split in enumerate(domain.SPLITS):
                variants.name[s, d] = self._repeated(
                    synonyms.names(tool, pieces)[split]
                )
                texts = synonyms.descriptions(tool, pieces)[split]
                variants.description[s, d] = self._repeated(texts)
                for a, (argument, _) in enumerate(arguments):
                    texts = synonyms.arguments(argument)[split]
                    variants.arg_name[s, d, a] = self._repeated(texts)
        numbers, end = self._symbols.numbers, len(self._symbols.texts)
        exists = arg_name > 0
        # Values are texts here, also those that are written without quotes.
        shift = np.where(numeric, scalars.UNQUOTED, 0)
        low = np.where(exists, numbers.low + shift, 0)
        high = np.where(exists, np.where(numeric, numbers.high, end) + shift, 0)
        low, high = low.astype(np.int32), high.astype(np.int32)
        also = np.zeros((D, A, self._limits.num_unions, 2), np.int32)
        return Documents(name, description, arg_name, low, high, also, variants)

    def _repeated(self, texts: Sequence[str]) -> list[int]:
        return [self._symbols.one(texts[i % len(texts)]) for i in range(NUM_SYNONYMS)]


class _Synonyms:
    """Synonyms by split; no two documents and no two splits share one."""

    def __init__(self, documents: Iterable[tuple]):
        documents = list(documents)
        self._taken = {
            "name": {tool for tool, *_ in documents},
            "description": {"".join(pieces) for _, pieces, _ in documents},
            "argument": {style.CODE, *(x for *_, xs in documents for x, _ in xs)},
        }
        self._known: dict[tuple[str, str], dict[str, list[str]]] = {}

    def names(self, tool: str, pieces: tuple[str, ...]) -> dict[str, list[str]]:
        def candidates():
            return wording.tool_names(tool, wording.purpose(tool, "".join(pieces)))

        return self._pools("name", tool, candidates)

    def descriptions(self, tool: str, pieces: tuple[str, ...]) -> dict[str, list[str]]:
        def candidates():
            return wording.descriptions(wording.purpose(tool, "".join(pieces)))

        return self._pools("description", "".join(pieces), candidates)

    def arguments(self, name: str) -> dict[str, list[str]]:
        return self._pools("argument", name, lambda: wording.argument_names(name))

    def _pools(
        self, kind: str, text: str, candidates: Callable[[], dict[str, list[str]]]
    ) -> dict[str, list[str]]:
        if (kind, text) not in self._known:
            self._known[kind, text] = {
                split: wording.take_unused(texts, self._taken[kind], NUM_SYNONYMS)
                for split, texts in candidates().items()
            }
        return self._known[kind, text]
