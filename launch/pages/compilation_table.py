"""A table of training steps that `launch.compile` compiled, for docs/pods.md."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launch.compilation import programs

HEADINGS = (
    *("model", "trained", "chips", "mesh", "rows"),
    *(
        "step, GB",
        "evaluation, GB",
        "matmul, TFLOP",
        "communication, GB",
        "analytic, GB",
        "lower bound, ms",
    ),
)
GB = 1e9
_OF_STEP = programs.BATCH, programs.UPDATE
Json = dict[str, Any]


def lines(folder: Path) -> Iterator[str]:
    """Yield the lines of a table in Markdown.

    Args:
      folder: has files that `launch.compile --json` wrote for TPUs.

    Raises:
      ValueError: it has none, or one of another layout.
    """
    rows = [_row(path) for path in folder.glob("*.json")]
    if not rows:
        raise ValueError(f"{folder}: there is no file of launch.compile --json")
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"|{' --- |' * 5}{' ---: |' * 6}"
    for _, cells in sorted(rows):
        yield f"| {' | '.join(cells)} |"


def _row(path: Path) -> tuple[tuple, tuple[str, ...]]:
    """Return what a file is sorted by, and the cells of its row."""
    try:
        made = json.loads(path.read_text("utf-8"))
        return _order(made), _cells(made)
    except (LookupError, TypeError, StopIteration, ValueError) as error:
        raise ValueError(
            f"{path}: not a file of launch.compile --json for TPUs ({error!r})"
        ) from None


def _order(made: Json) -> tuple:
    chips = math.prod(made["mesh"].values())
    return made["parameters"], chips, made["algorithm"], -made["lora_rank"]


def _cells(made: Json) -> tuple[str, ...]:
    update = next(x for x in made["programs"] if x["name"] == programs.UPDATE)
    sent = sum(x["sent"] * max(x["repeats"], 1) for x in update["collectives"])
    rank = made["lora_rank"]
    how = f"LoRA of rank {rank}" if rank else "full fine-tuning"
    return (
        f"{made['model']}, {made['parameters'] / 1e9:.3g} B",
        f"{made['algorithm'].upper()}, {how}",
        made["topology"],
        ", ".join(f"{axis} {n}" for axis, n in made["mesh"].items() if n > 1),
        f"{made['rows']:,} x {made['columns']:,}",
        f"{_memory(made, *_OF_STEP) / GB:.1f} of {made['limit'] / GB:.0f}",
        f"{_memory(made, programs.EVALUATION) / GB:.1f}",
        f"{update['flops'] / 1e12:,.1f}",
        f"{sent / GB:.3g}",
        f"{made['sent_analytic'] / GB:.3g}",
        f"{1e3 * made['least_seconds']:,.0f}",
    )


def _memory(made: Json, *names: str) -> float:
    """Return the most bytes that a chip needs while one of some programs runs.

    The code of all programs is in memory.
    """
    parts = "beside", "arguments", "outputs", "temporaries"
    needed = [
        sum(x[part] for part in parts) for x in made["programs"] if x["name"] in names
    ]
    return max(needed) + sum(x["code"] for x in made["programs"])
