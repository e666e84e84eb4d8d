"""Python functions as agents: what they may return and raise, and their threads."""

import asyncio
import threading
import time

import pytest

from openagent_jax.agents import agents
from tests import scripted

# The agents of the tests, which import them by name.


def changes_arguments(messages, tools):
    messages.append("changed")
    tools.clear()
    return "Refuse"


async def replies_async(messages, tools):
    return {"content": "Well.\nRefuse"}


def raises_error(messages, tools):
    raise KeyError("a bug of mine")


def leaks_key(messages, tools):
    if tools:
        raise KeyError("s3cret")
    return "s3cret"


def returns_number(messages, tools):
    return 7


class AsyncCallable:
    async def __call__(self, messages, tools):
        return "Refuse"


async_callable = AsyncCallable()


def returns_coroutine(messages, tools):
    return replies_async(messages, tools)


def raises_stop_iteration(messages, tools):
    return next(iter(()))


def returns_completion(messages, tools):
    return scripted.reply("Refuse")


def returns_invalid_calls(messages, tools):
    return {"content": None, "tool_calls": [7]}


def returns_object(messages, tools):
    call = {"function": {"name": "f", "arguments": {"x": object()}}}
    return {"content": None, "tool_calls": [call]}


def returns_bytes(messages, tools):
    return {"content": b"Refuse"}


def replaced(messages, tools):
    """Tests put their own function in this place."""
    raise NotImplementedError


INVALID = (
    ("returns_completion", "a message with neither content nor tool_calls"),
    ("returns_invalid_calls", "not a list of calls"),
    ("returns_object", "it contains an object of type object"),
    ("returns_bytes", "bytes"),
)


def ask(name, *args):
    return asyncio.run(agents.function(f"{__name__}:{name}")(*args))


def test_replies_errors_and_names_of_functions():
    args = [{"role": "user", "content": "x"}], [{"type": "function"}]
    assert ask("changes_arguments", *args).message == {"content": "Refuse"}
    assert args == ([{"role": "user", "content": "x"}], [{"type": "function"}])
    assert ask("replies_async", *args).message == {"content": "Well.\nRefuse"}
    with pytest.raises(agents.Unanswered, match="KeyError: 'a bug of mine'"):
        ask("raises_error", *args)
    with pytest.raises(agents.Rejected, match="returns int, not a message"):
        ask("returns_number", *args)
    for name, message in INVALID:
        with pytest.raises(agents.Rejected, match=f"{name} returns .*{message}"):
            ask(name, *args)
    for name, message in (
        ("nothing", "no attribute 'nothing'; write module:function"),
        ("INVALID", "is not a function"),
    ):
        with pytest.raises(agents.Rejected, match=message):
            agents.function(f"{__name__}:{name}")
    with pytest.raises(agents.Rejected, match="No module named 'no_such_module'"):
        agents.function("no_such_module:f")


def test_key_is_redacted_in_replies_and_errors():
    agent = agents.function(f"{__name__}:leaks_key", "s3cret")
    assert asyncio.run(agent([], [])).message == {"content": "[key]"}
    with pytest.raises(agents.Unanswered, match=r"KeyError: '\[key\]'"):
        asyncio.run(agent([], [{}]))


def test_any_callable_can_be_an_agent():
    """Any callable can be an agent; awaitable results are awaited."""
    args = [{"role": "user", "content": "x"}], []
    for name in ("async_callable", "returns_coroutine"):
        assert ask(name, *args).message["content"].endswith("Refuse")
    with pytest.raises(agents.Unanswered, match="StopIteration"):
        ask("raises_stop_iteration", *args)


def test_messages_of_the_official_client(monkeypatch):
    pytest.importorskip("openai")
    from openai.types.chat import ChatCompletionMessage

    function = {"name": "f", "arguments": "{}"}
    call = {"id": "1", "type": "function", "function": function}
    called = ChatCompletionMessage.model_validate(
        {"role": "assistant", "tool_calls": [call]}
    )
    refused = ChatCompletionMessage(role="assistant", content=None, refusal="I can't")
    for result, content, calls in (
        (called, None, [call]),
        ({"content": "x", "tool_calls": called.tool_calls}, "x", [call]),
        (refused, "Refuse", None),
        ({"content": None, "refusal": "no"}, "Refuse", None),
    ):
        monkeypatch.setitem(globals(), "replaced", lambda *_, x=result: x)
        message = ask("replaced", [], []).message
        assert (message["content"], message.get("tool_calls")) == (content, calls)


def test_functions_run_concurrently_and_exit_awaits_none(monkeypatch):
    """More functions run at once than asyncio has threads, and exit waits for none."""
    num = 40
    together, never = threading.Barrier(num), threading.Event()
    monkeypatch.setitem(globals(), "replaced", lambda *_: f"{together.wait(20)}")
    agent = agents.function(f"{__name__}:replaced")

    async def ask_all():
        return await asyncio.gather(*(agent([], []) for _ in range(num)))

    assert {reply.message["content"] for reply in asyncio.run(ask_all())} == {
        str(i) for i in range(num)
    }
    monkeypatch.setitem(globals(), "replaced", lambda *_: never.wait(20))
    agent = agents.function(f"{__name__}:replaced")
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(agent([], []), 0.1))
    assert time.monotonic() - begin < 10
    never.set()


def test_modules_that_cannot_be_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text, message in (
        ("broken_1", "1 / 0", "cannot be imported: ZeroDivisionError: division"),
        ("broken_2", "def (", "cannot be imported: SyntaxError: invalid syntax"),
        ("broken_3", "import no_such_x", "No module named 'no_such_x'$"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(agents.Rejected, match=message):
            agents.function(f"{name}:f")
