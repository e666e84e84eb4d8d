"""The HTTP application, which converts requests to prompts and tokens to replies.

It needs the extra `serve` (Starlette).
"""

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
from openagent_jax.serving.protocol import ApiError, ChatRequest
from openagent_jax.serving.reply import CallStyle, Detokenizer, Reply
from openagent_jax.text.messages import Call

MAX_BODY = 2_000_000  # bytes
LARGE_BODY = 1 << 16  # bytes; larger requests are tokenized on another thread
MIN_TEMPERATURE = 0.01  # lower ones mean greedy: scaled logits could overflow


@dataclass(frozen=True)
class Served:
    """A model, and the settings for all requests to it."""

    name: str
    engine: Engine
    conversations: Conversations
    detokenizer: Detokenizer
    call_style: CallStyle
    max_context: int  # tokens of a prompt and its reply together
    max_tokens: int  # of a reply; the default for requests
    temperature: float  # the default for requests
    max_waiting: int  # the most requests that may wait for a row


def make(served: Served, on_failure: Callable[[], object] = lambda: None) -> Starlette:
    """Return the application.

    Args:
      served: the model; its engine runs as long as the application does.
      on_failure: called if the engine fails, on the application's event loop.
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
        status = {"status": "failed" if error else "ok"}
        return JSONResponse(status, 503 if error else 200)

    async def completions(request: Request) -> Response:
        data = await _body(request)
        chat = protocol.parse_request(data)
        _check_name(served, chat.model)
        if served.engine.num_waiting >= served.max_waiting:
            raise ApiError(
                f"{served.max_waiting} requests are waiting already; try again later",
                429,
                "rate_limit_exceeded",
                retry_after=1,
            )
        completion = await _begin(served, chat, len(data) > LARGE_BODY)
        if chat.stream:
            events = completion.events(chat.include_usage)
            return StreamingResponse(events, media_type="text/event-stream")
        body = asyncio.ensure_future(completion.body())
        disconnected = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                (body, disconnected), return_when=asyncio.FIRST_COMPLETED
            )
            if not body.done():
                raise ClientDisconnect
            return JSONResponse(body.result())
        finally:
            for task in (body, disconnected):
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
            ApiError: _on_api_error,
            HTTPException: _on_http_error,
            engines.EngineStopped: _on_engine_stopped,
            RecursionError: _on_deep_nesting,
            ClientDisconnect: _on_disconnect,
            Exception: _on_unexpected_error,
        },
        lifespan=lifespan,
    )


class _Completion:
    """A reply that is being decoded."""

    def __init__(self, served: Served, chat: ChatRequest, prompt: list[int]):
        self._served, self._chat, self._prompt = served, chat, prompt
        style = served.call_style if chat.tools else None
        self._reply = Reply(
            served.detokenizer, style, chat.stop, chat.parallel_tool_calls
        )
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        temperature = chat.temperature
        temperature = served.temperature if temperature is None else temperature
        seed = secrets.randbits(32) if chat.seed is None else chat.seed
        self._request = engines.Request(
            prompt,
            chat.max_tokens or served.max_tokens,
            lambda tokens, end: loop.call_soon_threadsafe(
                self._events.put_nowait, (tokens, end)
            ),
            temperature if temperature >= MIN_TEMPERATURE else 0.0,
            chat.top_p,
            (seed ^ seed >> 32) % 2**32,
            incremental=chat.stream or bool(chat.stop),
        )
        self._header = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": served.name,
        }
        self._calls: list[Call] = []
        self.finish = ""
        served.engine.submit(self._request)

    async def _content(self) -> AsyncIterator[str]:
        """Yield the content as it comes; cancel the request if the reader stops."""
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
        self._calls = [
            call._replace(id=f"call_{secrets.token_hex(12)}") for call in reply.calls
        ]
        self.finish = "tool_calls" if reply.calls else "length" if cut else "stop"

    def _keep(self, content: str) -> dict[str, Any]:
        """Return the reply as a message, and keep its tokens for later requests."""
        message = protocol.reply_message(content, self._calls)
        chat, reply = self._chat, self._reply
        if not reply.stopped:  # otherwise there are more tokens than the message shows
            self._served.conversations.keep(
                [*chat.messages, message], chat.tools, self._prompt, reply.tokens
            )
        return message

    def _usage(self) -> dict[str, Any]:
        num_cached = self._request.num_cached
        return protocol.usage(len(self._prompt), len(self._reply.tokens), num_cached)

    async def body(self) -> dict[str, Any]:
        """Return the whole reply as the JSON of a response."""
        content = "".join([part async for part in self._content()])
        choice = {
            "index": 0,
            "message": self._keep(content),
            "logprobs": None,
            "finish_reason": self.finish,
        }
        header = self._header | {"object": "chat.completion"}
        return header | {"choices": [choice], "usage": self._usage()}

    async def events(self, include_usage: bool) -> AsyncIterator[str]:
        """Yield the reply as server-sent events."""
        header = self._header | {"object": "chat.completion.chunk"}
        header |= {"usage": None} if include_usage else {}

        def event(delta: dict[str, Any], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return _event(header | {"choices": [choice]})

        content = ""
        try:
            yield event({"role": "assistant"})
            async for part in self._content():
                content += part
                if part:
                    yield event({"content": part})
            self._keep(content)
            if not content and not self._calls:
                yield event({"content": ""})
            for delta in protocol.call_deltas(self._calls):
                yield event(delta)
            yield event({}, self.finish)
            if include_usage:
                yield _event(header | {"choices": [], "usage": self._usage()})
            yield "data: [DONE]\n\n"
        except engines.EngineStopped as error:
            yield _event(ApiError(str(error), 500).body())
        finally:
            self._request.cancelled = True


async def _begin(served: Served, chat: ChatRequest, large: bool) -> _Completion:
    """Tokenize a request and submit it to the engine.

    Raises:
      ApiError: the style cannot express the messages, or they are too long.
    """

    def tokens() -> list[int]:
        return served.conversations.tokens(chat.messages, chat.tools)

    try:
        prompt = await asyncio.to_thread(tokens) if large else tokens()
    except ValueError as error:
        raise ApiError(str(error), param="messages") from None
    num_new = chat.max_tokens or served.max_tokens
    if len(prompt) + num_new > served.max_context:
        raise ApiError(  # begins like OpenAI's message, which some clients look for
            f"This model's maximum context length is {served.max_context} tokens; "
            f"messages and tools take {len(prompt)}, and max_tokens is {num_new}: "
            "reduce one of them",
            code="context_length_exceeded",
            param="messages",
        )
    return _Completion(served, chat, prompt)


def _check_name(served: Served, name: str) -> None:
    if name != served.name:
        raise ApiError(
            f'there is no model "{name}"; this server has "{served.name}"',
            404,
            "model_not_found",
            "model",
        )


async def _body(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
      ApiError: the body is too large.
    """
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY:
            raise ApiError(
                f"the body is larger than {MAX_BODY} bytes", 413, "request_too_large"
            )
    return bytes(data)


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(data: dict[str, Any]) -> str:
    """Return a server-sent event, in ASCII: some clients split lines at U+2028."""
    return f"data: {json.dumps(data)}\n\n"


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), error.status, error.headers)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(ApiError(message, error.status_code).body(), error.status_code)


async def _on_deep_nesting(request: Request, error: Exception) -> Response:
    """Reject deeply nested JSON, which raises this error in several places."""
    return JSONResponse(ApiError("the request is nested too deeply").body(), 400)


async def _on_engine_stopped(request: Request, error: Exception) -> Response:
    return JSONResponse(ApiError(str(error), 500).body(), 500)


async def _on_unexpected_error(request: Request, error: Exception) -> Response:
    """Respond with the type of the error; the log has its traceback."""
    message = f"the server has failed: {type(error).__name__}"
    return JSONResponse(ApiError(message, 500).body(), 500)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # no client will read it
