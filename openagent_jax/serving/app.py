"""The HTTP side (the extra `serve`): requests become prompts, tokens become replies."""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from openagent_jax.serving import engine as engines
from openagent_jax.serving import protocol
from openagent_jax.serving.conversation import Conversations
from openagent_jax.serving.engine import Engine
from openagent_jax.serving.protocol import Asked, Refused
from openagent_jax.serving.reply import Alphabet, Form, Reply

MAX_BODY = 2_000_000  # bytes
LARGE_BODY = 1 << 16  # to write and to spell it is not done between two others
MIN_TEMPERATURE = 0.01  # below it is greedy: logits would leave the range of numbers


@dataclass(frozen=True)
class Served:
    """A model, and what holds for all requests to it."""

    name: str
    engine: Engine
    conversations: Conversations
    alphabet: Alphabet
    form: Form
    max_context: int  # tokens of a prompt and its reply
    max_tokens: int  # of a reply, where none is said
    temperature: float  # the same
    max_waiting: int  # requests that have no row yet


def make(served: Served, on_failure: Callable[[], object] = lambda: None) -> Starlette:
    """
    Args:
      served: the model; its engine runs as long as the app does.
      on_failure: called when the engine has died.
    """
    created = int(time.time())

    def card() -> dict[str, Any]:
        return {
            "id": served.name,
            "object": "model",
            "created": created,
            "owned_by": "openagent_jax",
            "max_model_len": served.max_context,
        }

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [card()]})

    async def model(request: Request) -> Response:
        _check_name(served, request.path_params["name"])
        return JSONResponse(card())

    async def health(request: Request) -> Response:
        error = served.engine.error
        said = {"status": "failed" if error else "ok"}
        return JSONResponse(said, 503 if error else 200)

    async def completions(request: Request) -> Response:
        data = await _body(request)
        asked = protocol.read(data)
        _check_name(served, asked.model)
        if served.engine.num_waiting >= served.max_waiting:
            raise Refused(
                f"{served.max_waiting} requests are waiting already",
                429,
                "rate_limit_exceeded",
                retry_after=1,
            )
        completion = await _begin(served, asked, len(data) > LARGE_BODY)
        if asked.stream:
            lines = completion.lines(asked.include_usage)
            return StreamingResponse(lines, media_type="text/event-stream")
        whole = asyncio.ensure_future(completion.whole())
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((whole, gone), return_when=asyncio.FIRST_COMPLETED)
            if not whole.done():
                raise ClientDisconnect
            return JSONResponse(whole.result())
        finally:
            for task in (whole, gone):
                task.cancel()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        served.engine.start(lambda: loop.call_soon_threadsafe(on_failure))
        try:
            yield
        finally:
            served.engine.close()

    return Starlette(
        routes=[
            Route("/v1/chat/completions", completions, methods=["POST"]),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", model),
            Route("/health", health),
        ],
        exception_handlers={
            Refused: _refuse,
            HTTPException: _refuse_http,
            engines.Broken: _break,
            RecursionError: _refuse_depth,
            ClientDisconnect: _nobody,
            Exception: _fail,
        },
        lifespan=lifespan,
    )


class _Completion:
    """One reply on its way."""

    def __init__(self, served: Served, asked: Asked, prompt: list[int]):
        self._served, self._asked, self._prompt = served, asked, prompt
        several, form = asked.several, served.form if asked.tools else None
        self._reply = Reply(served.alphabet, form, asked.stop, several)
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        temperature = asked.temperature
        temperature = served.temperature if temperature is None else temperature
        seed = secrets.randbits(32) if asked.seed is None else asked.seed
        self._request = engines.Request(
            prompt,
            asked.max_tokens or served.max_tokens,
            lambda tokens, end: loop.call_soon_threadsafe(
                self._events.put_nowait, (tokens, end)
            ),
            temperature if temperature >= MIN_TEMPERATURE else 0.0,
            asked.top_p,
            (seed ^ seed >> 32) % 2**32,
            at_once=asked.stream or bool(asked.stop),
        )
        self._about = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": served.name,
        }
        self._ids: list[str] = []
        self.finish = ""
        served.engine.submit(self._request)

    async def _content(self) -> AsyncIterator[str]:
        """The content, as it comes. A reply that nobody wants any more is stopped."""
        reply, end = self._reply, None
        try:
            while end is None and not reply.stopped:
                tokens, end = await self._events.get()
                if isinstance(end, Exception):
                    raise end
                yield reply.add(tokens)
        finally:
            self._request.cancelled = True
        cut = end == engines.LENGTH and not reply.stopped
        yield reply.end(cut)
        self._ids = [f"call_{secrets.token_hex(12)}" for _ in reply.calls]
        self.finish = "tool_calls" if reply.calls else "length" if cut else "stop"

    def _keep(self, content: str) -> dict[str, Any]:
        """The reply as a message; as it was said, it stays known."""
        message = protocol.message(content, self._reply.calls, self._ids)
        asked, reply = self._asked, self._reply
        if not reply.stopped:  # else more was said than is told
            self._served.conversations.keep(
                [*asked.messages, message], asked.tools, self._prompt, reply.tokens
            )
        return message

    def _usage(self) -> dict[str, Any]:
        num_cached = self._request.num_cached
        return protocol.usage(len(self._prompt), len(self._reply.tokens), num_cached)

    async def whole(self) -> dict[str, Any]:
        content = "".join([part async for part in self._content()])
        choice = {
            "index": 0,
            "message": self._keep(content),
            "logprobs": None,
            "finish_reason": self.finish,
        }
        about = self._about | {"object": "chat.completion"}
        return about | {"choices": [choice], "usage": self._usage()}

    async def lines(self, include_usage: bool) -> AsyncIterator[str]:
        """Events as they are sent."""
        about = self._about | {"object": "chat.completion.chunk"}
        about |= {"usage": None} if include_usage else {}

        def line(delta: dict[str, Any], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return _event(about | {"choices": [choice]})

        content = ""
        try:
            yield line({"role": "assistant"})
            async for part in self._content():
                content += part
                if part:
                    yield line({"content": part})
            self._keep(content)
            calls = self._reply.calls
            if not content and not calls:
                yield line({"content": ""})
            for delta in protocol.deltas(calls, self._ids):
                yield line(delta)
            yield line({}, self.finish)
            if include_usage:
                yield _event(about | {"choices": [], "usage": self._usage()})
            yield "data: [DONE]\n\n"
        except engines.Broken as error:
            yield _event(Refused(str(error), 500).body())
        finally:
            self._request.cancelled = True


async def _begin(served: Served, asked: Asked, large: bool) -> _Completion:
    """
    Raises:
      Refused: it cannot be written, or is too long.
    """

    def tokens() -> list[int]:
        return served.conversations.tokens(asked.messages, asked.tools)

    try:
        prompt = await asyncio.to_thread(tokens) if large else tokens()
    except ValueError as error:
        raise Refused(str(error), param="messages") from None
    num_new = asked.max_tokens or served.max_tokens
    if len(prompt) + num_new > served.max_context:
        raise Refused(  # as OpenAI begins it: there are clients that read this
            f"This model's maximum context length is {served.max_context} tokens; "
            f"messages and tools take {len(prompt)}, and max_tokens is {num_new}: make "
            "one of them less",
            code="context_length_exceeded",
            param="messages",
        )
    return _Completion(served, asked, prompt)


def _check_name(served: Served, name: str) -> None:
    if name != served.name:
        raise Refused(
            f'there is no model "{name}"; it is "{served.name}"',
            404,
            "model_not_found",
            "model",
        )


async def _body(request: Request) -> bytes:
    """
    Raises:
      Refused: it is too large.
    """
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY:
            raise Refused(
                f"the body is larger than {MAX_BODY} bytes", 413, "request_too_large"
            )
    return bytes(data)


async def _gone(request: Request) -> None:
    """Waits until the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(data: dict[str, Any]) -> str:
    """In ASCII: there are clients to whom U+2028 and the like are ends of lines."""
    return f"data: {json.dumps(data)}\n\n"


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse(error.body(), error.status, error.headers)


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(Refused(said, error.status_code).body(), error.status_code)


async def _refuse_depth(request: Request, error: Exception) -> Response:
    """Of JSON, which is read in several places."""
    return JSONResponse(Refused("the request is nested too deep").body(), 400)


async def _break(request: Request, error: Exception) -> Response:
    return JSONResponse(Refused(str(error), 500).body(), 500)


async def _fail(request: Request, error: Exception) -> Response:
    """What nobody has thought of; the log has it whole."""
    said = f"the server has failed: {type(error).__name__}"
    return JSONResponse(Refused(said, 500).body(), 500)


async def _nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it
