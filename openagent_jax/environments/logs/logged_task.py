"""The data types of a logged task: a mapped conversation, still in words."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from openagent_jax.environments.logs.log_conversation import CannotMap
from openagent_jax.environments.tools import types
from openagent_jax.text.lexicon import MAX_TEXT

MAX_PIECE = 4 * MAX_TEXT  # bytes of a text that is shown, but never looked up
UNSOLVABLE = ""  # the answer of a task that has to be refused

Source = int | tuple[int, str]  # a constant, or (step, field of its result)


class Document(NamedTuple):
    """A tool as the task documents it.

    Attributes:
      name: the name of the tool.
      description: the pieces of its description.
      arguments: `(name, whether it is a number)` of each argument.
      code_from: the tool whose code it needs; "" if there is none.
      call_after: the tool that must be called before it; "" if there is none.
    """

    name: str
    description: tuple[str, ...]
    arguments: tuple[tuple[str, bool], ...]
    code_from: str = ""
    call_after: str = ""


class Step(NamedTuple):
    """A call of the goal.

    Attributes:
      tool: the name of the tool.
      sources: the source of the value of each argument.
      values: the value of each argument.
      fields: the fields of the result, without its code.
    """

    tool: str
    sources: dict[str, Source]
    values: dict[str, str]
    fields: dict[str, str]


@dataclass(frozen=True)
class LoggedTask:
    """A task whose world is a logged conversation, in words.

    Attributes:
      documents: the tools.
      phrase: the request: texts, and indices of constants.
      constants: the values that the request gives.
      shown: for each constant, whether the request contains it.
      steps: the calls of the goal.
      answer: (step, field), or `DONE`, or `UNSOLVABLE`.
      codes: the code that a tool reveals, by tool.
      failures: number of calls that fail before the tool works, by tool.
      kinds: the JSON type of each argument of a document, by tool. It only affects how
        the task is shown as messages, and so does the next.
      literals: the fields whose values are never strings in the log, but numbers,
        booleans or null.
    """

    documents: tuple[Document, ...]
    phrase: tuple[str | int, ...]
    constants: tuple[str, ...]
    shown: tuple[bool, ...]
    steps: tuple[Step, ...]
    answer: tuple[int, str] | str
    codes: dict[str, str]
    failures: dict[str, int]
    # The hash that chooses the split of a task is of its `repr`.
    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    literals: frozenset[str] = field(default=frozenset(), repr=False)

    def texts(self) -> Iterator[str]:
        """Yield all texts of the task."""
        for document in self.documents:
            yield from (document.name, *document.description)
            yield from (name for name, _ in document.arguments)
        yield from (piece for piece in self.phrase if isinstance(piece, str))
        yield from (*self.constants, *self.codes.values())
        for step in self.steps:
            yield from (*step.fields, *step.fields.values())

    def fields(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the fields that each tool returns, by tool."""
        by_tool: dict[str, dict[str, str]] = {}
        for step in self.steps:
            by_tool.setdefault(step.tool, {}).update(step.fields)
        return {tool: tuple(fields) for tool, fields in by_tool.items()}

    def needs(self) -> dict[str, int]:
        """Return the limits that the task needs, by the keys of a config."""
        num_failures = sum(x for x in self.failures.values() if x < types.FOREVER)
        num_asks = int(not all(self.shown))
        num_arguments = [len(document.arguments) for document in self.documents]
        return {
            "sandbox.num_tools": len(self.documents),
            "sandbox.num_args": max(num_arguments, default=0),
            "sandbox.num_fields": max(map(len, self.fields().values()), default=0),
            "sandbox.num_steps": max(len(self.steps), 1),
            "sandbox.num_constants": len(self.constants),
            "sandbox.max_turns": len(self.steps) + num_failures + num_asks + 1,
        }


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


def one_line(text: str) -> str:
    """Return a description as one line without quotes and backslashes.

    >>> one_line('a "quoted"  text')
    "a 'quoted' text"
    """
    text = text.replace('"', "'").replace("\\", "/")
    text = "".join(mark if mark.isprintable() else " " for mark in text)
    return " ".join(text.split())


def checked_name(text: str) -> str:
    """Return the name of a tool, argument or field.

    Raises:
      CannotMap: it is too long, or it needs escapes in JSON.
    """
    if needs_escapes(text) or not 0 < len(text.encode()) <= MAX_TEXT:
        raise CannotMap("a name that is too long or has a quote or backslash in it")
    return text


def escaped(text: str) -> str:
    r"""Return the value of a result as it stands between the quotes of JSON.

    >>> print(escaped('say "hi"'))
    say \"hi\"

    Raises:
      CannotMap: it is too long.
    """
    text = json.dumps(text, ensure_ascii=False)[1:-1]
    if len(text.encode()) > MAX_PIECE:
        raise CannotMap(f"a result longer than {MAX_PIECE} bytes")
    return text


def needs_escapes(text: str) -> bool:
    """Tell whether a text changes when it is written as a JSON string."""
    return json.dumps(text, ensure_ascii=False) != f'"{text}"'


def is_environment_number(text: str) -> bool:
    """Tell whether a text is one of the numbers that the environment has, 0 to 999.

    >>> is_environment_number("42"), is_environment_number("042")
    (True, False)
    """
    return bool(re.fullmatch("0|[1-9][0-9]{0,2}", text))
