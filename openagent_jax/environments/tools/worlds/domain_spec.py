"""The contents of a domain: types of values, tools, and goals that need them."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

DONE = "done"  # the answer of a goal that asks for an effect, not for a value

Synonyms = dict[str, tuple[str, ...]]  # split -> texts of the same meaning
Fields = tuple[tuple[str, str], ...]  # (name, type)


class DomainError(ValueError):
    """A domain file has faults. Each is one line, `file: place: problem; remedy`; the
    first is the message of the error."""

    def __init__(self, *faults: str):
        super().__init__(*(" ".join(fault.splitlines()) for fault in faults))

    def __str__(self) -> str:
        return self.faults[0]

    @property
    def faults(self) -> tuple[str, ...]:
        """All faults, in the order in which they were found."""
        return self.args


@dataclass(frozen=True)
class TypeSpec:
    """A type of values: three pools of names (equal ones for an enum), or a range."""

    name: str
    kind: str  # entity, enum or number
    train: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    shift: tuple[str, ...] = ()
    minimum: Decimal = Decimal(0)
    maximum: Decimal = Decimal(0)  # inclusive
    decimals: int = 0
    unquoted: bool = False  # the values of an enum are not strings in JSON


@dataclass(frozen=True)
class Requests:
    """The words for requests of a tool, by pool; see `request_reading.py`."""

    do: Synonyms  # verb phrases
    fields: dict[str, Synonyms]  # noun phrases by returned field


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
    optional: Mapping[str, Any]  # arguments that a call may leave out -> their default
    names: Synonyms
    descriptions: Synonyms
    argument_names: dict[str, Synonyms]  # by argument; by key, if arguments are nested
    function: Mapping[str, Any]  # the function object of the file, which agents read
    requests: Requests | None = None  # None: no goals are sampled from the tool
    listed_as: str | None = None  # its name in the list it is from, if that is another
    # What has to be open for each argument to be given; see `nested_arguments`.
    gates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Further types of arguments that may be of several.
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def accepted(self) -> Fields:
        """The arguments with each type that they may be of."""
        more = ((path, kind) for path, kinds in self.also.items() for kind in kinds)
        return (*self.arguments, *more)

    @property
    def needs(self) -> list[str]:
        """Tools that must have succeeded before this one is called."""
        return [name for name in (self.code_from, self.call_after) if name]


@dataclass(frozen=True)
class GoalSpec:
    """A kind of request: the calls that satisfy it, and how it is worded."""

    name: str
    constants: Fields
    steps: tuple[tuple[str, dict[str, str]], ...]  # (tool, argument given -> source)
    answer: str  # a source, or `DONE`
    phrases: Synonyms  # by pool: train, test, rewrite_train, rewrite_test


@dataclass(frozen=True)
class DomainSpec:
    """The contents of a domain file, checked."""

    name: str
    description: str
    types: tuple[TypeSpec, ...]
    tools: tuple[ToolSpec, ...]
    goals: tuple[GoalSpec, ...]
    review: tuple[str, ...] = ()  # notes for people, which have no effect
    source: str = ""  # where the tools are from
    divided: bool = False  # whether both splits are made of the training split


@lru_cache(4096)
def parse_source(source: str) -> tuple[int, str]:
    """Return the step of a source (-1 for the request), and the name of the value.

    >>> parse_source("$slot")
    (-1, 'slot')
    >>> parse_source("#2.field")
    (2, 'field')
    """
    step, _, name = source.rpartition(".")
    return (int(step[1:]), name) if step else (-1, name[1:])


def extra_calls(domain: DomainSpec, goal: GoalSpec) -> tuple[str, ...]:
    """Return the tools to call besides the steps, each after those that it needs.

    Args:
      domain: the domain of the goal.
      goal: its steps may need tools that are not steps themselves.

    Returns:
      Names of tools without arguments, in an order in which they can be called.
    """
    tools = {tool.name: tool for tool in domain.tools}
    steps = [name for name, _ in goal.steps]
    needs = itertools.chain(*(needs_before(tools, steps, name) for name in steps))
    return tuple(dict.fromkeys(need for need in needs if need not in steps))


def needs_before(
    tools: Mapping[str, ToolSpec], steps: Sequence[str], name: str
) -> list[str]:
    """Return the tools to call before a given one, back to the nearest steps.

    Args:
      tools: all tools, by name.
      steps: names of the tools that a goal calls in any case; what these need in turn
        is left out.
      name: the tool to be called.
    """
    needs = []
    for need in tools[name].needs:
        needs += [need] if need in steps else [*needs_before(tools, steps, need), need]
    return needs


def require(condition: Any, place: str, message: str) -> None:
    """Raise `place: message` unless the condition holds.

    Raises:
      DomainError: it does not hold.
    """
    if not condition:
        raise DomainError(f"{place or 'top level'}: {message}")
