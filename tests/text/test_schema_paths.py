"""Places of nested arguments in a schema, and the document that shows them."""

import copy
import json

import pytest

from openagent_jax.text import documents, schema_paths, style

PLACE = {"type": "object", "properties": {"city": {"type": "string"}}}
ROOT = {
    "type": "object",
    "properties": {
        "from": {"$ref": "#/$defs/place"},
        "to": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/place"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "guests": {
            "type": "array",
            "items": {
                "type": ["object", "null"],
                "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                "required": ["name"],
            },
            "default": [{"name": "Ann", "age": 7}],
        },
    },
    "required": ["from", "tags"],
    "$defs": {"place": {**PLACE, "required": ["city"]}},
}


@pytest.mark.parametrize(
    ("path", "required"),
    [
        (("from", "city"), [True, True]),
        (("to", "city"), [False, True]),
        (("tags", 1), [True, True]),
        (("tags", 2), [True, False]),
        (("guests", 0, "age"), [False, True, False]),
        (("guests", "name"), [False]),
        (("from", "zip"), [True]),
        (("tags", 0, 0), [True, True]),
    ],
)
def test_places(path, required):
    found = schema_paths.places(ROOT, path)
    assert [place.required for place in found] == required
    assert [place.key for place in found] == list(path[: len(found)])


def test_a_schema_that_refers_to_itself_ends():
    root = {"properties": {"a": {"$ref": "#/properties/a"}}}
    assert len(schema_paths.places(root, ("a", "b"))) == 1
    assert schema_paths.default(root, ("a", "b")) is None


def test_defaults_of_containers():
    assert schema_paths.default(ROOT, ("guests", 0, "name")) == "Ann"
    assert schema_paths.default(ROOT, ("guests", 1, "name")) is None
    assert schema_paths.default(ROOT, ("guests", 0)) is None


def test_renaming_changes_keys_and_nothing_else():
    before = copy.deepcopy(ROOT)
    paths = {"from.city": "start.town", "to.city": "to.town", "guests.0.name": "g.0.n"}
    made = schema_paths.renamed(ROOT, paths)
    assert before == ROOT
    expected = copy.deepcopy(ROOT)
    place = expected["$defs"]["place"]
    place["properties"] = {"town": place["properties"]["city"]}
    place["required"] = ["town"]
    items = expected["properties"]["guests"]["items"]
    items["properties"] = {"n": {"type": "string"}, "age": {"type": "integer"}}
    items["required"] = ["n"]
    keys = {"from": "start", "guests": "g"}
    expected["properties"] = {
        keys.get(key, key): value for key, value in expected["properties"].items()
    }
    expected["required"] = ["start", "tags"]
    assert made == expected and list(made["properties"]) == ["start", "to", "tags", "g"]


def test_the_compact_document_has_a_slot_for_each_key():
    paths = ["from.city", "to.city", "guests.0.name", "tags.0"]
    keys = {"from": 7, "city": 0, "to": 8, "guests": 9, "name": 2, "tags": 10}
    function = {"name": "go", "description": "", "parameters": ROOT}
    layout = documents.compact(function, paths, keys=keys)
    words = {at: f"<{key}>" for key, at in keys.items()}
    text = "".join(
        words[piece.index] if piece.kind == style.ARGUMENT else piece.text
        for piece in layout
    )
    parameters = json.loads(text)["parameters"]
    assert parameters == [
        "<from>: object {<city>}",
        "<to> (optional): null or object {<city>}",
        "<tags>: list of string; minItems 2",
        "<guests> (optional): list of ((object {<name>; age (optional)}) or null); "
        'default [{"name": "Ann", "age": 7}]',
    ]
    flat = documents.compact(function, ["from", "to", "tags", "guests"])
    plain = "".join(piece.text for piece in flat if piece.kind == style.LITERAL)
    assert "object {city}" in plain
