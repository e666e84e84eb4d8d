"""Interaction: a tool is replaced, at the start or in the middle of an episode.

The new tool does what the old one did, and no document mentions it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.tools import dynamic
from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    copy_row,
    edit_faults,
    edit_tools,
    fresh_name,
    has_own_tools,
    opaque_name,
    spare,
    wanted_there,
    with_gate,
)
from openagent_jax.environments.tools.types import FOREVER, Task
from openagent_jax.perturb import Perturbation, Variant, bernoulli, pick, select

_REDIRECTION, _DEPRECATION, _ADDITION, _DRIFT = range(4)


def tool_redirection(pools: Pools) -> Perturbation:
    """Replace a tool with an undocumented one, which only the error names.

    Before: `{"hour":"17"}`
    After:  `HTTP/1.1 308 Permanent Redirect, Location: when_open`, and `when_open`
            gives the hour
    """
    return _replacement(pools, _REDIRECTION)


def tool_deprecation(pools: Pools) -> Perturbation:
    """Deprecate a tool: it still works, but its results name an undocumented successor.

    Where the user changes the request, the tool is gone when it is needed again.

    Before: `{"hour":"17"}`
    After:  `{"hour":"17"}`, and below it `Deprecation: true, Link: when_open`
    """
    return _replacement(pools, _DEPRECATION)


def tool_addition(pools: Pools) -> Perturbation:
    """Replace a tool with a new one that is named only by a tool that lists new tools.

    Before: `{"hour":"17"}`
    After:  `HTTP/1.1 410 Gone`, then `{"new_tool":"when_open"}` from `list_tools`, and
            `when_open` gives the hour

    The tool that lists new tools is documented. Before the new tool is there, it names
    none.
    """
    return _replacement(pools, _ADDITION)


def schema_drift(pools: Pools) -> Perturbation:
    """Give the arguments of a tool new names, which the error lists.

    Before: `{"arguments":{"place":"Fern Park"}}`
    After:  `{"error":"arguments changed, they are now venue"}`, then
            `{"arguments":{"venue":"Fern Park"}}`

    The documents still have the old names. Nested arguments keep theirs.
    """
    return _replacement(pools, _DRIFT)


def _replacement(pools: Pools, kind: int) -> Perturbation:
    """Replace a tool; the two share the wording of their errors.

    Strength: the probability that a tool that the goal needs is replaced.
    """

    def apply(key, task, strength, kind):
        coin, which, name, words, gate_key, drift_key, when = jax.random.split(key, 7)
        kind = jnp.asarray(kind)
        is_drift, deprecated = kind == _DRIFT, kind == _DEPRECATION
        listed, lister = with_gate(gate_key, task, pools.listers)
        may_list = (lister >= 0) & (task.faults.lister < 0)
        listed = edit_faults(listed, lister=lister)
        needs_list = kind == _ADDITION
        task, before = select(needs_list & may_list, listed, task), task
        is_open = wanted_there(task, pools) & (task.faults.moved_to < 0)
        arg_names = _other_names(drift_key, task, pools)
        is_open &= ~is_drift | jnp.any(arg_names != task.tools.arg_name, axis=1)
        again = jnp.any(_used_again(task) & is_open)
        old = pick(which, is_open & (_used_again(task) | ~again))
        new = spare(task)
        choice = fresh_name(task, name, pools.names[old])
        opaque = opaque_name(task, name, pools)
        choice = jnp.where(has_own_tools(task), choice, opaque)
        choice = jnp.where(is_drift, task.tools.name[old], choice)
        wording = jax.random.randint(words, (), *pools.wordings)
        gone_at = _gone_at(when, task, old)
        gone_at = jnp.where(deprecated & ~again, FOREVER, gone_at)
        copied = copy_row(task, old, new)
        tools, faults = copied.tools, copied.faults
        renamed = tools.arg_name.at[new].set(arg_names[old])
        copied = edit_tools(
            copied,
            name=tools.name.at[new].set(choice),
            visible=tools.visible.at[new].set(False),
            arg_name=jnp.where(is_drift, renamed, tools.arg_name),
        )
        # The successor of a deprecated tool works from its first call on.
        is_fresh = deprecated & (jnp.arange(len(faults.failures)) == new)
        is_fresh &= faults.failures < FOREVER
        moved = edit_faults(
            copied,
            failures=jnp.where(is_fresh, 0, faults.failures),
            blanks=jnp.where(is_fresh, 0, faults.blanks),
            moved_to=faults.moved_to.at[old].set(new),
            gone_at=faults.gone_at.at[old].set(gone_at),
            guided=faults.guided.at[old].set(~needs_list),
            deprecated=faults.deprecated.at[old].set(deprecated),
            wording=faults.wording.at[jnp.stack([old, new])].set(wording),
        )
        hit = bernoulli(coin, strength) & (old >= 0) & (new >= 0) & (choice > 0)
        return select(hit & (may_list | ~needs_list), moved, before)

    return Variant(apply, family=(_replacement, id(pools)), which=kind)


def _other_names(key: jax.Array, task: Task, pools: Pools) -> Int[Array, "N A"]:
    """Return new argument names, for tools whose needed arguments all get one."""
    tools = task.tools
    pool = jnp.where(has_own_tools(task), pools.arg_names, 0)
    old, has_arg = tools.arg_name, tools.arg_high > tools.arg_low
    taken = jnp.any(pool[..., None] == old[:, None, None], axis=3)
    usable = (pool > 0) & ~taken & has_arg[..., None]
    uniforms = jnp.where(usable, jax.random.uniform(key, pool.shape), -1.0)
    best = jnp.argmax(uniforms, axis=2)[..., None]
    new = jnp.take_along_axis(pool, best, axis=2)[..., 0]
    new = jnp.where(jnp.any(usable, axis=2), new, old)
    twice = (new[:, :, None] == new[:, None]) & ~jnp.eye(new.shape[1], dtype=bool)[None]
    clash = jnp.any(twice & has_arg[:, None] & has_arg[..., None], axis=(1, 2))
    # An argument that every call passes tells old calls from new ones.
    row = jnp.arange(len(old))
    is_step = task.goal.tool[:, None] == row[None]
    passed = (task.goal.source >= 0)[:, None] | ~is_step[..., None]
    told = jnp.any(has_arg & (new != old) & jnp.all(passed, axis=0), axis=1)
    told &= ~jnp.any(tools.arg_path > 0, axis=(1, 2))
    return jnp.where((told & ~clash)[:, None], new, old)


def _used_again(task: Task) -> Bool[Array, "N"]:
    """Return the rows that are called again because the user changes the request."""
    row = jnp.arange(len(task.tools.name))
    again = jnp.where(dynamic.again(task), task.goal.tool, -1)
    return jnp.any(again[:, None] == row[None], axis=0)


def _gone_at(key: jax.Array, task: Task, row: Int[Array, ""]) -> Int[Array, ""]:
    """Sample how many steps have been done when a tool ceases to work.

    At the latest it is gone when the first step that uses it is next, in the order of
    the goal; if a changed request uses it again, after that step, and at the latest
    when that use is next.
    """
    faults, tools, goal = task.faults, task.tools, task.goal
    valid, step = goal.tool >= 0, jnp.arange(len(goal.tool))
    own, again = valid & (goal.tool == row), dynamic.again(task)
    first, last = jnp.argmax(own), len(step) - 1 - jnp.argmax(own[::-1])
    place = jnp.cumsum(valid)[first] - 1
    second = jnp.sum(valid) + jnp.cumsum(again)[last] - 1
    repeats = again[last]
    low = jnp.where(repeats, place + 1, 0)
    high = jnp.where(repeats, second, place)
    gone_at = jax.random.randint(key, (), low, jnp.maximum(high, low) + 1)
    # A tool has to last where it may be called more often than the goal asks for.
    calm = (faults.failures[row] == 0) & (faults.blanks[row] == 0)
    calm &= (faults.new_code[row] == 0) & ~jnp.any(faults.stale)
    if goal.when is not None:
        calm &= ~jnp.any(valid & (goal.when[:, 0] >= 0))
    if tools.access is not None:
        calm &= ~jnp.any(valid & (tools.access.table[goal.tool] > 0))
    return jnp.where(calm, gone_at, 0)
