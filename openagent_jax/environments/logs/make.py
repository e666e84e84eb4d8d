"""Make the worlds of logs, in which tools answer as the log recorded.

A world of a log is a tool world whose tasks are the conversations of the log.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from openagent_jax import expert
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.logs import logged_worlds, logs
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.tools.types import Task
from openagent_jax.environments.tools.worlds import documents, mixture
from openagent_jax.environments.tools.worlds import domain as domains
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.environments.world import Settings, Spelling, World
from openagent_jax.types import Environment, Sizes, Tables

# Keys of a config that limit numbers of tokens. `algorithm.num_tokens` is not in every
# config.
TOKENS = {f"sandbox.{x}_tokens" for x in ("prompt", "action", "result", "context")}
TOKENS |= {"algorithm.num_tokens"}


def check(domain: str, settings: Settings, max_sizes: Mapping[str, int]) -> None:
    """Check that a log can be used.

    Args:
      domain: the file.
      settings: give the sizes of the arrays.
      max_sizes: the maximum sizes of an episode, by the keys of a config.

    Raises:
      domain_spec.DomainError: the file has faults, or no conversation can be mapped.
    """
    limits = _limits(settings)
    logs.load(domain, _max_sizes(settings, limits) | dict(max_sizes)).checked()


def _limits(settings: Settings) -> Limits:
    """Return the limits of tasks whose results have no lists, which is true of logs."""
    limits = tools.limits_of(settings)
    return replace(limits, num_derived=0, conditions=False, paging=False)


def _max_sizes(settings: Settings, limits: Limits) -> dict[str, int]:
    """Return the limits that conversations have to fit, by the keys of a config."""
    found = logs.max_sizes(limits)
    if not settings.depth:  # as deep as the conversations need
        del found["sandbox.depth"]
    return found


def make(settings: Settings, spelling: Spelling) -> World:
    """Return the world of a log, or of a domain whose `transfer` is a log.

    Raises:
      domain_spec.DomainError: a file has faults, or no conversation can be mapped.
      ValueError: the tokenizer cannot be used, or not with this style.
    """
    limits, table = _limits(settings), ToolSymbols()
    shares = mixture.shares(settings), mixture.equal(settings.transfer)
    names = [name for chosen in shares for name in chosen.names]
    max_sizes = _max_sizes(settings, limits) | dict(spelling.max_sizes)
    found = {
        name: logs.load(name, max_sizes).spelled_by(spelling.tokenizer).checked()
        for name in names
        if logs.is_log(name)
    }
    limits = logged_worlds.fitted(
        limits, [task for log in found.values() for _, task in log.tasks]
    )
    specs = mixture.load([x for x in names if x not in found], limits)
    limits = documents.fitted(limits, [*specs.values()])
    made = documents.Documents(tools.style_of(spelling, limits))
    compiled: dict[str, Any] = {}
    goal_names: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if name in found:
            mapped = [task for _, task in found[name].tasks]
            compiled[name] = logged_worlds.compile(mapped, table, limits, made)
        else:
            spec = tools.with_sampled(settings, specs[name], limits)
            compiled[name] = domains.compile(spec, table, limits, made)
            goal_names[name] = [goal.name for goal in spec.goals]
    tasks, transfer = (mixture.joined(compiled, chosen) for chosen in shares)
    if log := found.get(settings.domain):
        goals = ["recorded"]
    else:
        goals = mixture.goals([(specs[x].name, goal_names[x]) for x in shares[0].names])
    units = mixture.units(specs.values())
    world = tools.world_of(
        tasks, transfer, goals, table, limits, settings, spelling, made, units
    )
    if log:
        finite = world.environment._replace(num_tasks=_num_distinct, nth_task=_nth)
        world = world._replace(environment=finite)
    return _fitting(world, log, max_sizes) if log else world


def _fitting(world: World, log: logs.Log, max_sizes: Mapping[str, int]) -> World:
    """Return the world of a log without the conversations that have too many tokens."""
    tasks, source = [task for _, task in log.tasks], world.tables.source
    if keys := TOKENS & max_sizes.keys():
        # `max_sizes` may have more turns than the settings. No other size counts, so
        # that worlds that differ in these share a compiled program.
        sizes = Sizes(max_sizes["sandbox.max_turns"], *[0] * (len(Sizes._fields) - 1))
        measure = partial(_num_tokens, tools.functions(sizes, 0), world.tables)
        found = logged_worlds.measured(measure, len(tasks))
        needs = [
            {key: (int(found[key][i]), "") for key in keys} for i in range(len(tasks))
        ]
        log, kept = log.fitting(needs, max_sizes)
        log.checked()
        source = source._replace(tasks=logged_worlds.only(source.tasks, tasks, kept))
    return world._replace(
        tables=world.tables._replace(source=source),
        source=log.file,
        summary=log.summary(),
        skipped=log.skipped,
        notes=tuple(log.report()),
    )


def _num_distinct(tables: Tables, split: str) -> int:
    return tables.source.tasks.num_distinct[domains.SPLITS[split]]


def _nth(tables: Tables, key: jax.Array, index: jax.Array, split: str) -> Task:
    return tables.source.tasks.nth(key, index, domains.SPLITS[split])


@partial(jax.jit, static_argnums=0)
def _num_tokens(
    made: Environment, tables: Tables, rows: Int[Array, "R"]
) -> dict[str, Int[Array, "R"]]:
    """Count the tokens of the expert's episodes on tasks, by the keys of a config."""

    def one(row):
        task = tables.source.tasks.task(row, jnp.zeros(2), domains.TRAIN)
        return expert.lengths(made, tables, expert.demonstrate(made, tables, task))

    lengths = jax.vmap(one)(rows)
    return {
        "sandbox.prompt_tokens": lengths.prompt,
        "sandbox.action_tokens": lengths.action,
        "sandbox.result_tokens": lengths.result,
        "sandbox.context_tokens": lengths.episode,
        "algorithm.num_tokens": lengths.episode,
    }


SPEC = tools.DOMAINS._replace(make=make, check=check)
