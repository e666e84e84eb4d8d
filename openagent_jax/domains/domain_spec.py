"""The contents of a domain: types of values, tools, and goals that need them."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

COUNT = "count"  # the type of the number of records of a list
CURSOR = "<cursor>"  # the type of the cursor of a page; no type of a file has this name
DONE = "done"  # the answer of a goal that asks for an effect, not for a value
COMPARISONS = "at_most", "at_least", "equals"

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
    unit: str = ""  # follows the number in requests, as in "12 kg"; "" for none
    identifier: bool = False  # a number that is a name, which nobody compares
    unquoted: bool = False  # the values of an enum are not strings in JSON


@dataclass(frozen=True)
class ListSpec:
    """A list of records in the result of a tool."""

    path: str
    columns: Fields  # of each record
    at_least: int  # records
    at_most: int

    def leaf(self, record: int, column: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{record}.{column}"


@dataclass(frozen=True)
class PageSpec:
    """How a tool divides a list; see `result_pages.py`."""

    path: str  # of the list
    size: int  # records of a page
    cursor: str  # the path of the argument that takes a cursor, which no goal gives
    next: str  # the returned field with the next cursor


@dataclass(frozen=True)
class Requests:
    """The words for requests of a tool, by pool; see `request_reading.py`."""

    do: Synonyms  # verb phrases
    fields: dict[str, Synonyms]  # noun phrases by returned field


@dataclass(frozen=True)
class TableSpec:
    """Records of one kind, which tools read and change; see `domain_tables.py`."""

    name: str
    key: str  # the type of what identifies a record
    columns: Fields
    present: bool  # whether all records exist at first, or none


@dataclass(frozen=True)
class AccessSpec:
    """What a tool does to the record that it touches."""

    table: str
    key: str  # an argument
    is_drawn: bool = False  # the key is not an argument, but a field that is returned
    creates: bool = False
    deletes: bool = False
    reads: Mapping[str, str] = field(default_factory=dict)  # returned field -> column
    sets: Mapping[str, str] = field(default_factory=dict)  # column -> argument
    adds: Mapping[str, str] = field(default_factory=dict)
    subtracts: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> set[str]:
        """The columns that the tool writes."""
        return {*self.sets, *self.adds, *self.subtracts}

    @property
    def writes(self) -> bool:
        """Whether the tool changes the record."""
        return self.creates or self.deletes or bool(self.columns)


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
    lists: tuple[ListSpec, ...] = ()
    # What goals can use of its lists besides their fields: `count(items)`, or
    # `max(items.price).id`, the `id` of the record whose `price` is largest.
    derived: Fields = ()
    # What has to be open for each argument to be given; see `nested_arguments`.
    gates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Further types of arguments that may be of several.
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    access: AccessSpec | None = None  # None: it touches no record
    pages: PageSpec | None = None  # None: its results are whole

    @property
    def inputs(self) -> Fields:
        """The arguments, and then that which takes a cursor."""
        return (*self.arguments, *([(self.pages.cursor, CURSOR)] if self.pages else ()))

    @property
    def further_pages(self) -> int:
        """The most calls that it takes to read its list, besides the first one."""
        if self.pages is None:
            return 0
        (most,) = (x.at_most for x in self.lists if x.path == self.pages.path)
        return -(-most // self.pages.size) - 1

    @property
    def values(self) -> Fields:
        """What goals can use of a result: its fields, and what is derived from them."""
        return (*self.returns, *self.derived)

    @property
    def named(self) -> Fields:
        """The values that requests have words for."""
        if self.requests is None:
            return ()
        return tuple(x for x in self.values if x[0] in self.requests.fields)

    @cached_property
    def of_lists(self) -> frozenset[str]:
        """The values that are of a record of a list, or derived from a list."""
        leaves = (
            made.leaf(record, column)
            for made in self.lists
            for record in range(made.at_most)
            for column, _ in made.columns
        )
        return frozenset((*leaves, *dict(self.derived)))

    @property
    def accepted(self) -> Fields:
        """The arguments with each type that they may be of."""
        more = ((path, kind) for path, kinds in self.also.items() for kind in kinds)
        return (*self.arguments, *more)

    @property
    def needs(self) -> list[str]:
        """Tools that must have succeeded before this one is called."""
        return [name for name in (self.code_from, self.call_after) if name]


class Condition(NamedTuple):
    """When a step of a goal is wanted."""

    value: str  # the source that is compared
    comparison: str  # one of `COMPARISONS`
    limit: str  # the source that it is compared with


@dataclass(frozen=True)
class GoalSpec:
    """A kind of request: the calls that satisfy it, and how it is worded."""

    name: str
    constants: Fields
    steps: tuple[tuple[str, dict[str, str]], ...]  # (tool, argument given -> source)
    answer: str  # a source, or `DONE`
    phrases: Synonyms  # by pool: train, test, rewrite_train, rewrite_test
    # The conditions of steps, by their index. Nothing uses what these steps return.
    conditions: Mapping[int, Condition] = field(default_factory=dict)


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
    tables: tuple[TableSpec, ...] = ()
    divided: bool = False  # whether both splits are made of the training split


@lru_cache(4096)
def parse_source(source: str) -> tuple[int, str]:
    """Return the step of a source (-1 for the request), and the name of the value.

    >>> parse_source("$slot")
    (-1, 'slot')
    >>> parse_source("#2.field")
    (2, 'field')
    >>> parse_source("#0.items.1.id")
    (0, 'items.1.id')
    """
    if source[0] != "#":
        return -1, source[1:]
    step, _, name = source.partition(".")
    return int(step[1:]), name


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


def needed_tools(
    domain: DomainSpec, goal: GoalSpec
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tools that a goal calls, and those it calls whatever its conditions.

    Tools that have to be called before others are among both. What is only called for
    a step with a condition is not called whatever its conditions.
    """
    tools = {tool.name: tool for tool in domain.tools}
    used = [_steps_of(arguments.values()) for _, arguments in goal.steps]
    compared = [
        x for when in goal.conditions.values() for x in (when.value, when.limit)
    ]
    own = _steps_of([goal.answer, *compared])
    sure: set[int] = set()
    for c, (name, _) in reversed([*enumerate(goal.steps)]):
        users = {user for user, steps in enumerate(used) if c in steps}
        later = [needs_before(tools, [], goal.steps[other][0]) for other in sure]
        wanted = tools[name].effect or c in own or not users or users & sure
        if c not in goal.conditions and (wanted or any(name in x for x in later)):
            sure.add(c)
    steps = tuple(step for c, step in enumerate(goal.steps) if c in sure)
    every, certain = (
        frozenset((*dict(x.steps), *extra_calls(domain, x)))
        for x in (goal, replace(goal, steps=steps))
    )
    return every, certain


def _steps_of(sources: Iterable[str]) -> set[int]:
    """Return the steps that some sources are from."""
    return {parse_source(source)[0] for source in sources if source != DONE}


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
