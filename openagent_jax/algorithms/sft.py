"""SFT: supervised fine-tuning on the expert's demonstrations of the tasks."""

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
    """Return SFT as an `Algorithm`: cross-entropy on the expert's action tokens.

    Args:
      policy: the model to train.
      environment: the environment whose expert demonstrates.
      num_tokens: S, the number of tokens of a row.
      num_rows: number of rows into which the demonstrations of a step are packed end to
        end; those that do not fit are dropped and counted in `train/num_dropped`. With
        0, each demonstration has its own row and is truncated to it.
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
    """Pack texts end to end into rows of S columns.

    Each text goes into the first row that has room for all of it (first fit). Text i
    becomes segment i + 1. A text that fits into no row is dropped.

    Args:
      tokens: one text in each row, padded on the right.
      loss_mask: which tokens the policy is trained to produce.
      length: the length of each text before truncation to S.
      num_rows: number of rows of the result.

    Returns:
      The batch, and the number of texts that were dropped.
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
        # Indices out of range are dropped: those of padding and of dropped texts.
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
