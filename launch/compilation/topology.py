"""The devices that a program is compiled for, and models that are only a shape."""

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from launch.common.config import Config
from launch.common.errors import UsageError
from launch.common.model_loading import Backbone
from launch.compilation import chips
from launch.compilation.chips import Chip
from openagent_jax.models import hf_config, transformer

LOCAL = "local"
SHAPES = Path(__file__).parent / "shapes"
# Without the first two, libtpu asks the network what machine it is on, and complains;
# without the third, only one process at a time can compile, although none uses a TPU.
_VARIABLES = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


class Target(NamedTuple):
    """Devices, and what is known of each of them."""

    name: str
    devices: Sequence[Any]
    memory: float  # bytes of each
    chip: Chip | None  # None if it is not known how fast they are


def find(name: str) -> Target:
    """Return the devices of a topology, which need not be here, or those that are here.

    Raises:
      UsageError: there is no such topology, or its compiler is not installed.
    """
    if name == LOCAL:
        mine = jax.local_devices()
        stats = mine[0].memory_stats() or {}
        memory = stats.get("bytes_limit") or _free_memory() / len(mine)
        return Target(name, jax.devices(), memory, None)
    chip, _ = chips.parse(name)
    if not importlib.util.find_spec("libtpu"):
        raise UsageError(
            f'--topology={name} needs the compiler of TPUs: pip install -e ".[tpu]"'
        )
    from jax.experimental import topologies

    for key, value in _VARIABLES.items():
        os.environ.setdefault(key, value)
    jax.config.update("jax_platforms", "cpu")  # what is computed here
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=name)
    except Exception as error:  # libtpu raises errors of several types
        raise UsageError(f"--topology={name}: {' '.join(str(error).split())}") from None
    return Target(name, found.devices, chip.memory, chip)


def reshaped(c: Config, model: Backbone, shape: str) -> Backbone:
    """Return a model of another shape with the same tokenizer, and without weights.

    Args:
      c: the config.
      model: the model whose tokenizer it has.
      shape: the path of a `config.json`, or a name among `SHAPES`.

    Raises:
      UsageError: there is no such shape, or it cannot be used.
    """
    file = SHAPES / f"{shape}.json"
    if not file.exists():
        file = Path(shape)
    if not file.is_file():
        known = ", ".join(sorted(x.stem for x in SHAPES.glob("*.json")))
        raise UsageError(f'--shape: there is no file "{shape}", nor a shape; {known}')
    try:
        config = hf_config.read(file, **c.model.overrides)
    except ValueError as error:
        raise UsageError(f"--shape: {error}") from None
    if config.vocab_size < model.config.vocab_size:
        raise UsageError(
            f"--shape={shape} has {config.vocab_size} tokens, and the tokenizer of "
            f"{model.folder} has {model.config.vocab_size}"
        )

    def init(*_: Any) -> transformer.Params:
        raise UsageError("--shape: this model has no weights")

    return dataclasses.replace(model, config=config, init=init)


def _free_memory() -> int:
    """Return the bytes of memory that this machine can give to new programs."""
    try:
        text = Path("/proc/meminfo").read_text("ascii")
        return int(text.split("MemAvailable:")[1].split()[0]) * 1024
    except (OSError, IndexError):  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
