"""Batches become numbers. Three masks stay apart:

    valid       attention: real tokens, whoever wrote them
    loss_mask   policy loss: tokens that the policy produces
    credit      (RL) observations are transparent to it

Sums are divided by the number of loss tokens of the whole batch, never of a part of
it, so that micro-batches and devices change nothing.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from openagent_jax.types import Batch, Metrics, Params, Policy


def token_log_probs(
    policy: Policy, params: Params, batch: Batch
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
    """Log-probability of every token given those before it, and whether it was the
    most likely one. The first token of a row has none: 0."""
    hidden = policy.hidden(params, batch.tokens, batch.positions, batch.valid)
    logits = policy.head(params, hidden[:, :-1])
    target = batch.tokens[:, 1:]
    chosen = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
    log_prob = chosen - jax.nn.logsumexp(logits, axis=-1)
    best = chosen >= jnp.max(logits, axis=-1)
    first = jnp.zeros((batch.tokens.shape[0], 1))
    return (
        jnp.concatenate([first, log_prob], axis=1),
        jnp.concatenate([first, best.astype(jnp.float32)], axis=1),
    )


def cross_entropy(
    policy: Policy, params: Params, batch: Batch, num_loss_tokens: Float[Array, ""]
) -> tuple[Float[Array, ""], Metrics]:
    """Mean negative log-probability of the loss tokens (nats a token)."""
    log_prob, best = token_log_probs(policy, params, batch)
    mask = batch.loss_mask.astype(jnp.float32)
    loss = -jnp.sum(log_prob * mask) / num_loss_tokens
    return loss, {
        "loss": loss,
        "token_accuracy": jnp.sum(best * mask) / num_loss_tokens,
    }
