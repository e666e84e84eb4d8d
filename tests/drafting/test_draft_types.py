"""Names that the environment reserves: arguments and results called `code`, and types
called `count`."""

import pytest

from openagent_jax.drafting import drafting
from tests.drafting.examples import (
    TEXT,
    draft_one,
    faults,
    function,
    openai,
    returning,
    tools_of,
)


def test_an_argument_called_code_is_renamed(tmp_path):
    draft = draft_one("Check a coupon.", "check_coupon", code=TEXT)
    assert list(tools_of(draft)["check_coupon"]["arguments"]) == ["coupon_code"]
    assert any(
        "code of check_coupon is renamed to coupon_code" in x for x in draft.review
    )
    assert faults(tmp_path, draft.domain) == []


@pytest.mark.parametrize(
    "tool, returns",
    [
        (function("get_coupon_code", "", x=TEXT), ["result_code"]),
        (function("search_code", "", x=TEXT), ["result_code"]),
        (returning("find_coupon", {"code": TEXT, "by": TEXT}), ["coupon_code", "by"]),
    ],
)
def test_a_result_called_code_is_renamed(tmp_path, tool, returns):
    draft = drafting.draft(openai(tool), "one")
    (meaning,) = tools_of(draft).values()
    assert list(meaning["returns"]) == returns
    assert faults(tmp_path, draft.domain) == []


@pytest.mark.parametrize("name", ["order_jars", "get_count"])
def test_a_type_called_count_is_renamed(tmp_path, name):
    """It is the type of the number of records of a list."""
    hives = {"type": "array", "items": {"type": "object", "properties": {"id": TEXT}}}
    draft = drafting.draft(
        openai(
            function(name, "", count={"type": "integer"}),
            returning("list_hives", {"hives": hives}),
        ),
        "one",
    )
    assert tools_of(draft)["list_hives"]["returns"]["hives"]
    assert faults(tmp_path, draft.domain) == []
