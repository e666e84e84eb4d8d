"""An episode as messages and tools: what is said to an agent that speaks OpenAI's
protocol, and how its replies are read.

Host side: tasks are in NumPy here, and the lexicon is of the compact style, whose texts
are as they are. Replies are read by the parser of the sandbox, so that one rule holds
for all agents (see `parse`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from openagent_jax import types
from openagent_jax.sandbox import chat, style
from openagent_jax.sandbox.lexicon import Lexicon
from openagent_jax.types import Action, Task

MAX_CHARS = 20_000  # of a reply, or of arguments, that an agent is shown again
MAX_NAME = 256  # letters of the name of a called tool; the protocol has 64

Message = dict[str, Any]  # as `chat` makes them


def texts(lexicon: Lexicon) -> list[str]:
    """The text of every symbol."""
    table = lexicon.texts
    flat = np.asarray(table.flat).tobytes()
    starts, lengths = np.asarray(table.start), np.asarray(table.length)
    spans = zip(starts.tolist(), lengths.tolist(), strict=True)
    return [flat[start : start + length].decode() for start, length in spans]


class Writer:
    """Writes the episodes of one lexicon.

    Raises:
      ValueError: the lexicon is of another style than the compact one.
    """

    def __init__(self, lexicon: Lexicon):
        self._style, self._texts = lexicon.style, texts(lexicon)
        if self._style.marks.call_open or self._style.code_is_parameter:
            raise ValueError("conversation: the lexicon is not of the compact style")

    def tools(self, task: Task) -> list[dict[str, Any]]:
        """The documents, in OpenAI's function format."""
        order = np.argsort(task.tools.place, kind="stable")
        return [self._document(task, int(n)) for n in order if task.tools.visible[n]]

    def opening(self, task: Task) -> list[Message]:
        """What stands before the agent's first words."""
        constants = np.where(task.shown, task.constants, self._style.unknown)
        phrase = (s if s >= 0 else constants[-1 - s] for s in np.asarray(task.phrase))
        return chat.opening(self._join(phrase))

    def message(self, task: Task, action: Action) -> Message:
        """What the agent says; nothing that can be written, if it is malformed."""
        if action.kind != types.CALL:
            said = {
                types.ANSWER: style.ANSWER + self._texts[max(action.value, 0)],
                types.REFUSE: style.REFUSE,
                types.ASK: style.ASK,
            }
            return {"role": "assistant", "content": said.get(int(action.kind), "")}
        n, arguments = int(action.call.tool), {}
        for a, value in enumerate(np.asarray(action.call.args)):
            if value >= 0:
                text = self._texts[value]
                name = self._texts[task.tools.arg_name[n, a]]
                arguments[name] = int(text) if self._numeric(task, n, a) else text
        if action.call.code >= 0:
            arguments[style.CODE] = self._texts[action.call.code]
        return chat.call(self._texts[task.tools.name[n]], arguments)

    def shown(self, pieces: Sequence[int]) -> tuple[str, str] | None:
        """Role and content of what is shown to the agent; None if it is nothing.

        Args:
          pieces: as `render.observation` makes them.
        """
        if not pieces[0]:
            return None
        role = "user" if pieces[0] == self._style.reply_open else "tool"
        return role, self._join(pieces[1:-1])

    def _document(self, task: Task, n: int) -> dict[str, Any]:
        tools, parameters = task.tools, {}
        for a in np.flatnonzero(tools.arg_high[n] > tools.arg_low[n]):
            kind = chat.INTEGER if self._numeric(task, n, int(a)) else chat.STRING
            parameters[self._texts[tools.arg_name[n, a]]] = kind
        description = self._join(tools.description[n])
        for row, (before, after) in (
            (tools.code_from[n], chat.CODE_FROM),
            (tools.call_after[n], chat.CALL_AFTER),
        ):
            if row >= 0:
                description += before + self._texts[tools.name[row]] + after
        if tools.code_from[n] >= 0:
            parameters[style.CODE] = chat.STRING
        return chat.tool(self._texts[tools.name[n]], description, parameters)

    def _numeric(self, task: Task, n: int, a: int) -> bool:
        low, high = self._style.numbers
        tools = task.tools
        return bool(tools.arg_low[n, a] >= low and tools.arg_high[n, a] <= high)

    def _join(self, pieces: Any) -> str:
        return "".join(self._texts[symbol] for symbol in pieces)


class Call(NamedTuple):
    """What a reply asks for."""

    id: str
    name: str
    arguments: str  # the JSON of an object; "" if it is none

    @property
    def text(self) -> str:
        """In the compact style."""
        if not self.arguments:
            return ""
        return f'{{"name":{json.dumps(self.name)},"arguments":{self.arguments}}}'


def calls(message: Mapping[str, Any]) -> list[Call]:
    """The calls of a reply, in their order."""
    found = []
    for call in message.get("tool_calls") or ():
        call = call if isinstance(call, dict) else {}
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps({} if arguments is None else arguments)
        arguments = arguments.strip() or "{}"  # some write nothing for nothing
        try:
            fine = isinstance(json.loads(arguments), dict)
        except (ValueError, RecursionError):
            fine = False
        name = name[:MAX_NAME] if isinstance(name, str) else ""
        id_ = _sound(str(call.get("id") or chat.ID))
        found.append(Call(id_, name, arguments * fine))
    return found


def content(message: Mapping[str, Any]) -> str:
    """The text of a reply; of several parts, all that are text."""
    said = message.get("content") or ""
    if isinstance(said, str):
        return said
    parts = said if isinstance(said, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def last_line(text: str) -> str:
    """What the parser is to read of a text that calls no tool; the JSON of a call is
    only text there. Where a server has put a replacement character, it was no text."""
    line = re.split("[\n\r]", text.strip(" \t\n\r"))[-1].strip(" \t")
    unread = line.startswith("{") or "\N{REPLACEMENT CHARACTER}" in text
    return "" if unread else line


def repeated(reply: Mapping[str, Any]) -> Message:
    """A reply as it stands in the conversation from then on.

    Servers do not take back all that they gave: arguments that are no JSON are left
    out, and so is what is longer than anyone needs. Half a surrogate pair, which JSON
    can write, cannot be sent at all.
    """
    said, shown = _sound(content(reply)[:MAX_CHARS]), []
    for call in calls(reply):
        fits = 0 < len(call.arguments) <= MAX_CHARS
        arguments = _sound(call.arguments) if fits else "{}"
        function = {"name": _sound(call.name), "arguments": arguments}
        shown.append({"id": call.id, "type": "function", "function": function})
    if not shown:
        return {"role": "assistant", "content": said}
    return {"role": "assistant", "content": said or None, "tool_calls": shown}


def _sound(text: str) -> str:
    return text.encode(errors="replace").decode()
