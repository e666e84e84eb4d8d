"""A policy that follows a script in each episode, whatever it reads."""

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax.types import Cache, Policy

# What the first slots of a row hold: the number of the script, how many of its tokens
# have been generated and how many of them in this turn, and how many tokens of the
# opener have been read in a row, where the policy reads.
SCRIPT, SAID, IN_TURN, MATCHED = range(4)
NOT_READING = -1


def policy(num_tokens: int, opener, end_token: int, turn_tokens: int) -> Policy:
    """A policy whose parameters are the tokens of each script: all turns, concatenated.

    The i-th prompt is answered by the i-th script. Prompts are read in chunks, all that
    follows one token at a time, as `rollout` does.

    Args:
      num_tokens: size of the vocabulary.
      opener: the tokens after which the policy speaks.
      end_token: the token with which it ends.
      turn_tokens: the most tokens of a turn.
    """
    opener = jnp.asarray(opener)

    def init_cache(num_rows, blocks):
        empty = tuple((jnp.zeros((num_rows, 1, 1, size)),) for size in blocks)
        slots = tuple((jnp.zeros((num_rows, 1, size, 1)),) for size in blocks)
        return Cache(empty, slots, jnp.zeros(num_rows, jnp.int32))

    def extend(params, cache, tokens, num_new):
        del params
        num_rows, num_columns = tokens.shape
        (slots,), *rest = cache.values
        found = slots[:, 0, :4, 0].astype(jnp.int32)
        if num_columns > 1:
            script = jnp.arange(num_rows)
            found = jnp.stack(
                [script, 0 * script, 0 * script, 0 * script + NOT_READING], axis=1
            )
        else:
            script, said, in_turn, matched = found.T
            token, speaks = tokens[:, 0], matched == NOT_READING
            in_turn = jnp.where(speaks, in_turn + 1, 0)
            over = (token == end_token) | (in_turn == turn_tokens)
            follows = token == opener[jnp.maximum(matched, 0)]
            count = jnp.where(follows, matched + 1, token == opener[0])
            count = jnp.where(count == len(opener), NOT_READING, count)
            matched = jnp.where(speaks, jnp.where(over, 0, NOT_READING), count)
            new = jnp.stack([script, said + speaks, in_turn, matched], axis=1)
            found = jnp.where(num_new[:, None] > 0, new, found)
        values = ((slots.at[:, 0, :4, 0].set(found.astype(slots.dtype)),), *rest)
        hidden = found[:, [SCRIPT, SAID]].astype(slots.dtype)
        hidden = jnp.broadcast_to(hidden[:, None], (num_rows, num_columns, 2))
        return hidden, Cache(cache.keys, values, cache.length + num_new)

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
