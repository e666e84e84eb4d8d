"""The values of a log as the framework has them: texts, exact decimals, and bare words.

A number is an exact decimal (see `text.scalars`), so that 1.0 and 1 are the same value.
True, false, null and empty containers are words without quotes, and so are numbers that
are too large or too precise for an exact decimal: they are compared letter by letter.
"""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from openagent_jax.text import scalars
from openagent_jax.text.nesting import Path


class Bare(NamedTuple):
    """A word of JSON without quotes that is not an exact decimal."""

    text: str

    @property
    def is_number(self) -> bool:
        """Whether it is a number that no exact decimal has room for."""
        return self.text[:1] in "-0123456789"


Value = str | Decimal | Bare
MAX_LETTERS = 1000  # of a whole number


class Spelled(float):
    """A fraction that knows how it was written."""

    spelling: str

    def __new__(cls, text: str) -> "Spelled":
        made = super().__new__(cls, text)
        made.spelling = text
        return made


class RepeatedKey(ValueError):
    """A key occurs twice in an object."""


def loads(text: str) -> Any:
    """Parse JSON, keeping how fractions are written.

    NaN and Infinity, which Python writes and JSON does not have, become texts.

    >>> loads("[1.10, NaN]")[0].spelling, loads("NaN")
    ('1.10', 'NaN')

    Raises:
      RepeatedKey: an object has a key twice.
      ValueError: it is not JSON.
      RecursionError: it is nested too deeply.
    """
    return json.loads(
        text,
        parse_float=Spelled,
        parse_int=_whole,
        parse_constant=str,
        object_pairs_hook=_once,
    )


def _whole(text: str) -> int:
    if len(text) > MAX_LETTERS:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RepeatedKey(f"the key {twice!r:.40} occurs twice")
    return made


def value(scalar: Any) -> Value:
    """Return the value of a scalar of JSON, or of an empty container.

    >>> value(2.50), value(True), value("7"), value(2**40)
    (Decimal('2.5'), Bare(text='true'), '7', Bare(text='1099511627776'))
    """
    if isinstance(scalar, str):
        return scalar
    if isinstance(scalar, Spelled):
        text = scalar.spelling
    else:
        text = json.dumps(scalar)
    is_number = isinstance(scalar, int | float) and not isinstance(scalar, bool)
    if is_number and scalars.spells(text):
        return Decimal(scalars.spelled(scalars.shortest(text)))
    return Bare(text)


def text(value: Value) -> str:
    """Return how a value is written, without quotes.

    >>> text(Decimal("2.50")), text(Bare("true")), text("true")
    ('2.5', 'true', 'true')
    """
    if isinstance(value, Decimal):
        return scalars.spelled(scalars.shortest(value))
    return value.text if isinstance(value, Bare) else value


def meaning(value: Value) -> str | Decimal:
    """Return what two values have in common if they are written alike.

    >>> meaning("2.50") == meaning(Decimal("2.5")), meaning("x")
    (True, 'x')
    """
    if isinstance(value, Decimal):
        return value
    written = text(value)
    return Decimal(written) if scalars.spells(written) else written


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the scalars and empty containers of a nested value, with their paths.

    >>> dict(leaves({"to": {"city": "Rome"}, "tags": []}))
    {('to', 'city'): 'Rome', ('tags',): []}
    """
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value
