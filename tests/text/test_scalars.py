import decimal
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openagent_jax.text import scalars
from openagent_jax.text.scalars import (
    ANY_NUMBER,
    MAX_DECIMALS,
    MAX_DIGITS,
    NUMBER,
    UNQUOTED,
    Digits,
)

DIGITS = Digits(groups=1, padded=1001, minus=1111, point=1112)
TEXTS = [""]
TEXTS += [str(i) for i in range(1000)]
TEXTS += [f"{i:02}" for i in range(10)] + [f"{i:03}" for i in range(100)] + ["-", "."]


@jax.jit
def read_one(text, size):
    found = scalars.read(text, jnp.zeros(1, jnp.int32), size[None])
    return found.is_number[0], found.value[0]


def read(text: str):
    data = text.encode()
    row = np.full(48, ord("7"), np.uint8)  # what follows must not be read
    row[: len(data)] = np.frombuffer(data[:48], np.uint8)
    is_number, value = read_one(row, jnp.int32(len(data)))
    return bool(is_number), int(value)


def as_json(text: str):
    """The exact number that a text is in JSON, or None."""
    try:
        value = json.loads(text, parse_float=decimal.Decimal, parse_int=decimal.Decimal)
    except ValueError:
        return None
    is_number = isinstance(value, decimal.Decimal) and text == text.strip()
    return value if is_number else None


def fits(number: decimal.Decimal) -> bool:
    if not number or not -100 < number.adjusted() < 100:
        return not number
    number = number.normalize(decimal.Context(prec=100))
    _, digits, exponent = number.as_tuple()
    size = int("".join(map(str, digits))) * 10 ** min(max(exponent, 0), 50)
    return exponent >= -MAX_DECIMALS and size <= MAX_DIGITS


numbers = st.integers(-MAX_DIGITS, MAX_DIGITS).flatmap(
    lambda digits: st.integers(0, MAX_DECIMALS).map(
        lambda decimals: decimal.Decimal(digits).scaleb(-decimals)
    )
)


@pytest.mark.parametrize(
    "text", ["0", "17", "-0", "1.0", "1e0", "10E-1", "67108862", "-6.7108862", "1e7"]
)
def test_numbers_that_are_read(text):
    is_number, value = read(text)
    assert is_number and scalars.decimal_of(value) == decimal.Decimal(text)


@pytest.mark.parametrize(
    "text",
    ["", "-", "01", "1.", ".5", "+1", "1e", "1e+", "1.e2", "--1", "1-", "0x1", "1 ",
     "NaN", "Infinity", "1" * 33, "1.2.3", "1e2e3", "true"],
)  # fmt: skip
def test_texts_that_are_no_numbers(text):
    assert read(text) == (False, -1)


@pytest.mark.parametrize(
    "text", ["67108863", "1e8", "0.00000001", "1e-8", "1e400", "123456789", "-1e999"]
)
def test_numbers_that_do_not_fit_are_numbers_without_a_value(text):
    assert read(text) == (True, -1)


@settings(max_examples=2000, deadline=None)
@given(st.text("0123456789+-.eE", min_size=1, max_size=20))
def test_reads_what_json_reads(text):
    expected = as_json(text)
    is_number, value = read(text)
    assert is_number == (expected is not None)
    if expected is not None:
        assert (value >= 0) == fits(expected)
        assert value < 0 or scalars.decimal_of(value) == expected


@settings(max_examples=500, deadline=None)
@given(numbers)
def test_canonical_numbers_are_shortest(number):
    value = scalars.code(number)
    short = int(scalars.canonical(jnp.int32(value)))
    assert short == scalars.shortest(number)
    assert scalars.decimal_of(short) == number
    assert read(scalars.spelled(value)) == (True, short)
    assert scalars.python(value) == (json.loads(scalars.spelled(value)))


@settings(max_examples=500, deadline=None)
@given(numbers)
def test_spelled_pieces_are_the_text(number):
    value = scalars.shortest(number)
    pieces = scalars.spell(DIGITS, jnp.int32(value))
    assert "".join(TEXTS[i] for i in pieces.tolist()) == scalars.spelled(value)


def test_spelled_symbols_are_themselves():
    pieces = scalars.spell(DIGITS, jnp.array([5, -1])).tolist()
    assert pieces == [[5] + [0] * 7, [0] * 8]


def test_groups_of_digits_begin_at_the_left():
    pieces = scalars.spell(DIGITS, jnp.int32(scalars.code("-1234.0567"))).tolist()
    assert [TEXTS[i] for i in pieces] == ["-", "123", "4", "", ".", "056", "7", ""]


@settings(max_examples=500, deadline=None)
@given(numbers, numbers, numbers, st.integers(0, 3))
def test_within_compares_numbers(number, a, b, decimals):
    step = decimal.Decimal(1).scaleb(-decimals)
    low, high = (
        decimal.Decimal(min(max(x, -1000), 1000)).quantize(step, decimal.ROUND_DOWN)
        for x in sorted((a, b))
    )
    ends = scalars.number_range(low, high, decimals)
    value = jnp.int32(scalars.shortest(number))
    inside = (
        low <= number <= high
        and number.quantize(step, context=decimal.Context(prec=60)) == number
    )
    assert bool(scalars.within(value, *map(jnp.int32, ends))) == inside
    assert bool(scalars.within(value, *map(jnp.int32, ANY_NUMBER)))


def test_within_ranges_of_symbols():
    low, high = jnp.int32(5), jnp.int32(8)
    values = jnp.array([-1, 4, 5, 7, 8, scalars.code(6)])
    expected = [False, False, True, True, False, False]
    assert scalars.within(values, low, high).tolist() == expected
    flagged = scalars.within(values, low + UNQUOTED, high + UNQUOTED)
    assert flagged.tolist() == expected


def test_every_value_of_a_range_is_a_number_of_that_range():
    low, high = scalars.number_range("-1.00", "1.00", 2)
    values = scalars.canonical(jnp.arange(low, high))
    assert [scalars.python(int(x)) for x in values] == [
        x / 100 for x in range(-100, 101)
    ]
    assert bool(jnp.all(scalars.within(values, jnp.int32(low), jnp.int32(high))))
    assert bool(jnp.all(values >= NUMBER))


@pytest.mark.parametrize("number", ["nan", "1e9", "0.000000001", "inf"])
def test_numbers_without_a_code(number):
    with pytest.raises(ValueError):
        scalars.code(number)


def test_a_range_needs_its_decimals():
    with pytest.raises(ValueError, match="1.25 has more than 1 decimals"):
        scalars.number_range("1.25", 2, 1)
