"""Internalization: unfamiliar domains and entities, and unsolvable tasks."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from openagent_jax import draw
from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    add_gate,
    edit_faults,
    edit_tools,
    spare,
    wanted,
)
from openagent_jax.environments.tools.types import FOREVER
from openagent_jax.perturb import Perturbation, bernoulli, one_of, pick, select


def domain_transfer(pools: Pools) -> Perturbation:
    """Replace the task by one of another domain, with other tools, types and goals.

    Before: `Find the evening event in Fern Park.`
    After:  `Report the duty nurse of Front Cardiac.`
    """

    def apply(key, task, strength):
        coin, key = jax.random.split(key)
        return select(bernoulli(coin, strength), pools.transfer(key), task)

    return apply


def entity_shift(pools: Pools) -> Perturbation:
    """Replace the names of entities by names of unfamiliar forms.

    Before: `Find the evening event in Fern Park.`
    After:  `Find the evening event in Nowy Varo-Alto.`
    """

    def apply(key, task, strength):
        uniforms = jax.random.uniform(key, (3,))
        ranges = pools.constant_range[task.goal.kind]
        constants = draw.distinct_symbols(uniforms[1:], ranges[:, 0], ranges[:, 1])
        shifted = edit_tools(
            replace(task, constants=constants),
            result_low=pools.shifted[..., 0],
            result_high=pools.shifted[..., 1],
        )
        return select(uniforms[0] < strength, shifted, task)

    return apply


def tool_withheld(pools: Pools) -> Perturbation:
    """Remove a tool that the goal needs, so that the task must be refused.

    Before: `"description":"opening hour of a place"` is among the documents.
    After:  no document mentions an opening hour.
    """
    del pools

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        tool = pick(which, wanted(task))
        hidden = edit_tools(task, visible=task.tools.visible.at[tool].set(False))
        # It also fails for good: if a later perturbation shows it again, as a
        # distractor, the task stays unsolvable.
        dead = edit_faults(
            hidden, failures=hidden.faults.failures.at[tool].set(FOREVER)
        )
        return select(bernoulli(coin, strength) & (tool >= 0), dead, task)

    return apply


def fatal_error(pools: Pools) -> Perturbation:
    """Let every call of a tool that the goal needs fail: try it, then refuse.

    Before: `{"hour":"17"}`. After: `{"error":"out of service for good"}`.
    """
    del pools

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        tool = pick(which, wanted(task))
        dead = edit_faults(task, failures=task.faults.failures.at[tool].set(FOREVER))
        return select(bernoulli(coin, strength) & (tool >= 0), dead, task)

    return apply


def contradiction(pools: Pools) -> Perturbation:
    """Let a needed tool and a new tool need each other's code: refuse.

    Before: `"name":"opening_hour","parameters":["place"]`
    After:  `"name":"opening_hour",...,"code_from":"get_pass"` beside
            `"name":"get_pass",...,"code_from":"opening_hour"`
    """

    def apply(key, task, strength):
        coin, which, gate, place = jax.random.split(key, 4)
        tool = pick(which, wanted(task) & (task.tools.code_from < 0))
        row = spare(task)
        gate = pools.gates[jax.random.randint(gate, (), 0, pools.gates.shape[0])]
        place = jax.random.randint(place, (), 0, task.tools.place.shape[0])
        gated = add_gate(task, row, gate, place)
        code_from = gated.tools.code_from.at[tool].set(row).at[row].set(tool)
        hit = bernoulli(coin, strength) & (tool >= 0) & (row >= 0)
        return select(hit, edit_tools(gated, code_from=code_from), task)

    return apply


def unsolvable(pools: Pools) -> Perturbation:
    """Apply one of `tool_withheld`, `fatal_error` and `contradiction`: refuse.

    A task that has no room for a contradiction loses a tool instead, so at strength 1
    no task stays solvable.
    """
    withheld = tool_withheld(pools)
    kinds = one_of(withheld, fatal_error(pools), contradiction(pools))

    def apply(key, task, strength):
        coin, key, again = jax.random.split(key, 3)
        always = jnp.float32(1)
        new = kinds(key, task, always)
        same = jnp.all(new.tools.code_from == task.tools.code_from)
        same &= jnp.all(new.faults.failures == task.faults.failures)
        new = select(same, withheld(again, task, always), new)
        return select(bernoulli(coin, strength), new, task)

    return apply
