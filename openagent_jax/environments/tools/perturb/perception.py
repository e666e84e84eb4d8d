"""Perception of tools: their texts change, what they do does not."""

import jax
import jax.numpy as jnp

from openagent_jax import draw
from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    choice_of,
    chosen,
    edit_tools,
    has_own_tools,
    in_use,
    of_drift,
    rename,
    variant,
    withheld,
)
from openagent_jax.perturb import Perturbation, bernoulli
from openagent_jax.text.noisy_names import NUM_LEVELS, NUM_VARIANTS


def identity_erasure(pools: Pools) -> Perturbation:
    """Replace tool names with meaningless ones.

    Before: `"description":"opening hour of a place","name":"opening_hour"`
    After:  `"description":"opening hour of a place","name":"cmd_k41"`
    """

    def apply(key, task, strength):
        num = task.tools.name.shape[0]
        uniforms = jax.random.uniform(key, (num + 2,))
        hit, names = uniforms[:num] < strength, uniforms[num:]
        low, high = (jnp.full(num, end) for end in pools.opaque)
        return rename(task, draw.distinct_symbols(names, low, high), hit)

    return apply


def semantic_renaming(pools: Pools) -> Perturbation:
    """Replace tool names by synonyms.

    Before: `"name":"opening_hour"`. After: `"name":"when_open"`.
    """

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        name = variant(which, pools.names)
        hit = bernoulli(coin, strength, name.shape) & has_own_tools(task)
        return rename(task, name, hit)

    return apply


def semantic_trap(pools: Pools) -> Perturbation:
    """Give tools names that suit another documented tool; descriptions stay true.

    Before: `"description":"opening hour of a place","name":"opening_hour"`
    After:  `"description":"opening hour of a place","name":"capacity_left"`,
    where another tool of the list counts the free seats.
    """

    def apply(key, task, strength):
        coin, which, order = jax.random.split(key, 3)
        visible = task.tools.visible
        num = visible.shape[0]
        # A random cycle through the visible rows: each takes a name of the next.
        uniforms = jnp.where(visible, jax.random.uniform(order, (num,)), 2.0)
        ranked = jnp.argsort(uniforms)
        rank = jnp.argsort(ranked)
        following = ranked[(rank + 1) % jnp.maximum(jnp.sum(visible), 1)]
        name = variant(which, pools.names)[following]
        hit = bernoulli(coin, strength, (num,)) & visible & has_own_tools(task)
        return rename(task, name, hit & (following != jnp.arange(num)))

    return apply


def argument_renaming(pools: Pools) -> Perturbation:
    """Replace argument names by synonyms.

    Before: `"parameters":["place"]`. After: `"parameters":["venue"]`.
    """

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        tools, pool = task.tools, pools.arg_names
        levels = tools.arg_path.shape[2]
        choice = choice_of(which, pool)
        if levels:
            # A word is renamed alike wherever a tool has it: paths may share keys.
            own = tools.arg_name[..., None]
            keys = jnp.concatenate([own, tools.arg_path], axis=2).reshape(len(own), -1)
            first = jnp.argmax(keys[:, :, None] == keys[:, None], axis=2)
            beside = choice_of(jax.random.fold_in(which, 1), pools.arg_paths)
            drawn = jnp.concatenate([choice[..., None], beside], axis=2)
            drawn = jnp.take_along_axis(drawn.reshape(len(own), -1), first, axis=1)
            drawn = drawn.reshape(*beside.shape[:2], 1 + levels)
            choice, beside = drawn[..., 0], drawn[..., 1:]
        hit = bernoulli(coin, strength, (pool.shape[0], 1))
        hit &= ~of_drift(task)[:, None] & has_own_tools(task)  # a drift has two rows
        name = chosen(pool, choice)
        renamed = {"arg_name": jnp.where(hit & (name > 0), name, tools.arg_name)}
        if levels:
            key = chosen(pools.arg_paths, beside)
            hit = hit[..., None] & (key > 0)
            renamed["arg_path"] = jnp.where(hit, key, tools.arg_path)
        return edit_tools(task, **renamed)

    return apply


def description_rewrite(pools: Pools) -> Perturbation:
    """Paraphrase descriptions.

    Before: `"description":"opening hour of a place"`
    After:  `"description":"hour of opening at a place"`
    """

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        text = variant(which, pools.descriptions)
        hit = bernoulli(coin, strength, text.shape) & (text > 0) & has_own_tools(task)
        old = task.tools.description
        # Notes and remarks stay: they say what no paraphrase knows.
        new = old.at[:, 0].set(text)
        return edit_tools(task, description=jnp.where(hit[:, None], new, old))

    return apply


def distractor_tools(pools: Pools, num: int = 3) -> Perturbation:
    """Document up to three more tools of the domain, which the task does not need.

    Before: six documents. After: nine.
    """
    del pools

    def apply(key, task, strength):
        tools = task.tools
        coin, which = jax.random.split(key)
        hidden = ~in_use(task) & ~withheld(task) & (tools.name > 0)
        uniforms = jnp.where(hidden, jax.random.uniform(which, hidden.shape), 2.0)
        rank = jnp.argsort(jnp.argsort(uniforms))
        hit = hidden & (rank < num) & bernoulli(coin, strength, hidden.shape)
        return edit_tools(task, visible=tools.visible | hit)

    return apply


def tool_order(pools: Pools) -> Perturbation:
    """Shuffle the documents.

    Before: `opening_hour`, then `capacity_left`
    After:  `capacity_left`, then `opening_hour`
    """
    del pools

    def apply(key, task, strength):
        coin, key = jax.random.split(key)
        place = jax.random.permutation(key, task.tools.place)
        hit = bernoulli(coin, strength)
        return edit_tools(task, place=jnp.where(hit, place, task.tools.place))

    return apply


def tool_name_noise(pools: Pools) -> Perturbation:
    """Add noise to tool names, which can still be read.

    Before: `"name":"opening_hour"`
    After:  `"name":"acme_opening_hour_v2"`, or `"name":"opnngHr"` in the test

    Strength s is the probability that a tool is renamed, and bounds how far the new
    name is from the old one: it has noise of level 1 to 3, at most 3 s rounded up. The
    edit distance grows with the level. Names stay distinct; the few that would not be
    are kept.

    An agent that takes a name from its memory calls a tool that does not exist.
    """

    def apply(key, task, strength):
        noisy = pools.noisy_names
        num = task.tools.name.shape[0]
        level, which = jax.random.uniform(key, (2, num))
        hit = (level < strength) & (noisy.text == task.tools.name)
        at = draw.below(level, jnp.int32(NUM_LEVELS)) * NUM_VARIANTS
        at += draw.below(which, jnp.int32(NUM_VARIANTS))
        return rename(task, chosen(noisy.forms, at), hit)

    return apply


def description_noise(pools: Pools) -> Perturbation:
    """Add praise and idle remarks to descriptions, or misspell and cut them.

    Before: `"description":"opening hour of a place"`
    After:  `"description":"Superb: opening hour of a place (made with love)"`,
            or `"description":"openning hour of a place [see note 4]"` in the test

    Strength is the probability of each of two changes of a description: a remark after
    it, and a change of the text itself.

    All tools are hit alike, so that noise does not tell which of them is needed.
    """

    def apply(key, task, strength):
        asides, worse = pools.asides, pools.worse_descriptions
        old = task.tools.description
        num = len(old)
        coins, which = jax.random.split(key)
        remarked, changed = bernoulli(coins, strength, (2, num))
        rows = jax.random.randint(which, (3, num), 0, jnp.iinfo(jnp.int32).max)
        remark = asides.remarks[rows[0] % len(asides.remarks)]
        praise = asides.praise[rows[1] % len(asides.praise)]
        form = chosen(worse.forms, rows[2] % worse.forms.shape[1])
        there = old[:, 0] > 0
        form = jnp.where((form > 0) & (worse.text == old[:, 0]), form, old[:, 0])
        # Praise takes the place of a piece that is free.
        praised = changed & there & (praise > 0) & (old[:, 1] == 0)
        new = old.at[:, 0].set(jnp.where(changed, form, old[:, 0]))
        pair = jnp.stack([praise, new[:, 0]], axis=1)
        new = new.at[:, :2].set(jnp.where(praised[:, None], pair, new[:, :2]))
        free = remarked & there & (old[:, -1] == 0)
        last = jnp.where(free, remark, new[:, -1])
        return edit_tools(task, description=new.at[:, -1].set(last))

    return apply
