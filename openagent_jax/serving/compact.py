"""Write messages and tools in the compact style, in plain Python.

For the small backbone, which has no chat template, this is what a template is for other
models. It is the inverse of `text/chat.py`: from OpenAI's messages to the texts of a
`Style`.
"""

import functools
import json
import re
from typing import Any

from openagent_jax.text import chat
from openagent_jax.text import style as styles
from openagent_jax.text.messages import Message, Messages, Tools
from openagent_jax.text.style import Layout, Style

MAX_ARGUMENTS = 64  # of a tool: there is a layout for each number of them
# The end of a description may name the tools that must be called before.
NEEDS = re.compile(
    r"(?P<text>.*?)"
    rf"(?:{chat.CODE_FROM[0]}(?P<code_from>\S+?){chat.CODE_FROM[1]})?"
    rf"(?:{chat.CALL_AFTER[0]}(?P<call_after>\S+?){chat.CALL_AFTER[1]})?",
    re.DOTALL,
)


def render(messages: Messages, tools: Tools, speaks: bool) -> list[str]:
    """Return a conversation as texts, which are to be tokenized one by one.

    A system message has no place in this style, and is left out.

    Args:
      messages: of the conversation; the arguments of calls are objects (see
        `messages.for_template`), and other arguments are left out.
      tools: in OpenAI's function format.
      speaks: whether the reply of the agent comes next.

    Raises:
      ValueError: a tool has too many arguments.

    >>> from openagent_jax.text import messages
    >>> request = {"role": "user", "content": "When does it open?"}
    >>> look = messages.tool("look", "opening hour", {"place": "string"})
    >>> "".join(render([request], [look], True)[:8])
    '<|system|>{"description":"opening hour","name":"look","parameters":["place"]'
    >>> render([request], [], True)
    ['<|system|>', '<|user|>', 'When does it open?', '<|assistant|>']
    """
    functions = [tool["function"] for tool in tools]
    arguments = [_arguments(call) for message in messages for call in _calls(message)]
    sizes = [len(_parameters(x)) for x in functions] + [len(x) for x in arguments]
    most = max(sizes, default=0)
    if most > MAX_ARGUMENTS:
        raise ValueError(
            f"a tool has {most} arguments; this model supports up to {MAX_ARGUMENTS}"
        )
    style = _style(most)
    texts = [style.system]
    for function in functions:
        texts += _document(style, function)
    purposes = {x["name"]: _needs(x)["text"] for x in functions}
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role == "user":
            texts += [style.user, content]
        elif role == "tool":
            texts += [style.tool_open, content]
        elif role == "assistant":
            texts += [style.assistant, content]
            for call in _calls(message):
                texts += _call(style, call, purposes)
            texts.append(style.end)
    return texts + [style.assistant] * speaks


_style = functools.cache(styles.compact)


def _document(style: Style[str], function: dict[str, Any]) -> list[str]:
    needs, names = _needs(function), _parameters(function)
    needed = []
    for key in ("code_from", "call_after"):
        before, after = getattr(style, key)
        needed += [before, needs[key], after] if needs[key] else []
    return _fill(
        style.documents[len(names)],
        {
            styles.TEXT: [_quoted(needs["text"])],
            styles.NAME: [_quoted(function["name"])],
            styles.ARGUMENT: [*map(_quoted, names)],
            styles.NEEDS: needed,
        },
    )


def _call(
    style: Style[str], call: dict[str, Any], purposes: dict[str, str]
) -> list[str]:
    name, arguments = call["function"]["name"], _arguments(call)
    return _fill(
        style.calls[len(arguments)],
        {
            styles.TEXT: [_quoted(purposes.get(name, ""))],
            styles.NAME: [_quoted(name)],
            styles.ARGUMENT: [*map(_quoted, arguments)],
            styles.VALUE: [*map(_quoted, arguments.values())],
        },
    )


def _fill(layout: Layout[str], slots: dict[int, list[str]]) -> list[str]:
    texts = []
    for piece in layout:
        if piece.kind == styles.LITERAL:
            texts.append(piece.text)
        elif piece.kind == styles.NEEDS:
            texts += slots[piece.kind]
        else:
            texts.append(slots[piece.kind][piece.index])
    return texts


def _needs(function: dict[str, Any]) -> dict[str, str]:
    """Return the description, and the tools that it names at its end."""
    match = NEEDS.fullmatch(function.get("description") or "")
    assert match  # every text matches
    return {key: text or "" for key, text in match.groupdict().items()}


def _parameters(function: dict[str, Any]) -> list[str]:
    """Return the names of the parameters, without a code that `_needs` implies."""
    schema = function.get("parameters") or {}
    names = [*(schema.get("properties") or {})]
    if _needs(function)["code_from"]:
        names = [name for name in names if name != styles.CODE]
    return names


def _calls(message: Message) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments")
    return arguments if isinstance(arguments, dict) else {}


def _quoted(value: Any) -> str:
    """Return a value as it stands between quotes: all values are strings here."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False)[1:-1]
