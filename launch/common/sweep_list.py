"""The runs of a sweep as a list, with the time that they will take.

The time is estimated from the steps of runs of the same sweep that have ended.
"""

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.common import execution, runs, sweep_page
from launch.common.execution import DONE, Record
from launch.common.sweeps import Plan, Run

STEP_TIME, NUM_TOKENS = "perf/step_time_s", "num_tokens"


@dataclass(frozen=True)
class Speed:
    """What a run has shown of the time that others will take."""

    run: Run
    step_time: float  # seconds
    tokens: float  # of a step
    rest: float  # seconds for compiling and evaluating

    def seconds(self, run: Run) -> tuple[int, float]:
        """Return the number of steps that a run still has to do, and its time."""
        c = run.config.train
        num = c.num_steps
        if c.max_tokens and self.tokens:
            num = min(num, int(c.max_tokens / self.tokens) + 1)
        num = max(num - _last_step(run), 0)
        return num, num * self.step_time + self.rest


def text(plan: Plan, folder: Path) -> str:
    """Return the list of runs: the state of each, its differences, and its time."""
    records = execution.read(plan, folder)
    speeds = [
        found
        for run in plan.runs
        if records[run.name].state == DONE and (found := _speed(run, records[run.name]))
    ]
    num_done = sum(x.state == DONE for x in records.values())
    lines = [f"{len(plan.runs)} runs in {folder}, {num_done} of them done", ""]
    width = max(len(run.name) for run in plan.runs)
    total = 0.0
    for run in plan.runs:
        said = "done"
        if records[run.name].state != DONE:
            said, seconds = _estimate(run, speeds)
            total += seconds
        what = sweep_page.differences(plan, run.setting.name)
        lines.append(f"{run.name:{width}}  {said}; {what}")
    lines.append("")
    if speeds:
        lines.append(f"All that is left: {_duration(total)}.")
    elif num_done < len(plan.runs):
        lines.append(
            "Nothing has been measured yet. Once a run of this sweep has ended, times "
            "are estimated from its steps; --max_runs=1 executes one."
        )
    return "\n".join(lines).rstrip()


def _estimate(run: Run, speeds: list[Speed]) -> tuple[str, float]:
    """Say how long a run will take, and where that is known from."""
    if not run.setting.is_trained or not speeds:
        return "not measured", 0.0
    same = [x for x in speeds if x.run.setting == run.setting]
    alike = [
        x for x in speeds if x.run.config.algorithm.name == run.config.algorithm.name
    ]
    best = (same or alike or [None])[0]
    if best is None:
        return "not measured", 0.0
    num, seconds = best.seconds(run)
    return (
        f"{_duration(seconds)} ({num:,} steps of {best.step_time:.2g} s, and "
        f"{best.rest:.0f} s for the rest, as in {best.run.name})",
        seconds,
    )


def _speed(run: Run, record: Record) -> Speed | None:
    """Return what the steps of a run have taken; None if it is not known."""
    rows = [row for row in _metrics(run) if STEP_TIME in row]
    last = runs.ended(run.workdir)
    if not rows or not last:
        return None
    step_time = statistics.median(row[STEP_TIME] for row in rows)
    rest = max((record.seconds or 0) - last * step_time, 0)
    return Speed(run, step_time, rows[-1].get(NUM_TOKENS, 0) / last, rest)


def _last_step(run: Run) -> int:
    """Return the last saved step of a run that was interrupted."""
    steps = [x.name for x in (run.workdir / "checkpoints").glob("*")]
    return max((int(x) for x in steps if x.isdecimal()), default=0)


def _metrics(run: Run) -> list[Mapping[str, float]]:
    """Return the logged steps of a run, as far as they can be read."""
    found = []
    file = run.workdir / "metrics.jsonl"
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
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
