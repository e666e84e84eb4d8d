"""The devices, and the links between them."""

import os
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from launch.common import placement
from launch.common.config import Config
from launch.common.errors import UsageError
from openagent_jax import sharding

SIZE = 4_000_000  # numbers of the array that is summed, per device
REPEATS = 5


def findings() -> Iterator[str]:
    """Yield what devices there are, and GPUs or TPUs that JAX does not use."""
    devices, first = jax.devices(), jax.local_devices()[0]
    memory = (first.memory_stats() or {}).get("bytes_limit")
    size = f", {memory / 1e9:.1f} GB each" if memory else ""
    yield (
        f"devices: {len(devices)} x {first.device_kind} ({first.platform}{size}), "
        f"{jax.local_device_count()} of them local; processes: {jax.process_count()}; "
        f"CPU cores: {os.cpu_count()}"
    )
    if first.platform == "cpu":
        if os.path.exists("/dev/nvidia0"):
            yield (
                "! devices: there is an NVIDIA GPU that JAX does not use: "
                'pip install -e ".[cuda12]", and unset JAX_PLATFORMS'
            )
        if os.path.exists("/dev/accel0") or os.path.exists("/dev/vfio/0"):
            yield (
                "! devices: there may be a TPU that JAX does not use: "
                'pip install -e ".[tpu]", and unset JAX_PLATFORMS'
            )


def links(c: Config) -> Iterator[str]:
    """Yield how fast the devices of each axis of the mesh sum an array.

    The sum is compared with what it has to be, so that broken links are found.
    """
    try:
        mesh = placement.mesh(c)
    except UsageError as error:
        yield f"! mesh: {error}"
        return
    for axis, size in mesh.shape.items():
        if size == 1:
            continue
        x = sharding.ones(mesh, SIZE)
        total = sharding.total(mesh, axis)
        right = bool(jnp.all(total(x) == size))
        start = time.perf_counter()
        for _ in range(REPEATS):
            y = total(x)
        jax.block_until_ready(y)
        seconds = (time.perf_counter() - start) / REPEATS
        sent = 2 * (size - 1) / size * 4 * SIZE
        line = f"links: mesh.{axis}={size} sums 16 MB in {1e3 * seconds:.1f} ms"
        yield (
            f"{line}, {sent / seconds / 1e9:.2f} GB/s"
            if right
            else (
                f"! {line}, and the sum is wrong: these devices cannot be used together"
            )
        )
