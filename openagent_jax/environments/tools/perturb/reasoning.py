"""Reasoning: the dependencies between tools change, and the documents say so."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.tools.perturb.edits import (
    NOTE,
    Pools,
    alike,
    copy_row,
    edit_faults,
    edit_tools,
    in_use,
    other_name,
    other_relation,
    spare,
    wanted,
    wanted_surely,
    with_gate,
    worded,
)
from openagent_jax.environments.tools.types import FOREVER, RECORDED, Task
from openagent_jax.perturb import Perturbation, bernoulli, pick, select


def dependency_extension(pools: Pools) -> Perturbation:
    """Make a tool require the code of a new tool: the chain grows by one call.

    Before: `"name":"opening_hour","parameters":["place"]`
    After:  `"name":"opening_hour","parameters":["place"],"code_from":"get_pass"`
    """

    def apply(key, task, strength):
        coin, which, gate_key = jax.random.split(key, 3)
        tool = pick(which, wanted(task) & (task.tools.code_from < 0))
        gated, row = with_gate(gate_key, task, pools.gates)
        code_from = jnp.where(alike(task, tool), row, gated.tools.code_from)
        hit = bernoulli(coin, strength) & (tool >= 0) & (row >= 0)
        return select(hit, edit_tools(gated, code_from=code_from), task)

    return apply


def rule_shift(pools: Pools) -> Perturbation:
    """Make a tool require a prior call of a new tool, in place of any such rule it had.

    Before: `"name":"pay_ticket","call_after":"sign_in"`
    After:  `"name":"pay_ticket","call_after":"get_pass"`
    """

    def apply(key, task, strength):
        coin, which, gate_key = jax.random.split(key, 3)
        tool = pick(which, wanted(task))
        gated, row = with_gate(gate_key, task, pools.gates)
        call_after = jnp.where(alike(task, tool), row, gated.tools.call_after)
        hit = bernoulli(coin, strength) & (tool >= 0) & (row >= 0)
        return select(hit, edit_tools(gated, call_after=call_after), task)

    return apply


def incomplete_information(pools: Pools) -> Perturbation:
    """Leave the prerequisites of tools out of the documents.

    Before: `"name":"opening_hour","parameters":["place"],"code_from":"get_pass"`
    After:  `"name":"opening_hour","parameters":["place"]`; only the error of a call
            says `HTTP/1.1 401 Unauthorized: code issued by get_pass expected`

    Strength: the probability that the document of a tool with a prerequisite leaves it
    out. If no tool that the goal needs has a prerequisite, one comes to need a new
    tool.
    """

    def apply(key, task, strength):
        coin, which, gate_key, kind = jax.random.split(key, 4)
        tools, row = task.tools, jnp.arange(task.tools.relation.shape[0])
        needs = wanted(task) & ((tools.code_from >= 0) | (tools.call_after >= 0))
        tool = pick(which, wanted(task))
        gated, gate = with_gate(gate_key, task, pools.gates)
        by_code, same = jax.random.bernoulli(kind), alike(task, tool)
        code_from = jnp.where(same, jnp.where(by_code, gate, -1), gated.tools.code_from)
        call_after = jnp.where(
            same, jnp.where(by_code, -1, gate), gated.tools.call_after
        )
        added = edit_tools(gated, code_from=code_from, call_after=call_after)
        hit = bernoulli(coin, strength, row.shape)
        alone = ~jnp.any(needs) & (tool >= 0) & (gate >= 0) & hit[tool]
        changed = select(alone, added, task)
        untold = jnp.where(alone, same, needs & hit) & ~task.faults.untold
        changed = edit_faults(changed, untold=changed.faults.untold | untold)
        return select(jnp.any(untold), worded(key, changed, pools), task)

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
        code_from = jnp.where(alike(task, j), -1, source)
        code_from = jnp.where(alike(task, i), j, code_from)
        free = _no_cycle(feeds, code_from, tools.call_after)
        turned = (j >= 0) & free
        # Otherwise the earlier of two independent steps is made to wait for the later.
        unordered = goal[:, None] & (goal & sure)[None, :] & ~feeds & ~feeds.T
        unordered &= (row[:, None] != row[None]) & (source < 0)[:, None]
        position = jnp.argmax(task.goal.tool[:, None] == row[None], axis=0)
        unordered &= position[:, None] < position[None, :]
        pair = pick(other, unordered.reshape(-1))
        first, second = pair // num, pair % num
        waiting = jnp.where(alike(task, first), second, source)
        waits = (pair >= 0) & _no_cycle(feeds, waiting, tools.call_after)
        code_from = jnp.where(turned, code_from, jnp.where(waits, waiting, source))
        return select(
            bernoulli(coin, strength), edit_tools(task, code_from=code_from), task
        )

    return apply


def dependency_rewire(pools: Pools) -> Perturbation:
    """Make tools require the code or a call of different documented tools.

    Before: `"name":"tour_price",...,"code_from":"accept_terms"`
    After:  `"name":"tour_price",...,"code_from":"find_guide"`

    No tool is added and no dependency is reversed: a tool that the goal names comes to
    depend on one that can be called anyway. That is the tool of another step, which
    does not need this one and is wanted whatever the conditions of the goal, or a
    documented tool without arguments. If the tool had a prerequisite, the new one
    replaces it. If it had none, it only gets one that it did not have to wait for
    before, so that the order of calls is restricted further.

    The strength is the share of the goal's tools that are rewired, out of those that
    can be when it is their turn; they are rewired one after the other.
    """
    del pools

    def apply(key, task, strength):
        tools, goal = task.tools, task.goal
        num_steps, row = goal.tool.shape[0], jnp.arange(tools.relation.shape[0])
        feeds, provides = _feeds(task), _may_provide(task)

        def rewire(pointers, step):
            tool, key = step
            coin, kind, which = jax.random.split(key, 3)
            own = pointers[:, tool]
            kind = jax.random.randint(kind, (), 0, 2)
            kind = jnp.where(jnp.sum(own >= 0) == 1, jnp.argmax(own), kind)
            same = alike(task, tool)
            old, rest = own[kind], pointers.at[kind, tool].set(-1)
            before = feeds | jnp.any(rest[:, None] == row[None, :, None], axis=0)
            before = _closure(before)
            may = provides & ~same & ~alike(task, old) & ~before[tool]
            is_own = jnp.any(row[None] == own[:, None], axis=0)
            may &= ~jnp.where(old < 0, before[:, tool], is_own)
            new = pick(which, may)
            hit = bernoulli(coin, strength) & (new >= 0) & (tool >= 0)
            changed = pointers.at[kind].set(jnp.where(same, new, pointers[kind]))
            return jnp.where(hit, changed, pointers), None

        # A tool of several steps is rewired once.
        first = jnp.argmax(goal.tool[:, None] == goal.tool[None], axis=1)
        rows = jnp.where(first == jnp.arange(num_steps), goal.tool, -1)
        told = tools.visible & ~task.faults.untold
        rows = jnp.where(told[rows], rows, -1)
        steps = rows, jax.random.split(key, num_steps)
        pointers = jnp.stack([tools.code_from, tools.call_after])
        (code_from, call_after), _ = jax.lax.scan(rewire, pointers, steps)
        return edit_tools(task, code_from=code_from, call_after=call_after)

    return apply


def conflicting_sources(pools: Pools) -> Perturbation:
    """Let two documented tools answer the same question differently.

    Before: `"description":"opening hour of a place","name":"opening_hour"`
    After:  `"description":"opening hour of a place (cached copy)","name":...` beside
            `"description":"opening hour of a place (system of record)","name":...`

    The results of both tools differ, and only the one whose note says so counts. It is
    the tool of the domain or the new one, chosen at random, so that neither its name
    nor its place gives it away. Only tools whose results are drawn from ten values or
    more have a second source, so that few results are equal by chance, and only those
    that change nothing, read no record, and are not a prerequisite of another
    documented tool.

    The strength is the probability that a task has two such tools.
    """

    def apply(key, task, strength):
        coin, which, words, side, note, place = jax.random.split(key, 6)
        tool, row = pick(which, _may_conflict(task)), spare(task)
        name = other_name(task, words, pools, tool)
        is_copy = jax.random.bernoulli(side)  # whether the new tool is the right one
        kinds = jnp.stack([is_copy, ~is_copy]).astype(jnp.int32)
        notes = jax.random.randint(note, (2,), 0, pools.notes.shape[1])
        notes = pools.notes[kinds, notes]  # of the tool, and of the copy
        copied = copy_row(task, tool, row)
        made = copied.tools
        place = jax.random.randint(place, (), 0, made.place.shape[0])
        goal, rows = task.goal.tool, jnp.stack([tool, row])
        conflict = replace(
            edit_tools(
                copied,
                relation=made.relation.at[row].set(other_relation(task, tool)),
                code=task.tools.code,
                name=made.name.at[row].set(name),
                description=made.description.at[rows, NOTE].set(notes),
                place=made.place.at[row].set(place),
                visible=made.visible.at[row].set(True),
            ),
            goal=replace(
                task.goal, tool=jnp.where(is_copy & (goal == tool), row, goal)
            ),
        )
        hit = bernoulli(coin, strength) & (tool >= 0) & (row >= 0) & (name > 0)
        return select(hit, conflict, task)

    return apply


_MIN_RESULTS = 10  # of a tool with two sources


def _may_conflict(task: Task) -> Bool[Array, "N"]:
    """Return the rows of the goal's tools that can have a second source."""
    tools, faults = task.tools, task.faults
    row = jnp.arange(tools.relation.shape[0])
    drawn = (tools.result_high - tools.result_low >= _MIN_RESULTS).any(axis=1)
    drawn &= ~jnp.any(tools.result_low == RECORDED, axis=1)
    plain = ~tools.effect & (faults.failures == 0) & (faults.moved_to < 0)
    plain &= tools.description[:, NOTE] == 0
    if tools.access is not None:
        plain &= tools.access.table == 0
    used = in_use(task)
    for before in (tools.code_from, tools.call_after):
        plain &= ~jnp.any((before[:, None] == row[None]) & used[:, None], axis=0)
    same = (tools.relation[:, None] == tools.relation[None]) & used[None]
    return wanted(task) & drawn & plain & (jnp.sum(same, axis=1) == 1)


def _may_provide(task: Task) -> Bool[Array, "N"]:
    """Return the rows that an agent can call, whatever the results of other calls are.

    They are documented tools: those of unconditional steps, and those without arguments
    that work, change nothing, and only have prerequisites of these two kinds.
    """
    tools, faults = task.tools, task.faults
    steps = wanted_surely(task)
    works = tools.visible & (faults.failures < FOREVER) & (faults.moved_to < 0)
    works &= ~tools.effect & jnp.all(tools.arg_high <= tools.arg_low, axis=1)
    # A recorded world only answers the calls of its steps.
    works &= ~jnp.any(tools.result_low == RECORDED, axis=1)
    if tools.access is not None:
        works &= tools.access.table == 0

    def more(_, found: Bool[Array, "N"]) -> Bool[Array, "N"]:
        def met(before: Int[Array, "N"]) -> Bool[Array, "N"]:
            return (before < 0) | (found | steps)[before]

        return works & met(tools.code_from) & met(tools.call_after)

    # Tools that need each other are not found, nor those with more than two others
    # before them, which the oracle would not plan for. A loop compiles once.
    return steps | jax.lax.fori_loop(0, 3, more, jnp.zeros_like(works))


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
    step, source = jnp.arange(goal.tool.shape[0]), goal.source
    if goal.when is not None:
        source = jnp.concatenate([source, goal.when[:, ::2]], axis=1)
    direct = jnp.any(task.from_step(source), axis=1).T
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
