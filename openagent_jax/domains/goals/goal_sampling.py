"""Sample goals from the typed tools of a domain, for those that have `requests`.

Goals of all lengths occur in the proportions of `SHARES`. Where a domain has no more
goals of one length, its share goes to the others. The first goals are single calls that
ask for each field of each tool, so that everything occurs.
"""

import random
from dataclasses import replace

from openagent_jax.domains import domain_tables
from openagent_jax.domains.domain_spec import (
    DomainSpec,
    GoalSpec,
    needed_tools,
)
from openagent_jax.domains.goals import goal_cache, request_writing
from openagent_jax.domains.goals.goal_drafts import (
    ASK_EFFECT,
    Draft,
    Tools,
)
from openagent_jax.domains.limits import MAX_SETS, Limits

SHARES = (2, 3, 4, 4, 3, 2)  # of goals with 1, 2, ... steps
PATIENCE = 3000  # drafts of a length without a new goal, before it counts as exhausted


def with_goals(
    spec: DomainSpec,
    limits: Limits,
    num: int,
    seed: int = 0,
    cache: str | None = None,
) -> DomainSpec:
    """Return a domain with up to `num` sampled goals after its own ones.

    Args:
      spec: the domain.
      limits: as for `sample_goals`.
      num: how many goals to sample.
      seed: the goals are a function of it.
      cache: a folder in which they are kept for the next time; None for none.
    """
    goals = goal_cache.remembered(cache, sample_goals, spec, limits, num, seed)
    return replace(spec, goals=spec.goals + goals)


def sample_goals(
    spec: DomainSpec, limits: Limits, num: int, seed: int = 0
) -> tuple[GoalSpec, ...]:
    """Sample different goals, with their requests.

    Args:
      spec: the domain. Only tools with `requests` take part.
      limits: bounds the steps, constants and pieces of a goal.
      num: how many goals to sample; there are fewer if the domain has fewer.
      seed: the goals are a function of it.
    """
    sampler = _Sampler(spec, limits, seed)
    if not sampler.tools.usable:
        return ()
    for name, tool in sampler.tools.usable.items():
        for field in (*(field for field, _ in tool.named), *[""] * tool.effect):
            if len(sampler.goals) < num:
                sampler.single(name, field)
    sampler.fill(num)
    return tuple(sampler.goals)


class _Sampler:
    """Goals sampled so far."""

    def __init__(self, spec: DomainSpec, limits: Limits, seed: int):
        self.spec, self.limits = spec, limits
        self.tools = Tools(spec)
        self.writer = request_writing.Writer(spec, limits)
        self.rng = random.Random(seed)
        self.goals: list[GoalSpec] = []
        self.seen: set[tuple] = set()
        self.sets = {needed_tools(spec, goal) for goal in spec.goals}
        self.counts = [0] * min(limits.num_steps, len(SHARES))

    def single(self, name: str, field: str) -> None:
        """Add the shortest goal that is for one call."""
        length = 1 + len(self.tools.needs[name])
        for _ in range(PATIENCE):
            if length > len(self.counts) or self._try((name, field), length):
                return

    def fill(self, num: int) -> None:
        """Add goals until there are enough, or no more can be found."""
        open_lengths = set(range(len(self.counts)))
        names = list(self.tools.usable)
        while len(self.goals) < num and open_lengths:
            # The length that is furthest behind its share.
            length = min(open_lengths, key=lambda i: self.counts[i] / SHARES[i])
            for _ in range(PATIENCE):
                if self._try(self._root(self.rng.choice(names)), length + 1):
                    break
            else:
                open_lengths.remove(length)

    def _root(self, name: str) -> tuple[str, str]:
        """Return a tool with the field to ask for, or "" for its effect."""
        tool = self.tools.usable[name]
        asks = not tool.effect or self.rng.random() < ASK_EFFECT
        return name, self.rng.choice(tool.named)[0] if asks else ""

    def _try(self, root: tuple[str, str], num_steps: int) -> bool:
        """Add a goal that is new, if one grows from the root."""
        limits = self.limits
        sizes = num_steps, limits.num_constants
        draft = Draft(self.tools, *sizes, self.rng, limits.conditions)
        if not draft.grow(root) or (key := draft.key()) in self.seen:
            return False
        self.seen.add(key)
        goal = draft.goal(self.spec, f"sampled_{len(self.goals)}")
        if goal is None or not domain_tables.fits(goal, self.spec):
            return False
        needed = needed_tools(self.spec, goal)
        if needed not in self.sets and len(self.sets) == MAX_SETS:
            return False
        phrases = self.writer.phrases(goal, self.rng)
        if phrases is None:
            return False
        self.sets.add(needed)
        self.goals.append(replace(goal, phrases=phrases))
        self.counts[num_steps - 1] += 1
        return True
