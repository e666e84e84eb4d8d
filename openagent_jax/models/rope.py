"""Rotary position embedding (RoPE, arXiv 2104.09864), and its scaling."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

KINDS = ("linear", "llama3", "yarn")


@dataclass(frozen=True)
class Scaling:
    """Lowers frequencies, so that a model can handle a longer context.

    "linear" divides every frequency by `factor`. "llama3" and "yarn" (arXiv 2309.00071)
    divide only those that complete few rotations within the context that the model was
    originally trained on.

    Attributes:
      kind: one of `KINDS`, which are values of Hugging Face's `rope_type`.
      factor: how many times longer the context becomes.
      original_max_positions: the original context, in tokens ("llama3" and "yarn").
      low_freq_factor: frequencies with fewer rotations than this are divided by the
        whole `factor` ("llama3").
      high_freq_factor: frequencies with more rotations than this are not changed
        ("llama3").
      beta_fast: the same as `high_freq_factor`, for "yarn".
      beta_slow: the same as `low_freq_factor`, for "yarn".
      attention_factor: multiplies the rotated queries and keys ("yarn"); 0 means the
        factor that the paper recommends.

    Raises:
      ValueError: `kind` is unknown.
    """

    kind: str
    factor: float
    original_max_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 0.0

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(
                f'rope scaling "{self.kind}" is not supported, only {", ".join(KINDS)}'
            )


class Rotation(NamedTuple):
    """Cosine and sine of the angles of every token, shared by all heads and layers."""

    cos: jax.Array  # [B S 1 K/2]
    sin: jax.Array


def rotation(
    positions: Int[Array, "B S"],
    size: int,
    theta: float,
    scaling: Scaling | None = None,
) -> Rotation:
    """Return the rotation of tokens at given positions.

    Args:
      positions: the position of each token in its text.
      size: K, the size of a head.
      theta: the base of the frequencies.
      scaling: how frequencies are lowered; None leaves them as they are.

    >>> rotation(jnp.array([[0, 1, 2]]), size=8, theta=1e4).cos.shape
    (1, 3, 1, 4)
    """
    freqs, attention_factor = frequencies(size, theta, scaling)
    angles = positions[..., None, None] * freqs[None, None, None]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    if attention_factor != 1:
        return Rotation(attention_factor * cos, attention_factor * sin)
    return Rotation(cos, sin)


def rotate(x: Float[Array, "B S H K"], rotation: Rotation) -> Float[Array, "B S H K"]:
    """Rotate the pairs of channels (i, i + K/2), as Hugging Face does.

    The computation is in float32; the result has the dtype of `x`.
    """
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = rotation
    y = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return y.astype(x.dtype)


def frequencies(
    size: int, theta: float, scaling: Scaling | None = None
) -> tuple[Float[Array, "_"], float]:
    """Return the angular frequency of each pair of channels, in radians per position.

    Args:
      size: K, the size of a head.
      theta: the base of the frequencies.
      scaling: how frequencies are lowered; None leaves them as they are.

    Returns:
      The K/2 frequencies, and the factor by which rotated vectors are multiplied.

    >>> freqs, factor = frequencies(size=4, theta=100.0, scaling=Scaling("linear", 2.0))
    >>> [round(float(x), 4) for x in freqs], factor
    ([0.5, 0.05], 1.0)
    """
    plain, s = theta ** (-jnp.arange(0, size, 2) / size), scaling
    if s is None:
        return plain, 1.0
    lowered = plain / s.factor
    if s.kind == "linear":
        return lowered, 1.0
    # `keep` is 1 for frequencies that stay and 0 for those divided by the whole factor.
    if s.kind == "llama3":
        rotations = s.original_max_positions * plain / (2 * math.pi)
        keep = rotations - s.low_freq_factor
        keep = keep / (s.high_freq_factor - s.low_freq_factor)
        attention_factor = 1.0
    else:

        def pair(rotations):
            """Return the fractional index of the pair with this many rotations."""
            context = s.original_max_positions / (rotations * 2 * math.pi)
            return size * math.log(context) / (2 * math.log(theta))

        first = max(math.floor(pair(s.beta_fast)), 0)
        last = min(math.ceil(pair(s.beta_slow)), size - 1)
        keep = 1 - (jnp.arange(size // 2) - first) / max(last - first, 1e-3)
        default = 0.1 * math.log(max(s.factor, 1.0)) + 1.0
        attention_factor = s.attention_factor or default
    keep = jnp.clip(keep, 0, 1)
    return keep * plain + (1 - keep) * lowered, attention_factor
