"""Small draws that the sandbox and the perturbations share.

They take uniform numbers in [0, 1), not keys: one call of the generator then serves a
whole task, and it is the generator that takes long to compile.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def below(lot: Float[Array, "*shape"], num: Int[Array, ""]) -> Int[Array, "*shape"]:
    """An index below `num`."""
    return jnp.minimum((lot * num).astype(jnp.int32), num - 1)


def spread(
    lots: Float[Array, "2"], low: Int[Array, "R"], high: Int[Array, "R"]
) -> Int[Array, "R"]:
    """Symbols from each of R ranges, those from equal ranges all different.

    They stand evenly spaced, from a random start: the stride stays below a range's
    size / R, so none meets another. Where low == high: symbol 0.
    """
    num, size = low.shape[0], jnp.maximum(high - low, 1)
    stride = 1 + below(lots[1], jnp.maximum(size // num, 1))
    offset = below(lots[0], size) + jnp.arange(num) * stride
    return jnp.where(high > low, low + offset % size, 0)
