"""Run tokens through a policy and its KV cache, and choose new ones.

Each row of the cache fills its slots from 0 on without gaps, whatever the lengths of
the other rows. The cache is divided into blocks, and a loop uses the first block alone
for as long as that suffices: attention to a slot costs time even if the slot is unused.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from openagent_jax.models.sampling import categorical, greedy, uniform_pairs
from openagent_jax.types import Cache, Params, Policy

# Where the blocks of a cache end, in eighths of what is divided. A decoding loop is
# compiled once for each block, so a model with many layers, which compiles slowly, has
# fewer blocks.
EIGHTHS, FEW_EIGHTHS = (1, 2, 3, 8), (2, 8)
MANY_LAYERS = 12  # from this number on, a model has few blocks


def prefill(
    policy: Policy,
    params: Params,
    cache: Cache,
    logits: Float[Array, "B V"],
    tokens: Int[Array, "B S"],
    length: Int[Array, "B"],
    chunk: int,
) -> tuple[Cache, Float[Array, "B V"]]:
    """Compute the keys and values of new tokens, a chunk of columns at a time.

    Prefilling stops at the first chunk with which a row would overflow its slots.

    Args:
      policy: the model.
      params: its parameters.
      cache: the cache of B rows.
      logits: the logits of the next token of each row before the new tokens; rows
        without new tokens keep them.
      tokens: the new tokens of each row, padded on the right.
      length: number of new tokens of each row, at most S.
      chunk: number of columns that are prefilled at once.

    Returns:
      The cache, and the logits of the next token of each row.
    """
    rows = jnp.arange(length.shape[0])
    tokens = jnp.pad(tokens, ((0, 0), (0, -tokens.shape[1] % chunk)))

    def num_new(start):
        return jnp.clip(length - start, 0, chunk)

    def prefill_chunk(loop):
        cache, (start, last_hidden) = loop
        columns = lax.dynamic_slice_in_dim(tokens, start, chunk, axis=1)
        num = num_new(start)
        hidden, cache = policy.extend(params, cache, columns, num)
        newest = hidden[rows, jnp.maximum(num - 1, 0)]
        last_hidden = jnp.where((num > 0)[:, None], newest, last_hidden)
        return cache, (start + chunk, last_hidden)

    def has_next(loop):
        cache, (start, _) = loop
        num = num_new(start)
        num_used = jnp.max(jnp.where(num > 0, cache.length + num, 0))
        return jnp.any(num > 0) & (num_used <= sum(cache.block_sizes))

    hidden = jax.eval_shape(policy.extend, params, cache, tokens[:, :1], length)[0]
    cache, (start, last_hidden) = loop_in_blocks(
        lambda *loop: lax.while_loop(has_next, prefill_chunk, loop),
        cache,
        (jnp.int32(0), jnp.zeros((len(rows), hidden.shape[-1]), hidden.dtype)),
    )
    # The head is expensive with a large vocabulary, so it runs once, for the last token
    # of each row.
    is_new = (length > 0) & (start > 0)
    logits = jnp.where(is_new[:, None], policy.head(params, last_hidden), logits)
    return cache, logits


def block_sizes(context_tokens: int, num_layers: int) -> list[int]:
    """Return the number of slots of each block of a cache.

    Args:
      context_tokens: the total number of slots.
      num_layers: number of layers of the model. A loop is compiled once for each block,
        so models with many layers get fewer blocks.

    >>> block_sizes(512, num_layers=4)
    [64, 64, 64, 320]
    """
    eighths = EIGHTHS if num_layers < MANY_LAYERS else FEW_EIGHTHS
    ends = sorted({-(-context_tokens * eighth // 8) for eighth in eighths})
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def loop_in_blocks(
    loop: Callable[[Cache, Any], tuple[Cache, Any]], cache: Cache, carry: Any
) -> tuple[Cache, Any]:
    """Run a loop with the first block of a cache, then with the first two, and so on.

    The loop must stop when an active row has used all slots of the cache that it was
    given, and when nothing is left to do.

    Args:
      loop: `(cache, carry) -> (cache, carry)`, called once for each number of blocks.
      cache: the cache with all blocks.
      carry: any other values that the loop updates.

    Returns:
      The cache with all blocks, and the carry.
    """
    for num in range(1, len(cache.keys) + 1):
        first, carry = loop(cache.first(num), carry)
        cache = dataclasses.replace(
            first,
            keys=first.keys + cache.keys[num:],
            values=first.values + cache.values[num:],
        )
    return cache, carry


def choose(
    logits: Float[Array, "B V"],
    keys: jax.Array,
    positions: Int[Array, "B"],
    temperature: float,
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Choose the next token of each row.

    Args:
      logits: logits of the next token.
      keys: one PRNG key for each row.
      positions: the position of the next token of each row, folded into its key.
      temperature: divides the logits; with 0, the most probable token is chosen.

    Returns:
      The tokens, and their log-probs at this temperature (greedy: at a temperature
      of 1).

    >>> keys = jax.random.split(jax.random.key(0), 1)
    >>> logits = jnp.log(jnp.array([[0.25, 0.75]]))
    >>> token, log_prob = choose(logits, keys, jnp.array([0]), 0.0)
    >>> token.tolist(), jnp.exp(log_prob).tolist()
    ([1], [0.75])
    """
    if temperature == 0:
        return greedy(logits)
    return categorical(logits / temperature, uniform_pairs(keys, positions))
