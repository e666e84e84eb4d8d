"""Supervised fine-tuning on the oracle's demonstrations of the tasks."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax import expert, losses
from openagent_jax.types import (
    Algorithm,
    Batch,
    Environment,
    Metrics,
    Params,
    Policy,
    Tables,
    Task,
    TrainState,
)


def sft(
    policy: Policy,
    environment: Environment,
    num_tokens: int,
    num_rows: int = 0,
) -> Algorithm:
    """Masked cross-entropy on the tokens of the expert's actions.

    Args:
      policy: what learns.
      environment: whose expert demonstrates.
      num_tokens: S, of a row.
      num_rows: the demonstrations of a step are packed end to end into so many rows,
        and those that do not fit are counted in `train/num_dropped`; 0 gives each a row
        of its own, and cuts it where the row ends.
    """

    def make_batch(
        state: TrainState, tables: Tables, key: jax.Array, tasks: Task
    ) -> tuple[Batch, Metrics]:
        del state, key  # the expert needs neither

        def one(task):
            episode = expert.demonstrate(environment, tables, task)
            return expert.write(environment, tables, episode, num_tokens)

        tokens, valid, loss_mask, length = jax.vmap(one)(tasks)
        if num_rows:
            batch, num_dropped = pack(tokens, loss_mask, length, num_rows)
            return batch, {"train/num_dropped": num_dropped}
        positions = jnp.broadcast_to(jnp.arange(num_tokens), tokens.shape)
        num_loss_tokens = jnp.sum(loss_mask, axis=1).astype(jnp.float32)
        segments = valid.astype(jnp.int32)
        return Batch(tokens, positions, segments, loss_mask, num_loss_tokens), {}

    def loss_fn(
        params: Params, batch: Batch, divisor: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        return losses.cross_entropy(policy, params, batch, divisor)

    return Algorithm(make_batch, loss_fn)


def pack(
    tokens: Int[Array, "B S"],
    loss_mask: Bool[Array, "B S"],
    length: Int[Array, "B"],
    num_rows: int,
) -> tuple[Batch, Int[Array, ""]]:
    """Texts end to end in rows of S columns, and how many found no room.

    Each goes into the first row that has room for the whole of it (first fit), as
    segment `1 + its index`. One that is longer than a row has room in none.
    """
    num_columns = tokens.shape[1]

    def place(used, length):
        fits = used + length <= num_columns
        row = jnp.argmax(fits)
        start, any_fits = used[row], jnp.any(fits)
        used = used.at[row].add(jnp.where(any_fits, length, 0))
        return used, (jnp.where(any_fits, row, num_rows), start)

    empty = jnp.zeros(num_rows, jnp.int32)
    _, (row, start) = jax.lax.scan(place, empty, length)
    offset = jnp.arange(num_columns)[None]
    column = jnp.where(offset < length[:, None], start[:, None] + offset, num_columns)

    def lay(x):
        # What is out of range is dropped: padding, and what found no room.
        out = jnp.zeros((num_rows, num_columns), x.dtype)
        return out.at[row[:, None], column].set(x, mode="drop")

    index = jnp.arange(1, len(length) + 1, dtype=jnp.int32)[:, None]
    segments, positions = (
        lay(jnp.broadcast_to(x, tokens.shape)) for x in (index, offset)
    )
    loss_mask = lay(loss_mask)
    num_loss_tokens = jnp.sum(loss_mask, axis=1).astype(jnp.float32)
    batch = Batch(lay(tokens), positions, segments, loss_mask, num_loss_tokens)
    return batch, jnp.sum(row == num_rows)
