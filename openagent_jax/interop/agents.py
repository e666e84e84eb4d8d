"""Agents that speak by messages: an endpoint of OpenAI's protocol, or a function.

An agent is a coroutine `(messages, tools) -> Reply`. What it raises says whose fault it
is: `Full` is the agent's; `Unanswered` is nobody's, and tells nothing of the agent;
`Rejected` is the user's, and no episode can be played.
"""

import asyncio
import contextlib
import importlib
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from openagent_jax.sandbox.conversation import Message

BACK_OFF = 0.5  # seconds before a garbled reply is asked for again; doubles each time
LONGEST_WAIT = 60.0  # seconds that a Retry-After is obeyed for
FULL = ("context_length", "context length", "maximum context", "context window")


class Unanswered(Exception):
    """No answer came."""


class Full(Exception):
    """The conversation is longer than the agent can read."""


class Rejected(ValueError):
    """No answer will ever come."""


class Reply(NamedTuple):
    message: Message
    cut: bool = False  # by a limit of tokens
    num_tokens: int = 0  # read and written, as the agent counts


Agent = Callable[[list[Message], list[dict[str, Any]]], Awaitable[Reply]]


@dataclass(frozen=True)
class Endpoint:
    """Where an agent is, and how it is asked."""

    base_url: str  # with its /v1
    model: str
    key: str = field(default="", repr=False)
    timeout: float = 120.0  # seconds, of one attempt
    max_retries: int = 4  # with back-off; of 429, 5xx, time-outs and lost connections
    request: dict[str, Any] = field(default_factory=dict)  # more of its body

    @property
    def place(self) -> str:
        """The address, without what may be secret."""
        return urlsplit(self.base_url)._replace(netloc=self._host, query="").geturl()

    @property
    def is_local(self) -> bool:
        return (urlsplit(self.base_url).hostname or "") in (
            "localhost",
            "127.0.0.1",
            "::1",
        )

    @property
    def _host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


@contextlib.asynccontextmanager
async def endpoint(where: Endpoint) -> AsyncIterator[Agent]:
    """The agent at an endpoint, asked by the official client (the extra `agents`)."""
    import openai

    client = openai.AsyncOpenAI(
        base_url=where.base_url,
        api_key=where.key or "none",
        timeout=where.timeout,
        max_retries=where.max_retries,
    )

    async def once(messages: list[Message], tools: list[dict]) -> Reply:
        try:
            said = await client.chat.completions.create(
                model=where.model,
                messages=messages,  # type: ignore
                # An empty list is refused by some.
                **({"tools": tools} if tools else {}),  # type: ignore
                extra_body=where.request,
            )
        except openai.APIStatusError as error:
            said = f"{error} {error.code or ''}"
            raise _meaning(where, error.status_code, said) from None
        except openai.APITimeoutError:
            raise Unanswered(f"no answer in {where.timeout:g} s") from None
        except openai.APIConnectionError as error:
            reason = error.__cause__ or error
            raise Unanswered(f"{type(reason).__name__}: {reason}") from None
        reply = _reply(said)
        if where.key:  # whoever says it, it goes into no log
            safe = json.dumps(reply.message).replace(where.key, "[key]")
            reply = reply._replace(message=json.loads(safe))
        return reply

    async def ask(messages: list[Message], tools: list[dict]) -> Reply:
        for attempt in range(where.max_retries + 1):
            if attempt:
                await asyncio.sleep(BACK_OFF * 2 ** (attempt - 1))
            try:
                return await once(messages, tools)
            except (json.JSONDecodeError, _Garbled):
                continue
        raise Unanswered("what came is no chat completion")

    # A server that sends a byte now and then never runs into the client's time-out.
    longest = (where.max_retries + 1) * (where.timeout + LONGEST_WAIT)

    async def agent(messages: list[Message], tools: list[dict]) -> Reply:
        try:
            async with asyncio.timeout(longest):
                return await ask(messages, tools)
        except TimeoutError:
            raise Unanswered(f"no answer in {longest:g} s") from None

    async with client:
        yield agent


def function(name: str) -> Agent:
    """The agent that a function is.

    Args:
      name: `module:function`. It takes messages and tools, and returns a message, or
        its content; it may be a coroutine. Others run in threads.

    Raises:
      Rejected: there is no such function.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise Rejected(f"{name}: {error}; write module:function") from None
    if not callable(found):
        raise Rejected(f"{name} is no function")

    async def agent(messages: list[Message], tools: list[dict]) -> Reply:
        # What the function does to its arguments is its own affair.
        given = json.loads(json.dumps([messages, tools]))
        try:
            if inspect.iscoroutinefunction(found):
                said = await found(*given)
            else:
                said = await asyncio.to_thread(found, *given)
        except Exception as error:
            raise Unanswered(f"{type(error).__name__}: {error}") from error
        if dump := getattr(said, "model_dump", None):  # of the official client
            said = dump()
        if isinstance(said, str):
            said = {"content": said}
        if not isinstance(said, dict):
            raise Rejected(f"{name} returns {type(said).__name__}, no message or text")
        return Reply(said)

    return agent


class _Garbled(Exception):
    """A reply that is no chat completion."""


def _reply(said: Any) -> Reply:
    """What the client has read; it does not check what it reads."""
    try:
        choice = said.choices[0]
        message = choice.message
        calls = [_call(call) for call in message.tool_calls or ()]
        content = message.content
    except (AttributeError, IndexError, KeyError, TypeError):
        raise _Garbled from None
    if not calls and getattr(message, "refusal", None):
        content = "Refuse"  # said in a field of its own
    used = getattr(getattr(said, "usage", None), "total_tokens", 0)
    return Reply(
        {"role": "assistant", "content": content, "tool_calls": calls},
        getattr(choice, "finish_reason", None) == "length",
        used if isinstance(used, int) else 0,
    )


def _call(call: Any) -> dict[str, Any]:
    function = getattr(call, "function", None)
    names = ("name", "arguments")
    return {
        "id": getattr(call, "id", None),
        "function": {name: getattr(function, name, None) for name in names},
    }


def _meaning(where: Endpoint, status: int, text: str) -> Exception:
    """Of a reply that is an error."""
    text = text.replace(where.key, "[key]") if where.key else text
    text = " ".join(text.split())[:300]
    if status in (401, 403):
        return Rejected(f"{where.place} does not take the key: {text}")
    if status == 404:
        return Rejected(f'{where.place} knows no model "{where.model}": {text}')
    if status == 429 and "insufficient_quota" in text:
        return Rejected(f"{where.place}: {text}")
    long = any(word in text.lower() for word in FULL)
    if status == 413 or (status == 400 and long):
        return Full(text)
    return Unanswered(text)
