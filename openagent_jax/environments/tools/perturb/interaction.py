"""Interaction: tools respond differently. Faults are planned in the task."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    edit_faults,
    edit_tools,
    lasting,
    needed,
    placed_steps,
    wanted,
    wanted_surely,
    wanted_there,
    worded,
)
from openagent_jax.environments.tools.types import Task
from openagent_jax.perturb import Perturbation, bernoulli, pick, select
from openagent_jax.text import result_forms, scalars


def runtime_error(pools: Pools) -> Perturbation:
    """Make the first one or two calls of a needed tool fail.

    Before: `{"hour":"17"}`
    After:  `HTTP/1.1 503 Service Unavailable, Retry-After: 0`, then `{"hour":"17"}`
    """

    def apply(key, task, strength):
        coin, which, num = jax.random.split(key, 3)
        works = lasting(task) & (task.faults.failures == 0)
        tool = pick(which, wanted_there(task, pools) & works)
        failures = task.faults.failures.at[tool].set(jax.random.randint(num, (), 1, 3))
        hit = bernoulli(coin, strength) & (tool >= 0)
        failing = worded(key, edit_faults(task, failures=failures), pools)
        return select(hit, failing, task)

    return apply


def nonstandard_feedback(pools: Pools) -> Perturbation:
    """Return the results of each tool in a different form, with different keys.

    Some forms write numbers as other countries do, and some keys name the unit.

    Before: `{"hour":"17","code":"zuk4"}`
    After:  `<result><X-Hour>17</X-Hour><code>zuk4</code></result>`
    """

    def apply(key, task, strength):
        coin, which, keys = jax.random.split(key, 3)
        tools, faults, num = task.tools, task.faults, len(task.faults.form)
        escapes = jnp.array([[form.escapes for form in result_forms.FORMS.values()]])
        every, (low, high) = jnp.arange(escapes.shape[1])[None], pools.forms
        fits = escapes | ~_has_special(pools, task)[:, None]
        fits &= (low <= every) & (every < high)
        uniforms = jax.random.uniform(which, fits.shape)
        form = jnp.argmax(jnp.where(fits, uniforms, -1.0), axis=1).astype(jnp.int32)
        of_keys = jax.random.randint(keys, (num, 1), *pools.key_range)
        hit = bernoulli(coin, strength, (num,))
        if pools.position:
            hit &= wanted_there(task, pools)
        names = pools.keys.written(tools.result_name, of_keys)
        paths = pools.keys.written(tools.result_path, of_keys[..., None])
        renamed = edit_tools(
            task,
            result_name=jnp.where(hit[:, None], names, tools.result_name),
            result_path=jnp.where(hit[:, None, None], paths, tools.result_path),
        )
        return edit_faults(renamed, form=jnp.where(hit, form, faults.form))

    return apply


def _has_special(pools: Pools, task: Task) -> Bool[Array, "N"]:
    """Return the tools whose results have keys or values that not all forms can write.

    Values may yet be of unfamiliar entities.
    """
    tools, before = task.tools, pools.special

    def num(low: Array, high: Array) -> Array:
        """Return the number of such texts in ranges of values."""
        shift = jnp.where(low >= scalars.UNQUOTED, scalars.UNQUOTED, 0)
        is_text = (low >= 0) & (low < scalars.NUMBER)
        low, high = (jnp.where(is_text, end - shift, 0) for end in (low, high))
        return before[jnp.maximum(high, low)] - before[low]

    def is_special(symbol: Array) -> Array:
        return num(symbol, symbol + 1) > 0

    found = jnp.any(num(tools.result_low, tools.result_high) > 0, axis=1)
    found |= jnp.any(num(*jnp.moveaxis(pools.shifted, -1, 0)) > 0, axis=1)
    keys = (tools.result_name > 0) & is_special(tools.result_name)
    found |= jnp.any(keys, axis=1)
    outer = (tools.result_path > 0) & is_special(tools.result_path)
    found |= jnp.any(outer, axis=(1, 2))
    if task.facts is not None:
        rows = jnp.any(is_special(task.facts.values), axis=1)
        of_tool = task.facts.relation[None] == tools.relation[:, None]
        found |= jnp.any(of_tool & rows[None], axis=1)
    return found


def error_wording(pools: Pools) -> Perturbation:
    """Word the errors of each tool like those of a different interface.

    Only an error shows the wording, so a needed tool fails once if none fails
    already. That adds one call, and nothing else changes.

    Before: `{"error":"failed, try again"}`, then `{"hour":"17"}`
    After:  `HTTP/1.1 503 Service Unavailable, Retry-After: 0`, then `{"hour":"17"}`
    """

    def apply(key, task, strength):
        coin, which, words = jax.random.split(key, 3)
        faults, shape = task.faults, task.faults.wording.shape
        fails = (faults.failures > 0) | (faults.gone_at == 0)
        used = wanted_surely(task)
        there = used & wanted_there(task, pools)
        errs, tool = jnp.any(used & fails), pick(which, there & lasting(task))
        failures = faults.failures.at[tool].set(1)
        changed = edit_faults(
            task,
            failures=jnp.where(errs | (tool < 0), faults.failures, failures),
            wording=jax.random.randint(words, shape, *pools.wordings),
        )
        # Also where no tool can fail, lest the wording tell that one is withheld.
        hit = bernoulli(coin, strength)
        if pools.position:
            hit &= jnp.any(placed_steps(task, pools.position))
        return select(hit, changed, task)

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
