"""Prefill and decode as two programs with fixed shapes, each compiled once.

The only state on the device is the KV cache, with a row of slots for each request that
is decoded. The rest of a row's state is small, and the host passes it with every call.
The host can therefore stop a row, or give it to another request, without a call to the
device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, UInt

from openagent_jax import types
from openagent_jax.models import decoding, sampling
from openagent_jax.types import Params, Policy

PROMPT_CHUNK = 32  # columns that are prefilled at once
MAX_PREFILL = 4 * PROMPT_CHUNK  # the most tokens that one call prefills
MAX_STEPS = 32  # the most tokens of a row that one call decodes
NO_TOKEN = -1


class Rows(NamedTuple):
    """The state of R rows: host arrays, which are passed to every call."""

    length: Int[Any, "R"]  # number of tokens in the cache
    token: Int[Any, "R"]  # the newest token, which is not in the cache yet
    remaining: Int[Any, "R"]  # tokens that the row may still decode; 0 if it is idle
    temperature: Float[Any, "R"]  # 0 means greedy decoding
    top_p: Float[Any, "R"]
    seed: UInt[Any, "R"]


def idle_rows(num_rows: int) -> Rows:
    """Return the state of idle rows.

    >>> idle_rows(2).remaining.tolist()
    [0, 0]
    """
    return Rows(
        length=np.zeros(num_rows, np.int32),
        token=np.zeros(num_rows, np.int32),
        remaining=np.zeros(num_rows, np.int32),
        temperature=np.zeros(num_rows, np.float32),
        top_p=np.ones(num_rows, np.float32),
        seed=np.zeros(num_rows, np.uint32),
    )


@dataclass(frozen=True)
class Decoder:
    """A policy, compiled for a fixed number of rows."""

    num_rows: int
    num_slots: int  # number of cache slots of each row
    end_token: int
    empty: Callable[
        [], types.Cache
    ]  # returns a new cache; every call donates its cache
    _prefill: jax.stages.Compiled
    _decode: jax.stages.Compiled
    _params: Params

    def prefill(
        self, cache: types.Cache, row: int, tokens: np.ndarray, num: int, rows: Rows
    ) -> tuple[types.Cache, Array]:
        """Prefill a row of the cache with tokens, and choose the next token.

        Args:
          cache: the cache, which is donated.
          row: the index of the row.
          tokens: tokens to append, padded on the right to `MAX_PREFILL`.
          num: the number of tokens without padding.
          rows: the state of all rows.

        Returns:
          The cache, and the next token, a scalar.
        """
        inputs = np.concatenate([[row, num], tokens]).astype(np.int32)
        return self._prefill(self._params, cache, inputs, _packed(rows))

    def decode(
        self, cache: types.Cache, rows: Rows, num_steps: int
    ) -> tuple[types.Cache, Int[Array, "R L"]]:
        """Decode tokens for all rows that have tokens remaining.

        Args:
          cache: the cache, which is donated.
          rows: the state of all rows.
          num_steps: the most tokens to decode for each row, up to `MAX_STEPS`. The call
            returns earlier if a row ends, so that the row can be reused.

        Returns:
          The cache, and the new tokens of each row, padded on the right with
          `NO_TOKEN`; L is `MAX_STEPS`.
        """
        return self._decode(self._params, cache, _packed(rows, num_steps))


def compile(
    policy: Policy, params: Params, end_token: int, num_rows: int, num_slots: int
) -> Decoder:
    """Compile a decoder of a policy.

    Args:
      policy: the policy to serve.
      params: its parameters. The cache has the device of the first one; if that is
        sharded over a mesh, each device has the whole cache.
      end_token: the token that ends a reply.
      num_rows: R, the number of requests that are decoded together.
      num_slots: the number of cache slots of each row.
    """

    def prefill(params, cache, inputs, packed):
        row, num, tokens = inputs[0], inputs[1], inputs[2:]

        def get_row(x):
            return lax.dynamic_slice_in_dim(x, row, 1)

        def set_row(x, new):
            return lax.dynamic_update_slice_in_dim(x, new, row, 0)

        own = Rows(*map(get_row, _unpacked(packed)[0]))
        keys, values = jax.tree.map(get_row, (cache.keys, cache.values))
        one = types.Cache(keys, values, own.length)
        logits = jnp.zeros((1, vocab_size))
        one, logits = decoding.prefill(
            policy, params, one, logits, tokens[None], num[None], PROMPT_CHUNK
        )
        keys, values = jax.tree.map(
            set_row, (cache.keys, cache.values), (one.keys, one.values)
        )
        token = _choose(logits, own, one.length, jnp.array([True]))
        return types.Cache(keys, values, cache.length), token[0]

    def decode(params, cache, packed):
        rows, num_steps = _unpacked(packed)
        busy = rows.remaining > 0

        def step(loop):
            i, cache, token, remaining, tokens = loop
            active = (remaining > 0) & busy
            hidden, cache = policy.extend(
                params, cache, token[:, None], active.astype(jnp.int32)
            )
            logits = policy.head(params, hidden[:, 0])
            token = jnp.where(
                active, _choose(logits, rows, cache.length, active), token
            )
            remaining = jnp.where(token == end_token, 0, remaining - 1)
            tokens = lax.dynamic_update_slice(
                tokens, jnp.where(active, token, NO_TOKEN)[:, None], (0, i)
            )
            return i + 1, cache, token, remaining, tokens

        def goes_on(loop, num_slots):
            i, cache, _, remaining, _ = loop
            num_used = jnp.max(jnp.where(busy, cache.length, 0))
            none_ended = jnp.any(busy) & jnp.all((remaining > 0) | ~busy)
            return none_ended & (i < num_steps) & (num_used < num_slots)

        def loop(cache, carry):
            i, token, remaining, tokens = carry
            slots = sum(cache.block_sizes)
            i, cache, token, remaining, tokens = lax.while_loop(
                partial(goes_on, num_slots=slots),
                step,
                (i, cache, token, remaining, tokens),
            )
            return cache, (i, token, remaining, tokens)

        tokens = jnp.full((num_rows, MAX_STEPS), NO_TOKEN, jnp.int32)
        start = types.Cache(cache.keys, cache.values, rows.length)
        carry = jnp.int32(0), rows.token, rows.remaining, tokens
        end, (*_, tokens) = decoding.loop_in_blocks(loop, start, carry)
        return types.Cache(end.keys, end.values, cache.length), tokens

    params = policy.unstack_layers(params)
    # If parameters are sharded over devices, each device has the whole cache.
    sharding = jax.tree.leaves(params)[0].sharding
    if isinstance(sharding, NamedSharding):
        sharding = NamedSharding(sharding.mesh, PartitionSpec())
    num_layers = len(policy.init_cache(1, [1]).keys[0])
    blocks = decoding.block_sizes(num_slots, num_layers)

    def empty() -> types.Cache:
        return jax.device_put(policy.init_cache(num_rows, blocks), sharding)

    cache = empty()
    hidden = jax.eval_shape(
        policy.extend, params, cache, jnp.zeros((num_rows, 1), int), cache.length
    )[0]
    vocab_size = jax.eval_shape(policy.head, params, hidden).shape[-1]
    packed = _packed(idle_rows(num_rows))
    inputs = np.zeros(2 + MAX_PREFILL, np.int32)
    program = partial(jax.jit, donate_argnums=1, out_shardings=sharding)
    return Decoder(
        num_rows,
        num_slots,
        end_token,
        empty,
        program(prefill).lower(params, cache, inputs, packed).compile(),
        program(decode).lower(params, cache, packed).compile(),
        params,
    )


def _packed(rows: Rows, num_steps: int = 0) -> Int[np.ndarray, "7 R"]:
    """Copy the state of all rows into one new array.

    One array transfers faster than several. It is a copy because the device may read it
    after the host has changed the rows.
    """
    arrays = [np.full_like(rows.length, num_steps), *rows]
    return np.stack([x.view(np.int32) for x in arrays])


def _unpacked(packed: Int[Array, "7 R"]) -> tuple[Rows, Array]:
    num_steps, *arrays = packed
    kinds = (jnp.int32,) * 3 + (jnp.float32,) * 2 + (jnp.uint32,)
    return Rows(*map(lax.bitcast_convert_type, arrays, kinds)), num_steps[0]


def _choose(
    logits: Float[Array, "R V"],
    rows: Rows,
    position: Int[Array, "R"],
    active: Array,
) -> Int[Array, "R"]:
    """Choose the next token of each row, with its own temperature, top-p and seed."""
    likeliest, _ = sampling.greedy(logits)
    sampled = (rows.temperature > 0) & active
    truncated = sampled & (rows.top_p < 1)

    def sample():
        scaled = logits / jnp.where(sampled, rows.temperature, 1)[:, None]
        scaled = lax.cond(
            jnp.any(truncated),
            lambda: jnp.where(
                truncated[:, None],
                sampling.nucleus(scaled, rows.top_p[:, None]),
                scaled,
            ),
            lambda: scaled,
        )
        keys = jax.vmap(jax.random.key)(rows.seed)
        uniforms = sampling.uniform_pairs(keys, position)
        return jnp.where(sampled, sampling.categorical(scaled, uniforms)[0], likeliest)

    return lax.cond(jnp.any(sampled), sample, lambda: likeliest)
