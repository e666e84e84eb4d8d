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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from openagent_jax.sandbox import style
from openagent_jax.sandbox.conversation import Message

BACK_OFF = 0.5  # seconds before a garbled reply is asked for again; doubles each time
LONGEST_WAIT = 60.0  # seconds that a Retry-After is obeyed for
MAX_AT_ONCE = 1024  # calls of a function
REFUSAL = {"content": style.REFUSE}  # however it was said
MESSAGE = {"content", "tool_calls", "refusal"}  # what is read of a reply
MIN_SECRET = 6  # letters; "x", "none" or "EMPTY" is told to those who want no key
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

    def __post_init__(self):
        """A `ValueError` that does not tell the key, if no request can be made."""
        parts = urlsplit(self.base_url)
        if not parts.hostname or parts.port == 0:  # to read a port is to check it
            raise ValueError("the address has no host, or no port")
        key = self.key
        if key != key.strip() or not (key.isascii() and key.isprintable()):
            raise ValueError("the key has blanks around it, or letters of no header")

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
        except (ValueError, RecursionError):  # no UTF-8, endless numbers, no bottom
            raise _Garbled from None
        reply = _reply(said)
        # Whoever says the key, it goes into no log.
        return reply._replace(message=_without(where.key, reply.message))

    async def ask(messages: list[Message], tools: list[dict]) -> Reply:
        for attempt in range(where.max_retries + 1):
            if attempt:
                await asyncio.sleep(BACK_OFF * 2 ** (attempt - 1))
            try:
                return await once(messages, tools)
            except _Garbled:
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


def function(name: str, key: str = "") -> Agent:
    """The agent that a function is.

    Args:
      name: `module:function`. It takes messages and tools, and returns a message, or
        its content; it may be a coroutine. Others run in threads.
      key: that it may use; what it says, and how it fails, is told without.

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
    threads = ThreadPoolExecutor(MAX_AT_ONCE)  # that of the event loop has few

    async def agent(messages: list[Message], tools: list[dict]) -> Reply:
        # What the function does to its arguments is its own affair.
        given = json.loads(json.dumps([messages, tools]))
        try:
            if inspect.iscoroutinefunction(found):
                said = await found(*given)
            else:
                loop = asyncio.get_running_loop()
                said = await loop.run_in_executor(threads, found, *given)
                if inspect.isawaitable(said):
                    said = await said
        except Exception as error:
            said = _without(key, f"{type(error).__name__}: {error}")
            raise Unanswered(said) from None
        if dump := getattr(said, "model_dump", None):  # of the official client
            said = dump()
        if isinstance(said, str):
            said = {"content": said}
        if not isinstance(said, dict):
            raise Rejected(f"{name} returns {type(said).__name__}, no message or text")
        said = {field: said[field] for field in MESSAGE & said.keys()}
        if said.pop("refusal", None) and not said.get("tool_calls"):
            said = REFUSAL
        try:
            return Reply(_without(key, json.loads(json.dumps(said))))
        except (TypeError, ValueError, RecursionError) as error:
            raise Rejected(f"{name} returns what is no JSON: {error}") from None

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
    heard = {"content": content, "tool_calls": calls}
    if not calls and getattr(message, "refusal", None):
        heard = REFUSAL
    used = getattr(getattr(said, "usage", None), "total_tokens", 0)
    return Reply(
        heard,
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


def _without(key: str, said: Any) -> Any:
    """The same, and the key in none of its texts."""
    if len(key) < MIN_SECRET:
        return said
    if isinstance(said, dict):
        return {name: _without(key, value) for name, value in said.items()}
    if isinstance(said, list):
        return [_without(key, value) for value in said]
    return said.replace(key, "[key]") if isinstance(said, str) else said


def _meaning(where: Endpoint, status: int, text: str) -> Exception:
    """Of a reply that is an error."""
    text = " ".join(_without(where.key, text).split())[:300]
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
