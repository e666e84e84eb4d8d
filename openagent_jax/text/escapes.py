"""Check that bytes are UTF-8, and replace the escapes of JSON strings, on the device.

Both process all bytes of a text in parallel: the few bytes around a byte determine what
it means.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt


def is_utf8(text: UInt[Array, "Z"]) -> Bool[Array, ""]:
    """Return whether bytes are valid UTF-8.

    As in RFC 3629, there must be no overlong sequences, no surrogates and nothing above
    U+10FFFF.

    >>> is_utf8(jnp.array(list("é".encode()), jnp.uint8)).item()
    True
    >>> is_utf8(jnp.array([0xC0, 0xAF], jnp.uint8)).item()
    False
    """
    after = jnp.pad(text, (0, 3))
    one, two, three = (after[i : i + len(text)] for i in (1, 2, 3))

    def among(x, low, high):
        return (low <= x) & (x <= high)

    def follows(*others):
        return jnp.stack([among(x, 0x80, 0xBF) for x in others]).all(axis=0)

    second = among(one, 0x80, 0xBF)
    second &= (text != 0xE0) | (one >= 0xA0)
    second &= (text != 0xED) | (one <= 0x9F)
    second &= (text != 0xF0) | (one >= 0x90)
    second &= (text != 0xF4) | (one <= 0x8F)
    length = jnp.select(
        [
            text < 0x80,
            among(text, 0xC2, 0xDF) & second,
            among(text, 0xE0, 0xEF) & second & follows(two),
            among(text, 0xF0, 0xF4) & second & follows(two, three),
        ],
        [1, 2, 3, 4],
        0,
    )
    # The continuation bytes must be exactly those that the leading bytes require.
    led = jnp.zeros(len(text), bool)
    for i in (1, 2, 3):
        led |= jnp.pad(length > i, (i, 0))[: len(text)]
    return jnp.all((length > 0) != led) & jnp.all(led == among(text, 0x80, 0xBF))


def escaped(text: UInt[Array, "Z"]) -> Bool[Array, "Z"]:
    r"""Return a mask of the bytes that follow an odd number of backslashes.

    >>> escaped(jnp.array(list(rb'a\"\\"'), jnp.uint8)).astype(int).tolist()
    [0, 0, 1, 0, 1, 0]
    """
    place = jnp.arange(text.shape[0])
    slash = text == ord("\\")
    last_other = jax.lax.cummax(jnp.where(slash, -1, place))
    before = jnp.concatenate([jnp.array([-1]), last_other[:-1]])
    return ((place - 1 - before) % 2) == 1


class Unescaped(NamedTuple):
    """A text whose escapes have been replaced."""

    text: UInt[Array, "Z"]
    place: Int[Array, "Z"]  # new index of each byte of the original text
    valid: Bool[Array, ""]  # whether JSON allows all of the escapes


def unescape(
    text: UInt[Array, "Z"], inside: Bool[Array, "Z"], escaped: Bool[Array, "Z"]
) -> Unescaped:
    r"""Replace each escape by the bytes that it stands for; pad with spaces.

    A lone surrogate becomes three bytes that are not UTF-8, so that it equals no
    surface form.

    Args:
      text: the bytes.
      inside: mask of the bytes inside a JSON string; others keep their backslashes.
      escaped: mask of the bytes that are escaped, from the function `escaped`.

    >>> text = jnp.array(list(rb"\u00e9!"), jnp.uint8)
    >>> result = unescape(text, jnp.ones(7, bool), escaped(text))
    >>> bytes(result.text.tolist()).decode()
    'é!    '
    """
    size = text.shape[0]
    after = jnp.pad(text, (0, 12))

    def ahead(x, by: int):
        return x[by : by + size]

    starts = (text == ord("\\")) & ~escaped & inside
    letter = ahead(after, 1)
    is_short, value_of = np.zeros(256, bool), np.zeros(256, np.uint8)
    for char, value in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
        is_short[char], value_of[char] = True, value
    digit = np.full(256, -1, np.int32)
    for i, char in enumerate("0123456789abcdef"):
        digit[ord(char)] = digit[ord(char.upper())] = i
    digits = jnp.asarray(digit)[after]
    four = [ahead(digits, i) for i in range(2, 6)]
    is_hex = jnp.stack(four).min(axis=0) >= 0
    value = four[0] << 12 | four[1] << 8 | four[2] << 4 | four[3]
    unicode = starts & (letter == ord("u"))
    short = starts & jnp.asarray(is_short)[letter]
    valid = jnp.all(~starts | short | (unicode & is_hex))

    # The high surrogate of a pair is replaced by the character, the low one by nothing.
    halves = jnp.pad(jnp.where(unicode & is_hex, value, 0), (6, 6))
    here, next_, before = halves[6:-6], halves[12:], halves[:-12]
    high = (here >= 0xD800) & (here < 0xDC00)
    low = (here >= 0xDC00) & (here < 0xE000)
    pairs = high & (next_ >= 0xDC00) & (next_ < 0xE000)
    swallowed = low & (before >= 0xD800) & (before < 0xDC00)
    value = jnp.where(pairs, 0x10000 + ((here - 0xD800) << 10) + next_ - 0xDC00, here)

    # Write UTF-8. A byte that does not begin an escape stands for itself.
    count = jnp.select(
        [~unicode, swallowed, value < 0x80, value < 0x800, value < 0x10000],
        [1, 0, 1, 2, 3],
        4,
    )
    gone = jnp.zeros(size, bool)
    for i in range(1, 6):
        gone |= jnp.pad(unicode if i > 1 else starts, (i, 0))[:size]
    count = jnp.where(gone, 0, count)
    place = jnp.cumsum(count) - count
    lead = jnp.array([0, 0, 0xC0, 0xE0, 0xF0])[count]
    itself = jnp.where(short, jnp.asarray(value_of)[letter], text).astype(jnp.int32)
    result = jnp.full(size, ord(" "), jnp.int32)
    for i in range(4):
        bits = value >> jnp.maximum(6 * (count - 1 - i), 0)
        byte = (0x80 | (bits & 0x3F)) if i else jnp.where(unicode, lead | bits, itself)
        result = result.at[jnp.where(i < count, place + i, size)].set(byte, mode="drop")
    return Unescaped(result.astype(text.dtype), place, valid)
