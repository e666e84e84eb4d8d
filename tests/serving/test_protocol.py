"""What a request may contain, and how errors are reported."""

import json

import pytest

from openagent_jax.serving import app
from openagent_jax.text import messages
from tests.serving import host
from tests.serving.clients import ASKED, TOOLS, ask, client, openai, post


@pytest.fixture(scope="module")
def text_client():
    with client("Well, this is Café 🦊 as it is.", max_tokens=32) as made:
        yield made


FUNCTION = {"type": "function", "function": {"name": "look"}}
BAD = {
    "no messages": ({"messages": []}, "messages"),
    "messages that are none": ({"messages": "Hi"}, "messages"),
    "a role": ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content"),
    "a picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0]",
    ),
    "a result of nothing": (
        {"messages": [{"role": "tool", "content": ""}]},
        "messages[0].tool_call_id",
    ),
    "a call that is none": (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
        "messages[0].tool_calls[0]",
    ),
    "arguments that are no text": (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "1", "function": {"name": "a", "arguments": {}}}
                    ],
                }
            ]
        },
        "messages[0].tool_calls[0]",
    ),
    "tools that are none": ({"tools": {}}, "tools"),
    "a tool without a name": (
        {"tools": [{"type": "function", "function": {}}]},
        "tools[0].function.name",
    ),
    "a schema that is none": (
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": 1}}]},
        "tools[0].function.parameters",
    ),
    "one tool": ({"tool_choice": FUNCTION}, "tool_choice"),
    "some tool": ({"tool_choice": "required"}, "tool_choice"),
    "two replies": ({"n": 2}, "n"),
    "no tokens": ({"max_tokens": 0}, "max_tokens"),
    "true tokens": ({"max_tokens": True}, "max_tokens"),
    "heat": ({"temperature": 2.1}, "temperature"),
    "great heat": ({"temperature": 10**400}, "temperature"),
    "great mass": ({"top_p": 10**400}, "top_p"),
    "half a key": ({"\ud83d": 1}, "a key"),
    "half a name": ({"model": "\ud83d"}, "model"),
    "half an id": (
        {"messages": [{"role": "tool", "tool_call_id": "\ud83d", "content": ""}]},
        "messages[0].tool_call_id",
    ),
    "half an id of a call": (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "\ud83d", "function": {"name": "a", "arguments": ""}}
                    ],
                }
            ]
        },
        "messages[0].tool_calls[0]",
    ),
    "cold": ({"temperature": -0.1}, "temperature"),
    "no mass": ({"top_p": 0}, "top_p"),
    "a seed": ({"seed": "x"}, "seed"),
    "stops": ({"stop": ["a"] * 5}, "stop"),
    "an empty stop": ({"stop": ""}, "stop"),
    "a stream": ({"stream": "yes"}, "stream"),
    "usage": ({"stream_options": {"include_usage": 1}}, "include_usage"),
    "JSON": ({"response_format": {"type": "json_object"}}, "response_format"),
    "probabilities": ({"logprobs": True}, "logprobs"),
    "who knows": ({"beam_width": 3}, "beam_width"),
    "half a letter": (
        {"messages": [{"role": "user", "content": "\ud83d"}]},
        "messages[0].content",
    ),
}


@pytest.mark.parametrize(("more", "param"), BAD.values(), ids=BAD)
def test_errors_name_the_place(text_client, more, param):
    body = json.dumps({"model": host.NAME, "messages": ASKED} | more)
    status, error, _ = post(text_client, body)
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["param"] == param
    assert error["message"].startswith(param) and "\n" not in error["message"]


@pytest.mark.parametrize("body", ["", "{", "[]", b"\xff", "[" * 100_000, '"x"'])
def test_malformed_bodies(text_client, body):
    status, error, _ = post(text_client, body)
    assert status == 400 and error["message"].startswith("the body is not ")


def test_defaults_are_accepted(text_client):
    harmless = {"n": 1, "logprobs": False, "user": "me", "seed": 2**63, "stop": None}
    harmless |= {"frequency_penalty": 0, "response_format": {"type": "text"}}
    assert ask(text_client, **harmless).choices[0].message.content.startswith("Well")


def test_deep_nesting_is_refused(text_client):
    """In all places, and just above the limit as well."""
    for num in range(900, 1000, 3):
        deep = '{"a":' * num + "1" + "}" * num
        function = {"name": "look", "arguments": deep}
        call = {"id": "1", "type": "function", "function": function}
        said = [*ASKED, {"role": "assistant", "tool_calls": [call]}]
        asked = json.dumps({"model": host.NAME, "messages": said, "tools": TOOLS})
        for body in (asked, asked.replace('{"type": "string"}', deep)):
            status, error, _ = post(text_client, body)
            assert status == 400, (num, error)


def test_an_unknown_model(text_client):
    with pytest.raises(
        openai.NotFoundError, match='no model "gpt"; this server has "ours"'
    ) as e:
        ask(text_client, model="gpt")
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        text_client.models.retrieve("gpt")


def test_context_length_exceeded(text_client):
    room = text_client.served.max_context
    num = ask(text_client).usage.prompt_tokens
    assert ask(text_client, max_tokens=room - num).choices[0].finish_reason == "stop"
    message = f"maximum context length is {room} tokens; messages and tools take {num}"
    with pytest.raises(openai.BadRequestError, match=message) as e:
        ask(text_client, max_tokens=room - num + 1)
    assert e.value.code == "context_length_exceeded"
    long = [{"role": "user", "content": "x" * 100_000}]
    with pytest.raises(openai.BadRequestError) as e:
        ask(text_client, messages=long)
    assert e.value.code == "context_length_exceeded"


def test_too_many_arguments(text_client):
    names = {f"a{i}": "string" for i in range(20_000)}
    tool = messages.tool("look", "", names)
    with pytest.raises(openai.BadRequestError, match="maximum context length is 320"):
        ask(text_client, tools=[tool])
    called = messages.assistant("", [messages.Call("1", "look", json.dumps(names))])
    told = {"role": "tool", "tool_call_id": "1", "content": "9"}
    with pytest.raises(
        openai.BadRequestError, match="20000 arguments; this model supports"
    ):
        ask(text_client, messages=[*messages.opening("x"), called, told])


def test_request_too_large(text_client):
    status, error, _ = post(text_client, b" " * (app.MAX_BODY + 1))
    assert (status, error["code"]) == (413, "request_too_large")


def test_other_paths_and_methods(text_client):
    status, error, _ = post(text_client, "{}", "completions")
    assert status == 404 and "/v1/completions" in error["message"]
    status, error, _ = post(text_client, "{}", "models")
    assert status == 405 and error["type"] == "invalid_request_error"
