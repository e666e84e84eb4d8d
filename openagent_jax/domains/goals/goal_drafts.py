"""Draw one goal at random: a small DAG of calls, grown backwards from what is wanted.

A draft begins with the last call: an effect, or a call whose result is asked for. Each
argument then gets a value: a constant of the request, the result of a call that the
draft already has, or the result of a new call. Tools that must be called before another
one (`code_from`, `call_after`) become steps with it if they take arguments, and share
its values where the types are the same. A draft that is too short gets further effects,
which use the values that are there (a fan-out) or constants of their own. At last, an
effect on which nothing depends may get a condition on what another call returns.
"""

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from openagent_jax.domains.domain_spec import (
    DONE,
    Condition,
    DomainSpec,
    GoalSpec,
    extra_calls,
    needs_before,
)

MAX_EXTRA = 2  # prerequisites without arguments of one goal
MAX_FURTHER = 2  # pages of lists after the first ones, unless one list has more
# How often an argument gets the result of a new call, or else a value that is there,
# where it can: a range from which each draft draws its own rates.
NEW_CALL, REUSE = (0.4, 0.95), (0.3, 0.95)
GIVE_OPTIONAL = 0.5  # how often a call gives an optional argument
ASK_FOUND = 0.3  # how often a goal for an effect asks for what was found on the way
CONDITION = 0.2  # how often an effect gets a condition, where it can
MAX_CHOICES = 4  # of an enum that is compared with one of its values
ASK_EFFECT = 0.4  # how often a goal for an effect asks for what it returns

Value = tuple[int, str]  # (step, field); (-1, slot) for a constant


class Tools:
    """The tools of a domain that goals can be sampled from."""

    def __init__(self, spec: DomainSpec):
        every = {tool.name: tool for tool in spec.tools}
        self.types = {kind.name: kind for kind in spec.types}
        self.all_needs = {name: needs_before(every, [], name) for name in every}
        self.needs = {  # those that become steps
            name: [x for x in needs if every[x].arguments]
            for name, needs in self.all_needs.items()
        }
        self.usable = {
            name: tool
            for name, tool in every.items()
            if all(every[x].requests for x in (name, *self.needs[name]))
        }
        self.returning: dict[str, list[tuple[str, str]]] = {}  # type -> (tool, field)
        for tool in self.usable.values():
            for name, kind in tool.named:
                self.returning.setdefault(kind, []).append((tool.name, name))

    def comparisons(self, kind: str) -> tuple[str, ...]:
        """Return how values of a type can be compared with a constant, so that both
        outcomes are likely."""
        known = self.types.get(kind)  # None for the number of records of a list
        if known is not None and known.kind == "number":
            compares = known.minimum < known.maximum and not known.identifier
            return ("at_most", "at_least") if compares else ()
        if known is None or known.kind != "enum" or known.unquoted:
            return ()
        return ("equals",) if 1 < len(known.train) <= MAX_CHOICES else ()


@dataclass
class _Hole:
    """A value that some arguments share."""

    kind: str
    users: list[tuple[int, str]]  # (step, argument)
    is_optional: bool
    value: Value | None = None


@dataclass
class Draft:
    """A goal in the making."""

    tools: Tools
    num_steps: int
    num_constants: int
    rng: random.Random
    has_conditions: bool = False  # whether steps may have conditions
    steps: list[str] = field(default_factory=list)  # tools; each at most once
    holes: list[_Hole] = field(default_factory=list)
    constants: list[tuple[str, str]] = field(default_factory=list)  # (slot, type)
    answer: Value | None = None
    # By step: a value of another step, a comparison, and a slot.
    conditions: dict[int, tuple[Value, str, str]] = field(default_factory=dict)

    def grow(self, root: tuple[str, str]) -> bool:
        """Grow a goal from the call that it is for.

        Args:
          root: a tool, and the field that is asked for; "" for none.

        Returns:
          Whether the draft has become a goal of `num_steps` steps.
        """
        name, asked = root
        if self._cost(name) > self.num_steps:
            return False
        self.rates = self.rng.uniform(*NEW_CALL), self.rng.uniform(*REUSE)
        step = self._add(name)
        self.answer = (step, asked) if asked else None
        while self._fill():
            effects = [
                name
                for name, tool in self.tools.usable.items()
                if tool.effect and name not in self.steps
                and len(self.steps) + self._cost(name) <= self.num_steps
            ]  # fmt: skip
            if len(self.steps) == self.num_steps or not effects:
                self._ask()
                if self.has_conditions:
                    self._restrict()
                return len(self.steps) == self.num_steps
            self._add(self.rng.choice(effects))
        return False

    def _ask(self) -> None:
        """Ask for something that was found on the way, now and then."""
        found = [
            (step, name)
            for step, tool in enumerate(self.steps)
            if not self.tools.usable[tool].effect
            for name, _ in self.tools.usable[tool].named
        ]
        if self.answer is None and found and self.rng.random() < ASK_FOUND:
            self.answer = self.rng.choice(found)

    def _restrict(self) -> None:
        """Make an effect depend on what another step has found, now and then."""
        tools, steps = self.tools, range(len(self.steps))
        used = {x.value[0] for x in self.holes if x.value}
        used |= {self.answer[0]} if self.answer else set()
        used |= {s for user in steps for s in self.before(user)}
        options = [
            (step, (other, name), kind)
            for step in steps
            if tools.usable[self.steps[step]].effect and step not in used
            and not tools.needs[self.steps[step]]
            for other in steps
            if other != step and not tools.usable[self.steps[other]].effect
            for name, kind in tools.usable[self.steps[other]].named
            if tools.comparisons(kind)
        ]  # fmt: skip
        related = [x for x in options if self._share_value(x[0], x[1][0])]
        options = related or options
        has_room = len(self.constants) < self.num_constants
        if options and has_room and self.rng.random() < CONDITION:
            step, value, kind = self.rng.choice(options)
            comparison = self.rng.choice(tools.comparisons(kind))
            slot = self._slot(f"{kind}_limit")
            self.constants.append((slot, kind))
            self.conditions[step] = value, comparison, slot

    def _share_value(self, step: int, other: int) -> bool:
        """Tell whether steps have a value in common, or one finds it for the other."""
        mine = [x for x in self.holes if step in dict(x.users)]
        return any(
            other in dict(x.users) or (x.value and x.value[0] == other) for x in mine
        )

    def _slot(self, name: str) -> str:
        """Return a name that no constant has."""
        slots = dict(self.constants)
        names = (f"{name}_{n}" for n in itertools.count(2))
        return next(x for x in itertools.chain([name], names) if x not in slots)

    def _cost(self, name: str) -> int:
        """Return how many steps it takes to add a call."""
        return sum(x not in self.steps for x in (name, *self.tools.needs[name]))

    def _add(self, name: str) -> int:
        """Add a call with the steps that it needs; return its number."""
        self.steps.append(name)
        step = len(self.steps) - 1
        tool = self.tools.usable[name]
        is_open: dict[str, bool] = {}
        for argument, kind in tool.arguments:
            is_optional = argument in tool.optional
            if self._is_given(tool.gates.get(argument, ()), is_open):
                if argument in tool.also:
                    kind = self.rng.choice([kind, *tool.also[argument]])
                self.holes.append(_Hole(kind, [(step, argument)], is_optional))
        for need in self.tools.needs[name]:
            there = need in self.steps
            self._share(step, self.steps.index(need) if there else self._add(need))
        return step

    def _is_given(self, gates: Iterable[str], is_open: dict[str, bool]) -> bool:
        """Tell whether all gates of an argument are open; draw those that are new."""
        for gate in gates:
            if gate not in is_open:
                is_open[gate] = self.rng.random() < GIVE_OPTIONAL
            if not is_open[gate]:
                return False
        return True

    def _share(self, step: int, before: int) -> None:
        """Let two steps have the same values where they have arguments of a type."""
        for mine in [x for x in self.holes if before in dict(x.users)]:
            for other in self.holes:
                steps = dict(other.users)
                if other.kind == mine.kind and step in steps and before not in steps:
                    mine.users += other.users
                    self.holes.remove(other)
                    break

    def _fill(self) -> bool:
        """Give each argument a value; return whether all have one."""
        while hole := next((x for x in self.holes if x.value is None), None):
            hole.value = self._value(hole)
            if hole.value is None:
                return False
        return True

    def _value(self, hole: _Hole) -> Value | None:
        room = self.num_steps - len(self.steps)
        users = {step for step, _ in hole.users}
        producers = [
            (name, field)
            for name, field in self.tools.returning.get(hole.kind, [])
            if name not in self.steps and self._cost(name) <= room
        ]
        # A request would become hard to read if calls stood in for optional arguments.
        if hole.is_optional:
            producers = []
        if producers and self.rng.random() < self.rates[0]:
            name, field = self.rng.choice(producers)
            return self._add(name), field
        there = list(self._there(hole.kind, users))
        if there and self.rng.random() < self.rates[1]:
            return self.rng.choice(there)
        if len(self.constants) < self.num_constants:
            path = hole.users[0][1].replace("~.", "_")  # `~.` is a dot in a name
            slot = self._slot(path.replace(".", "_"))
            self.constants.append((slot, hole.kind))
            return -1, slot
        return self.rng.choice(there) if there else None

    def _there(self, kind: str, users: set[int]) -> Iterator[Value]:
        """Yield the values of a type that steps may use which do not use them yet."""
        used = {x.value for x in self.holes if users & {step for step, _ in x.users}}
        for slot, slot_kind in self.constants:
            if slot_kind == kind and (-1, slot) not in used:
                yield -1, slot
        values = [
            (step, returned)
            for step, name in enumerate(self.steps)
            for returned, returned_kind in self.tools.usable[name].named
            if returned_kind == kind
        ]
        if values := [value for value in values if value not in used]:
            after = self._after(users)
            yield from (value for value in values if value[0] not in after)

    def _after(self, steps: set[int]) -> set[int]:
        """Return some steps, and those that must come after any of them."""
        after, more = set(steps), True
        before = [self.before(step) for step in range(len(self.steps))]
        while more:
            more = {step for step, needs in enumerate(before) if needs & after} - after
            after |= more
        return after

    def before(self, step: int) -> set[int]:
        """Return the steps that a step uses or needs."""
        used = {
            hole.value[0]
            for hole in self.holes
            if hole.value and step in [user for user, _ in hole.users]
        }
        needs = {
            s
            for s, name in enumerate(self.steps)
            if name in self.tools.all_needs[self.steps[step]]
        }
        if step in self.conditions:
            used.add(self.conditions[step][0][0])
        return (used | needs) - {-1}

    def key(self) -> tuple:
        """Return what equal goals have in common, in whichever order they grew."""
        same: dict[Value, Any] = {
            hole.value: (self.steps[hole.value[0]], hole.value[1])
            for hole in self.holes
            if hole.value and hole.value[0] >= 0
        }
        for hole in self.holes:  # a constant is known by the arguments that it fills
            if hole.value and hole.value[0] < 0:
                users = {
                    (self.steps[step], argument)
                    for other in self.holes
                    if other.value == hole.value
                    for step, argument in other.users
                }
                same[hole.value] = tuple(sorted(users))
        arguments = {
            (self.steps[step], argument, same[hole.value])
            for hole in self.holes
            if hole.value
            for step, argument in hole.users
        }
        answer = self.answer and (self.steps[self.answer[0]], self.answer[1])
        conditions = {
            (self.steps[step], self.steps[value[0]], value[1], comparison)
            for step, (value, comparison, _) in self.conditions.items()
        }
        calls = frozenset(self.steps), frozenset(arguments), answer
        return (*calls, frozenset(conditions))

    def goal(self, spec: DomainSpec, name: str) -> GoalSpec | None:
        """Return the goal without its phrases; None if its steps need each other, or
        too many extra calls."""
        if (order := self._order()) is None:
            return None
        place = {step: index for index, step in enumerate(order)}

        def source(value: Value) -> str:
            step, name = value
            return f"${name}" if step < 0 else f"#{place[step]}.{name}"

        steps = []
        for step in order:
            tool = self.tools.usable[self.steps[step]]
            values = {
                argument: source(hole.value)
                for hole in self.holes
                if hole.value
                for user, argument in hole.users
                if user == step
            }
            given = [key for key, _ in tool.arguments if key in values]
            steps.append((tool.name, {key: values[key] for key in given}))
        conditions = {
            place[step]: Condition(source(value), comparison, f"${slot}")
            for step, (value, comparison, slot) in self.conditions.items()
        }
        used = [x for _, arguments in steps for x in arguments.values()]
        used += [condition.limit for condition in conditions.values()]
        slots = sorted(self.constants, key=lambda pair: used.index(f"${pair[0]}"))
        answer = source(self.answer) if self.answer else DONE
        goal = GoalSpec(name, tuple(slots), tuple(steps), answer, {}, conditions)
        pages = [self.tools.usable[name].further_pages for name in self.steps]
        is_short = sum(pages) <= max(MAX_FURTHER, *pages)
        is_short &= len(extra_calls(spec, goal)) <= MAX_EXTRA
        return goal if is_short else None

    def _order(self) -> list[int] | None:
        """Return the steps, each after those before it, the one asked for as late as
        can be; None if there is no such order."""
        order: list[int] = []
        left = sorted(
            range(len(self.steps)),
            key=lambda step: (bool(self.answer) and step == self.answer[0], -step),
        )
        while left:
            step = next((s for s in left if self.before(s) <= set(order)), None)
            if step is None:
                return None
            order.append(step)
            left.remove(step)
        return order
