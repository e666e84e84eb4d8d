"""Parse a line of a log: `messages` and `tools`, as chat APIs and trainers write them.

The messages are those of OpenAI's chat format, or Anthropic's (see `log_anthropic`).
The `arguments` of `tool_calls` are an object or its JSON text; one message can have
several calls; a content can be a list of text parts, as MCP's results are. The `tools`
are OpenAI functions, bare functions, MCP's or Anthropic's, as a list or its JSON text.
Other columns (such as Anthropic's `system`) are ignored, except that a conversation
with `"success": false` is skipped: a failure demonstrates nothing.

A value of null means that the key is absent: tables write null for missing keys.
"""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from openagent_jax.environments.logs import log_anthropic, log_values
from openagent_jax.environments.logs.log_values import Value
from openagent_jax.text import messages as conversation
from openagent_jax.text import style
from openagent_jax.text.nesting import Path

# Replies of our simulated user that hold no information, so no part of a request.
_EMPTY_REPLIES = (
    style.BAD_FORMAT_REPLY,
    style.shared()["nothing"],
)
_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")  # OpenAI, MCP, Anthropic


class CannotMap(ValueError):
    """A conversation cannot become a task.

    Attributes:
      reason: why, as a noun phrase.
      where: the part of the conversation; "" for the whole.
    """

    def __init__(self, reason: str, where: str = ""):
        super().__init__(reason)
        self.reason, self.where = reason, where


class LoggedCall(NamedTuple):
    """A call and its result.

    Attributes:
      tool: the name of the tool.
      arguments: the leaves of its arguments, without those that are null or empty.
      turn: equal for the calls of one message, and increasing.
      fields: the leaves of the result.
      failed: whether the result reports an error.
      problem: why the call cannot be a step of a goal; "" if it can.
      empty: the arguments that are empty containers.
    """

    tool: str
    arguments: dict[Path, Value]
    turn: int
    fields: dict[Path, Value]
    failed: bool
    problem: str = ""
    empty: tuple[Path, ...] = ()


class LoggedTool(NamedTuple):
    """A tool as the log documents it.

    Attributes:
      name: its name.
      description: its description; "" if there is none.
      parameters: the JSON schema of its arguments.
    """

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """A parsed line.

    Attributes:
      tools: the documented tools.
      request: everything that the user says, except replies to `Ask`.
      reply: what the user replies to `Ask`.
      calls: all calls, in their order.
      ending: the agent's text after the last call; "" if there is none.
    """

    tools: tuple[LoggedTool, ...]
    request: str
    reply: str
    calls: tuple[LoggedCall, ...]
    ending: str


def parse(row: Any) -> Conversation:
    """Parse a line of a log.

    >>> messages = [
    ...     {"role": "user", "content": "Hi"},
    ...     {"role": "assistant", "content": "Refuse"},
    ... ]
    >>> parsed = parse({"messages": messages})
    >>> parsed.request, parsed.ending
    ('Hi', 'Refuse')

    Args:
      row: the line as parsed from JSON.

    Raises:
      CannotMap: it is not a conversation, or not one that can be followed.
    """
    if isinstance(row, list):
        raise CannotMap("a list; write one conversation per line")
    if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
        is_sharegpt = isinstance(row, dict) and "conversations" in row
        instead = ", only ShareGPT's `conversations`; convert them" * is_sharegpt
        raise CannotMap(f"no `messages`{instead}")
    if row.get("success") is False:
        raise CannotMap("`success` is false")
    requests: list[str] = []
    replies: list[str] = []
    calls: list[LoggedCall] = []
    pending: list[_Written] = []  # the calls of the latest message
    results: dict[int, LoggedCall] = {}  # of pending calls, by their index
    ending, has_asked = "", False
    for turn, message in enumerate(log_anthropic.as_openai(row["messages"])):
        role = _checked(message).get("role")
        if role in ("tool", "function"):
            index = _matching_call(pending, results, message)
            results[index] = _logged_call(
                pending[index], message, turn=turn - len(results)
            )
            ending = ""
            if len(results) == len(pending):
                calls += [results[index] for index in sorted(results)]
                pending, results = [], {}
            continue
        if pending:
            break
        if role == "assistant":
            pending = _calls(message)
            text = _text(message)
            has_asked = not pending and conversation.last_line(text) == style.ASK
            if text.strip() and not pending:
                ending = text
        elif role == "user":
            if (text := _text(message)) not in _EMPTY_REPLIES:
                (replies if has_asked else requests).append(text)
            has_asked = False
        elif role not in ("system", "developer"):
            raise CannotMap(f"a message with the role {role!r:.40}")
    if pending:
        raise CannotMap("a call without a result", pending[0].call.name)
    if not any(text.strip() for text in requests):
        raise CannotMap("no user message")
    tools = tuple(_tools(row.get("tools")))
    return Conversation(
        tools, "\n".join(requests), "\n".join(replies), tuple(calls), ending
    )


def _checked(message: Any) -> Mapping[str, Any]:
    """Return the message if it is well-formed."""
    if not isinstance(message, dict):
        raise CannotMap("a message that is not an object")
    if message.get("function_call"):
        raise CannotMap("`function_call`, the predecessor of `tool_calls`")
    calls = message.get("tool_calls") or []
    are_objects = isinstance(calls, list) and all(isinstance(x, dict) for x in calls)
    if not are_objects or not all(isinstance(x.get("function"), dict) for x in calls):
        raise CannotMap("malformed `tool_calls`")
    if not isinstance(message.get("content"), str | list | dict | None):
        raise CannotMap("a content that is not text")
    try:  # otherwise a question mark would silently replace the surrogate
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise CannotMap("an unpaired surrogate") from None
    except RecursionError:
        raise CannotMap("a message that is nested too deeply") from None
    return message


def _text(message: Mapping[str, Any]) -> str:
    parts = message.get("content") or ""
    if not isinstance(parts, str):
        are_texts = [
            isinstance(x, dict) and isinstance(x.get("text"), str) for x in parts
        ]
        if not all(are_texts):
            raise CannotMap("a content that is not text")
    return conversation.content(message)


def _matching_call(
    pending: Sequence["_Written"],
    results: Container[int],
    message: Mapping[str, Any],
) -> int:
    """Return the index of the call of a result: the one with its id, else the next."""
    wanted = str(message.get("tool_call_id") or "")
    for index, written in enumerate(pending):
        if index not in results and (not wanted or written.call.id == wanted):
            return index
    raise CannotMap("a result without a call", wanted[:40])


class _Written(NamedTuple):
    """A call as its message has it."""

    call: conversation.Call
    arguments: Any  # an object, if the call has no problem
    problem: str


def _calls(message: Mapping[str, Any]) -> list[_Written]:
    """Return the calls of a message, whose arguments are objects or their JSON."""
    entries = message.get("tool_calls") or []
    made = conversation.calls(message)
    return [
        _Written(call, *_arguments(entry["function"].get("arguments")))
        for call, entry in zip(made, entries, strict=True)
    ]


def _arguments(given: Any) -> tuple[Any, str]:
    """Return the arguments of a call, and what is wrong with them."""
    if isinstance(given, str):
        try:
            given = log_values.loads(given.strip() or "{}")
        except log_values.RepeatedKey:
            return {}, "arguments with a duplicate key"
        except (ValueError, RecursionError):
            given = ""
    given = {} if given is None else given
    is_object = isinstance(given, dict)
    return given, "" if is_object else "arguments that are not an object"


def _logged_call(
    written: _Written, message: Mapping[str, Any], turn: int
) -> LoggedCall:
    """Combine a call and the message with its result."""
    given = written.arguments if isinstance(written.arguments, dict) else {}
    leaves = [x for x in log_values.leaves(_without_null(given)) if x[0]]
    empty = tuple(path for path, x in leaves if isinstance(x, dict | list))
    arguments = {path: log_values.value(x) for path, x in leaves if path not in empty}
    content = _content(message)
    is_marked = any(message.get(key) for key in ("is_error", "isError"))
    return LoggedCall(
        written.call.name,
        arguments,
        turn,
        _fields(content),
        is_marked or _reports_error(content),
        written.problem,
        empty,
    )


def _without_null(value: Any) -> Any:
    """Return an object without what is null in it; null in an array stays."""
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_null(x) for key, x in value.items() if x is not None}


def _content(message: Mapping[str, Any]) -> Any:
    """Return the content of a result: what its JSON says, or its text."""
    content = message.get("content")
    if isinstance(content, dict):
        return content
    text = _text(message)
    try:
        return log_values.loads(text)
    except log_values.RepeatedKey as error:
        raise CannotMap("a result with a duplicate key", str(error)) from None
    except (ValueError, RecursionError):
        return text


def _reports_error(content: Any) -> bool:
    if isinstance(content, dict):
        keys = ("error", "errors", "isError", "is_error")
        has_error = any(content.get(key) for key in keys)
        has_failed = content.get("success") is False or content.get("ok") is False
        return has_error or has_failed or content.get("status") == "error"
    start = str(content).strip().lower()
    return start.startswith(("error", "exception", "traceback"))


def _fields(content: Any) -> dict[Path, Value]:
    """Return the leaves of an object; anything else is under one key."""
    if content == "" or content == {}:
        return {}
    if not isinstance(content, dict):
        content = {style.shared()["result"]: content}
    return {path: log_values.value(x) for path, x in log_values.leaves(content)}


def _tools(tools: Any) -> Iterator[LoggedTool]:
    if isinstance(tools, str):
        try:
            tools = log_values.loads(tools or "[]")
        except (ValueError, RecursionError):
            raise CannotMap("`tools` that are not valid JSON") from None
    if not isinstance(tools or [], list):
        raise CannotMap("`tools` that are not a list")
    for tool in tools or ():
        function = tool.get("function") if isinstance(tool, dict) else None
        function = function or tool
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise CannotMap("a tool without a name")
        schema = next((function[key] for key in _SCHEMA_KEYS if function.get(key)), {})
        schema = _plain_schema(schema if isinstance(schema, dict) else {})
        description = function.get("description") or ""
        yield LoggedTool(function["name"], str(description), schema)


def _plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of arguments without properties that are null, as tables write
    them; without `required`, all properties are required."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    properties = {key: x for key, x in properties.items() if x is not None}
    required = schema.get("required")
    required = required if isinstance(required, list) else list(properties)
    required = [key for key in properties if key in required]
    return {**schema, "properties": properties, "required": required}
