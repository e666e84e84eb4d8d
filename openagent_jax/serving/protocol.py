"""OpenAI's chat completions: check a request, write a reply.

pydantic checks the body of a request against the models below and collects all errors
with their places. `parse_request` reports the first few in OpenAI's error format, and
converts a valid body to a `ChatRequest`.

https://platform.openai.com/docs/api-reference/chat
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from openagent_jax.text import messages as chat_messages
from openagent_jax.text.messages import Call, Message, Messages, Tools

MAX_STOPS = 4
MAX_ERRORS = 3  # errors that one message lists


class ApiError(ValueError):
    """An error in OpenAI's format, and the HTTP status that it is sent with."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        retry_after: int = 0,
    ):
        """
        Args:
          message: one line for people.
          status: the HTTP status.
          code: a word for programs, such as "model_not_found".
          param: the place of the error in the request, such as "messages[0].role".
          retry_after: seconds after which to try again, for the header; 0 sends none.
        """
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers = {"Retry-After": str(retry_after)} if retry_after else None

    def body(self) -> dict[str, Any]:
        """Return the JSON body of the response.

        >>> ApiError("n must be 1", param="n").body()["error"]["type"]
        'invalid_request_error'
        """
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        error = {"message": str(self), "type": kind}
        return {"error": error | {"param": self.param, "code": self.code}}


@dataclass(frozen=True)
class ChatRequest:
    """A request for one reply; None means the default of the server."""

    model: str
    messages: Messages
    tools: Tools  # empty if none may be called
    max_tokens: int | None
    temperature: float | None
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    parallel_tool_calls: bool  # whether a reply may have more than one call
    stream: bool
    include_usage: bool


def parse_request(data: bytes) -> ChatRequest:
    """Parse the body of a POST request.

    Raises:
      ApiError: the body is not a request, or asks for something that is not supported.
        `param` is the place of the first error.

    >>> parse_request(b'{"model": "m", "messages": [], "n": 2}')
    Traceback (most recent call last):
    ...
    openagent_jax.serving.protocol.ApiError: messages must not be empty; n must be 1
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ApiError("the body is not a JSON object")
    if any(_has_surrogate(key) for key in body):
        raise ApiError("a key is not Unicode text", param="a key")
    try:  # a field that is null counts as missing
        fields = _Body.model_validate({k: v for k, v in body.items() if v is not None})
    except ValidationError as error:
        raise _api_error(error) from None
    max_tokens = fields.max_completion_tokens
    return ChatRequest(
        model=fields.model,
        messages=[message.to_dict() for message in fields.messages],
        tools=body.get("tools") or [] if fields.tool_choice == "auto" else [],
        max_tokens=fields.max_tokens if max_tokens is None else max_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        seed=fields.seed,
        stop=tuple(fields.stop),
        parallel_tool_calls=fields.parallel_tool_calls,
        stream=fields.stream,
        include_usage=bool(fields.stream_options.include_usage),
    )


# Writing.


def reply_message(content: str, calls: Sequence[Call]) -> Message:
    """Return a reply as an assistant message."""
    return chat_messages.assistant(content, calls) | {"refusal": None}


def call_deltas(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Return the deltas of a stream for calls: for each, its name, then arguments."""
    deltas = []
    for i, call in enumerate(calls):
        head = {"name": call.name, "arguments": ""}
        opened = {"index": i, "id": call.id, "type": "function", "function": head}
        rest = {"index": i, "function": {"arguments": call.arguments}}
        deltas += [{"tool_calls": [opened]}, {"tool_calls": [rest]}]
    return deltas


def usage(num_prompt: int, num_completion: int, num_cached: int) -> dict[str, Any]:
    """Return the `usage` object of a response.

    Args:
      num_prompt: number of tokens of the prompt.
      num_completion: number of tokens of the reply.
      num_cached: number of tokens of the prompt that were already in the cache.
    """
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }


# The body of a request. Fields of messages and tools that are not listed are ignored.


def _only(value: Any) -> AfterValidator:
    """Return a validator that accepts only the default value of a field."""

    def check(given: Any) -> Any:
        if given != value:
            raise _invalid(f"must be {json.dumps(value)}")
        return given

    return AfterValidator(check)


def _whole(problem: str) -> WrapValidator:
    """Return a validator that reports an error inside a part as one of the part."""

    def check(given: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(given)
        except ValidationError:
            raise _invalid(problem) from None

    return WrapValidator(check)


def _check_text(given: str) -> str:
    if _has_surrogate(given):
        raise _invalid("must be Unicode text")
    return given


def _check_tool(given: Any) -> Any:
    _check_text(json.dumps(given, ensure_ascii=False))
    return given


def _has_surrogate(text: str) -> bool:
    """Return whether a text has a lone surrogate, which JSON allows but UTF-8 lacks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _check_stop(stop: list[str]) -> list[str]:
    if len(stop) > MAX_STOPS or not all(stop):
        raise _invalid(f"must be up to {MAX_STOPS} texts that are not empty")
    return stop


def _refuse_calls(calls: Any) -> Any:
    if calls:
        raise _invalid("belongs to messages of the assistant only")
    return calls


def _invalid(problem: str) -> PydanticCustomError:
    return PydanticCustomError("invalid", "{problem}", {"problem": problem})


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


_Text = Annotated[str, AfterValidator(_check_text)]


class _Part(_Model):
    type: Literal["text"]
    text: _Text


def _content_tag(content: Any) -> str:
    return "<parts>" if isinstance(content, list) else "<text>"


# Tags in angle brackets select the member of a union; `_place` leaves them out.
_AnyPart = Annotated[_Part, _whole("must be a text: nothing else is supported")]
_Content = Annotated[
    Annotated[_Text, Tag("<text>")] | Annotated[list[_AnyPart], Tag("<parts>")],
    Discriminator(_content_tag),
]


class _Function(_Model):
    name: _Text
    arguments: _Text


class _Call(_Model):
    id: _Text
    function: _Function


class _Message(_Model):
    """A message with the role developer, system or user."""

    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: _Content
    tool_calls: Annotated[Any, AfterValidator(_refuse_calls)] = None

    def to_dict(self) -> Message:
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": _joined(self.content)}


class _ToolMessage(_Message):
    tool_call_id: _Text

    def to_dict(self) -> Message:
        return super().to_dict() | {"tool_call_id": self.tool_call_id}


_AnyCall = Annotated[
    _Call, _whole("must be a call of a function, with id, name and arguments")
]


class _AssistantMessage(_Model):
    role: Literal["assistant"]
    content: _Content | None = None
    tool_calls: list[_AnyCall] | None = None

    def to_dict(self) -> Message:
        calls = [
            Call(call.id, call.function.name, call.function.arguments)
            for call in self.tool_calls or ()
        ]
        return chat_messages.assistant(_joined(self.content or ""), calls)


def _joined(content: str | list[_Part]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content)


def _message_tag(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return f"<{role}>" if role in ("assistant", "tool") else "<other>"


_AnyMessage = Annotated[
    Annotated[_Message, Tag("<other>")]
    | Annotated[_AssistantMessage, Tag("<assistant>")]
    | Annotated[_ToolMessage, Tag("<tool>")],
    Discriminator(_message_tag),
]


class _Schema(_Model):
    properties: dict[Any, Any] | None = None


class _ToolFunction(_Model):
    name: Annotated[_Text, Field(min_length=1)]
    description: str | None = None
    parameters: _Schema | None = None


class _Tool(_Model):
    type: Literal["function"]
    function: _ToolFunction


class _StreamOptions(_Model):
    include_usage: bool | None = None


class _Body(_Model):
    model_config = ConfigDict(extra="forbid")

    model: Annotated[_Text, Field(min_length=1)]
    messages: Annotated[list[_AnyMessage], Field(min_length=1)]
    tools: list[Annotated[_Tool, BeforeValidator(_check_tool)]] = []
    tool_choice: Literal["none", "auto"] = "auto"
    parallel_tool_calls: bool = True
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    max_completion_tokens: Annotated[int, Field(gt=0)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: int | None = None
    stop: Annotated[
        list[str],
        BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop),
        AfterValidator(_check_stop),
    ] = []
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()

    # Only the default value of these is supported.
    n: Annotated[Any, _only(1)] = 1
    logprobs: Annotated[Any, _only(False)] = False
    top_logprobs: Annotated[Any, _only(0)] = 0
    frequency_penalty: Annotated[Any, _only(0)] = 0
    presence_penalty: Annotated[Any, _only(0)] = 0
    logit_bias: Annotated[Any, _only({})] = {}
    response_format: Annotated[Any, _only({"type": "text"})] = {"type": "text"}
    modalities: Annotated[Any, _only(["text"])] = ["text"]

    # These are accepted, but have no effect.
    metadata: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    store: Any = None
    user: Any = None


# Our message for each of pydantic's error types; for others, pydantic's is used.
_PROBLEMS = {
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "extra_forbidden": "is not supported",
    "list_type": "must be a list",
    "missing": "is required",
    "model_type": "must be an object",
    "string_too_short": "must not be empty",
    "string_unicode": "must be Unicode text",
    "too_short": "must not be empty",
}


def _api_error(error: ValidationError) -> ApiError:
    """Convert pydantic's errors to one error that lists the first few."""
    details = error.errors(include_url=False, include_context=False)
    lines = []
    for detail in details[:MAX_ERRORS]:
        problem = _PROBLEMS.get(detail["type"], detail["msg"])
        problem = problem.replace("Input should be", "must be")
        lines.append(f"{_place(detail['loc'])} {problem}")
    if len(details) > MAX_ERRORS:
        lines.append(f"and {len(details) - MAX_ERRORS} more")
    unknown = details[0]["type"] == "extra_forbidden"
    return ApiError(
        "; ".join(lines),
        code="unknown_parameter" if unknown else None,
        param=_place(details[0]["loc"]),
    )


def _place(location: Sequence[str | int]) -> str:
    """Format a place as OpenAI does.

    >>> _place(("messages", 0, "<tool>", "content"))
    'messages[0].content'
    """
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith("<"):
            path += f".{step}" if path else step
    return path.removeprefix("stream_options.")  # include_usage has a name of its own
