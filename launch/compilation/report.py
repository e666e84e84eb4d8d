"""What `launch.compile` prints and writes of a step."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax

from launch.common import compiled_step, placement
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.common.model_loading import Backbone
from launch.common.origin import origin
from launch.compilation import analytic, programs
from launch.compilation.programs import Program
from launch.compilation.topology import Target
from openagent_jax.environments.world import World
from openagent_jax.models import transformer

GB = 1e9


def head(c: Config, model: Backbone, target: Target, mesh: jax.sharding.Mesh) -> str:
    """Return what is compiled, and for what."""
    num = num_parameters(model)
    sizes = ", ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    return (
        f"{c.name} on {target.name}: {mesh.size} chips ({sizes}), {num:,} parameters, "
        f"{c.num_rows} rows of {c.num_columns} tokens in a step\n"
        f"computed for one chip, not measured"
    )


def text(
    c: Config,
    model: Backbone,
    target: Target,
    arrays: compiled_step.Abstract,
    made: list[Program],
) -> str:
    """Return the tables of a compiled step."""
    lines = ["memory, GB", *programs.lines(_memory(arrays, made))]
    most, room = programs.peak(made), target.memory
    rest = f"{(room - most) / GB:.3f} left" if most <= room else "DOES NOT FIT"
    lines += [f"  {'at most together':22}{most / GB:10.3f} of {room / GB:.1f}: {rest}"]
    lines += [f"{'program':24}" + "".join(f"{x.name:>12}" for x in made)]
    rows = {
        "compiled in, s": [x.compile_s for x in made],
        "matmul, TFLOP": [x.flops / 1e12 for x in made],
        "one iteration, TFLOP": [x.open_flops / 1e12 for x in made],
        "moved at least, GB": [x.moved / GB for x in made],
        "communication, GB": [x.sent / GB for x in made],
    }
    if target.chip:
        for x in ("matmul", "memory", "links"):
            rows[f"{x}, ms"] = [1e3 * y.seconds(target.chip)[x] for y in made]
    for name, values in rows.items():
        if any(values):
            lines.append(f"  {name:22}" + "".join(f"{x:12.4g}" for x in values))
    if target.chip:
        seconds, bound = roofline(target, made)
        least = f"{1e3 * seconds:.4g} ms or more: {bound}"
        lines.append(f"a training step of full rows takes {least}")
    expected = analytic.sent(c, model, arrays) / GB
    lines.append(f"calculated analytically, the update sends {expected:.4g} GB")
    lines += ["collectives", *_collectives(made)]
    return "\n".join(lines)


def roofline(target: Target, made: list[Program]) -> tuple[float, str]:
    """Return the least seconds of a training step, and what bounds most of them."""
    assert target.chip
    parts = [x.seconds(target.chip) for x in made if x.name != programs.EVALUATION]
    longest = max(parts, key=lambda x: max(x.values()))
    return sum(max(x.values()) for x in parts), max(longest, key=lambda x: longest[x])


def figures(
    c: Config,
    model: Backbone,
    target: Target,
    arrays: compiled_step.Abstract,
    made: list[Program],
) -> dict[str, Any]:
    """Return the same as JSON has it, in bytes, operations and seconds."""
    found = about(c, model, target, arrays) | {
        "jax": jax.__version__,
        "commit": origin()["git_commit"],
        "memory": _memory(arrays, made),
        "peak": programs.peak(made),
        "programs": [
            dataclasses.asdict(x)
            | {"collectives": [y._asdict() for y in x.collectives]}
            for x in made
        ],
    }
    if target.chip:
        seconds, bound = roofline(target, made)
        found |= {"least_seconds": seconds, "bound": bound}
    return found


def about(
    c: Config, model: Backbone, target: Target, arrays: compiled_step.Abstract
) -> dict[str, Any]:
    """Return what is compiled, and what its update should send, as JSON has it."""
    return {
        "config": c.name,
        "algorithm": c.algorithm.name,
        "lora_rank": c.model.lora.rank,
        "parameters": num_parameters(model),
        "topology": target.name,
        "mesh": dict(arrays.mesh.shape),
        "rows": c.num_rows,
        "columns": c.num_columns,
        "limit": target.memory,
        "sent_analytic": analytic.sent(c, model, arrays),
    }


def num_parameters(model: Backbone) -> int:
    """Return how many numbers a model has, without adapters."""
    shapes = jax.tree.leaves(transformer.shapes(model.config))
    return sum(math.prod(x.shape) for x in shapes)


def lacking(
    c: Config, model: Backbone, source: World, target: Target, needed: float
) -> str:
    """Return by how much a step does not fit, and what would make it smaller.

    Args:
      c: the config.
      model: the model.
      source: the world of its tasks.
      target: the devices.
      needed: the bytes that it needs at least.
    """
    lines = [
        f"does not fit: it needs {needed:,.0f} bytes or more per chip, "
        f"{needed - target.memory:,.0f} more than a chip has"
    ]
    for changes in _smaller(c, len(target.devices)):
        said = " ".join(f"--config.{key}={value}" for key, value in changes.items())
        try:
            changed = c.replace(changes)
            placement.mesh(changed, target.devices)
            config = dataclasses.replace(model.config, **changed.model.overrides)
            other = dataclasses.replace(model, config=config)
            arrays = compiled_step.abstract(changed, other, source, target.devices)
        except (UsageError, ValueError):
            continue
        held = programs.resident(arrays) | programs.transient(arrays)
        if (total := sum(held.values())) < min(needed, target.memory):
            lines.append(f"  {said}: at least {total / GB:.2f} GB")
    if len(lines) == 1:
        lines.append("  no change of the mesh suffices; take more chips or larger ones")
    lines.append(
        "  temporaries: fewer rows at once (train.num_micro_batches), "
        "model.remat=full, model.dtype=bfloat16"
    )
    return "\n".join(lines)


def _smaller(c: Config, num_devices: int) -> Iterator[dict[str, Any]]:
    """Yield changes of a config with which each chip holds less."""
    for tensor in (1, 2, 4, 8, 16, 32):
        if num_devices % tensor:
            continue
        mesh = {"mesh.data": -1, "mesh.fsdp": 1, "mesh.tensor": tensor}
        if tensor > c.mesh.tensor:
            yield mesh
        yield mesh | {"mesh.data": 1, "mesh.fsdp": num_devices // tensor}
    if c.model.param_dtype != "bfloat16":
        yield {"model.param_dtype": "bfloat16"}
    if not c.model.lora.rank:
        yield {"model.lora.rank": 16, "optim.train_embedding": False}


def _memory(arrays: compiled_step.Abstract, made: list[Program]) -> dict[str, int]:
    """Return the bytes of a device by what takes them."""
    held = programs.resident(arrays)
    batch = max(x.arguments for x in made) - sum(held.values())
    return held | {
        "batch": max(batch, 0),
        "temporaries": max(x.temporaries + x.outputs for x in made),
        "programs": sum(x.code for x in made),
    }


def _collectives(made: list[Program]) -> Iterator[str]:
    """Yield a line for the collectives of each kind, axis and loop."""
    for program in made:
        for x in program.collectives:
            axes = "+".join(x.axes) or "none"
            often = f"{x.repeats} times" if x.repeats else "in an open loop"
            where = f", each {often}" if x.in_loop else ""
            yield (
                f"  {program.name:12}{x.kind:20}{axes:14}{x.number:4} of them, "
                f"{x.sent / 1e6:.4g} MB{where}"
            )
    if not any(program.collectives for program in made):
        yield "  none"
