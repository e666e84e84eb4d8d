"""Steps of a goal that are only wanted if a condition on an earlier result holds.

Where it fails, a call that only serves such a step is not wanted either: an agent that
looks at the condition first has no use for it.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.domains.limits import MAX_PREREQUISITES
from openagent_jax.environments.tools.types import Task
from openagent_jax.text import scalars

AT_MOST, AT_LEAST, EQUALS = range(3)  # indices of `domain_spec.COMPARISONS`


def hold(task: Task, values: Int[Array, "C V"]) -> Bool[Array, "C"]:
    """Return the steps whose conditions hold, given the results of those before them.

    Steps without a condition are among them.
    """
    valid = task.goal.tool >= 0
    return valid if task.goal.when is None else valid & _hold(task, values)


def of_use(task: Task, kept: Bool[Array, "C"]) -> Bool[Array, "C"]:
    """Return which of some steps are of use if the goal has no others.

    Steps that have an effect, that the answer or a condition is from, or whose results
    no step uses are wanted for themselves; others only for the steps that use them.

    Args:
      task: the task.
      kept: the steps without those whose conditions fail.
    """
    goal, tools, when = task.goal, task.tools, task.goal.when
    valid = goal.tool >= 0
    kept &= valid
    if when is None:
        return kept
    uses = jnp.any(task.from_step(goal.source), axis=1) & valid[:, None]
    told = jnp.any(task.from_step(jnp.append(when[:, ::2], goal.answer)), axis=0)
    own = tools.effect[goal.tool] | told | ~jnp.any(uses, axis=0)
    # A prerequisite that is a step has arguments, which only the goal gives.
    uses |= needs(task)

    def wider(_, found):  # a chain of steps; a loop compiles once
        return kept & (own | jnp.any(uses & found[:, None], axis=0))

    return jax.lax.fori_loop(0, len(valid), wider, kept & own)


def needs(task: Task) -> Bool[Array, "C C"]:
    """Return whether the tool of step c, or one that it needs, needs that of step b."""
    goal, tools = task.goal, task.tools
    same = tools.relation[:, None] == tools.relation[None]
    before = [
        same[pointer] & (pointer >= 0)[:, None]
        for pointer in (tools.code_from, tools.call_after)
    ]

    def further(_, rows):
        for points in before:
            rows |= jnp.any(points[None] & rows[:, :, None], axis=1)
        return rows

    found = jax.lax.fori_loop(0, MAX_PREREQUISITES, further, same[goal.tool])
    found = found[:, goal.tool]
    return found & ~jnp.eye(len(goal.tool), dtype=bool)


def with_needed(task: Task, values: Int[Array, "C V"]) -> Task:
    """Return a task whose goal only has the steps that it needs.

    Args:
      task: the task.
      values: the results of all steps.
    """
    return _with_steps(task, of_use(task, hold(task, values)))


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
    step = task.source_step(when[:, ::2])
    known = jnp.all((step < 0) | done[step], axis=1)
    holds = _hold(task, values)
    possible = of_use(task, ~known | holds)
    return _with_steps(task, possible), of_use(task, known & holds)


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
    # Values that are not numbers are only compared for equality.
    holds = jnp.select(
        [comparison == AT_MOST, comparison == AT_LEAST],
        [scalars.at_most(value, limit), scalars.at_most(limit, value)],
        value == limit,
    )
    return (source < 0) | holds
