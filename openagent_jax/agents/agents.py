"""Agents that are reached by messages: an endpoint of OpenAI's protocol, or a function.

An agent is a coroutine function `(messages, tools) -> Reply`. If there is no reply, its
exception says why. `Full`: the conversation exceeds the agent's context, which counts
against the agent. `Unanswered`: a failure that says nothing about the agent.
`Rejected`: a mistake of the user, with which no episode can be played.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import importlib
import inspect
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from openagent_jax.text import style
from openagent_jax.text.messages import Message

BACK_OFF = 0.5  # seconds before a garbled reply is requested again; doubles each time
LONGEST_WAIT = 120.0  # the longest Retry-After that the client obeys, in seconds
REFUSAL = {"content": style.REFUSE}  # replaces a refusal in the protocol's own field
MESSAGE = ("content", "tool_calls", "refusal")  # the keys of a reply that are used
MIN_SECRET = 6  # characters; shorter keys, such as "x" or "EMPTY", are placeholders
# What servers say of a request that is too long: OpenAI, vLLM, llama.cpp, Anthropic.
FULL = ("context_length", "context length", "maximum context", "context window")
FULL += ("context size", "context_size", "prompt is too long")
OPENAI_HOST = "api.openai.com"
MAX_ERROR = 300  # characters of an error that are kept


class Unanswered(Exception):
    """There was no reply."""

    num_requests = 1  # how many were sent


class Full(Exception):
    """The conversation is longer than the context of the agent."""

    num_requests = 1


class Rejected(ValueError):
    """The agent cannot reply in any episode, for example because of a wrong key."""


class Reply(NamedTuple):
    """A reply of an agent, and the tokens and requests that it took."""

    message: Message
    cut: bool = False  # whether a limit of tokens cut it off
    # Tokens of the request and the reply, as the agent counts them; 0 if it does not.
    num_tokens: int = 0
    prompt_tokens: int = 0  # of the request that was answered
    completion_tokens: int = 0
    num_requests: int = 1  # requests that were sent for it, with retries


class _Garbled(Exception):
    """A reply that is not a chat completion; the text says what it is, if it does."""


Agent = Callable[[list[Message], list[dict[str, Any]]], Awaitable[Reply]]
# The requests that were sent for the reply that the current task waits for.
_SENT: contextvars.ContextVar[list[int]] = contextvars.ContextVar("sent")


@dataclass(frozen=True)
class Endpoint:
    """The address of an agent, and the settings of requests."""

    base_url: str  # including /v1
    model: str
    key: str = field(default="", repr=False)
    timeout: float = 120.0  # seconds for one attempt
    max_retries: int = 4  # with back-off, after 429, 5xx, time-outs, lost connections
    request: dict[str, Any] = field(default_factory=dict)  # more fields of the body

    def __post_init__(self):
        """
        Raises:
          ValueError: the address or the key is not valid. The message does not contain
            the key.
        """
        parts = urlsplit(self.base_url)
        try:
            valid = parts.hostname and parts.port != 0  # reading a port checks it
        except ValueError:
            valid = False
        if not valid:
            raise ValueError("the address has no host, or no port from 1 to 65535")
        key = self.key
        if key != key.strip() or not (key.isascii() and key.isprintable()):
            raise ValueError(
                "the key has white space around it, or characters that an HTTP header "
                "cannot contain; correct it"
            )

    @property
    def place(self) -> str:
        """The address without parts that may be secret.

        >>> Endpoint("https://me:secret@host.org/v1?token=1#me", "name").place
        'https://host.org/v1'
        """
        return (
            urlsplit(self.base_url)
            ._replace(netloc=self._host, query="", fragment="")
            .geturl()
        )

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_local(self) -> bool:
        return self.host in ("localhost", "127.0.0.1", "::1")

    @property
    def _host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


@contextlib.asynccontextmanager
async def endpoint(where: Endpoint) -> AsyncIterator[Agent]:
    """Yield the agent at an endpoint (an async context manager).

    It uses OpenAI's official client, which is part of the extra `agents`.
    """
    import openai

    async def count(_: Any) -> None:
        _SENT.get()[0] += 1

    client = openai.AsyncOpenAI(
        base_url=where.base_url,
        api_key=where.key or "none",
        timeout=where.timeout,
        # The client does not tell how often it has retried.
        http_client=openai.DefaultAsyncHttpxClient(event_hooks={"request": [count]}),
    )

    @functools.cache
    def client_of(retries: int) -> openai.AsyncOpenAI:
        limited = client.with_options(max_retries=retries)
        if where.host != OPENAI_HOST:  # it would tell others whose account it is
            limited.organization = limited.project = None
        return limited

    async def once(messages: list[Message], tools: list[dict], retries: int) -> Reply:
        try:
            completion = await client_of(retries).chat.completions.create(
                model=where.model,
                messages=messages,  # type: ignore
                # Some servers refuse an empty list.
                **({"tools": tools} if tools else {}),  # type: ignore
                extra_body=where.request,
            )
        except openai.APIStatusError as error:
            text = f"{error} {error.code or ''} {error.type or ''}"
            raise _http_error(where, error.status_code, text) from None
        except openai.APITimeoutError:
            raise Unanswered(f"no answer in {where.timeout:g} s") from None
        except openai.APIConnectionError as error:
            reason = error.__cause__ or error
            text = f"no connection to {where.place} ({reason or type(reason).__name__})"
            raise Unanswered(text) from None
        except (ValueError, RecursionError):  # not UTF-8, or nested too deep
            raise _Garbled from None
        reply = _reply(completion)
        # A reply may contain the key; it must not get into a log.
        return reply._replace(message=_without(where.key, reply.message))

    async def ask(messages: list[Message], tools: list[dict]) -> Reply:
        said, sent = "", _SENT.get()
        # The client retries too; together, they send no more than one of them may.
        while sent[0] <= where.max_retries:
            if sent[0]:
                await asyncio.sleep(BACK_OFF * 2 ** (sent[0] - 1))
            try:
                return await once(messages, tools, where.max_retries - sent[0])
            except _Garbled as error:
                said = _without(where.key, f": {error}" if str(error) else "")
        text = f"the reply of {where.place} is not a chat completion{said}"
        raise Unanswered(text[:MAX_ERROR])

    # A server that keeps sending single bytes never exceeds the client's time-out.
    longest = (where.max_retries + 1) * (where.timeout + LONGEST_WAIT)

    async def agent(messages: list[Message], tools: list[dict]) -> Reply:
        sent = [0]
        _SENT.set(sent)
        try:
            async with asyncio.timeout(longest):
                reply = await ask(messages, tools)
            return reply._replace(num_requests=sent[0])
        except TimeoutError:
            error = Unanswered(f"no answer in {longest:g} s")
        except (Unanswered, Full) as raised:
            error = raised
        error.num_requests = sent[0]
        raise error from None

    async with client:
        yield agent


def function(name: str, key: str = "") -> Agent:
    """Return an agent that calls a Python function.

    Args:
      name: `module:function`. The function takes messages and tools, and returns a
        message or its content; it may be a coroutine function. Each call runs in a
        thread of its own.
      key: a secret that the function may use. It is removed from replies and errors.

    Raises:
      Rejected: there is no such function.
    """
    called = _imported(name)

    async def agent(messages: list[Message], tools: list[dict]) -> Reply:
        # The function may change its arguments.
        given = json.loads(json.dumps([messages, tools]))
        try:
            result = await _in_thread(called, *given)
            if inspect.isawaitable(result):
                result = await result
        except Exception as error:
            text = _without(key, f"{type(error).__name__}: {error}")
            raise Unanswered(text) from None
        try:
            return Reply(_without(key, _message(result)))
        except (TypeError, ValueError) as error:
            raise Rejected(f"{name} returns {error}") from None

    return agent


def _imported(name: str) -> Callable[..., Any]:
    """Import the function that `module:function` names."""
    module, _, attribute = name.partition(":")
    try:
        home = importlib.import_module(module)
    except Exception as error:  # the code of the user may raise anything
        lacks = error.name if isinstance(error, ModuleNotFoundError) else None
        if not module or (lacks and f"{module}.".startswith(f"{lacks}.")):
            raise Rejected(f"{name}: {error}; write module:function") from None
        text = f"{name}: {module} cannot be imported: {type(error).__name__}: {error}"
        raise Rejected(text) from error
    try:
        found = getattr(home, attribute)
    except AttributeError as error:
        raise Rejected(f"{name}: {error}; write module:function") from None
    if not callable(found):
        raise Rejected(f"{name} is not a function")
    return found


async def _in_thread(call: Callable[..., Any], *given: Any) -> Any:
    """Run a call in a daemon thread, and return its result."""
    done: concurrent.futures.Future[tuple[Any, BaseException | None]]
    done = concurrent.futures.Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = call(*given), None
        except BaseException as error:  # a future cannot hold a StopIteration
            result = None, error
        done.set_result(result)

    threading.Thread(target=run, daemon=True).start()
    result, error = await asyncio.wrap_future(done)
    if error:
        raise error
    return result


def _message(result: Any) -> Message:
    """Convert what a function has returned to a message.

    Raises:
      TypeError, ValueError: it is not a message.
    """
    if isinstance(result, str):
        result = {"content": result}
    result = _dumped(result) if hasattr(result, "model_dump") else result
    if not isinstance(result, dict):
        raise TypeError(f"{type(result).__name__}, not a message or a text")
    parts = {x: result[x] for x in MESSAGE if x in result}
    if not parts:
        raise TypeError("a message with neither content nor tool_calls")
    try:
        parts = json.loads(json.dumps(parts, default=_dumped))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"a message that is not JSON: {error}") from None
    calls = parts.get("tool_calls") or []
    valid = isinstance(calls, list) and all(isinstance(x, dict) for x in calls)
    if not valid or any("function" not in call for call in calls):
        raise TypeError("tool_calls that are not a list of calls of a function")
    if not isinstance(parts.get("content") or "", str | list):
        raise TypeError("a content that is not a text")
    return REFUSAL if parts.pop("refusal", None) and not calls else parts


def _dumped(value: Any) -> Any:
    """Convert an object of the official client to plain JSON."""
    if not hasattr(value, "model_dump"):
        raise TypeError(f"it contains an object of type {type(value).__name__}")
    return value.model_dump()


def _reply(completion: Any) -> Reply:
    """Convert a completion of the client, which does not validate what it receives."""
    try:
        choice = completion.choices[0]
        message = choice.message
        calls = [_call(call) for call in message.tool_calls or ()]
        content = message.content
    except (AttributeError, IndexError, KeyError, TypeError):
        # Some routers pass on the error of another server as a success.
        error = getattr(completion, "error", None)
        error = error.get("message") if isinstance(error, dict) else error
        if isinstance(completion, str):  # such as the page of another server
            error = repr(" ".join(completion.split())[:80])
        raise _Garbled(error or "") from None
    reply = {"content": content, "tool_calls": calls}
    if not calls and getattr(message, "refusal", None):
        reply = REFUSAL
    usage = getattr(completion, "usage", None)
    used = [getattr(usage, f"{x}_tokens", 0) for x in ("total", "prompt", "completion")]
    return Reply(
        reply,
        getattr(choice, "finish_reason", None) == "length",
        *(x if isinstance(x, int) else 0 for x in used),
    )


def _call(call: Any) -> dict[str, Any]:
    function = getattr(call, "function", None)
    names = ("name", "arguments")
    return {
        "id": getattr(call, "id", None),
        "function": {name: getattr(function, name, None) for name in names},
    }


def _without(key: str, value: Any) -> Any:
    """Return a JSON value with the key removed from its texts."""
    if len(key) < MIN_SECRET:
        return value
    if isinstance(value, dict):
        return {name: _without(key, x) for name, x in value.items()}
    if isinstance(value, list):
        return [_without(key, x) for x in value]
    return value.replace(key, "[key]") if isinstance(value, str) else value


def _http_error(where: Endpoint, status: int, text: str) -> Exception:
    """Return the exception for a response with an error status."""
    whole = " ".join(_without(where.key, text).split())
    text = whole[:MAX_ERROR]
    if status in (401, 403):
        return Rejected(
            f"{where.place} does not accept the key: {text}; correct the variable that "
            "--key_variable names"
        )
    if status == 404:
        text = f'{where.place} has no model "{where.model}": {text}'
        known = urlsplit(where.base_url).path.rstrip("/").endswith("/v1")
        return Rejected(text if known else f"{text}; should the address end with /v1?")
    if status == 429 and "insufficient_quota" in whole:
        return Rejected(f"{where.place}: {text}")
    long = any(word in whole.lower() for word in FULL)
    if status == 413 or (status == 400 and long):
        return Full(text)
    return Unanswered(text)
