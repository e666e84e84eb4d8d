"""What a run says while it runs: metrics.jsonl, TensorBoard, and a line of progress."""

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

_log = logging.getLogger(__name__)


class Writer:
    """Appends scalars to `workdir/metrics.jsonl` and to `workdir/tensorboard/`.

    A run that goes on from the checkpoint of step s passes `resume_step=s`: what was
    written of later steps is dropped, so that each step is there once. Without it lines
    are only added. One process of a run writes, and nobody else meanwhile.
    """

    def __init__(self, workdir: str | os.PathLike, resume_step: int | None = None):
        from tensorboardX import SummaryWriter  # loads slowly

        folder = pathlib.Path(workdir)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        _mend(path, resume_step)
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(
            str(folder / "tensorboard"),
            purge_step=None if resume_step is None else resume_step + 1,
            # File names tell seconds only, and a file of the same name is emptied.
            filename_suffix=f".{time.time_ns()}",
        )

    def write(self, step: int, scalars: Mapping[str, Any]) -> None:
        """One flat line; JSON has no NaN, so "nan", "inf" and "-inf" are strings."""
        if "step" in scalars:
            raise ValueError('"step" cannot be the name of a metric')
        step, values = int(step), {name: float(x) for name, x in scalars.items()}
        line = {"step": step}
        line |= {k: x if math.isfinite(x) else str(x) for k, x in values.items()}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        for name, value in values.items():
            self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._file.close()
        self._board.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Progress:
    """How far the run is: a bar, or where stdout is no terminal, a line now and then.

    Speed is counted from the first update on, so compilation does not spoil the guess
    of the time left.
    """

    def __init__(self, total_steps: int, start: int = 0, every_s: float = 30.0):
        self._total, self._every = total_steps, every_s
        self._first = self._printed = None  # (time, step), time
        self._bar = None
        if sys.stdout.isatty():
            self._bar = tqdm.tqdm(
                initial=start, total=total_steps, unit="step", file=sys.stdout
            )

    def update(self, step: int, scalars: Mapping[str, Any]) -> None:
        """`step` steps are done; shows what is earned, the loss and the speed, if any.

        What reinforcement learning calls its loss says nothing.
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
        recent = self._printed is not None and now - self._printed < self._every
        if recent and step < self._total:
            return
        self._printed = now
        words = [f"step {step}/{self._total}", *(f"{k} {v}" for k, v in shown.items())]
        print(", ".join([*words, f"{self._time_left(now, step)} left"]), flush=True)

    def expect(self, total_steps: int) -> None:
        """The run will have another number of steps than was thought."""
        self._total = total_steps
        if self._bar is not None:
            self._bar.total = total_steps

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _time_left(self, now: float, step: int) -> str:
        assert self._first is not None
        then, first = self._first
        if step >= self._total:
            return "00:00"
        if step <= first:
            return "?"
        seconds = (self._total - step) * (now - then) / (step - first)
        return tqdm.tqdm.format_interval(seconds)


def _mend(path: pathlib.Path, last_step: int | None) -> None:
    """Drops lines past `last_step`, and lines that a killed run left half-written."""
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
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(new)
        os.replace(temporary, path)


def _step(line: bytes) -> int | None:
    """The step of a whole line, else None."""
    try:
        step = json.loads(line)["step"] if line.endswith(b"\n") else None
    except (ValueError, TypeError, KeyError):
        return None
    return step if isinstance(step, int) else None
