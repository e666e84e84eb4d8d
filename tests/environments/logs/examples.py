"""Example conversations for the tests of logs, and short ways to write them."""

import dataclasses
import json

import pytest

from openagent_jax.environments import registry
from openagent_jax.environments.logs import log_conversation, log_mapping
from openagent_jax.environments.world import Settings, Spelling
from tests import helpers


def tool(name, description="", required=(), **kinds):
    """A tool whose arguments have JSON types; all are required by default."""
    schema = {
        "type": "object",
        "properties": {k: {"type": v} for k, v in kinds.items()},
    }
    function = {"name": name, "description": description, "parameters": schema}
    schema["required"] = list(required or kinds)
    return {"type": "function", "function": function}


TOOLS = [
    tool("find_order", "Find an order.", order_id="string", year="integer"),
    tool("get_weather", "Weather of a city", ["city"], city="string", unit="string"),
    tool("ship", "Ship a parcel", parcel="string", to="string"),
]


def user(text):
    """A message of the user."""
    return {"role": "user", "content": text}


def says(text):
    """A message of the agent without a call."""
    return {"role": "assistant", "content": text}


def calls(*made, content=None):
    """A message of the agent with calls `(name, arguments)`; their ids are a, b, c."""
    tool_calls = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": x}}
        for i, (name, x) in zip("abc", made)
    ]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def result(content, call_id="a", **more):
    """The message with the result of a call."""
    if isinstance(content, dict):
        content = json.dumps(content)
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


ORDER = {"order_id": "A-17", "year": 2024}
FOUND = {"parcel": "p9", "state": "packed", "weight": 2.5, "gift": True}


def chain():
    """A conversation in which a result is the argument of the next call."""
    return [
        {"role": "system", "content": "Be kind."},
        user("Please ship order A-17 of 2024 to Oslo, I am in Oslo-Nord."),
        calls(("find_order", json.dumps(ORDER)), content="Let me look."),
        result(FOUND),
        calls(("ship", {"parcel": "p9", "to": "Oslo"})),
        result([{"type": "text", "text": '{"label": "L-4", "by": null}'}]),
        says("Done! The label is L-4."),
    ]


PACK = tool("pack", "Pack a box", box="object", day="string")
PACK["function"]["parameters"]["properties"]["box"]["properties"] = {
    "kg": {"type": "number"},
    "gift": {"type": "boolean"},
}
BOX = {"box": {"kg": 2.5, "gift": True}, "day": "Monday"}
PACKED = {"box": {"id": 7, "left": None}, "places": [3.25]}


def nested():
    """A conversation with nested arguments and results, for the tool `PACK`."""
    return [
        user("What is the id of the box of 2.5 kg for Monday?"),
        calls(("pack", BOX)),
        result(PACKED),
        says("Answer: 7"),
    ]


def weather(*between, last="Answer: sunny", city="Rome"):
    """A conversation about the weather."""
    return [user(f"Weather in {city}?"), *between, says(last)]


GOOD = calls(("get_weather", {"city": "Rome"})), result({"sky": "sunny", "wind": "3"})


def failing():
    """A conversation in which the tool fails twice at first."""
    failed = calls(("get_weather", {"city": "Rome"})), result({"error": "busy"})
    return weather(*failed, *failed, *GOOD)


def unsure():
    """A conversation in which the agent asks for a value."""
    return [user("Weather of it?"), says("Which?\nAsk"), user("Rome"), *GOOD]


def mapped(messages, tools=TOOLS, **more):
    """The task that a conversation becomes."""
    row = {"messages": messages, "tools": tools, **more}
    return log_mapping.map_conversation(log_conversation.parse(row))


def reason(messages, tools=TOOLS, **more):
    """Why a conversation becomes no task."""
    with pytest.raises(log_conversation.CannotMap) as error:
        mapped(messages, tools, **more)
    return str(error.value)


ROOM = {"sandbox.max_turns": helpers.MAX_TURNS}
LIMITS = dataclasses.replace(
    helpers.LIMITS, num_tools=18, num_args=4, num_fields=4, num_steps=7, num_constants=5
)


def write_log(tmp_path, *conversations, name="x.jsonl"):
    """A log file with these conversations."""
    file = tmp_path / name
    rows = ({"messages": x, "tools": TOOLS} for x in conversations)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def build(file, **room):
    """The worlds of a log; `room` are keys of `sandbox` in a config."""
    names = [field.name for field in dataclasses.fields(Settings)]
    limits = {x: y for x, y in vars(LIMITS).items() if x in names} | {"depth": 0}
    limits |= {x: room.pop(x) for x in [*room] if x in limits}
    settings = Settings(
        domain=str(file),
        num_visible=helpers.NUM_VISIBLE,
        max_turns=helpers.MAX_TURNS,
        **limits,
    )
    room = ROOM | {f"sandbox.{key}": value for key, value in room.items()}
    return registry.make(settings, Spelling(helpers.tokenizer(), max_sizes=room))
