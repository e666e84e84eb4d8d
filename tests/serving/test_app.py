"""Replies as OpenAI's client receives them, whole and as streams."""

import pytest

from tests.serving import host
from tests.serving.clients import ASKED, CALL, TOOLS, ask, client, num_tokens


@pytest.fixture(scope="module")
def call_client():
    with client(CALL, max_tokens=32) as made:
        yield made


@pytest.fixture(scope="module")
def text_client():
    with client("Well, this is Café 🦊 as it is.", max_tokens=32) as made:
        yield made


def test_models_and_health(call_client):
    (card,) = call_client.models.list().data
    assert card.id == host.NAME
    assert call_client.models.retrieve(host.NAME) == card
    assert card.max_model_len == call_client.served.max_context
    answer = call_client._client.get(f"{call_client.base_url}../health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_call(call_client):
    said = ask(call_client, tools=TOOLS)
    (choice,) = said.choices
    (call,) = choice.message.tool_calls
    assert call.function.name == "look"
    assert call.function.arguments == '{"place":"Oak Bay"}'
    assert choice.message.content is None
    assert choice.finish_reason == "tool_calls"
    assert said.usage.completion_tokens == num_tokens(CALL) + 1  # and its end token
    assert said.usage.total_tokens == (
        said.usage.completion_tokens + said.usage.prompt_tokens
    )


def test_the_next_turn_prefills_only_new_tokens(call_client):
    message = ask(call_client, tools=TOOLS).choices[0].message
    (call,) = message.tool_calls
    told = {"role": "tool", "tool_call_id": call.id, "content": '{"hour":"12"}'}
    first = ask(call_client, tools=TOOLS).usage
    usage = ask(call_client, tools=TOOLS, messages=[*ASKED, message, told]).usage
    before = first.prompt_tokens + first.completion_tokens
    assert usage.prompt_tokens == before + num_tokens(
        '<|tool|>{"hour":"12"}<|assistant|>'
    )
    assert usage.prompt_tokens_details.cached_tokens == before - 1


def streamed(client, **more):
    """Join a stream: `(content, calls, finish reason, usage, content parts)`."""
    content, calls, finish, usage, num = "", {}, None, None, 0
    options = {"include_usage": True}
    parts = ask(client, stream=True, stream_options=options, **more)
    for i, part in enumerate(parts):
        assert not usage  # the usage comes last
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


def test_a_call_in_a_stream(call_client):
    content, ((call_id, *call),), finish, usage, _ = streamed(call_client, tools=TOOLS)
    assert (content, finish) == ("", "tool_calls")
    assert call_id and call == ["look", '{"place":"Oak Bay"}']
    whole = ask(call_client, tools=TOOLS).usage
    assert usage.completion_tokens == whole.completion_tokens
    assert usage.prompt_tokens == whole.prompt_tokens


def test_text_in_a_stream(text_client):
    content, calls, finish, _, num = streamed(text_client, tools=TOOLS)
    whole = ask(text_client, tools=TOOLS).choices[0]
    assert content == whole.message.content == "Well, this is Café 🦊 as it is."
    assert finish == whole.finish_reason == "stop"
    assert not calls and not whole.message.tool_calls
    assert num > 1


def test_an_event_is_one_line():
    """Even if the text contains characters that a client takes for line ends."""
    text = "a\u2028b\x85c"
    with client(text, max_tokens=32) as found:
        assert ask(found).choices[0].message.content == text
        assert streamed(found)[0] == text
        body = {"model": host.NAME, "messages": ASKED, "stream": True}
        raw = found._client.post(f"{found.base_url}chat/completions", json=body)
    assert {line[:6] for line in raw.text.splitlines()} == {"data: ", ""}


def test_streamed_tokens_are_cached(text_client):
    content, *_, usage, _ = streamed(text_client)
    said = [*ASKED, {"role": "assistant", "content": content}, *ASKED]
    cached = ask(text_client, messages=said).usage.prompt_tokens_details.cached_tokens
    assert cached >= usage.prompt_tokens + usage.completion_tokens - 1


def test_a_stopped_reply_is_tokenized_again(text_client):
    """Its tokens extend beyond the text that is returned."""
    content = ask(text_client, stop="is is").choices[0].message.content
    said = [*ASKED, {"role": "assistant", "content": content}, *ASKED]
    anew = host.serve(host.scripted("")).conversations.tokens(said, [])
    assert ask(text_client, messages=said).usage.prompt_tokens == len(anew)


def test_calls_are_parsed_only_if_tools_may_be_called(call_client):
    for more in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}):
        (choice,) = ask(call_client, **more).choices
        assert choice.message.content == CALL
        assert choice.finish_reason == "stop" and not choice.message.tool_calls
        content, calls, finish, *_ = streamed(call_client, **more)
        assert (content, calls, finish) == (CALL, [], "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_limits_and_stops(text_client, stream):
    def said(**more):
        if stream:
            content, _, finish, usage, _ = streamed(text_client, **more)
            return content, finish, usage.completion_tokens
        made = ask(text_client, **more)
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


def test_parts_and_roles(text_client):
    parts = [
        {"type": "text", "text": text}
        for text in ("Show me the opening hour ", "of Oak Bay.")
    ]
    said = ask(
        text_client,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": parts},
        ],
    )
    assert said.usage.prompt_tokens == ask(text_client).usage.prompt_tokens


def test_lone_surrogates_in_arguments():
    name = '{"name":"\\ud83d","arguments":{"a":"\\ud83d"}}'
    with client(name, max_tokens=40) as found:
        (call,) = ask(found, tools=TOOLS).choices[0].message.tool_calls
        assert call.function.arguments == '{"a":"\\ud83d"}'
