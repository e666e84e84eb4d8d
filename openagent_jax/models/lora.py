"""Low-rank adapters of the linear maps of a decoder (LoRA, arXiv 2106.09685).

A frozen weight `W` becomes `W + (alpha / rank) * A @ B`. The product `A @ B` is never
formed during training: `(alpha / rank) * x @ A @ B` is added to `x @ W`, so that no
gradient has the size of `W`. At initialisation `A` is random and `B` is zero, so that
training starts from the unadapted model. The adapters are a separate branch of the
parameters; without that branch, the same policy computes the unadapted model:

    {"lora": {"layers": {"q": {"a": [L D R], "b": [L R HK]}, ...}}, "layers": ...}

Why no library is used: qwix 0.1.8 recognises a weight in `lax.dot_general` by the
identity of its array, or else by its shape. In our `Block`, whose products go through
the jitted `jnp.matmul`, it silently adapted one map of seven, and none under `vmap`.
With `lax.dot_general` instead of `jnp.matmul` it adapted all seven, but with bfloat16
activations it looked for adapters that it had not created.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from openagent_jax.models import layers
from openagent_jax.types import Params

LORA = "lora"  # the branch of the parameters that holds the adapters
TARGETS: tuple[str, ...] = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True)
class Lora:
    """Which weights are adapted, and how.

    Attributes:
      rank: R, the rank of an adapter.
      alpha: an adapter is scaled by `alpha / rank`.
      targets: names of the adapted weights of each layer, among `TARGETS`.

    Raises:
      ValueError: a setting is out of range.

    >>> Lora(rank=8, alpha=16.0).scale
    2.0
    """

    rank: int
    alpha: float = 32.0
    targets: tuple[str, ...] = TARGETS

    def __post_init__(self):
        if self.rank < 1:
            raise ValueError(f"rank={self.rank} must be positive")
        if self.alpha <= 0:
            raise ValueError(
                f"alpha={self.alpha} must be more than 0, or adapters learn nothing"
            )
        if not self.targets:
            raise ValueError(f"targets is empty; name some of {', '.join(TARGETS)}")
        for name in self.targets:
            if name not in TARGETS:
                raise ValueError(
                    f'targets: "{name}" is not one of {", ".join(TARGETS)}'
                )

    @property
    def scale(self) -> float:
        """The factor by which an adapter's output is multiplied."""
        return self.alpha / self.rank


def init(lora: Lora, key: Array, params: Params) -> Params:
    """Initialise adapters, which change nothing until they are trained.

    Args:
      lora: which weights are adapted.
      key: PRNG key.
      params: the parameters of the model, or their shapes.

    Returns:
      A dict with the branch `LORA` alone, in float32 whatever the dtype of the
      parameters.
    """
    adapters = {}
    keys = dict(zip(TARGETS, jax.random.split(key, len(TARGETS)), strict=True))
    for name in lora.targets:
        num_layers, size_in, size_out = params["layers"][name].shape
        a = jax.random.normal(keys[name], (num_layers, size_in, lora.rank))
        b = jnp.zeros((num_layers, lora.rank, size_out))
        adapters[name] = {"a": a * size_in**-0.5, "b": b}
    return {LORA: {"layers": adapters}}


def adapter_output(
    lora: Lora, x: Float[Array, "*batch D"], adapter: Params
) -> Float[Array, "*batch E"]:
    """Compute what the adapter of one layer adds to `x @ W`.

    Args:
      lora: the settings of the adapters.
      x: the input of the linear map.
      adapter: {"a": [D R], "b": [R E]}.
    """
    for weight in (adapter["a"], adapter["b"]):
        x = layers.matmul(x, weight.astype(x.dtype), x.dtype)
    return lora.scale * x


def merge(lora: Lora | None, params: Params) -> Params:
    """Merge adapters into the weights.

    Args:
      lora: the settings of the adapters; None if there are none.
      params: parameters, with or without adapters.

    Returns:
      Parameters without adapters that compute the same function; `params` itself if it
      has no adapters.
    """
    if lora is None or LORA not in params:
        return params
    merged = dict(params["layers"])
    for name, adapter in params[LORA]["layers"].items():
        product = jnp.matmul(adapter["a"], adapter["b"], precision="highest")
        weight = merged[name]
        merged[name] = (weight + lora.scale * product).astype(weight.dtype)
    return {**base(params), "layers": merged}


def base(params: Params) -> Params:
    """Return the parameters without their adapters.

    >>> base({"layers": 1, "lora": 2})
    {'layers': 1}
    """
    return {name: x for name, x in params.items() if name != LORA}


def logical_axes(lora: Lora | None, axes: Params) -> Params:
    """Return the logical axes of the adapters (see `sharding.Rules`).

    Args:
      lora: which weights are adapted; None if there are no adapters.
      axes: the logical axes of the parameters.
    """
    if lora is None:
        return {}
    adapters = {}
    for name in lora.targets:
        stack, size_in, size_out = axes["layers"][name]
        adapters[name] = {"a": (stack, size_in, None), "b": (stack, None, size_out)}
    return {LORA: {"layers": adapters}}
