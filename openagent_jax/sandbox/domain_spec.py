"""What a domain is: types of values, tools, and the goals that they serve."""

import contextlib
import itertools
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

DONE = "done"  # the answer of a goal that is an effect only

Pools = dict[str, tuple[str, ...]]  # by split
Fields = tuple[tuple[str, str], ...]  # (name, type)


class DomainError(ValueError):
    """A domain file is wrong: `file: place: problem; remedy`, on one line."""


@dataclass(frozen=True)
class TypeSpec:
    """Values: three pools of names (the same one for an enum), or a range."""

    name: str
    kind: str  # entity, enum or number
    train: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    shift: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 0  # inclusive


@dataclass(frozen=True)
class ToolSpec:
    """A tool: what it means, and the words that may present it."""

    name: str
    description: str
    arguments: Fields
    returns: Fields
    code_from: str | None
    call_after: str | None
    effect: bool
    names: Pools
    descriptions: Pools
    argument_names: dict[str, Pools]  # by argument

    @property
    def needs(self) -> list[str]:
        """Tools that must have succeeded before."""
        return [name for name in (self.code_from, self.call_after) if name]


@dataclass(frozen=True)
class GoalSpec:
    """A family of requests: the calls that serve it, and how it is put in words."""

    name: str
    constants: Fields
    steps: tuple[tuple[str, dict[str, str]], ...]  # (tool, argument -> source)
    answer: str  # a source, or `DONE`
    phrases: Pools  # train, test, rewrite_train, rewrite_test


@dataclass(frozen=True)
class DomainSpec:
    """All of a domain file, checked."""

    name: str
    description: str
    types: tuple[TypeSpec, ...]
    tools: tuple[ToolSpec, ...]
    goals: tuple[GoalSpec, ...]
    review: tuple[str, ...] = ()  # notes of whoever drafted it; they mean nothing


def parse_source(source: str) -> tuple[int, str]:
    """`$slot` is (-1, slot), `#2.field` is (2, field)."""
    step, _, name = source.rpartition(".")
    return (int(step[1:]), name) if step else (-1, name[1:])


def extra_calls(domain: DomainSpec, goal: GoalSpec) -> tuple[str, ...]:
    """Tools to be called besides the steps, each after those that it needs."""
    tools = {tool.name: tool for tool in domain.tools}
    steps = [name for name, _ in goal.steps]
    needs = itertools.chain(*(needs_before(tools, steps, name) for name in steps))
    return tuple(dict.fromkeys(need for need in needs if need not in steps))


def needs_before(tools: dict[str, ToolSpec], steps: list[str], name: str) -> list[str]:
    """What must come before a tool, as far back as the nearest steps."""
    needs = []
    for need in tools[name].needs:
        needs += [need] if need in steps else [*needs_before(tools, steps, need), need]
    return needs


_found: ContextVar[list[str] | None] = ContextVar("found", default=None)


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """All faults that are met in here, in order; they are not raised."""
    found: list[str] = []
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def must(fine: Any, place: str, message: str) -> bool:
    """Whether it is fine, for whoever collects faults.

    Raises:
      DomainError: it is not, and nobody collects.
    """
    if not fine:
        fault, found = f"{place or 'top level'}: {message}", _found.get()
        if found is None:
            raise DomainError(fault)
        found.append(fault)
    return bool(fine)
