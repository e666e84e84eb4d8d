"""Losses: from a batch of tokens to a number.

Two masks serve two purposes and are never mixed:

    segments    attention: which tokens are real, and which text each belongs to
    loss_mask   policy loss: the tokens that the policy produces

In reinforcement learning, credit is assigned by turns (see `advantages`), so tokens of
the environment do not discount it.

A loss is a sum divided by a number that belongs to the whole batch, never to a part of
it, so splitting the batch into micro-batches or over devices does not change the loss.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from openagent_jax import log_probs
from openagent_jax.types import Batch, Metrics, Params, Policy


def cross_entropy(
    policy: Policy, params: Params, batch: Batch, divisor: Float[Array, ""]
) -> tuple[Float[Array, ""], Metrics]:
    """Compute the mean negative log-probability of the loss tokens.

    Args:
      policy: the model.
      params: its parameters.
      batch: B rows of S tokens.
      divisor: the number of loss tokens of the whole batch, of which `batch` may be a
        part.

    Returns:
      The loss in nats per token, and the metric `token_accuracy`: the number (not yet
      the share) of loss tokens that were the most likely ones.
    """
    log_prob, is_best = log_probs.token_log_probs(policy, params, batch)
    return -jnp.sum(log_prob) / divisor, {"token_accuracy": jnp.sum(is_best)}


class Usual(NamedTuple):
    """The settings of a policy-gradient loss in the paper that proposes it."""

    normaliser: str  # see `row_weights`
    clip_low: float  # see `policy_gradient`
    clip_high: float
    # Whether groups whose rewards are all equal are left out of the batch (dynamic
    # sampling). Otherwise their tokens have an advantage of 0, and count in the divisor
    # and in the KL penalty.
    filters: bool


# loss        paper             what it says
# ---------   ---------------   ------------------------------------------------------
# grpo        2402.03300        mean over the tokens of a sequence, then over sequences;
#                               states no clip, so that of PPO (1707.06347): 0.2;
#                               leaves nothing out
# dr_grpo     2503.20783        as grpo, but divides by a constant; leaves nothing out
# dapo        2503.14476        mean over tokens; clip 0.2 and 0.28; leaves out groups
#                               that are all right or all wrong ("dynamic sampling")
# gspo        2507.18071        one ratio for each sequence; clip 3e-4 and 4e-4; leaves
#                               nothing out
# cispo       2506.13585        mean over tokens; no lower clip; states no upper clip,
#                               so that of dapo; dynamic sampling as in dapo
# reinforce   Williams (1992)   no ratio, so no clip; leaves nothing out
LOSSES = {
    "grpo": Usual("sequence", 0.2, 0.2, filters=False),
    "dr_grpo": Usual("constant", 0.2, 0.2, filters=False),
    "dapo": Usual("token", 0.2, 0.28, filters=True),
    "gspo": Usual("sequence", 3e-4, 4e-4, filters=False),
    "cispo": Usual("token", 1.0, 0.28, filters=True),
    "reinforce": Usual("token", 0.0, 0.0, filters=False),
}
DIVISORS = ("token", "sequence", "constant")  # the normalisers; see `row_weights`


def policy_gradient(
    kind: str,
    log_prob: Float[Array, "B S"],
    old_log_prob: Float[Array, "B S"],
    advantage: Float[Array, "B S"],
    mask: Bool[Array, "B S"],
    clip_low: float,
    clip_high: float,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
    """Compute the policy-gradient loss of each token.

    With r the ratio of the token's probability now to its probability when it was
    sampled, and A its advantage, the losses are:

        grpo, dr_grpo, dapo   -min(r A, clip(r) A), as in PPO (arXiv 1707.06347); they
                              differ in the divisor of the sum, see `row_weights`
                              (arXiv 2402.03300, 2503.20783, 2503.14476)
        gspo                  the same, with r the geometric mean over the row
                              (arXiv 2507.18071)
        cispo                 -clip(r) A log p, no gradient through r
                              (arXiv 2506.13585)
        reinforce             -A log p

    Args:
      kind: the name of the loss, one of `LOSSES`.
      log_prob: log-probabilities of the sampled tokens under the current parameters.
      old_log_prob: their log-probabilities when they were sampled.
      advantage: the advantage of each token.
      mask: the sampled tokens; all other tokens have a loss of 0.
      clip_low: r is clipped from below at `1 - clip_low`.
      clip_high: r is clipped from above at `1 + clip_high`.

    Returns:
      The loss of each token, and 1 where clipping took effect (0 elsewhere).

    Raises:
      ValueError: `kind` is not a known loss.

    >>> now, before = jnp.log(jnp.array([[0.75]])), jnp.log(jnp.array([[0.5]]))
    >>> advantage, mask = jnp.array([[2.0]]), jnp.array([[True]])
    >>> loss, clipped = policy_gradient("grpo", now, before, advantage, mask, 0.2, 0.25)
    >>> loss.tolist(), clipped.tolist()
    ([[-2.5]], [[1.0]])
    """
    if kind not in LOSSES:
        raise ValueError(f'loss "{kind}" is not one of {", ".join(LOSSES)}')
    # Entries outside the mask may hold anything, NaN included: they must reach neither
    # the loss nor the gradient.
    log_prob, old_log_prob, advantage = (
        jnp.where(mask, x, 0) for x in (log_prob, old_log_prob, advantage)
    )
    log_ratio = log_prob - old_log_prob
    if kind == "gspo":
        length = jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1)
        mean = jnp.sum(log_ratio, axis=1, keepdims=True) / length
        # The value is the mean of the row; the gradient is that of the token.
        log_ratio = lax.stop_gradient(mean - log_ratio) + log_ratio
    ratio = jnp.exp(log_ratio)
    clipped_ratio = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
    if kind == "reinforce":
        loss, clipped = -advantage * log_prob, jnp.zeros_like(ratio)
    elif kind == "cispo":
        loss = -lax.stop_gradient(clipped_ratio) * advantage * log_prob
        clipped = clipped_ratio != ratio
    else:
        loss = -jnp.minimum(ratio * advantage, clipped_ratio * advantage)
        clipped = clipped_ratio * advantage < ratio * advantage
    return jnp.where(mask, loss, 0), jnp.where(mask, clipped, 0).astype(loss.dtype)


def row_weights(
    normaliser: str, mask: Bool[Array, "B S"], constant: int
) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
    """Return the weight of the tokens of each row, and each row's part of the divisor.

    The loss of a batch is the weighted sum over its tokens, divided by the sum of the
    second result over all rows:

        token     every token has the same weight (arXiv 2503.14476)
        sequence  every row has the same weight (arXiv 2402.03300)
        constant  every token has the same weight, and a row adds `constant` to the
                  divisor whatever its length (arXiv 2503.20783)

    Rows without any token add nothing to the divisor.

    Args:
      normaliser: "token", "sequence" or "constant".
      mask: the loss tokens.
      constant: what a row adds to the divisor with the normaliser "constant".

    Raises:
      ValueError: `normaliser` is not one of the three.

    >>> mask = jnp.array([[True, True], [True, False], [False, False]])
    >>> weight, divisor = row_weights("sequence", mask, constant=0)
    >>> weight.tolist(), divisor.tolist()
    ([0.5, 1.0, 1.0], [1.0, 1.0, 0.0])
    """
    length = jnp.sum(mask, axis=1).astype(jnp.float32)
    one = jnp.ones_like(length)
    has_any = (length > 0).astype(jnp.float32)
    if normaliser == "token":
        return one, length
    if normaliser == "sequence":
        return one / jnp.maximum(length, 1), has_any
    if normaliser == "constant":
        return one, has_any * constant
    raise ValueError(f'normaliser "{normaliser}" is not one of {", ".join(DIVISORS)}')


def kl_estimate(
    log_prob: Float[Array, "B S"],
    reference_log_prob: Float[Array, "B S"],
    mask: Bool[Array, "B S"],
) -> Float[Array, "B S"]:
    """Estimate the KL divergence of the policy from a reference at each sampled token.

    This is the estimator k3 of J. Schulman, "Approximating KL divergence" (2020). It is
    unbiased and never below 0.

    Args:
      log_prob: log-probabilities of the sampled tokens under the policy.
      reference_log_prob: log-probabilities of the same tokens under the reference.
      mask: the sampled tokens; the estimate is 0 elsewhere.

    >>> log_prob, reference = jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]]))
    >>> estimate = kl_estimate(log_prob, reference, jnp.array([[True]]))
    >>> round(float(estimate[0, 0]), 3)  # 1 / 2 - log(1 / 2) - 1
    0.193
    """
    log_ratio = jnp.where(mask, reference_log_prob, 0) - jnp.where(mask, log_prob, 0)
    return jnp.exp(log_ratio) - log_ratio - 1
