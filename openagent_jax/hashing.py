"""Hashes of integers, rows and trees, computed on the device."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt


def mix(value: UInt[Array, "..."], item: Int[Array, "..."]) -> UInt[Array, "..."]:
    """Return the next state of a 32-bit hash that takes in one integer.

    It multiplies and shifts, as the finalizer of MurmurHash3 does.
    """
    value = (value ^ item.astype(jnp.uint32)) * jnp.uint32(0x9E3779B1)
    value = (value ^ (value >> 15)) * jnp.uint32(0x85EBCA77)
    return value ^ (value >> 13)


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


def hashed_key(key: jax.Array, salt: int) -> UInt[Array, ""]:
    """Return a number of 32 bits that looks random, as a function of a key.

    Use it where one more number is needed than the random number generator was called
    for. Different salts give independent numbers.

    >>> a, b = (int(hashed_key(jax.random.key(0), salt)) for salt in (1, 2))
    >>> a != b
    True
    """
    value = mix(jnp.uint32(salt), jnp.int32(0))
    for word in jax.random.key_data(key):
        value = mix(value, word)
    return value
