"""What a result was made with: commit, versions and machine."""

import os
import platform
import time
from importlib import metadata
from typing import Any

from launch.common import cli

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def origin() -> dict[str, Any]:
    """Return the commit, the devices, the versions of packages, and the time."""
    import jax

    device, status = jax.devices()[0], cli.git("status", "--porcelain")
    return {
        "git_commit": cli.git("rev-parse", "HEAD"),
        "git_dirty": None if status is None else status != "",
        "device_kind": device.device_kind,
        "platform": device.platform,
        "num_devices": jax.device_count(),
        "num_processes": jax.process_count(),
        "cpu_count": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
