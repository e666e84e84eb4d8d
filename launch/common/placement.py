"""How parameters and batches are placed: the mesh of a run, and its shardings."""

import math
from collections.abc import Sequence
from typing import Any

from jax.sharding import Mesh

from launch.common import errors
from launch.common.config import Config
from launch.common.errors import UsageError
from openagent_jax import sharding
from openagent_jax.models import transformer


def mesh(c: Config, devices: Sequence[Any] | None = None) -> Mesh:
    """Return the mesh of the devices, by default all, and check that the batch fits.

    Raises:
      UsageError: the mesh does not fit the devices, or the batch cannot be divided.
    """
    divisors = {
        "train.num_minibatches": c.train.num_minibatches,
        "train.num_micro_batches": c.train.num_micro_batches,
    }
    divisors = {key: num for key, num in divisors.items() if num > 1}
    rows, num_parts = c.num_rows, math.prod(divisors.values())
    what = "train.batch_size"
    if c.algorithm.num_rows:
        what = "algorithm.num_rows"
    elif rows > c.train.batch_size:
        what += " * grpo.size"
    if rows % num_parts:
        product = " * ".join(f"{key}={num}" for key, num in divisors.items())
        raise UsageError(
            f"{what}={rows} is not a multiple of {product}; change one of them"
        )
    with errors.blame("mesh"):
        made = c.mesh.devices(devices)
        sharding.check_batch_size(made, rows, what)
        part = " / ".join([what, *divisors])
        sharding.check_batch_size(made, rows // num_parts, part)
        if not c.data.path:  # each device makes the rows of its own tasks
            pairs = bool(c.paft.alpha and c.paft.paired)
            part = "train.batch_size" + " / 2 pairs" * pairs
            sharding.check_batch_size(made, c.train.batch_size // (1 + pairs), part)
    return made


def shardings(config: transformer.ModelConfig, mesh: Mesh) -> Any:
    """Return a sharding for each parameter of a model."""
    axes = transformer.logical_axes(config)
    return sharding.state_shardings(mesh, axes, transformer.shapes(config))


def evaluation_mesh(c: Config) -> Mesh:
    """Return a mesh of all devices for an evaluation.

    If no parameter is split, it does not matter how many devices `c.mesh` is for: each
    plays some of the episodes.

    Raises:
      UsageError: parameters are split, and `c.mesh` does not fit the devices.
    """
    if not c.mesh.splits_params:
        return sharding.make_mesh()
    with errors.blame("mesh"):
        return c.mesh.devices()


def split(c: Config, config: transformer.ModelConfig) -> Any:
    """Return shardings if `c.mesh` splits parameters, None if it replicates them."""
    if not c.mesh.splits_params:
        return None
    return shardings(config, evaluation_mesh(c))
