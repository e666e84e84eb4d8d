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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from openagent_jax.types import Local, Params, undivided

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
        raise ValueError(
            f"{given} does not fit {len(devices)} devices; the product of the sizes "
            f"must be {len(devices)}"
        )
    # With Auto axes the compiler chooses the shardings of intermediate values.
    axis_types = (AxisType.Auto,) * len(MESH_AXES)
    return jax.make_mesh(tuple(sizes), MESH_AXES, axis_types, devices=devices)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of arrays with a leading batch axis B."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of arrays that every device holds in full."""
    return NamedSharding(mesh, PartitionSpec())


def local(mesh: Mesh) -> Local:
    """Return a transformation that lets each shard of a batch compute its own rows.

    A function `(shared, rows) -> rows` is called with the rows of one shard, which are
    consecutive. It has to treat rows alike wherever they are, so that the result does
    not depend on the mesh. Its loops end when the rows of the shard are done: they hold
    no collective over the axes of the batch. Arrays of `shared` are gathered from these
    axes first, each once; over "tensor" they stay split, and the compiler divides the
    computation.

    Args:
      mesh: the mesh.
    """
    if num_shards(mesh) == 1:
        return undivided
    rows = PartitionSpec(_split_axes(mesh))
    return lambda function: _by_shard(mesh, function, rows)


def local_then_shared(mesh: Mesh) -> Local:
    """Like `local`, except that every device receives all rows of the result.

    Args:
      mesh: the mesh. The number of rows has to be a multiple of its `num_shards`.
    """
    if num_shards(mesh) == 1:
        return undivided
    by_shard = local(mesh)

    def transform(function):
        def on_all(shared, rows):
            made = by_shard(function)(shared, rows)
            return jax.lax.with_sharding_constraint(made, replicated(mesh))

        return on_all

    return transform


class Division(NamedTuple):
    """How the update of a training step is divided among devices.

    Attributes:
      constrain: lays out a batch, whose rows are split.
      gather: gathers branches of the parameters over all axes except "tensor".
      summed: a transformation of functions `(shared, rows) -> (gradient, sums)`, which
        are called with the rows of one shard. What they return is summed over the
        shards, and the gradient is laid out like the parameters.
    """

    constrain: Callable[[Any], Any]
    gather: Callable[[Params], Params]
    summed: Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]


UNDIVIDED = Division(lambda batch: batch, lambda params: params, undivided)


def divide(mesh: Mesh, shardings: Params) -> Division:
    """Return how an update is divided over a mesh.

    Parameters that are split over "fsdp" are gathered once for an update, and each
    shard computes the gradient of its rows alone. At the end the gradient is reduced,
    over "fsdp" to the part that each device holds.

    Args:
      mesh: the mesh.
      shardings: those of all branches of the parameters.
    """
    batch, specs = batch_sharding(mesh), jax.tree.map(lambda x: x.spec, shardings)

    def constrain(rows):
        return jax.lax.with_sharding_constraint(rows, batch)

    if num_shards(mesh) == 1:
        return UNDIVIDED._replace(constrain=constrain)
    axes = _split_axes(mesh)

    def gather(params):
        whole = {
            name: jax.tree.map(
                lambda spec: NamedSharding(mesh, _only(spec, "tensor")), specs[name]
            )
            for name in params
        }
        return jax.lax.with_sharding_constraint(params, whole)

    def summed(function):
        def of_shard(shared, rows):
            return jax.tree.map(lambda x: x[None], function(shared, rows))

        def divided(shared, rows):
            # The sum is left to the compiler, which keeps the gradient split over
            # "tensor". A reduce-scatter in `of_shard` would gather it first.
            parts = _by_shard(mesh, of_shard, PartitionSpec(axes))(shared, rows)
            gradient, sums = jax.tree.map(_sum, parts)
            laid = {name: shardings[name] for name in gradient}
            return jax.lax.with_sharding_constraint(gradient, laid), sums

        return divided

    return Division(constrain, gather, summed)


def _sum(x: jax.Array) -> jax.Array:
    """Return the sum over the first axis, in the precision of `x`."""
    return jax.lax.reduce(x, jnp.zeros((), x.dtype), jax.lax.add, (0,))


def _only(spec: PartitionSpec, axis: str) -> PartitionSpec:
    """Return a spec without all mesh axes but one."""
    return PartitionSpec(*(x if x == axis else None for x in spec))


def _by_shard(mesh: Mesh, function: Callable[..., Any], outputs: Any) -> Any:
    """Call `(shared, rows) -> ...` with the rows of each shard of a batch."""
    axes = _split_axes(mesh)
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec(axes)),
        out_specs=outputs,
        # Compilers handle a region best whose axes are all manual.
        axis_names={*axes} if mesh.shape["tensor"] > 1 else {*MESH_AXES},
        check_vma=False,
    )


def _split_axes(mesh: Mesh) -> tuple[str, ...]:
    """Return the mesh axes over which a batch is really split."""
    return tuple(axis for axis in BATCH_AXES if mesh.shape[axis] > 1)


def num_shards(mesh: Mesh) -> int:
    """Return the number of parts that a batch is split into."""
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES)


def padded(mesh: Mesh, num_rows: int) -> int:
    """Return the least number of rows, at least `num_rows`, that can be split evenly.

    >>> padded(make_mesh(devices=jax.devices()[:1]), 96)
    96
    """
    shards = num_shards(mesh)
    return -(-num_rows // shards) * shards


def ones(mesh: Mesh, num: int) -> jax.Array:
    """Return an array of ones, of which each device makes and holds `num`."""
    split = NamedSharding(mesh, PartitionSpec(MESH_AXES))
    return jax.jit(lambda: jnp.ones(mesh.size * num), out_shardings=split)()


def total(mesh: Mesh, axis: str) -> Callable[[jax.Array], jax.Array]:
    """Return a function that sums what `ones` returned over one axis of the mesh.

    >>> mesh = make_mesh(devices=jax.devices()[:1])
    >>> total(mesh, "data")(ones(mesh, 2)).tolist()
    [1.0, 1.0]
    """
    spec = PartitionSpec(MESH_AXES)
    summed = jax.shard_map(
        lambda x: jax.lax.psum(x, axis), mesh=mesh, in_specs=spec, out_specs=spec
    )
    return jax.jit(summed)


def check_batch_size(mesh: Mesh, batch_size: int, name: str = "batch_size") -> None:
    """Check that a batch can be split evenly over the mesh.

    Args:
      mesh: the mesh.
      batch_size: number of rows.
      name: the config key of the batch size, for the message.

    Raises:
      ValueError: it cannot.
    """
    if batch_size % num_shards(mesh):
        raise ValueError(
            f"{name}={batch_size} cannot be split over mesh.data * mesh.fsdp = "
            f"{mesh.shape['data']} * {mesh.shape['fsdp']} devices; make it a multiple "
            f"of {num_shards(mesh)}"
        )


def check_processes(mesh: Mesh, num_processes: int) -> None:
    """Check that every process can hold rows of a batch that no other process holds.

    Raises:
      ValueError: they would have to share rows.
    """
    if num_shards(mesh) % num_processes:
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
