"""Supervised fine-tuning on the oracle's demonstrations of the tasks."""

import jax
import jax.numpy as jnp

from openagent_jax import losses
from openagent_jax.sandbox import demonstrate, lexicon, render
from openagent_jax.types import (
    Algorithm,
    Batch,
    Metrics,
    Params,
    Policy,
    Task,
    TrainState,
)


def sft(
    policy: Policy, lexicon: lexicon.Lexicon, max_turns: int, num_tokens: int
) -> Algorithm:
    """Masked cross-entropy on what the expert says; `tasks` have a leading axis B.

    Demonstrations longer than `num_tokens` are cut there.
    """

    def make_batch(
        state: TrainState, key: jax.Array, tasks: Task
    ) -> tuple[Batch, Metrics]:
        del state, key  # the expert needs neither

        def one(task):
            episode = demonstrate.demonstrate(lexicon, task, max_turns)
            return render.trajectory(lexicon, episode, num_tokens)

        tokens, valid, loss_mask, _ = jax.vmap(one)(tasks)
        positions = jnp.broadcast_to(jnp.arange(num_tokens), tokens.shape)
        num_loss_tokens = jnp.sum(loss_mask, axis=1).astype(jnp.float32)
        return Batch(tokens, positions, valid, loss_mask, num_loss_tokens), {}

    def loss_fn(
        params: Params, batch: Batch, divisor: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        return losses.cross_entropy(policy, params, batch, divisor)

    return Algorithm(make_batch, loss_fn)
