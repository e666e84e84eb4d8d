"""Reasoning: the dependencies between tools change, and the documents say so."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    edit_faults,
    edit_tools,
    wanted,
    with_gate,
)
from openagent_jax.environments.tools.types import Task
from openagent_jax.perturb import Perturbation, bernoulli, pick, select


def dependency_extension(pools: Pools) -> Perturbation:
    """Let a tool need the code of a new tool: the chain grows by one call.

    Before: `"name":"opening_hour","parameters":["place"]`
    After:  `"name":"opening_hour","parameters":["place"],"code_from":"get_pass"`
    """

    def apply(key, task, strength):
        coin, which, gate_key = jax.random.split(key, 3)
        tool = pick(which, wanted(task) & (task.tools.code_from < 0))
        gated, row = with_gate(gate_key, task, pools)
        code_from = gated.tools.code_from.at[tool].set(row)
        hit = bernoulli(coin, strength) & (tool >= 0) & (row >= 0)
        return select(hit, edit_tools(gated, code_from=code_from), task)

    return apply


def rule_shift(pools: Pools) -> Perturbation:
    """Let a tool need a call of a new tool before it, in place of any such rule.

    Before: `"name":"pay_ticket","call_after":"sign_in"`
    After:  `"name":"pay_ticket","call_after":"get_pass"`
    """

    def apply(key, task, strength):
        coin, which, gate_key = jax.random.split(key, 3)
        tool = pick(which, wanted(task))
        gated, row = with_gate(gate_key, task, pools)
        call_after = gated.tools.call_after.at[tool].set(row)
        hit = bernoulli(coin, strength) & (tool >= 0) & (row >= 0)
        return select(hit, edit_tools(gated, call_after=call_after), task)

    return apply


def incomplete_information(pools: Pools) -> Perturbation:
    """Leave out of the documents what has to be called before a tool.

    Before: `"name":"opening_hour","parameters":["place"],"code_from":"get_pass"`
    After:  `"name":"opening_hour","parameters":["place"]`; only the error of a call
            says `needs the code from get_pass`

    Strength: the probability that the document of a tool with a prerequisite leaves it
    out. If no tool that the goal needs has one, one comes to need a new tool.
    """

    def apply(key, task, strength):
        coin, which, gate_key, kind = jax.random.split(key, 4)
        tools, row = task.tools, jnp.arange(task.tools.relation.shape[0])
        needs = wanted(task) & ((tools.code_from >= 0) | (tools.call_after >= 0))
        tool = pick(which, wanted(task))
        gated, gate = with_gate(gate_key, task, pools)
        by_code = jax.random.bernoulli(kind)
        added = edit_tools(
            gated,
            code_from=gated.tools.code_from.at[tool].set(jnp.where(by_code, gate, -1)),
            call_after=gated.tools.call_after.at[tool].set(
                jnp.where(by_code, -1, gate)
            ),
        )
        hit = bernoulli(coin, strength, row.shape)
        alone = ~jnp.any(needs) & (tool >= 0) & (gate >= 0) & hit[tool]
        task = select(alone, added, task)
        untold = jnp.where(alone, row == tool, needs & hit)
        return edit_faults(task, untold=task.faults.untold | untold)

    return apply


def logic_inversion(pools: Pools) -> Perturbation:
    """Reverse a dependency between two tools.

    Before: `"name":"transfer_patient","code_from":"request_bed"`
    After:  `"name":"request_bed","code_from":"transfer_patient"`

    If a step needs the code of another step or of a prerequisite, that tool now needs
    the code of the step instead. If there is no such dependency, the earlier of two
    steps that do not use each other's results now needs the code of the later one. A
    task whose steps form a single chain of results stays as it is. No step comes to
    need the code of one that is only wanted under a condition.
    """
    del pools

    def apply(key, task, strength):
        coin, which, other = jax.random.split(key, 3)
        tools = task.tools
        num = tools.relation.shape[0]
        row = jnp.arange(num)
        goal = wanted(task)
        feeds = _feeds(task)  # [i, j]: row j uses a result of row i
        source = tools.code_from
        # Rows j whose dependency on the code of row i can be reversed, which needs that
        # j does not use results of i.
        eats = feeds[jnp.maximum(source, 0), row]
        sure = ~_has_condition(task)
        turnable = goal & sure & (source >= 0) & (tools.code_from[source] < 0) & ~eats
        j = pick(which, turnable)
        i = source[j]
        code_from = source.at[j].set(-1).at[i].set(j)
        free = _no_cycle(feeds, code_from, tools.call_after)
        turned = (j >= 0) & free
        # Otherwise the earlier of two independent steps is made to wait for the later.
        unordered = goal[:, None] & (goal & sure)[None, :] & ~feeds & ~feeds.T
        unordered &= (row[:, None] != row[None]) & (source < 0)[:, None]
        position = jnp.argmax(task.goal.tool[:, None] == row[None], axis=0)
        unordered &= position[:, None] < position[None, :]
        pair = pick(other, unordered.reshape(-1))
        first, second = pair // num, pair % num
        waiting = source.at[first].set(second)
        waits = (pair >= 0) & _no_cycle(feeds, waiting, tools.call_after)
        code_from = jnp.where(turned, code_from, jnp.where(waits, waiting, source))
        return select(
            bernoulli(coin, strength), edit_tools(task, code_from=code_from), task
        )

    return apply


def _has_condition(task: Task) -> Bool[Array, "N"]:
    """Return the rows of steps that are only wanted under a condition."""
    goal, row = task.goal, jnp.arange(task.tools.relation.shape[0])
    if goal.when is None:
        return jnp.zeros_like(row, bool)
    step = (goal.when[:, 0] >= 0)[:, None]
    return jnp.any(step & (goal.tool[:, None] == row[None]), axis=0)


def _feeds(task: Task) -> Bool[Array, "N N"]:
    """Return whether row j uses a result of row i, directly or not, at [i, j].

    A step also uses the results that its condition compares.
    """
    goal, tools = task.goal, task.tools
    num_steps = goal.tool.shape[0]
    num_constants, step = task.constants.shape[0], jnp.arange(num_steps)
    source = goal.source
    if goal.when is not None:
        source = jnp.concatenate([source, goal.when[:, ::2]], axis=1)
    source_step = (source - num_constants) // tools.num_values
    direct = (source >= num_constants)[:, :, None]
    direct = jnp.any(direct & (source_step[:, :, None] == step[None, None]), axis=1).T
    row = jnp.arange(tools.relation.shape[0])
    if tools.access is not None:  # a step may have to leave what another one needs
        table = jnp.where(goal.tool >= 0, tools.access.table[goal.tool], 0)
        writes = tools.access.writes[goal.tool]
        shared = (table[:, None] == table[None]) & (table > 0)[None]
        shared &= writes[:, None] | writes[None]
        direct |= shared & (step[:, None] < step[None])
    is_row = (goal.tool[:, None] == row[None]).astype(jnp.int32)
    return _closure((is_row.T @ direct.astype(jnp.int32) @ is_row) > 0)


def _no_cycle(feeds, code_from, call_after) -> Bool[Array, ""]:
    """Tell whether the dependencies of all rows are free of cycles."""
    row = jnp.arange(feeds.shape[0])
    before = feeds | (code_from[None, :] == row[:, None])
    before |= call_after[None, :] == row[:, None]
    return ~jnp.any(jnp.diagonal(_closure(before)))


def _closure(edges: Bool[Array, "N N"]) -> Bool[Array, "N N"]:
    reach = edges
    for _ in range(4):  # paths of up to 16 edges
        reach |= (reach.astype(jnp.int32) @ reach.astype(jnp.int32)) > 0
    return reach
