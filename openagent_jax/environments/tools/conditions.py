"""Steps of a goal that are only wanted if a condition on an earlier result holds."""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.tools.types import Task
from openagent_jax.text import scalars

AT_MOST, AT_LEAST, EQUALS = range(3)  # indices of `domain_spec.COMPARISONS`


def required(task: Task, values: Int[Array, "C V"]) -> Bool[Array, "C"]:
    """Return the steps that the goal needs, given the results of all of its steps."""
    valid = task.goal.tool >= 0
    return valid if task.goal.when is None else valid & _hold(task, values)


def with_needed(task: Task, values: Int[Array, "C V"]) -> Task:
    """Return a task whose goal only has the steps that it needs; see `required`."""
    return _with_steps(task, required(task, values))


def with_possible(
    task: Task, values: Int[Array, "C V"], done: Bool[Array, "C"]
) -> tuple[Task, Bool[Array, "C"]]:
    """Return a task without the steps that an agent knows to be unneeded.

    Args:
      task: the task.
      values: the results of all steps.
      done: the steps whose results the agent has.

    Returns:
      The task, and the steps that are known to be needed.
    """
    valid, when = task.goal.tool >= 0, task.goal.when
    if when is None:
        return task, valid
    sources, num_constants = when[:, ::2], task.constants.shape[0]
    step = (sources - num_constants) // values.shape[1]
    known = jnp.all((sources < num_constants) | done[step], axis=1)
    holds = _hold(task, values)
    return _with_steps(task, ~known | holds), valid & known & holds


def _with_steps(task: Task, kept: Bool[Array, "C"]) -> Task:
    if task.goal.when is None:
        return task
    return replace(
        task, goal=replace(task.goal, tool=jnp.where(kept, task.goal.tool, -1))
    )


def _hold(task: Task, values: Int[Array, "C V"]) -> Bool[Array, "C"]:
    """Return which conditions hold; those of steps without one do."""
    assert task.goal.when is not None
    source, comparison, limit = jnp.moveaxis(task.goal.when, -1, 0)
    table = jnp.concatenate([task.constants, values.reshape(-1)])
    value, limit = table[source], table[limit]
    # Values that are no numbers are only compared for equality.
    holds = jnp.select(
        [comparison == AT_MOST, comparison == AT_LEAST],
        [scalars.at_most(value, limit), scalars.at_most(limit, value)],
        value == limit,
    )
    return (source < 0) | holds
