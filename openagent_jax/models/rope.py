"""Rotary position embedding (https://arxiv.org/abs/2104.09864), and how checkpoints
with longer contexts stretch it."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

KINDS = ("linear", "llama3", "yarn")


@dataclass(frozen=True)
class Scaling:
    """Slower rotation; the names are Hugging Face's `rope_type`s.

    "linear" slows every frequency down by `factor`, "llama3" and "yarn"
    (https://arxiv.org/abs/2309.00071) only those that turn few times within the
    context that the model was trained on first.
    """

    kind: str
    factor: float
    original_max_positions: int = 0  # "llama3" and "yarn"
    low_freq_factor: float = 1.0  # "llama3"
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0  # "yarn"
    beta_slow: float = 1.0
    attention_factor: float = 0.0  # of the vectors; 0: what the paper says

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(
                f'rope scaling "{self.kind}" is not supported, only {", ".join(KINDS)}'
            )


class Rotation(NamedTuple):
    """Of every token, the same for all heads and layers."""

    cos: jax.Array  # [B S 1 K/2]
    sin: jax.Array


def rotation(
    positions: Int[Array, "B S"],
    size: int,
    theta: float,
    scaling: Scaling | None = None,
) -> Rotation:
    """The angles of tokens, for heads of this size."""
    turns, length = frequencies(size, theta, scaling)
    angles = positions[..., None, None] * turns[None, None, None]
    if length != 1:
        return Rotation(length * jnp.cos(angles), length * jnp.sin(angles))
    return Rotation(jnp.cos(angles), jnp.sin(angles))


def rotate(x: Float[Array, "B S H K"], rotation: Rotation) -> Float[Array, "B S H K"]:
    """Rotate the pairs (i, i + K/2), as Hugging Face does."""
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = rotation
    y = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return y.astype(x.dtype)


def frequencies(
    size: int, theta: float, scaling: Scaling | None = None
) -> tuple[Float[Array, "_"], float]:
    """Of each pair, and the length of rotated vectors of length 1."""
    plain, s = theta ** (-jnp.arange(0, size, 2) / size), scaling
    if s is None:
        return plain, 1.0
    slow = plain / s.factor
    if s.kind == "linear":
        return slow, 1.0
    # 1 where the frequency stays as it is, 0 where it is slowed down.
    if s.kind == "llama3":
        turns = s.original_max_positions * plain / (2 * math.pi)
        keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
        length = 1.0
    else:

        def pair(turns):  # that turns so often
            context = s.original_max_positions / (turns * 2 * math.pi)
            return size * math.log(context) / (2 * math.log(theta))

        first = max(math.floor(pair(s.beta_fast)), 0)
        last = min(math.ceil(pair(s.beta_slow)), size - 1)
        keep = 1 - (jnp.arange(size // 2) - first) / max(last - first, 1e-3)
        length = s.attention_factor or 0.1 * math.log(max(s.factor, 1.0)) + 1.0
    keep = jnp.clip(keep, 0, 1)
    return keep * plain + (1 - keep) * slow, length
