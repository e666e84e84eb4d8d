"""A table of the domains of the library, for the docs."""

import statistics
from collections.abc import Iterator
from dataclasses import replace

from openagent_jax.domains import domain_file, library
from openagent_jax.domains.domain_spec import DomainSpec, extra_calls
from openagent_jax.domains.goals import goal_sampling
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import make
from openagent_jax.environments.world import Settings

HEADINGS = ("domain", "tools", "types", "goals", "mean calls", "about", "tools from")


def lines(settings: Settings) -> Iterator[str]:
    """Yield the lines of two tables in Markdown: to train on, and held out.

    Args:
      settings: give the sizes that goals have to fit, and how many are sampled.
    """
    num_goals = make.num_sampled(settings)
    groups = {"To train on": library.TRAIN, "Held out": library.HELD_OUT}
    for title, names in groups.items():
        yield from (f"## {title}", "")
        yield f"| {' | '.join(HEADINGS)} |"
        yield "| --- | ---: | ---: | ---: | ---: | --- | --- |"
        for name in names:
            limits = make.limits_of(replace(settings, domain=name, transfer=name))
            yield row(domain_file.load(name, limits), limits, num_goals)
        yield ""


def row(spec: DomainSpec, limits: Limits, num_goals: int) -> str:
    """Return a domain's row: its goals are its own ones and those sampled from it.

    >>> from openagent_jax.domains import domain_file
    >>> row(domain_file.load("medical"), Limits(), 0)[:32]
    '| medical | 14 | 17 | 13 | 2.8 |'
    """
    goals = goal_sampling.with_goals(spec, limits, num_goals).goals
    calls = [len(goal.steps) + len(extra_calls(spec, goal)) for goal in goals]
    about = spec.description.partition(": ")
    cells = (
        spec.name,
        len(spec.tools),
        len(spec.types),
        f"{len(goals):,}",
        f"{statistics.mean(calls):.1f}",
        about[2] or about[0],
        spec.source or "authored",
    )
    return f"| {' | '.join(map(str, cells))} |"
