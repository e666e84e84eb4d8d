"""What a draft takes from arguments that are arrays or objects."""

import pytest

from openagent_jax.domains import domain_file
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import drafting, json_format, list_leaves
from openagent_jax.drafting.list_schemas import Unsupported

TEXT = {"type": "string"}
GUEST = {
    "type": "object",
    "properties": {"name": TEXT, "age": {"type": "integer"}, "notes": TEXT},
    "required": ["name", "age"],
}


def paths(schema, root=None):
    found = list_leaves.leaves("x", schema, root or {})
    return {leaf.path: leaf.optional for leaf in found}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (TEXT, {"x": False}),
        ({"type": "array", "items": TEXT}, {"x.0": False, "x.1": True}),
        ({"type": "array", "items": TEXT, "maxItems": 1}, {"x.0": False}),
        (
            {"type": "array", "items": TEXT, "minItems": 2},
            {"x.0": False, "x.1": False},
        ),
        (GUEST, {"x.name": False, "x.age": False}),
        (
            {"type": "array", "items": GUEST},
            {"x.0.name": False, "x.0.age": False},
        ),
        (
            {"type": "array", "items": {"type": "array", "items": TEXT}},
            {"x.0.0": False, "x.0.1": True},
        ),
        # An object that requires nothing: its first part that can be given.
        (
            {"type": "object", "properties": {"a": {"type": "object"}, "b": GUEST}},
            {"x.b.name": False, "x.b.age": False},
        ),
        ({"anyOf": [GUEST, {"type": "null"}]}, {"x.name": False, "x.age": False}),
        (
            {"anyOf": [{"type": "array", "items": TEXT}, GUEST]},
            {"x.0": False, "x.1": True},
        ),
    ],
)
def test_leaves(schema, expected):
    assert paths(schema) == expected


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array"}, "argument 'x': an array without `items`"),
        ({"type": "object"}, "argument 'x': an object without `properties`"),
        (
            {"type": "object", "properties": {"a": {"type": "array"}}},
            "argument 'x': nothing in it is a scalar",
        ),
        (
            {**GUEST, "properties": {**GUEST["properties"], "age": {"type": "object"}}},
            "argument 'x.age': an object without `properties`",
        ),
        ({"$ref": "#/$defs/node"}, "argument 'x.child.child' refers to itself"),
    ],
)
def test_what_cannot_be_given(schema, problem):
    node = {
        "type": "object",
        "properties": {"child": {"$ref": "#/$defs/node"}},
        "required": ["child"],
    }
    with pytest.raises(Unsupported) as error:
        paths(schema, {"$defs": {"node": node}})
    assert problem in str(error.value)


def test_the_draft_is_a_domain_file(tmp_path):
    parameters = {
        "type": "object",
        "properties": {
            "city": TEXT,
            "guests": {"type": "array", "items": GUEST},
            "tags": {"type": "array", "items": TEXT},
        },
        "required": ["guests", "tags"],
    }
    tool = {"name": "book_room", "description": "Book a room", "parameters": parameters}
    made = drafting.draft([tool], "rooms")
    (entry,) = made.domain["tools"]
    arguments = entry["x-openagent"]["arguments"]
    assert arguments == {
        "guests.0.name": "guest_name",
        "guests.0.age": "age",
        "tags.0": "tag",
    }
    assert entry["function"]["parameters"] == parameters
    assert {*entry["x-openagent"]["argument_names"]} == {
        "guests",
        "name",
        "age",
        "tags",
    }
    (goal,) = made.domain["goals"]
    assert "tag {tags_0}" in goal["phrases"]["train"][0]
    assert "guest name {guests_0_name}" in goal["phrases"]["train"][0]
    file = tmp_path / "rooms.json"
    file.write_text(json_format.dumps(made.domain))
    assert domain_file.faults(file, Limits(depth=3)) == []
    assert domain_file.needs(file).depth == 3
