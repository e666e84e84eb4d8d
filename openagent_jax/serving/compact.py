"""Write messages and tools in the compact style, in plain Python.

This module replaces the chat template for the small backbone, which has none. It
converts OpenAI's messages to texts according to a `Style`, whereas `text/chat.py`
derives a `Style` from a template.
"""

import functools
import json
import re
from typing import Any

import jax.numpy as jnp
import numpy as np

from openagent_jax.text import chat, documents, nesting
from openagent_jax.text import style as styles
from openagent_jax.text.messages import Message, Messages, Tools
from openagent_jax.text.style import Layout, Style

MAX_LEVELS = 8  # of nested arguments; deeper ones are written as a text
MAX_ARGUMENTS = 64  # of a call, because each number of arguments needs a layout
# The end of a description may name tools that must be called first.
NEEDS = re.compile(
    r"(?P<text>.*?)"
    rf"(?:{chat.CODE_FROM[0]}(?P<code_from>\S+?){chat.CODE_FROM[1]})?"
    rf"(?:{chat.CALL_AFTER[0]}(?P<call_after>\S+?){chat.CALL_AFTER[1]})?",
    re.DOTALL,
)


def render(messages: Messages, tools: Tools, add_generation_prompt: bool) -> list[str]:
    """Return a conversation as texts, which must be tokenized separately.

    System messages are left out, because this style cannot express them.

    Args:
      messages: the messages of the conversation. The arguments of a call must be an
        object (see `messages.for_template`); others are left out.
      tools: the tools, in OpenAI's function format.
      add_generation_prompt: whether the reply of the agent comes next.

    Raises:
      ValueError: a call has too many arguments.

    >>> from openagent_jax.text import messages
    >>> request = {"role": "user", "content": "When does it open?"}
    >>> look = messages.tool("look", "opening hour", {"place": "string"})
    >>> "".join(render([request], [look], True)[2:11])
    '<|system|>{"description":"opening hour","name":"look","parameters":["place"]}'
    >>> "".join(render([request], [], True))
    '<|user|>When does it open?<|system|><|user|>When does it open?<|assistant|>'
    """
    functions = [tool["function"] for tool in tools]
    arguments = [_arguments(call) for message in messages for call in _calls(message)]
    most = max(map(len, arguments), default=0)
    if most > MAX_ARGUMENTS:
        raise ValueError(
            f"a call has {most} arguments; this model supports up to {MAX_ARGUMENTS}"
        )
    style = _style(most)
    texts = []
    if style.request_first:
        asked = next((x for x in messages if x["role"] == "user"), None)
        texts += [style.user, asked.get("content") or ""] if asked else []
    texts.append(style.system)
    for function in functions:
        texts += _document(style, function)
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role == "user":
            texts += [style.user, content]
        elif role == "tool":
            texts += [style.tool_open, content]
        elif role == "assistant":
            texts += [style.assistant, content]
            for call in _calls(message):
                texts += _call(style, call)
            texts.append(style.end)
    return texts + [style.assistant] * add_generation_prompt


_style = functools.cache(styles.compact)


def _document(style: Style[str], function: dict[str, Any]) -> list[str]:
    needs = _needs(function)
    names = list((function.get("parameters") or {}).get("properties") or {})
    needed = []
    for key in ("code_from", "call_after"):
        before, after = getattr(style, key)
        needed += [before, needs[key], after] if needs[key] else []
    return _fill(
        documents.compact(function, names, _code(function)),
        {
            styles.TEXT: [_quoted(needs["text"])],
            styles.NAME: [_quoted(function["name"])],
            styles.ARGUMENT: [*map(_quoted, names)],
            styles.NEEDS: needed,
        },
    )


def _call(style: Style[str], call: dict[str, Any]) -> list[str]:
    name, arguments = call["function"]["name"], _arguments(call)
    slots = {styles.NAME: [_quoted(name)]}
    leaves = list(nesting.flat(arguments))
    if 1 < max((len(path) for path, _ in leaves), default=1) <= MAX_LEVELS:
        return _nested_call(style, leaves, slots)
    slots[styles.ARGUMENT] = [*map(_quoted, arguments)]
    slots[styles.VALUE] = [*map(_quoted, arguments.values())]
    return _fill(style.calls[len(arguments)], slots)


def _nested_call(
    style: Style[str],
    leaves: list[tuple[nesting.Path, Any]],
    slots: dict[int, list[str]],
) -> list[str]:
    """Return a call whose arguments are nested, by its leaves."""
    nested = styles.with_nesting(style).nested
    assert nested
    texts = [""]

    def one(text: str) -> int:
        texts.append(text)
        return len(texts) - 1

    levels = max(len(path) for path, _ in leaves) - 1
    symbols: dict[str, int] = {}  # equal keys need equal symbols
    keys = [
        nesting.encoded(
            path, levels, lambda key: symbols.setdefault(key, one(_quoted(key)))
        )
        for path, _ in leaves
    ]
    there = jnp.ones(len(leaves), bool)
    pieces = nesting.pieces(
        nested.syntax.mapped(one),
        jnp.array([outer for outer, _ in keys], jnp.int32),
        jnp.array([own for _, own in keys], jnp.int32),
        there,
        ~there,
        jnp.array([[one(_quoted(value))] for _, value in leaves], jnp.int32),
    )
    body = [texts[symbol] for symbol in np.asarray(pieces) if symbol]
    return [*_fill(nested.before, slots), *body, *_fill(nested.after, slots)]


def _fill(layout: Layout[str], slots: dict[int, list[str]]) -> list[str]:
    texts = []
    for piece in layout:
        if piece.kind == styles.LITERAL:
            texts.append(piece.text)
        elif piece.kind in (styles.TEXT, styles.NEEDS):
            texts += slots[piece.kind]
        else:
            texts.append(slots[piece.kind][piece.index])
    return texts


def _needs(function: dict[str, Any]) -> dict[str, str]:
    """Split a description into its text and the tools that its end names."""
    match = NEEDS.fullmatch(function.get("description") or "")
    assert match  # every text matches
    return {key: text or "" for key, text in match.groupdict().items()}


def _code(function: dict[str, Any]) -> str:
    """Return the parameter that stands for the code that a tool needs; "" if none."""
    return styles.CODE if _needs(function)["code_from"] else ""


def _calls(message: Message) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments")
    return arguments if isinstance(arguments, dict) else {}


def _quoted(value: Any) -> str:
    """Return a value as the content of a JSON string: here, all values are strings."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False)[1:-1]
