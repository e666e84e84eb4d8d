"""The perturbations of crafting worlds, tier by tier.

Each function takes the pools of a split and returns `apply(key, task, strength)`.
Perturbations that must affect the goal edit a recipe or a raw item of its shortest
plan.

Two of them make tasks unsolvable, and each has a solvable counterpart of the same
surface. Let `w(x, y)` be what an entry makes of a world w that is to lose x and keep y.
Then `impossible_goal` makes `w(goal, other goal)` and `missing_spare` makes
`w(other goal, goal)`. Since a coin chose which of the two the user asks for, requests
have the same distribution in both, and so have books, lists and inventories; only the
two together tell what can be solved. In `sold_out` and `sold_out_with_recipe` x and y
are two raw items that the goal needs, in random order, and even the whole prompt has
the same distribution: only what is sold out, and whether the book has a recipe for it,
tells the two apart.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw
from openagent_jax.environments.crafting import oracle, worlds
from openagent_jax.environments.crafting import words as texts
from openagent_jax.environments.crafting.types import NUM_ITEMS, Items, Task
from openagent_jax.perturb import Perturbation, select
from openagent_jax.text import result_forms

MAX_MORE_RECIPES = 2


class Pools(NamedTuple):
    """The texts that perturbations of one split draw from."""

    opaque: Int[Array, "2"]  # range of names without meaning
    foreign: Int[Array, "2"]  # range of names of unfamiliar form
    rewrites: Int[Array, "R P"]  # rewritten requests
    forms: Int[Array, "2"]  # range of forms of results


def pools(source: texts.Pools, split: str) -> Pools:
    """Return the pools of a split."""
    forms = jnp.array(result_forms.RANGES[split == "test"])
    return Pools(
        opaque=source.opaque,
        foreign=source.foreign,
        rewrites=source.rewrites,
        forms=forms,
    )


# Perception: the texts change, their meaning does not.


def item_renaming(pools: Pools) -> Perturbation:
    """Replace item names with meaningless ones, each item independently.

    Before: `oak plank: oak log`. After: `k41: oak log`.
    """
    return _renaming(pools.opaque, each=True)


def recipe_order(pools: Pools) -> Perturbation:
    """Shuffle the book and the lists.

    Before: `oak plank: oak log` comes before `oak door: oak plank`. After: after it.
    """
    del pools

    def apply(key, task, strength):
        coin, order = worlds.uniforms(key, (), (NUM_ITEMS,))
        moved = _edit_items(task, place=task.items.place[jnp.argsort(order)])
        return select(coin < strength, moved, task)

    return apply


def request_rewrite(pools: Pools) -> Perturbation:
    """Rewrite the request in other words.

    Before: `I need: oak door`. After: `hi, what about: oak door?`
    """

    def apply(key, task, strength):
        coin, which = worlds.uniforms(key, (), ())
        row = draw.below(which, jnp.int32(len(pools.rewrites)))
        rewritten = replace(task, phrase=pools.rewrites[row])
        return select(coin < strength, rewritten, task)

    return apply


def vague_goal(pools: Pools) -> Perturbation:
    """Leave the goal out of the request.

    Before: `please make: oak door`. After: `please make: something`.
    """
    del pools

    def apply(key, task, strength):
        hidden = replace(task, shown=jnp.bool_(False))
        (coin,) = worlds.uniforms(key, ())
        return select(coin < strength, hidden, task)

    return apply


def more_recipes(pools: Pools) -> Perturbation:
    """Add up to two recipes that the goal does not need.

    Before: five recipes. After: seven.
    """
    del pools

    def apply(key, task, strength):
        items, num = task.items, (NUM_ITEMS,)
        coins, which, count, what = worlds.uniforms(key, num, num, num, num * 2)
        rank = jnp.argsort(jnp.argsort(jnp.where(_spare(task), which, 2.0)))
        new = _spare(task) & (rank < MAX_MORE_RECIPES) & (coins < strength)
        # The ingredients are items that the request mentions anyway.
        other = _mentioned(task)[None] & ~jnp.eye(NUM_ITEMS, dtype=bool)
        best, picked = jax.lax.top_k(jnp.where(other, what, -1.0), 2)
        both = jnp.stack([count >= 0, count < 0.5], axis=1)
        used = both & (best >= 0)
        recipes = jnp.full_like(items.ingredients, -1)
        recipes = recipes.at[:, :2].set(jnp.where(used, picked, -1))
        ingredients = jnp.where(new[:, None], recipes, items.ingredients)
        return _edit_items(task, ingredients=ingredients)

    return apply


# Interaction: tools respond differently. Faults are planned in the task.


def failing_bench(pools: Pools) -> Perturbation:
    """Let the first one or two calls for a needed item fail.

    Before: `{"result":"done"}`
    After:  `{"error":"failed, try again"}`, then `{"result":"done"}`
    """
    del pools

    def apply(key, task, strength):
        coin, num, which = worlds.uniforms(key, (), (), (NUM_ITEMS,))
        item = _pick(which, _todo(task) & (task.faults.failures == 0))
        times = 1 + draw.below(num, jnp.int32(2))
        failing = _edit_faults(task, failures=task.faults.failures.at[item].set(times))
        return select((coin < strength) & (item >= 0), failing, task)

    return apply


def sold_out(pools: Pools) -> Perturbation:
    """Make `get` of a needed raw item fail for good.

    The book gets a recipe for another raw item that is needed.

    Before: `{"result":"done"}`
    After:  `{"error":"sold out"}` for an oak log; the book has `iron pipe: salt bag`
    """
    del pools
    return _selling_out(with_recipe=False)


def sold_out_with_recipe(pools: Pools) -> Perturbation:
    """Make `get` of a needed raw item fail for good, but add a recipe for it.

    Before: `{"result":"done"}`
    After:  `{"error":"sold out"}` for an oak log; the book has `oak log: salt bag`
    """
    del pools
    return _selling_out(with_recipe=True)


def nonstandard_feedback(pools: Pools) -> Perturbation:
    """Return results in a different format, drawn for each tool.

    Before: `{"result":"done"}`. After: `[result=done]`.
    """

    def apply(key, task, strength):
        old, (low, high) = task.faults.form, pools.forms
        coins, which = worlds.uniforms(key, old.shape, old.shape)
        new = low + draw.below(which, high - low)
        return _edit_faults(task, form=jnp.where(coins < strength, new, old))

    return apply


# Reasoning: the recipes change, and the book says so.


def extra_ingredient(pools: Pools) -> Perturbation:
    """Add a raw item that is not held to the ingredients of a needed recipe.

    Before: `oak plank: oak log`. After: `oak plank: oak log, iron pipe`.
    """
    del pools

    def apply(key, task, strength):
        coin, which, what = worlds.uniforms(key, (), (NUM_ITEMS,), (NUM_ITEMS,))
        ingredients = task.items.ingredients
        item = _pick(which, _todo(task) & _crafted(task) & (ingredients[:, -1] < 0))
        # Who holds it could craft without having read the book.
        new = _other_raw(what, task, item, among=task.held == 0)
        at = jnp.argmax(ingredients[item] < 0)
        longer = _edit_items(task, ingredients=ingredients.at[item, at].set(new))
        hit = (coin < strength) & (item >= 0) & (new >= 0)
        return select(hit, longer, task)

    return apply


def recipe_swap(pools: Pools) -> Perturbation:
    """Replace a raw ingredient of a needed recipe by one that is not held.

    Before: `oak plank: oak log, salt bag`. After: `oak plank: oak log, iron pipe`.
    """
    del pools

    def apply(key, task, strength):
        ingredients = task.items.ingredients
        num = (ingredients.size,)
        coin, which, what = worlds.uniforms(key, (), num, (NUM_ITEMS,))
        simple = (ingredients >= 0) & ~oracle.has_recipe(task.items)[ingredients]
        simple &= (_todo(task) & _crafted(task))[:, None]
        slot = _pick(which, simple.reshape(-1))
        item, at = slot // ingredients.shape[1], slot % ingredients.shape[1]
        # Who holds it could craft without having read the book.
        new = _other_raw(what, task, item, among=task.held == 0)
        swapped = _edit_items(task, ingredients=ingredients.at[item, at].set(new))
        hit = (coin < strength) & (slot >= 0) & (new >= 0)
        return select(hit, swapped, task)

    return apply


def longer_chain(pools: Pools) -> Perturbation:
    """Turn a raw item that is needed once into one that has to be crafted.

    Before: raw items are oak log and iron pipe. After: iron pipe alone, and the book
    has `oak log: iron pipe`.
    """
    del pools

    def apply(key, task, strength):
        coin, which, what = worlds.uniforms(key, (), (NUM_ITEMS,), (NUM_ITEMS,))
        items = task.items
        once = oracle.true_plan(task, task.held).todo == 1
        item = _pick(which, once & _available(task) & ~oracle.has_recipe(items))
        new = _other_raw(what, task, item)
        longer = _edit_items(
            task,
            ingredients=items.ingredients.at[item, 0].set(new),
            raw=items.raw.at[item].set(False),
        )
        hit = (coin < strength) & (item >= 0) & (new >= 0)
        return select(hit, longer, task)

    return apply


# Internalization: unfamiliar names, and goals that cannot be reached.


def entity_shift(pools: Pools) -> Perturbation:
    """Replace the names of all items by names of an unfamiliar form.

    Before: `oak plank: oak log`. After: `Fern-7: Delta-2`.
    """
    return _renaming(pools.foreign, each=False)


def impossible_goal(pools: Pools) -> Perturbation:
    """Remove the source of an item that the goal needs.

    The item is not needed for the other goal of the task. Another item gets its
    recipe, or becomes raw in its place, so that the book and the lists keep their
    lengths.

    Before: `oak door: oak plank` and `oak box: oak plank`, for an oak door
    After:  `salt bag: oak plank` and `oak box: oak plank`, for an oak door
    """
    del pools
    return _losing_source(of_goal=True)


def missing_spare(pools: Pools) -> Perturbation:
    """Remove the source of an item that the goal does not need.

    The item is needed for the other goal of the task, but not for the goal.

    Before: `oak door: oak plank` and `oak box: oak plank`, for an oak door
    After:  `oak door: oak plank` and `salt bag: oak plank`, for an oak door
    """
    del pools
    return _losing_source(of_goal=False)


def _edit_items(task: Task, **fields) -> Task:
    return replace(task, items=replace(task.items, **fields))


def _edit_faults(task: Task, **fields) -> Task:
    return replace(task, faults=replace(task.faults, **fields))


def _renaming(bounds: Int[Array, "2"], each: bool) -> Perturbation:
    """Replace the names of items by names of a range.

    Args:
      bounds: the range of the new names.
      each: whether `strength` is the probability for each item on its own, or for all
        items together.
    """

    def apply(key, task, strength):
        old = task.items.name
        names, coins = worlds.uniforms(key, (2,), old.shape if each else (1,))
        new = worlds.draw_names(names, bounds)
        return _edit_items(task, name=jnp.where(coins < strength, new, old))

    return apply


def _losing_source(of_goal: bool) -> Perturbation:
    """Move the source of an item to a spare item.

    Args:
      of_goal: whether the goal needs the item and the other goal does not, or the other
        way round.
    """

    def apply(key, task, strength):
        coin, which, what = worlds.uniforms(key, (), (NUM_ITEMS,), (NUM_ITEMS,))
        items = task.items
        goal, other = _todo(task), _todo_for(task, task.other_goal)
        end = task.goal if of_goal else task.other_goal
        lost = goal & ~other if of_goal else other & ~goal
        lost &= _available(task) | _crafted(task)
        # Prefer an item before the last one, so that it does not suffice to look
        # whether the book has a recipe for the goal.
        before = lost & (jnp.arange(NUM_ITEMS) != end)
        item = _pick(which, jnp.where(jnp.any(before), before, lost))
        # The spare item must not get a recipe of which it is an ingredient.
        spare = ~goal & ~other & ~items.raw & ~oracle.has_recipe(items)
        spare = _pick(what, spare & (oracle.uses(items)[item] == 0))
        ingredients = items.ingredients.at[spare].set(items.ingredients[item])
        given = _edit_items(
            task,
            ingredients=ingredients.at[item].set(-1),
            raw=items.raw.at[spare].set(items.raw[item]).at[item].set(False),
        )
        return select((coin < strength) & (item >= 0) & (spare >= 0), given, task)

    return apply


def _selling_out(with_recipe: bool) -> Perturbation:
    """Sell out one of two raw items that are needed, and add a recipe for one of them.

    Args:
      with_recipe: whether both is done to the same item.
    """

    def apply(key, task, strength):
        coin, which, what = worlds.uniforms(key, (), (NUM_ITEMS,), (NUM_ITEMS,))
        items = task.items
        takes = _available(task) & ~oracle.has_recipe(items)
        # One unit each, so that crafting it takes few calls.
        once = takes & (oracle.true_plan(task, task.held).todo == 1)
        gone = _pick(which, once)
        rows = jnp.arange(NUM_ITEMS)
        kept = _pick(which, once & (rows != gone))
        new = _pick(what, takes & (rows != gone) & (rows != kept))
        crafted = gone if with_recipe else kept
        changed = replace(
            _edit_items(task, ingredients=items.ingredients.at[crafted, 0].set(new)),
            faults=replace(
                task.faults, sold_out=task.faults.sold_out.at[gone].set(True)
            ),
        )
        return select((coin < strength) & (kept >= 0) & (new >= 0), changed, task)

    return apply


def _available(task: Task) -> Bool[Array, "I"]:
    """Return the items that `get` gives."""
    return task.items.raw & ~task.faults.sold_out


def _crafted(task: Task) -> Bool[Array, "I"]:
    """Return the items that can only be crafted."""
    return oracle.has_recipe(task.items) & ~_available(task)


def _todo(task: Task) -> Bool[Array, "I"]:
    """Return the items that have to be taken or crafted for the goal."""
    return _todo_for(task, task.goal)


def _todo_for(task: Task, goal: Int[Array, ""]) -> Bool[Array, "I"]:
    """Return the items that would have to be taken or crafted for some goal."""
    return oracle.true_plan(replace(task, goal=goal), task.held).todo > 0


def _used(items: Items) -> Bool[Array, "I"]:
    """Return the items that are ingredients of some recipe."""
    return jnp.any(oracle.uses(items) > 0, axis=0)


def _mentioned(task: Task) -> Bool[Array, "I"]:
    """Return the items that the request mentions, the goal aside."""
    items = task.items
    return items.raw | oracle.has_recipe(items) | _used(items) | (task.held > 0)


def _spare(task: Task) -> Bool[Array, "I"]:
    """Return the items that have no source and that the goal does not need."""
    items = task.items
    return ~_todo(task) & ~items.raw & ~oracle.has_recipe(items)


def _other_raw(
    uniforms: Float[Array, "I"],
    task: Task,
    item: Int[Array, ""],
    among: Bool[Array, "I"] | bool = True,
) -> Int[Array, ""]:
    """Return one of some raw items, neither `item` nor in its recipe; -1 if none is."""
    fits = _available(task) & (oracle.uses(task.items)[item] == 0)
    # An item that has a recipe besides is left out, so that no cycle can arise.
    fits &= ~oracle.has_recipe(task.items)
    return _pick(uniforms, fits & among & (jnp.arange(NUM_ITEMS) != item))


def _pick(uniforms: Float[Array, "R"], among: Bool[Array, "R"]) -> Int[Array, ""]:
    """Return the index of the largest number where `among` is True, or else -1."""
    index = jnp.argmax(jnp.where(among, uniforms, -1.0))
    return jnp.where(jnp.any(among), index, -1).astype(jnp.int32)
