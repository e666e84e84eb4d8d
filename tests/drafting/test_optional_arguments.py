"""Optional arguments of a draft: which are kept, and which goals give them."""

from openagent_jax.domains import domain_file
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import drafting
from tests.drafting.examples import (
    TEXT,
    faults,
    function,
    goals_of,
    openai,
    returning,
    tools_of,
)

WHOLE = {"type": "integer"}


def test_they_are_kept_up_to_the_limit_after_the_required_ones(tmp_path):
    tool = function(
        "find_room",
        "Find a room.",
        ["city"],
        floor={"type": "array", "items": TEXT},
        beds={"type": "integer", "default": 1},
        city=TEXT,
        quiet={"type": "boolean"},
        price={"type": "number"},
    )
    draft = drafting.draft(openai(tool), "rooms")
    meaning = tools_of(draft)["find_room"]
    assert Limits().num_args == 3
    assert meaning["arguments"] == {"city": "city", "beds": "beds", "quiet": "boolean"}
    assert [*meaning["argument_names"]] == ["city", "beds", "quiet"]
    assert any("left out of find_room: floor, price (opt" in x for x in draft.review)
    assert draft.holes == [] and faults(tmp_path, draft.domain) == []
    (spec,) = domain_file.load(tmp_path / "mine.json").tools
    assert spec.optional == {"beds": 1, "quiet": None}


def test_goals_leave_them_out_but_for_one_that_gives_each(tmp_path):
    tools = [
        returning("find_city", {"city": TEXT}, owner=TEXT),
        function("find_room", "Find a room.", ["city"], city=TEXT, beds=WHOLE),
    ]
    draft = drafting.draft(openai(*tools), "rooms")
    goals = goals_of(draft)
    given = {
        name: goal["steps"][-1]["arguments"]
        for name, goal in goals.items()
        if goal["steps"][-1]["tool"] == "find_room"
    }
    assert given == {
        "find_room": {"city": "$city"},
        "find_room_with_beds": {"city": "$city", "beds": "$beds"},
        "find_city_then_find_room": {"city": "#0.city"},
    }
    for text in goals["find_room_with_beds"]["phrases"]["test"]:
        assert "{city}" in text and "{beds}" in text
    assert faults(tmp_path, draft.domain) == []


def test_those_that_need_work_are_left_out(tmp_path):
    order = {"type": "string", "enum": ["up", "down"]}
    tools = [
        function("sort_rooms", "Sort rooms.", order=order),
        function(
            "list_rooms",
            "List rooms.",
            [],
            # Nobody can make up its values.
            key={"type": "string", "pattern": "^(?!X)[a-z]+$"},
            # Both would become one type, and rooms be sorted "left".
            way={"type": "string", "enum": ["up", "left"]},
            # A value is longer than the limit.
            kind={"type": "string", "enum": ["a", "b" * 99]},
            order=order,
        ),
    ]
    draft = drafting.draft(openai(*tools), "rooms")
    assert tools_of(draft)["list_rooms"]["arguments"] == {"order": "order"}
    assert draft.domain["types"]["order"]["values"] == ["up", "down"]
    assert draft.holes == [] and faults(tmp_path, draft.domain) == []


def test_results_do_not_depend_on_them():
    """A tool may return what it also takes as an optional argument."""
    tools = [
        function("find_room", "Find a room.", ["city"], city=TEXT, room_id=TEXT),
        function("close_room", "Close a room.", room_id=TEXT),
    ]
    draft = drafting.draft(openai(*tools), "rooms")
    assert tools_of(draft)["find_room"]["returns"] == {"room_id": "room_id"}
    assert "find_room_then_close_room" in goals_of(draft)


def test_one_called_code_is_renamed(tmp_path):
    tool = function("check_coupon", "Check a coupon.", ["x"], x=TEXT, code=TEXT)
    draft = drafting.draft(openai(tool), "coupons")
    assert [*tools_of(draft)["check_coupon"]["arguments"]] == ["x", "coupon_code"]
    goal = goals_of(draft)["check_coupon_with_coupon_code"]
    assert [*goal["steps"][0]["arguments"]] == ["x", "coupon_code"]
    assert faults(tmp_path, draft.domain) == []


def test_requests_have_room_for_no_more_constants(tmp_path):
    """A tool with as many required arguments as constants keeps no optional ones."""
    names = {f"arg_{letter}": TEXT for letter in "abcd"}
    tool = function("go", "", [*names], **names, fast={"type": "boolean"})
    draft = drafting.draft(openai(tool), "go")
    assert [*tools_of(draft)["go"]["arguments"]] == [*names]
    assert [*goals_of(draft)] == ["go"]
    assert faults(tmp_path, draft.domain) == []
