"""The next tokens, from their logits."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def draw_lots(keys: jax.Array, positions: Int[Array, "B"]) -> Float[Array, "B 2"]:
    """What `categorical` draws by, of each row its own."""
    return jax.vmap(
        lambda key, at: jax.random.uniform(jax.random.fold_in(key, at), (2,))
    )(keys, positions)


def nucleus(
    logits: Float[Array, "B V"], top_p: float | Float[Array, "B 1"]
) -> Float[Array, "B V"]:
    """The logits of the most likely tokens that together have a mass of `top_p`."""
    ranked = jnp.sort(logits, axis=-1)[:, ::-1]
    mass = jnp.cumsum(jax.nn.softmax(ranked), axis=-1)
    keep = jnp.sum(mass < top_p, axis=-1, keepdims=True)
    # The whole may be a little less than 1, by rounding.
    keep = jnp.minimum(keep, logits.shape[1] - 1)
    least = jnp.take_along_axis(ranked, keep, axis=-1)
    return jnp.where(logits >= least, logits, -jnp.inf)


def greedy(
    logits: Float[Array, "B V"],
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """The most likely token of each row, and its log-probability.

    Two plain reductions: jnp.argmax was seen to take five times as long on a CPU.
    """
    most = jnp.max(logits, axis=-1, keepdims=True)
    tokens = jnp.arange(logits.shape[1], dtype=jnp.int32)
    chosen = jnp.min(jnp.where(logits == most, tokens, len(tokens) - 1), axis=-1)
    return chosen, -jax.nn.logsumexp(logits - most, axis=-1)


def categorical(
    logits: Float[Array, "B V"], lots: Float[Array, "B 2"]
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """A token for each row, and its log-probability.

    Drawn in two stages, a part of the vocabulary and a token of it, each by the inverse
    of its distribution function. That takes two numbers a row; Gumbel's trick takes one
    for every token, and then the drawing was seen to take as long as the model.

    Args:
      logits: of the next token.
      lots: uniform in [0, 1).
    """
    num_rows, num_tokens = logits.shape
    most = jnp.max(logits, axis=-1, keepdims=True)
    mass = jnp.exp(logits - most)
    size = 2 ** round(math.log2(num_tokens) / 2)  # often divides it
    mass = jnp.pad(mass, ((0, 0), (0, -num_tokens % size)))
    mass = mass.reshape(num_rows, -1, size)

    def pick(mass, lot):
        below = jnp.cumsum(mass, axis=-1)
        # Less than the whole after rounding too: what has no mass is never picked.
        lot = jnp.minimum(lot, 1 - 2.0**-22) * below[:, -1]
        return jnp.sum(below <= lot[:, None], axis=-1)

    of_part = jnp.sum(mass, axis=-1)
    part = pick(of_part, lots[:, 0])
    tokens = jnp.take_along_axis(mass, part[:, None, None], axis=1)[:, 0]
    chosen = part * size + pick(tokens, lots[:, 1])
    logit = jnp.take_along_axis(logits - most, chosen[:, None], axis=-1)[:, 0]
    return chosen.astype(jnp.int32), logit - jnp.log(jnp.sum(of_part, axis=-1))
