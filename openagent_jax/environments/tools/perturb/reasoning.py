"""Reasoning: the rules between tools change, and the documents say so."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    add_gate,
    edit_tools,
    spare,
    wanted,
)
from openagent_jax.environments.tools.types import Task
from openagent_jax.perturb import Perturbation, bernoulli, pick, select


def dependency_extension(pools: Pools) -> Perturbation:
    """A tool now needs the code of a new tool: the chain grows by one call.

    Before: `"name":"opening_hour","parameters":["place"]`
    After:  `"name":"opening_hour","parameters":["place"],"code_from":"get_pass"`
    """

    def apply(key, task, strength):
        coin, which, gate_key = jax.random.split(key, 3)
        tool = pick(which, wanted(task) & (task.tools.code_from < 0))
        gated, row = _with_gate(gate_key, task, pools)
        code_from = gated.tools.code_from.at[tool].set(row)
        hit = bernoulli(coin, strength) & (tool >= 0) & (row >= 0)
        return select(hit, edit_tools(gated, code_from=code_from), task)

    return apply


def rule_shift(pools: Pools) -> Perturbation:
    """Another tool must be called first: a rule of order is new, or has moved.

    Before: `"name":"pay_ticket","call_after":"sign_in"`
    After:  `"name":"pay_ticket","call_after":"get_pass"`
    """

    def apply(key, task, strength):
        coin, which, gate_key = jax.random.split(key, 3)
        tool = pick(which, wanted(task))
        gated, row = _with_gate(gate_key, task, pools)
        call_after = gated.tools.call_after.at[tool].set(row)
        hit = bernoulli(coin, strength) & (tool >= 0) & (row >= 0)
        return select(hit, edit_tools(gated, call_after=call_after), task)

    return apply


def logic_inversion(pools: Pools) -> Perturbation:
    """The order of dependence is reversed, and documented.

    Before: `"name":"transfer_patient","code_from":"request_bed"`
    After:  `"name":"request_bed","code_from":"transfer_patient"`

    A code that passes between two steps, or from a prerequisite to a step, now
    passes the other way. Where no code passes, the earlier of two steps that do not
    feed each other now needs the code of the later. A task of one chain of data
    cannot be inverted and stays as it is.
    """
    del pools

    def apply(key, task, strength):
        coin, which, other = jax.random.split(key, 3)
        tools = task.tools
        num = tools.relation.shape[0]
        row = jnp.arange(num)
        goal = wanted(task)
        feeds = _feeds(task)  # [N, N]: row i must come before row j, by data
        source = tools.code_from
        # Rows j whose edge i -> j can be turned round: j must not eat i's data.
        eats = feeds[jnp.maximum(source, 0), row]
        turnable = goal & (source >= 0) & (tools.code_from[source] < 0) & ~eats
        j = pick(which, turnable)
        i = source[j]
        code_from = source.at[j].set(-1).at[i].set(j)
        free = _no_cycle(feeds, code_from, tools.call_after)
        turned = (j >= 0) & free
        # Else: two steps that do not feed each other, the first made to wait.
        apart = goal[:, None] & goal[None, :] & ~feeds & ~feeds.T
        apart &= (row[:, None] != row[None]) & (source < 0)[:, None]
        position = jnp.argmax(task.goal.tool[:, None] == row[None], axis=0)
        apart &= position[:, None] < position[None, :]
        pair = pick(other, apart.reshape(-1))
        first, second = pair // num, pair % num
        waiting = source.at[first].set(second)
        waits = (pair >= 0) & _no_cycle(feeds, waiting, tools.call_after)
        code_from = jnp.where(turned, code_from, jnp.where(waits, waiting, source))
        return select(
            bernoulli(coin, strength), edit_tools(task, code_from=code_from), task
        )

    return apply


def _with_gate(key: jax.Array, task: Task, pools: Pools) -> tuple[Task, Array]:
    """The task with a new tool without arguments, and its row (-1: no room)."""
    which, place = jax.random.split(key)
    row = spare(task)
    gate = pools.gates[jax.random.randint(which, (), 0, pools.gates.shape[0])]
    place = jax.random.randint(place, (), 0, task.tools.place.shape[0])
    return add_gate(task, row, gate, place), row


def _feeds(task: Task) -> Bool[Array, "N N"]:
    """[i, j]: row j takes, directly or not, a result of row i."""
    goal, tools = task.goal, task.tools
    num_steps = goal.tool.shape[0]
    num_constants, num_fields = task.constants.shape[0], tools.result_low.shape[1]
    step = jnp.arange(num_steps)
    source_step = (goal.source - num_constants) // num_fields
    direct = (goal.source >= num_constants)[:, :, None]
    direct = jnp.any(direct & (source_step[:, :, None] == step[None, None]), axis=1).T
    row = jnp.arange(tools.relation.shape[0])
    is_row = (goal.tool[:, None] == row[None]).astype(jnp.int32)
    return _closure((is_row.T @ direct.astype(jnp.int32) @ is_row) > 0)


def _no_cycle(feeds, code_from, call_after) -> Bool[Array, ""]:
    """Whether every row can still come after all that it needs."""
    row = jnp.arange(feeds.shape[0])
    before = feeds | (code_from[None, :] == row[:, None])
    before |= call_after[None, :] == row[:, None]
    return ~jnp.any(jnp.diagonal(_closure(before)))


def _closure(edges: Bool[Array, "N N"]) -> Bool[Array, "N N"]:
    reach = edges
    for _ in range(4):  # paths of up to 16 edges
        reach |= (reach.astype(jnp.int32) @ reach.astype(jnp.int32)) > 0
    return reach
