"""Read weights from a file directly to the devices that hold them, chunk by chunk.

The host never holds more than one chunk, apart from the file cache of the operating
system. Each process reads only the parts that its own devices hold.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

CHUNK = 2**22  # bytes that are read at once, for all devices of a process together


def allocate(like: jax.ShapeDtypeStruct, sharding: NamedSharding | None) -> jax.Array:
    """Return zeros with a given sharding; None means the default device.

    >>> allocate(jax.ShapeDtypeStruct((2,), jnp.int32), None).tolist()
    [0, 0]
    """
    make = partial(jnp.zeros, like.shape, like.dtype)
    return jax.jit(make, out_shardings=sharding)()


def write_tensor(
    target: jax.Array,
    tensor: Any,
    sharding: NamedSharding | None,
    layer: int | None,
    transposed: bool,
) -> jax.Array:
    """Write a tensor of a file into an array.

    Args:
      target: the array. It is donated: use the result instead.
      tensor: the tensor, as `get_slice` of `safetensors` returns it.
      sharding: the sharding of `target`; None means one device.
      layer: the index of the tensor on the leading axis of an array that stacks the
        layers; None if the tensor is the whole array.
      transposed: whether the file has the transpose of the matrix.

    Returns:
      The array with the tensor in it.
    """
    shape, specs, file_sharding = tuple(tensor.get_shape()), None, None
    # For each device of this process, its part of the tensor, as indices into the file.
    indices: dict[Any, tuple[slice, ...]] = {None: (slice(None),) * len(shape)}
    if sharding is not None:
        axes = list(sharding.spec) + [None] * (target.ndim - len(sharding.spec))
        axes = axes[0 if layer is None else 1 :]
        file_spec = PartitionSpec(*(axes[::-1] if transposed else axes))
        specs = sharding.mesh, sharding.spec, file_spec
        file_sharding = NamedSharding(sharding.mesh, file_spec)
        indices = dict(file_sharding.addressable_devices_indices_map(shape))  # pyright: ignore
    indices = {
        device: tuple(
            slice(*x.indices(n)[:2]) for x, n in zip(index, shape, strict=True)
        )
        for device, index in indices.items()
    }
    num_rows, *rest = (x.stop - x.start for x in next(iter(indices.values())))
    row_bytes = 4 * math.prod(rest) * len(indices)  # upper bound, for all devices
    step = max(CHUNK // row_bytes, 1)
    for start in range(0, num_rows, step):
        size, read, shards = min(step, num_rows - start), {}, []
        for device, (rows, *others) in indices.items():
            first = rows.start + start
            index = slice(first, first + size), *others
            if str(index) not in read:  # several devices may hold the same rows
                read[str(index)] = tensor[index]
            shards.append(jax.device_put(read[str(index)], device))
        chunk = shards[0]
        if file_sharding is not None:
            global_rows = shape[0] // num_rows * size  # over all devices
            chunk = jax.make_array_from_single_device_arrays(
                (global_rows, *shape[1:]), file_sharding, shards
            )
        target = _write_chunk(target, chunk, layer or 0, start, specs, transposed)
        target.block_until_ready()  # keeps the host from reading ahead of the devices
    return target


@partial(jax.jit, static_argnames=("specs", "transposed"), donate_argnums=0)
def _write_chunk(target, chunk, layer, start, specs, transposed):
    """Write a chunk into an array, from row `start` of each device's part on."""

    def write(target, chunk, layer, start):
        position = [start, 0][: chunk.ndim]
        chunk = chunk.astype(target.dtype)
        if transposed:
            chunk, position = chunk.T, position[::-1]
        if chunk.ndim < target.ndim:
            chunk, position = chunk[None], [layer, *position]
        return lax.dynamic_update_slice(target, chunk, position)

    if specs is not None:
        mesh, target_spec, file_spec = specs
        scalar = PartitionSpec()
        write = jax.shard_map(
            write,
            mesh=mesh,
            in_specs=(target_spec, file_spec, scalar, scalar),
            out_specs=target_spec,
        )
    return write(target, chunk, layer, start)
