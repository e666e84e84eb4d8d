"""What a config needs of each device."""

from collections.abc import Iterator

from launch.common import backbones, build, checks, compiled_step
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.compilation import programs, topology


def findings(c: Config) -> Iterator[str]:
    """Yield whether the config is right, and the memory that it needs at least."""
    try:
        checks.check(c)
        checks.check_training(c)
        model = backbones.backbone(c)
        arrays = compiled_step.abstract(
            c, model, build.world(c, model, c.sandbox.domain)
        )
        free = topology.find(topology.LOCAL).memory
        held = programs.check_fits(c, arrays, free)
    except UsageError as error:
        yield f"! config: {error}"
        return
    parts = ", ".join(f"{name} {x / 1e9:.3f}" for name, x in held.items() if x)
    total = sum(held.values()) / 1e9
    yield (
        f"memory: {c.name} needs at least {total:.3f} GB per device ({parts}), of "
        f"{free / 1e9:.1f} (launch.compile --topology=local counts activations too)"
    )
