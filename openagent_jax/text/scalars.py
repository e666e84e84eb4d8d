"""Values of arguments and results as single integers: texts and exact decimals.

A value is an `int32`. Below `UNQUOTED` it is a symbol, which stands for a text of the
lexicon. From `NUMBER` on it is an exact decimal: a whole number of digits, and how many
of these follow the decimal point. Numbers with equally many decimals lie next to each
other in their own order, so a range of them is a range of values, from which one can be
drawn without knowing what it stands for:

>>> low, high = code("0.50"), code("2.00")
>>> [spelled(value) for value in (low, low + 1, high)]
['0.5', '0.51', '2']

A number that is compared or hashed has to be `canonical`: with as few decimals as it
needs. Results, constants and arguments always are.

In JSON, numbers, booleans and null have no quotes. For numbers that follows from the
value. The range of an argument whose texts are written without quotes, such as an enum
of booleans, is shifted by `UNQUOTED`; its values are plain symbols.
"""

import decimal
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt

UNQUOTED = 1 << 29  # added to both ends of a range of symbols written without quotes
NUMBER = 1 << 30  # the first value that is a number
MAX_DECIMALS = 7
MAX_DIGITS = (1 << 26) - 2  # the largest number without its decimal point
ANY_NUMBER = (NUMBER, (1 << 31) - 1)  # a range with all numbers
MAX_BYTES = 32  # of a number that is read; longer ones are not read as numbers
NUM_PIECES = 8  # that a spelled value takes: a sign, a point, and groups of digits

_BLOCK_BITS = 27  # numbers with equally many decimals: 2**27 values
_ZERO = 1 << 26  # where zero is in its block
_GROUP = 3  # digits that are written by one symbol
_POWERS = np.array([10**k for k in range(MAX_DECIMALS + 2)], np.int32)


class Digits(NamedTuple):
    """The symbols with which numbers are spelled."""

    groups: int  # the symbol of "0"; those of "1" to "999" follow it
    padded: int  # the symbol of "00"; "01" to "09" and "000" to "099" follow it
    minus: int
    point: Any  # what is before decimals; an integer, which may be traced
    thousands: Any = 0  # what divides the digits of a number from 1000 on, likewise


def code(number: Any) -> int:
    """Return the value of a number, with the decimals that it is written with.

    Args:
      number: an integer, a float, a `Decimal` or a text, such as "2.50".

    Raises:
      ValueError: it is not a finite number, or it does not fit.
    """
    exact = decimal.Decimal(str(number))
    if not exact.is_finite():
        raise ValueError(f"{number} is not a finite number")
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits)))
    if exponent > 0:
        whole, exponent = whole * 10 ** min(exponent, 99), 0
    if whole > MAX_DIGITS or -exponent > MAX_DECIMALS:
        raise ValueError(
            f"{number} has more than {MAX_DECIMALS} decimals, or is larger than "
            f"{MAX_DIGITS} without its decimal point"
        )
    return NUMBER + (-exponent << _BLOCK_BITS) + _ZERO + (-whole if sign else whole)


def shortest(number: Any) -> int:
    """Return the canonical value of a number.

    Raises:
      ValueError: it is not a finite number, or it does not fit.
    """
    exact = decimal.Decimal(str(number))
    if not exact.is_finite():
        raise ValueError(f"{number} is not a finite number")
    exact = exact.normalize(decimal.Context(prec=decimal.MAX_PREC))
    return code(exact if exact else 0)


def number_range(minimum: Any, maximum: Any, decimals: int) -> tuple[int, int]:
    """Return the range of numbers with some decimals, its end exclusive.

    >>> low, high = number_range(1, 1.5, 1)
    >>> [spelled(value) for value in range(low, high)]
    ['1', '1.1', '1.2', '1.3', '1.4', '1.5']

    Raises:
      ValueError: a bound does not fit, or has more decimals.
    """
    step = decimal.Decimal(1).scaleb(-decimals)
    ends = []
    for bound in (minimum, maximum):
        exact = decimal.Decimal(str(bound))
        with decimal.localcontext(prec=40):
            quantized = exact.quantize(step)
        if quantized != exact:
            raise ValueError(f"{bound} has more than {decimals} decimals")
        ends.append(code(quantized if quantized else quantized.copy_abs()))
    return ends[0], ends[1] + 1


def decimal_of(value: int) -> decimal.Decimal:
    """Return the number that a value stands for, with the decimals that it has."""
    block = int(value) - NUMBER
    decimals, place = block >> _BLOCK_BITS, block & ((1 << _BLOCK_BITS) - 1)
    return decimal.Decimal(place - _ZERO).scaleb(-decimals)


def spelled(value: int) -> str:
    """Return the shortest decimal text of a number."""
    text = f"{decimal_of(value):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def python(value: int) -> int | float:
    """Return a number as Python and JSON have it."""
    exact = decimal_of(value)
    return int(exact) if exact == exact.to_integral_value() else float(exact)


_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def spells(text: str) -> bool:
    """Tell whether a text is a number of JSON that fits.

    >>> [spells(text) for text in ("17", "-0.5e1", "017", "1.", "1e99")]
    [True, True, False, False, False]
    """
    if len(text) > MAX_BYTES or not _JSON_NUMBER.fullmatch(text):
        return False
    try:
        shortest(text)
    except ValueError:
        return False
    return True


# What follows runs on the device.


def decimals_of(value: Int[Array, "..."]) -> Int[Array, "..."]:
    """Return how many decimals numbers have; without meaning for other values."""
    return (value - NUMBER) >> _BLOCK_BITS


def canonical(value: Int[Array, "..."]) -> Int[Array, "..."]:
    """Return values with numbers in their canonical form, without trailing zeros.

    >>> canonical(jnp.array([code("2.50"), 7])).tolist() == [code("2.5"), 7]
    True
    """
    decimals, digits = _parts(value)
    powers = _last(_POWERS[1:-1], digits.ndim)
    zeros = jnp.sum(digits[..., None] % powers == 0, axis=-1, dtype=jnp.int32)
    zeros = jnp.minimum(zeros, decimals)
    digits = jnp.sign(digits) * (jnp.abs(digits) // jnp.asarray(_POWERS)[zeros])
    return jnp.where(value >= NUMBER, _value(decimals - zeros, digits), value)


def within(
    value: Int[Array, "..."], low: Int[Array, "..."], high: Int[Array, "..."]
) -> Bool[Array, "..."]:
    """Return whether values are in the range of an argument.

    Args:
      value: canonical values; -1 is in no range.
      low: the first value of a range.
      high: the end of the range, exclusive.
    """
    decimals, digits = _parts(value)
    more = decimals_of(low) - decimals
    power = jnp.asarray(_POWERS)[jnp.clip(more, 0, MAX_DECIMALS)]
    fits = (more >= 0) & (jnp.abs(digits) <= MAX_DIGITS // power)
    scaled = _value(decimals + more, jnp.where(fits, digits * power, 0))
    is_any = (low == ANY_NUMBER[0]) & (high == ANY_NUMBER[1])
    as_number = (value >= NUMBER) & (
        is_any | (fits & (low <= scaled) & (scaled < high))
    )
    shift = jnp.where(low >= UNQUOTED, UNQUOTED, 0)
    as_symbol = (value >= 0) & (low - shift <= value) & (value < high - shift)
    return jnp.where(low >= NUMBER, as_number, as_symbol)


def at_most(one: Int[Array, "..."], other: Int[Array, "..."]) -> Bool[Array, "..."]:
    """Return whether numbers are at most other ones of the same type.

    >>> bool(at_most(jnp.int32(code("9.75")), jnp.int32(code("12"))))
    True
    """
    decimals, digits = zip(_parts(one), _parts(other), strict=True)
    most = jnp.maximum(*decimals)
    # A type whose numbers have that many decimals has no number that is too large.
    powers = jnp.asarray(_POWERS)
    scaled = [x * powers[most - k] for x, k in zip(digits, decimals, strict=True)]
    return scaled[0] <= scaled[1]


def plus(
    value: Int[Array, "..."],
    other: Int[Array, "..."],
    sign: Int[Array, "..."] | int = 1,
) -> Int[Array, "..."]:
    """Return the sum of numbers, or their difference; -1 where it does not fit.

    Args:
      value: a canonical number. The sum is without meaning for other values.
      other: a canonical number.
      sign: -1 subtracts it.

    >>> spelled(int(plus(jnp.array(code("2.5")), jnp.array(code("0.75")), -1)))
    '1.75'
    """
    decimals, digits = zip(_parts(value), _parts(other), strict=True)
    most = jnp.maximum(*decimals)
    powers, total = jnp.asarray(_POWERS), jnp.zeros_like(most)
    fits = total == 0
    for places, number, factor in zip(decimals, digits, (1, sign), strict=True):
        power = powers[jnp.clip(most - places, 0, MAX_DECIMALS)]
        fits &= jnp.abs(number) <= MAX_DIGITS // power
        total += factor * number * power
    fits &= jnp.abs(total) <= MAX_DIGITS
    return jnp.where(fits, canonical(_value(most, jnp.where(fits, total, 0))), -1)


def sign(value: Int[Array, "..."]) -> Int[Array, "..."]:
    """Return the signs of numbers: -1, 0 or 1; 0 for other values."""
    return jnp.sign(_parts(value)[1])


def spell(digits: Digits, value: Int[Array, "..."]) -> Int[Array, "... NUM_PIECES"]:
    """Return the symbols that write values, padded with 0, the empty text.

    A number becomes a sign, groups of up to three digits, and a point, as tokenizers
    that have tokens for several digits divide it: from the left, unless thousands are
    divided by something.

    Args:
      digits: the symbols of the pieces of numbers. If `thousands` is traced, there are
        two more pieces.
      value: symbols and canonical numbers; negative values are empty.
    """
    decimals, number = _parts(value)
    powers = jnp.asarray(_POWERS)
    number, negative = jnp.abs(number), number < 0
    whole, rest = number // powers[decimals], number % powers[decimals]
    longer = whole[..., None] >= _last(_POWERS[1:], whole.ndim)
    size = 1 + jnp.sum(longer, axis=-1, dtype=jnp.int32)

    # Both numbers and all groups at once, which compiles faster than one by one.
    numbers = jnp.stack([whole, rest], axis=-1)[..., None]  # [..., 2, 1]
    sizes = jnp.stack([size, decimals], axis=-1)[..., None]
    divides = jnp.not_equal(digits.thousands, 0)
    lacking = jnp.where(divides, -size % _GROUP, 0)  # digits of the first group
    lacking = jnp.stack([lacking, jnp.zeros_like(size)], axis=-1)[..., None]
    ends = _last(_GROUP * np.arange(1, 4, dtype=np.int32), whole.ndim + 1) - lacking
    end = jnp.minimum(sizes, ends)
    length = jnp.clip(end - jnp.maximum(ends - _GROUP, 0), 0, _GROUP)
    part = numbers // powers[jnp.clip(sizes - end, 0, MAX_DECIMALS + 1)]
    part = part % powers[length]
    short = (length > 1) & (part < powers[jnp.maximum(length - 1, 0)])
    padded = digits.padded + jnp.where(length == 3, 10, 0) + part
    groups = jnp.where(short, padded, digits.groups + part)
    groups = jnp.where(length > 0, groups, 0)  # [..., 2, 3]

    minus = jnp.where(negative, digits.minus, 0)
    point = jnp.where(decimals > 0, digits.point, 0)
    marks = jnp.stack([minus, point], axis=-1)[..., None]
    numbers = jnp.concatenate([marks, groups], axis=-1)
    numbers = numbers.reshape(*value.shape, NUM_PIECES)
    if not isinstance(digits.thousands, int):
        parts = [*jnp.moveaxis(numbers, -1, 0)]
        for k in (2, 1):  # before the third and the second group
            there = (length[..., 0, k] > 0) & divides
            parts.insert(1 + k, jnp.where(there, digits.thousands, 0))
        numbers = jnp.stack(parts, axis=-1)
    symbols = jnp.zeros_like(numbers).at[..., 0].set(jnp.maximum(value, 0))
    return jnp.where((value >= NUMBER)[..., None], numbers, symbols)


class Read(NamedTuple):
    """What slices of a text are, if they are numbers of JSON."""

    is_number: Bool[Array, "R"]
    value: Int[Array, "R"]  # canonical; -1 if it is no number, or one that does not fit


# States of reading a number, named after what has been read.
_START, _MINUS, _LEADING_ZERO, _WHOLE, _POINT, _FRACTION = range(6)
_E, _E_SIGN, _EXPONENT, _FAIL = range(6, 10)


def _transitions() -> np.ndarray:
    """Return the next state by state and class of a byte.

    The classes are: 0, another digit, minus, plus, point, E, anything else.
    """
    table = np.full((10, 7), _FAIL, np.int32)
    for state, zero, digit in (
        (_START, _LEADING_ZERO, _WHOLE),
        (_MINUS, _LEADING_ZERO, _WHOLE),
        (_WHOLE, _WHOLE, _WHOLE),
        (_POINT, _FRACTION, _FRACTION),
        (_FRACTION, _FRACTION, _FRACTION),
        (_E, _EXPONENT, _EXPONENT),
        (_E_SIGN, _EXPONENT, _EXPONENT),
        (_EXPONENT, _EXPONENT, _EXPONENT),
    ):
        table[state, :2] = zero, digit
    table[_START, 2] = _MINUS
    table[_E, 2:4] = _E_SIGN
    for state in (_LEADING_ZERO, _WHOLE):
        table[state, 4:6] = _POINT, _E
    table[_FRACTION, 5] = _E
    return table


def _byte_classes() -> np.ndarray:
    table = np.full(256, 6, np.int32)
    table[ord("0")] = 0
    table[ord("1") : ord("9") + 1] = 1
    for index, marks in enumerate(("-", "+", ".", "eE"), 2):
        for mark in marks:
            table[ord(mark)] = index
    return table


_NEXT, _CLASS = _transitions(), _byte_classes()


def read(text: UInt[Array, "Z"], begin: Int[Array, "R"], end: Int[Array, "R"]) -> Read:
    """Read slices of a text as numbers.

    Args:
      text: bytes.
      begin: where each of R slices begins.
      end: where each slice ends, exclusive. A slice of more than `MAX_BYTES` is not a
        number.
    """
    size = text.shape[0]
    offset = jnp.arange(MAX_BYTES)[:, None]
    window = text[jnp.clip(begin[None] + offset, 0, size - 1)]  # [MAX_BYTES, R]
    kinds, lengths = jnp.asarray(_CLASS)[window], end - begin
    table, powers = jnp.asarray(_NEXT), jnp.asarray(_POWERS)

    def step(carry, item):
        old = carry
        state, digits, zeros, fits, fraction, exponent = carry
        byte, kind, there = item
        state = table[state, kind]
        digit = byte.astype(jnp.int32) - ord("0")
        counts = (state == _WHOLE) | (state == _FRACTION) | (state == _LEADING_ZERO)
        # Zeros are kept back until another digit follows them.
        power = powers[jnp.minimum(zeros + 1, MAX_DECIMALS + 1)]
        room = (digits == 0) | (
            (zeros <= MAX_DECIMALS) & (digits <= (MAX_DIGITS - digit) // power)
        )
        adds = counts & (digit > 0)
        digits = jnp.where(adds & room, digits * power + digit, digits)
        fits &= ~adds | room
        zeros = jnp.where(adds, 0, zeros + (counts & (digits > 0)))
        fraction += state == _FRACTION
        more = jnp.minimum(10 * exponent + digit, 999)
        exponent = jnp.where(state == _EXPONENT, more, exponent)
        new = (state, digits, zeros, fits, fraction, exponent)
        return jax.tree.map(lambda x, y: jnp.where(there, x, y), new, old), (
            state == _E_SIGN
        ) & there & (byte == ord("-"))

    none = jnp.zeros(begin.shape, jnp.int32)
    start = (none, none, none, none == 0, none, none)
    items = (window, kinds, offset < lengths[None])
    found, minus = jax.lax.scan(step, start, items)
    state, digits, zeros, fits, fraction, exponent = found
    exponent = jnp.where(jnp.any(minus, axis=0), -exponent, exponent)
    power = jnp.where(digits > 0, zeros - fraction + exponent, 0)
    raised = powers[jnp.clip(power, 0, MAX_DECIMALS + 1)]
    fits &= (power >= -MAX_DECIMALS) & (power <= MAX_DECIMALS)
    fits &= digits <= MAX_DIGITS // raised
    digits = jnp.where(fits, digits * raised, 0)
    digits = jnp.where(window[0] == ord("-"), -digits, digits)
    accepted = jnp.array([_LEADING_ZERO, _WHOLE, _FRACTION, _EXPONENT])
    is_number = jnp.any(state[:, None] == accepted[None], axis=1)
    is_number &= (lengths > 0) & (lengths <= MAX_BYTES)
    value = _value(jnp.where(fits, jnp.maximum(-power, 0), 0), digits)
    return Read(is_number, jnp.where(is_number & fits, value, -1))


def _parts(value: Int[Array, "..."]) -> tuple[Array, Array]:
    """Return the decimals of numbers, and their digits with the sign; 0 for others."""
    block = jnp.where(value >= NUMBER, value - NUMBER, _ZERO)
    return block >> _BLOCK_BITS, (block & ((1 << _BLOCK_BITS) - 1)) - _ZERO


def _last(row: np.ndarray, num_axes: int) -> Array:
    """Return a row as the last axis, after some axes of size 1."""
    return jnp.asarray(row).reshape(*[1] * num_axes, -1)


def _value(decimals: Array, digits: Array) -> Array:
    return (NUMBER + (decimals << _BLOCK_BITS) + _ZERO + digits).astype(jnp.int32)
