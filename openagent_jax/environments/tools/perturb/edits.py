"""The pools that perturbations of tool worlds draw from, and edits of tasks."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.tools.types import Task, TaskPools, Tools


@dataclass(frozen=True)
class Pools(TaskPools):
    """What perturbations of one task and split draw from.

    The pools of the training and the test split share no surface form.
    """

    opaque: Int[Array, "2"]  # range of names without meaning
    styles: Int[Array, "2"]  # range of result styles
    transfer: Callable[[jax.Array], Task]  # samples a task of another domain


def edit_tools(task: Task, **fields) -> Task:
    """Return the task with some fields of `Task.tools` replaced."""
    return replace(task, tools=replace(task.tools, **fields))


def edit_faults(task: Task, **fields) -> Task:
    """Return the task with some fields of `Task.faults` replaced."""
    return replace(task, faults=replace(task.faults, **fields))


def wanted(task: Task) -> Bool[Array, "N"]:
    """Return the rows that the goal names and that are documented."""
    row = jnp.arange(task.tools.visible.shape[0])
    named = jnp.any(task.goal.tool[:, None] == row[None], axis=0)
    return named & task.tools.visible


def spare(task: Task) -> Int[Array, ""]:
    """Return a row that nothing refers to, for a new tool; -1 if there is none."""
    tools = task.tools
    row = jnp.arange(tools.relation.shape[0])
    used = tools.visible | jnp.any(task.goal.tool[:, None] == row[None], axis=0)
    for pointer in (tools.code_from, tools.call_after, task.faults.moved_to):
        used |= jnp.any((pointer[:, None] == row[None]) & used[:, None], axis=0)
    used |= jnp.any(task.faults.moved_to[:, None] == row[None], axis=0)
    last = row.shape[0] - 1 - jnp.argmax(~used[::-1])
    return jnp.where(jnp.all(used), -1, last).astype(jnp.int32)


def copy_row(tools: Tools, source: Array, target: Array) -> Tools:
    """Return the tools with row `source` copied to row `target`."""
    return jax.tree.map(lambda x: x.at[target].set(x[source]), tools)


def add_gate(
    task: Task, row: Array, presentation: Int[Array, "2"], place: Array
) -> Task:
    """Add a documented tool without arguments and results (a gate).

    Args:
      task: the task.
      row: a spare row; see `spare`.
      presentation: name and description of the gate.
      place: its place in the order of the documents.
    """
    tools = task.tools
    empty = jax.tree.map(lambda x: x.at[row].set(jnp.zeros_like(x[0])), tools)
    description = jnp.zeros_like(tools.description[0]).at[0].set(presentation[1])
    return edit_tools(
        task,
        **{
            **vars(empty),
            "relation": empty.relation.at[row].set(row),
            "code": tools.code,
            "code_from": empty.code_from.at[row].set(-1),
            "call_after": empty.call_after.at[row].set(-1),
            "name": empty.name.at[row].set(presentation[0]),
            "description": empty.description.at[row].set(description),
            "place": empty.place.at[row].set(place),
            "visible": empty.visible.at[row].set(True),
        },
    )
