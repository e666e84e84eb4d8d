"""Weights from a file to the devices that hold them, a chunk at a time.

The host holds no more of them than one chunk, besides what the system keeps of the
file. Each process reads only what its own devices hold.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

CHUNK = 2**22  # bytes


def empty(like: jax.ShapeDtypeStruct, sharding: NamedSharding | None) -> jax.Array:
    """Zeros on the devices of a sharding; None is the default device."""
    make = partial(jnp.zeros, like.shape, like.dtype)
    return jax.jit(make, out_shardings=sharding)()


def write(
    whole: jax.Array,
    tensor: Any,
    sharding: NamedSharding | None,
    layer: int | None,
    transposed: bool,
) -> jax.Array:
    """A tensor of a file written into an array, which is donated.

    Args:
      whole: an array with the sharding.
      tensor: what `safetensors` gives as a slice of a file.
      layer: index on the leading axis of `whole`, which the tensor has not; or None.
      transposed: whether the file has the axes of a matrix the other way round.
    """
    shape, specs, laid_out = tuple(tensor.get_shape()), None, None
    pieces: dict[Any, tuple[slice, ...]] = {None: (slice(None),) * len(shape)}
    if sharding is not None:
        axes = list(sharding.spec) + [None] * (whole.ndim - len(sharding.spec))
        axes = axes[0 if layer is None else 1 :]
        of_file = PartitionSpec(*(axes[::-1] if transposed else axes))
        specs = sharding.mesh, sharding.spec, of_file
        laid_out = NamedSharding(sharding.mesh, of_file)
        pieces = dict(laid_out.addressable_devices_indices_map(shape))  # pyright: ignore
    pieces = {
        device: tuple(
            slice(*x.indices(n)[:2]) for x, n in zip(index, shape, strict=True)
        )
        for device, index in pieces.items()
    }
    num_rows, *rest = (x.stop - x.start for x in next(iter(pieces.values())))
    row = 4 * math.prod(rest) * len(pieces)  # bytes at most, for all devices
    step = max(CHUNK // row, 1)
    for start in range(0, num_rows, step):
        size, read, parts = min(step, num_rows - start), {}, []
        for device, (rows, *others) in pieces.items():
            first = rows.start + start
            index = slice(first, first + size), *others
            if str(index) not in read:  # several devices may hold the same
                read[str(index)] = tensor[index]
            parts.append(jax.device_put(read[str(index)], device))
        part = parts[0]
        if laid_out is not None:
            rows = shape[0] // num_rows * size  # of all devices
            part = jax.make_array_from_single_device_arrays(
                (rows, *shape[1:]), laid_out, parts
            )
        whole = _put(whole, part, layer or 0, start, specs, transposed)
        whole.block_until_ready()  # or the host would read ahead of the devices
    return whole


@partial(jax.jit, static_argnames=("specs", "transposed"), donate_argnums=0)
def _put(whole, part, layer, start, specs, transposed):
    """The rows of the file's tensor from `start` on, on each device its own."""

    def put(whole, part, layer, start):
        at = [start, 0][: part.ndim]
        part = part.astype(whole.dtype)
        if transposed:
            part, at = part.T, at[::-1]
        if part.ndim < whole.ndim:
            part, at = part[None], [layer, *at]
        return lax.dynamic_update_slice(whole, part, at)

    if specs is not None:
        mesh, of_whole, of_file = specs
        nothing = PartitionSpec()
        put = jax.shard_map(
            put,
            mesh=mesh,
            in_specs=(of_whole, of_file, nothing, nothing),
            out_specs=of_whole,
        )
    return put(whole, part, layer, start)
