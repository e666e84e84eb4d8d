"""SFT: supervised fine-tuning on the expert's demonstrations of the tasks."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax import expert, losses
from openagent_jax.types import (
    Algorithm,
    Batch,
    Environment,
    Local,
    Metrics,
    Params,
    Policy,
    Tables,
    Task,
    TrainState,
    batch_size,
    undivided,
)

MAX_BLOCKS = 8  # largest number of blocks of rows that are packed separately


def sft(
    policy: Policy,
    environment: Environment,
    num_tokens: int,
    num_rows: int = 0,
    local: Local = undivided,
) -> Algorithm:
    """Return SFT as an `Algorithm`: cross-entropy on the expert's action tokens.

    A demonstration that is longer than a row would lose its end. It is not trained on,
    and counted in `train/num_cut`.

    Args:
      policy: the model to train.
      environment: the environment whose expert demonstrates.
      num_tokens: S, the number of tokens of a row.
      num_rows: number of rows into which the demonstrations of a step are packed end to
        end; those for which no row has room are dropped and counted in
        `train/num_dropped`. With 0, each demonstration has its own row.
      local: lets each device make its own rows.
    """

    def make_batch(
        state: TrainState, tables: Tables, key: jax.Array, tasks: Task
    ) -> tuple[Batch, Metrics]:
        del state, key  # the expert needs neither
        num_tasks = batch_size(tasks)

        @local
        def rows_of(tables, tasks):
            def one(task):
                episode = expert.demonstrate(environment, tables, task)
                return expert.write(environment, tables, episode, num_tokens)

            tokens, valid, loss_mask, length = jax.vmap(one)(tasks)
            fits = length <= num_tokens
            if num_rows:
                # The part of this device. Up to MAX_BLOCKS devices change nothing.
                rows, blocks = (
                    max(num * len(tokens) // num_tasks, 1)
                    for num in (num_rows, math.gcd(num_tasks, num_rows, MAX_BLOCKS))
                )
                return *pack(tokens, loss_mask, length, rows, blocks), fits
            loss_mask = loss_mask & fits[:, None]
            segments = (valid & fits[:, None]).astype(jnp.int32)
            positions = jnp.broadcast_to(jnp.arange(num_tokens), tokens.shape)
            num_loss_tokens = jnp.sum(loss_mask, axis=1).astype(jnp.float32)
            batch = Batch(tokens, positions, segments, loss_mask, num_loss_tokens)
            return batch, fits, fits

        batch, placed, fits = rows_of(tables, tasks)
        metrics = {"train/num_cut": jnp.sum(~fits)}
        if num_rows:
            metrics["train/num_dropped"] = jnp.sum(fits & ~placed)
        return batch, metrics

    def loss_fn(
        params: Params, batch: Batch, divisor: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        return losses.cross_entropy(policy, params, batch, divisor)

    return Algorithm(make_batch, loss_fn, needs_policy=False)


def pack(
    tokens: Int[Array, "B S"],
    loss_mask: Bool[Array, "B S"],
    length: Int[Array, "B"],
    num_rows: int,
    num_blocks: int = 0,
) -> tuple[Batch, Bool[Array, "B"]]:
    """Pack texts end to end into rows of S columns.

    Texts and rows are divided into blocks, which can be packed on different devices. In
    a block, each text goes into the first row that has room for all of it (first fit).
    The first text for which no row has room is dropped with all texts of the block that
    follow it: if short ones were still taken, the mix of those that are trained on
    would not be that of the texts. A text that is longer than a row is dropped alone.
    Text i becomes segment i + 1.

    Args:
      tokens: one text in each row, padded on the right.
      loss_mask: which tokens the policy is trained to produce.
      length: the length of each text before truncation to S.
      num_rows: number of rows of the result.
      num_blocks: number of blocks, which divides B and `num_rows`; 0 is the largest one
        up to MAX_BLOCKS.

    Returns:
      The batch, and which texts were not dropped.
    """
    num_texts, num_columns = tokens.shape
    num_blocks = num_blocks or math.gcd(num_texts, num_rows, MAX_BLOCKS)
    rows_of_block = num_rows // num_blocks
    offset = jnp.arange(num_columns)[None]

    def place(carry, length):
        used, is_full = carry
        fits = used + length <= num_columns
        row, has_room = jnp.argmax(fits), jnp.any(fits)
        start, is_placed = used[row], has_room & ~is_full
        used = used.at[row].add(jnp.where(is_placed, length, 0))
        is_full = is_full | (~has_room & (length <= num_columns))
        return (used, is_full), (jnp.where(is_placed, row, rows_of_block), start)

    def pack_block(length, texts):
        empty = jnp.zeros(rows_of_block, jnp.int32), jnp.bool_(False)
        _, (row, start) = jax.lax.scan(place, empty, length)
        is_text = offset < length[:, None]
        column = jnp.where(is_text, start[:, None] + offset, num_columns)

        def lay(x):
            # Indices out of range are dropped: those of padding and of dropped texts.
            out = jnp.zeros((rows_of_block, num_columns), x.dtype)
            return out.at[row[:, None], column].set(x, mode="drop")

        return jax.tree.map(lay, texts), row < rows_of_block

    index = jnp.arange(1, num_texts + 1, dtype=jnp.int32)[:, None]
    index, offsets = (jnp.broadcast_to(x, tokens.shape) for x in (index, offset))
    blocks = jax.tree.map(
        lambda x: x.reshape(num_blocks, len(x) // num_blocks, *x.shape[1:]),
        (length, (tokens, offsets, index, loss_mask)),
    )
    texts, placed = jax.vmap(pack_block)(*blocks)
    tokens, positions, segments, loss_mask = (
        x.reshape(num_rows, num_columns) for x in texts
    )
    num_loss_tokens = jnp.sum(loss_mask, axis=1).astype(jnp.float32)
    batch = Batch(tokens, positions, segments, loss_mask, num_loss_tokens)
    return batch, placed.reshape(num_texts)
