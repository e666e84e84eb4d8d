"""The documents of the tools of all domains of a world, word for word.

`Documents` collects the function objects of tools on the host. `table` turns their
documents into rows of codes for the device: a code is the symbol of a literal text, or
a slot, which takes a word of the task (see `text.layout.codes`). So a perturbation that
edits a word of a task edits the same word of the document, and nothing else.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from openagent_jax.domains.domain_spec import DomainSpec
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import render
from openagent_jax.environments.tools.types import NUM_REMARKS, NUM_TEXT_PIECES
from openagent_jax.text import chat, documents, messages, nesting, style
from openagent_jax.text.style import Layout, Piece, Style
from openagent_jax.text.symbols import Symbols

# The number of documents, and that of pieces of a document that is longer than generic
# ones, are multiples of these, so that many worlds share compiled programs.
DOCUMENT_BLOCK, PIECE_BLOCK = 16, 16


class Function(NamedTuple):
    """A function object, and the paths of its arguments in the order of the arrays of a
    task."""

    value: Mapping[str, Any]
    arguments: tuple[str, ...]

    def reworded(
        self, name: str, description: str, arguments: Sequence[str], with_code: bool
    ) -> dict[str, Any]:
        """Return the function object in other words.

        Args:
          name: the name that it gets.
          description: the description that it gets.
          arguments: the path that each argument gets, in their order.
          with_code: whether the code is added to its parameters.
        """
        renamed = dict(zip(self.arguments, arguments, strict=False))
        code = style.CODE if with_code else ""
        made = messages.reworded(self.value, name, description, renamed, code)
        return copy.deepcopy(made)  # the caller may change it


class Documents:
    """Collects the documents of the tools of a world.

    Attributes:
      functions: the functions; `Tools.document` is an index into them.
      style: the style in which prompts are written. `table` may move the beginning of
        documents in it.
    """

    def __init__(self, form: Style[str]):
        self.functions: list[Function] = []
        self.style = form
        self._originals: dict[int, str] = {}

    def add(self, function: Mapping[str, Any], arguments: Sequence[str]) -> int:
        """Add the function object of a tool; return its index."""
        self.functions.append(Function(function, tuple(arguments)))
        return len(self.functions) - 1

    def text(self, symbols: Symbols, text: str) -> int:
        """Return the symbol of a text of a description, as the style writes it."""
        symbol = symbols.one(documents.escape(self.style, text))
        self._originals[symbol] = text
        return symbol

    def description(self, symbols: Symbols, text: str, num_pieces: int) -> list[int]:
        """Return a description as pieces, of which the first has all of its text."""
        return [self.text(symbols, text)] + [0] * (num_pieces - 1)

    def original(self, symbol: int, texts: Sequence[str]) -> str:
        """Return a piece of a description as it is in its file.

        Args:
          symbol: the piece.
          texts: the text of each symbol.
        """
        return self._originals.get(symbol, texts[symbol])

    def table(self, symbols: Symbols, limits: Limits) -> Int[np.ndarray, "K D"]:
        """Return all documents as rows of codes; call this once all are added.

        The first rows are the generic layouts of the style, by number of parameters.
        Then come one row for each document, or two in a style that documents the code
        as a parameter: without the code, and with it.

        Args:
          symbols: the texts of the documents are added to these.
          limits: sizes of the arrays.

        Raises:
          ValueError: the chat template writes documents in an unsupported way.
        """
        if self.style.template is not None:
            values = [function.value for function in self.functions]
            self.style = chat.with_heads(self.style.template, self.style, values)
        # The texts of the style get the symbols that they get in `lexicon.build`.
        layouts: list[Layout[int]] = [*style.mapped(self.style, symbols.one).documents]
        generic = self._codes(layouts, limits)
        with_code = (False, True) if self.style.code_is_parameter else (False,)
        own = [
            _as_symbols(self._layout(function, code, limits), symbols)
            for function in self.functions
            for code in with_code
        ]
        if self.style.template is not None:
            for code in with_code:
                self._check(code, limits)
        room = -(-len(own) // DOCUMENT_BLOCK) * DOCUMENT_BLOCK
        rows = [*generic, *self._codes(own, limits)]
        longest, size = max(map(len, rows)), len(generic[0])
        if longest > size:
            size += -(-(longest - size) // PIECE_BLOCK) * PIECE_BLOCK
        table = np.zeros((len(generic) + room, size), np.int32)
        for at, row in enumerate(rows):
            table[at, : len(row)] = row
        return table

    def _codes(self, layouts: list[Layout[int]], limits: Limits) -> list[list[int]]:
        sizes = limits.num_pieces, limits.num_args, limits.depth - 1
        return render.document_codes(layouts, *sizes) if layouts else []

    def _layout(
        self, function: Function, with_code: bool, limits: Limits
    ) -> Layout[str]:
        value, arguments = function
        is_path = limits.depth > 1 or _escaped(arguments)
        keys = _slots(arguments, limits) if is_path else None
        return documents.layout(self.style, value, arguments, with_code, keys)

    def _check(self, with_code: bool, limits: Limits) -> None:
        """Check that the template writes these documents as they are."""
        written = []
        for function in self.functions:
            value, arguments = function
            words = value["name"], value["description"], arguments
            texts = [*arguments]
            if limits.depth > 1 or _escaped(arguments):
                keys = _slots(arguments, limits)
                texts = [""] * (1 + max(keys.values(), default=0))
                for key, at in keys.items():
                    texts[at] = key
            written.append(
                chat.Written(
                    self._layout(function, with_code, limits),
                    function.reworded(*words, with_code),
                    texts,
                )
            )
        if written:
            chat.check_documents(self.style.template, self.style, written)


def _escaped(paths: Sequence[str]) -> bool:
    """Tell whether some keys are not written as they are."""
    return any(nesting.DOT in path for path in paths)


def _slots(paths: Sequence[str], limits: Limits) -> dict[str, int]:
    """Return the slot of each key of some paths; see `render.document_codes`."""
    slots: dict[str, int] = {}
    for number, path in enumerate(paths):
        keys = nesting.parse(path)
        for level, key in enumerate(keys):
            outer = limits.num_args + 1 + number * (limits.depth - 1) + level
            at = number if level == len(keys) - 1 else outer
            if isinstance(key, str):
                slots.setdefault(key, at)
    return slots


def fitted(limits: Limits, specs: Sequence[DomainSpec]) -> Limits:
    """Return limits with room for what domains have, and for nothing that they lack."""
    columns = [len(table.columns) for spec in specs for table in spec.tables]
    also = [len(x) for spec in specs for tool in spec.tools for x in tool.also.values()]
    return replace(
        limits,
        num_pieces=max(limits.num_pieces, NUM_TEXT_PIECES + NUM_REMARKS),
        num_columns=max(columns, default=0),
        num_unions=max([limits.num_unions, *also]),
        conditions=any(goal.conditions for spec in specs for goal in spec.goals),
        paging=any(tool.pages for spec in specs for tool in spec.tools),
    )


def _as_symbols(form: Layout[str], symbols: Symbols) -> Layout[int]:
    one = symbols.one  # that of the empty text of a slot is 0
    return tuple(Piece(x.kind, x.index, one(x.text), one(x.number)) for x in form)
