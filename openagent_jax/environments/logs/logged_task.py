"""The data types of a logged task: a mapped conversation, still in words."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, NamedTuple

from openagent_jax.environments.logs import log_values
from openagent_jax.environments.logs.log_conversation import CannotMap
from openagent_jax.environments.logs.log_values import Bare, Value
from openagent_jax.environments.tools import types
from openagent_jax.text import nesting
from openagent_jax.text.lexicon import MAX_TEXT
from openagent_jax.text.nesting import Path

MAX_PIECE = 4 * MAX_TEXT  # bytes of a part of a request
UNSOLVABLE = ""  # the answer of a task that has to be refused

Source = int | tuple[int, Path]  # a constant, or (step, field of its result)
# Kinds of values that an argument can have.
TEXT, NUMBER, BARE = "text", "number", "bare"


class Argument(NamedTuple):
    """A leaf of the arguments of a tool.

    Attributes:
      path: where it is; see `text.nesting`.
      kinds: the kinds of values that it has.
      optional: whether a call may leave it out.
    """

    path: Path
    kinds: tuple[str, ...] = (TEXT,)
    optional: bool = False


class Document(NamedTuple):
    """A tool as the task documents it.

    Attributes:
      name: the name of the tool.
      description: its description.
      arguments: the leaves of its arguments.
      code_from: the tool whose code it needs; "" if there is none.
      call_after: the tool that must be called before it; "" if there is none.
      parameters: the JSON schema of its arguments, as JSON.
    """

    name: str
    description: str
    arguments: tuple[Argument, ...]
    code_from: str = ""
    call_after: str = ""
    parameters: str = "{}"


class Field(NamedTuple):
    """A leaf of a result.

    Attributes:
      value: its value, as the arguments that take it have it.
      bare: whether it is written without quotes.
    """

    value: Value
    bare: bool


class Step(NamedTuple):
    """A call of the goal.

    Attributes:
      tool: the name of the tool.
      sources: the source of the value of each argument.
      values: the value of each argument.
      fields: the fields of the result, without its code.
    """

    tool: str
    sources: dict[Path, Source]
    values: dict[Path, Value]
    fields: dict[Path, Field]


@dataclass(frozen=True)
class LoggedTask:
    """A task whose world is a logged conversation, in words.

    Attributes:
      documents: the tools.
      phrase: the request: texts, and indices of constants.
      constants: the values that the request gives, and those that come from nowhere
        (see `unstated`).
      shown: for each constant, whether it is known without asking.
      steps: the calls of the goal.
      answer: (step, field), or `DONE`, or `UNSOLVABLE`.
      codes: the code that a tool reveals, by tool.
      failures: number of calls that fail before the tool works, by tool.
    """

    documents: tuple[Document, ...]
    phrase: tuple[str | int, ...]
    constants: tuple[Value, ...]
    shown: tuple[bool, ...]
    steps: tuple[Step, ...]
    answer: tuple[int, Path] | str
    codes: dict[str, str]
    failures: dict[str, int]

    def texts(self) -> Iterator[str]:
        """Yield all texts of the task."""
        for document in self.documents:
            yield from (document.name, document.description)
            yield json.dumps(json.loads(document.parameters), ensure_ascii=False)
            yield from _keys(x.path for x in document.arguments)
        yield from (piece for piece in self.phrase if isinstance(piece, str))
        yield from (*map(log_values.text, self.constants), *self.codes.values())
        for step in self.steps:
            yield from _keys(step.fields)
            yield from (log_values.text(x.value) for x in step.fields.values())

    def content(self) -> str:
        """Return all of the task as JSON; equal tasks have equal content.

        The splits of logs depend on it, so it has no names of the code.
        """
        parts = [getattr(self, field.name) for field in fields(self)]
        return json.dumps([*map(_plain, parts)])

    def fields(self) -> dict[str, tuple[Path, ...]]:
        """Return the fields that each tool returns, by tool, in their order."""
        by_tool: dict[str, dict[Path, Field]] = {}
        for step in self.steps:
            by_tool.setdefault(step.tool, {}).update(step.fields)
        return {tool: nesting.in_order(fields) for tool, fields in by_tool.items()}

    def literals(self) -> Iterator[str]:
        """Yield the words without quotes that arguments have."""
        for step in self.steps:
            yield from (x.text for x in step.values.values() if isinstance(x, Bare))

    def inexact(self) -> str:
        """Return a number that is not an exact decimal, and its place; "" if none."""
        for step in self.steps:
            fields = {path: x.value for path, x in step.fields.items()}
            for path, value in (*step.values.items(), *fields.items()):
                if isinstance(value, Bare) and value.is_number:
                    return f"{value.text} ({step.tool}: {nesting.written(path)})"
        return ""

    def unstated(self) -> str:
        """Return a value of a call that no text before it has, and its place; "" if
        there is none. No agent can know such a value."""
        given = {x for x in self.phrase if isinstance(x, int)}
        given |= {i for i, is_shown in enumerate(self.shown) if not is_shown}
        known = {log_values.text(self.constants[i]) for i in given}
        for step in self.steps:
            for path, source in step.sources.items():
                text = log_values.text(step.values[path])
                if isinstance(source, int) and text not in known:
                    return f"{text!r:.60} ({step.tool}: {nesting.written(path)})"
        return ""

    def needs(self) -> dict[str, tuple[int, str]]:
        """Return the limits that the task needs, by the keys of a config.

        Beside each is the part of the task that needs it; "" for the whole.
        """
        called = {step.tool for step in self.steps}
        documents = [x for x in self.documents if x.name in called]
        num_failures = sum(x for x in self.failures.values() if x < types.FOREVER)
        num_asks = int(not all(self.shown))
        arguments = [(len(x.arguments), x.name) for x in documents]
        arguments = [(num, f"{num} arguments of {name}") for num, name in arguments]
        results = self.fields().items()
        fields = [(len(found), name) for name, found in results]
        fields = [(num, f"{num} fields of results of {name}") for num, name in fields]
        paths = [(x.name, y.path) for x in documents for y in x.arguments]
        paths += [
            (f"a result of {name}", path) for name, found in results for path in found
        ]
        depths = [(len(path), f"{nesting.written(path)} of {of}") for of, path in paths]
        sizes = [(len(text.encode()), f"{text!r:.40}") for text in self._looked_up()]
        whole = {
            "sandbox.num_tools": len(self.documents),
            "sandbox.num_steps": max(len(self.steps), 1),
            "sandbox.num_constants": len(self.constants),
            "sandbox.max_turns": len(self.steps) + num_failures + num_asks + 1,
        }
        parts = {
            "sandbox.num_args": arguments,
            "sandbox.num_fields": fields,
            "sandbox.depth": depths,
            "sandbox.value_bytes": sizes,
        }
        return {
            **{key: max(found, default=(0, "")) for key, found in parts.items()},
            **{key: (num, "") for key, num in whole.items()},
        }

    def _looked_up(self) -> Iterator[str]:
        """Yield the texts that a reply is compared with."""
        for document in self.documents:
            yield from (document.name, *_keys(x.path for x in document.arguments))
        for step in self.steps:
            yield from map(log_values.text, step.values.values())
        if isinstance(self.answer, tuple):
            step, path = self.answer
            yield log_values.text(self.steps[step].fields[path].value)


def _plain(value: Any) -> Any:
    """Return a value as lists and texts, different ones for different values."""
    if isinstance(value, Decimal):
        return {"number": str(value)}
    if isinstance(value, tuple):
        return [*map(_plain, value)]
    if isinstance(value, Mapping):  # keys may be paths
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    return value


def _keys(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        yield from (key for key in path if isinstance(key, str))


def pieces(text: str) -> tuple[str, ...]:
    """Cut a text into pieces of at most `MAX_PIECE` bytes, at blanks if there are some.

    >>> pieces("short"), len(pieces("word " * 100))
    (('short',), 2)
    """
    cut = []
    while len(data := text.encode()) > MAX_PIECE:
        head = data[:MAX_PIECE].decode(errors="ignore")
        head = head[: head.rfind(" ")] if head.rfind(" ") > 0 else head
        cut.append(head)
        text = text[len(head) :]
    return (*cut, text) if text else tuple(cut)


def checked_name(text: str, where: str = "") -> str:
    """Return the name of a tool, argument or field.

    Raises:
      CannotMap: it is empty, or it needs escapes in JSON.
    """
    if not text or needs_escapes(text):
        raise CannotMap("a name that is empty or has a quote or backslash in it", where)
    return text


def escaped(text: str) -> str:
    r"""Return the value of a result as it stands between the quotes of JSON.

    >>> print(escaped('say "hi"'))
    say \"hi\"
    """
    return json.dumps(text, ensure_ascii=False)[1:-1]


def needs_escapes(text: str) -> bool:
    """Tell whether a text changes when it is written as a JSON string."""
    return json.dumps(text, ensure_ascii=False) != f'"{text}"'
