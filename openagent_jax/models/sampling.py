"""Choose the next token of each row from its logits."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def uniform_pairs(keys: jax.Array, positions: Int[Array, "B"]) -> Float[Array, "B 2"]:
    """Draw two uniform numbers in [0, 1) for each row, for `categorical`.

    Args:
      keys: one PRNG key for each row, shape [B].
      positions: folded into the keys, so that each position gets its own numbers.

    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> uniform_pairs(keys, jnp.array([5, 5, 6])).shape
    (3, 2)
    """
    return jax.vmap(
        lambda key, position: jax.random.uniform(
            jax.random.fold_in(key, position), (2,)
        )
    )(keys, positions)


def nucleus(
    logits: Float[Array, "B V"], top_p: float | Float[Array, "B 1"]
) -> Float[Array, "B V"]:
    """Apply top-p (nucleus) filtering (arXiv 1904.09751).

    The most likely tokens are kept until their probabilities add up to `top_p`. The
    most likely token is always kept, and so are tokens that tie with the last one kept.

    Args:
      logits: logits of the next token.
      top_p: the probability to keep, between 0 and 1.

    Returns:
      The logits, with minus infinity in place of those that are not kept.

    >>> nucleus(jnp.log(jnp.array([[0.5, 0.25, 0.25]])), top_p=0.4).tolist()[0][1:]
    [-inf, -inf]
    """
    ranked = jnp.sort(logits, axis=-1)[:, ::-1]
    mass = jnp.cumsum(jax.nn.softmax(ranked), axis=-1)
    last = jnp.sum(mass < top_p, axis=-1, keepdims=True)
    # Because of rounding, the total may be slightly less than 1 and than `top_p`.
    last = jnp.minimum(last, logits.shape[1] - 1)
    threshold = jnp.take_along_axis(ranked, last, axis=-1)
    return jnp.where(logits >= threshold, logits, -jnp.inf)


def greedy(
    logits: Float[Array, "B V"],
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Return the most likely token of each row, and its log-probability.

    The first of several equally likely tokens is chosen. `jnp.argmax` was measured to
    take five times as long on a CPU as the two reductions that are used here.

    Args:
      logits: logits of the next token.

    >>> token, log_prob = greedy(jnp.log(jnp.array([[0.25, 0.75]])))
    >>> token.tolist(), jnp.exp(log_prob).tolist()
    ([1], [0.75])
    """
    largest = jnp.max(logits, axis=-1, keepdims=True)
    tokens = jnp.arange(logits.shape[1], dtype=jnp.int32)
    chosen = jnp.min(jnp.where(logits == largest, tokens, len(tokens) - 1), axis=-1)
    return chosen, -jax.nn.logsumexp(logits - largest, axis=-1)


def categorical(
    logits: Float[Array, "B V"], uniforms: Float[Array, "B 2"]
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Sample a token for each row, and return it with its log-probability.

    Sampling has two stages: first a block of the vocabulary, then a token within it.
    Each inverts a cumulative distribution, which takes one random number per row. The
    Gumbel-max trick takes one for every token of the vocabulary; generating them was
    measured to take as long as the model itself.

    Args:
      logits: logits of the next token; minus infinity excludes a token.
      uniforms: two independent uniform numbers in [0, 1) for each row.

    >>> logits = jnp.log(jnp.array([[0.25, 0.0, 0.75, 0.0]]))
    >>> categorical(logits, jnp.array([[0.2, 0.5]]))[0].tolist()
    [0]
    >>> categorical(logits, jnp.array([[0.3, 0.5]]))[0].tolist()
    [2]
    """
    num_rows, num_tokens = logits.shape
    largest = jnp.max(logits, axis=-1, keepdims=True)
    mass = jnp.exp(logits - largest)
    block_size = 2 ** round(math.log2(num_tokens) / 2)  # often divides num_tokens
    mass = jnp.pad(mass, ((0, 0), (0, -num_tokens % block_size)))
    mass = mass.reshape(num_rows, -1, block_size)

    def invert(mass, uniform):
        cumulative = jnp.cumsum(mass, axis=-1)
        # The target is less than the total even after rounding, so that an entry
        # without mass is never chosen. The total is taken as the maximum: if the
        # vocabulary is split over devices, the last entry is on one of them, but the
        # maximum does not wait for devices that play other rows.
        target = jnp.minimum(uniform, 1 - 2.0**-22) * jnp.max(cumulative, axis=-1)
        return jnp.sum(cumulative <= target[:, None], axis=-1)

    block_mass = jnp.sum(mass, axis=-1)
    block = invert(block_mass, uniforms[:, 0])
    token_mass = jnp.take_along_axis(mass, block[:, None, None], axis=1)[:, 0]
    chosen = block * block_size + invert(token_mass, uniforms[:, 1])
    logit = jnp.take_along_axis(logits - largest, chosen[:, None], axis=-1)[:, 0]
    return chosen.astype(jnp.int32), logit - jnp.log(jnp.sum(block_mass, axis=-1))
