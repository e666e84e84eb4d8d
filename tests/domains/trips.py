"""A domain with nested arguments, by hand."""

import copy

from tests.domains import inns

POOLS = ("train", "test", "rewrite_train", "rewrite_test")
SCHEMA = {
    "type": "object",
    "properties": {
        "filters": {"$ref": "#/$defs/place"},
        "tags": {
            "type": "array",
            "items": {"type": "string"},
            "description": "labels, the most important one first",
        },
        "filters.price": {"type": ["string", "integer", "boolean"]},
        "stay": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "kind": {"type": "string"},
                        "nights": {"type": "integer"},
                        "quiet": {"type": "boolean", "default": False},
                    },
                    "required": ["kind", "nights"],
                },
                {"type": "null"},
            ]
        },
    },
    "required": ["filters", "tags"],
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "price": {"type": "number"}},
            "required": ["city"],
        }
    },
}
ARGUMENTS = {
    "filters.city": "city",
    "stay.kind": "kind",
    "tags.0": "tag",
    "tags.1": "tag",
    "stay.nights": "hour",
    "filters.price": "price",
    "stay.quiet": "flag",
    # One name with a dot, beside the price in `filters`.
    "filters~.price": ["city", "hour", "flag"],
}
KEYS = (
    *("filters", "city", "price", "tags", "stay", "kind", "nights", "quiet"),
    "filters.price",
)
GOALS = {
    "all": tuple(ARGUMENTS),
    "least": ("filters.city", "tags.0"),
    "some": (
        "filters.city",
        "tags.0",
        "tags.1",
        "stay.kind",
        "stay.nights",
        "filters~.price",
    ),
}
# The type of `filters~.price` in each goal.
UNION = {"all": "hour", "some": "flag"}


def document():
    """The tool `find_trip`, with a goal for each entry of `GOALS`."""
    made = inns.good()
    made["types"] |= {
        "tag": {"kind": "enum", "values": ["sea", "hills", "late snow"]},
        "price": {"kind": "number", "minimum": 0, "maximum": 90, "decimals": 1},
        "flag": {"kind": "enum", "values": [True, False]},
    }
    tool = inns.tool("find_trip", dict(ARGUMENTS), {"inn": "inn"})
    tool["function"]["parameters"] = copy.deepcopy(SCHEMA)
    tool["x-openagent"]["argument_names"] = {
        key: {"train": [f"{key}_one"], "test": [f"{key}_two"]} for key in KEYS
    }
    made["tools"] = [tool]
    made["goals"] = [_goal(name, paths) for name, paths in GOALS.items()]
    return made


def slot(path):
    """Return the slot of an argument in a request."""
    return path.replace("~.", "__").replace(".", "_")


def _goal(name, paths):
    slots = {path: slot(path) for path in paths}
    words = ", ".join(f"{{{slot}}}" for slot in slots.values())
    return {
        "name": name,
        "constants": {
            slot: UNION[name] if path == "filters~.price" else ARGUMENTS[path]
            for path, slot in slots.items()
        },
        "steps": [
            {
                "tool": "find_trip",
                "arguments": {path: f"${slot}" for path, slot in slots.items()},
            }
        ],
        "answer": "#0.inn",
        "phrases": {pool: [f"{pool} {name} {words}"] for pool in POOLS},
    }
