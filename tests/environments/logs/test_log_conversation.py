"""Parsing conversations in common log formats: tools, calls, results and errors."""

import copy
import json
from decimal import Decimal

import pytest

from openagent_jax.environments.logs import log_conversation, log_mapping
from openagent_jax.environments.logs.log_values import Bare
from tests.environments.logs.examples import (
    GOOD,
    TOOLS,
    calls,
    chain,
    mapped,
    result,
    user,
    weather,
)


def test_formats_of_tools():
    task = mapped(chain())
    bare = [x["function"] for x in TOOLS]
    mcp = [
        {
            "name": x["name"],
            "description": x["description"],
            "inputSchema": x["parameters"],
        }
        for x in bare
    ]
    filled = copy.deepcopy(TOOLS)  # as a table fills the gaps of its rows
    filled[0]["function"]["parameters"]["properties"]["city"] = None
    for tools in (bare, mcp, json.dumps(TOOLS), filled):
        assert mapped(chain(), tools) == task


def test_null_means_absent():
    messages = chain()
    messages[4]["tool_calls"][0]["function"]["arguments"]["city"] = None
    messages[0]["tool_calls"] = None
    assert mapped(messages) == mapped(chain())


@pytest.mark.parametrize(
    "content", [{"error": None, "sky": "x"}, {"errors": []}, "erroneous"]
)
def test_results_that_report_no_error(content):
    assert mapped(weather(GOOD[0], result(content), last="ok")).failures == {}


def test_an_error_marked_on_the_message():
    failed = calls(("get_weather", {"city": "Rome"})), result("no", is_error=True)
    assert mapped(weather(*failed, *GOOD)).failures == {"get_weather": 1}


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("0", Decimal(0)),
        ("false", Bare("false")),
        ("null", Bare("null")),
        ("[]", Bare("[]")),
        ("1.10", Decimal("1.1")),
        ("12345678901234567890.5", Bare("12345678901234567890.5")),
        ('"1.10"', "1.10"),
        ("NaN", "NaN"),
        ("sunny", "sunny"),
    ],
)
def test_a_result_that_is_not_an_object_is_one_value(content, value):
    answer = f"Answer: {json.loads(content) if content[0] == chr(34) else content}"
    task = mapped(weather(GOOD[0], result(content), last=answer))
    assert task.steps[0].fields == {("result",): (value, not isinstance(value, str))}
    assert task.answer == (0, ("result",))


@pytest.mark.parametrize("content", ["", '""', "{}", None, []])
def test_an_empty_result_has_no_fields(content):
    task = mapped(weather(GOOD[0], {**result("x"), "content": content}, last="ok"))
    assert task.steps[0].fields == {}


def test_call_ids_can_be_numbers():
    messages = [
        user("Weather in Rome and Bern?"),
        calls(("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Bern"})),
        result("rainy", 2),
        result("sunny", 1),
    ]
    for number, call in enumerate(messages[1]["tool_calls"], 1):
        call["id"] = number
    assert mapped(messages).steps[0].fields == {("result",): ("sunny", False)}


SKIPPED = {
    "no messages": ({"tools": TOOLS}, "no `messages`"),
    "no object": (1, "no `messages`"),
    "a list": ([{}], "a list; write one conversation per line"),
    "ShareGPT": (
        {"conversations": []},
        "no `messages`, only ShareGPT's `conversations`; convert them",
    ),
    "it failed": ({"messages": chain(), "success": False}, "`success` is false"),
    "no object in it": ({"messages": ["hi"]}, "a message that is not an object"),
    "no tools": ({"messages": chain()}, "a call of an undocumented tool"),
    "no user": ({"messages": [*GOOD], "tools": TOOLS}, "no user message"),
    "tools": ({"messages": chain(), "tools": "[{"}, "`tools` that are not valid JSON"),
    "a tool": ({"messages": chain(), "tools": [{}]}, "a tool without a name"),
}


@pytest.mark.parametrize(("row", "why"), SKIPPED.values(), ids=SKIPPED)
def test_lines_that_are_skipped(row, why):
    with pytest.raises(log_conversation.CannotMap, match=why):
        log_mapping.map_conversation(log_conversation.parse(row))
