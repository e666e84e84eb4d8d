"""What the steps of a goal do: the arguments, results and records of their calls.

Results are a hash of the call and of the task's world seed, or recorded.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax import hashing
from openagent_jax.environments.tools import cells as records
from openagent_jax.environments.tools import conditions, dynamic, pages, result_lists
from openagent_jax.environments.tools.cells import Steps
from openagent_jax.environments.tools.types import Facts, Task
from openagent_jax.text import scalars, style


class Solution(NamedTuple):
    """What the steps of a goal do, in their order."""

    args: Int[Array, "C A"]  # true arguments; 0 where there is none
    first_args: Int[Array, "C A"]  # those before results that change are read again
    values: Int[Array, "C V"]  # true results
    steps: Steps | None  # the records that they touch, as all of them leave them


def solutions(task: Task) -> tuple[Solution, Solution]:
    """Return what the steps do before and after the user changes the request."""
    both = jax.vmap(lambda x: solution(dynamic.as_changed(task, x)))(jnp.arange(2) > 0)
    first, later = (jax.tree.map(lambda x, i=i: x[i], both) for i in range(2))
    return first, later


def solution(task: Task) -> Solution:
    """Return what the steps of the goal do, each after those before it."""
    access, num_steps = task.tools.access, task.goal.tool.shape[0]
    values = jnp.full((num_steps, task.tools.num_values), -1, jnp.int32)
    is_stale = task.faults.stale
    cells = access and records.empty(num_steps, access.source.shape[1])

    def call(made, step):  # a loop compiles once
        values, first, cells = made
        c, wanted, sources = step
        tool = jnp.maximum(wanted, 0)
        default = task.tools.arg_default[tool]
        left_out = jnp.maximum(default, 0)
        args, first_args = (
            jnp.where(sources < 0, left_out, source(task, known, sources))
            for known in (values, first)
        )
        found, key = results(task, tool, args), jnp.int32(0)
        if access is not None:
            touch = records.touch(access, task.world, cells, tool, args, found)
            found, key = touch.values, touch.key
            happens = conditions.hold(task, values)[c] & (touch.status == style.OK)
            table = jnp.where(happens, access.table[tool], 0)
            none = jnp.zeros(access.source.shape[1], bool)
            cells, _ = records.write(cells, table, key, touch.after, none)
        before = jnp.where(is_stale[c], results(task, tool, args, changes=True), found)
        values, first = (
            known.at[c].set(jnp.where(wanted >= 0, new, -1))
            for known, new in ((values, found), (first, before))
        )
        kept = args, first_args, key, leaves_trace(task, tool, args)
        return (values, first, cells), kept

    # In order: a source is always an earlier step.
    order = jnp.arange(num_steps), task.goal.tool, task.goal.source
    (values, _, cells), made = jax.lax.scan(call, (values, values, cells), order)
    args, first_args, keys, own_call = made
    steps = None
    if access is not None and cells is not None:
        left = jax.vmap(lambda n, key: records.find(access, task.world, cells, n, key))
        record = left(jnp.maximum(task.goal.tool, 0), keys)
        steps = Steps(keys, record, own_call & (task.goal.tool >= 0))
    return Solution(args, first_args, values, steps)


def results(
    task: Task,
    tool: Int[Array, ""],
    args: Int[Array, "A"],
    changes: Bool[Array, ""] | bool = False,
) -> Int[Array, "V"]:
    """Return the values that a call returns; -1 where there is no such value.

    Args:
      task: the task.
      tool: the row of the tool.
      args: its arguments.
      changes: whether to return others, as they were before they changed.
    """
    drawn = _drawn(task, tool, args, changes)
    if task.facts is None:
        return drawn
    known = recorded(task, task.facts, tool, args)
    # Nothing is derived from recorded results.
    room = (0, drawn.shape[0] - task.facts.values.shape[1])
    found = jnp.pad(task.facts.values[jnp.argmax(known)], room, constant_values=-1)
    return jnp.where(jnp.any(known), found, drawn)


def _drawn(task: Task, tool: Array, args: Array, changes: Array | bool) -> Array:
    low, high = task.tools.result_low[tool], task.tools.result_high[tool]
    value = pages.call_hash(task.world, task.tools.relation[tool], args)
    if task.tools.lists is not None:
        lists = jax.tree.map(lambda x: x[tool], task.tools.lists)
        return result_lists.drawn(lists, value, low, high, changes)
    value = hashing.mix(value, jnp.arange(low.shape[0]))
    size = jnp.maximum(high - low, 1).astype(jnp.uint32)
    value = value % size + result_lists.shift(value, size, changes)
    drawn = scalars.canonical(low + (value % size).astype(jnp.int32))
    return jnp.where(high > low, drawn, -1)


def recorded(
    task: Task, facts: Facts, tool: Int[Array, ""], args: Int[Array, "A"]
) -> Bool[Array, "R"]:
    """Return which of the recorded calls equal this one."""
    same = jnp.all(facts.args == args[None], axis=1)
    return same & (facts.relation == task.tools.relation[tool])


def leaves_trace(
    task: Task, tool: Int[Array, ""], args: Int[Array, "A"]
) -> Bool[Array, ""]:
    """Return whether a call changes a record, and is given what no record keeps.

    Args:
      task: the task.
      tool: the row of the tool.
      args: its arguments; one that is left out is its default, and 0 if it has none.
    """
    tools = task.tools
    if tools.access is None:
        return jnp.bool_(False)
    has_arg = tools.arg_high[tool] > tools.arg_low[tool]
    given = has_arg & (args != tools.arg_default[tool])
    lost = given & ~tools.access.kept(args.shape[0])[tool]
    return tools.access.writes[tool] & jnp.any(lost)


def source(task: Task, values: Int[Array, "C V"], source: Int[Array, "..."]) -> Array:
    """Return the values of some sources; 0 where there is none."""
    table = jnp.concatenate([task.constants, values.reshape(-1)])
    return jnp.where(source < 0, 0, table[source])
