"""From a logged conversation to the parts of a task.

The world of such a task is what was recorded. These are the rules:

* A step of the goal is a call that worked, in the order of the log; the same call made
  again is no other step. Another call of the same tool and arguments that returned
  something else cannot be told apart, so the conversation is not mapped.
* A result that is a JSON object of scalars has these fields; any other is one field.
  It reports an error if it says so: by `error`, `isError`, `"success": false`,
  `"ok": false` or `"status": "error"`, or by beginning with error, exception or
  traceback. Then the call is no step. If it is made again at once and works, and the
  tool has not worked before, the tool fails as many times in the task too.
* The request is what the user says: all messages, as if they were one. If the agent
  asked by `Ask`, the values of the reply are left out of it, and told when it asks.
  System messages are left out, and so is what the agent says beside its calls.
* An argument has its value from the request if that spells it, else from the reply to
  `Ask`, else from the latest result before that has it; else from nowhere: it is a
  constant that the request does not spell.
* An argument called `code` is one that only a result can tell: the tool whose result
  has a `code` of that value must have been called.
* A description is one line without quotes and backslashes. Where it ends as ours do
  when a tool needs another one, it does.
* An argument is documented if the calls of the conversation have it, or, of a tool that
  is not called, if it is required. It is a number if its schema says integer or number
  and all its values are whole ones from 0 to 999; all others are texts.
* The answer is that of the last words. `Answer: VALUE` is the value; `Refuse` (alone on
  the last line) is a refusal. Where other words hold exactly one value of the results
  that is not in the request, that is the answer; else it is `done`.
* A refusal without calls is of a task that cannot be done. One after a call that failed
  is due to its tool, which fails for good. Any other cannot be told from an agent that
  gave up, and is not mapped.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from openagent_jax import types
from openagent_jax.sandbox import chat, conversation, style
from openagent_jax.sandbox.domain_spec import DONE
from openagent_jax.sandbox.lexicon import MAX_TEXT
from openagent_jax.sandbox.log_file import Conversation, Listed, Made, Unmapped

PIECE = 4 * MAX_TEXT  # bytes of a text that is shown, but never looked up
NUMBERS = "integer", "number"
REFUSED = ""  # the answer of a task that cannot be done
# What we write behind a description ourselves.
_NEEDS = "".join(f"(?:{x}(\\S+?))?" for x in (chat.CODE_FROM[0], chat.CALL_AFTER[0]))
_DOCUMENTED = re.compile(f"(.*?){_NEEDS}", re.S)


class Document(NamedTuple):
    """A tool as a task shows it."""

    name: str
    description: tuple[str, ...]  # pieces
    arguments: tuple[tuple[str, bool], ...]  # name, whether it is a number
    code_from: str = ""
    call_after: str = ""


class Step(NamedTuple):
    """A call of the goal. A source is a constant, or a field of an earlier step."""

    tool: str
    sources: dict[str, int | tuple[int, str]]
    values: dict[str, str]  # of the arguments
    fields: dict[str, str]  # of the result, without its code


@dataclass(frozen=True)
class Recorded:
    """A task, in words."""

    documents: tuple[Document, ...]
    phrase: tuple[str | int, ...]  # texts, and constants by their number
    constants: tuple[str, ...]
    shown: tuple[bool, ...]
    steps: tuple[Step, ...]
    answer: tuple[int, str] | str  # a field of a step, `DONE` or `REFUSED`
    codes: dict[str, str]  # by tool
    failures: dict[str, int]  # by tool

    def texts(self) -> Iterator[str]:
        """All that is said in it."""
        for document in self.documents:
            yield from (document.name, *document.description)
            yield from (name for name, _ in document.arguments)
        yield from (piece for piece in self.phrase if isinstance(piece, str))
        yield from (*self.constants, *self.codes.values())
        for step in self.steps:
            yield from (*step.fields, *step.fields.values())

    def fields(self) -> dict[str, tuple[str, ...]]:
        """Names of what each tool returns."""
        found: dict[str, dict[str, str]] = {}
        for step in self.steps:
            found.setdefault(step.tool, {}).update(step.fields)
        return {tool: tuple(fields) for tool, fields in found.items()}

    def needs(self) -> dict[str, int]:
        """Of the limits, and of the turns of an episode."""
        failed = sum(x for x in self.failures.values() if x < types.FOREVER)
        arguments = [len(document.arguments) for document in self.documents]
        return {
            "sandbox.num_tools": len(self.documents),
            "sandbox.num_args": max(arguments, default=0),
            "sandbox.num_fields": max(map(len, self.fields().values()), default=0),
            "sandbox.num_steps": max(len(self.steps), 1),
            "sandbox.num_constants": len(self.constants),
            "sandbox.max_turns": len(self.steps) + failed + (not all(self.shown)) + 1,
        }


def recorded(said: Conversation) -> Recorded:
    """
    Raises:
      Unmapped: it becomes no task.
    """
    try:
        return _recorded(said)
    except UnicodeEncodeError:
        raise Unmapped("half a character") from None


def _recorded(said: Conversation) -> Recorded:
    listed = {tool.name: tool for tool in said.tools}
    if len(listed) < len(said.tools):
        raise Unmapped("two tools of one name")
    calls, failures = _steps(said)
    for call in calls:
        _check(call, listed)
    codes, code_from = _codes(calls)
    documents = tuple(
        _document(tool, listed, calls, code_from) for tool in listed.values()
    )
    asked = {document.code_from for document in documents}
    spoken = _Constants(said, calls)
    steps: list[Step] = []
    for call in calls:
        values, fields = _texts(call), dict(call.fields)
        if call.tool in asked and style.CODE in fields:
            codes[call.tool] = _name(fields.pop(style.CODE))
        fields = {_name(key): _escaped(text) for key, text in fields.items()}
        # Calls of one message cannot feed each other.
        known = steps[: sum(x.turn < call.turn for x in calls)]
        sources = {key: spoken.source(text, known) for key, text in values.items()}
        steps.append(Step(call.tool, sources, values, fields))
    return Recorded(
        documents,
        spoken.phrase,
        tuple(spoken.texts),
        tuple(spoken.shown),
        tuple(steps),
        _answer(said, steps, spoken),
        codes,
        failures,
    )


def _steps(said: Conversation) -> tuple[list[Made], dict[str, int]]:
    """The calls that are steps, and how often tools fail before."""
    steps: list[Made] = []
    failures: dict[str, int] = {}
    worked: set[str] = set()
    before: list[Made] = []  # calls that failed, since one has worked
    for call in said.calls:
        if call.failed:
            before.append(call)
            continue
        same = [x for x in steps if x[:2] == call[:2]]
        if same and same[0].fields != call.fields:
            raise Unmapped("a call that was made twice, with two results")
        if before and call.tool not in worked:
            if all(x[:2] == call[:2] for x in before):
                failures[call.tool] = len(before)
        if not same:
            steps.append(call)
        worked.add(call.tool)
        before = []
    if conversation.last_line(said.ending) == style.REFUSE:
        last = before[-1] if before else None
        if last and last.tool not in worked:
            steps.append(last._replace(fields=()))
            failures[last.tool] = types.FOREVER
        elif said.calls:
            raise Unmapped("a refusal after calls that worked")
    elif not steps:
        raise Unmapped("no call that worked, and no refusal")
    return steps, failures


def _check(call: Made, listed: Mapping[str, Listed]) -> None:
    if call.tool not in listed:
        raise Unmapped("a call of a tool that is not documented")
    if call.problem:
        raise Unmapped(call.problem)
    for key, text in call.arguments.items():
        if key not in listed[call.tool].types:
            raise Unmapped("an argument that is not documented")
        if len(text.encode()) > MAX_TEXT:
            raise Unmapped(f"an argument of more than {MAX_TEXT} bytes")
        if _is_odd(text):
            raise Unmapped("an argument with a quote, backslash or line break")


def _codes(calls: Sequence[Made]) -> tuple[dict[str, str], dict[str, str]]:
    """The codes that tools reveal, and the tool whose code another one needs."""
    codes: dict[str, str] = {}
    code_from: dict[str, str] = {}
    for call in calls:
        if (code := call.arguments.get(style.CODE)) is None:
            continue
        before = (x for x in calls if x.turn < call.turn)
        told = [x.tool for x in before if dict(x.fields).get(style.CODE) == code]
        if not told:
            raise Unmapped(f"an argument called `{style.CODE}` that no result told")
        if code_from.setdefault(call.tool, told[-1]) != told[-1]:
            raise Unmapped(f"a `{style.CODE}` of two tools")
        codes[told[-1]] = code
    for call in calls:
        if call.tool in codes and dict(call.fields).get(style.CODE) != codes[call.tool]:
            raise Unmapped(f"a tool that told two values of `{style.CODE}`")
    return codes, code_from


def _document(
    tool: Listed,
    listed: Mapping[str, Listed],
    calls: Sequence[Made],
    code_from: Mapping[str, str],
) -> Document:
    made = [_texts(x) for x in calls if x.tool == tool.name]
    if len({frozenset(x) for x in made}) > 1:
        raise Unmapped("a tool that was called with and without an argument")
    text = _plain(tool.description)
    matched = _DOCUMENTED.fullmatch(text)
    bare, source, after = matched.groups() if matched else (text, None, None)
    # Of a tool that was called, only what was called before can be needed.
    order = [x.tool for x in calls]
    known = {*order[: order.index(tool.name)]} if made else {*listed}
    told = {dict(x.fields).get(style.CODE) for x in calls if x.tool == source}
    source, after = code_from.get(tool.name, source or ""), after or ""
    if {source, after} <= known | {""} and None not in told and len(told) < 2:
        text = bare
    else:
        source, after = code_from.get(tool.name, ""), ""
    names = [key for key in tool.types if key in (made[0] if made else tool.required)]
    if source:
        names = [key for key in names if key != style.CODE]
    whole = [
        tool.types[key] in NUMBERS and all(_is_small(x[key]) for x in made)
        for key in names
    ]
    arguments = tuple(zip(map(_name, names), whole, strict=True))
    return Document(_name(tool.name), _pieces(text), arguments, source, after)


class _Constants:
    """Values that are in the request, and those that come from nowhere."""

    def __init__(self, said: Conversation, calls: Iterable[Made]):
        values = _any_of({text for call in calls for text in _texts(call).values()})
        self.texts: list[str] = []
        self.shown: list[bool] = []
        self.phrase: tuple[str | int, ...] = ()
        hidden = {*values.findall(said.told)} - {*values.findall(said.request)}
        request = said.request if hidden else f"{said.request}\n{said.told}".strip()
        for i, part in enumerate(re.split(f"({values.pattern})", request)):
            if i % 2:
                self.phrase += (self._constant(part),)
            elif part:
                self.phrase += _pieces(part)
        self.spoken = frozenset(self.texts)
        for text in sorted(hidden, key=said.told.index):
            self._constant(text, shown=False)

    def source(self, text: str, steps: Sequence[Step]) -> int | tuple[int, str]:
        """Where a step has a value from."""
        if text not in self.texts:
            for i in reversed(range(len(steps))):
                for key, value in steps[i].fields.items():
                    if value == text:
                        return i, key
        return self._constant(text)

    def _constant(self, text: str, shown: bool = True) -> int:
        if text not in self.texts:
            self.texts.append(text)
            self.shown.append(shown)
        return self.texts.index(text)


def _answer(
    said: Conversation, steps: Sequence[Step], spoken: _Constants
) -> tuple[int, str] | str:
    last = conversation.last_line(said.ending)
    if last == style.REFUSE:
        return DONE if steps else REFUSED
    found = {
        text: (i, key)
        for i, step in enumerate(steps)
        for key, text in step.fields.items()
        if "\\" not in text and len(text.encode()) <= MAX_TEXT
    }
    if last.startswith(style.ANSWER):
        value = last.removeprefix(style.ANSWER)
        if value in found:
            return found[value]
        if value == DONE:
            return DONE
        raise Unmapped("an answer that is in no result")
    # A sentence may begin with a value.
    lower = {text.lower(): source for text, source in found.items()}
    told = {*_any_of(lower).findall(said.ending.lower())}
    told -= {text.lower() for text in spoken.spoken}
    return lower[told.pop()] if len(told) == 1 else DONE


def _texts(call: Made) -> dict[str, str]:
    """Values of the arguments, without the code."""
    return {key: x for key, x in call.arguments.items() if key != style.CODE}


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Any of the texts as whole words, the longest first."""
    ordered = sorted(filter(None, texts), key=lambda text: (-len(text), text))
    either = "|".join(map(re.escape, ordered)) or "(?!)"
    return re.compile(rf"(?<!\w)(?<!\d\.)(?:{either})(?!\w)(?!\.\d)")


def _pieces(text: str) -> tuple[str, ...]:
    """A text in pieces that are short enough, cut before blanks if it has some."""
    pieces = []
    while len(data := text.encode()) > PIECE:
        head = data[:PIECE].decode(errors="ignore")
        head = head[: head.rfind(" ")] if head.rfind(" ") > 0 else head
        pieces.append(head)
        text = text[len(head) :]
    return (*pieces, text) if text else tuple(pieces)


def _plain(text: str) -> str:
    """A description as it can stand in a document: no quotes, one line."""
    text = text.replace('"', "'").replace("\\", "/")
    text = "".join(mark if mark.isprintable() else " " for mark in text)
    return " ".join(text.split())


def _name(text: str) -> str:
    if _is_odd(text) or not 0 < len(text.encode()) <= MAX_TEXT:
        raise Unmapped("a name that is too long, or has a quote or backslash in it")
    return text


def _escaped(text: str) -> str:
    """A result as it stands between quotes."""
    text = json.dumps(text, ensure_ascii=False)[1:-1]
    if len(text.encode()) > PIECE:
        raise Unmapped(f"a result of more than {PIECE} bytes")
    return text


def _is_odd(text: str) -> bool:
    return json.dumps(text, ensure_ascii=False) != f'"{text}"'


def _is_small(text: str) -> bool:
    return bool(re.fullmatch("0|[1-9][0-9]{0,2}", text))
