"""The runs of a sweep as a list, with the time that they will take.

The time is estimated from the steps of other runs: of the same setting, else of the
same algorithm in the sweep, else of a run of the same config in `runs/NAME`.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.common import config, runs
from launch.sweeps import execution, sweep_page
from launch.sweeps.execution import DONE
from launch.sweeps.plans import SAME, Plan, Run

STEP_TIME, NUM_TOKENS = "perf/step_time_s", "num_tokens"


@dataclass(frozen=True)
class Speed:
    """What a run has shown of the time that others will take."""

    source: str  # its name or folder
    step_time: float  # seconds
    tokens: float  # of a step
    rest: float | None  # seconds for compiling and evaluating; None if not known

    def estimate(self, run: Run) -> tuple[float, str]:
        """Return the seconds that a run will take, and how they are known."""
        c = run.config.train
        num = c.num_steps
        if c.max_tokens and self.tokens:
            num = min(num, int(c.max_tokens / self.tokens) + 1)
        num = max(num - _last_saved(run), 0)
        rest = "without compiling and evaluating"
        if self.rest is not None:
            rest = f"and {self.rest:.0f} s for compiling and evaluating"
        seconds = num * self.step_time + (self.rest or 0)
        how = f"{num:,} steps of {self.step_time:.2g} s, {rest}, as in {self.source}"
        return seconds, f"{_duration(seconds)} ({how})"


def text(plan: Plan, folder: Path) -> str:
    """Return the list of runs: the state of each, its differences, and its time."""
    records = execution.read(plan, folder)
    known = [
        (run, speed)
        for run in plan.runs
        if (speed := _speed(run.name, run.workdir, records[run.name].seconds))
    ]
    num_done = sum(x.state == DONE for x in records.values())
    lines = [f"{len(plan.runs)} runs in {folder}, {num_done} of them done", ""]
    width = max(len(run.name) for run in plan.runs)
    total, num_measured = 0.0, 0
    for run in plan.runs:
        said = "done"
        if records[run.name].state != DONE:
            said = "not measured"
            if speed := _like(run, known):
                seconds, said = speed.estimate(run)
                total, num_measured = total + seconds, num_measured + 1
            if records[run.name].error:
                said = f"failed ({records[run.name].error}), {said}"
        what = sweep_page.differences(plan, run.setting.name)
        lines.append(f"{run.name:{width}}  {said}; {what}")
    lines.append("")
    if num_measured:
        num = len(plan.runs) - num_done
        of = "All" if num_measured == num else f"{num_measured} of these {num}"
        lines.append(f"{of} together: {_duration(total)}.")
    elif num_done < len(plan.runs):
        lines.append(
            "Nothing has been measured yet. Once a run of this sweep has ended, times "
            "are estimated from its steps; --max_runs=1 executes one."
        )
    return "\n".join(lines).rstrip()


def _like(run: Run, known: Sequence[tuple[Run, Speed]]) -> Speed | None:
    """Return the speed of the run that is most like one; None if there is none."""
    if not run.setting.is_trained:
        return None
    name = run.config.algorithm.name
    same = [speed for other, speed in known if other.setting == run.setting]
    alike = [speed for other, speed in known if other.config.algorithm.name == name]
    for found in (same, alike):
        if found:
            return min(found, key=lambda speed: speed.rest is None)
    return _elsewhere(run)


def _elsewhere(run: Run) -> Speed | None:
    """Return the speed of a run of the same config in its default workdir."""
    workdir = Path("runs") / run.config.name
    stored = config.flat(runs.manifest(workdir).get("config", {}))
    ours = config.flat(json.loads(json.dumps(config.to_dict(run.config))))
    ignored = (*SAME, "eval.")
    odd = [k for k in ours if ours[k] != stored.get(k) and not k.startswith(ignored)]
    return None if odd else _speed(workdir.as_posix(), workdir, None)


def _speed(source: str, workdir: Path, seconds: float | None) -> Speed | None:
    """Return what the steps of a run have taken; None if it is not known."""
    rows = [row for row in _metrics(workdir) if STEP_TIME in row]
    if not rows:
        return None
    step_time = statistics.median(row[STEP_TIME] for row in rows)
    last, ended = int(rows[-1]["step"]), runs.ended(workdir)
    rest = None
    if ended is not None and seconds is not None:
        rest = max(seconds - ended * step_time, 0)
    return Speed(source, step_time, rows[-1].get(NUM_TOKENS, 0) / last, rest)


def _last_saved(run: Run) -> int:
    """Return the last saved step of a run that was interrupted."""
    steps = [x.name for x in (run.workdir / "checkpoints").glob("*")]
    return max((int(x) for x in steps if x.isdecimal()), default=0)


def _metrics(workdir: Path) -> list[Mapping[str, float]]:
    """Return the logged steps of a run, as far as they can be read."""
    found = []
    file = workdir / "metrics.jsonl"
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:  # the last line of a run that was killed
            continue
    return found


def _duration(seconds: float) -> str:
    """Format a time.

    >>> _duration(40), _duration(700), _duration(9000)
    ('about 40 s', 'about 12 min', 'about 2.5 h')
    """
    if seconds < 100:
        return f"about {seconds:.0f} s"
    if seconds < 6000:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"
