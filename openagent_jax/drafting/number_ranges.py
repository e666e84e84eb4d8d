"""Choose the range of a number from the bounds of its schema, else from its name.

Numbers of the environment are exact decimals, as `scalars` has them. A type has a
minimum, a maximum and a number of decimals; a schema need not say any of these.
"""

import decimal
import math
import re
from decimal import Decimal
from typing import Any

from openagent_jax.text import wording
from openagent_jax.text.scalars import MAX_DECIMALS, MAX_DIGITS

MAX_MULTIPLES = 100  # values listed for a `multipleOf` that is not a power of ten
_WHOLE = (0, 999, 0)  # minimum, maximum and decimals if nothing is known
_FRACTION = (0, 1000, 2)
_BY_LAST_WORD = {
    "latitude lat": (-90, 90, 4),
    "longitude lon lng": (-180, 180, 4),
    "ratio probability fraction opacity confidence": (0, 1, 2),
    "percent percentage": (0, 100, 1),
    "year": (2000, 2040, 0),
    "month": (1, 12, 0),
    "port": (1024, 65535, 0),
}
_HUGE = 10**15  # larger bounds are cut off before one calculates with them
_MIN_STEPS = 10  # of a range of fractions, unless the schema says how many decimals
_ENDS = ("min", "max", "from", "to", "start", "end", "minimum", "maximum")
# A JSON "number" whose name has one of these words is taken for a whole number.
_COUNT_WORDS = set(
    "id number no num index page limit offset quantity rank year month day days count "
    "port ports replicas width height depth size lines line column row position pixels "
    "bytes ms milliseconds attempts retries results items".split()
)
_COUNT_PHRASES = ("number of", "integer", "how many", "whole number", "milliseconds")
_RANGE = re.compile(
    r"\b(?:between|from|range:?)\s+(-?\d{1,9}(?:\.\d{1,6})?)\s*(?:and|to|-)\s*"
    r"(-?\d{1,9}(?:\.\d{1,6})?)(?![\d.]*\d)",
    re.IGNORECASE,
)
Schema = dict[str, Any]


def is_whole(name: str, schema: Schema) -> bool:
    """Tell whether a JSON "number" only takes whole values, as far as one can tell.

    >>> [is_whole(name, {}) for name in ("page_size", "price")]
    [True, False]
    >>> is_whole("page_size", {"maximum": 0.5})
    False
    """
    if choices := schema.get("enum", ()):
        return all(isinstance(value, int) for value in choices)
    stated = ("minimum", "maximum", "multipleOf", "default", "example")
    numbers = [x for x in (_exact(schema.get(key)) for key in stated) if x is not None]
    if any(x % 1 for x in numbers) or schema.get("format") in ("float", "double"):
        return False
    if schema.get("multipleOf") and _exact(schema["multipleOf"]) is not None:
        return True
    described = str(schema.get("description", "")).lower()
    return not _COUNT_WORDS.isdisjoint(wording.words(name)) or any(
        phrase in described for phrase in _COUNT_PHRASES
    )


def multiples(schema: Schema) -> list[int | float]:
    """Return the first values of a `multipleOf` that is not a power of ten; else none.

    >>> multiples({"type": "integer", "multipleOf": 15, "maximum": 60})
    [0, 15, 30, 45, 60]
    """
    step = _exact(schema.get("multipleOf"))
    if step is None or step <= 0 or _decimals_of_power(step) is not None:
        return []
    if not _fits(step):
        return []
    definition, _ = of_schema("", {**schema, "multipleOf": None})
    last = Decimal(str(definition["maximum"]))
    first = math.ceil(Decimal(str(definition["minimum"])) / step)
    values = (step * (first + i) for i in range(MAX_MULTIPLES))
    return [as_json(value) for value in values if value <= last and _fits(value)]


def of_schema(name: str, schema: Schema) -> tuple[Schema, str]:
    """Return `(type, note)`: a number type, and what the schema does not say of it.

    >>> definition, note = of_schema("latitude", {"type": "number"})
    >>> definition
    {'kind': 'number', 'minimum': -90, 'maximum': 90, 'decimals': 4}
    >>> note
    'made up from its name'
    >>> schema = {"type": "integer", "minimum": -5, "exclusiveMaximum": 2000}
    >>> of_schema("level", schema)
    ({'kind': 'number', 'minimum': -5, 'maximum': 1999}, '')

    Args:
      name: the name of the type.
      schema: a plain schema, whose type is `integer` or `number`.
    """
    whole = schema.get("type") == "integer"
    by_name = _by_name(name)
    if by_name and whole and by_name[1] - by_name[0] == 1:
        by_name = None  # a ratio has no whole values but its ends
    usual_low, usual_high, decimals = by_name or (_WHOLE if whole else _FRACTION)
    low, low_is_open = _bound(schema, "minimum", "exclusiveMinimum", max)
    high, high_is_open = _bound(schema, "maximum", "exclusiveMaximum", min)
    notes = []
    if low is None and high is None:
        low, high = _described(schema)
        notes += ["as its description says"] if low is not None else []
    if low is not None and high is not None and low > high:
        notes.append(f"its maximum {high} is below its minimum")
        high, high_is_open = None, False
    if low is None or high is None:
        notes.append("made up from its name" if by_name else "made up")
    if not whole:
        decimals = max(decimals, *(_num_decimals(x) for x in (low, high)))
    low, high = _filled_in(low, high, Decimal(usual_low), Decimal(usual_high))
    step = _exact(schema.get("multipleOf"))
    exact_decimals = _decimals_of_power(step) if step and step > 0 else None
    if whole:
        decimals = 0
    elif exact_decimals is not None:
        decimals = exact_decimals
    else:
        while decimals < MAX_DECIMALS and (high - low).scaleb(decimals) < _MIN_STEPS:
            decimals += 1
    while decimals and max(abs(low), abs(high)).scaleb(decimals) > MAX_DIGITS:
        decimals -= 1
    first, last = _rounded(low, decimals, up=True), _rounded(high, decimals, up=False)
    unit = Decimal(1).scaleb(-decimals)
    first += unit if low_is_open and first == low else 0
    last -= unit if high_is_open and last == high else 0
    most = Decimal(MAX_DIGITS).scaleb(-decimals)
    bounds = [min(max(x, -most), most) for x in (first, last)]
    if bounds != [first, last]:
        notes.append("as far as numbers go; the bounds of its schema are wider")
    first, last = bounds
    if first > last:
        notes.append("no number that fits is between its bounds")
        last = first
    definition = {"kind": "number", "minimum": as_json(first), "maximum": as_json(last)}
    if decimals:
        definition["decimals"] = decimals
    return definition, "; ".join(notes)


def _described(schema: Schema) -> tuple[Decimal | None, Decimal | None]:
    """Return the bounds that a description names; None for both if it names none."""
    if found := _RANGE.search(str(schema.get("description", ""))):
        low, high = map(Decimal, found.groups())
        if low < high:
            return low, high
    return None, None


def _by_name(name: str) -> tuple[int, int, int] | None:
    parts = [x for x in wording.words(name) if not x.isdecimal() and x not in _ENDS]
    last = parts[-1] if parts else ""
    found = (kind for words, kind in _BY_LAST_WORD.items() if last in words.split())
    return next(found, None)


def _filled_in(
    low: Decimal | None, high: Decimal | None, usual_low: Decimal, usual_high: Decimal
) -> tuple[Decimal, Decimal]:
    """Return both bounds; the usual ones for those that are not given."""
    span = usual_high - usual_low
    if low is None and high is None:
        return usual_low, usual_high
    if high is None:
        assert low is not None
        return low, usual_high if usual_high > low else low + span
    if low is None:
        return usual_low if usual_low < high else high - span, high
    return low, high


def _bound(
    schema: Schema, key: str, open_key: str, stricter: Any
) -> tuple[Decimal | None, bool]:
    """Return a bound, and whether it does not belong to the range itself."""
    closed, opened = _exact(schema.get(key)), schema.get(open_key)
    if opened is True:  # as JSON Schema wrote it until its draft 4
        return closed, closed is not None
    opened = _exact(opened)
    if closed is None or opened is None:
        return (closed, False) if opened is None else (opened, True)
    return (opened, True) if stricter(closed, opened) == opened else (closed, False)


def _exact(value: Any) -> Decimal | None:
    """Return a number of JSON as a decimal; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return Decimal(str(min(max(value, -_HUGE), _HUGE)))


def _num_decimals(value: Decimal | None) -> int:
    if value is None or not value % 1:
        return 0
    exponent = value.normalize().as_tuple().exponent
    return min(-exponent, MAX_DECIMALS) if isinstance(exponent, int) else 0


def _decimals_of_power(step: Decimal) -> int | None:
    """Return k of a step 10**-k that numbers can have; 0 for 1; None for others."""
    _, digits, exponent = step.normalize().as_tuple()
    if digits != (1,) or not isinstance(exponent, int):
        return None
    return -exponent if -MAX_DECIMALS <= exponent <= 0 else None


def _rounded(value: Decimal, decimals: int, up: bool) -> Decimal:
    mode = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    with decimal.localcontext(prec=40):
        return value.quantize(Decimal(1).scaleb(-decimals), mode)


def _fits(value: Decimal) -> bool:
    decimals = _num_decimals(value)
    fits = abs(value).scaleb(decimals) <= MAX_DIGITS
    return fits and value == _rounded(value, decimals, up=True)


def as_json(value: Decimal) -> int | float:
    """Return a number as JSON has it, without a decimal point if it is whole."""
    return int(value) if value == value.to_integral_value() else float(value)
