"""Internalization of facts: what training teaches, a document of the test contradicts.

The facts are of the kind "of this list of values, one stands for another". In training
they are always the same: each value has the next one of its list, the last one the
first, so that a policy can learn this table by heart. In a test each value has any
other, so that only an agent that reads the documents knows which.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax import draw
from openagent_jax.environments.tools.perturb.edits import FILING, Pools, edit_tools
from openagent_jax.environments.tools.types import Task
from openagent_jax.perturb import Perturbation, select
from openagent_jax.text import scalars

# A test draws from those but the value itself and its next one: from two or more.
MIN_VALUES = 4


def knowledge_update(pools: Pools) -> Perturbation:
    """Make the documents say that a value of the request is filed under another one.

    Before: `Find a thai restaurant in Fern Park.`, and `"description":"restaurants of a
            cuisine"`
    After:  the same request, and `"description":"restaurants of a cuisine (thai is
            filed under greek)"`: the call has to say `greek`. In the test,
            `"description":"restaurants of a cuisine [for thai pass mexican]"`.

    Strength: the probability that a task is changed. The value is one of a list of four
    or more texts, such as cuisines, and the documents of all tools that take one of
    them have the remark. In training the other value is always the next one of the
    list, so that it can be learned by heart. In the test it is any of the rest, so that
    what was learned is wrong. In half of the tasks the value to give is named first.

    A user who is asked says the value as the request would. Tasks stay as they are if
    the value is also compared with results, if the tools are given values of the list
    from elsewhere too, or if the goal changes records, which could be as wanted
    already.
    """

    def apply(key, task, strength):
        num = task.constants.shape[0]
        uniforms = jax.random.uniform(key, (4 + num,))
        u, order = uniforms[:4], uniforms[4:]
        low, high = pools.own_range.T
        size = high - low
        steps = jnp.where(pools.tabled, 1, 2 + draw.below(u[1], size - 2))
        other = low + (task.said - low + steps) % jnp.maximum(size, 1)
        rows = _takes(task, low, high)
        may = _may_change(task, pools, rows, other)
        q = jnp.argmax(jnp.where(may, order, -1.0))

        wordings = pools.asides.filings
        texts = wordings[draw.below(u[2], jnp.int32(len(wordings)))]
        pair = jnp.stack([task.said[q], other[q]])
        is_first = u[3] < 0.5  # the value to give is named before the other
        before, between, after = texts[is_first.astype(jnp.int32)]
        pair = jnp.where(is_first, pair[::-1], pair)
        remark = jnp.stack([before, pair[0], between, pair[1], after])

        old = task.tools.description
        has = jnp.any(rows[:, :, q], axis=1)[:, None] & (old[:, :1] > 0)
        new = old.at[:, FILING].set(jnp.where(has, remark, old[:, FILING]))
        changed = replace(
            edit_tools(task, description=new),
            constants=task.constants.at[q].set(other[q]),
        )
        return select((u[0] < strength) & jnp.any(may), changed, task)

    return apply


def _takes(
    task: Task, low: Int[Array, "Q"], high: Int[Array, "Q"]
) -> Bool[Array, "N A Q"]:
    """Return which arguments take texts of some ranges, each a list of values."""
    tools = task.tools
    ends = jnp.stack([tools.arg_low, tools.arg_high], axis=-1)
    ends = jnp.concatenate([ends[:, :, None], tools.arg_also], axis=2)
    ranges = jnp.stack([low, high])[None, None, None]
    is_range = jnp.all(ends[..., None] == ranges, axis=3)
    return jnp.any(is_range, axis=2) & (high > low)[None, None]


def _may_change(
    task: Task, pools: Pools, rows: Bool[Array, "N A Q"], other: Int[Array, "Q"]
) -> Bool[Array, "Q"]:
    """Return the constants in whose place another value can have to be given."""
    tools, goal, constant = task.tools, task.goal, jnp.arange(len(other))[None, None]
    own, shifted = pools.own_range, pools.constant_range
    low, high = own.T
    # Ranges of entities depend on the split. A symbol that needs an escape in some form
    # is not put in a description.
    may = jnp.all(own == shifted, axis=1) & (high - low >= MIN_VALUES)
    may &= high < scalars.UNQUOTED
    low, high = (jnp.where(may, end, 0) for end in (low, high))
    may &= pools.special[high] == pools.special[low]
    may &= scalars.within(task.said, low, high) & (task.said == task.constants)
    # Nothing else that is said has the value, or can have it later.
    said = [task.said, task.constants, task.phrase, task.faults.change.value[None]]
    said = jnp.concatenate(said)
    may &= ~jnp.any(said[:, None] == other[None], axis=0)
    may &= jnp.sum(own[:, None, 0] == own[None, :, 0], axis=1) == 1
    # It is given to tools that the remark is for, and nothing else of the list is.
    there = (goal.tool >= 0)[:, None, None]
    takes = rows[goal.tool] & there
    uses = (goal.source[:, :, None] == constant) & there
    may &= jnp.any(uses, axis=(0, 1))
    may &= ~jnp.any(uses & ~takes, axis=(0, 1))
    may &= ~jnp.any(takes & (goal.source >= 0)[:, :, None] & ~uses, axis=(0, 1))
    may &= constant[0, 0] != goal.answer
    if goal.when is not None:
        compared = jnp.where(goal.when[:, :1] >= 0, goal.when[:, ::2], -1)
        may &= ~jnp.any(compared[:, :, None] == constant, axis=(0, 1))
    if tools.access is not None:
        may &= ~jnp.any(tools.access.writes[goal.tool] & (goal.tool >= 0))
    remarked = jnp.any(tools.description[:, FILING] > 0, axis=1)
    may &= ~jnp.any(rows & remarked[:, None, None], axis=(0, 1))
    # The ranges are those of the domain, not of one that has replaced it.
    return may & (goal.kind >= 0)
