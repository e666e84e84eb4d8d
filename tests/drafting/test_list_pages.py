"""Tools of a list whose schemas tell that their results come in pages."""

import copy
import json

import pytest

from openagent_jax.domains import domain_file, domain_needs
from openagent_jax.domains.domain_spec import PageSpec
from openagent_jax.drafting import drafting, list_pages, list_results, tool_lists
from tests.drafting import real_lists

TEXT = {"type": "string"}
ORDERS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": TEXT,
            "total": {"type": "number", "minimum": 0, "maximum": 900},
            "priority": {"type": "integer", "minimum": 1, "maximum": 3},
            "lines": {"type": "array", "items": TEXT},
        },
    },
}


def tools():
    """A list of two tools, the first of which has pages."""
    listing = {
        "name": "list_orders",
        "description": "List the orders of a customer.",
        "inputSchema": {
            "type": "object",
            "properties": {"customer": TEXT, "cursor": {"type": ["string", "null"]}},
            "required": ["customer"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "orders": ORDERS,
                "meta": {"type": "object", "properties": {"next_cursor": TEXT}},
            },
        },
    }
    getting = {
        "name": "get_order_address",
        "description": "Get the address of an order.",
        "inputSchema": {
            "type": "object",
            "properties": {"order_id": TEXT},
            "required": ["order_id"],
        },
    }
    return [listing, getting]


def found(**changes):
    """What is found in the schemas of the first tool, some of which are replaced."""
    tool = tools()[0]
    parameters = tool["inputSchema"]["properties"]
    fields = tool["outputSchema"]["properties"]
    for name, schema in changes.items():
        part = parameters if name in parameters or name.startswith("to_") else fields
        part.pop(name, None)
        if schema is not None:
            part[name.removeprefix("to_")] = schema
    root = tool["inputSchema"]
    returns = list_results.fields(tool["outputSchema"])
    return list_pages.found(root, root, returns)


def test_pages_are_found():
    pages = found()
    assert pages is not None
    assert (pages.path, pages.cursor, pages.next) == (
        "orders",
        "cursor",
        "meta.next_cursor",
    )


@pytest.mark.parametrize(
    ("argument", "field"),
    [
        ("page_token", "nextPageToken"),
        ("nextToken", "next_token"),
        ("start_cursor", "next_cursor"),
        ("after", "endCursor"),
    ],
)
def test_other_names(argument, field):
    changes = {"cursor": None, f"to_{argument}": TEXT, "meta": None, field: TEXT}
    pages = found(**changes)
    assert pages is not None
    assert (pages.cursor, pages.next) == (argument, field)


@pytest.mark.parametrize(
    "changes",
    [
        {"cursor": None},
        {"cursor": {"type": "integer"}},
        {"cursor": {"type": "string", "pattern": "^[0-9]+$"}},
        {"meta": None},
        {"orders": None},
        {"orders": {"type": "array", "items": TEXT}},
        {"others": ORDERS},  # which of the two lists is divided?
    ],
)
def test_anything_else_is_whole(changes):
    assert found(**changes) is None


def test_a_draft_has_pages():
    made = drafting.draft(tools(), "orders")
    assert not made.holes
    document = json.loads(json.dumps(made.domain))
    limits = domain_file.default_limits(domain_needs.of(document))
    spec = domain_file.read(document, limits)
    listing = spec.tools[0]
    assert listing.pages == PageSpec("orders", 2, "cursor", "meta.next_cursor")
    assert [name for name, _ in listing.arguments] == ["customer"]
    assert listing.lists[0].columns[0] == ("id", "order_id")
    goals = {goal.name: goal for goal in spec.goals}
    assert goals["list_orders"].answer == "#0.count(orders)"
    assert "number of orders" in goals["list_orders"].phrases["train"][0]
    chain = goals["list_orders_then_get_order_address"]
    assert chain.steps[1][1] == {"order_id": "#0.orders.0.id"}
    assert "with the id of the first order" in chain.phrases["train"][0]
    (note,) = [x for x in made.review if "pages" in x]
    assert note == (
        "tools[0].x-openagent.pages: list_orders returns orders in pages of 2; its "
        "argument cursor takes the cursor that is in meta.next_cursor"
    )


def test_nothing_else_comes_with_a_page():
    """Such as a field that says whether there are more, or the cursor itself."""
    listed = tools()
    fields = listed[0]["outputSchema"]["properties"]
    fields["orders"]["items"]["properties"] = {"id": TEXT}
    fields |= {"has_more": {"type": "boolean"}, "by": TEXT}
    (first, _) = drafting.draft(listed, "orders").domain["tools"]
    assert list(first["x-openagent"]["returns"]) == ["orders"]


def test_a_call_that_changes_something_has_one_result():
    listed = copy.deepcopy(tools())
    listed[0]["annotations"] = {"destructiveHint": True}
    (first, _) = drafting.draft(listed, "orders").domain["tools"]
    assert "pages" not in first["x-openagent"]


def test_a_cursor_is_no_reason_to_raise_a_limit():
    listed = tools()
    schema = listed[0]["inputSchema"]
    for name in ("region", "year"):
        schema["properties"][name] = TEXT
        schema["required"].append(name)
    assert tool_lists.read(listed)[0].pages is None
    schema["required"].pop()
    assert tool_lists.read(listed)[0].pages is not None


def test_real_lists():
    """Of the lists here, one says what its results look like, and divides them."""
    paged = {
        (file.stem, tool.name)
        for file in real_lists.FILES
        if "nextCursor" in (text := file.read_text("utf-8"))
        for tool in tool_lists.read(json.loads(text))
        if tool.pages
    }
    assert {name for name, _ in paged} == {"todoist"}
    assert ("todoist", "find-tasks") in paged and len(paged) == 7
