"""Read logs: JSON Lines with `messages` and `tools`, as chat APIs and trainers write.

A line is an object. `messages` are those of OpenAI's chat format: `tool_calls` have
`arguments` as JSON text or as an object, several calls may be in one message, and a
content may be a list of parts, as MCP's results are. `tools` are OpenAI functions, bare
functions, or MCP's; they may be a JSON text. Other columns are ignored, but for
`success`: a conversation that says it failed shows nobody what to do.

Null stands for what is not there, as tables of unlike rows fill it in.
"""

import contextlib
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from openagent_jax import types
from openagent_jax.sandbox import conversation, style
from openagent_jax.sandbox.domain_spec import DomainError

SUFFIX = ".jsonl"  # a domain of this name is a log
_GZIP = b"\x1f\x8b"
HEADER = "evaluation"  # the key of the first line of an evaluation's log
# What our users say when they are told nothing.
_NO_NEWS = (style.ERROR[0] + style.ERRORS[types.BAD_FORMAT] + style.ERROR[1],)
_NO_NEWS += (style.shared()["nothing"],)
_SCHEMAS = ("parameters", "inputSchema", "input_schema")  # OpenAI, MCP, Anthropic


class Unmapped(ValueError):
    """Of a conversation: why it becomes no task."""


class Made(NamedTuple):
    """A call and what came of it."""

    tool: str
    arguments: dict[str, str]  # without those that are null
    turn: int  # which message made it
    fields: tuple[tuple[str, str], ...]  # of its result
    failed: bool
    problem: str  # why it can be no step, if it worked


class Listed(NamedTuple):
    """A tool as it is documented."""

    name: str
    description: str
    types: dict[str, Any]  # of its arguments
    required: tuple[str, ...]


@dataclass(frozen=True)
class Conversation:
    """What a line says."""

    tools: tuple[Listed, ...]
    request: str  # all that the user said, unless the agent had asked by `Ask`
    told: str  # what the user said then
    calls: tuple[Made, ...]
    ending: str  # the agent's last words, behind all calls


def lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Numbers of the lines, and what is in them.

    Raises:
      DomainError: a line is not UTF-8, or not JSON; the file cannot be read.
    """
    number = 0
    try:
        with file.open("rb") as opened:
            for number, line in enumerate(opened, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    yield number, json.loads(text.rstrip("\r\n"))
        return
    except OSError as error:
        problem = f"{error.strerror}; check the path"
    except UnicodeDecodeError as error:
        problem = f"line {number}: byte {error.start} is not UTF-8; save it as UTF-8"
        if number == 1 and error.object.startswith(_GZIP):
            problem = "compressed by gzip; unpack it first"
    except json.JSONDecodeError as error:
        problem = (
            f"line {number}, column {error.colno}: no JSON, {error.msg}; each line "
            "holds one whole conversation: complete or remove it"
        )
    except (RecursionError, ValueError) as error:  # absurdly deep, or a huge number
        problem = f"line {number}: {error}; remove it"
    raise DomainError(f"{file}: {' '.join(problem.split())}")


def conversation_of(row: Any) -> Conversation:
    """
    Raises:
      Unmapped: it is none, or one that cannot be followed.
    """
    if isinstance(row, list):
        raise Unmapped("a list; write each conversation on a line of its own")
    if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
        sharegpt = isinstance(row, dict) and "conversations" in row
        other = ", but ShareGPT's `conversations`; convert them" * sharegpt
        raise Unmapped(f"no `messages`{other}")
    if row.get("success") is False:
        raise Unmapped("`success` is false")
    said: list[str] = []
    told: list[str] = []
    made: list[Made] = []
    waiting: list[conversation.Call] = []
    answers: dict[int, Made] = {}  # to those that wait, by their place
    ending, asked = "", False
    for turn, message in enumerate(row["messages"]):
        role = _checked(message).get("role")
        if role in ("tool", "function"):
            place = _answered(waiting, answers, message)
            answers[place] = _made(waiting[place], message, turn - len(answers))
            ending = ""
            if len(answers) == len(waiting):
                made += [answers[place] for place in sorted(answers)]
                waiting, answers = [], {}
            continue
        if waiting:
            break
        if role == "assistant":
            waiting = conversation.calls(message)
            words = _text(message)
            asked = not waiting and conversation.last_line(words) == style.ASK
            if words.strip() and not waiting:
                ending = words
        elif role == "user":
            if (text := _text(message)) not in _NO_NEWS:
                (told if asked else said).append(text)
            asked = False
        elif role not in ("system", "developer"):
            raise Unmapped(f"a message of {role!r:.40}")
    if waiting:
        raise Unmapped("a call without a result")
    if not any(text.strip() for text in said):
        raise Unmapped("no user message")
    tools = tuple(_listed(row.get("tools")))
    return Conversation(tools, "\n".join(said), "\n".join(told), tuple(made), ending)


def _checked(message: Any) -> Mapping[str, Any]:
    """A message of the right form."""
    if not isinstance(message, dict):
        raise Unmapped("a message that is no object")
    if message.get("function_call"):
        raise Unmapped("`function_call`, the old form of `tool_calls`")
    calls = message.get("tool_calls") or []
    fine = isinstance(calls, list) and all(isinstance(x, dict) for x in calls)
    if not fine or not all(isinstance(x.get("function"), dict) for x in calls):
        raise Unmapped("`tool_calls` of another form")
    if not isinstance(message.get("content"), str | list | dict | None):
        raise Unmapped("a content that is not text")
    try:  # else it would be read with a question mark in its place
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Unmapped("half a character") from None
    except RecursionError:
        raise Unmapped("a message nested too deep") from None
    return message


def _text(message: Mapping[str, Any]) -> str:
    parts = message.get("content") or ""
    if not isinstance(parts, str):
        texts = [isinstance(x, dict) and isinstance(x.get("text"), str) for x in parts]
        if not all(texts):
            raise Unmapped("a content that is not text")
    return conversation.content(message)


def _answered(
    waiting: Sequence[conversation.Call],
    answers: Container[int],
    message: Mapping[str, Any],
) -> int:
    """Which call a result is of: that of its id, or else the next one."""
    wanted = str(message.get("tool_call_id") or "")
    for place, call in enumerate(waiting):
        if place not in answers and (not wanted or call.id == wanted):
            return place
    raise Unmapped("a result of no call")


def _made(call: conversation.Call, message: Mapping[str, Any], turn: int) -> Made:
    given, problem = {}, ""
    if not call.arguments:
        problem = "arguments that are no object"
    else:
        given = json.loads(call.arguments)
    if any(isinstance(x, dict | list) for x in given.values()):
        problem = "a nested argument"
    content = message.get("content")
    if not isinstance(content, dict):
        content = text = _text(message)
        with contextlib.suppress(ValueError, RecursionError):
            content = json.loads(text)
        if isinstance(content, int | float | None):
            content = text  # as it was written: 1.10 stays that
    told = any(message.get(key) for key in ("is_error", "isError"))
    arguments = {key: scalar(x) for key, x in given.items() if x is not None}
    failed = told or _reports_error(content)
    return Made(call.name, arguments, turn, _fields(content), failed, problem)


def _reports_error(content: Any) -> bool:
    if isinstance(content, dict):
        told = any(content.get(x) for x in ("error", "errors", "isError", "is_error"))
        denied = content.get("success") is False or content.get("ok") is False
        return told or denied or content.get("status") == "error"
    first = str(content).strip().lower()
    return first.startswith(("error", "exception", "traceback"))


def _fields(content: Any) -> tuple[tuple[str, str], ...]:
    """Of an object of scalars; anything else is one text."""
    if isinstance(content, dict):
        if not any(isinstance(x, dict | list) for x in content.values()):
            return tuple((key, scalar(x)) for key, x in content.items())
    return ((style.shared()["result"], scalar(content)),) if content != "" else ()


def scalar(value: Any) -> str:
    """A value as a text."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _listed(tools: Any) -> Iterator[Listed]:
    if isinstance(tools, str):
        try:
            tools = json.loads(tools or "[]")
        except (ValueError, RecursionError):
            raise Unmapped("`tools` is no JSON") from None
    if not isinstance(tools or [], list):
        raise Unmapped("`tools` is no list")
    for tool in tools or ():
        function = tool.get("function") if isinstance(tool, dict) else None
        function = function or tool
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise Unmapped("a tool without a name")
        schema = next((function[key] for key in _SCHEMAS if function.get(key)), {})
        schema = schema if isinstance(schema, dict) else {}
        properties = schema.get("properties") or {}
        kinds = {
            key: value.get("type") if isinstance(value, dict) else None
            for key, value in (
                properties.items() if isinstance(properties, dict) else ()
            )
            if value is not None
        }
        required = schema.get("required")
        # Who writes no list of what is required means all of it.
        required = required if isinstance(required, list) else list(kinds)
        required = tuple(key for key in kinds if key in required)
        description = function.get("description") or ""
        yield Listed(function["name"], str(description), kinds, required)
