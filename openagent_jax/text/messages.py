"""Read and write the messages and tools of OpenAI's chat protocol.

This is the one place that knows how a message, a call of a tool and the document of a
tool are laid out as JSON. Messages and tools are plain dictionaries, as JSON has them.
What a chat template makes of them is in `chat`, what a task says in them is up to the
environment, and what an HTTP request may hold is checked in `serving/protocol.py`.

Two forms of a call occur. On the wire, its arguments are a text that holds a JSON
object; chat templates want the object itself. `call` writes the second form,
`assistant` the first, `calls` reads both, and `for_template` turns the first into the
second.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
CALL_ID = "call00000"  # the id of a call, where a template wants one

MAX_CHARS = 20_000  # of a reply, or of arguments, that an agent is shown again
MAX_NAME = 256  # letters of the name of a called tool; the protocol allows 64


class Call(NamedTuple):
    """A call of a tool, as a reply makes it."""

    id: str
    name: str
    arguments: str  # the JSON text of an object; "" if what was written is no object

    @property
    def text(self) -> str:
        """The call as one JSON object, which `reply_scan` understands; "" if broken.

        >>> Call("1", "look", '{"place":"Oak Bay"}').text
        '{"name":"look","arguments":{"place":"Oak Bay"}}'
        """
        if not self.arguments:
            return ""
        return f'{{"name":{json.dumps(self.name)},"arguments":{self.arguments}}}'


# Writing.


def tool(name: str, description: str, parameters: Mapping[str, str]) -> Tool:
    """Return the document of a tool.

    Args:
      name: of the tool.
      description: of the tool.
      parameters: the JSON type of each parameter; all of them are required.

    >>> made = tool("look", "opening hour", {"place": STRING})
    >>> made["function"]["parameters"]["properties"]
    {'place': {'type': 'string'}}
    """
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def opening(request: str) -> Messages:
    """Return the messages in front of the first reply: instructions and request.

    >>> [message["role"] for message in opening("When does Oak Bay open?")]
    ['system', 'user']
    """
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": request},
    ]


def call(name: str, arguments: Mapping[str, Any]) -> Message:
    """Return a message of the agent with one call, whose arguments are an object.

    >>> call("look", {"place": "Oak Bay"})["tool_calls"][0]["function"]
    {'name': 'look', 'arguments': {'place': 'Oak Bay'}}
    """
    message = _with_calls("", [Call(CALL_ID, name, "")])
    message["tool_calls"][0]["function"]["arguments"] = arguments
    return message


def assistant(content: str, calls: Sequence[Call] = ()) -> Message:
    """Return a message of the agent as it is sent: arguments are texts.

    Args:
      content: what stands beside the calls; null if it is empty and there are calls.
      calls: of tools.

    >>> assistant("Let me see.", [Call("1", "look", "{}")])["tool_calls"]
    [{'id': '1', 'type': 'function', 'function': {'name': 'look', 'arguments': '{}'}}]
    >>> assistant("Answer: 9")
    {'role': 'assistant', 'content': 'Answer: 9'}
    """
    if not calls:
        return {"role": "assistant", "content": content}
    return _with_calls(content or None, calls)


def result(name: str, content: str) -> Message:
    """Return the message with the result of the call that `call` writes.

    >>> result("look", "9")["role"]
    'tool'
    """
    return {"role": "tool", "name": name, "tool_call_id": CALL_ID, "content": content}


def for_template(messages: Sequence[Mapping[str, Any]]) -> Messages:
    """Return messages as chat templates want them.

    The arguments of a call become an object, unless their text holds none, and the
    message of a result gets the name of the tool. Nothing else than role, content,
    calls and ids is kept.

    Args:
      messages: as `serving/protocol.py` has checked them.

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
    """Return the calls of a reply, in their order; nothing in it raises an error.

    Arguments may be a text or an object. Those that hold no JSON object become "", and
    so does a name that is no text.

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
            is_object = isinstance(json.loads(arguments), dict)
        except (ValueError, RecursionError):
            is_object = False
        name = name[:MAX_NAME] if isinstance(name, str) else ""
        call_id = str(entry.get("id") or CALL_ID)[:MAX_CHARS]
        texts = call_id, name, arguments if is_object else ""
        made.append(Call(*map(valid_text, texts)))
    return made


def content(message: Mapping[str, Any]) -> str:
    """Return the text of a message; if its content has parts, the texts among them.

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
    """Return the line that decides what a reply without a call says.

    It is "" where the last line is the JSON of a call, which is only text if it does
    not come as a call, and where a replacement character shows that the server could
    not decode what the model wrote.

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

    Servers do not take back all that they have sent: arguments that are no JSON object
    are replaced by an empty one, and so are arguments of more than `MAX_CHARS`
    characters. A longer content is cut.

    >>> as_history({"content": "Answer: 9", "refusal": None, "audio": None})
    {'role': 'assistant', 'content': 'Answer: 9'}
    """
    shown = []
    for one in calls(reply):
        fits = 0 < len(one.arguments) <= MAX_CHARS
        shown.append(one if fits else one._replace(arguments="{}"))
    return assistant(content(reply)[:MAX_CHARS], shown)


def valid_text(text: str) -> str:
    """Return a text that can be encoded: "?" replaces each half of a surrogate pair.

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
    """Return the object that a text holds; the text itself if it holds none."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments
