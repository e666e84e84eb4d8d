"""The cost of the programs of a training step and an evaluation, for one device."""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from launch.common import build, compiled_step
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.common.model_loading import Backbone
from launch.compilation import collectives, flops
from launch.compilation.chips import Chip
from launch.compilation.collectives import Collective
from openagent_jax import sharding
from openagent_jax.environments.world import World
from openagent_jax.types import Params

BATCH, UPDATE, EVALUATION = "batch", "update", "evaluation"


class TooLarge(Exception):
    """The compiler found that a program does not fit; `needed` is in bytes."""

    def __init__(self, name: str, needed: float):
        super().__init__(f"{name}: {needed:,.0f} bytes")
        self.name, self.needed = name, needed


@dataclass(frozen=True)
class Program:
    """A compiled program. Sizes are in bytes, and of one device."""

    name: str
    compile_s: float
    beside: int  # at least what is in memory while it runs, besides its arguments
    arguments: int
    outputs: int  # that do not take the place of an argument
    temporaries: int
    code: int
    flops: float
    open_flops: float  # of one iteration of loops whose length only data decide
    collectives: tuple[Collective, ...]

    @property
    def memory(self) -> int:
        """What a device needs while it runs, without code."""
        return self.beside + self.arguments + self.outputs + self.temporaries

    @property
    def moved(self) -> int:
        """The least that is read and written: arrays once, and temporaries twice."""
        return self.arguments + self.outputs + 2 * self.temporaries

    @property
    def sent(self) -> float:
        """What is sent to other devices, loops of unknown length once."""
        return sum(x.sent * max(x.repeats, 1) for x in self.collectives)

    def seconds(self, chip: Chip) -> dict[str, float]:
        """Return the least time for each thing that a chip does at its full speed."""
        return {
            "matmul": self.flops / chip.flops,
            "memory": self.moved / chip.bandwidth,
            "links": self.sent / chip.links,
        }


def trace(
    c: Config, model: Backbone, source: World, arrays: compiled_step.Abstract
) -> dict[str, Any]:
    """Return the programs of a run by name, before they are lowered.

    Args:
      c: the config.
      model: the model.
      source: the world of the training.
      arrays: the arrays of a training step.
    """
    make, update = compiled_step.traced(c, model, source, arrays)
    played = build.world(c, model, c.eval_domain)
    roll = compiled_step.traced_rollout(c, model, played, arrays)
    return {BATCH: make, UPDATE: update, EVALUATION: roll}


def compile(traced: Mapping[str, Any], arrays: compiled_step.Abstract) -> list[Program]:
    """Compile programs, and read what they cost.

    Args:
      traced: the programs by name, before they are lowered.
      arrays: the arrays of a training step. What they hold is in memory while any of
        the programs runs, also if the program does not read it.

    Raises:
      TooLarge: a program does not fit into the memory of a device.
    """
    mesh, held = arrays.mesh, sum(resident(arrays).values())
    made, shards = [], sharding.num_shards(mesh)
    for name, program in traced.items():
        counted = flops.count(program.jaxpr, shards)
        start = time.perf_counter()
        try:
            compiled = program.lower().compile()
        except jax.errors.JaxRuntimeError as error:
            if not (
                size := re.search(r"required for .*?\(([\d.]+)([KMG])\)", str(error))
            ):
                raise
            unit = {"K": 2**10, "M": 2**20, "G": 2**30}[size[2]]
            raise TooLarge(name, float(size[1]) * unit) from None
        seconds = time.perf_counter() - start
        memory: Any = compiled.memory_analysis()
        made.append(
            Program(
                name,
                seconds,
                # Arguments that a program does not read are not counted as such.
                max(held - memory.argument_size_in_bytes, 0),
                memory.argument_size_in_bytes,
                memory.output_size_in_bytes - memory.alias_size_in_bytes,
                memory.temp_size_in_bytes,
                memory.generated_code_size_in_bytes,
                counted.known / mesh.size,
                counted.open / mesh.size,
                tuple(collectives.read(compiled.as_text(), mesh.shape)),
            )
        )
    return made


def resident(arrays: compiled_step.Abstract) -> dict[str, int]:
    """Return the bytes of a device that are always occupied, by what they hold."""
    state = arrays.state
    rest = state.step, state.key, state.curriculum, arrays.tables
    return {
        "parameters": size(state.params),
        "fixed parameters": size(state.frozen),
        "optimizer": size(state.opt_state),
        "worlds": size(rest),
    }


def transient(arrays: compiled_step.Abstract) -> dict[str, int]:
    """Return the minimum extra memory that an update needs.

    Parameters that are split over "fsdp" are gathered while an update runs, and so are
    their gradients.
    """
    params, frozen = _gathered(arrays.state.params), _gathered(arrays.state.frozen)
    split = params + frozen > size((arrays.state.params, arrays.state.frozen))
    return {"gathered": (params + frozen) * split, "gradients": params}


def check_fits(
    c: Config, arrays: compiled_step.Abstract, memory: float
) -> dict[str, int]:
    """Return the least bytes that a step needs of each device, by what they hold.

    Args:
      c: the config.
      arrays: the arrays of its step.
      memory: the bytes that each device has.

    Raises:
      UsageError: it has less; the message says by how much.
    """
    held = resident(arrays) | transient(arrays)
    total = sum(held.values())
    if total > memory:
        parts = ", ".join(f"{name} {x:,}" for name, x in held.items() if x)
        raise UsageError(
            f"{c.name} does not fit: it needs at least {total:,} bytes per device "
            f"({parts}), {total - memory:,.0f} more than a device has; split it over "
            "more devices (mesh.fsdp, mesh.tensor), train adapters (model.lora.rank), "
            "or set model.param_dtype=bfloat16"
        )
    return held


def size(tree: Any) -> int:
    """Return the bytes that one device holds of abstract arrays."""
    leaves = jax.tree.leaves(tree)
    return sum(_bytes(x, x.sharding.shard_shape(x.shape)) for x in leaves)


def _gathered(params: Params) -> int:
    """Return the bytes of parameters that are split over "tensor" alone."""
    total = 0
    for x in jax.tree.leaves(params):
        axes = jax.tree.leaves(tuple(x.sharding.spec))
        parts = x.sharding.mesh.shape["fsdp"] if "fsdp" in axes else 1
        total += parts * size(x)
    return total


def _bytes(x: Any, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * getattr(x.dtype, "itemsize", 4)


def peak(programs: list[Program]) -> int:
    """Return the most bytes that a device needs while any of them runs."""
    code = sum(x.code for x in programs)
    return code + max(x.memory for x in programs)


def lines(values: Mapping[str, float]) -> list[str]:
    """Return a table of sizes in GB."""
    return [
        f"  {name:22}{value / 1e9:10.3f}" for name, value in values.items() if value
    ]
