"""Example lists of tools for the tests of drafting, and helpers to read a draft."""

import tempfile
import zlib
from pathlib import Path

from openagent_jax.domains import domain_file
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import drafting, json_format

ROOM = Limits(
    num_tools=24,
    num_args=5,
    num_constants=5,
    depth=8,
    num_fields=8,
    num_derived=1,
)


def function(name, description="", required=None, /, **properties):
    """A bare function; all its properties are required unless `required` is given."""
    parameters = {"type": "object", "properties": properties}
    parameters["required"] = list(properties) if required is None else required
    return {"name": name, "description": description, "parameters": parameters}


def openai(*functions):
    """Functions as OpenAI's array of tools."""
    return [{"type": "function", "function": item} for item in functions]


TEXT, ID = {"type": "string"}, {"type": "string", "description": "e.g. C-20417"}
SHOP = openai(
    function("find_customer", "Find a customer by email address.", email=TEXT),
    function(
        "list_orders",
        "Returns the newest order of a customer. Sorted by date.",
        ["customer_id"],
        customer_id=ID,
        limit={"type": "integer", "minimum": 1, "maximum": 50},
    ),
    function("get_order_status", "Get the status of an order.", order_id=TEXT),
    function(
        "cancelOrder",
        "Cancels an order",
        order_id=TEXT,
        reason={"type": "string", "enum": ["late", "broken", "other"]},
    ),
    function("check_stock", "", product={"type": "string"}),
)
MCP = {
    "tools": [
        {
            "name": "search_issues",
            "title": "Search issues",
            "description": "Search the issues of a repository.",
            "inputSchema": {
                "$defs": {"State": {"type": "string", "enum": ["open", "closed"]}},
                "type": "object",
                "properties": {
                    "repository": {"type": "string"},
                    "state": {"$ref": "#/$defs/State"},
                    "labels": {"type": "array", "items": {"type": "string"}},
                    "since": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["repository", "state", "since"],
            },
            "outputSchema": {
                "type": "object",
                "properties": {
                    "total": {"type": "integer"},
                    "issues": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "id": {"type": "string"},
                                "title": {"type": "string"},
                            },
                        },
                    },
                },
            },
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": "label_issue",
            "description": "Put a label on an issue.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "issue_id": {"type": "string"},
                    "urgent": {"type": "boolean"},
                    "points": {"type": "integer", "minimum": 1, "maximum": 13},
                },
                "required": ["issue_id", "urgent", "points"],
            },
            "annotations": {"readOnlyHint": False},
        },
    ]
}


def tools_of(draft):
    """The `x-openagent` block of each tool, by name."""
    return {x["function"]["name"]: x["x-openagent"] for x in draft.domain["tools"]}


def goals_of(draft):
    return {goal["name"]: goal for goal in draft.domain["goals"]}


def faults(tmp_path, domain):
    """The faults of a domain, written to a file and read again."""
    file = tmp_path / "mine.json"
    file.write_text(json_format.dumps(domain), encoding="utf-8")
    return domain_file.faults(file, ROOM)


def filled(value):
    """A domain whose holes are filled in."""
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    hole = [x for x in value if isinstance(x, str) and x.startswith("FILL IN:")]
    if hole:
        return [f"filled {zlib.crc32(hole[0].encode())} {i}" for i in range(4)]
    return list(map(filled, value))


def draft_one(description="Get the value of a thing.", name="get_value", **properties):
    """The draft of a list of one tool."""
    return drafting.draft(openai(function(name, description, **properties)), "one")


def returning(name, returns, /, **properties):
    """A function whose result has a schema."""
    tool = function(name, "", **properties)
    return {**tool, "outputSchema": {"type": "object", "properties": returns}}


def read_faults(domain):
    """The faults of a domain, for tests that have no folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        return faults(Path(folder), domain)
