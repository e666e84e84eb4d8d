"""Which calls repair wrongly changed records, judging by what has been seen.

A record is put right by deleting what should not be there, by the opposite of what was
added, or by setting a column back, if its value has been seen. A column that a step of
the goal has yet to set, or that a step deletes with its record, needs no repair, unless
its old value has still to be read.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.tools import cells as records
from openagent_jax.environments.tools import types
from openagent_jax.environments.tools.types import State, Task
from openagent_jax.text import scalars


class Fixes(NamedTuple):
    """What an agent that has seen the results so far can do about records."""

    rows: Bool[Array, "N"]  # tools with a call that puts a record right, or less wrong
    args: Int[Array, "N A"]  # the arguments of that call
    # Rows that only delete a record so that it can be created again, a last resort.
    last: Bool[Array, "N"]
    before: Bool[Array, "C C"]  # step b has to wait for step a, at [a, b]
    may_call: Bool[Array, "C"]  # a call of the step would do what the goal needs


def fixes(
    task: Task, state: State, done: Bool[Array, "C"], used: Bool[Array, "C"]
) -> Fixes:
    """Return the calls that put records right, and the steps that can be called.

    Args:
      task: the task.
      state: its state.
      done: the steps that need no call.
      used: the steps whose results are used, or are the answer.
    """
    tools, access, goal = task.tools, task.tools.access, task.goal
    cells, steps = state.cells, state.steps
    assert access is not None and cells is not None and steps is not None
    before = records.step_order(access, goal.tool, steps)
    waits = jnp.any(before & ~done[:, None], axis=0)
    # A step that changes a record need not show what its tool returns of it.
    shows = used | ~access.writes[goal.tool]
    to_call = (used | steps.own_call) & ~state.done
    spent = steps.own_call & access.adds[goal.tool] & state.done
    wrong = _wrong(task, state, before, shows & ~done, to_call, spent)
    of_table = cells.table[:, None] == access.table[None]  # [M, N]
    of_table &= (cells.table > 0)[:, None]

    erases = wrong.record[:, None] & access.deletes[None] & of_table
    # Sets every column that it writes to what it should be.
    own = access.source > 0  # [N, E]
    sets = own & (access.sign == 0)
    knows = jnp.all(~sets[None] | wrong.known[:, None], axis=2)
    some = jnp.any(sets[None] & wrong.column[:, None], axis=2)
    is_set = jnp.any(sets, axis=1) & ~access.creates
    resets = is_set[None] & knows & some & of_table
    # Adds or subtracts what is too little or too much, as far as one call can.
    v = jnp.argmax(own & (access.sign != 0), axis=1)  # [N]; such tools write one column
    column, target = cells.record.columns[:, v], wrong.target[:, v]  # [M, N]
    sign = access.sign[jnp.arange(len(v)), v]
    amount = scalars.plus(target, column, -1)
    amount = jnp.where(sign[None] < 0, scalars.plus(column, target, -1), amount)
    a = jnp.maximum(access.source[jnp.arange(len(v)), v] - 1, 0)
    low, high = (x[jnp.arange(len(v)), a] for x in (tools.arg_low, tools.arg_high))
    most = scalars.canonical(high - 1)[None]
    is_more = scalars.sign(scalars.plus(amount, most, -1)) > 0
    amount = jnp.where(is_more, most, amount)
    adds = scalars.within(amount, low[None], high[None]) & (scalars.sign(amount) > 0)
    adds &= (sign != 0)[None] & wrong.column[:, v] & of_table

    # Only calls whose arguments follow from the record.
    num_args = tools.arg_low.shape[1]
    argument = jnp.arange(num_args)
    is_key = access.key[:, None] == argument[None]  # [N, A]
    from_column = access.source[:, None] == 1 + argument[None, :, None]  # [N, A, E]
    follows = access.kept(num_args)
    is_needed = (tools.arg_high > tools.arg_low) & (tools.arg_default < 0)
    plain = jnp.all(follows | ~is_needed, axis=1) & jnp.any(is_key, axis=1)
    possible = (erases | resets | adds) & plain[None]  # [M, N]
    spoils = wrong.stale[:, None] & (access.deletes & plain)[None] & of_table
    last = jnp.any(spoils, axis=0) & ~jnp.any(possible, axis=0)
    possible |= spoils & last[None]
    m = jnp.argmax(possible, axis=0)  # [N]
    value = jnp.sum(jnp.where(from_column, wrong.target[m][:, None], 0), axis=2)
    value = jnp.where(sign[:, None] != 0, amount[m, jnp.arange(len(v))][:, None], value)
    value = jnp.where(is_key, cells.key[m][:, None], value)
    return Fixes(
        rows=jnp.any(possible, axis=0),
        args=jnp.where(follows, value, types.MISSING),
        last=last,
        before=before,
        may_call=~waits & ~spent & _works(task, state, shows),
    )


class _Wrong(NamedTuple):
    record: Bool[Array, "M"]  # should not exist, or has to be created again
    stale: Bool[Array, "M"]  # has a wrong column, and may be created again
    column: Bool[Array, "M E"]  # is not what it should be
    target: Int[Array, "M E"]  # what it should be
    known: Bool[Array, "M E"]  # whether that is known


def _wrong(
    task: Task,
    state: State,
    before: Bool[Array, "C C"],
    to_show: Bool[Array, "C"],
    to_call: Bool[Array, "C"],
    spent: Bool[Array, "C"],
) -> _Wrong:
    """Return what is wrong with the records that calls have touched.

    Args:
      task: the task.
      state: its state.
      before: see `Fixes.before`.
      to_show: the steps that have still to return what the goal needs to know.
      to_call: those whose own call the goal needs, whatever the records are.
      spent: those that have added to a column, and must not do so again.
    """
    access, goal = task.tools.access, task.goal
    cells, steps = state.cells, state.steps
    assert access is not None and cells is not None and steps is not None
    now, wanted = cells.record, records.targets(access, goal.tool, steps, cells)
    of_step = records.is_of_step(access, goal.tool, steps, cells)  # [M, C]
    own = access.source[goal.tool] > 0  # [C, E]
    creates = access.creates[goal.tool]

    def of_steps(some: Array) -> Array:
        """Return which columns of the records are among some [C, E] of steps."""
        return jnp.any(of_step[:, :, None] & some[None], axis=1)

    set_by_creation = of_steps(own & creates[:, None])
    adds = jnp.any((access.sign[goal.tool] != 0) & own, axis=1) & (goal.tool >= 0)
    # Steps that read what a column was initially, before any step changes it.
    number = 1 + jnp.arange(own.shape[1])
    reads = access.reads[goal.tool][:, :, None] == number[None, None]
    changes_before = jnp.any(before[:, :, None] & own[:, None], axis=0)  # [C, E]
    reads_old = jnp.any(reads, axis=1) & ~changes_before & to_show[:, None]
    reads_old = of_steps(reads_old) & ~set_by_creation
    written = of_steps(own) & ~set_by_creation
    added = of_steps(own & adds[:, None])
    # What a step has still to add to by its own call has to be as it was.
    to_add = of_steps(own & (adds & to_call)[:, None]) | reads_old
    strays = (now.columns != wanted.columns) | to_add
    off = now.columns != now.was
    off |= of_steps(own & spent[:, None]) & (now.columns != wanted.columns)
    off &= now.alive[:, None]
    needs = ~written & wanted.alive[:, None] | added & strays | reads_old
    made = now.alive & ~now.was_alive
    differs = set_by_creation & (now.columns != wanted.columns)
    to_create = jnp.any(of_step & (creates & to_call)[None], axis=1)
    again = made & wanted.alive & (jnp.any(differs, axis=1) | to_create)
    column = off & needs & ~set_by_creation & (now.was_alive | wanted.alive)[:, None]
    column |= differs & (again & ~to_create)[:, None]
    once = jnp.any(of_step & spent[None], axis=1)
    return _Wrong(
        record=made & ~wanted.alive | again,
        stale=made & wanted.alive & jnp.any(column, axis=1) & ~once,
        column=column,
        target=jnp.where(set_by_creation | added & ~to_add, wanted.columns, now.was),
        known=set_by_creation | cells.seen,
    )


def _works(task: Task, state: State, shows: Bool[Array, "C"]) -> Bool[Array, "C"]:
    """Return whether a call of each step would do what the goal needs, as records are.

    For steps that touch no record it is True.
    """
    access, goal = task.tools.access, task.goal
    steps = state.steps
    assert access is not None and state.cells is not None and steps is not None
    now = records.now(access, task.world, goal.tool, steps, state.cells)
    creates, own = access.creates[goal.tool], access.source[goal.tool] > 0
    sign, num_columns = access.sign[goal.tool], own.shape[1]
    can = now.alive != creates
    # What is added to has to be as it was.
    can &= jnp.all(~own | (sign == 0) | (now.columns == now.was), axis=1)
    column = 1 + jnp.arange(num_columns)
    reads = access.reads[goal.tool][:, :, None] == column[None, None]  # [C, F, E]
    fields = state.values[:, : reads.shape[1]]
    right = fields[:, :, None] == now.columns[:, None]
    right |= own[:, None] | ~shows[:, None, None]
    can &= jnp.all(~reads | right, axis=(1, 2))
    return can | (access.table[goal.tool] == 0) | (goal.tool < 0)
