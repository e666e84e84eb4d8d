"""What tools of a list return: fields of objects, and lists of records."""

import pytest

from openagent_jax.domains import domain_file, domain_needs
from openagent_jax.drafting import drafting, list_results
from tests.drafting.examples import (
    TEXT,
    function,
    goals_of,
    returning,
    tools_of,
)

ORDER = {
    "type": "object",
    "properties": {
        "id": TEXT,
        "total": {"type": "number", "minimum": 0, "maximum": 900},
        "priority": {"type": "integer", "minimum": 1, "maximum": 3},
        "owner": {"type": "object", "properties": {"name": TEXT}},
        "lines": {"type": "array", "items": {"properties": {"item": TEXT}}},
    },
}
ORDERS = {"type": "array", "items": ORDER}


def listing(returns, **more):
    return {**returning("list_orders", returns, customer=TEXT), **more}


def drafted(*tools):
    """A draft, which has to be a domain without any flag."""
    made = drafting.draft(list(tools), "mine")
    limits = domain_file.default_limits(domain_needs.of(made.domain))
    assert domain_file.read(made.domain, limits).tools
    return made


def test_paths():
    found = list_results.fields({"properties": {"orders": ORDERS, "tags": {
        "type": "array", "items": TEXT}, "grid": {"type": "array", "items": {
        "type": "array", "items": TEXT}}}})  # fmt: skip
    # A number with three values cannot differ in five records.
    assert [*found] == [
        "orders.0.id",
        "orders.0.total",
        "orders.0.owner.name",
        "orders.0.lines.0.item",
        "tags.0",
        "grid.0.0",
    ]
    assert list_results.lists(found) == ["orders"]


@pytest.mark.parametrize(
    ("returns", "path"),
    [
        ({"orders": ORDERS}, "orders"),
        ({"items": ORDERS, "total": {"type": "integer"}}, "items"),
        ({"data": {"properties": {"results": ORDERS}}}, "data.results"),
        ({"by": TEXT, "orders": ORDERS}, "orders"),
        ({"errors": ORDERS, "orders": ORDERS}, "orders"),
    ],
)
def test_a_list_stays_a_list(returns, path):
    """Also inside an object, and beside other fields; its ids are those of orders."""
    getting = function("get_order_address", "Get the address.", order_id=TEXT)
    made = drafted(listing(returns), getting)
    (first, columns), *rest = tools_of(made)["list_orders"]["returns"].items()
    assert first == path and not rest
    assert columns["list"]["id"] == "order_id" and len(columns["list"]) == 2
    assert (columns["at_least"], columns["at_most"]) == (1, 3)
    chain = goals_of(made)["list_orders_then_get_order_address"]
    assert chain["steps"][1]["arguments"] == {"order_id": f"#0.{path}.0.id"}
    (note,) = [x for x in made.review if x.startswith("tools[0].x-openagent.returns")]
    assert f"list_orders returns {path} (at most 3 records of id, total)" in note


def test_a_result_that_is_a_list_gets_a_name():
    tool = {**listing({}), "outputSchema": ORDERS}
    assert [*tools_of(drafted(tool))["list_orders"]["returns"]] == ["result"]


def test_a_field_that_another_tool_takes_stands_beside_the_list():
    using = function("get_shop_address", "Get the address of a shop.", shop_id=TEXT)
    returns = {"orders": ORDERS, "shop_id": TEXT}
    made = tools_of(drafted(listing(returns), using))["list_orders"]["returns"]
    assert made["shop_id"] == "shop_id" and [*made["orders"]["list"]] == ["id"]


def test_a_call_that_changes_something_returns_one_record():
    tool = listing({"orders": ORDERS}, annotations={"destructiveHint": True})
    made = tools_of(drafted(tool))["list_orders"]
    assert made["effect"]
    assert made["returns"] == {"orders.0.id": "order_id", "orders.0.total": "total"}


def test_a_call_that_succeeds_reports_no_failure():
    failed = {"failures": ORDERS, "orders": {"type": "array", "items": TEXT}}
    tool = listing(failed, annotations={"destructiveHint": True})
    returns = tools_of(drafted(tool))["list_orders"]["returns"]
    assert [*returns][0] == "orders.0"


def test_a_list_is_as_long_as_its_types_have_values():
    six = {**TEXT, "pattern": "^[ab]+$", "maxLength": 2}  # two for each split
    few = {"type": "object", "properties": {"id": six}}
    returns = {"orders": {"type": "array", "items": few}}
    made = tools_of(drafted(listing(returns)))["list_orders"]["returns"]
    assert made["orders"]["at_most"] == 2


def test_other_names_of_output_schemas():
    tool = returning("get_x", {"size": TEXT}, it=TEXT)
    wanted = drafting.draft([tool], "x").domain["tools"][0]["x-openagent"]
    assert [*wanted["returns"]] == ["size"]
    schema = tool.pop("outputSchema")
    beside = {"type": "function", "function": tool, "outputSchema": schema}
    for other in ({**tool, "response": schema}, beside):
        made = drafting.draft([other], "x").domain["tools"][0]["x-openagent"]
        assert made == wanted


def test_objects_stay_nested():
    """The lines of one order are a detail of it."""
    parts = {"order": ORDER, "next": TEXT}
    returns = tools_of(drafted(returning("get_x", parts, it=TEXT)))["get_x"]["returns"]
    assert [*returns] == ["order.id", "order.total"]


def test_two_lists_that_are_details_are_not_both_returned():
    parts = {"first": {"properties": {"orders": ORDERS}}}
    parts |= {"second": {"properties": {"bills": ORDERS}}}
    returns = tools_of(drafted(returning("get_x", parts, it=TEXT)))["get_x"]["returns"]
    assert [*returns] == ["first.orders"]
