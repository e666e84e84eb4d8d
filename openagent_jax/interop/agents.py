"""Agents that speak by messages: an endpoint of OpenAI's protocol, or a function.

An agent is a coroutine `(messages, tools) -> Reply`. What it raises says whose fault it
is: `Full` is the agent's; `Unanswered` is nobody's, and tells nothing of the agent;
`Rejected` is the user's, and no episode can be played.
"""

import asyncio
import concurrent.futures
import contextlib
import importlib
import inspect
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from openagent_jax.sandbox import style
from openagent_jax.sandbox.conversation import Message

BACK_OFF = 0.5  # seconds before a garbled reply is asked for again; doubles each time
LONGEST_WAIT = 60.0  # seconds that a Retry-After is obeyed for
REFUSAL = {"content": style.REFUSE}  # however it was said
MESSAGE = ("content", "tool_calls", "refusal")  # what is read of a reply
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


class _Garbled(Exception):
    """A reply that is no chat completion."""


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
        try:
            sound = parts.hostname and parts.port != 0  # to read a port is to check it
        except ValueError:
            sound = False
        if not sound:
            raise ValueError("the address has no host, or no port from 1 to 65535")
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
        its content; it may be a coroutine. Each call has a thread.
      key: that it may use; what it says, and how it fails, is told without.

    Raises:
      Rejected: there is no such function.
    """
    found = _found(name)

    async def agent(messages: list[Message], tools: list[dict]) -> Reply:
        # What the function does to its arguments is its own affair.
        given = json.loads(json.dumps([messages, tools]))
        try:
            said = await _in_thread(found, *given)
            if inspect.isawaitable(said):
                said = await said
        except Exception as error:
            said = _without(key, f"{type(error).__name__}: {error}")
            raise Unanswered(said) from None
        try:
            return Reply(_without(key, _message(said)))
        except (TypeError, ValueError) as error:
            raise Rejected(f"{name} returns {error}") from None

    return agent


def _found(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        home = importlib.import_module(module)
    except Exception as error:  # also what the user's own code raises
        lacks = error.name if isinstance(error, ModuleNotFoundError) else None
        if not module or (lacks and f"{module}.".startswith(f"{lacks}.")):
            raise Rejected(f"{name}: {error}; write module:function") from None
        said = f"{name}: {module} cannot be imported: {type(error).__name__}: {error}"
        raise Rejected(said) from error
    try:
        found = getattr(home, attribute)
    except AttributeError as error:
        raise Rejected(f"{name}: {error}; write module:function") from None
    if not callable(found):
        raise Rejected(f"{name} is no function")
    return found


async def _in_thread(call: Callable[..., Any], *given: Any) -> Any:
    """What it returns. Nobody waits for the thread, if all ends before."""
    done: concurrent.futures.Future[tuple[Any, BaseException | None]]
    done = concurrent.futures.Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            said = call(*given), None
        except BaseException as error:  # a future does not take StopIteration
            said = None, error
        done.set_result(said)

    threading.Thread(target=run, daemon=True).start()
    said, error = await asyncio.wrap_future(done)
    if error:
        raise error
    return said


def _message(said: Any) -> Message:
    """What a function has returned, as a message.

    Raises:
      TypeError, ValueError: it is none.
    """
    if isinstance(said, str):
        said = {"content": said}
    said = _dumped(said) if hasattr(said, "model_dump") else said
    if not isinstance(said, dict):
        raise TypeError(f"{type(said).__name__}, no message or text")
    parts = {x: said[x] for x in MESSAGE if x in said}
    if not parts:
        raise TypeError("no message: neither content nor tool_calls is there")
    try:
        parts = json.loads(json.dumps(parts, default=_dumped))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"a message that is no JSON: {error}") from None
    calls = parts.get("tool_calls") or []
    sound = isinstance(calls, list) and all(isinstance(x, dict) for x in calls)
    if not sound or any("function" not in call for call in calls):
        raise TypeError("tool_calls that are no list of calls of a function")
    if not isinstance(parts.get("content") or "", str | list):
        raise TypeError("a content that is no text")
    return REFUSAL if parts.pop("refusal", None) and not calls else parts


def _dumped(said: Any) -> Any:
    """An object of the official client."""
    if not hasattr(said, "model_dump"):
        raise TypeError(f"there is a {type(said).__name__} in it")
    return said.model_dump()


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
        text = f'{where.place} knows no model "{where.model}": {text}'
        known = urlsplit(where.base_url).path.rstrip("/").endswith("/v1")
        return Rejected(text if known else f"{text}; should the address end with /v1?")
    if status == 429 and "insufficient_quota" in text:
        return Rejected(f"{where.place}: {text}")
    long = any(word in text.lower() for word in FULL)
    if status == 413 or (status == 400 and long):
        return Full(text)
    return Unanswered(text)
