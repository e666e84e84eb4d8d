"""A policy that follows a script in each row, whatever it reads."""

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax.types import Cache, Policy


def policy(num_tokens: int) -> Policy:
    """A policy whose parameters are the tokens of each row: all turns, concatenated.

    Args:
      num_tokens: size of the vocabulary.
    """

    def init_cache(num_rows, blocks):
        # The first slot counts the tokens of the script that have been generated.
        empty = tuple((jnp.zeros((num_rows, 1, 1, size)),) for size in blocks)
        slots = tuple((jnp.zeros((num_rows, 1, size, 1)),) for size in blocks)
        return Cache(empty, slots, jnp.zeros(num_rows, jnp.int32))

    def extend(params, cache, tokens, num_new):
        del params
        num_rows, num_columns = tokens.shape
        (slots,), *rest = cache.values
        said = slots[:, 0, 0, 0]
        if num_columns == 1:  # a sampled token: texts are read in larger chunks
            said = said + num_new
        values = ((slots.at[:, 0, 0, 0].set(said),), *rest)
        hidden = jnp.stack([jnp.arange(num_rows, dtype=said.dtype), said], axis=-1)
        hidden = jnp.broadcast_to(hidden[:, None], (num_rows, num_columns, 2))
        length = cache.length + num_new
        return hidden, Cache(cache.keys, values, length, cache.prefix)

    def head(params, hidden):
        row, said = jnp.moveaxis(hidden.astype(jnp.int32), -1, 0)
        return 9.0 * jax.nn.one_hot(params[row, said], num_tokens)

    return Policy(lambda key: None, lambda *_: None, init_cache, extend, head)


def params(scripts, end_token: int, num_columns: int) -> jax.Array:
    """A row of tokens for each script, which is followed by end tokens."""
    table = np.full((len(scripts), num_columns), end_token, np.int32)
    for row, script in zip(table, scripts, strict=True):
        row[: len(script)] = script
    return jnp.asarray(table)
