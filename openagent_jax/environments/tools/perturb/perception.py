"""Perception: the texts change, their meaning does not."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from openagent_jax import draw
from openagent_jax.environments.tools import choices
from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    edit_tools,
    in_use,
    rename,
    withheld,
)
from openagent_jax.environments.tools.types import NUM_PURPOSE_PIECES
from openagent_jax.perturb import Perturbation, bernoulli, pick, select

CHOICE_SALT = 1  # of `draw.hashed_key`


def identity_erasure(pools: Pools) -> Perturbation:
    """Replace tool names by names without meaning.

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
        name = _variant(which, pools.names)
        return rename(task, name, bernoulli(coin, strength, name.shape))

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
        name = _variant(which, pools.names)[following]
        hit = bernoulli(coin, strength, (num,)) & visible
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
        choice = _choice(which, pool)
        if levels:
            # A word is renamed alike wherever a tool has it: paths may share keys.
            own = tools.arg_name[..., None]
            keys = jnp.concatenate([own, tools.arg_path], axis=2).reshape(len(own), -1)
            first = jnp.argmax(keys[:, :, None] == keys[:, None], axis=2)
            beside = _choice(jax.random.fold_in(which, 1), pools.arg_paths)
            drawn = jnp.concatenate([choice[..., None], beside], axis=2)
            drawn = jnp.take_along_axis(drawn.reshape(len(own), -1), first, axis=1)
            drawn = drawn.reshape(*beside.shape[:2], 1 + levels)
            choice, beside = drawn[..., 0], drawn[..., 1:]
        hit = bernoulli(coin, strength, (pool.shape[0], 1))
        name = _chosen(pool, choice)
        renamed = {"arg_name": jnp.where(hit & (name > 0), name, tools.arg_name)}
        if levels:
            key = _chosen(pools.arg_paths, beside)
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
        text = _variant(which, pools.descriptions)
        hit = bernoulli(coin, strength, text.shape) & (text > 0)
        old = task.tools.description
        # A note stays: it says what no paraphrase knows.
        new = old.at[:, NUM_PURPOSE_PIECES:].set(0).at[:, 0].set(text)
        return edit_tools(task, description=jnp.where(hit[:, None], new, old))

    return apply


def distractor_tools(pools: Pools, num: int = 3) -> Perturbation:
    """Document up to `num` more tools of the domain, which the task does not need.

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


def query_rewrite(pools: Pools) -> Perturbation:
    """Rewrite the request in other words.

    Before: `Find the evening event in Fern Park.`
    After:  `um, evening event around Fern Park?`
    """

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        r = jax.random.randint(which, (), 0, pools.num_phrases)
        seed = draw.hashed_key(which, CHOICE_SALT)
        phrase = choices.spoken(pools.choices, pools.phrases[r], seed)
        # The phrases are those of the domain, not of one that has replaced it.
        hit = bernoulli(coin, strength) & (task.goal.kind >= 0)
        return replace(task, phrase=jnp.where(hit, phrase, task.phrase))

    return apply


def query_underspecified(pools: Pools) -> Perturbation:
    """Leave a value out of the request, so that the agent must ask the user for it.

    Before: `Find the evening event in Fern Park.`
    After:  `Find the evening event in something.`
    """
    del pools

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        used = jnp.any(
            task.phrase[:, None] == -1 - jnp.arange(task.shown.shape[0])[None], axis=0
        )
        q = pick(which, used & task.shown)
        hidden = replace(task, shown=task.shown.at[q].set(False))
        return select(bernoulli(coin, strength) & (q >= 0), hidden, task)

    return apply


def _variant(key: jax.Array, pool: jax.Array) -> jax.Array:
    """Sample one of the Y variants of each item, `[..., Y] -> [...]`."""
    return _chosen(pool, _choice(key, pool))


def _choice(key: jax.Array, pool: jax.Array) -> jax.Array:
    return jax.random.randint(key, pool.shape[:-1], 0, pool.shape[-1])


def _chosen(pool: jax.Array, choice: jax.Array) -> jax.Array:
    return jnp.take_along_axis(pool, choice[..., None], axis=-1)[..., 0]
