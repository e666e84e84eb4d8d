"""Read and write the messages and tools of OpenAI's chat protocol.

Only this module knows the JSON structure of a message, of a tool call and of the
document of a tool. Messages and tools are plain dictionaries, as in JSON. `chat` knows
how a chat template writes them, environments decide what a task says in them, and
`serving/protocol.py` checks what an HTTP request may contain.

A call has two forms. On the wire, its arguments are the text of a JSON object; chat
templates expect the object itself. `call` writes the second form, `assistant` the
first, `calls` reads both, and `for_template` converts the first to the second.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from openagent_jax.text import schema_paths

Message = dict[str, Any]
Messages = list[Message]
Tool = dict[str, Any]
Tools = list[Tool]

SYSTEM = (
    "You use tools to do what the user asks for. Call one tool at a time. When you "
    "know what was asked for, reply with Answer: and the value alone; when there is "
    "nothing to tell, with Answer: done. If the request leaves out what you need, "
    "reply with Ask. If the tools cannot do it, reply with Refuse."
)
STRING, INTEGER = "string", "integer"  # types of a parameter
CALL_ID = "call00000"  # the default id of a call: some templates require one

MAX_CHARS = 20_000  # of content, or of arguments, when a reply is sent back
MAX_NAME = 256  # characters of the name of a called tool; the protocol allows 64


def _finite(text: str) -> float | str:
    return value if math.isfinite(value := float(text)) else text


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


# Options of `json` with which an agent's reply is read. `NaN` and `Infinity` are not
# JSON, and a number that is too large for a float stays a text, so that what is read
# can be written again.
STRICT: Any = {"parse_float": _finite, "parse_constant": _refuse}


class Call(NamedTuple):
    """A tool call in a reply."""

    id: str
    name: str
    arguments: str  # the JSON text of an object; "" if the reply had no JSON object

    @property
    def text(self) -> str:
        """The call as one JSON object, for `reply_scan`; "" if the call is invalid.

        >>> Call("1", "look", '{"place":"Oak Bay"}').text
        '{"name":"look","arguments":{"place":"Oak Bay"}}'
        """
        if not self.arguments:
            return ""
        return f'{{"name":{json.dumps(self.name)},"arguments":{self.arguments}}}'


# Writing.


def tool(name: str, description: str, parameters: Mapping[str, str]) -> Tool:
    """Return the document of a tool, in OpenAI's function format.

    Args:
      name: the name of the tool.
      description: the description of the tool.
      parameters: the JSON type of each parameter, by name; all of them are required.

    >>> made = tool("look", "opening hour", {"place": STRING})
    >>> made["function"]["parameters"]["properties"]
    {'place': {'type': 'string'}}
    """
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def as_tools(functions: Iterable[Mapping[str, Any]]) -> Tools:
    """Return function objects as a list of tools.

    >>> as_tools([{"name": "look"}])
    [{'type': 'function', 'function': {'name': 'look'}}]
    """
    return [{"type": "function", "function": dict(one)} for one in functions]


def reworded(
    function: Mapping[str, Any],
    name: str,
    description: str,
    arguments: Mapping[str, str],
    code: str = "",
) -> dict[str, Any]:
    """Return the function object of a tool in other words; all else is as it was.

    Args:
      function: a function object, whose parameters may be any JSON schema.
      name: the name that it gets.
      description: the description that it gets.
      arguments: the new names of arguments, by their names in `function`; the new
        paths of nested ones, by their paths.
      code: the name of a parameter to add, a required string; "" adds none.

    >>> look = tool("look", "opening hour", {"place": STRING})["function"]
    >>> made = reworded(look, "see", "hour of opening", {"place": "venue"})
    >>> made["name"], made["parameters"]["properties"], made["parameters"]["required"]
    ('see', {'venue': {'type': 'string'}}, ['venue'])
    """
    made = {**function, "name": name, "description": description}
    schema = schema_paths.renamed(function.get("parameters") or {}, arguments)
    if code:
        schema.setdefault("type", "object")
        schema["properties"] = {**schema.get("properties", {}), code: {"type": STRING}}
        required = [key for key in schema.get("required", ()) if key != code]
        schema["required"] = [*required, code]
    if schema:
        made["parameters"] = schema
    return made


def opening(request: str) -> Messages:
    """Return the messages before the first reply: instructions and request.

    >>> [message["role"] for message in opening("When does Oak Bay open?")]
    ['system', 'user']
    """
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": request},
    ]


def call(name: str, arguments: Mapping[str, Any]) -> Message:
    """Return an assistant message with one call, whose arguments are an object.

    >>> call("look", {"place": "Oak Bay"})["tool_calls"][0]["function"]
    {'name': 'look', 'arguments': {'place': 'Oak Bay'}}
    """
    message = _with_calls("", [Call(CALL_ID, name, "")])
    message["tool_calls"][0]["function"]["arguments"] = arguments
    return message


def assistant(content: str, calls: Sequence[Call] = ()) -> Message:
    """Return an assistant message as it is sent: the arguments of calls are texts.

    Args:
      content: the text of the message. If it is empty and there are calls, the message
        has null instead.
      calls: the tool calls of the message.

    >>> assistant("Let me see.", [Call("1", "look", "{}")])["tool_calls"]
    [{'id': '1', 'type': 'function', 'function': {'name': 'look', 'arguments': '{}'}}]
    >>> assistant("Answer: 9")
    {'role': 'assistant', 'content': 'Answer: 9'}
    """
    if not calls:
        return {"role": "assistant", "content": content}
    return _with_calls(content or None, calls)


def result(name: str, content: str) -> Message:
    """Return the tool message that answers the call of `call`.

    >>> result("look", "9")["role"]
    'tool'
    """
    return {"role": "tool", "name": name, "tool_call_id": CALL_ID, "content": content}


def for_template(messages: Sequence[Mapping[str, Any]]) -> Messages:
    """Return messages in the form that chat templates expect.

    The text of a call's arguments becomes an object, unless it is not a JSON object,
    and a tool message gets the name of its tool. Only role, content, calls and ids are
    kept.

    Args:
      messages: messages that `serving/protocol.py` has checked.

    >>> messages = [assistant("", [Call("1", "look", '{"place":"Oak Bay"}')])]
    >>> for_template(messages)[0]["tool_calls"][0]["function"]["arguments"]
    {'place': 'Oak Bay'}
    """
    names: dict[str, str] = {}
    written = []
    for message in messages:
        made = {"role": message["role"], "content": message.get("content") or ""}
        if called := message.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in called}
            made["tool_calls"] = [
                {
                    "type": "function",
                    "id": call["id"],
                    "function": {
                        "name": call["function"]["name"],
                        "arguments": _object(call["function"]["arguments"]),
                    },
                }
                for call in called
            ]
        if message["role"] == "tool":
            call_id = message.get("tool_call_id", "")
            made |= {"tool_call_id": call_id, "name": names.get(call_id, "")}
        written.append(made)
    return written


# Reading.


def calls(message: Mapping[str, Any]) -> list[Call]:
    """Return the calls of a reply, in order; malformed replies raise no error.

    Arguments may be a text or an object. Arguments that are not a JSON object become
    "", and so does a name that is not a string.

    >>> calls(call("look", {"place": "Oak Bay"}))
    [Call(id='call00000', name='look', arguments='{"place": "Oak Bay"}')]
    >>> calls({"tool_calls": [{"function": {"name": "look", "arguments": "[1"}}]})
    [Call(id='call00000', name='look', arguments='')]
    >>> calls({"content": "Answer: 9"})
    []
    """
    entries = message.get("tool_calls")
    made = []
    for entry in entries if isinstance(entries, list) else ():
        entry = entry if isinstance(entry, dict) else {}
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps({} if arguments is None else arguments)
        arguments = arguments.strip() or "{}"  # some servers send "" for no arguments
        try:
            is_object = isinstance(json.loads(arguments, **STRICT), dict)
        except (ValueError, RecursionError):
            is_object = False
        name = name[:MAX_NAME] if isinstance(name, str) else ""
        call_id = str(entry.get("id") or "")[:MAX_CHARS]
        if not call_id or call_id in [call.id for call in made]:
            call_id = f"{CALL_ID[:4]}{len(made):05}"  # a result names its call
        texts = call_id, name, arguments if is_object else ""
        made.append(Call(*map(valid_text, texts)))
    return made


def content(message: Mapping[str, Any]) -> str:
    """Return the text of a message, joining the text parts if its content is a list.

    >>> content({"content": [{"type": "text", "text": "Answer: "}, {"text": "9"}]})
    'Answer: 9'
    >>> content({"content": None})
    ''
    """
    text = message.get("content") or ""
    if isinstance(text, list):
        parts = [part.get("text") for part in text if isinstance(part, dict)]
        text = "".join(part for part in parts if isinstance(part, str))
    return valid_text(text) if isinstance(text, str) else ""


def last_line(text: str) -> str:
    """Return the last line of a reply without a call, which decides what it says.

    It is "" if the line starts with `{`, since a call that is written as text does not
    count, and if a replacement character shows that the server could not decode what
    the model wrote.

    >>> last_line("It opens at nine.\\n\\nAnswer: 9 ")
    'Answer: 9'
    >>> last_line('{"name":"look","arguments":{}}')
    ''
    """
    line = re.split("[\n\r]", text.strip(" \t\n\r"))[-1].strip(" \t")
    unread = line.startswith("{") or "\N{REPLACEMENT CHARACTER}" in text
    return "" if unread else line


def as_history(reply: Mapping[str, Any]) -> Message:
    """Return a reply as it is sent back to the agent in the next request.

    Servers do not accept everything that they send themselves: arguments that are not a
    JSON object, or are longer than `MAX_CHARS`, are replaced by an empty object.
    Content is cut to `MAX_CHARS`.

    >>> as_history({"content": "Answer: 9", "refusal": None, "audio": None})
    {'role': 'assistant', 'content': 'Answer: 9'}
    """
    shown = []
    for one in calls(reply):
        fits = 0 < len(one.arguments) <= MAX_CHARS
        shown.append(one if fits else one._replace(arguments="{}"))
    return assistant(content(reply)[:MAX_CHARS], shown)


def valid_text(text: str) -> str:
    """Return a text that can be encoded as UTF-8: "?" replaces each surrogate.

    >>> valid_text("caf\\u00e9 \\ud83d")
    'café ?'
    """
    return text.encode(errors="replace").decode()


def _with_calls(content: str | None, calls: Sequence[Call]) -> Message:
    entries = [
        {
            "id": one.id,
            "type": "function",
            "function": {"name": one.name, "arguments": one.arguments},
        }
        for one in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": entries}


def _object(arguments: str) -> Any:
    """Return the JSON object that a text contains; the text itself if it has none."""
    try:
        value = json.loads(arguments, **STRICT)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments
