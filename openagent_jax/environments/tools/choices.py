"""Choices in requests, one text of which is drawn when a task is sampled.

A request is a row of pieces: symbols, slots for constants (-1 - q), and choices. A
choice is a piece `FIRST - k`, where k is its row in a table of texts. `spoken` replaces
the choices of a request, so that a task holds symbols and slots only.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt

from openagent_jax import hashing

FIRST = -1024  # the piece of choice 0; slots are above it
INDEPENDENT = -1  # the number of a choice that is drawn by itself


class Choices(NamedTuple):
    """The texts of K choices, each of which has at most V."""

    texts: Int[Array, "K V"]  # symbols
    size: Int[Array, "K"]  # how many texts a choice has
    # Choices of one request with the same number take the same index, modulo their
    # sizes; see `INDEPENDENT`.
    number: Int[Array, "K"]


def empty(num: int = 1, size: int = 1) -> Choices:
    """Return a table without choices, in NumPy, with room for some."""
    arrays: Any = (
        np.zeros((num, size), np.int32),
        np.ones(num, np.int32),
        np.full(num, INDEPENDENT, np.int32),
    )
    return Choices(*arrays)


def spoken(
    choices: Choices, phrase: Int[Array, "P"], seed: UInt[Array, ""]
) -> Int[Array, "P"]:
    """Replace each choice of a request by one of its texts.

    Args:
      choices: the texts.
      phrase: the pieces of the request.
      seed: a uniform number of 32 bits, of which the texts are a function.
    """
    which = jnp.maximum(FIRST - phrase, 0)
    number = jnp.asarray(choices.number)[which]
    place = jnp.arange(phrase.shape[0], dtype=jnp.int32)
    item = jnp.where(number == INDEPENDENT, FIRST - place, number)
    drawn = jax.vmap(hashing.mix, (None, 0))(seed, item)
    size = jnp.asarray(choices.size)[which].astype(jnp.uint32)
    text = jnp.asarray(choices.texts)[which, (drawn % size).astype(jnp.int32)]
    return jnp.where(phrase <= FIRST, text, phrase)
