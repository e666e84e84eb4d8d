"""Reading and decoding as two programs of fixed shapes, compiled once.

Of what is served, the device keeps the cache alone: some rows of slots. All else that a
row needs is small and comes from the host with every call, so that a row is given away,
taken back or stopped without the device being told.
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

from openagent_jax import rollout, sampling, types
from openagent_jax.types import Params, Policy

PIECE = 4 * rollout.PROMPT_CHUNK  # tokens that are read by one call, at most
MAX_STEPS = 32  # tokens of each row that are decoded by one call, at most
NONE = -1  # no token


class Rows(NamedTuple):
    """What rows are to do; one of the arrays of each is its own."""

    length: Int[Any, "R"]  # tokens in the cache
    token: Int[Any, "R"]  # the one that comes next, not yet read
    left: Int[Any, "R"]  # tokens that it may still say; 0: it idles
    temperature: Float[Any, "R"]  # 0 is greedy
    top_p: Float[Any, "R"]
    seed: UInt[Any, "R"]


def idle(num_rows: int) -> Rows:
    """On the host; nothing is to be done."""
    zeros = [np.zeros(num_rows, kind) for kind in (np.int32, np.float32, np.uint32)]
    whole, real, seed = zeros
    return Rows(whole, whole.copy(), whole.copy(), real, real + 1, seed)


@dataclass(frozen=True)
class Decoder:
    """Compiled.

    `read(cache, row, tokens, num, rows)` appends the first `num` of PIECE tokens to a
    row. It returns the cache, and the token that the row says next.

    `decode(cache, rows, num_steps)` lets all rows speak that have something left. It
    returns the cache, and their tokens, [R, MAX_STEPS], NONE behind the last of each;
    before `num_steps` are done it leaves off where one of them has ended.
    """

    num_rows: int
    num_slots: int
    end_token: int
    empty: Callable[[], types.Cache]  # a cache; it is eaten by the next call
    _read: jax.stages.Compiled
    _decode: jax.stages.Compiled
    _params: Params

    def read(self, cache, row: int, tokens: np.ndarray, num: int, rows: Rows):
        given = np.concatenate([[row, num], tokens]).astype(np.int32)
        return self._read(self._params, cache, given, _packed(rows))

    def decode(self, cache, rows: Rows, num_steps: int):
        return self._decode(self._params, cache, _packed(rows, num_steps))


def compile(
    policy: Policy, params: Params, end_token: int, num_rows: int, num_slots: int
) -> Decoder:
    """
    Args:
      policy: that speaks.
      params: of the policy.
      end_token: that ends what is said.
      num_rows: requests that are decoded together.
      num_slots: of each row.
    """

    def read(params, cache, given, packed):
        row, num, tokens = given[0], given[1], given[2:]

        def part(x):
            return lax.dynamic_slice_in_dim(x, row, 1)

        def whole(x, part):
            return lax.dynamic_update_slice_in_dim(x, part, row, 0)

        own = Rows(*map(part, _unpacked(packed)[0]))
        keys, values = jax.tree.map(part, (cache.keys, cache.values))
        one = types.Cache(keys, values, own.length)
        logits = jnp.zeros((1, vocab_size))
        chunk = rollout.PROMPT_CHUNK
        one, logits = rollout.read(
            policy, params, one, logits, tokens[None], num[None], chunk
        )
        keys, values = jax.tree.map(
            whole, (cache.keys, cache.values), (one.keys, one.values)
        )
        token = _choose(logits, own, one.length, jnp.array([True]))
        return types.Cache(keys, values, cache.length), token[0]

    def decode(params, cache, packed):
        rows, num_steps = _unpacked(packed)
        busy = rows.left > 0

        def step(loop):
            i, cache, token, left, said = loop
            active = (left > 0) & busy
            hidden, cache = policy.extend(
                params, cache, token[:, None], active.astype(jnp.int32)
            )
            logits = policy.head(params, hidden[:, 0])
            token = jnp.where(
                active, _choose(logits, rows, cache.length, active), token
            )
            left = jnp.where(token == end_token, 0, left - 1)
            said = lax.dynamic_update_slice(
                said, jnp.where(active, token, NONE)[:, None], (0, i)
            )
            return i + 1, cache, token, left, said

        def goes_on(loop, num_slots):
            i, cache, _, left, _ = loop
            num_used = jnp.max(jnp.where(busy, cache.num_used, 0))
            going = jnp.any(busy) & jnp.all((left > 0) | ~busy)
            return going & (i < num_steps) & (num_used < num_slots)

        def in_some(cache, rest):
            i, token, left, said = rest
            slots = sum(cache.block_sizes)
            i, cache, token, left, said = lax.while_loop(
                partial(goes_on, num_slots=slots),
                step,
                (i, cache, token, left, said),
            )
            return cache, (i, token, left, said)

        said = jnp.full((num_rows, MAX_STEPS), NONE, jnp.int32)
        start = types.Cache(cache.keys, cache.values, rows.length)
        first = jnp.int32(0), rows.token, rows.left, said
        made, (*_, said) = rollout.in_blocks(in_some, start, first)
        return types.Cache(made.keys, made.values, cache.length), said

    params = policy.apart(params)
    # Beside parameters that are split over devices, each has the whole cache.
    placed = jax.tree.leaves(params)[0].sharding
    if isinstance(placed, NamedSharding):
        placed = NamedSharding(placed.mesh, PartitionSpec())
    num_layers = len(policy.init_cache(1, [1]).keys[0])
    blocks = rollout.blocks(num_slots, num_layers)

    def empty() -> types.Cache:
        return jax.device_put(policy.init_cache(num_rows, blocks), placed)

    cache = empty()
    hidden = jax.eval_shape(
        policy.extend, params, cache, jnp.zeros((num_rows, 1), int), cache.length
    )[0]
    vocab_size = jax.eval_shape(policy.head, params, hidden).shape[-1]
    rows, given = _packed(idle(num_rows)), np.zeros(2 + PIECE, np.int32)
    program = partial(jax.jit, donate_argnums=1, out_shardings=placed)
    return Decoder(
        num_rows,
        num_slots,
        end_token,
        empty,
        program(read).lower(params, cache, given, rows).compile(),
        program(decode).lower(params, cache, rows).compile(),
        params,
    )


def _packed(rows: Rows, num: int = 0) -> Int[np.ndarray, "7 R"]:
    """All in one new array: each takes time to hand over, and the device may look at it
    when its owner has already changed what it was made of."""
    whole = [np.full_like(rows.length, num), *rows]
    return np.stack([x.view(np.int32) for x in whole])


def _unpacked(packed: Int[Array, "7 R"]) -> tuple[Rows, Array]:
    num, *whole = packed
    kinds = (jnp.int32,) * 3 + (jnp.float32,) * 2 + (jnp.uint32,)
    arrays = map(lax.bitcast_convert_type, whole, kinds)
    return Rows(*arrays), num[0]


def _choose(
    logits: Float[Array, "R V"], rows: Rows, position: Array, active: Array
) -> Int[Array, "R"]:
    """The next token of each row, in its own way."""
    likely, _ = sampling.greedy(logits)
    warm = (rows.temperature > 0) & active
    narrow = warm & (rows.top_p < 1)

    def drawn():
        scaled = logits / jnp.where(warm, rows.temperature, 1)[:, None]
        scaled = lax.cond(
            jnp.any(narrow),
            lambda: jnp.where(
                narrow[:, None], sampling.nucleus(scaled, rows.top_p[:, None]), scaled
            ),
            lambda: scaled,
        )
        keys = jax.vmap(jax.random.key)(rows.seed)
        lots = sampling.draw_lots(keys, position)
        return jnp.where(warm, sampling.categorical(scaled, lots)[0], likely)

    return lax.cond(jnp.any(warm), drawn, lambda: likely)
