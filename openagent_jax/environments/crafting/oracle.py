"""The oracle: which goals can be reached, in how few calls, and what to do next.

How often each item has to be made is a least fixed point. The goal is needed once; an
item that has to be made n times needs each of its ingredients n times; what the
inventory holds need not be made:

    todo = max(needed - held, 0),    needed = [item is the goal] + todo @ uses

Every item has one source at most (`get`, or one recipe), and what is held is never
better left unused, so the least solution of these equations is also the shortest way,
in any order in which the ingredients of each craft are there. Where recipes go round
in a circle and the inventory does not break it, the iteration grows without end, and
the goal cannot be reached.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.crafting.types import (
    CRAFT,
    GET,
    NO_ITEM,
    Action,
    Call,
    Items,
    State,
    Task,
)
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.text.reply_scan import ANSWER, ASK, CALL, REFUSE
from openagent_jax.types import Certificate

# Why a task cannot be solved; the first stands for those that can.
REASONS = ("", "no_source", "sold_out", "circular_recipes")
_MOST = 1000  # no item is made so often but in a circle


class Plan(NamedTuple):
    """What is left to be done for a goal."""

    todo: Int[Array, "I"]  # how often each item has to be taken or crafted
    has_source: Bool[Array, ""]  # each of them can be taken or has a recipe
    circular: Bool[Array, ""]  # recipes that need each other without end

    @property
    def possible(self) -> Bool[Array, ""]:
        """Whether the goal can be reached."""
        return self.has_source & ~self.circular


def uses(items: Items) -> Int[Array, "I I"]:
    """Return how many units of item j the recipe of item i uses up, at [i, j]."""
    return jnp.sum(jax.nn.one_hot(items.ingredients, len(items.name), dtype=int), 1)


def has_recipe(items: Items) -> Bool[Array, "I"]:
    """Return which items can be crafted."""
    return items.ingredients[:, 0] >= 0


def make_plan(
    items: Items, raw: Bool[Array, "I"], held: Int[Array, "I"], goal: Int[Array, ""]
) -> Plan:
    """Return the shortest way to hold one unit of the goal.

    Args:
      items: with the recipes.
      raw: items that `get` is believed to give; their recipes are not used.
      held: units in the inventory.
      goal: row of the wanted item.
    """
    num = len(items.name)
    used = jnp.where(raw[:, None], 0, uses(items))
    wanted = jnp.arange(num) == goal

    def again(todo):
        return jnp.clip(wanted + todo @ used - held, 0, _MOST)

    # A chain of recipes that does not go round has `num` items at most.
    todo = jax.lax.fori_loop(0, num + 1, lambda _, x: again(x), jnp.zeros_like(held))
    return Plan(
        todo=todo,
        has_source=jnp.all((todo == 0) | raw | has_recipe(items)),
        circular=jnp.any(again(todo) != todo) | jnp.any(todo >= _MOST),
    )


def true_plan(task: Task, held: Int[Array, "I"]) -> Plan:
    """Return the plan of one who knows what is sold out."""
    raw = task.items.raw & ~task.faults.sold_out
    return make_plan(task.items, raw, held, task.goal)


def certificate(task: Task) -> Certificate:
    """Return whether a task can be solved, in how few calls, and why not.

    Calls that fail because of a planned fault count. The reason is an index into
    `REASONS`.
    """
    plan = true_plan(task, task.held)
    documented = make_plan(task.items, task.items.raw, task.held, task.goal)
    calls = jnp.sum(plan.todo + jnp.where(plan.todo > 0, task.faults.failures, 0))
    reason = jnp.where(documented.circular, 3, jnp.where(documented.possible, 2, 1))
    return Certificate(
        solvable=plan.possible,
        fewest_calls=jnp.where(plan.possible, calls, 0),
        reason=jnp.where(plan.possible, 0, reason),
    )


def expert(lexicon: Lexicon, task: Task, state: State) -> Action:
    """Return the next action of an agent that reads without fault.

    It knows the request and what feedback has shown, not the planned faults. It asks
    for a goal that the request leaves out, refuses once no way is left, crafts what
    can be crafted, and otherwise takes the next raw item that is missing. Of several
    items, the one that the request names first comes first.
    """
    items, held = task.items, state.held
    raw = items.raw & ~state.known_sold_out
    plan = make_plan(items, raw, held, task.goal)
    ready = has_recipe(items) & ~raw & jnp.all(uses(items) <= held[None], axis=1)
    open_ = plan.todo > 0
    last = len(items.name)
    rank = jnp.where(open_ & ready, items.place, 2 * last)
    rank = jnp.where(open_ & raw, last + items.place, rank)
    item = jnp.argmin(rank)

    vague = ~task.shown & ~state.told
    kind = jnp.where(plan.possible, CALL, REFUSE)
    kind = jnp.where(held[task.goal] > 0, ANSWER, kind)
    kind = jnp.where(vague, ASK, kind)
    called = kind == CALL
    tool = jnp.where(raw[item], GET, CRAFT)
    return Action(
        kind=kind.astype(jnp.int32),
        call=Call(
            tool=jnp.where(called, tool, -1).astype(jnp.int32),
            item=jnp.where(called, item, NO_ITEM).astype(jnp.int32),
        ),
        value=jnp.where(kind == ANSWER, lexicon.style.done, -1).astype(jnp.int32),
    )
