"""Log-probabilities of the loss tokens, without all logits in memory at once."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from openagent_jax.types import Batch, Params, Policy

BLOCK = 32  # columns of a row that the output head processes at once


def token_log_probs(
    policy: Policy,
    params: Params,
    batch: Batch,
    temperature: float = 1.0,
    hidden: Float[Array, "B S D"] | None = None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
    """Compute the log-probability of every loss token, given the tokens before it.

    Most tokens are not the policy's, and the output head of a large vocabulary is
    expensive. So the loss tokens of each row are moved to its front, and the head
    processes blocks of `BLOCK` columns for as long as any row has loss tokens left.

    Args:
      policy: the model.
      params: its parameters.
      batch: B rows of S tokens.
      temperature: the temperature at which the tokens were sampled.
      hidden: the hidden states of the last layer, where the caller already has them.

    Returns:
      Two arrays of shape [B, S]: the log-probability (in nats) of each loss token, and
      1.0 where that token was the most likely one. Both are 0 for all other tokens and
      for the first token of a segment, which nothing predicts.

    >>> vocabulary_logits = jnp.log(jnp.array([0.25, 0.75]))
    >>> uncalled = lambda *_: None
    >>> policy = Policy(
    ...     init=uncalled,
    ...     hidden=lambda params, tokens, *_: jnp.zeros((*tokens.shape, 1)),
    ...     init_cache=uncalled,
    ...     extend=uncalled,
    ...     head=lambda params, hidden: hidden + params,
    ... )
    >>> tokens = jnp.array([[0, 1, 0]])
    >>> batch = Batch(
    ...     tokens=tokens,
    ...     positions=jnp.arange(3)[None],
    ...     segments=jnp.ones_like(tokens),
    ...     loss_mask=tokens == 1,
    ...     divisor=jnp.ones(1),
    ... )
    >>> log_prob, is_best = token_log_probs(
    ...     policy, vocabulary_logits[None, None], batch
    ... )
    >>> jnp.exp(log_prob).round(2).tolist()
    [[1.0, 0.75, 1.0]]
    >>> is_best.tolist()
    [[0.0, 1.0, 0.0]]
    """
    if hidden is None:
        hidden = policy.hidden(params, batch.tokens, batch.positions, batch.segments)
    # No token predicts the first token of a segment.
    same_segment = batch.segments[:, 1:] == batch.segments[:, :-1]
    mask = batch.loss_mask[:, 1:] & same_segment
    num_columns = -(-mask.shape[1] // BLOCK) * BLOCK
    pad = ((0, 0), (0, num_columns - mask.shape[1]))
    order = jnp.argsort(~jnp.pad(mask, pad), axis=1, stable=True)
    inverse = jnp.argsort(order, axis=1)[:, : mask.shape[1]]
    order = jnp.minimum(order, mask.shape[1])
    max_loss_tokens = jnp.max(jnp.sum(mask, axis=1))

    def in_blocks(x):
        x = jnp.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), 1)
        x = x.reshape(x.shape[0], -1, BLOCK, *x.shape[2:])
        return jnp.swapaxes(x, 0, 1)

    # A custom gradient may not close over weights that are differentiated.
    hidden, targets = in_blocks(hidden), in_blocks(jnp.roll(batch.tokens, -1, axis=1))
    head, weights = jax.closure_convert(
        lambda hidden: policy.head(params, hidden) / temperature, hidden[0]
    )
    num_blocks = -(-max_loss_tokens // BLOCK)
    scored: Any = _score(head, weights, hidden, targets, num_blocks)
    log_prob, is_best = (
        jnp.take_along_axis(x.swapaxes(0, 1).reshape(order.shape), inverse, axis=1)
        for x in scored
    )
    first_column = ((0, 0), (1, 0))
    log_prob, is_best = (jnp.where(mask, x, 0) for x in (log_prob, is_best))
    return jnp.pad(log_prob, first_column), jnp.pad(is_best, first_column)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _score(
    head: Callable[..., Float[Array, "B M V"]],
    weights: Sequence[Array],
    hidden: Float[Array, "N B M D"],
    targets: Int[Array, "N B M"],
    num_blocks: Int[Array, ""],
) -> tuple[Float[Array, "N B M"], Float[Array, "N B M"]]:
    """Return the log-probability of each target, and 1.0 for those that are likeliest.

    In training, the gradient of the hidden states is computed together with the logits,
    which would otherwise have to be kept or computed again. The gradient of the weights
    does compute them again; where it is not needed, the compiler removes it.

    Args:
      head: `(hidden, *weights) -> logits`, for one block.
      weights: the weights of the head.
      hidden: N blocks of hidden states.
      targets: the tokens that they predict.
      num_blocks: the number of blocks to process; the results of the others are 0.
    """
    return _of_blocks(partial(_log_probs, head, weights), num_blocks, hidden, targets)


def _score_forward(head, weights, hidden, targets, num_blocks):
    def score(hidden, targets):
        log_prob, pull, is_best = jax.vjp(
            lambda hidden: _log_probs(head, weights, hidden, targets),
            hidden,
            has_aux=True,
        )
        return (log_prob, is_best), *pull(jnp.ones_like(log_prob))

    scored, slope = _of_blocks(score, num_blocks, hidden, targets)
    return scored, (weights, hidden, targets, num_blocks, slope)


def _score_backward(head, kept, gradients):
    weights, hidden, targets, num_blocks, slope = kept
    gradient, _ = gradients

    def add(i, total):
        _, pull, _ = jax.vjp(
            lambda weights: _log_probs(head, weights, hidden[i], targets[i]),
            weights,
            has_aux=True,
        )
        return jax.tree.map(jnp.add, total, *pull(gradient[i]))

    zeros = jax.tree.map(jnp.zeros_like, weights)
    of_weights = lax.fori_loop(0, num_blocks, add, zeros)
    of_hidden = slope * gradient[..., None]
    return of_weights, of_hidden.astype(hidden.dtype), None, None


_score.defvjp(_score_forward, _score_backward)


def _of_blocks(function, num_blocks, *blocks):
    """Return the results of a function for the first blocks, and 0 for the others."""
    shapes = jax.eval_shape(function, *(x[0] for x in blocks))
    zeros = jax.tree.map(
        lambda x: jnp.zeros((len(blocks[0]), *x.shape), x.dtype), shapes
    )

    def fill(i, filled):
        made = function(*(x[i] for x in blocks))
        return jax.tree.map(lambda all, one: all.at[i].set(one), filled, made)

    return lax.fori_loop(0, num_blocks, fill, zeros)


def _log_probs(head, weights, hidden, targets):
    logits = head(hidden, *weights)
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    is_best = chosen >= jnp.max(logits, axis=-1)
    return chosen - jax.nn.logsumexp(logits, axis=-1), is_best.astype(jnp.float32)
