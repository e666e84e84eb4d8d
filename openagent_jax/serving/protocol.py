"""OpenAI's chat completions: what is asked for, and how it is answered."""

import json
from dataclasses import dataclass
from typing import Any

from openagent_jax.sandbox.chat import Messages
from openagent_jax.serving.reply import Call

ROLES = {"developer": "system"} | {
    role: role for role in ("system", "user", "assistant", "tool")
}
# What changes nothing here, whatever it says.
IGNORED = {
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
}
# What is understood if it asks for nothing special.
PLAIN: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
MAX_STOPS = 4


class Refused(ValueError):
    """A request that cannot be answered, as an error of OpenAI's."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        retry_after: int = 0,
    ):
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers = {"Retry-After": str(retry_after)} if retry_after else None

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        return {
            "error": {
                "message": str(self),
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }


@dataclass(frozen=True)
class Asked:
    """A request for one reply."""

    model: str
    messages: Messages
    tools: list[dict[str, Any]]
    max_tokens: int | None
    temperature: float | None
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    several: bool  # calls in one reply
    stream: bool
    include_usage: bool


def read(data: bytes) -> Asked:
    """
    Raises:
      Refused: the body is no request, or asks for what is not done here.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refused("the body is no JSON object")
    # What is null is not there.
    given = {key: value for key, value in body.items() if value is not None}
    take = given.pop
    for name in IGNORED & given.keys():
        take(name)
    for name in PLAIN.keys() & given.keys():
        _must(take(name) in PLAIN[name], name, f"is not {PLAIN[name][0]!r}")
    max_tokens = take("max_tokens", None)
    max_tokens = take("max_completion_tokens", max_tokens)
    seed, stop = take("seed", None), take("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    tools, choice = take("tools", []), take("tool_choice", "auto")
    options = take("stream_options", {})
    _must(isinstance(options, dict), "stream_options", "is no object")
    _must(choice in ("none", "auto"), "tool_choice", 'is neither "none" nor "auto"')
    asked = Asked(
        model=take("model", ""),
        messages=_messages(take("messages", [])),
        tools=_tools(tools) if choice == "auto" else [],
        max_tokens=max_tokens,
        temperature=take("temperature", None),
        top_p=take("top_p", 1.0),
        seed=seed,
        stop=tuple(stop) if isinstance(stop, list) else (),
        several=take("parallel_tool_calls", True),
        stream=take("stream", False),
        include_usage=options.get("include_usage") or False,
    )
    for name in given:
        _sound(name, "a key")
        raise Refused(f"{name} is not known here", code="unknown_parameter", param=name)
    _must(isinstance(asked.model, str) and asked.model, "model", "is no name")
    _sound(asked.model, "model")
    _must(
        max_tokens is None or (_whole(max_tokens) and max_tokens > 0),
        "max_tokens",
        "is no positive number",
    )
    _must(
        asked.temperature is None or _number(asked.temperature, 0, 2),
        "temperature",
        "is no number from 0 to 2",
    )
    _must(
        _number(asked.top_p, 0, 1) and asked.top_p > 0,
        "top_p",
        "is no number above 0, up to 1",
    )
    _must(seed is None or _whole(seed), "seed", "is no whole number")
    texts = isinstance(stop, list) and all(isinstance(x, str) and x for x in stop)
    _must(texts and len(stop) <= MAX_STOPS, "stop", f"is not up to {MAX_STOPS} texts")
    for name in ("stream", "include_usage"):
        _must(isinstance(getattr(asked, name), bool), name, "is not true or false")
    several = isinstance(asked.several, bool)
    _must(several, "parallel_tool_calls", "is not true or false")
    return asked


def _must(sound: Any, param: str, problem: str) -> None:
    if not sound:
        raise Refused(f"{param} {problem}", param=param)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any, low: float, high: float) -> bool:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return real and low <= value <= high


def _messages(given: Any) -> Messages:
    _must(isinstance(given, list) and given, "messages", "is no list, or is empty")
    return [_message(x, f"messages[{i}]") for i, x in enumerate(given)]


def _message(given: Any, place: str) -> dict[str, Any]:
    _must(isinstance(given, dict), place, "is no object")
    role = ROLES.get(given.get("role")) if _text(given, "role") else None
    _must(role, f"{place}.role", f"is none of {', '.join(ROLES)}")
    message: dict[str, Any] = {"role": role, "content": _content(given, place)}
    if calls := given.get("tool_calls"):
        place = f"{place}.tool_calls"
        _must(role == "assistant" and isinstance(calls, list), place, "is out of place")
        message["tool_calls"] = [
            _call(call, f"{place}[{i}]") for i, call in enumerate(calls)
        ]
    if role == "tool":
        sound = _text(given, "tool_call_id")
        _must(sound, f"{place}.tool_call_id", "is missing, or no text")
        message["tool_call_id"] = _sound(given["tool_call_id"], f"{place}.tool_call_id")
    return message


def _content(message: dict[str, Any], place: str) -> str:
    """Of a message: a text, or parts that are texts."""
    content, place = message.get("content"), f"{place}.content"
    if isinstance(content, list):
        for i, part in enumerate(content):
            sound = isinstance(part, dict) and part.get("type") == "text"
            sound = sound and _text(part, "text")
            _must(sound, f"{place}[{i}]", "is no text, and only texts are read here")
        content = "".join(part["text"] for part in content)
    if content is None:
        _must(message["role"] == "assistant", place, "is missing")
        return ""
    _must(isinstance(content, str), place, "is no text")
    return _sound(content, place)


def _call(given: Any, place: str) -> dict[str, Any]:
    function = given.get("function") if isinstance(given, dict) else None
    function = function if isinstance(function, dict) else {}
    sound = _text(function, "name") and _text(function, "arguments")
    sound = sound and _text(given, "id")
    _must(sound, place, "is no call of a function, with an id, a name and arguments")
    return {
        "id": _sound(given["id"], place),
        "type": "function",
        "function": {
            name: _sound(function[name], place) for name in ("name", "arguments")
        },
    }


def _tools(given: Any) -> list[dict[str, Any]]:
    _must(isinstance(given, list), "tools", "is no list")
    for i, tool in enumerate(given):
        _tool(tool, f"tools[{i}]")
    return given


def _tool(given: Any, place: str) -> None:
    function = given.get("function") if isinstance(given, dict) else None
    sound = isinstance(function, dict) and given.get("type") == "function"
    _must(sound, place, 'is no object of the type "function"')
    function, place = dict(function or {}), f"{place}.function"
    named = _text(function, "name") and function["name"]
    _must(named, f"{place}.name", "is missing, or no text")
    described = function.get("description") is None or _text(function, "description")
    _must(described, f"{place}.description", "is no text")
    schema, place = function.get("parameters"), f"{place}.parameters"
    _must(schema is None or isinstance(schema, dict), place, "is no schema")
    properties = (schema or {}).get("properties")
    sound = properties is None or isinstance(properties, dict)
    _must(sound, f"{place}.properties", "is no object")
    _sound(json.dumps(function, ensure_ascii=False), place)


def _text(given: dict[str, Any], key: str) -> bool:
    return isinstance(given.get(key), str)


def _sound(text: str, place: str) -> str:
    """Half a surrogate pair is no text, though JSON can write it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(f"{place} is no Unicode text", param=place) from None
    return text


def message(content: str, calls: list[Call], ids: list[str]) -> dict[str, Any]:
    """The reply as a message."""
    said: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if calls:
        said["content"] = content or None
        said["tool_calls"] = [
            {
                "id": id_,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for id_, call in zip(ids, calls, strict=True)
        ]
    return said


def deltas(calls: list[Call], ids: list[str]) -> list[dict[str, Any]]:
    """The same calls for those who read a stream: who is called, then with what."""
    made = []
    for i, (call, id_) in enumerate(zip(calls, ids, strict=True)):
        head = {"name": call.name, "arguments": ""}
        rest = {"arguments": call.arguments}
        opened = {"index": i, "id": id_, "type": "function", "function": head}
        made += [
            {"tool_calls": [opened]},
            {"tool_calls": [{"index": i, "function": rest}]},
        ]
    return made


def usage(num_prompt: int, num_said: int, num_cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_said,
        "total_tokens": num_prompt + num_said,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }
