"""What a config needs of each device."""

from collections.abc import Iterator

from launch.common import backbones, build, checks
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.compilation import programs, topology


def findings(c: Config) -> Iterator[str]:
    """Yield whether the config is right, and the memory that it needs at least."""
    try:
        checks.check(c)
        checks.check_training(c)
        model = backbones.backbone(c)
        arrays = build.abstract(c, model, build.world(c, model, c.sandbox.domain))
    except UsageError as error:
        yield f"! config: {error}"
        return
    held = programs.resident(arrays) | programs.transient(arrays)
    parts = ", ".join(f"{name} {x / 1e9:.3f}" for name, x in held.items() if x)
    total, free = sum(held.values()), topology.find(topology.LOCAL).memory
    line = f"memory: {c.name} needs at least {total / 1e9:.3f} GB of each device"
    line = f"{line} ({parts}), of {free / 1e9:.1f}, beside its activations"
    if total > free:
        yield (
            f"! {line}; split it over more devices (mesh.fsdp, mesh.tensor), train "
            "adapters (model.lora.rank), or take model.param_dtype=bfloat16"
        )
    else:
        yield f"{line} (launch.compile --topology=local counts these too)"
