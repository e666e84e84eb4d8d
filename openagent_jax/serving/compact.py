"""Messages and tools in our compact form, in plain Python.

The inverse of what `sandbox.chat` does with a template: from OpenAI's messages back to
the texts of a `Style`, for a backbone that has no template.
"""

import functools
import json
import re
from typing import Any

from openagent_jax.sandbox import chat
from openagent_jax.sandbox import style as styles
from openagent_jax.sandbox.chat import Messages
from openagent_jax.sandbox.style import Layout, Style

MAX_ARGUMENTS = 64  # of a tool: there is a layout for each number of them
# What the description of a tool says of another one, at its end.
NEEDS = re.compile(
    r"(?P<text>.*?)"
    rf"(?:{chat.CODE_FROM[0]}(?P<code_from>\S+?){chat.CODE_FROM[1]})?"
    rf"(?:{chat.CALL_AFTER[0]}(?P<call_after>\S+?){chat.CALL_AFTER[1]})?",
    re.DOTALL,
)


def render(messages: Messages, tools: list[dict[str, Any]], speaks: bool) -> list[str]:
    """What `chat.Template.render` is for a template, in pieces that are spelled apart.

    A system message has no place here, and is left out.

    Args:
      messages: of the conversation; arguments of calls are objects, or text.
      tools: in OpenAI's function format.
      speaks: the agent is to speak next.

    Raises:
      ValueError: a tool has too many arguments.
    """
    functions = [tool["function"] for tool in tools]
    given = [_arguments(call) for message in messages for call in _calls(message)]
    sizes = [len(_parameters(x)) for x in functions] + [len(x) for x in given]
    most = max(sizes, default=0)
    if most > MAX_ARGUMENTS:
        raise ValueError(
            f"a tool has {most} arguments; this model can be told {MAX_ARGUMENTS}"
        )
    style = _style(most)
    pieces = [style.system]
    for function in functions:
        pieces += _document(style, function)
    purposes = {x["name"]: _needs(x)["text"] for x in functions}
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role == "user":
            pieces += [style.user, content]
        elif role == "tool":
            pieces += [style.tool_open, content]
        elif role == "assistant":
            pieces += [style.assistant, content]
            for call in _calls(message):
                pieces += _call(style, call, purposes)
            pieces.append(style.end)
    return pieces + [style.assistant] * speaks


_style = functools.cache(styles.compact)


def _document(style: Style[str], function: dict[str, Any]) -> list[str]:
    needs, names = _needs(function), _parameters(function)
    about = []
    for key in ("code_from", "call_after"):
        before, after = getattr(style, key)
        about += [before, needs[key], after] if needs[key] else []
    return _filled(
        style.documents[len(names)],
        {
            styles.TEXT: [_quoted(needs["text"])],
            styles.NAME: [_quoted(function["name"])],
            styles.ARGUMENT: [*map(_quoted, names)],
            styles.NEEDS: about,
        },
    )


def _call(
    style: Style[str], call: dict[str, Any], purposes: dict[str, str]
) -> list[str]:
    name, arguments = call["function"]["name"], _arguments(call)
    return _filled(
        style.calls[len(arguments)],
        {
            styles.TEXT: [_quoted(purposes.get(name, ""))],
            styles.NAME: [_quoted(name)],
            styles.ARGUMENT: [*map(_quoted, arguments)],
            styles.VALUE: [*map(_quoted, arguments.values())],
        },
    )


def _filled(layout: Layout[str], slots: dict[int, list[str]]) -> list[str]:
    pieces = []
    for piece in layout:
        if piece.kind == styles.LITERAL:
            pieces.append(piece.text)
        elif piece.kind == styles.NEEDS:
            pieces += slots[piece.kind]
        else:
            pieces.append(slots[piece.kind][piece.index])
    return pieces


def _needs(function: dict[str, Any]) -> dict[str, str]:
    """The description, and the tools that it names at its end."""
    found = NEEDS.fullmatch(function.get("description") or "")
    assert found  # any text does
    return {key: text or "" for key, text in found.groupdict().items()}


def _parameters(function: dict[str, Any]) -> list[str]:
    """Their names; a code that comes from another tool is told by its need."""
    schema = function.get("parameters") or {}
    names = [*(schema.get("properties") or {})]
    if _needs(function)["code_from"]:
        names = [name for name in names if name != styles.CODE]
    return names


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Of a call; what is no object is none."""
    given = call["function"].get("arguments")
    return given if isinstance(given, dict) else {}


def _quoted(value: Any) -> str:
    """Between the quotes of JSON: there all values are strings."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False)[1:-1]
