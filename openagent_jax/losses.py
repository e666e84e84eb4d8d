"""Batches become numbers. Three masks stay apart:

    segments    attention: real tokens, whoever wrote them, each to its own text
    loss_mask   policy loss: tokens that the policy produces
    credit      (RL) observations are transparent to it

Sums are divided by the number of loss tokens of the whole batch, never of a part of
it, so that micro-batches and devices change nothing.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from openagent_jax.types import Batch, Metrics, Params, Policy

BLOCK = 32  # columns of a row that the head sees at once


def token_log_probs(
    policy: Policy,
    params: Params,
    batch: Batch,
    temperature: float = 1.0,
    hidden: Float[Array, "B S D"] | None = None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
    """Of every loss token: its log-probability given those before it, and whether it
    was the most likely one. Other tokens, and the first of a segment, have 0.

    Most tokens are not the policy's. Each row's loss tokens are brought to its front,
    and the head sees blocks of `BLOCK` columns as long as some row has any.

    Args:
      policy: what speaks.
      params: of the policy.
      batch: B rows of S tokens.
      temperature: at which tokens were sampled.
      hidden: of the last layer, where the caller has it.
    """
    if hidden is None:
        hidden = policy.hidden(params, batch.tokens, batch.positions, batch.segments)
    # Nothing comes before the first token of a segment.
    same = batch.segments[:, 1:] == batch.segments[:, :-1]
    mask = batch.loss_mask[:, 1:] & same
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

    def score(hidden, target):
        logits = policy.head(params, hidden) / temperature
        chosen = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
        best = chosen >= jnp.max(logits, axis=-1)
        return chosen - jax.nn.logsumexp(logits, axis=-1), best.astype(jnp.float32)

    # It keeps no logits; with the condition within, no copy of the head for each block.
    @partial(jax.checkpoint, prevent_cse=False)
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
    policy: Policy, params: Params, batch: Batch, divisor: Float[Array, ""]
) -> tuple[Float[Array, ""], Metrics]:
    """Mean negative log-probability of the loss tokens (nats a token)."""
    log_prob, best = token_log_probs(policy, params, batch)
    return -jnp.sum(log_prob) / divisor, {"token_accuracy": jnp.sum(best)}


# What each loss divides its sum by, if nothing else is said.
NORMALISERS = {
    "grpo": "sequence",
    "dr_grpo": "constant",
    "dapo": "token",
    "gspo": "sequence",
    "cispo": "token",
    "reinforce": "token",
}


DIVISORS = ("token", "sequence", "constant")  # see row_weights


def policy_gradient(
    kind: str,
    log_prob: Float[Array, "B S"],
    old_log_prob: Float[Array, "B S"],
    advantage: Float[Array, "B S"],
    mask: Bool[Array, "B S"],
    clip_low: float,
    clip_high: float,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
    """What each token loses, and whether its gradient was clipped away (1) or not.

    With the ratio r of the probabilities now and when it was sampled:

        grpo, dr_grpo, dapo   -min(r A, clip(r) A)  (PPO, arXiv 1707.06347; they differ
                              in what the sum is divided by, see `row_weights`:
                              arXiv 2402.03300, 2503.20783, 2503.14476)
        gspo                  the same, r the geometric mean over the row (2507.18071)
        cispo                 -clip(r) A log p, no gradient through r (2506.13585)
        reinforce             -A log p

    Args:
      kind: one of `NORMALISERS`.
      log_prob: of the sampled tokens, under the parameters that learn.
      old_log_prob: as they were sampled.
      advantage: of each token.
      mask: sampled tokens; the others lose nothing.
      clip_low: the ratio counts from `1 - clip_low` on.
      clip_high: and to `1 + clip_high`.

    Raises:
      ValueError: there is no such loss.
    """
    if kind not in NORMALISERS:
        raise ValueError(f'loss "{kind}" is not one of {", ".join(NORMALISERS)}')
    # What is not sampled may hold anything: it must reach neither loss nor gradient.
    log_prob, old_log_prob, advantage = (
        jnp.where(mask, x, 0) for x in (log_prob, old_log_prob, advantage)
    )
    change = log_prob - old_log_prob
    if kind == "gspo":
        length = jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1)
        mean = jnp.sum(change, axis=1, keepdims=True) / length
        # The value is that of the row, the gradient that of the token.
        change = lax.stop_gradient(mean - change) + change
    ratio = jnp.exp(change)
    bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
    if kind == "reinforce":
        loss, clipped = -advantage * log_prob, jnp.zeros_like(ratio)
    elif kind == "cispo":
        loss = -lax.stop_gradient(bounded) * advantage * log_prob
        clipped = bounded != ratio
    else:
        loss = -jnp.minimum(ratio * advantage, bounded * advantage)
        clipped = bounded * advantage < ratio * advantage
    return jnp.where(mask, loss, 0), jnp.where(mask, clipped, 0).astype(loss.dtype)


def row_weights(
    normaliser: str, mask: Bool[Array, "B S"], constant: int
) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
    """How much a token of each row counts, and what the row adds to the divisor.

        token     every token counts the same (arXiv 2503.14476)
        sequence  every row counts the same (arXiv 2402.03300)
        constant  every token counts the same; a row adds `constant`, whatever its
                  length (arXiv 2503.20783)

    Rows without a token add nothing.

    Raises:
      ValueError: there is no such normaliser.
    """
    length = jnp.sum(mask, axis=1).astype(jnp.float32)
    one = jnp.ones_like(length)
    some = (length > 0).astype(jnp.float32)
    if normaliser == "token":
        return one, length
    if normaliser == "sequence":
        return one / jnp.maximum(length, 1), some
    if normaliser == "constant":
        return one, some * constant
    raise ValueError(f'normaliser "{normaliser}" is not one of {", ".join(DIVISORS)}')


def kl_to(
    log_prob: Float[Array, "B S"],
    reference: Float[Array, "B S"],
    mask: Bool[Array, "B S"],
) -> Float[Array, "B S"]:
    """An estimate of the divergence from a reference at each sampled token, never
    below 0: k3 of J. Schulman, "Approximating KL divergence" (2020)."""
    change = jnp.where(mask, reference, 0) - jnp.where(mask, log_prob, 0)
    return jnp.exp(change) - change - 1
