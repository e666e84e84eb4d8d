"""Words swap their vectors, so that little can be learned of any one vector.

A small decoder that has met a few thousand words learns some of them by heart, and
reads others worse. Where each step deals vectors out anew, it has to learn to read.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from openagent_jax.types import Params


def shuffle_vectors(
    params: Params,
    key: jax.Array,
    tokens: Int[Array, "K"],
    shapes: Int[Array, "K"],
) -> Params:
    """The parameters with the vectors of some of these tokens dealt out anew, among
    those of one shape.

    A random share of the tokens takes part, from none to all, so that what can be known
    of a word is learned too.
    """
    share_key, pick_key, order_key = jax.random.split(key, 3)
    index = jnp.arange(tokens.shape[0])
    pick = jax.random.uniform(pick_key, index.shape) < jax.random.uniform(share_key)
    group = jnp.where(pick, shapes, jnp.max(shapes) + 1)
    lot = jnp.where(pick, jax.random.permutation(order_key, index), index)
    # Group by group: once in order, and once in random order where they take part.
    to, of = (tokens[jnp.lexsort((rank, group))] for rank in (index, lot))
    new = {"embed": params["embed"].at[to].set(params["embed"][of])}
    if "head" in params:
        new["head"] = params["head"].at[:, to].set(params["head"][:, of])
    return {**params, **new}
