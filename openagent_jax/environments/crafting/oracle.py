"""The oracle: which goals can be reached, in how few calls, and what to do next.

The number of times that each item has to be obtained (taken or crafted) is a least
fixed point. The goal is needed once; an item that is crafted n times needs each of its
ingredients n times; units in the inventory need not be obtained:

    todo = max(needed - held, 0),    needed = [item is the goal] + todo @ uses

An item that can be taken is not crafted, since no craft takes fewer calls than `get`,
and it never helps to leave units in the inventory unused. So the least solution of
these equations is the shortest plan, in any order in which the ingredients of each
craft are available. If recipes form a cycle that the inventory does not break, the
iteration grows without bound, and the goal cannot be reached.
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
_MOST = 1000  # without a cycle of recipes, no item is obtained this often


class Plan(NamedTuple):
    """The calls that are left to be made for a goal."""

    todo: Int[Array, "I"]  # how often each item has to be taken or crafted
    has_source: Bool[Array, ""]  # every such item can be taken or has a recipe
    circular: Bool[Array, ""]  # the plan needs a cycle of recipes

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
    """Return the shortest plan to hold one unit of the goal.

    Args:
      items: the items and their recipes.
      raw: items that `get` is assumed to give; their recipes are not used.
      held: units in the inventory.
      goal: row of the wanted item.
    """
    num = len(items.name)
    used = jnp.where(raw[:, None], 0, uses(items))
    wanted = jnp.arange(num) == goal

    def again(todo):
        return jnp.clip(wanted + todo @ used - held, 0, _MOST)

    # A chain of recipes without a cycle has at most `num` items.
    todo = jax.lax.fori_loop(0, num + 1, lambda _, x: again(x), jnp.zeros_like(held))
    return Plan(
        todo=todo,
        has_source=jnp.all((todo == 0) | raw | has_recipe(items)),
        circular=jnp.any(again(todo) != todo) | jnp.any(todo >= _MOST),
    )


def true_plan(task: Task, held: Int[Array, "I"]) -> Plan:
    """Return the plan of an agent that knows which items are sold out."""
    raw = task.items.raw & ~task.faults.sold_out
    return make_plan(task.items, raw, held, task.goal)


def certificate(task: Task) -> Certificate:
    """Certify whether a task can be solved, in how few calls, or why not.

    Calls that fail because of a planned fault are counted; these include one call for
    each needed item that is sold out, since only that call reveals it. The reason is an
    index into `REASONS`.
    """
    plan = true_plan(task, task.held)
    documented = make_plan(task.items, task.items.raw, task.held, task.goal)
    failing = task.faults.failures + (task.items.raw & task.faults.sold_out)
    calls = jnp.sum(plan.todo + jnp.where(plan.todo > 0, failing, 0))
    reason = jnp.where(documented.circular, 3, jnp.where(documented.possible, 2, 1))
    return Certificate(
        solvable=plan.possible,
        fewest_calls=jnp.where(plan.possible, calls, 0),
        reason=jnp.where(plan.possible, 0, reason),
    )


def expert(lexicon: Lexicon, task: Task, state: State) -> Action:
    """Return the next action of an agent that reads everything correctly.

    It knows the request and what feedback has shown, but not the planned faults. It
    asks for a goal that the request leaves out, refuses once it knows of no solution,
    crafts a needed item whose ingredients it holds, and otherwise takes a missing raw
    item. Of several such items it chooses the first by `Items.place`.
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
