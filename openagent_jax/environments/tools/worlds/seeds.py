"""The seed of a task's world, in which no record is already as the request wants it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from openagent_jax import hashing
from openagent_jax.environments.tools import cells as records
from openagent_jax.environments.tools import conditions, solution
from openagent_jax.environments.tools.types import Task

NUM_SEEDS = 3  # that are tried; in calendar, one in 1,000 is unusable


def with_changes(task: Task) -> Task:
    """Return a task whose goal changes each record that it is to change.

    A step that sets a column to what it is needs no call, so that a task without its
    tool would not be unsolvable. Then another seed is taken, which is a function of the
    first one and keeps its last bit, the split. Tasks without such steps stay as they
    are.
    """
    if task.tools.access is None:
        return task
    bit = task.world & jnp.uint32(1)
    mixed = hashing.mix(task.world, jnp.arange(NUM_SEEDS)) & ~jnp.uint32(1)
    seeds = jnp.where(jnp.arange(NUM_SEEDS) == 0, task.world, mixed | bit)
    useless = jax.vmap(lambda seed: _is_useless(replace(task, world=seed)))(seeds)
    return replace(task, world=seeds[jnp.argmin(useless)])


def _is_useless(task: Task) -> Bool[Array, ""]:
    """Return whether a step changes nothing in the initial world."""
    access, solved = task.tools.access, solution.solution(task)
    assert access is not None and solved.steps is not None
    num_steps, num_columns = task.goal.tool.shape[0], access.source.shape[1]
    tool = conditions.with_needed(task, solved.values).goal.tool
    cells = records.start(num_steps, num_columns)
    now = records.now(access, task.world, tool, solved.steps, cells)
    there = records.in_place(access, tool, solved.steps, now)
    return jnp.any(there & access.writes[tool] & (tool >= 0))
