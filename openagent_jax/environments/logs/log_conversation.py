"""Parse a line of a log: `messages` and `tools`, as chat APIs and trainers write them.

The messages are those of OpenAI's chat format, or Anthropic's (see `log_anthropic`).
The `arguments` of `tool_calls` are an object or its JSON text; one message can have
several calls; a content can be a list of text parts, as MCP's results are. The `tools`
are OpenAI functions, bare functions, MCP's or Anthropic's, as a list or its JSON text.
Other columns (such as Anthropic's `system`) are ignored, except that a conversation
with `"success": false` is skipped: a failure demonstrates nothing.

A value of null means that the key is absent: tables write null for missing keys.
"""

import contextlib
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from openagent_jax.environments.logs import log_anthropic
from openagent_jax.text import messages as conversation
from openagent_jax.text import style

# Replies of our simulated user that hold no information, so no part of a request.
_EMPTY_REPLIES = (
    style.BAD_FORMAT_REPLY,
    style.shared()["nothing"],
)
_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")  # OpenAI, MCP, Anthropic


class CannotMap(ValueError):
    """A conversation cannot become a task; the message says why, as a noun phrase."""


class LoggedCall(NamedTuple):
    """A call and its result.

    Attributes:
      tool: the name of the tool.
      arguments: the arguments as texts, without those that are null.
      turn: the index of the message that made the call.
      fields: `(name, value)` of each field of the result.
      failed: whether the result reports an error.
      problem: why the call cannot be a step of a goal; "" if it can.
      literals: the names of fields that are numbers, booleans or null in the log.
    """

    tool: str
    arguments: dict[str, str]
    turn: int
    fields: tuple[tuple[str, str], ...]
    failed: bool
    problem: str
    literals: frozenset[str] = frozenset()


class LoggedTool(NamedTuple):
    """A tool as the log documents it.

    Attributes:
      name: its name.
      description: its description; "" if there is none.
      types: the JSON type of each argument; None where the schema gives none.
      required: the names of the required arguments.
    """

    name: str
    description: str
    types: dict[str, Any]
    required: tuple[str, ...]


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
    pending: list[conversation.Call] = []  # the calls of the latest message
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
            pending = conversation.calls(message)
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
        raise CannotMap("a call without a result")
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
    pending: Sequence[conversation.Call],
    results: Container[int],
    message: Mapping[str, Any],
) -> int:
    """Return the index of the call of a result: the one with its id, else the next."""
    wanted = str(message.get("tool_call_id") or "")
    for index, call in enumerate(pending):
        if index not in results and (not wanted or call.id == wanted):
            return index
    raise CannotMap("a result without a call")


def _logged_call(
    call: conversation.Call, message: Mapping[str, Any], turn: int
) -> LoggedCall:
    """Combine a call and the message with its result."""
    given, problem = {}, ""
    if not call.arguments:
        problem = "arguments that are not an object"
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
            content = text  # keep it as it was written: 1.10 stays 1.10
    is_marked = any(message.get(key) for key in ("is_error", "isError"))
    arguments = {key: scalar_text(x) for key, x in given.items() if x is not None}
    failed = is_marked or _reports_error(content)
    fields, literals = _fields(content), set[str]()
    if isinstance(content, dict) and len(fields) == len(content):
        literals = {key for key, x in content.items() if not isinstance(x, str)}
    return LoggedCall(
        call.name, arguments, turn, fields, failed, problem, frozenset(literals)
    )


def _reports_error(content: Any) -> bool:
    if isinstance(content, dict):
        keys = ("error", "errors", "isError", "is_error")
        has_error = any(content.get(key) for key in keys)
        has_failed = content.get("success") is False or content.get("ok") is False
        return has_error or has_failed or content.get("status") == "error"
    start = str(content).strip().lower()
    return start.startswith(("error", "exception", "traceback"))


def _fields(content: Any) -> tuple[tuple[str, str], ...]:
    """Return the fields of an object of scalars; anything else is one field."""
    if isinstance(content, dict):
        if not any(isinstance(x, dict | list) for x in content.values()):
            return tuple((key, scalar_text(x)) for key, x in content.items())
    if content == "":
        return ()
    return ((style.shared()["result"], scalar_text(content)),)


def scalar_text(value: Any) -> str:
    """Return a value as a text: a string as it is, anything else as JSON.

    >>> scalar_text("1"), scalar_text(1), scalar_text(None)
    ('1', '1', 'null')
    """
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _tools(tools: Any) -> Iterator[LoggedTool]:
    if isinstance(tools, str):
        try:
            tools = json.loads(tools or "[]")
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
        schema = schema if isinstance(schema, dict) else {}
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        kinds = {
            key: value.get("type") if isinstance(value, dict) else None
            for key, value in properties.items()
            if value is not None
        }
        required = schema.get("required")
        # In schemas without `required`, all arguments are taken to be required.
        required = required if isinstance(required, list) else list(kinds)
        required = tuple(key for key in kinds if key in required)
        description = function.get("description") or ""
        yield LoggedTool(function["name"], str(description), kinds, required)
