"""The endpoint as the official client meets it, and as those do who break things."""

import contextlib
import dataclasses
import http.client
import json
import socket
import threading
import time

import pytest

from openagent_jax.sandbox import chat
from openagent_jax.serving import app
from tests import helpers
from tests.serving import host

openai = pytest.importorskip("openai")

CALL = '{"purpose":"p","name":"look","arguments":{"place":"Oak Bay"}}'
TOOLS = [chat.tool("look", "opening hour of a place", {"place": "string"})]
ASKED = [{"role": "user", "content": "Show me the opening hour of Oak Bay."}]


@contextlib.contextmanager
def client(text, decoder=None, **changes):
    """A client of a server that says a text."""
    served = host.serve(decoder or host.says(text), **changes)
    with host.address(served) as address:
        base_url = f"{address}/v1"
        with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as made:
            made.served = served
            yield made


@pytest.fixture(scope="module")
def caller():
    with client(CALL, max_tokens=32) as made:
        yield made


@pytest.fixture(scope="module")
def talker():
    with client("Well, this is Café 🦊 as it is.", max_tokens=32) as made:
        yield made


def ask(client, **more):
    more = {"messages": ASKED, "model": host.NAME} | more
    return client.chat.completions.create(**more)


def num_tokens(text):
    return len(helpers.tokenizer().encode(text).ids)


def test_models_and_health(caller):
    (card,) = caller.models.list().data
    assert card.id == host.NAME
    assert caller.models.retrieve(host.NAME) == card
    assert card.max_model_len == caller.served.max_context
    answer = caller._client.get(f"{caller.base_url}../health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_call(caller):
    said = ask(caller, tools=TOOLS)
    (choice,) = said.choices
    (call,) = choice.message.tool_calls
    assert call.function.name == "look"
    assert call.function.arguments == '{"place":"Oak Bay"}'
    assert choice.message.content is None
    assert choice.finish_reason == "tool_calls"
    assert said.usage.completion_tokens == num_tokens(CALL) + 1  # and its end
    assert said.usage.total_tokens == (
        said.usage.completion_tokens + said.usage.prompt_tokens
    )


def test_the_next_turn_reads_what_is_new(caller):
    message = ask(caller, tools=TOOLS).choices[0].message
    (call,) = message.tool_calls
    told = {"role": "tool", "tool_call_id": call.id, "content": '{"hour":"12"}'}
    first = ask(caller, tools=TOOLS).usage
    usage = ask(caller, tools=TOOLS, messages=[*ASKED, message, told]).usage
    before = first.prompt_tokens + first.completion_tokens
    assert usage.prompt_tokens == before + num_tokens(
        '<|tool|>{"hour":"12"}<|assistant|>'
    )
    assert usage.prompt_tokens_details.cached_tokens == before - 1


def streamed(client, **more):
    """`(content, calls, finish, usage, number of parts)`, put together again."""
    content, calls, finish, usage, num = "", {}, None, None, 0
    options = {"include_usage": True}
    parts = ask(client, stream=True, stream_options=options, **more)
    for i, part in enumerate(parts):
        assert not usage  # it comes last
        if not part.choices:
            usage = part.usage
            continue
        delta, finish = part.choices[0].delta, part.choices[0].finish_reason
        assert i or delta.role == "assistant"
        content += delta.content or ""
        num += bool(delta.content)
        for call in delta.tool_calls or ():
            made = calls.setdefault(call.index, ["", "", ""])
            new = call.id, call.function.name, call.function.arguments
            calls[call.index] = [a + (b or "") for a, b in zip(made, new)]
    return content, list(calls.values()), finish, usage, num


def test_a_call_in_a_stream(caller):
    content, ((call_id, *call),), finish, usage, _ = streamed(caller, tools=TOOLS)
    assert (content, finish) == ("", "tool_calls")
    assert call_id and call == ["look", '{"place":"Oak Bay"}']
    whole = ask(caller, tools=TOOLS).usage
    assert usage.completion_tokens == whole.completion_tokens
    assert usage.prompt_tokens == whole.prompt_tokens


def test_text_in_a_stream(talker, monkeypatch):
    content, calls, finish, _, num = streamed(talker, tools=TOOLS)
    whole = ask(talker, tools=TOOLS).choices[0]
    assert content == whole.message.content == "Well, this is Café 🦊 as it is."
    assert finish == whole.finish_reason == "stop"
    assert not calls and not whole.message.tool_calls
    assert num > 1


def test_an_event_is_one_line():
    """Whatever a client takes for the end of a line."""
    text = "a\u2028b\x85c"
    with client(text, max_tokens=32) as found:
        assert ask(found).choices[0].message.content == text
        assert streamed(found)[0] == text
        body = {"model": host.NAME, "messages": ASKED, "stream": True}
        raw = found._client.post(f"{found.base_url}chat/completions", json=body)
    assert {line[:6] for line in raw.text.splitlines()} == {"data: ", ""}


def test_what_is_streamed_is_remembered_too(talker):
    content, *_, usage, _ = streamed(talker)
    said = [*ASKED, {"role": "assistant", "content": content}, *ASKED]
    cached = ask(talker, messages=said).usage.prompt_tokens_details.cached_tokens
    assert cached >= usage.prompt_tokens + usage.completion_tokens - 1


def test_what_was_stopped_is_spelled_anew(talker):
    """More was said than is told."""
    content = ask(talker, stop="is is").choices[0].message.content
    said = [*ASKED, {"role": "assistant", "content": content}, *ASKED]
    anew = host.serve(host.says("")).conversations.tokens(said, [])
    assert ask(talker, messages=said).usage.prompt_tokens == len(anew)


def test_calls_only_of_tools_that_may_be_called(caller):
    for more in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}):
        (choice,) = ask(caller, **more).choices
        assert choice.message.content == CALL
        assert choice.finish_reason == "stop" and not choice.message.tool_calls
        content, calls, finish, *_ = streamed(caller, **more)
        assert (content, calls, finish) == (CALL, [], "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_limits_and_stops(talker, stream):
    def said(**more):
        if stream:
            content, _, finish, usage, _ = streamed(talker, **more)
            return content, finish, usage.completion_tokens
        made = ask(talker, **more)
        choice = made.choices[0]
        return (
            choice.message.content,
            choice.finish_reason,
            made.usage.completion_tokens,
        )

    for name in ("max_tokens", "max_completion_tokens"):
        content, finish, num = said(**{name: 3})
        assert (finish, num) == ("length", 3)
        assert "Well, this is".startswith(content) and content
    assert said(stop="is is")[:2] == ("Well, th", "stop")
    assert said(stop=["🦊", "no"])[:2] == ("Well, this is Café ", "stop")
    whole = num_tokens("Well, this is Café 🦊 as it is.") + 1
    assert said(max_tokens=whole)[1:] == ("stop", whole)
    assert said(max_tokens=whole - 1)[1] == "length"
    both = said(max_tokens=whole - 1, stop=".")
    assert both[:2] == ("Well, this is Café 🦊 as it is", "stop")


def test_parts_and_roles(talker):
    parts = [
        {"type": "text", "text": text}
        for text in ("Show me the opening hour ", "of Oak Bay.")
    ]
    said = ask(
        talker,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": parts},
        ],
    )
    assert said.usage.prompt_tokens == ask(talker).usage.prompt_tokens


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


def post(client, body, path="chat/completions"):
    link = http.client.HTTPConnection(client.base_url.host, client.base_url.port)
    with contextlib.closing(link):
        link.request("POST", f"/v1/{path}", body)
        answer = link.getresponse()
        return answer.status, json.loads(answer.read())["error"], answer.headers


@pytest.mark.parametrize(("more", "param"), BAD.values(), ids=BAD)
def test_bad_requests_are_told_what_is_wrong(talker, more, param):
    body = json.dumps({"model": host.NAME, "messages": ASKED} | more)
    status, error, _ = post(talker, body)
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["param"] == param
    assert error["message"].startswith(param) and "\n" not in error["message"]


@pytest.mark.parametrize("body", ["", "{", "[]", b"\xff", "[" * 100_000, '"x"'])
def test_bodies_that_are_none(talker, body):
    status, error, _ = post(talker, body)
    assert status == 400 and error["message"].startswith("the body is no JSON")


def test_what_asks_for_nothing_special_is_taken(talker):
    harmless = {"n": 1, "logprobs": False, "user": "me", "seed": 2**63, "stop": None}
    harmless |= {"frequency_penalty": 0, "response_format": {"type": "text"}}
    assert ask(talker, **harmless).choices[0].message.content.startswith("Well")


def test_an_unknown_model(talker):
    with pytest.raises(openai.NotFoundError, match='no model "gpt"; it is "ours"') as e:
        ask(talker, model="gpt")
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        talker.models.retrieve("gpt")


def test_depth_is_refused(talker):
    """Wherever it is, and however little too much."""
    for num in range(900, 1000, 3):
        deep = '{"a":' * num + "1" + "}" * num
        function = {"name": "look", "arguments": deep}
        call = {"id": "1", "type": "function", "function": function}
        said = [*ASKED, {"role": "assistant", "tool_calls": [call]}]
        asked = json.dumps({"model": host.NAME, "messages": said, "tools": TOOLS})
        for body in (asked, asked.replace('{"type": "string"}', deep)):
            status, error, _ = post(talker, body)
            assert status == 400, (num, error)


def test_too_long(talker):
    room = talker.served.max_context
    num = ask(talker).usage.prompt_tokens
    assert ask(talker, max_tokens=room - num).choices[0].finish_reason == "stop"
    message = f"maximum context length is {room} tokens; messages and tools take {num}"
    with pytest.raises(openai.BadRequestError, match=message) as e:
        ask(talker, max_tokens=room - num + 1)
    assert e.value.code == "context_length_exceeded"
    long = [{"role": "user", "content": "x" * 100_000}]
    with pytest.raises(openai.BadRequestError) as e:
        ask(talker, messages=long)
    assert e.value.code == "context_length_exceeded"


def test_too_many_arguments(talker):
    tool = chat.tool("look", "", {f"a{i}": "string" for i in range(20_000)})
    with pytest.raises(openai.BadRequestError, match="20000 arguments; this model can"):
        ask(talker, tools=[tool])


def test_too_large(talker):
    status, error, _ = post(talker, b" " * (app.MAX_BODY + 1))
    assert (status, error["code"]) == (413, "request_too_large")


def test_other_addresses(talker):
    status, error, _ = post(talker, "{}", "completions")
    assert status == 404 and "/v1/completions" in error["message"]
    status, error, _ = post(talker, "{}", "models")
    assert status == 405 and error["type"] == "invalid_request_error"


def waits_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def held(**changes):
    """A client of a server that says nothing until a gate is open."""
    gate = threading.Event()
    made = host.gated(host.says("Hm hm hm."), gate)
    with client("", made, **changes) as found:
        try:
            yield found, gate
        finally:
            gate.set()


def test_too_many():
    num_rows = 1  # one is being decoded; the engine has not yet seen the others
    with held(max_waiting=3) as (found, gate):
        said = []

        def one():
            said.append(ask(found).choices[0].message.content)

        threads = [threading.Thread(target=one) for _ in range(num_rows + 3)]
        for n, thread in enumerate(threads):
            thread.start()
            waits_for(lambda n=n: _num_known(found.served.engine) == n + 1)
        with pytest.raises(openai.RateLimitError, match="3 requests are waiting") as e:
            ask(found)
        assert e.value.response.headers["Retry-After"] == "1"
        assert e.value.code == "rate_limit_exceeded"
        gate.set()
        for thread in threads:
            thread.join()
        assert said == ["Hm hm hm."] * (num_rows + 3)


def _num_known(engine):
    return engine.num_waiting + sum(row.request is not None for row in engine._rows)


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_frees_his_row(stream):
    body = {"model": host.NAME, "messages": ASKED, "stream": stream, "max_tokens": 9}
    with held() as (found, gate):
        engine, address = found.served.engine, found.base_url
        for _ in engine._rows:
            link = http.client.HTTPConnection(address.host, address.port)
            link.request("POST", "/v1/chat/completions", json.dumps(body))
            waits_for(lambda: _num_known(engine) > 0)
            requests = [row.request for row in engine._rows if row.request]
            requests += [*engine._waiting]
            link.sock.shutdown(socket.SHUT_RDWR)
            link.close()
            waits_for(lambda known=requests: all(x.cancelled for x in known))
        gate.set()
        waits_for(lambda: _num_known(engine) == 0)
        assert ask(found).choices[0].message.content == "Hm hm hm."


@pytest.mark.parametrize("stream", [False, True])
def test_a_dead_engine(stream):
    def fail(*args):
        raise RuntimeError("the device is gone")

    broken = dataclasses.replace(host.says("Hm"), _decode=fail)
    with client("", broken) as found:
        with pytest.raises(openai.APIError, match="the device is gone"):
            list(ask(found, stream=stream))
        # The server ends with it.
        waits_for(lambda: found.served.engine.error is not None)
        with pytest.raises(openai.APIError):
            for _ in range(1000):
                ask(found)
                time.sleep(0.01)


def test_odd_letters_on_the_wire():
    name = '{"name":"\\ud83d","arguments":{"a":"\\ud83d"}}'
    with client(name, max_tokens=40) as found:
        (call,) = ask(found, tools=TOOLS).choices[0].message.tool_calls
        assert call.function.arguments == '{"a":"\\ud83d"}'
