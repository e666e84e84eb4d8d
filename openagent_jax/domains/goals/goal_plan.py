"""What has to be known about a goal to write requests for it."""

from collections.abc import Callable

from openagent_jax.domains import domain_tables
from openagent_jax.domains.domain_spec import (
    DONE,
    GoalSpec,
    ToolSpec,
    needs_before,
    parse_source,
)

MAX_DEPTH = 2  # of noun phrases within a phrase


class Plan:
    """The steps of a goal, and how they depend on each other.

    Attributes:
      goal: the goal.
      tools: the tool of each step.
      arguments: the sources of the arguments of each step.
      given: the names of the arguments of each step.
      inner: the step that each argument of each step is from; -1 for the request.
      kinds: source -> type, for all constants and results.
      head: the last word of the noun for each of these.
      users: the steps that use a result of each step.
      needed_by: the steps that each step has to come before.
      fields: the results of each step that later ones use, as sources.
      asked: the step whose result is the answer; -1 if there is none.
      asks: whether the answer is more than the result of an effect.
      last: the step that the request is for.
      in_order: pairs of steps, the first of which has to come before the second in the
        request too, because of a record that one of them changes.
      found_nested: what `nested` has returned, for callers that ask again.
    """

    def __init__(self, goal: GoalSpec, tools: dict[str, ToolSpec]):
        self.goal = goal
        self.tools = [tools[name] for name, _ in goal.steps]
        self.arguments = [arguments for _, arguments in goal.steps]
        self.given = [tuple(arguments) for arguments in self.arguments]
        self.inner = [
            {name: parse_source(source)[0] for name, source in arguments.items()}
            for arguments in self.arguments
        ]
        self.kinds = {f"${slot}": kind for slot, kind in goal.constants}
        for step, tool in enumerate(self.tools):
            for name, kind in tool.values:
                self.kinds[f"#{step}.{name}"] = kind
        self.head = {x: kind.split("_")[-1].lower() for x, kind in self.kinds.items()}
        self.users: list[list[int]] = [[] for _ in goal.steps]
        for user, inner in enumerate(self.inner):
            for step in inner.values():
                if step >= 0:
                    self.users[step].append(user)
        compared = {user: when.value for user, when in goal.conditions.items()}
        for user, source in compared.items():
            self.users[parse_source(source)[0]].append(user)
        names = [name for name, _ in goal.steps]
        needs = [needs_before(tools, [], name) for name in names]
        self.needed_by = [
            {user for user, before in enumerate(needs) if name in before}
            for name in names
        ]
        self.asked = -1 if goal.answer == DONE else parse_source(goal.answer)[0]
        self.asks = self.asked >= 0 and not self.tools[self.asked].effect
        self.last = self.asked if self.asks else len(names) - 1
        used = {s for arguments in self.arguments for s in arguments.values()}
        used |= {*compared.values()}
        self.in_order = domain_tables.conflicts(goal.steps, tools)
        self.fields = [
            sorted(s for s in used if parse_source(s)[0] == step)
            for step in range(len(names))
        ]
        self.found_nested: dict[tuple, dict[int, int]] = {}

    def before(self, step: int) -> set[int]:
        """Return the steps whose results a step needs, or that have to come first."""
        found: set[int] = set()
        for other in reversed(range(step)):
            after = {*self.users[other], *self.needed_by[other]}
            if after & {step, *found}:
                found.add(other)
        return found

    def nested(
        self, nesting: str, can_nest: Callable[[int, int], bool]
    ) -> dict[int, int]:
        """Return the steps that become noun phrases, each with its depth.

        Args:
          nesting: see `Construction`.
          can_nest: tells of a step and its depth whether there are suitable phrases.
        """
        depth: dict[int, int] = {}
        hosts: set[int] = set()  # steps that have one already
        for step, tool in enumerate(self.tools):
            if nesting == "none" or tool.effect or step == self.asked:
                continue
            if len(self.users[step]) != 1 or self.needed_by[step] - {*self.users[step]}:
                continue
            inner = self.inner[step].values()
            deep = 1 + max((depth.get(s, 0) for s in inner), default=0)
            is_leaf = all(s < 0 for s in inner)
            host = self.users[step][0]
            when = self.goal.conditions.get(host)
            in_condition = when is not None and [when.value] == self.fields[step]
            allowed = deep <= MAX_DEPTH if nesting != "leaves" else is_leaf
            if nesting == "split" and host == self.last:
                allowed = False
            is_free = in_condition or host not in hosts
            if allowed and is_free and can_nest(step, deep):
                depth[step] = deep
                hosts |= set() if in_condition else {host}
        return depth
