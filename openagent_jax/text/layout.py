"""Fill the layouts of a style with symbols, in JAX.

A layout is a sequence of pieces: literal texts and slots (see `style`). An environment
writes an array of symbols, padded with 0, the empty text, so that texts of different
lengths have the same shape. `lexicon.write` converts the symbols to tokens.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.text import style as styles
from openagent_jax.text.style import Layout, Piece


def fill(
    layouts: Sequence[Layout[int]],
    which: Int[Array, ""],
    slots: dict[int, Int[Array, "_"]],
    numeric: Bool[Array, "A"] | None = None,
) -> Int[Array, "P"]:
    """Return one of the layouts with its slots filled, as an array of symbols.

    Args:
      layouts: the layouts to choose from; their literals are symbols.
      which: the traced index of the layout; the shape of the result does not depend on
        it.
      slots: for each kind of slot that occurs, the symbols that fill it. The slots
        `NAME`, `TEXT` and `NEEDS` take all of them, `ARGUMENT` and `VALUE` take the
        symbol at the index of the slot.
      numeric: for each argument, whether its value is a number. Literals next to a
        number may differ (no quotes in JSON). If None, no value is a number.

    Returns:
      P symbols, where P is the length of the longest layout; shorter layouts are padded
      with 0.

    Here 5 stands for the text `Answer: `, and 7 is the value of the answer:

    >>> from openagent_jax.text.style import LITERAL, VALUE, Piece
    >>> answer = (Piece(LITERAL, 0, 5, 5), Piece(VALUE, 0, 0, 0))
    >>> refuse = (Piece(LITERAL, 0, 6, 6),)
    >>> fill([answer, refuse], jnp.int32(0), {VALUE: jnp.array([7])}).tolist()
    [5, 7]
    >>> fill([answer, refuse], jnp.int32(1), {VALUE: jnp.array([7])}).tolist()
    [6, 0]
    """
    start, total = {}, 0
    for kind, symbols in slots.items():
        start[kind], total = total, total + len(symbols)
    whole_row = (styles.NAME, styles.TEXT, styles.NEEDS)

    def codes(piece: Piece):
        """Return `(code, code next to a number, index of that number)` per symbol.

        The code of a literal is its symbol; symbol i of the concatenated slots has the
        code -1 - i.
        """
        if piece.kind == styles.LITERAL:
            return [(piece.text, piece.number, piece.index)]
        size = len(slots[piece.kind]) if piece.kind in whole_row else 1
        first = start[piece.kind] + piece.index
        return [(-1 - i, -1 - i, 0) for i in range(first, first + size)]

    rows = [[code for piece in layout for code in codes(piece)] for layout in layouts]
    size = max(map(len, rows))
    table = jnp.array([row + [(0, 0, 0)] * (size - len(row)) for row in rows])
    text, number, beside = jnp.moveaxis(table[which], -1, 0)
    code = text if numeric is None else jnp.where(numeric[beside], number, text)
    filled = jnp.concatenate([*slots.values(), jnp.zeros(1, jnp.int32)])
    return jnp.where(code >= 0, code, filled[-1 - code])


def single(symbol: int) -> Int[Array, "1"]:
    """Return one symbol as an array."""
    return jnp.array([symbol], jnp.int32)


def stack(symbols: Sequence[Array | int]) -> Int[Array, "_"]:
    """Stack scalar symbols, some of which may be traced, into an array."""
    return jnp.stack(list(map(jnp.int32, symbols)))


def pad(symbols: Int[Array, "_"], size: int) -> Int[Array, "size"]:
    """Pad symbols on the right with empty texts, to `size` symbols."""
    return jnp.pad(symbols, (0, size - symbols.shape[0]))
