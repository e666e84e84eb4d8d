"""Low-rank adapters of the linear maps of a decoder (LoRA, arXiv 2106.09685).

A map `W` that is never trained becomes `W + (alpha / rank) * A @ B`. The product is not
made while training: `x @ A @ B` is added to `x @ W`, so that no gradient has the size
of `W`. `A` starts at random and `B` at zero: the first step begins at the model itself.
Adapters are a branch of the parameters, beside the one that they adapt; without the
branch the same policy is the model itself:

    {"lora": {"layers": {"q": {"a": [L D R], "b": [L R HK]}, ...}}, "layers": ...}

Why this is no library: qwix 0.1.8 knows a weight in `lax.dot_general` by the identity
of its array, or else by its shape. Tried on our `Block`, whose products go through
`jnp.matmul`, which is jitted, it adapted one map of seven, and none under `vmap`,
without a word; with `lax.dot_general` in its place all seven, but bfloat16 activations
made it look for adapters that it had not made.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from openagent_jax.models import layers
from openagent_jax.types import Params

LORA = "lora"  # of the parameters: the adapters
TARGETS: tuple[str, ...] = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True)
class Lora:
    """Which maps are adapted, and how much."""

    rank: int
    alpha: float = 32.0
    targets: tuple[str, ...] = TARGETS

    def __post_init__(self):
        if self.rank < 1:
            raise ValueError(f"rank={self.rank} must be positive")
        if self.alpha <= 0:
            raise ValueError(f"alpha={self.alpha} must be more than 0: nothing learns")
        if not self.targets:
            raise ValueError(f"targets is empty; name some of {', '.join(TARGETS)}")
        for name in self.targets:
            if name not in TARGETS:
                raise ValueError(f'targets: there is no "{name}"; {", ".join(TARGETS)}')

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def init(lora: Lora, key: Array, params: Params) -> Params:
    """Adapters of these parameters, in float32 whatever theirs are; they do nothing
    yet."""
    adapters = {}
    keys = dict(zip(TARGETS, jax.random.split(key, len(TARGETS)), strict=True))
    for name in lora.targets:
        num_layers, size_in, size_out = params["layers"][name].shape
        a = jax.random.normal(keys[name], (num_layers, size_in, lora.rank))
        b = jnp.zeros((num_layers, lora.rank, size_out))
        adapters[name] = {"a": a * size_in**-0.5, "b": b}
    return {LORA: {"layers": adapters}}


def added(
    lora: Lora, x: Float[Array, "*batch D"], adapter: Params
) -> Float[Array, "*batch E"]:
    """What the adapter of one layer adds to `x @ W`."""
    for weight in (adapter["a"], adapter["b"]):
        x = layers.matmul(x, weight.astype(x.dtype), x.dtype)
    return lora.scale * x


def merge(lora: Lora | None, params: Params) -> Params:
    """Plain parameters that compute the same; theirs if they have no adapters."""
    if lora is None or LORA not in params:
        return params
    merged = dict(params["layers"])
    for name, adapter in params[LORA]["layers"].items():
        product = jnp.matmul(adapter["a"], adapter["b"], precision="highest")
        weight = merged[name]
        merged[name] = (weight + lora.scale * product).astype(weight.dtype)
    return {**base(params), "layers": merged}


def base(params: Params) -> Params:
    """The parameters without their adapters."""
    return {name: x for name, x in params.items() if name != LORA}


def logical_axes(lora: Lora | None, axes: Params) -> Params:
    """The axes of the adapters, by those of the parameters."""
    if lora is None:
        return {}
    adapters = {}
    for name in lora.targets:
        stack, size_in, size_out = axes["layers"][name]
        adapters[name] = {"a": (stack, size_in, None), "b": (stack, None, size_out)}
    return {LORA: {"layers": adapters}}
