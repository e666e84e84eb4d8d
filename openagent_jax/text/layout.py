"""Fill the layouts of a style with symbols, in JAX.

A layout is a sequence of pieces: literal texts and slots (see `style`). An environment
writes an array of symbols, padded with 0, the empty text, so that texts of different
lengths have the same shape. `lexicon.write` converts the symbols to tokens.
"""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.text import style as styles
from openagent_jax.text.style import Layout, Piece


def fill(
    layouts: Sequence[Layout[int]],
    which: Int[Array, ""],
    slots: Mapping[int, Int[Array, "_"]],
    numeric: Bool[Array, "A"] | None = None,
) -> Int[Array, "P"]:
    """Return one of the layouts with its slots filled, as an array of symbols.

    Args:
      layouts: the layouts to choose from; their literals are symbols.
      which: the traced index of the layout; the shape of the result does not depend on
        it.
      slots: for each kind of slot that occurs, the symbols that fill it. The slots
        `NAME`, `TEXT` and `NEEDS` take all of them, `ARGUMENT` takes the symbol at the
        index of the slot. `VALUE` takes its share: with A symbols for `ARGUMENT` and
        K A for `VALUE`, each value has K.
      numeric: for each argument, whether its value is written without quotes, as
        numbers are. Literals next to it may then differ. If None, none is.

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
    sizes = {kind: len(symbols) for kind, symbols in slots.items()}
    table = jnp.array(codes(layouts, sizes))
    text, number, beside = jnp.moveaxis(table[which], -1, 0)
    code = text if numeric is None else jnp.where(numeric[beside], number, text)
    return filled(code, slots)


def codes(
    layouts: Sequence[Layout[int]], sizes: Mapping[int, int]
) -> list[list[tuple[int, int, int]]]:
    """Return layouts as rows of codes, which `filled` turns into symbols.

    The code of a literal is its symbol; symbol i of the concatenated slots has the code
    -1 - i. Shorter rows are padded with the empty text.

    Args:
      layouts: the layouts; their literals are symbols.
      sizes: the number of symbols of each kind of slot, in the order in which `filled`
        is given them.

    Returns:
      For each symbol of each layout, its code, its code next to a number, and the
      argument that this number is the value of.

    >>> from openagent_jax.text.style import ARGUMENT, LITERAL, NAME, Piece
    >>> call = Piece(NAME, 0, 0, 0), Piece(LITERAL, 0, 5, 5), Piece(ARGUMENT, 1, 0, 0)
    >>> codes([call], {NAME: 1, ARGUMENT: 2})
    [[(-1, -1, 0), (5, 5, 0), (-3, -3, 0)]]
    """
    start, total = {}, 0
    for kind, size in sizes.items():
        start[kind], total = total, total + size
    whole_row = (styles.NAME, styles.TEXT, styles.NEEDS)

    def of_piece(piece: Piece) -> list[tuple[int, int, int]]:
        if piece.kind == styles.LITERAL:
            return [(piece.text, piece.number, piece.index)]
        size = sizes[piece.kind] if piece.kind in whole_row else 1
        if piece.kind == styles.VALUE:
            size = sizes[piece.kind] // sizes.get(styles.ARGUMENT, 1)
        first = start[piece.kind] + size * piece.index
        return [(-1 - i, -1 - i, 0) for i in range(first, first + size)]

    rows = [
        [code for piece in layout for code in of_piece(piece)] for layout in layouts
    ]
    size = max(map(len, rows))
    return [row + [(0, 0, 0)] * (size - len(row)) for row in rows]


def filled(
    code: Int[Array, "P"], slots: Mapping[int, Int[Array, "_"]]
) -> Int[Array, "P"]:
    """Return the symbols that codes stand for, given those that fill the slots."""
    symbols = jnp.concatenate([*slots.values(), jnp.zeros(1, jnp.int32)])
    return jnp.where(code >= 0, code, symbols[-1 - code])


def single(symbol: int) -> Int[Array, "1"]:
    """Return one symbol as an array."""
    return jnp.array([symbol], jnp.int32)


def stack(symbols: Sequence[Array | int]) -> Int[Array, "_"]:
    """Stack scalar symbols, some of which may be traced, into an array."""
    return jnp.stack(list(map(jnp.int32, symbols)))


def pad(symbols: Int[Array, "_"], size: int) -> Int[Array, "size"]:
    """Pad symbols on the right with empty texts, to `size` symbols."""
    return jnp.pad(symbols, (0, size - symbols.shape[0]))
