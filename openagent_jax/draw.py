"""Sample indices and symbols; shared by environments and perturbations.

The functions take uniform numbers in [0, 1) instead of keys, so that one call of the
random number generator serves a whole task: the generator takes long to compile, the
arithmetic here does not.
"""

from typing import Any

import jax
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


def mix(value: UInt[Array, "..."], item: Int[Array, "..."]) -> UInt[Array, "..."]:
    """Return the next state of a 32-bit hash that takes in one integer.

    It multiplies and shifts, as the finalizer of MurmurHash3 does.
    """
    value = (value ^ item.astype(jnp.uint32)) * jnp.uint32(0x9E3779B1)
    value = (value ^ (value >> 15)) * jnp.uint32(0x85EBCA77)
    return value ^ (value >> 13)


def fingerprint_of_tree(tree: Any) -> Int[Array, ""]:
    """Return a hash of all arrays of a pytree; equal trees have equal fingerprints.

    >>> a, b = ({"x": jnp.arange(2), "y": jnp.array(y)} for y in (True, False))
    >>> bool(fingerprint_of_tree(a) == fingerprint_of_tree(b))
    False
    """
    value = jnp.uint32(0)
    for leaf in jax.tree.leaves(tree):
        # The sum of hashed pairs of a place and its content, in one parallel operation.
        flat = jnp.asarray(leaf).reshape(-1).astype(jnp.uint32)
        places = mix(jnp.uint32(1), jnp.arange(flat.shape[0]))
        value = mix(value, jnp.sum(mix(places, flat), dtype=jnp.uint32))
    return (value >> 1).astype(jnp.int32)


def fingerprint(row: Int[Array, "R"]) -> Int[Array, ""]:
    """Return a hash of a row of integers; equal rows have equal fingerprints.

    >>> a, b = fingerprint(jnp.array([3, 1])), fingerprint(jnp.array([1, 3]))
    >>> bool(a == b), int(a) >= 0
    (False, True)
    """
    value = jnp.uint32(0)
    for i in range(row.shape[0]):
        value = mix(value, row[i])
    return (value >> 1).astype(jnp.int32)


def hashed_key(key: jax.Array, salt: int) -> UInt[Array, ""]:
    """Return a number of 32 bits that looks random, as a function of a key.

    It serves where one number more is needed than the generator was called for. Another
    salt gives an independent number.

    >>> a, b = (int(hashed_key(jax.random.key(0), salt)) for salt in (1, 2))
    >>> a != b
    True
    """
    value = mix(jnp.uint32(salt), jnp.int32(0))
    for word in jax.random.key_data(key):
        value = mix(value, word)
    return value


def uniform(bits: UInt[Array, ""]) -> Float[Array, ""]:
    """Turn a random number of 32 bits into a uniform number in [0, 1).

    >>> float(uniform(jnp.uint32(1 << 31)))
    0.5
    """
    return (bits >> 8).astype(jnp.float32) / (1 << 24)
