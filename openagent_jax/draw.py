"""Turn uniform numbers into indices and symbols.

The functions take uniform numbers in [0, 1) instead of keys, so that one call of the
random number generator serves a whole task: the generator takes long to compile, the
arithmetic here does not.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt


def below(u: Float[Array, "..."], num: Int[Array, "..."]) -> Int[Array, "..."]:
    """Turn uniform numbers into uniform indices in `[0, num)`.

    Args:
      u: uniform numbers in [0, 1).
      num: how many indices there are, at least 1; it broadcasts with `u`.

    >>> below(jnp.array([0.0, 0.5, 0.99]), jnp.int32(4)).tolist()
    [0, 2, 3]
    """
    return jnp.minimum((u * num).astype(jnp.int32), num - 1)


def distinct_symbols(
    uniforms: Float[Array, "2"], low: Int[Array, "R"], high: Int[Array, "R"]
) -> Int[Array, "R"]:
    """Draw one symbol from each of R ranges; equal ranges give different symbols.

    The symbols are evenly spaced from a random start. The random stride is at most the
    size of a range divided by R, so R steps never wrap around to a symbol that was
    already taken, provided that the range holds at least R symbols.

    Args:
      uniforms: uniform numbers in [0, 1): one for the start, one for the stride.
      low: the first symbol of each range.
      high: one past the last symbol of each range.

    Returns:
      One symbol of each range; 0 where the range is empty (`low == high`).

    >>> low, high = jnp.array([10, 10, 10, 0]), jnp.array([20, 20, 20, 0])
    >>> distinct_symbols(jnp.array([0.85, 0.6]), low, high).tolist()
    [18, 10, 12, 0]
    """
    num, size = low.shape[0], jnp.maximum(high - low, 1)
    stride = 1 + below(uniforms[1], jnp.maximum(size // num, 1))
    offset = below(uniforms[0], size) + jnp.arange(num) * stride
    return jnp.where(high > low, low + offset % size, 0)


def uniform(bits: UInt[Array, ""]) -> Float[Array, ""]:
    """Turn a random number of 32 bits into a uniform number in [0, 1).

    >>> float(uniform(jnp.uint32(1 << 31)))
    0.5
    """
    return (bits >> 8).astype(jnp.float32) / (1 << 24)
