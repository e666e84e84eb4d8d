"""Requests of a goal as people read them: with constants, and with choices drawn."""

import random
from collections.abc import Iterator, Sequence

from openagent_jax.domains.domain_spec import (
    DomainSpec,
    GoalSpec,
    TypeSpec,
)
from openagent_jax.domains.goals import phrase_syntax
from openagent_jax.text import scalars


def some(
    spec: DomainSpec, goals: Sequence[GoalSpec], num: int, seed: int
) -> Iterator[str]:
    """Yield texts of some goals, drawn at random, with a request from each pool.

    Args:
      spec: the domain.
      goals: goals of it.
      num: how many to draw; all if there are fewer.
      seed: decides which goals, phrases and constants are drawn.
    """
    rng = random.Random(seed)
    for goal in rng.sample(goals, min(num, len(goals))):
        yield "\n".join(lines(spec, goal, rng))


def lines(spec: DomainSpec, goal: GoalSpec, rng: random.Random) -> Iterator[str]:
    """Yield the calls of a goal, and a request from each of its pools.

    Args:
      spec: the domain of the goal.
      goal: a goal of it, authored or sampled.
      rng: draws the constants, the phrases and their choices.
    """
    kinds = {kind.name: kind for kind in spec.types}
    for index, (tool, arguments) in enumerate(goal.steps):
        given = ", ".join(f"{name}={source}" for name, source in arguments.items())
        yield f"#{index} {tool}({given})"
    yield f"answer: {goal.answer}"
    for pool, phrases in goal.phrases.items():
        split = pool.removeprefix("rewrite_")
        constants: dict[str, str] = {}
        for slot, kind in goal.constants:  # all different, where there are enough
            values = _values(kinds[kind], split)
            others = [x for x in values if x not in constants.values()]
            constants[slot] = rng.choice(others or values)
        text = phrase_syntax.fill(rng.choice(phrases), constants, rng)
        yield f"  {pool}: {text}"


def _values(kind: TypeSpec, split: str) -> Sequence[str]:
    """Return the values of a type as a request has them."""
    if kind.kind == "number":
        ends = scalars.number_range(kind.minimum, kind.maximum, kind.decimals)
        return [
            scalars.spelled(ends[0] + i) for i in range(min(ends[1] - ends[0], 999))
        ]
    return getattr(kind, split)
