"""Permute the embeddings of tokens, so that little can be memorised about any of them.

A small decoder that is trained on a few thousand words memorises some of them and reads
the others less reliably. If every training step permutes the embeddings anew, the
decoder has to learn to read them all.
"""

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from openagent_jax.types import Params


def free(
    texts: Sequence[bytes], fixed: Collection[int]
) -> tuple[Int[Array, "K"], Int[Array, "K"]]:
    """Return the tokens that may take part in `shuffle`, and their shapes.

    Args:
      texts: the text of each token.
      fixed: tokens whose embeddings have a meaning of their own.

    >>> free([b"in ", b"Oslo", b"Rome", b"oslo "], fixed={0})[1].tolist()
    [0, 0, 1]
    """
    tokens = sorted({*range(len(texts))} - {*fixed})

    def shape(text: bytes) -> str:
        marks = text.decode("latin-1")
        marks = [("A" if c.isupper() else "a") if c.isalpha() else c for c in marks]
        return marks[0] + marks[-1]

    names = [shape(texts[token]) for token in tokens]
    _, shapes = np.unique(names, return_inverse=True)
    return jnp.asarray(tokens), jnp.asarray(shapes)


def shuffle(
    params: Params,
    key: jax.Array,
    tokens: Int[Array, "K"],
    shapes: Int[Array, "K"],
) -> Params:
    """Permute the embeddings of some of these tokens among tokens of the same shape.

    A random fraction of the tokens takes part, from none to all, so that the model can
    also learn facts about a word. Columns of an untied output head are permuted along
    with the embeddings.

    Args:
      params: parameters of a decoder, with "embed" and perhaps "head".
      key: PRNG key.
      tokens: the tokens that may take part.
      shapes: a number for the word shape of each token (how its text begins and ends).

    Returns:
      The parameters; only "embed" and "head" differ.

    >>> params = {"embed": jnp.arange(4)[:, None]}
    >>> tokens, shapes = jnp.array([1, 2, 3]), jnp.array([0, 0, 1])
    >>> new = shuffle(params, jax.random.key(0), tokens, shapes)
    >>> sorted(new["embed"][:, 0].tolist())
    [0, 1, 2, 3]
    >>> new["embed"][jnp.array([0, 3]), 0].tolist()  # alone in their shape
    [0, 3]
    """
    fraction_key, pick_key, order_key = jax.random.split(key, 3)
    index = jnp.arange(tokens.shape[0])
    fraction = jax.random.uniform(fraction_key)
    pick = jax.random.uniform(pick_key, index.shape) < fraction
    group = jnp.where(pick, shapes, jnp.max(shapes) + 1)
    rank = jnp.where(pick, jax.random.permutation(order_key, index), index)
    # Both sides are sorted by group. Within a group, the tokens in their own order
    # receive the embeddings of the same tokens in random order. Tokens that do not take
    # part form a group without random order, so they keep their embeddings.
    receivers = tokens[jnp.lexsort((index, group))]
    donors = tokens[jnp.lexsort((rank, group))]
    new = {"embed": params["embed"].at[receivers].set(params["embed"][donors])}
    if "head" in params:
        new["head"] = params["head"].at[:, receivers].set(params["head"][:, donors])
    return {**params, **new}
