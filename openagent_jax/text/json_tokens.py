"""Split a text into JSON tokens, in JAX.

All tokens are found in parallel: quotes by a running parity, everything else by looking
at the neighbouring bytes.
"""

import string
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax.text import escapes

# Kinds of JSON tokens.
# Bare ones are numbers, booleans and null.
STRING, BARE, OPEN, CLOSE, COLON, COMMA, NOTHING, BAD, OPEN_LIST, CLOSE_LIST = range(10)
PUNCTUATION = {"{": OPEN, "}": CLOSE, ":": COLON, ",": COMMA}
OF_LISTS = {"[": OPEN_LIST, "]": CLOSE_LIST}


class Tokens(NamedTuple):
    """J JSON tokens of a text of Z bytes.

    Attributes:
      text: the text with escapes replaced; `begin` and `end` index into it.
      kind: the kind of each token.
      begin: where it begins; for a string, after the quote.
      end: where it ends, exclusive.
      valid: whether quotes and escapes are right, and all tokens have been found.
    """

    text: UInt[Array, "Z"]
    kind: Int[Array, "J"]
    begin: Int[Array, "J"]
    end: Int[Array, "J"]
    valid: Bool[Array, ""]


def blank(text: Array) -> Array:
    """Return which bytes are white space of JSON."""
    return (text == 32) | (text == 9) | (text == 10) | (text == 13)


def split(text: UInt[Array, "Z"], max_tokens: int, with_lists: bool) -> Tokens:
    """Return the JSON tokens of a text.

    Args:
      text: the bytes of the text.
      max_tokens: J, the most tokens that are found.
      with_lists: whether square brackets are tokens; otherwise they are `BAD`.
    """
    size = text.shape[0]
    place = jnp.arange(size)
    escaped = escapes.escaped(text)
    quote = (text == ord('"')) & ~escaped
    inside = jnp.cumsum(quote) % 2 == 1  # from an opening quote to before the closing
    closing = quote & ~inside
    control = inside & (text < 32)
    unescaped = escapes.unescape(text, inside & ~quote, escaped)

    table = np.full(256, BAD, np.int32)
    marks = PUNCTUATION | OF_LISTS if with_lists else PUNCTUATION
    for char, kind in marks.items():
        table[ord(char)] = kind
    for char in "+-." + string.digits + string.ascii_letters:
        table[ord(char)] = BARE
    kind = jnp.asarray(table)[text]
    bare = (kind == BARE) & ~inside & ~closing
    begins_bare = bare & ~jnp.concatenate([jnp.array([False]), bare[:-1]])
    outside = ~inside & ~closing & ~blank(text)
    starts = (quote & inside) | begins_bare | (outside & ~bare)
    kind = jnp.where(quote & inside, STRING, kind)

    count = jnp.cumsum(starts)
    where = jnp.searchsorted(count, jnp.arange(1, max_tokens + 1), side="left")
    real = jnp.arange(max_tokens) < count[-1]
    where = jnp.minimum(where, size - 1)
    # A string ends at its closing quote, all else at the first byte of another kind.
    stop = closing | ~(bare | inside)
    next_stop = jax.lax.cummin(jnp.where(stop, place, size), reverse=True)
    next_close = jax.lax.cummin(jnp.where(closing, place, size), reverse=True)
    kinds = jnp.where(real, kind[where], NOTHING)
    is_string = kinds == STRING
    end = jnp.where(is_string, next_close[where], next_stop[where])
    valid = (count[-1] <= max_tokens) & ~jnp.any(control)
    valid &= (jnp.sum(quote) % 2 == 0) & unescaped.valid
    # The end of a text that fills the whole array is one past its last byte.
    last = jnp.concatenate([unescaped.place, unescaped.place[-1:] + 1])
    begin = unescaped.place[jnp.minimum(where + is_string, size - 1)]
    return Tokens(unescaped.text, kinds, begin, last[jnp.minimum(end, size)], valid)


def is_word(json: Tokens, tokens: Int[Array, "K"], word: bytes) -> Bool[Array, "K"]:
    """Return which JSON tokens are a given word."""
    begin, last = json.begin[tokens], json.text.shape[0] - 1
    place = jnp.minimum(begin[:, None] + jnp.arange(len(word))[None], last)
    same = jnp.all(json.text[place] == np.frombuffer(word, np.uint8)[None], axis=1)
    return same & (json.end[tokens] - begin == len(word))
