"""Interaction: what tools return, or ask for, changes while the agent acts."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from openagent_jax.environments.tools import dynamic
from openagent_jax.environments.tools.perturb import queries
from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    alike,
    edit_faults,
    edit_tools,
    lasting,
    needed,
    placed_steps,
    wanted,
    wanted_there,
    with_gate,
    worded,
)
from openagent_jax.environments.tools.types import RECORDED, Change, Task
from openagent_jax.perturb import Perturbation, bernoulli, pick, select

MAX_CALLS = 6  # of a task whose request changes, so that there are turns enough


def missing_values(pools: Pools) -> Perturbation:
    """Make tools that the goal needs return nulls instead of values at first.

    Before: `{"hour":"17"}`
    After:  `{"hour":null}`, then `{"hour":"17"}`

    Strength: the probability that a tool that the goal needs does so; at most two tools
    of a task do, so that there are enough turns. Tools that have an effect return their
    values at once, since they must not be called again.
    """

    def apply(key, task, strength):
        coin, num = jax.random.split(key)
        hit = wanted_there(task, pools) & ~task.tools.effect & (task.faults.blanks == 0)
        # One call would get the values and the new code.
        hit &= lasting(task) & (task.faults.new_code == 0)
        hit &= bernoulli(coin, strength, hit.shape)
        hit &= jnp.cumsum(hit) <= 2
        first = jnp.cumsum(hit) == 1  # the only one that may do so twice
        blanks = jnp.where(first, jax.random.randint(num, (), 1, 3), 1)
        return edit_faults(task, blanks=jnp.where(hit, blanks, task.faults.blanks))

    return apply


def rate_limit(pools: Pools) -> Perturbation:
    """Refuse every few calls, whichever they are, until the agent has waited.

    Before: `{"hour":"17"}`
    After:  `HTTP/1.1 429 Too Many Requests, Retry-After: 1 calls`, then
            `HTTP/1.1 429 Too Many Requests, Retry-After: 0 calls`, then `{"hour":"17"}`

    After two calls one is refused, or after three calls two. Strength: the probability
    that calls are limited.
    """

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        pause = jax.random.randint(which, (), 1, 3)
        hit = bernoulli(coin, strength) & (task.faults.pause == 0)
        limited = edit_faults(task, quota=pause + 1, pause=pause)
        return select(hit, worded(key, limited, pools), task)

    return apply


def verification_code_change(pools: Pools) -> Perturbation:
    """Make codes expire when they are first used, so that new ones must be obtained.

    Before: `get_pass`, then `opening_hour` with its code
    After:  `get_pass`, then `opening_hour` with its code, which gives
            `HTTP/1.1 401 Unauthorized: code expired, renew it with get_pass`; then both
            again

    Strength: the probability that a code that the goal needs expires. A goal that needs
    no code comes to need that of a new tool.
    """

    def apply(key, task, strength):
        coin, which, gate_key, new = jax.random.split(key, 4)
        tools, faults = task.tools, task.faults
        row = jnp.arange(tools.relation.shape[0])
        needs, there = wanted(task) & (tools.code_from >= 0), wanted_there(task, pools)

        def sources(rows: Array) -> Array:
            source = jnp.where(rows, tools.code_from, -1)
            return jnp.any(source[:, None] == row[None], axis=0)

        is_source = sources(needs & there) & ~sources(needs & ~there)
        is_source &= ~tools.effect & (faults.new_code == 0) & ~_is_stale(task)
        is_source &= lasting(task) & (faults.blanks == 0)
        is_source &= bernoulli(coin, strength, row.shape)

        tool = pick(which, there)
        gated, gate = with_gate(gate_key, task, pools.gates)
        code_from = jnp.where(alike(task, tool), gate, gated.tools.code_from)
        added = edit_tools(gated, code_from=code_from)
        alone = ~jnp.any(needs & there) & (tool >= 0) & (gate >= 0)
        alone &= bernoulli(jax.random.fold_in(coin, 1), strength)
        task, old = select(alone, added, task), task
        expires = jnp.where(alone, row == gate, is_source)
        # Codes that no call reveals take the place of those that expire.
        relation = task.tools.relation
        same = relation[:, None] == relation[None]
        points = jnp.any(task.tools.code_from[:, None] == row[None], axis=0)
        points = jnp.any(same & points[:, None], axis=0)
        spare = jax.random.permutation(new, row)
        spare = spare[jnp.argsort(points[spare], stable=True)]
        spare = spare[jnp.maximum(jnp.cumsum(expires) - 1, 0)]
        codes = task.tools.code[spare]
        expires &= ~points[spare] & (codes > 0)
        new_code = jnp.where(expires, codes, 0)
        # It is also that of a second tool that does the same.
        new_code = jnp.max(jnp.where(same, new_code[None], 0), axis=1)
        new_code = jnp.maximum(new_code, task.faults.new_code)
        # A new tool whose code would not expire is of no use.
        expired = worded(key, edit_faults(task, new_code=new_code), pools)
        return select(jnp.any(expires), expired, old)

    return apply


def stale_value(pools: Pools) -> Perturbation:
    """Let a value change after it has been read, before it is used.

    Before: `{"place":"Fern Park"}`, which `opening_hour` takes
    After:  `{"place":"Fern Park"}`, for which `opening_hour` returns
            `HTTP/1.1 409 Conflict: stale value, fetch it again with find_place`; then
            `{"place":"Elm Park"}`

    Strength: the probability that a result that another step uses changes; at most one
    result of a task does.
    """

    def apply(key, task, strength):
        hit = _may_be_stale(task) & placed_steps(task, pools.position)
        hit &= bernoulli(key, strength, task.goal.tool.shape)
        hit &= (jnp.cumsum(hit) == 1) & ~jnp.any(task.faults.stale)
        stale = edit_faults(task, stale=task.faults.stale | hit)
        return select(jnp.any(hit), worded(key, stale, pools), task)

    return apply


def query_evolution(pools: Pools) -> Perturbation:
    """Let the user change a value of the request, after the first right answer.

    Before: `Answer: 17`
    After:  `Answer: 17`, and the user says `Sorry, I meant Elm Park, not Fern Park.`;
            then `Answer: 9`

    Strength: the probability that the user does so. The steps that depend on the value
    have to be done again; none of them has an effect, reads a record or comes in pages.
    The new value is of the same type, drawn as constants are. Training says that it was
    meant from the start, the test that something has come up.
    """

    def apply(key, task, strength):
        coin, which, text = jax.random.split(key, 3)
        goal, num = task.goal, task.constants.shape[0]
        index = jnp.arange(num)
        again = dynamic.dependent(task, index)  # [Q, C]
        may_repeat = _is_free(task)
        valid = goal.tool >= 0
        ok = jnp.any(again, axis=1) & jnp.all(~again | may_repeat[None], axis=1)
        gates = needed(task, wanted(task)) & ~wanted(task)
        calls = jnp.sum(valid) + jnp.sum(gates) + jnp.sum(again, axis=1)
        ok &= calls <= MAX_CALLS
        if goal.when is not None:
            ok &= ~jnp.any(valid & (goal.when[:, 0] >= 0))
        # Another constant with this value would be meant as well.
        same = task.said[:, None] == task.said[None]
        used = jnp.any(-1 - task.phrase[:, None] == index[None], axis=0)
        used |= ~task.shown  # the user may tell them
        ok &= jnp.sum(same & used[None], axis=1) == 1
        ok &= (task.faults.change.constant < 0) & ~jnp.any(task.faults.stale)
        uniforms = jax.random.uniform(which, (queries.NUM_TRIES + num,))
        new = queries.other_value(uniforms, task, pools, ok)
        row = jax.random.randint(text, (), 0, len(pools.changes))
        change = Change(new.constant, new.value, pools.changes[row])
        hit = bernoulli(coin, strength) & (new.constant >= 0)
        return select(hit, edit_faults(task, change=change), task)

    return apply


def _is_free(task: Task) -> Bool[Array, "C"]:
    """Return the steps that can be done again without harm."""
    tools, tool = task.tools, jnp.maximum(task.goal.tool, 0)
    free = ~tools.effect[tool] & (tools.result_low[tool, 0] != RECORDED)
    free &= lasting(task)[tool]
    if tools.access is not None:
        free &= tools.access.table[tool] == 0
    if tools.pages is not None:
        free &= tools.pages.size[tool] == 0
    return free


def _is_stale(task: Task) -> Bool[Array, "N"]:
    """Return the rows of steps whose results change."""
    row = jnp.arange(task.tools.relation.shape[0])
    step = jnp.where(task.faults.stale, task.goal.tool, -1)
    return jnp.any(step[:, None] == row[None], axis=0)


def _may_be_stale(task: Task) -> Bool[Array, "C"]:
    """Return the steps whose results can change without harm.

    An argument of another step, which has to be done, is one of their values, so that
    its call tells of the change. They have no effect and read no record, so that they
    can be called again.
    """
    goal, tools = task.goal, task.tools
    num_fields, num_values = tools.result_low.shape[1], tools.num_values
    tool = jnp.maximum(goal.tool, 0)
    low, high = tools.result_low[tool], tools.result_high[tool]
    varies = jnp.pad(high - low > 1, ((0, 0), (0, num_values - num_fields)))

    user = goal.tool >= 0
    conditional = jnp.zeros_like(varies[:, 0])
    if goal.when is not None:
        user &= goal.when[:, 0] < 0
        conditional = jnp.any(task.from_step(goal.when[:, ::2]), axis=(0, 1))
        conditional |= goal.when[:, 0] >= 0
    from_step = task.from_step(goal.source)
    is_used = from_step & user[:, None, None]  # [C, A, C]
    value = (goal.source - task.constants.shape[0]) % num_values
    changes = varies[:, value]  # [C, C, A]: of each step, if the source is from it
    changes = jnp.moveaxis(changes, 0, -1)
    everywhere = jnp.all(~from_step | changes, axis=(0, 1))
    relation = tools.relation[tool]
    same = (relation[:, None] == relation[None]) & (goal.tool >= 0)[None]
    alone = jnp.sum(same, axis=1) == 1
    plain = _is_free(task) & (task.faults.new_code[tool] == 0)
    plain &= task.faults.change.constant < 0
    found = jnp.any(is_used & changes, axis=(0, 1)) & everywhere & ~conditional
    return found & alone & plain & (goal.tool >= 0) & ~task.faults.stale
