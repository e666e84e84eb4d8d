"""Report the metrics and the progress of a run: metrics.jsonl, TensorBoard, stdout."""

import json
import logging
import math
import os
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import tqdm

from openagent_jax import files

_log = logging.getLogger(__name__)


class Writer:
    """Appends scalars to `workdir/metrics.jsonl` and to `workdir/tensorboard/`.

    Only one process may write to a folder at a time.

    Args:
      workdir: the folder of the run; it is created if it does not exist.
      resume_step: the step of the checkpoint from which a run resumes. Lines of later
        steps are dropped, so that no step is repeated. None keeps all lines.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Writer(folder.name) as writer:
    ...     writer.write(1, {"train/loss": 0.5})
    >>> pathlib.Path(folder.name, "metrics.jsonl").read_text()
    '{"step": 1, "train/loss": 0.5}\\n'
    >>> folder.cleanup()
    """

    def __init__(self, workdir: str | os.PathLike, resume_step: int | None = None):
        from tensorboardX import SummaryWriter  # slow to import

        folder = pathlib.Path(workdir)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        _repair(path, resume_step)
        self._file = path.open("a", encoding="utf-8")
        self._tensorboard = SummaryWriter(
            str(folder / "tensorboard"),
            purge_step=None if resume_step is None else resume_step + 1,
            # The default file name has a resolution of one second, and an existing file
            # of the same name would be emptied.
            filename_suffix=f".{time.time_ns()}",
        )

    def write(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Append one step.

        JSON has no NaN or infinity; they are written as the strings "nan", "inf" and
        "-inf".

        Args:
          step: the step.
          scalars: numbers by the name of the metric.

        Raises:
          ValueError: a metric is called "step".
        """
        if "step" in scalars:
            raise ValueError('"step" cannot be the name of a metric')
        step, values = int(step), {name: float(x) for name, x in scalars.items()}
        line = {"step": step}
        line |= {k: x if math.isfinite(x) else str(x) for k, x in values.items()}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        for name, value in values.items():
            self._tensorboard.add_scalar(name, value, step)

    def close(self) -> None:
        """Close both outputs."""
        self._file.close()
        self._tensorboard.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Progress:
    """Shows how far a run is: a bar on a terminal, otherwise a line now and then.

    The remaining time is estimated from the speed since the first update, so that
    compilation does not distort it.

    Args:
      total_steps: number of steps of the run.
      start: number of steps that were done before.
      every_s: seconds between two lines where stdout is not a terminal.
    """

    def __init__(self, total_steps: int, start: int = 0, every_s: float = 30.0):
        self._total_steps, self._every_s = total_steps, every_s
        self._first: tuple[float, int] | None = None  # time and step of first update
        self._last_print: float | None = None  # time
        self._bar = None
        if sys.stdout.isatty():
            self._bar = tqdm.tqdm(
                initial=start, total=total_steps, unit="step", file=sys.stdout
            )

    def update(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Show that `step` steps are done, with the most informative metrics.

        These are the reward (or else the loss) and the tokens per second. In
        reinforcement learning the loss says little, so only the reward is shown.
        """
        shown = {}
        if "reward" in scalars:
            shown["reward"] = f"{float(scalars['reward']):.3f}"
        elif "train/loss" in scalars:
            shown["loss"] = f"{float(scalars['train/loss']):.4g}"
        if "perf/tokens_per_s" in scalars:
            shown["tokens/s"] = f"{float(scalars['perf/tokens_per_s']):.3g}"
        if self._bar is not None:
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update(step - self._bar.n)
            return
        now = time.monotonic()
        self._first = self._first or (now, step)
        last = self._last_print
        is_recent = last is not None and now - last < self._every_s
        if is_recent and step < self._total_steps:
            return
        self._last_print = now
        parts = [f"step {step}/{self._total_steps}"]
        parts += [f"{name} {value}" for name, value in shown.items()]
        if left := self._time_left(now, step):
            parts.append(f"{left} left")
        print(", ".join(parts), flush=True)

    def set_total_steps(self, total_steps: int) -> None:
        """Change the number of steps that the run is expected to have."""
        self._total_steps = total_steps
        if self._bar is not None:
            self._bar.total = total_steps

    def close(self) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _time_left(self, now: float, step: int) -> str:
        """Estimate the remaining time, as text; empty while it is unknown."""
        assert self._first is not None
        first_time, first_step = self._first
        if step >= self._total_steps:
            return "00:00"
        if step <= first_step:
            return ""
        steps_left = self._total_steps - step
        seconds = steps_left * (now - first_time) / (step - first_step)
        return tqdm.tqdm.format_interval(seconds)


def _repair(path: pathlib.Path, last_step: int | None) -> None:
    """Drop lines past `last_step`, and lines that a killed run left half-written."""
    if not path.exists():
        return
    old = path.read_bytes()
    lines = old.splitlines(keepends=True)
    steps = [_step(line) for line in lines]
    if damaged := steps.count(None):
        _log.warning("dropped %d damaged lines of %s", damaged, path)
    limit = math.inf if last_step is None else last_step
    pairs = zip(steps, lines, strict=True)
    new = b"".join(line for step, line in pairs if step is not None and step <= limit)
    if new != old:
        with files.replacing(path) as part:
            part.write_bytes(new)


def _step(line: bytes) -> int | None:
    """Return the step of a line, or None if the line is damaged."""
    try:
        step = json.loads(line)["step"] if line.endswith(b"\n") else None
    except (ValueError, TypeError, KeyError):
        return None
    return step if isinstance(step, int) else None
