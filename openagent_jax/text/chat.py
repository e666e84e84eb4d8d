"""Derive the style of any chat template from what it writes.

A chat template is a program. This module renders conversations whose names and values
are marker strings; the text that the template writes around the markers is the style.
A template must meet two assumptions: adding messages does not change the text of
earlier ones, and a call is a JSON object.
"""

import functools
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from openagent_jax.text import nesting
from openagent_jax.text import style as styles
from openagent_jax.text.messages import (
    INTEGER,
    STRING,
    Messages,
    Tools,
    as_tools,
    call,
    opening,
    result,
    reworded,
    tool,
)
from openagent_jax.text.style import Layout, Piece, Style, literal

CODE_FROM = ", needs the code from ", ""
CALL_AFTER = ", to be called after ", ""

# Markers: strings that no template writes itself, and numbers for numeric values.
NAME, TEXT, REQUEST, RESULT, REPLY = (f"xqz{name}zqx" for name in "NTURW")
ARGUMENTS, TYPES, STRINGS = ([f"xqz{name}{i}zqx" for i in range(9)] for name in "APV")
NUMBERS = [770001 + i for i in range(9)]
SPECIAL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")  # may be a special token
MUST_BE_SPECIAL = re.compile(r"<\|[^|<>\s]+\|>")


@dataclass(frozen=True)
class Template:
    """A chat template, and a test for the special tokens of its tokenizer."""

    # (messages, tools, whether the reply of the agent comes next) -> text
    render: Callable[[Messages, Tools, bool], str]
    is_special: Callable[[str], bool]  # whether a text is a special token


def read(template: Template, max_args: int) -> Style[str]:
    """Return the style of a chat template.

    Args:
      template: the template to analyse.
      max_args: the largest number of arguments of a tool, not counting the code.

    Raises:
      ValueError: the template does not support tools, writes calls in an unsupported
        way, or needs a special token that the tokenizer does not have.
    """
    system, documents, between, user, assistant = _prompt(template, max_args + 1)
    texts = styles.ANSWER + RESULT, styles.REFUSE, styles.ASK
    contents, ends, replies = zip(*(_content(template, x) for x in texts), strict=True)
    (end, (reply_open, reply_close)), *others = {*zip(ends, replies, strict=True)}
    nums = range(max_args + 2)
    calls, results = zip(*(_call(template, num, end) for num in nums), strict=True)
    (tool_open, tool_close), *more = {*results}
    if others or more:
        raise _unknown("the text after a message depends on the message", tool_open)
    answer, refuse, ask = contents
    style = Style(
        request_first=False,
        system=system,
        documents=documents,
        between=between,
        user=user,
        assistant=assistant,
        code_from=CODE_FROM,
        call_after=CALL_AFTER,
        code_is_parameter=True,
        string=STRING,
        integer=INTEGER,
        calls=calls,
        answer=answer,
        refuse=refuse,
        ask=ask,
        end=end,
        tool_open=tool_open,
        tool_close=tool_close,
        reply_open=reply_open,
        reply_close=reply_close,
        **_json(calls[1]),
        **styles.shared(_escape(template)),
        template=template,
    )
    _check(template, style)
    _check_tokens(template, style)
    return style


def document(
    template: Template,
    style: Style[str],
    function: Mapping[str, Any],
    arguments: Sequence[str],
    code: str = "",
    keys: Mapping[str, int] | None = None,
) -> Layout[str]:
    """Return the layout of one tool's document, as the template writes it.

    Args:
      template: the template.
      style: its style.
      function: the function object of the tool.
      arguments: the names of the arguments that are slots, in the order of the slots.
      code: the name of a parameter that is added; "" adds none.
      keys: the slot of each key, if arguments are paths; see `documents.compact`.

    Raises:
      ValueError: the template does not write the document between the texts that
        surround documents in the style.
    """
    index = {name: i for i, name in enumerate(arguments)} if keys is None else keys
    words = {key: f"xqzA{i}zqx" for key, i in index.items()}
    marks = words
    if keys is not None:
        paths = map(nesting.parse, arguments)
        marks = {
            nesting.written(path): nesting.written([words.get(str(x), x) for x in path])
            for path in paths
        }
    marked = reworded(function, NAME, TEXT, marks, code)
    text = template.render(opening(REQUEST), as_tools([marked]), True)
    begin, end = style.system, f"{style.user}{REQUEST}{style.assistant}"
    if not text.startswith(begin) or not text.endswith(end):
        raise _unknown(f"it writes the tool {function['name']!r} differently", text)
    slots = {NAME: styles.slot(styles.NAME), TEXT: styles.slot(styles.TEXT)}
    slots |= {words[x]: styles.slot(styles.ARGUMENT, i) for x, i in index.items()}
    parts = _cut(text[len(begin) : len(text) - len(end)], slots)
    if slots[NAME] not in parts:
        raise _unknown(f"it does not name the tool {function['name']!r}", text)
    return _layout(parts)


def with_heads(
    template: Template, style: Style[str], functions: Sequence[Mapping[str, Any]]
) -> Style[str]:
    """Return the style with documents that begin where those of all tools agree.

    The documents of a style begin with the name of the tool; what is before it counts
    as the text before documents. Where the function objects of some tools begin with
    another key, documents have to begin earlier.

    Args:
      template: the template.
      style: its style.
      functions: the function objects of the tools.

    Raises:
      ValueError: the template does not write all documents in the same way.
    """
    texts = [str(style.system)]
    for function in functions:
        marked = reworded(function, NAME, TEXT, {})
        texts.append(template.render(opening(REQUEST), as_tools([marked]), True))
    size = len(os.path.commonprefix(texts))
    head = str(style.system)[size:]
    if not head:
        return style
    if not str(style.between).endswith(head):
        raise _unknown("it writes the first tool differently", head)
    return replace(
        style,
        system=str(style.system)[:size],
        between=str(style.between)[: -len(head)],
        documents=tuple((literal(head), *layout) for layout in style.documents),
    )


class Written(NamedTuple):
    """The document of a tool, as it should be written.

    Attributes:
      layout: its layout.
      function: the function object of the tool, with the code if that is a parameter.
      arguments: the names of the arguments that are slots.
    """

    layout: Layout[str]
    function: Mapping[str, Any]
    arguments: Sequence[str]


def check_documents(
    template: Template, style: Style[str], documents: Sequence[Written]
) -> None:
    """Check that documents with their slots filled are what the template writes.

    Raises:
      ValueError: they differ, for example because the template cuts descriptions.
    """
    escape, texts = document_escape(template), []
    for layout, function, arguments in documents:
        fill: dict[int, list] = {styles.ARGUMENT: [*arguments]}
        fill |= {styles.NAME: [function["name"]]}
        fill |= {styles.TEXT: [escape(function["description"])]}
        texts.append(_filled(layout, fill))
    tools = as_tools(document.function for document in documents)
    written = template.render(opening(REQUEST), tools, True)
    expected = f"{style.system}{str(style.between).join(texts)}"
    expected += f"{style.user}{REQUEST}{style.assistant}"
    if written != expected:
        at = len(_common(written, expected))
        text = written[max(at - 30, 0) :]
        raise _unknown("it changes the documents of tools", text)


@functools.lru_cache(maxsize=8)
def document_escape(template: Template) -> Callable[[str], str]:
    """Return how a template escapes a description within the document of a tool."""
    probe = f"{RESULT}\"\\\n\té<&>'{REPLY}"
    text = template.render(opening(REQUEST), [tool(NAME, probe, {})], True)
    for escape in (lambda text: text, *map(_json_escape, (False, True))):
        if escape(probe) in text:
            return escape
    return _html_safe


def _json_escape(ensure_ascii: bool) -> Callable[[str], str]:
    return lambda text: json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]


def _html_safe(text: str) -> str:
    """Escape a text as Jinja's own `tojson` does."""
    text = json.dumps(text)[1:-1]
    for mark in "<>&'":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _prompt(template: Template, max_params: int):
    """Return `(system, documents, between, user, assistant)` of the prompt."""

    def written(num: int, tools: int) -> list[str | Piece]:
        document = tool(NAME, TEXT, dict(zip(ARGUMENTS[:num], TYPES, strict=False)))
        text = template.render(opening(REQUEST), [document] * tools, True)
        if NAME not in text or REQUEST not in text:
            raise ValueError(
                "chat template: it does not support tools; take one that does, such as "
                "model.chat_template=hermes"
            )
        return _cut(text, _PROMPT_SLOTS)

    layouts, ends = [], []
    for num in range(max_params + 1):
        one, two = written(num, 1), written(num, 2)
        slots = [i for i, x in enumerate(one) if isinstance(x, Piece)]
        *in_document, request = slots
        first, last = in_document[0], in_document[-1]
        size = last - first + 1
        if two[first : last + 1] != two[last + 2 : last + 2 + size]:
            raise _unknown("two documents differ from one", str(two[0]))
        # After its last slot come the rest of the document and then the text before the
        # next document or before the request. What both texts start with belongs to
        # the document.
        behind, final = str(two[last + 1]), "".join(map(str, one[last + 1 : request]))
        tail = _common(behind, final)
        ends.append((one[0], behind[len(tail) :], final[len(tail) :], one[-1]))
        layouts.append(_layout([*one[first : last + 1], tail]))
    if len({*ends}) > 1:
        raise _unknown("a document changes the text around it", str(ends[0][0]))
    system, between, user, assistant = map(str, ends[0])
    return system, tuple(layouts), between, user, assistant


def _call(
    template: Template, num: int, end: str
) -> tuple[Layout[str], tuple[str, str]]:
    """Return the layout of a call, and the texts around its result."""
    names = ARGUMENTS[:num]

    def written(values: Sequence[Any]) -> list[str | Piece]:
        messages = opening(REQUEST)
        tools = [tool(NAME, TEXT, dict.fromkeys(names, STRING))]
        before = template.render(messages, tools, True)
        arguments = dict(zip(names, values, strict=False))
        messages += [call(NAME, arguments), result(NAME, RESULT)]
        after = _behind(before, template.render(messages, tools, True))
        if NAME not in after or RESULT not in after:
            raise ValueError(
                "chat template: it does not write calls of tools, or their results"
            )
        return _cut(after, _CALL_SLOTS)

    texts, numbers = written(STRINGS), written(NUMBERS)
    *before, between, last_slot, tool_close = texts
    if last_slot != styles.slot(styles.VALUE, _RESULT) or len(texts) != len(numbers):
        raise _unknown(
            "a call with numbers differs from one with strings", str(between)
        )
    tail, mark, tool_open = str(between).partition(end)
    number_tail, *_ = str(numbers[-3]).partition(end)
    if not mark:
        raise _unknown(f'no "{end}" ends a call', tail)
    layout = _layout([*before, tail], [*numbers[: len(before)], number_tail])
    return layout, (tool_open, str(tool_close))


def _content(template: Template, text: str) -> tuple[Layout[str], str, tuple[str, str]]:
    """Return `(layout, end, (before, after))` for a text of the agent.

    `end` is the token that ends the text; `before` and `after` surround the reply of
    the user that follows.
    """
    messages = opening(REQUEST)
    tools = [tool(NAME, TEXT, {})]
    before = template.render(messages, tools, True)
    messages.append({"role": "assistant", "content": text})
    messages.append({"role": "user", "content": REPLY})
    after = _behind(before, template.render(messages, tools, True))
    before, found, rest = after.partition(text)
    rest, found_reply, reply_close = rest.partition(REPLY)
    if not found or not found_reply:
        raise _unknown(f"it does not write {text!r} and the reply of the user", after)
    marks = [x for x in SPECIAL.finditer(rest) if template.is_special(x[0])]
    if not marks:
        raise _unknown(
            "no special token of the tokenizer ends an answer; take the template and "
            "the tokenizer of one model",
            rest,
        )
    tail, reply_open = rest[: marks[0].start()], rest[marks[0].end() :]
    value = _cut(before + text + tail, {RESULT: styles.slot(styles.VALUE)})
    return _layout(value), marks[0][0], (reply_open, reply_close)


def _json(layout: Layout[str]) -> dict[str, Any]:
    """Return the marks and keys of calls, given the layout for one argument."""
    fill = {styles.NAME: NAME, styles.ARGUMENT: ARGUMENTS[0], styles.VALUE: STRINGS[0]}
    text = "".join(fill.get(piece.kind, str(piece.text)) for piece in layout)
    begin, stop = text.find("{"), text.rfind("}") + 1
    try:
        fields = json.loads(text[begin:stop])
        keys = {json.dumps(value): key for key, value in fields.items()}
        name = keys.pop(json.dumps(NAME))
        arguments = keys.pop(json.dumps({ARGUMENTS[0]: STRINGS[0]}))
    except (ValueError, KeyError, AttributeError):
        raise _unknown("a call is not a JSON object", text) from None
    if keys:
        raise _unknown(f"a call has a key {min(keys.values())!r}", text)
    marks = text[:begin].strip().encode(), text[stop:].strip().encode()
    names = dict(key_name=name, key_arguments=arguments)
    return dict(marks=styles.Marks(*marks), **names)


def _escape(template: Template) -> Callable[[str], str]:
    """Return the function by which the template escapes a result: identity or JSON."""
    text = f'{RESULT}"\\{REPLY}'
    messages = [*opening(REQUEST), call(NAME, {}), result(NAME, text)]
    written = template.render(messages, [tool(NAME, TEXT, {})], True)
    if text in written:
        return lambda text: text
    if json.dumps(text)[1:-1] in written:
        return lambda text: json.dumps(text, ensure_ascii=False)[1:-1]
    raise _unknown("it changes the text of a result", written[-80:])


def _check(template: Template, style: Style[str]) -> None:
    """Check that the style and the template write a longer conversation identically."""
    names = [f"xqzname{i}zqx" for i in range(3)]
    texts = [f"xqztext{i}zqx" for i in range(3)]
    most = len(style.documents) - 1
    kinds = [STRING, INTEGER] * most
    parameters = [
        dict(zip(ARGUMENTS[:num], kinds[i:], strict=False))
        for i, num in enumerate((most, 0, 1))
    ]
    documents = [tool(*x) for x in zip(names, texts, parameters, strict=True)]
    messages = opening(REQUEST)
    expected = str(style.system)
    for i in range(3):
        fill = {styles.NAME: [names[i]], styles.TEXT: [texts[i]]}
        fill |= {styles.ARGUMENT: [*parameters[i]]}
        fill |= {styles.VALUE: [*parameters[i].values()]}
        expected += str(style.between) if i else ""
        expected += _filled(style.documents[len(parameters[i])], fill)
    expected += f"{style.user}{REQUEST}{style.assistant}"
    for i in range(3):
        values = [
            NUMBERS[j] if kind == INTEGER else STRINGS[j]
            for j, kind in enumerate(parameters[i].values())
        ]
        arguments = dict(zip(parameters[i], values, strict=True))
        messages += [call(names[i], arguments), result(names[i], f"{RESULT}{i}")]
        fill = {styles.NAME: [names[i]], styles.ARGUMENT: [*arguments]}
        expected += _filled(style.calls[len(values)], fill | {styles.VALUE: values})
        expected += f"{style.end}{style.tool_open}{RESULT}{i}{style.tool_close}"
    messages.append({"role": "assistant", "content": styles.ASK})
    messages.append({"role": "user", "content": REPLY})
    expected += _filled(style.ask, {})
    expected += f"{style.end}{style.reply_open}{REPLY}{style.reply_close}"
    written = template.render(messages, documents, True)
    if written != expected:
        at = len(_common(written, expected))
        raise _unknown(
            "a longer conversation is written differently", written[max(at - 30, 0) :]
        )


def _check_tokens(template: Template, style: Style[str]) -> None:
    """Check that everything that must be a special token is one."""
    texts: list[str] = []
    styles.mapped(style, lambda text: texts.append(text) or text)
    for mark in sorted({x for text in texts for x in MUST_BE_SPECIAL.findall(text)}):
        if not template.is_special(mark):
            raise ValueError(
                f'chat template: it writes "{mark}", which is not a special token of '
                "the tokenizer; take the template and the tokenizer of one model"
            )


_RESULT = -1  # the index of the value that marks the result or the request
_PROMPT_SLOTS = {
    NAME: styles.slot(styles.NAME),
    TEXT: styles.slot(styles.TEXT),
    REQUEST: styles.slot(styles.VALUE, _RESULT),
    **{x: styles.slot(styles.ARGUMENT, i) for i, x in enumerate(ARGUMENTS)},
    **{x: styles.slot(styles.VALUE, i) for i, x in enumerate(TYPES)},
}
_CALL_SLOTS = {
    NAME: styles.slot(styles.NAME),
    RESULT: styles.slot(styles.VALUE, _RESULT),
    **{x: styles.slot(styles.ARGUMENT, i) for i, x in enumerate(ARGUMENTS)},
    **{x: styles.slot(styles.VALUE, i) for i, x in enumerate(STRINGS)},
    **{str(x): styles.slot(styles.VALUE, i) for i, x in enumerate(NUMBERS)},
}


def _cut(text: str, slots: dict[str, Piece]) -> list[str | Piece]:
    """Split a text at its slots; the list alternates texts, maybe empty, and slots."""
    parts = re.split("(" + "|".join(map(re.escape, slots)) + ")", text)
    return [slots.get(part, part) for part in parts]


def _layout(
    texts: Sequence[str | Piece], numbers: Sequence[str | Piece] = ()
) -> Layout[str]:
    """Return a layout, given what is written with string and with number values."""
    pieces: list[Piece] = []
    for i, (x, y) in enumerate(zip(texts, numbers or texts, strict=True)):
        if isinstance(x, str):
            # A text may depend only on the type of the value next to it.
            beside = [p for p in texts[max(i - 1, 0) : i + 2] if isinstance(p, Piece)]
            values = [p.index for p in beside if p.kind == styles.VALUE]
            if x or y:
                pieces.append(literal(x, str(y), values[0] if values else 0))
        elif x.kind == styles.TEXT:
            pieces += [x, styles.slot(styles.NEEDS)]
        else:
            pieces.append(x)
    return tuple(pieces)


def _filled(layout: Layout[str], fill: dict[int, list]) -> str:
    """Return the text of a layout with its slots filled."""

    def read(piece: Piece) -> str:
        if piece.kind == styles.LITERAL:
            values = fill.get(styles.VALUE, [])
            number = piece.index < len(values) and values[piece.index] in NUMBERS
            return str(piece.number if number else piece.text)
        values = fill.get(piece.kind, [])
        return str(values[piece.index]) if values else ""

    return "".join(map(read, layout))


def _behind(before: str, text: str) -> str:
    """Return what was added after `before`, which must be unchanged."""
    if not text.startswith(before):
        at = len(_common(before, text))
        raise _unknown("it changes earlier text when a message is added", before[at:])
    return text[len(before) :]


def _common(a: str, b: str) -> str:
    same = itertools.takewhile(lambda x: x[0] == x[1], zip(a, b, strict=False))
    return "".join(x for x, _ in same)


def _unknown(what: str, text: str) -> ValueError:
    return ValueError(f"chat template: {what}: {text[:80]!r}")
