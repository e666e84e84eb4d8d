"""What a JSON schema says of texts, and what `check` makes of values that break it."""

import copy
import json
from pathlib import Path

import pytest

from openagent_jax.domains import domain_file, value_schema
from openagent_jax.domains.value_schema import misfit

POI = json.loads((Path(domain_file.__file__).parent / "files" / "poi.json").read_text())


LOOP = {"$ref": "#/$defs/Loop"}
ROOT = {"$defs": {"Code": {"pattern": "^[A-Z]{2}$"}, "Loop": LOOP}}


@pytest.mark.parametrize(
    "schema, fits, breaks, reason",
    [
        (
            {"pattern": "^AP-[0-9]{3}$"},
            "AP-123",
            "AP-12",
            "it does not match the pattern ^AP-[0-9]{3}$",
        ),
        ({"pattern": "[0-9]"}, "row 9", "row", "it does not match the pattern [0-9]"),
        ({"minLength": 4}, "four", "six", "it has 3 letters, not at least 4"),
        ({"maxLength": 2}, "ab", "six", "it has 3 letters, not at most 2"),
        ({"enum": ["a", True, 3]}, "true", "False", "it is not one of a, true, 3"),
        ({"const": "v2"}, "v2", "v3", "it is not v2"),
        (
            {"format": "date"},
            "2028-02-29",
            "2028-02-30",
            "it is not a valid date, such as 2030-01-31",
        ),
        (
            {"format": "date-time"},
            "2028-02-29T08:00:00Z",
            "2028-02-29",
            "it is not a valid date-time, such as 2030-01-31T08:00:00Z",
        ),
        (
            {"format": "time"},
            "23:59",
            "24:00",
            "it is not a valid time, such as 08:00:00Z",
        ),
        (
            {"format": "email"},
            "a.b@c.de",
            "a.b@c",
            "it is not a valid email, such as ana@example.com",
        ),
        (
            {"format": "uri"},
            "file:/a/b",
            "/a/b",
            "it is not a valid uri, such as https://example.com/a",
        ),
        (
            {"type": ["null", "string"], "maxLength": 2},
            "7",
            "777",
            "it has 3 letters, not at most 2",
        ),
        (
            {"$ref": "#/$defs/Code"},
            "AB",
            "A",
            "it does not match the pattern ^[A-Z]{2}$",
        ),
        (
            {"anyOf": [{"$ref": "#/$defs/Code"}, {"type": "null"}]},
            "AB",
            "ab",
            "it does not match the pattern ^[A-Z]{2}$",
        ),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "b", "c", "it is not a"),
        (
            {"allOf": [{"minLength": 2}, {"maxLength": 3}]},
            "ab",
            "abcd",
            "it has 4 letters, not at most 3",
        ),
    ],
)
def test_misfit(schema, fits, breaks, reason):
    assert misfit(schema, fits, root=ROOT) == ""
    assert misfit(schema, breaks, root=ROOT) == reason


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "(?<x"},  # not Python's dialect
        {"format": "hostname"},
        {"type": "integer", "pattern": "x"},
        {"$ref": "#/$defs/None"},
        {"$ref": "https://example.com/x"},
        LOOP,
        True,
    ],
)
def test_what_is_not_understood_fits(schema):
    assert misfit(schema, "anything", root=ROOT) == ""


def read(tmp_path, change):
    document = copy.deepcopy(POI)
    function = document["tools"][0]["function"]
    (name, *_) = document["tools"][0]["x-openagent"]["arguments"]
    change(function["parameters"]["properties"][name])
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document))
    return file, name, document["tools"][0]["x-openagent"]["arguments"][name]


def test_values_that_break_a_pattern_are_faults(tmp_path):
    file, name, kind = read(tmp_path, lambda x: x.update(pattern="^[a-m]"))
    (fault,) = domain_file.faults(file)
    assert fault.startswith(f"types.{kind}: '")
    assert ": it does not match the pattern ^[a-m], and " in fault
    place = f"(tools[0].function.parameters.properties.{name})"
    assert fault.endswith(f" more like it {place}; write values that fit")


def test_values_beyond_a_choice_or_format_are_warnings(tmp_path):
    """A list may document fewer choices for one argument than another one has."""
    file, name, kind = read(tmp_path, lambda x: x.update(format="uuid"))
    assert domain_file.faults(file) == []
    (warning,) = value_schema.warnings(domain_file.load(file))
    tool = POI["tools"][0]["function"]["name"]
    assert warning.startswith(f"types.{kind}: as {name} of tools[0] ({tool}), '")
    assert warning.endswith("more like it; write values that its schema allows")


@pytest.mark.parametrize("name", domain_file.builtins())
def test_builtin_domains_fit_their_schemas(name):
    assert list(value_schema.warnings(domain_file.load(name))) == []
