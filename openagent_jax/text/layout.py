"""Fill the layouts of a style with symbols, in JAX.

A layout is a row of pieces, literal texts and slots (see `style`). What an environment
writes is a row of symbols, in which 0 is the empty text, so that texts of different
length have arrays of one shape; `lexicon.write` turns the row into tokens.
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
    """Return one of the layouts with its slots filled, as a row of symbols.

    Args:
      layouts: to choose from; their literals are symbols.
      which: index of the layout, traced; the shape of the result does not depend on it.
      slots: for each kind of slot that occurs, the symbols that fill it. The slots
        `NAME`, `TEXT` and `NEEDS` take the whole row, `ARGUMENT` and `VALUE` take the
        symbol at the index of the slot.
      numeric: for each argument, whether its value is a number. Literals beside a
        number may differ (no quotes in JSON). If None, no value is a number.

    Returns:
      P symbols, where P is the size of the largest layout; 0 stands where a layout is
      shorter.

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
        """`(code, code beside a number, index of that number)` for each symbol.

        A literal's code is its symbol; -1 - i is the code of symbol i of all slots.
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
    """Return a row of one symbol."""
    return jnp.array([symbol], jnp.int32)


def stack(symbols: Sequence[Array | int]) -> Int[Array, "_"]:
    """Return a row of scalar symbols, some of them traced."""
    return jnp.stack(list(map(jnp.int32, symbols)))


def pad(symbols: Int[Array, "_"], size: int) -> Int[Array, "size"]:
    """Return the row with empty texts behind it, up to `size` symbols."""
    return jnp.pad(symbols, (0, size - symbols.shape[0]))
