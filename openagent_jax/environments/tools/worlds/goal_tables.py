"""The calls of each goal as arrays, and which goals are paired with each other.

Goals that need the same tools share a row of the tables of pairs, so that a domain may
have thousands of goals.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

from openagent_jax.domains import domain_spec
from openagent_jax.domains.limits import MAX_SETS, Limits
from openagent_jax.environments.tools.worlds.phrases import round_up

# Array sizes are multiples of these.
GOAL_BLOCK, SET_BLOCK = 16, 16


class Ranges(Protocol):
    """What the values of a type are drawn from."""

    @property
    def splits(self) -> list[tuple[int, int]]: ...  # by split


class GoalTables(NamedTuple):
    """The fields of a `domain.Domain` that say which calls each goal needs."""

    goal_tool: Int[np.ndarray, "G C"]
    goal_source: Int[np.ndarray, "G C A"]
    goal_answer: Int[np.ndarray, "G"]
    goal_set: Int[np.ndarray, "G"]
    goal_when: Int[np.ndarray, "G C 3"] | None
    constant_range: Int[np.ndarray, "3 G Q 2"]
    set_needs: Bool[np.ndarray, "U N"]
    set_sure: Bool[np.ndarray, "U N"]
    pairing: Float[np.ndarray, "U U"]


def compile(
    spec: domain_spec.DomainSpec, ranges: Mapping[str, Ranges], limits: Limits
) -> GoalTables:
    """Return the goals of a domain as arrays.

    Args:
      spec: the domain, which fits the limits.
      ranges: what the values of each type are drawn from.
      limits: sizes of the arrays.

    Raises:
      DomainError: the goals need more than `MAX_SETS` different sets of tools.
    """
    N, A, C = limits.num_tools, limits.num_args, limits.num_steps
    G = round_up(len(spec.goals), GOAL_BLOCK)
    index = {tool.name: n for n, tool in enumerate(spec.tools)}
    values = {tool.name: _values(tool, limits) for tool in spec.tools}
    goal_tool = np.full((G, C), -1, np.int32)
    goal_source = np.full((G, C, A), -1, np.int32)
    goal_answer = np.full(G, -1, np.int32)
    goal_when = np.full((G, C, 3), -1, np.int32) if limits.conditions else None
    goal_set = np.zeros(G, np.int32)
    constant_range = np.zeros((3, G, limits.num_constants, 2), np.int32)
    sets: dict[tuple, int] = {}  # in the order of the goals
    for g, goal in enumerate(spec.goals):
        slots = [name for name, _ in goal.constants]

        def source(text: str, goal=goal, slots=slots) -> int:
            """Return the number of a source, as in `Goal.source`."""
            c, name = domain_spec.parse_source(text)
            if c < 0:
                return slots.index(name)
            f = values[goal.steps[c][0]].index(name)
            return limits.num_constants + c * limits.num_values + f

        for q, (_, kind) in enumerate(goal.constants):
            constant_range[:, g, q] = ranges[kind].splits
        for c, (name, arguments) in enumerate(goal.steps):
            goal_tool[g, c] = index[name]
            for a, (argument, _) in enumerate(spec.tools[index[name]].arguments):
                if argument in arguments:  # else it is left out
                    goal_source[g, c, a] = source(arguments[argument])
        for c, when in goal.conditions.items():
            assert goal_when is not None
            comparison = domain_spec.COMPARISONS.index(when.comparison)
            goal_when[g, c] = source(when.value), comparison, source(when.limit)
        if goal.answer != domain_spec.DONE:
            goal_answer[g] = source(goal.answer)
        needed = domain_spec.needed_tools(spec, goal)
        goal_set[g] = sets.setdefault(needed, len(sets))
    if len(sets) > MAX_SETS:
        raise domain_spec.DomainError(
            f"{spec.name}: goals: they need {len(sets)} different sets of tools, but "
            f"the limit is {MAX_SETS}; remove goals whose sets no other goal needs"
        )
    U = round_up(len(sets), SET_BLOCK)
    set_needs, set_sure = np.zeros((2, U, N), bool)
    for needed, u in sets.items():
        for rows, names in zip((set_needs, set_sure), needed, strict=True):
            rows[u, [index[name] for name in names]] = True
    count = np.bincount(goal_set[: len(spec.goals)], minlength=U)
    return GoalTables(
        goal_tool,
        goal_source,
        goal_answer,
        goal_set,
        goal_when,
        constant_range,
        set_needs,
        set_sure,
        pairing(set_needs, set_sure, count),
    )


def _values(tool: domain_spec.ToolSpec, limits: Limits) -> list[str]:
    """Return the name of each value of a result, "" where there is none."""
    empty = [""] * (limits.num_fields - len(tool.returns))
    return [*dict(tool.returns), *empty, *dict(tool.derived)]


def pairing(
    needs: Bool[np.ndarray, "U N"],
    sure: Bool[np.ndarray, "U N"],
    count: Int[np.ndarray, "U"],
) -> Float[np.ndarray, "U U"]:
    """Return how likely a goal of set u is paired with one of set v, at [u, v].

    Goals are paired if each has a tool that it needs whatever its conditions, and that
    the other does not need; goals of one set are equally likely partners. The
    probability of goal j for goal i is symmetric in the two, and sums to 1 for each
    goal where that is possible (Sinkhorn's scaling): for a goal that is drawn
    uniformly, the pair (i, j) is then as likely as (j, i). So documents that suit one
    goal of a pair, but not the other, do not tell which of the two was asked for. A
    goal without any partner has a row of zeros.

    Args:
      needs: the tools of each set.
      sure: those of them that are needed whatever the conditions of a goal.
      count: the number of goals that need each set.
    """
    only = (sure[:, None] & ~needs[None]).any(axis=2)
    match = (only & only.T).astype(float)
    scale = np.ones(len(needs))
    for _ in range(500):  # damped, so that it does not oscillate
        total = match @ (scale * count)
        scale = np.sqrt(scale / np.where(total > 0, total, 1))
    rate = scale[:, None] * match * (scale * count)[None]
    return (rate / max(1, rate.sum(axis=1).max())).astype(np.float32)
