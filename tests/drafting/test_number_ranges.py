"""Ranges of numbers: from the schema, the description or the name."""

import pytest

from openagent_jax.drafting import number_ranges
from openagent_jax.text import scalars

SAFE = 2**53 - 1
RANGES = {
    "whole": ({"type": "integer"}, (0, 999, 0)),
    "fraction": ({"type": "number"}, (0, 1000, 2)),
    "from": ({"type": "integer", "minimum": 3}, (3, 999, 0)),
    "from a large number": ({"type": "integer", "minimum": 2000}, (2000, 2999, 0)),
    "up to": ({"type": "number", "maximum": 20}, (0, 20, 2)),
    "up to less than 0": ({"type": "integer", "maximum": -7}, (-1006, -7, 0)),
    "negative": ({"type": "integer", "minimum": -5, "maximum": 5}, (-5, 5, 0)),
    "written as fractions": (
        {"type": "integer", "minimum": 1.0, "maximum": 5.0},
        (1, 5, 0),
    ),
    "no number": ({"type": "integer", "minimum": float("nan")}, (0, 999, 0)),
    "no end": ({"type": "integer", "maximum": float("inf")}, (0, 999, 0)),
    "a boolean": ({"type": "integer", "minimum": True, "maximum": "9"}, (0, 999, 0)),
    "contradictory": ({"type": "integer", "minimum": 7, "maximum": 3}, (7, 999, 0)),
    "exclusive": (
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
        (1, 9, 0),
    ),
    "exclusive fractions": (
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        (0.01, 0.99, 2),
    ),
    "exclusive as in draft 4": (
        {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 9},
        (2, 9, 0),
    ),
    "both kinds of bounds": (
        {"type": "integer", "minimum": 5, "exclusiveMinimum": 3, "maximum": 9},
        (5, 9, 0),
    ),
    "decimals of the bounds": (
        {"type": "number", "minimum": 0.125, "maximum": 9},
        (0.125, 9, 3),
    ),
    "a small range": ({"type": "number", "minimum": 0, "maximum": 0.05}, (0, 0.05, 3)),
    "whole between fractions": (
        {"type": "integer", "minimum": 0.5, "maximum": 3.5},
        (1, 3, 0),
    ),
    "multiples": ({"type": "number", "multipleOf": 0.1, "maximum": 5}, (0, 5, 1)),
    "fewer decimals fit": ({"type": "number", "maximum": 1_000_000}, (0, 1_000_000, 1)),
    "described": (
        {"type": "number", "description": "How much. Between 0 and 1."},
        (0, 1, 2),
    ),
    "a range of dates is none": (
        {"type": "integer", "description": "from 2024-01-02 on"},
        (0, 999, 0),
    ),
}


@pytest.mark.parametrize("schema, wanted", RANGES.values(), ids=RANGES)
def test_ranges(schema, wanted):
    made, _ = number_ranges.of_schema("size", schema)
    assert (made["minimum"], made["maximum"], made.get("decimals", 0)) == wanted


NAMES = {
    ("latitude", "number"): (-90, 90, 4),
    ("start_lng", "number"): (-180, 180, 4),
    ("hit_ratio", "number"): (0, 1, 2),
    ("volume_percent", "integer"): (0, 100, 0),
    ("hit_ratio", "integer"): (0, 999, 0),
    ("localPort", "integer"): (1024, 65535, 0),
    ("birth_year_2", "integer"): (2000, 2040, 0),
}


@pytest.mark.parametrize("name, kind", NAMES)
def test_ranges_by_name(name, kind):
    made, note = number_ranges.of_schema(name, {"type": kind})
    wanted = NAMES[name, kind]
    assert (made["minimum"], made["maximum"], made.get("decimals", 0)) == wanted
    assert note.startswith("made up")
    # What the schema says counts for more.
    bounds = {"minimum": 0.5, "maximum": 2.5, "type": "number"}
    made, note = number_ranges.of_schema(name, bounds)
    assert (made["minimum"], made["maximum"], note) == (0.5, 2.5, "")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": -SAFE, "maximum": SAFE},
        {"type": "integer", "maximum": 10**400},
        {"type": "number", "minimum": -1.7e308, "maximum": 1.7e308},
        {"type": "integer", "minimum": SAFE, "maximum": SAFE},
    ],
)
def test_bounds_are_clipped_to_what_fits(schema):
    made, note = number_ranges.of_schema("size", schema)
    assert "as far as numbers go" in note
    ends = made["minimum"], made["maximum"]
    assert scalars.MAX_DIGITS in ends
    scalars.number_range(*ends, made.get("decimals", 0))


def test_a_range_without_a_number_is_noted():
    empty = {"type": "integer", "minimum": 0.2, "maximum": 0.8}
    made, note = number_ranges.of_schema("size", empty)
    assert made["minimum"] == made["maximum"]
    assert "no number that fits is between its bounds" in note


@pytest.mark.parametrize(
    "schema, wanted",
    [
        ({"type": "integer", "multipleOf": 5, "minimum": 3, "maximum": 14}, [5, 10]),
        ({"type": "number", "multipleOf": 0.25, "maximum": 0.5}, [0, 0.25, 0.5]),
        ({"type": "number", "multipleOf": 0.01}, []),
        ({"type": "integer", "multipleOf": 1}, []),
        ({"type": "number", "multipleOf": 1 / 3}, []),
        ({"type": "integer", "multipleOf": 0}, []),
        ({"type": "integer", "multipleOf": 1e300}, []),
    ],
)
def test_multiples(schema, wanted):
    assert number_ranges.multiples(schema) == wanted


def test_multiples_are_bounded():
    many = {"type": "number", "multipleOf": 5e-7, "minimum": 1}
    assert len(number_ranges.multiples(many)) <= number_ranges.MAX_MULTIPLES


@pytest.mark.parametrize(
    "name, schema, wanted",
    [
        ("pageSize", {}, True),
        ("price", {}, False),
        ("amount", {"description": "The number of items"}, True),
        ("page", {"default": 0.5}, False),
        ("limit", {"format": "double"}, False),
        ("price", {"multipleOf": 5}, True),
        ("price", {"enum": [1, 2]}, True),
        ("page", {"enum": [1, 2.5]}, False),
    ],
)
def test_whole_numbers(name, schema, wanted):
    assert number_ranges.is_whole(name, schema) == wanted
