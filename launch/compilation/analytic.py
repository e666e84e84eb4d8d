"""What an update sends, calculated by hand, to compare with a compiled program."""

from typing import Any

import jax
import jax.numpy as jnp

from launch.common import compiled_step
from launch.common.config import Config
from launch.common.model_loading import Backbone
from launch.compilation import programs
from openagent_jax import optim, sharding
from openagent_jax.algorithms.policy_gradient import GAP_ROWS

# Sums over "tensor" of a layer: of attention and of the MLP.
NUM_SUMS = 2


def sent(c: Config, model: Backbone, arrays: compiled_step.Abstract) -> float:
    """Return the bytes that each device sends in an update.

    A ring of n devices sends (n - 1)/n of an array to gather it, or to reduce it to
    parts, and twice that for a sum that all of them need. Parameters are gathered over
    "fsdp"; their gradients are reduced over "fsdp" and summed over "data". The
    embeddings of tokens are summed over "tensor", and in each layer four activations,
    two forward and two backward, and a fifth if none is kept for the backward pass.
    Minibatches and epochs repeat that, but frozen parameters are gathered once. GRPO
    and PPO score some of the rows before they learn, and all of them with a reference
    if there is a KL penalty. The critic of PPO is left out.

    Args:
      c: the config.
      model: the model.
      arrays: the arrays of a training step.
    """
    num, parts, tensor = (arrays.mesh.shape[axis] for axis in sharding.MESH_AXES)
    total = 0.0
    params = dict(arrays.state.params)
    once = arrays.state.frozen, params.pop(optim.REFERENCE, {})
    for x in jax.tree.leaves(params):
        total += _gather(x, parts)
    fixed = optim.untrained(c.optim.train_embedding)
    trained = {k: x for k, x in params.items() if k not in fixed}
    for x in jax.tree.leaves(trained):
        split = _num_parts(x, parts)
        total += _whole(x, parts) * _ring(split)
        total += 2 * _whole(x, parts) / split * _ring(num * parts // split)
    numbers = c.num_rows / (num * parts) * c.num_columns * model.config.width
    activations = 2 * numbers * jnp.dtype(c.model.dtype).itemsize * _ring(tensor)
    forward = (1 + NUM_SUMS * model.config.num_layers) * activations
    again = NUM_SUMS + (c.model.remat == "full")
    total *= c.train.num_minibatches
    total += forward + again * model.config.num_layers * activations
    scored = 1 / GAP_ROWS + (c.surrogate.kl > 0) if c.algorithm.name != "sft" else 0
    frozen = sum(_gather(x, parts) for x in jax.tree.leaves(once))
    return c.train.num_epochs * total + scored * forward + frozen


def _gather(x: Any, parts: int) -> float:
    """Return what gathering an array over "fsdp" sends."""
    return _whole(x, parts) * _ring(_num_parts(x, parts))


def _ring(num_devices: int) -> float:
    return (num_devices - 1) / num_devices


def _num_parts(x: Any, parts: int) -> int:
    """Return into how many parts "fsdp" splits an array."""
    return parts if "fsdp" in jax.tree.leaves(tuple(x.sharding.spec)) else 1


def _whole(x: Any, parts: int) -> int:
    """Return the bytes of an array, once it is gathered over "fsdp"."""
    return programs.size(x) * _num_parts(x, parts)
