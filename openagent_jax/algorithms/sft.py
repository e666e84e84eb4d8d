"""Supervised fine-tuning on the oracle's demonstrations of the tasks."""

import jax
import jax.numpy as jnp

from openagent_jax import losses
from openagent_jax.sandbox import demonstrate, lexicon, render
from openagent_jax.types import Algorithm, Batch, Metrics, Params, Policy, Task


def sft(
    policy: Policy, lexicon: lexicon.Lexicon, max_turns: int, num_tokens: int
) -> Algorithm:
    """Masked cross-entropy on what the expert says; `tasks` have a leading axis B.

    Demonstrations longer than `num_tokens` are cut there.
    """

    def make_batch(params: Params, key: jax.Array, tasks: Task) -> Batch:
        del params, key  # the expert needs neither

        def one(task):
            episode = demonstrate.demonstrate(lexicon, task, max_turns)
            return render.trajectory(lexicon, episode, num_tokens)

        tokens, valid, loss_mask, _ = jax.vmap(one)(tasks)
        positions = jnp.broadcast_to(jnp.arange(num_tokens), tokens.shape)
        return Batch(tokens, positions, valid, loss_mask)

    def loss_fn(
        params: Params, batch: Batch, num_loss_tokens: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        return losses.cross_entropy(policy, params, batch, num_loss_tokens)

    return Algorithm(make_batch, loss_fn)
