"""The tools' documents of logged tasks as arrays, with synonyms for perturbations.

Tasks that show the same document share a row. The dependencies of a tool on other tools
belong to the task, not to the document.
"""

# Arrays are built in NumPy, and become JAX arrays at the end.
# pyright: reportArgumentType=false

import json
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Int

from openagent_jax.domains.limits import Limits
from openagent_jax.environments.logs.log_values import Bare, Value
from openagent_jax.environments.logs.logged_task import (
    BARE,
    NUMBER,
    TEXT,
    Argument,
    Document,
    LoggedTask,
)
from openagent_jax.environments.tools.worlds import documents, domain
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import nesting, scalars, schema_paths, style, wording
from openagent_jax.text.documents import purpose

NUM_SYNONYMS = 3  # of each name, description and argument, by split


class Documents(NamedTuple):
    """The documents of all tasks as symbols; row 0 stands for no document.

    Attributes:
      document: the function object of each tool; see `Tools.document`.
      name: the name of each tool.
      description: the pieces of its description, padded with 0.
      arg_name: the own keys of its arguments, padded with 0.
      arg_path: their outer keys.
      arg_low: the first value that an argument can have.
      arg_high: the end of its range of values, exclusive.
      arg_also: the ranges of further kinds of values.
      arg_default: 0 for an argument that may be left out, else -1.
      variants: synonyms of names, descriptions and keys by split, [2 D ...].
    """

    document: Int[Array, "D"]
    name: Int[Array, "D"]
    description: Int[Array, "D W"]
    arg_name: Int[Array, "D A"]
    arg_path: Int[Array, "D A L"]
    arg_low: Int[Array, "D A"]
    arg_high: Int[Array, "D A"]
    arg_also: Int[Array, "D A Z 2"]
    arg_default: Int[Array, "D A"]
    variants: domain.Variants


class DocumentTable:
    """Collects the documents of all tasks, and the symbols of their values.

    Args:
      symbols: the table that surface forms are added to.
      limits: the sizes of the arrays.
      tasks: all tasks.
      made: the function objects of the tools are added to these.
    """

    def __init__(
        self,
        symbols: ToolSymbols,
        limits: Limits,
        tasks: Iterable[LoggedTask],
        made: documents.Documents,
    ):
        self._symbols, self._limits, self._made = symbols, limits, made
        self._rows: dict[tuple, int] = {}
        self._texts: dict[str, int] = {}
        words = {"true", "false", *(x for task in tasks for x in task.literals())}
        ordered = sorted(words)
        # Each kind of values has a range of its own: words, then texts.
        self._bare = symbols.add(ordered)
        self._words = {x: self._bare.low + i for i, x in enumerate(ordered)}

    def row(self, document: Document) -> int:
        """Return the row of a document; it is added if it is new."""
        # The key leaves out the dependencies on other tools.
        key = *document[:3], document.parameters
        return self._rows.setdefault(key, len(self._rows) + 1)

    def value(self, value: Value) -> int:
        """Return a value as `scalars` has it; its text is added if it is new."""
        if isinstance(value, Decimal):
            return scalars.shortest(value)
        if isinstance(value, Bare) and value.text in self._words:
            return self._words[value.text]
        text = value.text if isinstance(value, Bare) else value
        symbol = self._texts.get(text)
        if symbol is None:
            symbol = self._symbols.one(text)
            # The range of texts begins after all that was there before.
            if symbol < self._bare.high:
                symbol = self._symbols.add([text]).low
            self._texts[text] = symbol
        return symbol

    def arguments(self, document: Document) -> tuple[Argument, ...]:
        """Return the arguments that there is room for.

        Of a tool that no call of the conversation has, some may be left out: then no
        perturbation renames them.
        """
        fits = (x for x in document.arguments if len(x.path) <= self._limits.depth)
        return tuple(fits)[: self._limits.num_args]

    def arrays(self) -> Documents:
        """Return the documents as arrays; call this once all values are added."""
        D, A, W = len(self._rows) + 1, self._limits.num_args, self._limits.num_pieces
        levels, num_also = self._limits.depth - 1, self._limits.num_unions
        one = self._symbols.one
        made = Documents(
            document=np.full(D, -1, np.int32),
            name=np.zeros(D, np.int32),
            description=np.zeros((D, W), np.int32),
            arg_name=np.zeros((D, A), np.int32),
            arg_path=np.zeros((D, A, levels), np.int32),
            arg_low=np.zeros((D, A), np.int32),
            arg_high=np.zeros((D, A), np.int32),
            arg_also=np.zeros((D, A, num_also, 2), np.int32),
            arg_default=np.full((D, A), -1, np.int32),
            variants=domain.Variants(
                np.zeros((2, D, NUM_SYNONYMS), np.int32),
                np.zeros((2, D, NUM_SYNONYMS), np.int32),
                np.zeros((2, D, A, NUM_SYNONYMS), np.int32),
                np.zeros((2, D, A, levels, NUM_SYNONYMS), np.int32),
            ),
        )
        end = len(self._symbols.texts)
        bare = np.array([self._bare.low, self._bare.high]) + scalars.UNQUOTED
        ranges = {
            TEXT: (self._bare.high, end),
            NUMBER: scalars.ANY_NUMBER,
            BARE: bare,
        }
        found = [Document(*key[:3], parameters=key[3]) for key in self._rows]
        synonyms = _Synonyms(found)
        for d, document in enumerate(found, 1):
            name, text, arguments, *_ = document
            arguments = self.arguments(document)
            schema = json.loads(document.parameters)
            paths = [nesting.written(x.path) for x in arguments]
            made.name[d] = one(name)
            made.description[d] = self._made.description(self._symbols, text, W)
            function = {"name": name, "description": text, "parameters": schema}
            made.document[d] = self._made.add(function, paths)
            for a, argument in enumerate(arguments):
                keys = nesting.encoded(argument.path, levels, one)
                made.arg_path[d, a], made.arg_name[d, a] = keys
                first, *others = (ranges[kind] for kind in argument.kinds)
                made.arg_low[d, a], made.arg_high[d, a] = first
                made.arg_also[d, a, : len(others)] = others or 0
                made.arg_default[d, a] = 0 if argument.optional else -1
            fixed = _fixed_keys(schema, arguments)
            for s, split in enumerate(domain.SPLITS):
                variants = made.variants
                variants.name[s, d] = self._repeated(synonyms.names(document)[split])
                texts = synonyms.descriptions(document)[split]
                texts = [self._made.text(self._symbols, x) for x in texts]
                variants.description[s, d] = np.resize(texts, NUM_SYNONYMS)
                for a, argument in enumerate(arguments):
                    *outer, own = argument.path
                    for key, row in (
                        (own, variants.arg_name[s, d, a]),
                        *zip(outer, variants.arg_path[s, d, a], strict=False),
                    ):
                        if isinstance(key, str):  # an index is never renamed
                            texts = synonyms.arguments(key)[split]
                            row[:] = self._repeated([key] if key in fixed else texts)
        return made

    def _repeated(self, texts: Sequence[str]) -> list[int]:
        return [self._symbols.one(texts[i % len(texts)]) for i in range(NUM_SYNONYMS)]


def _fixed_keys(schema: dict, arguments: Sequence[Argument]) -> set[str]:
    """Return the keys that are not renamed, since the schema does not have them all."""
    fixed = set[str]()
    for argument in arguments:
        found = schema_paths.places(schema, argument.path)
        fixed |= {x for x in argument.path[len(found) :] if isinstance(x, str)}
    return fixed


class _Synonyms:
    """Synonyms by split; no two documents and no two splits share one."""

    def __init__(self, documents: Sequence[Document]):
        keys = (key for x in documents for y in x.arguments for key in y.path)
        self._taken = {
            "name": {x.name for x in documents},
            "description": {x.description for x in documents},
            "argument": {style.CODE, *(key for key in keys if isinstance(key, str))},
        }
        self._known: dict[tuple[str, str], dict[str, list[str]]] = {}

    def names(self, document: Document) -> dict[str, list[str]]:
        def candidates():
            return wording.tool_names(document.name, _purpose(document))

        return self._pools("name", document.name, candidates)

    def descriptions(self, document: Document) -> dict[str, list[str]]:
        def candidates():
            return wording.descriptions(_purpose(document))

        return self._pools("description", document.description, candidates)

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


def _purpose(document: Document) -> wording.Purpose:
    return wording.purpose(document.name, purpose(document.description))
