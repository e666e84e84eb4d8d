"""Where arrays live: the only file that knows the mesh.

The mesh has three axes. A batch is split over "data" and "fsdp"; parameters and
their optimizer state over "fsdp" (gathered when used) and "tensor" (each device
computes its part). Models name the axes of their parameters in their own words
("embed", "mlp", ...); `Rules` says which mesh axis each of these words means.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from openagent_jax.types import Params

MESH_AXES = ("data", "fsdp", "tensor")
BATCH_AXES = ("data", "fsdp")


@dataclasses.dataclass(frozen=True)
class Rules:
    """Logical axis -> mesh axis, or None: not split."""

    layers: str | None = None  # scanned over, so never split
    embed: str | None = "fsdp"
    heads: str | None = "tensor"
    kv_heads: str | None = "tensor"
    mlp: str | None = "tensor"
    vocab: str | None = "tensor"

    def __post_init__(self):
        for name, axis in dataclasses.asdict(self).items():
            if axis is not None and axis not in MESH_AXES:
                raise ValueError(f'{name}="{axis}" is not one of {MESH_AXES}')


def make_mesh(data: int = -1, fsdp: int = 1, tensor: int = 1, devices=None) -> Mesh:
    """A mesh of all devices; one size may be -1: whatever is left."""
    devices = jax.devices() if devices is None else devices
    sizes = [data, fsdp, tensor]
    given = f"mesh.data={data}, mesh.fsdp={fsdp}, mesh.tensor={tensor}"
    if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise ValueError(f"{given}: sizes must be positive, at most one may be -1")
    if -1 in sizes:
        known = math.prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = max(len(devices) // known, 1)
    if math.prod(sizes) != len(devices):
        raise ValueError(f"{given} does not fit {len(devices)} devices")
    # Auto: the compiler decides on the shardings of intermediate values.
    axis_types = (AxisType.Auto,) * len(MESH_AXES)
    return jax.make_mesh(tuple(sizes), MESH_AXES, axis_types, devices=devices)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Of arrays whose leading axis is B."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def check_batch_size(mesh: Mesh, batch_size: int, name: str = "batch_size") -> None:
    parts = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    if batch_size % parts:
        raise ValueError(
            f"{name}={batch_size} cannot be split over mesh.data * mesh.fsdp = "
            f"{mesh.shape['data']} * {mesh.shape['fsdp']} devices"
        )


def check_processes(mesh: Mesh, num_processes: int) -> None:
    """Each process can hold rows of a batch that no other holds."""
    parts = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    if parts % num_processes:
        raise ValueError(
            f"{num_processes} processes cannot share batches that are split over "
            f"mesh.data * mesh.fsdp = {mesh.shape['data']} * {mesh.shape['fsdp']} "
            "devices"
        )


def state_shardings(
    mesh: Mesh, logical_axes: Params, abstract_state: Any, rules: Rules | None = None
) -> Any:
    """A sharding for every array of a `TrainState`, or of any part of one.

    Whatever in the state has the path of a parameter and its rank is laid out as
    the parameter is: so are the parameters and the moments that an optimizer keeps
    of them. All else (steps, keys, counts) is replicated.
    """
    rules = rules or Rules()
    axes_of = {
        _names(path): axes
        for path, axes in jax.tree.leaves_with_path(
            logical_axes, is_leaf=lambda x: isinstance(x, tuple)
        )
    }

    def place(path, x):
        names = _names(path)
        for start in range(len(names)):
            axes = axes_of.get(names[start:])
            if axes is not None and len(axes) == x.ndim:
                return NamedSharding(mesh, partition_spec(mesh, axes, x.shape, rules))
        return replicated(mesh)

    return jax.tree.map_with_path(place, abstract_state)


def partition_spec(
    mesh: Mesh, axes: tuple[str | None, ...], shape: tuple[int, ...], rules: Rules
) -> PartitionSpec:
    """Mesh axes of one array. A size that does not divide is not split."""
    spec = [None if name is None else getattr(rules, name) for name in axes]
    used = [axis for axis in spec if axis is not None]
    if len(used) != len(set(used)):
        raise ValueError(f"rules put two axes of {axes} on one mesh axis: {spec}")
    return PartitionSpec(
        *(
            axis if axis is not None and size % mesh.shape[axis] == 0 else None
            for axis, size in zip(spec, shape, strict=True)
        )
    )


def init_sharded(
    mesh: Mesh,
    logical_axes: Params,
    init: Callable[[Any], Any],
    start: Any,
    rules: Rules | None = None,
    donate: bool = False,
) -> tuple[Any, Any]:
    """`init(start)` made in place on the devices that will hold it.

    Args:
      donate: what of `start` stays as it is need not be held twice; it is eaten.

    Returns:
      The state and its shardings.
    """
    abstract_state = jax.eval_shape(init, start)
    shardings = state_shardings(mesh, logical_axes, abstract_state, rules)
    eaten = (0,) if donate else ()
    init = jax.jit(init, out_shardings=shardings, donate_argnums=eaten)
    return init(start), shardings


def _names(path) -> tuple[str, ...]:
    """Keys of dicts on a path: positions and fields of the optimizer fall away."""
    return tuple(e.key for e in path if isinstance(e, jax.tree_util.DictKey))
