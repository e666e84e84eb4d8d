"""Batches become numbers. Three masks stay apart:

    valid       attention: real tokens, whoever wrote them
    loss_mask   policy loss: tokens that the policy produces
    credit      (RL) observations are transparent to it

Sums are divided by the number of loss tokens of the whole batch, never of a part of
it, so that micro-batches and devices change nothing.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from openagent_jax.types import Batch, Metrics, Params, Policy

BLOCK = 32  # columns of a row that the head sees at once


def token_log_probs(
    policy: Policy, params: Params, batch: Batch
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
    """Of every loss token: its log-probability given those before it, and whether it
    was the most likely one. Other tokens, and the first of a row, have 0.

    Most tokens are not the policy's. Each row's loss tokens are brought to its front,
    and the head sees blocks of `BLOCK` columns as long as some row has any.
    """
    hidden = policy.hidden(params, batch.tokens, batch.positions, batch.valid)
    mask = batch.loss_mask[:, 1:]
    num_columns = -(-mask.shape[1] // BLOCK) * BLOCK
    pad = ((0, 0), (0, num_columns - mask.shape[1]))
    order = jnp.argsort(~jnp.pad(mask, pad), axis=1, stable=True)
    place = jnp.argsort(order, axis=1)[:, : mask.shape[1]]
    order = jnp.minimum(order, mask.shape[1])
    most = jnp.max(jnp.sum(mask, axis=1))

    def blocks(x):
        x = jnp.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), 1)
        x = x.reshape(x.shape[0], -1, BLOCK, *x.shape[2:])
        return jnp.swapaxes(x, 0, 1)

    @partial(jax.checkpoint, prevent_cse=False)  # keeps no logits
    def score(hidden, target):
        logits = policy.head(params, hidden)
        chosen = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
        best = chosen >= jnp.max(logits, axis=-1)
        return chosen - jax.nn.logsumexp(logits, axis=-1), best.astype(jnp.float32)

    def score_if_any(_, block):
        start, hidden, target = block
        none = (jnp.zeros(target.shape),) * 2
        return _, lax.cond(start < most, score, lambda *_: none, hidden, target)

    starts = jnp.arange(0, num_columns, BLOCK)
    inputs = starts, blocks(hidden), blocks(jnp.roll(batch.tokens, -1, axis=1))
    _, scored = lax.scan(score_if_any, None, inputs)
    log_prob, best = (
        jnp.take_along_axis(x.swapaxes(0, 1).reshape(order.shape), place, axis=1)
        for x in scored
    )
    first = ((0, 0), (1, 0))
    log_prob, best = (jnp.where(mask, x, 0) for x in (log_prob, best))
    return jnp.pad(log_prob, first), jnp.pad(best, first)


def cross_entropy(
    policy: Policy, params: Params, batch: Batch, num_loss_tokens: Float[Array, ""]
) -> tuple[Float[Array, ""], Metrics]:
    """Mean negative log-probability of the loss tokens (nats a token)."""
    log_prob, best = token_log_probs(policy, params, batch)
    loss = -jnp.sum(log_prob) / num_loss_tokens
    return loss, {
        "loss": loss,
        "token_accuracy": jnp.sum(best) / num_loss_tokens,
    }
