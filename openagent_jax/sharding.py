"""Sharding: which device holds which part of an array.

No other file knows the mesh. The mesh has three axes: a batch is split over "data" and
"fsdp"; parameters and their optimizer state are split over "fsdp" (each is gathered
when it is used) and "tensor" (each device computes with its part). Models name the axes
of their parameters logically ("embed", "mlp", ...), and `Rules` maps each logical axis
to a mesh axis.
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
    """The mesh axis of each logical axis; None if it is not split.

    Raises:
      ValueError: a value is not a mesh axis.
    """

    layers: str | None = None  # the axis of the scan over layers, so never split
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
    """Make a mesh of all devices.

    Args:
      data: size of the axis "data". One of the three sizes may be -1, which stands for
        the number of devices that the other two leave.
      fsdp: size of the axis "fsdp".
      tensor: size of the axis "tensor".
      devices: the devices; None is all of `jax.devices()`.

    Raises:
      ValueError: the sizes do not multiply to the number of devices.

    >>> dict(make_mesh(devices=jax.devices()[:1]).shape)
    {'data': 1, 'fsdp': 1, 'tensor': 1}
    """
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
    # With Auto axes the compiler chooses the shardings of intermediate values.
    axis_types = (AxisType.Auto,) * len(MESH_AXES)
    return jax.make_mesh(tuple(sizes), MESH_AXES, axis_types, devices=devices)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of arrays with a leading batch axis B."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of arrays that every device holds in full."""
    return NamedSharding(mesh, PartitionSpec())


def check_batch_size(mesh: Mesh, batch_size: int, name: str = "batch_size") -> None:
    """Check that a batch can be split evenly over the mesh.

    Args:
      mesh: the mesh.
      batch_size: number of rows.
      name: the config key of the batch size, for the message.

    Raises:
      ValueError: it cannot.
    """
    parts = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    if batch_size % parts:
        raise ValueError(
            f"{name}={batch_size} cannot be split over mesh.data * mesh.fsdp = "
            f"{mesh.shape['data']} * {mesh.shape['fsdp']} devices"
        )


def check_processes(mesh: Mesh, num_processes: int) -> None:
    """Check that every process can hold rows of a batch that no other process holds.

    Raises:
      ValueError: they would have to share rows.
    """
    parts = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    if parts % num_processes:
        raise ValueError(
            f"{num_processes} processes cannot divide among them batches that are "
            f"split over mesh.data * mesh.fsdp = {mesh.shape['data']} * "
            f"{mesh.shape['fsdp']} devices"
        )


def state_shardings(
    mesh: Mesh, logical_axes: Params, abstract_state: Any, rules: Rules | None = None
) -> Any:
    """Return a sharding for every array of a `TrainState`, or of any part of one.

    An array whose path ends in the path of a parameter and that has the rank of that
    parameter is laid out like the parameter. This covers the parameters themselves and
    the moments that an optimizer keeps of them. Everything else (steps, keys, counts)
    is replicated.

    Args:
      mesh: the mesh.
      logical_axes: the tree of the parameters, with a tuple of logical axis names in
        place of each array.
      abstract_state: the state, of arrays or `jax.ShapeDtypeStruct`s.
      rules: which mesh axis each logical axis is split over; None is the default.

    Raises:
      ValueError: the rules map two axes of one parameter to the same mesh axis.
    """
    rules = rules or Rules()
    axes_by_path = {
        _names(path): axes
        for path, axes in jax.tree.leaves_with_path(
            logical_axes, is_leaf=lambda x: isinstance(x, tuple)
        )
    }

    def sharding_of(path, x):
        names = _names(path)
        for start in range(len(names)):
            axes = axes_by_path.get(names[start:])
            if axes is not None and len(axes) == x.ndim:
                return NamedSharding(mesh, partition_spec(mesh, axes, x.shape, rules))
        return replicated(mesh)

    return jax.tree.map_with_path(sharding_of, abstract_state)


def partition_spec(
    mesh: Mesh, axes: tuple[str | None, ...], shape: tuple[int, ...], rules: Rules
) -> PartitionSpec:
    """Return the partition spec of one array.

    An axis whose size is not a multiple of the size of its mesh axis is not split.

    Args:
      mesh: the mesh.
      axes: the logical name of each axis of the array; None for one that has no name.
      shape: the shape of the array.
      rules: which mesh axis each logical axis is split over.

    Raises:
      ValueError: the rules map two axes of the array to the same mesh axis.

    >>> mesh = make_mesh(devices=jax.devices()[:1])
    >>> tuple(partition_spec(mesh, ("layers", "embed", None), (2, 8, 8), Rules()))
    (None, 'fsdp', None)
    """
    spec = [None if name is None else getattr(rules, name) for name in axes]
    used = [axis for axis in spec if axis is not None]
    if len(used) != len(set(used)):
        raise ValueError(f"rules map two axes of {axes} to one mesh axis: {spec}")
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
    arg: Any,
    rules: Rules | None = None,
    donate: bool = False,
) -> tuple[Any, Any]:
    """Compute `init(arg)` directly on the devices that will hold the result.

    Args:
      mesh: the mesh.
      logical_axes: see `state_shardings`.
      init: a function that returns a `TrainState`, or any part of one.
      arg: its argument, a pytree.
      rules: see `state_shardings`.
      donate: whether to donate `arg`, so that arrays that `init` returns unchanged are
        not held twice. `arg` cannot be used afterwards.

    Returns:
      The state and its shardings.
    """
    abstract_state = jax.eval_shape(init, arg)
    shardings = state_shardings(mesh, logical_axes, abstract_state, rules)
    donated = (0,) if donate else ()
    init = jax.jit(init, out_shardings=shardings, donate_argnums=donated)
    return init(arg), shardings


def _names(path) -> tuple[str, ...]:
    """Return the dict keys on a path, without positions and fields of the optimizer."""
    return tuple(e.key for e in path if isinstance(e, jax.tree_util.DictKey))
