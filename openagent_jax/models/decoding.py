"""Prefill and decode: run tokens through a policy and its KV cache.

Each row of the cache fills its slots from 0 on without gaps, whatever the lengths of
the other rows. The cache is divided into blocks, and a loop uses the first block alone
for as long as that suffices: attention to a slot costs time even if the slot is unused.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from openagent_jax.models.sampling import categorical, greedy, nucleus, uniform_pairs
from openagent_jax.types import Cache, Params, Policy, Prefix

# Where the blocks of a cache end, in eighths of the context. A decoding loop is
# compiled once for each block, so a model with many layers, which compiles slowly, has
# fewer blocks.
EIGHTHS, FEW_EIGHTHS = (1, 2, 3, 8), (2, 8)
MANY_LAYERS = 12  # from this number on, a model has few blocks


class Sampling(NamedTuple):
    """How tokens are chosen. The settings are static: changing them recompiles.

    Attributes:
      temperature: divides the logits; 0 means greedy decoding.
      top_p: the probability of the nucleus from which tokens are sampled; 1 means the
        whole vocabulary.
    """

    temperature: float = 0.0
    top_p: float = 1.0


class Context(NamedTuple):
    """B rows of up to M tokens, and what the policy has computed from them.

    Attributes:
      cache: the keys and values of the tokens.
      logits: the logits of the next token of each row.
      tokens: the tokens of each row, of which the first `cache.length` are in use.
      sampled: mask of the tokens that the policy sampled itself.
      log_prob: log-probs of the sampled tokens; 0 elsewhere.
      overflow: mask of the rows to which a text was appended that did not fit.
    """

    cache: Cache
    logits: Float[Array, "B V"]
    tokens: Int[Array, "B M"]
    sampled: Bool[Array, "B M"]
    log_prob: Float[Array, "B M"]
    overflow: Bool[Array, "B"]


def empty_context(
    policy: Policy, num_rows: int, num_slots: int, num_tokens: int, vocab_size: int
) -> Context:
    """Return a context of rows without tokens.

    Args:
      policy: the model.
      num_rows: B, the number of rows.
      num_slots: number of cache slots of each row.
      num_tokens: M, the largest number of tokens of a row.
      vocab_size: V, the size of the vocabulary.
    """
    shape = (num_rows, num_tokens)
    return Context(
        cache=policy.init_cache(num_rows, [num_slots]),
        logits=jnp.zeros((num_rows, vocab_size)),
        tokens=jnp.zeros(shape, jnp.int32),
        sampled=jnp.zeros(shape, bool),
        log_prob=jnp.zeros(shape),
        overflow=jnp.zeros(num_rows, bool),
    )


def append(
    policy: Policy,
    params: Params,
    context: Context,
    tokens: Int[Array, "B S"],
    length: Int[Array, "B"],
    chunk: int,
) -> Context:
    """Append tokens that the policy has not sampled, and prefill them.

    Args:
      policy: the model.
      params: its parameters.
      context: the rows to which tokens are appended.
      tokens: the tokens of each row, padded on the right.
      length: number of tokens of each row. If it is larger than S, the text was cut to
        S tokens, and the row is marked in `overflow`.
      chunk: number of columns that are prefilled at once.
    """
    size, start = tokens.shape[1], context.cache.length
    overflow = context.overflow | (length > size)
    length = jnp.minimum(length, size)
    column, rows = jnp.arange(size)[None], jnp.arange(length.shape[0])
    # Padding gets an out-of-range index, so that it is dropped.
    slots = start[:, None] + column
    slots = jnp.where(column < length[:, None], slots, context.tokens.shape[1])
    written = context.tokens.at[rows[:, None], slots].set(tokens, mode="drop")
    cache, logits = prefill(
        policy, params, context.cache, context.logits, tokens, length, chunk
    )
    return context._replace(
        cache=cache, logits=logits, tokens=written, overflow=overflow
    )


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
        num_used = jnp.max(jnp.where(num > 0, cache.num_used + num, 0))
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


def decode(
    policy: Policy,
    params: Params,
    context: Context,
    keys: jax.Array,
    active: Bool[Array, "B"],
    num_tokens: int,
    end_token: int,
    sampling: Sampling,
) -> tuple[Context, Int[Array, "B L"], Bool[Array, "B"], Int[Array, ""]]:
    """Decode up to `num_tokens` tokens for each active row.

    Args:
      policy: the model.
      params: its parameters.
      context: the rows to which the tokens are appended.
      keys: one PRNG key for each row. The randomness of a token depends on the key of
        its row and on its position, not on other rows.
      active: mask of the rows for which tokens are decoded.
      num_tokens: L, the largest number of new tokens of a row.
      end_token: the token that ends a row; it is appended too.
      sampling: how tokens are chosen.

    Returns:
      context: the rows with their new tokens. Its `logits` are meaningful only for rows
        that have not ended, until `append` recomputes them.
      new: the new tokens of each row, followed by zeros.
      ended: mask of the rows that ended with the end token or were not active.
      num_steps: number of decoding steps, that is, new tokens of the longest row.
    """
    num_rows, max_tokens = context.tokens.shape
    rows = jnp.arange(num_rows)

    def decode_token(loop):
        step, context, new, active = loop
        position = context.cache.length
        chosen, log_prob = choose(context.logits, keys, position, sampling)
        chosen = jnp.where(active, chosen, 0)
        hidden, cache = policy.extend(
            params, context.cache, chosen[:, None], active.astype(jnp.int32)
        )
        # Inactive rows get an out-of-range index, so that their token is dropped.
        here = rows, jnp.where(active, position, max_tokens)
        context = context._replace(
            cache=cache,
            logits=policy.head(params, hidden[:, 0]),
            tokens=context.tokens.at[here].set(chosen, mode="drop"),
            sampled=context.sampled.at[here].set(True, mode="drop"),
            log_prob=context.log_prob.at[here].set(log_prob, mode="drop"),
        )
        new = lax.dynamic_update_slice(new, chosen[:, None], (0, step))
        return step + 1, context, new, active & (chosen != end_token)

    def has_next(loop, num_slots):
        step, context, _, active = loop
        num_used = jnp.max(jnp.where(active, context.cache.num_used, 0))
        return (step < num_tokens) & jnp.any(active) & (num_used < num_slots)

    def loop(cache, rest):
        step, context, new, active = rest
        step, context, new, active = lax.while_loop(
            partial(has_next, num_slots=sum(cache.block_sizes)),
            decode_token,
            (step, context._replace(cache=cache), new, active),
        )
        return context.cache, (step, context._replace(cache=None), new, active)

    new = jnp.zeros((num_rows, num_tokens), jnp.int32)
    rest = jnp.int32(0), context._replace(cache=None), new, active
    cache, (num_steps, context, new, active) = loop_in_blocks(loop, context.cache, rest)
    return context._replace(cache=cache), new, ~active, num_steps


def broadcast_prefix(
    policy: Policy, prefix: Cache, num_rows: int, context_tokens: int
) -> Cache:
    """Return an empty cache of B rows that continue P shared prefixes.

    The keys and values of a prefix are not copied: the rows of a group share them.

    Args:
      policy: the model.
      prefix: the cache of the P prefixes, with a single block.
      num_rows: B, a multiple of P; each group of B / P consecutive rows shares a
        prefix.
      context_tokens: number of slots of each row, besides those of the prefix.
    """
    length = jnp.repeat(prefix.length, num_rows // len(prefix.length))
    (keys,), (values,) = prefix.keys, prefix.values
    cache = policy.init_cache(num_rows, block_sizes(context_tokens, len(keys)))
    shared = Prefix(keys, values, length)
    return dataclasses.replace(cache, length=length, prefix=shared)


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
    sampling: Sampling,
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Choose the next token of each row.

    Args:
      logits: logits of the next token.
      keys: one PRNG key for each row.
      positions: the position of the next token of each row, folded into its key.
      sampling: how tokens are chosen.

    Returns:
      The tokens, and their log-probs after temperature and top-p are applied.

    >>> keys = jax.random.split(jax.random.key(0), 1)
    >>> logits = jnp.log(jnp.array([[0.25, 0.75]]))
    >>> token, log_prob = choose(logits, keys, jnp.array([0]), Sampling())
    >>> token.tolist(), jnp.exp(log_prob).tolist()
    ([1], [0.75])
    """
    if sampling.temperature == 0:
        return greedy(logits)
    logits = logits / sampling.temperature
    if sampling.top_p < 1:
        logits = nucleus(logits, sampling.top_p)
    return categorical(logits, uniform_pairs(keys, positions))
