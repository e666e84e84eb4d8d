"""Random crafting worlds: recipes, inventory and goal, all sampled from one seed.

A chain of recipes, the spine, leads to one possible goal; each of them uses the item
before it. A branch of the spine leads to another possible goal. Both can be reached,
and a coin decides which of them the user asks for. So nobody can tell from the recipes,
lists and inventory which of the two it is: whatever a perturbation does to what the
goal alone needs, its solvable counterpart does to what the other goal alone needs, and
both look the same to a reader who does not know the goal.

There are also distractors: recipes that neither needs, ingredients that cannot be
obtained, and units in the inventory that are of no use.
"""

import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw
from openagent_jax.environments.crafting import oracle
from openagent_jax.environments.crafting.types import (
    NUM_INGREDIENTS,
    NUM_ITEMS,
    NUM_TOOLS,
    Faults,
    Items,
    Task,
)
from openagent_jax.environments.crafting.words import Pools

MAX_DEPTH = 6
# Shares of the depths 1 to 6 of the spine. With these, the goals, half of which are at
# the end of the branch, have the shares 0.2, 0.26, 0.24, 0.16, 0.09 and 0.05. Deep
# goals are rare, since long chains take many tokens.
DEPTHS = (0.193, 0.196, 0.269, 0.161, 0.106, 0.075)
MAX_OWN = 3  # most items of the spine that the branch does not share
MAX_CALLS = 5  # of a clean task, unless its recipes alone need more
MAX_EXTRA = (
    3  # most raw ingredients of the spine besides its raw end; it has at least 1
)
BRANCH_EXTRA = (0.2, 0.5, 0.3)  # shares of 0, 1 and 2 of them in a recipe of the branch
# Shares of distractors with 1, 2 and 3 ingredients.
INGREDIENTS = (0.35, 0.45, 0.2)
MAX_NEED = 6  # most units of a raw ingredient that a goal needs
# The least and the largest number of recipes of a book. It has one more if the deepest
# goal and the other one need that many.
NUM_RECIPES = (4, 6)

# Rows of a task: the spine from its raw end to the deepest goal; a side item, which a
# recipe of the spine may need and which has a recipe too; the branch; raw ingredients;
# and spare items, which only occur in recipes that no goal needs.
SPINE = MAX_DEPTH + 1
SIDE, BRANCH, RAW, SPARE = SPINE, SPINE + 1, SPINE + 3, SPINE + 7
NUM_BRANCH = RAW - BRANCH
NUM_RAW = SPARE - RAW


class Source(NamedTuple):
    """The pools of all splits; the first axis of each array is the split."""

    names: Int[Array, "2 2"]
    opaque: Int[Array, "2 2"]
    foreign: Int[Array, "2 2"]
    phrases: Int[Array, "2 R P"]
    rewrites: Int[Array, "2 R P"]

    def of(self, split: int) -> Pools:
        """Return the pools of a split."""
        return Pools(*(field[split] for field in self))


def source(pools: list[Pools]) -> Source:
    """Stack the pools of the splits, in their order."""
    return Source(*(jnp.stack(field) for field in zip(*pools, strict=True)))


def sample(pools: Pools, key: jax.Array, split: int) -> Task:
    """Sample a task of a split.

    Args:
      pools: the pools of the split.
      key: PRNG key; the task is a function of it.
      split: index of the split, 0 or 1; the world seeds of the split have this parity.
    """
    bits = jax.random.bits(key, dtype=jnp.uint32)
    world = bits - bits % 2 + jnp.uint32(split)
    table, num = (NUM_ITEMS, NUM_INGREDIENTS), (NUM_ITEMS,)
    name, phrase, coin, place, order, spine, branch, stock, others = uniforms(
        jax.random.key(world), (2,), (), (), num, table, (32,), (9,), (66,), (289,)
    )
    ingredients, depth = _spine(spine)
    ingredients, end = _branch(branch, ingredients, depth)
    needed = ingredients[:, 0] >= 0
    goals = jnp.stack([depth, end])
    held, raw, extra = _stock(stock, ingredients, goals)
    ingredients = _others(others, ingredients, raw, held)
    which = draw.below(phrase, jnp.int32(len(pools.phrases)))
    asked = draw.below(coin, jnp.int32(2))
    return Task(
        world=world,
        items=Items(
            ingredients=_shuffled(order, ingredients),
            raw=raw & (ingredients[:, 0] < 0),
            name=draw_names(name, pools.names),
            place=jnp.argsort(place).astype(jnp.int32),
        ),
        held=held + (extra & ~needed),
        goal=goals[asked],
        other_goal=goals[1 - asked],
        faults=no_faults(),
        phrase=pools.phrases[which],
        shown=jnp.bool_(True),
    )


def no_faults() -> Faults:
    """Return the faults of a world whose tools all work and answer in normal form."""
    return Faults(
        failures=jnp.zeros(NUM_ITEMS, jnp.int32),
        sold_out=jnp.zeros(NUM_ITEMS, bool),
        form=jnp.zeros(NUM_TOOLS, jnp.int32),
    )


def draw_names(uniforms: Float[Array, "2"], bounds: Int[Array, "2"]) -> Int[Array, "I"]:
    """Draw different names from a range of symbols, one for each item.

    The size of the range is a prime, so steps of any stride from a random start visit
    different symbols.
    """
    low, high = bounds
    start, stride = 1 + draw.below(uniforms, high - low - 1)
    return low + (start + stride * jnp.arange(NUM_ITEMS)) % (high - low)


def uniforms(key: jax.Array, *shapes: tuple[int, ...]) -> list[Float[Array, "..."]]:
    """Draw uniform numbers of each shape, in one call of the generator (see `draw`).

    >>> [x.shape for x in uniforms(jax.random.key(0), (), (2, 3))]
    [(), (2, 3)]
    """
    sizes = [math.prod(shape) for shape in shapes]
    return _cut(jax.random.uniform(key, (sum(sizes),)), *shapes)


def _cut(
    flat: Float[Array, "_"], *shapes: tuple[int, ...]
) -> list[Float[Array, "..."]]:
    """Cut the beginning of a row of numbers into arrays of these shapes."""
    sizes = [math.prod(shape) for shape in shapes]
    ends = itertools.accumulate(sizes)
    return [
        flat[end - size : end].reshape(shape)
        for shape, size, end in zip(shapes, sizes, ends, strict=True)
    ]


def _share(
    u: Float[Array, "*shape"], shares: tuple[float, ...]
) -> Int[Array, "*shape"]:
    """Turn uniform numbers into indices, of which index i has the share `shares[i]`."""
    ends = jnp.cumsum(jnp.array(shares[:-1]))
    return jnp.sum(u[..., None] >= ends.reshape((1,) * u.ndim + (-1,)), axis=-1)


def _spine(flat: Float[Array, "_"]) -> tuple[Int[Array, "I K"], Int[Array, ""]]:
    """Return the recipes of the spine, and the row of its last item."""
    steps = (MAX_DEPTH,)
    deep, first, second, ranks, num, branch, at, side = _cut(
        flat, (), steps, steps, (MAX_DEPTH, 2), (), (), (), (NUM_RAW,)
    )
    depth = 1 + _share(deep, DEPTHS)
    step = jnp.arange(1, SPINE)
    # Add up to `MAX_EXTRA` raw ingredients, at most two per recipe, which differ.
    first = draw.below(first, jnp.int32(NUM_RAW))
    second = (first + 1 + draw.below(second, jnp.int32(NUM_RAW - 1))) % NUM_RAW
    raw = RAW + jnp.stack([first, second], axis=1)
    ranks = jnp.where((step <= depth)[:, None], ranks, 2.0)
    rank = _rank(ranks.reshape(-1)).reshape(raw.shape)
    num = 1 + draw.below(num, jnp.int32(MAX_EXTRA))
    extra = jnp.where((rank < num) & (ranks < 1), raw, -1)
    # One recipe, not the first, may need the side item, which has a recipe too.
    branches = (branch < 0.5) & (depth >= 2) & (depth <= 4)
    at = 2 + draw.below(at, jnp.maximum(depth - 1, 1))
    extra = extra.at[:, 0].set(jnp.where(branches & (step == at), SIDE, extra[:, 0]))
    recipes = jnp.concatenate([step[:, None] - 1, extra], axis=1)
    recipes = jnp.where((step <= depth)[:, None], recipes, -1)
    side = RAW + jnp.argsort(side)[:NUM_INGREDIENTS]
    side = jnp.where(branches, side, -1).at[2].set(-1)
    ingredients = jnp.full((NUM_ITEMS, NUM_INGREDIENTS), -1, jnp.int32)
    ingredients = ingredients.at[1:SPINE].set(recipes.astype(jnp.int32))
    return ingredients.at[SIDE].set(side.astype(jnp.int32)), depth.astype(jnp.int32)


def _branch(
    flat: Float[Array, "_"], ingredients: Int[Array, "I K"], depth: Int[Array, ""]
) -> tuple[Int[Array, "I K"], Int[Array, ""]]:
    """Add a branch of one or two recipes to the spine; return its last item too."""
    own, end_raw, long, num, order = _cut(flat, (), (), (), (2,), (NUM_RAW,))
    # Raw ingredients, those that the spine does not need first.
    raw = jnp.arange(RAW, SPARE)
    raw = raw[jnp.argsort(order + jnp.isin(raw, ingredients))]
    # It starts from an item of the spine, or else from a raw ingredient.
    shared = depth - jnp.minimum(1 + draw.below(own, jnp.int32(MAX_OWN)), depth)
    root = jnp.where((shared > 0) | (end_raw < 0.2), shared, raw[0])
    fits = jnp.sum(ingredients[:, 0] >= 0) <= NUM_RECIPES[1] - NUM_BRANCH
    fits &= shared + NUM_BRANCH <= MAX_DEPTH
    has = jnp.stack([jnp.bool_(True), fits & (long < 0.5)])
    # Each recipe may need up to two raw ingredients besides.
    num = _share(num, BRANCH_EXTRA)
    recipes = jnp.stack(
        [
            jnp.stack([root, jnp.int32(BRANCH)]),
            jnp.where(num >= 1, raw[jnp.array([1, 3])], -1),
            jnp.where(num >= 2, raw[jnp.array([2, 0])], -1),
        ],
        axis=1,
    )
    recipes = jnp.where(has[:, None], recipes, -1).astype(jnp.int32)
    end = BRANCH + has[1].astype(jnp.int32)
    return ingredients.at[BRANCH : BRANCH + NUM_BRANCH].set(recipes), end


def _stock(
    flat: Float[Array, "_"], ingredients: Int[Array, "I K"], goals: Int[Array, "2"]
) -> tuple[Int[Array, "I"], Bool[Array, "I"], Bool[Array, "I"]]:
    """Sample the inventory.

    Returns:
      The units of raw ingredients that are held, so that few calls suffice; the raw
      items; and up to two items of which one more unit is held.
    """
    rows = jnp.arange(NUM_ITEMS)
    leaf = (rows == 0) | ((rows >= RAW) & (rows < SPARE))
    limit, fewer, coins, extras, which, units = _cut(
        flat, (), (), rows.shape, (2,), rows.shape, (1 + NUM_RAW, MAX_NEED)
    )
    has_recipe = ingredients[:, 0] >= 0
    items = Items(ingredients, leaf, rows, rows)
    nothing = jnp.zeros_like(rows)
    leaves = jnp.array([0, *range(RAW, SPARE)])

    def stock_for(goal):
        """Return units of each item that the goal needs, and how many are held."""
        todo = oracle.make_plan(items, leaf, nothing, goal).todo
        room = jnp.maximum(MAX_CALLS - jnp.sum(jnp.where(has_recipe, todo, 0)), 0)
        # Units that have to be taken: as many as `MAX_CALLS` allows, or fewer.
        num = jnp.where(fewer < 0.8, room, draw.below(limit, room + 1))
        is_unit = jnp.arange(MAX_NEED)[None] < todo[leaves][:, None]
        rank = _rank(jnp.where(is_unit, units, 2.0).reshape(-1))
        taken = jnp.sum(is_unit & (rank.reshape(is_unit.shape) < num), axis=1)
        return todo, todo - nothing.at[leaves].set(taken)

    # What one goal leaves in the inventory is of use to the other.
    todo, held = jax.vmap(stock_for)(goals)
    held = jnp.where(leaf, jnp.max(held, axis=0), 0)
    taken = jnp.any(todo > held[None], axis=0)
    raw = leaf & (taken | (coins < 0.5))
    extra = _rank(jnp.where(has_recipe, 2.0, which)) < jnp.sum(extras < 0.4)
    return held.astype(jnp.int32), raw, extra


def _others(
    flat: Float[Array, "_"],
    ingredients: Int[Array, "I K"],
    raw: Bool[Array, "I"],
    held: Int[Array, "I"],
) -> Int[Array, "I K"]:
    """Return the recipes, with recipes added that neither goal needs."""
    rows = jnp.arange(NUM_ITEMS)
    total, which, num, what = _cut(
        flat, (), rows.shape, rows.shape, (NUM_ITEMS, NUM_ITEMS)
    )
    needed = ingredients[:, 0] >= 0
    free = ~needed & (rows < NUM_ITEMS - 1) & ((rows < RAW) | (rows >= SPARE))
    # The raw end of the spine may have a recipe too if it is held instead of taken.
    # If no goal is as deep as can be.
    shallow = ingredients[MAX_DEPTH, 0] < 0
    free &= (rows > 0) | (~raw & (held > 0) & shallow)
    rank = _rank(jnp.where(free, which, 2.0))
    low, high = NUM_RECIPES
    wanted = low + draw.below(total, jnp.int32(high - low + 1)) - jnp.sum(needed)
    chosen = free & (rank < wanted)
    # They use items that a goal needs, raw items, the last rows, or each other in the
    # order of rank. A recipe for the raw end of the spine must not lead back to it.
    known = needed | raw | (rows >= NUM_ITEMS - 2) | (rows == 0)
    known = jnp.where(chosen, False, known)
    allowed = known[None] | (chosen[None] & (rank[None] < rank[:, None]))
    leaf = (rows >= RAW) & (rows < SPARE)
    allowed = jnp.where(rows[:, None] == 0, leaf[None], allowed)
    allowed &= rows[:, None] != rows[None]
    best, picked = jax.lax.top_k(jnp.where(allowed, what, -1.0), NUM_INGREDIENTS)
    count = 1 + _share(num, INGREDIENTS)
    used = (jnp.arange(NUM_INGREDIENTS)[None] < count[:, None]) & (best >= 0)
    recipes = jnp.where(used, picked, -1).astype(jnp.int32)
    return jnp.where(chosen[:, None], recipes, ingredients)


def _shuffled(
    uniforms: Float[Array, "I K"], ingredients: Int[Array, "I K"]
) -> Int[Array, "I K"]:
    """Shuffle the ingredients of each recipe, with empty places last."""
    order = jnp.argsort(jnp.where(ingredients >= 0, uniforms, 2.0), axis=1)
    return jnp.take_along_axis(ingredients, order, axis=1)


def _rank(uniforms: Float[Array, "N"]) -> Int[Array, "N"]:
    """Return the rank of each number, from 0 for the smallest."""
    return jnp.argsort(jnp.argsort(uniforms))
