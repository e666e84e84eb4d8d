"""Interaction: tools respond differently. Faults are planned in the task."""


import jax
import jax.numpy as jnp

from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    copy_row,
    edit_faults,
    edit_tools,
    fresh_name,
    needed,
    spare,
    wanted,
    wanted_surely,
)
from openagent_jax.perturb import Perturbation, Variant, bernoulli, pick, select


def runtime_error(pools: Pools) -> Perturbation:
    """Let the first one or two calls of a tool that the goal needs fail.

    Before: `{"hour":"17"}`
    After:  `{"error":"failed, try again"}`, then `{"hour":"17"}`
    """
    del pools

    def apply(key, task, strength):
        coin, which, num = jax.random.split(key, 3)
        tool = pick(which, wanted(task) & (task.faults.failures == 0))
        failures = task.faults.failures.at[tool].set(jax.random.randint(num, (), 1, 3))
        hit = bernoulli(coin, strength) & (tool >= 0)
        return select(hit, edit_faults(task, failures=failures), task)

    return apply


def tool_redirection(pools: Pools) -> Perturbation:
    """Replace a tool by a new one, which the error names but no document does.

    Before: `{"hour":"17"}`
    After:  `HTTP/1.1 308 Permanent Redirect, Location: when_open`, and `when_open`
            gives the hour
    """
    return _replacement(pools, deprecated=False)


def tool_deprecation(pools: Pools) -> Perturbation:
    """Let a tool work, and its results name a new one, which no document does.

    Before: `{"hour":"17"}`
    After:  `{"hour":"17"}`, and below it `Deprecation: true, Link: when_open`
    """
    return _replacement(pools, deprecated=True)


def _replacement(pools: Pools, deprecated: bool) -> Perturbation:
    """Name a new tool, which shares the wording of its errors with the old one."""

    def apply(key, task, strength, deprecated):
        coin, which, name, words = jax.random.split(key, 4)
        old = pick(which, wanted(task) & (task.faults.moved_to < 0))
        new = spare(task)
        choice = fresh_name(task, name, pools.names[old])
        wording = jax.random.randint(words, (), *pools.wordings)
        copied = copy_row(task, old, new)
        copied = edit_tools(
            copied,
            name=copied.tools.name.at[new].set(choice),
            visible=copied.tools.visible.at[new].set(False),
        )
        faults = copied.faults
        moved = edit_faults(
            copied,
            moved_to=faults.moved_to.at[old].set(new),
            gone_at=faults.gone_at.at[old].set(jnp.where(deprecated, FOREVER, 0)),
            guided=faults.guided.at[old].set(True),
            deprecated=faults.deprecated.at[old].set(deprecated),
            wording=faults.wording.at[jnp.stack([old, new])].set(wording),
        )
        hit = bernoulli(coin, strength) & (old >= 0) & (new >= 0) & (choice > 0)
        return select(hit, moved, task)

    return Variant(apply, family=(_replacement, id(pools)), which=deprecated)


def nonstandard_feedback(pools: Pools) -> Perturbation:
    """Write the results of tools in other forms, of each tool in its own.

    Before: `{"hour":"17","code":"zuk4"}`
    After:  `<result><hour>17</hour><code>zuk4</code></result>`
    """

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        shape = task.faults.form.shape
        form = jax.random.randint(which, shape, *pools.forms)
        hit = bernoulli(coin, strength, shape)
        return edit_faults(task, form=jnp.where(hit, form, task.faults.form))

    return apply


def error_wording(pools: Pools) -> Perturbation:
    """Word the errors of each tool as another interface does.

    Nobody can see it without an error, so a tool that the goal needs fails once where
    none of them fails yet. That adds one call, and nothing else changes.

    Before: `{"error":"failed, try again"}`, then `{"hour":"17"}`
    After:  `HTTP/1.1 503 Service Unavailable, Retry-After: 0`, then `{"hour":"17"}`
    """

    def apply(key, task, strength):
        coin, which, words = jax.random.split(key, 3)
        faults, shape = task.faults, task.faults.wording.shape
        fails = (faults.failures > 0) | (faults.gone_at == 0)
        used = wanted_surely(task)
        errs, tool = jnp.any(used & fails), pick(which, used)
        failures = faults.failures.at[tool].set(1)
        worded = edit_faults(
            task,
            failures=jnp.where(errs, faults.failures, failures),
            wording=jax.random.randint(words, shape, *pools.wordings),
        )
        hit = bernoulli(coin, strength) & (errs | (tool >= 0))
        return select(hit, worded, task)

    return apply


def tool_removal(pools: Pools) -> Perturbation:
    """Remove the document of a tool that the task does not need.

    Before: six documents. After: five.
    """
    del pools

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        tools = task.tools
        tool = pick(which, tools.visible & ~needed(task, wanted(task)))
        gone = edit_tools(task, visible=tools.visible.at[tool].set(False))
        return select(bernoulli(coin, strength) & (tool >= 0), gone, task)

    return apply
