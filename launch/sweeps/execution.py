"""Execute the runs of a sweep one after the other, each in a process of its own.

A run that has ended is skipped, and one that was killed is continued by `launch.train`
itself. A run that fails is recorded, and the others go on. What is known of each run is
in the file RECORDS of the sweep's folder, which is written anew after each change.
"""

import contextlib
import fcntl
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launch.common import cli, config, runs
from launch.sweeps.plans import Plan, Run
from openagent_jax import files, train

RECORDS, LOG, LOCK = "sweep.json", "log.txt", ".lock"
SAVED = 143  # the exit code of a run that was stopped, and has saved its state
WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"


@dataclass
class Record:
    """What is known of a run."""

    state: str = WAITING
    seconds: float | None = None  # of all its processes; None if they are not known
    error: str = ""  # the last line of a run that failed


@dataclass(frozen=True)
class Budget:
    """What may be used before the command ends; None is no limit."""

    num_runs: int | None = None  # that are started
    hours: float | None = None


def execute(
    plan: Plan,
    folder: Path,
    budget: Budget,
    after_each: Callable[[Run], None] = lambda run: None,
    only: Collection[str] | None = None,
) -> dict[str, Record]:
    """Execute the runs that have not ended.

    Args:
      plan: the runs.
      folder: the folder of the sweep.
      budget: no run is started beyond it, and one that is at work when the time is over
        is stopped, with its state saved.
      after_each: called with each run that has ended now.
      only: the names of the runs that are wanted, by default all. Those that they start
        from are executed too.

    Returns:
      The record of each run, by its name.

    Raises:
      Preempted: SIGTERM or SIGINT was received. The run that was at work has got
        SIGTERM, on which it saves its state, and has ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    until = None if budget.hours is None else time.monotonic() + 3600 * budget.hours
    left = len(plan.runs) if budget.num_runs is None else budget.num_runs
    wanted = {run.name for run in plan.runs} if only is None else {*only}
    for run in reversed(plan.runs):
        if run.name in wanted:
            wanted.add(run.after)
    with _locked(folder) as lock, _Child() as child:
        records = read(plan, folder)
        for i, run in enumerate(plan.runs, 1):
            record = records[run.name]
            if run.report or run.name not in wanted:
                continue
            if run.after and records[run.after].state != DONE:
                if records[run.after].state == FAILED:
                    record.state, record.error = FAILED, _because_of(run)
                continue
            if not left or child.stopped or (until and time.monotonic() >= until):
                continue
            left -= 1
            _say(f"[{i}/{len(plan.runs)}] {run.name}: see {run.workdir / LOG}")
            record.state, record.error = RUNNING, ""
            write(plan, folder, records)
            started = time.monotonic()
            code = child.run(run, lock, until)
            record.seconds = (record.seconds or 0) + time.monotonic() - started
            if run.report:
                record.state = DONE
            elif child.stopped or code in (SAVED, -signal.SIGTERM):
                record.state = WAITING
            else:
                record.state, record.error = FAILED, _last_line(run, code)
            write(plan, folder, records)
            said = f"{record.state}, {record.seconds:.0f} s"
            _say(f"[{i}/{len(plan.runs)}] {run.name}: {record.error or said}")
            if record.state == DONE:
                after_each(run)
        write(plan, folder, records)
        if child.stopped:
            num = sum(x.state == DONE for x in records.values())
            raise train.Preempted(
                f"stopped; {num} of {len(records)} runs are done; start the same "
                "command again to go on"
            )
    return records


def command(run: Run) -> list[str]:
    """Return the command that executes a run."""
    words = [*run.words, f"--workdir={run.workdir}"]
    return [sys.executable, "-m", f"launch.{run.command}", *words]


def unfinished(records: Mapping[str, Record]) -> str:
    """Say how many runs are not done, and which have failed; "" if all are done.

    >>> unfinished({"a": Record(DONE), "b": Record(FAILED, error="no room")})
    '1 of 2 runs are not done; failed: b (no room); start the same command again'
    """
    left = [x for x in records.values() if x.state != DONE]
    failed = [f"{k} ({x.error})" for k, x in records.items() if x.state == FAILED]
    parts = [f"{len(left)} of {len(records)} runs are not done"]
    parts += [f"failed: {'; '.join(failed)}"] if failed else []
    return "; ".join([*parts, "start the same command again"]) if left else ""


def read(plan: Plan, folder: Path) -> dict[str, Record]:
    """Return what is known of each run, from its folder and from an earlier command."""
    old = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads((folder / RECORDS).read_text("utf-8"))
        old = {x["name"]: x for x in stored["runs"]}
    found = {}
    for run in plan.runs:
        listed = old.get(run.name, {})
        found[run.name] = record = Record(seconds=listed.get("seconds"))
        error = listed.get("error", "")
        if run.report:
            record.state = DONE
        elif error and error != _because_of(run):  # what else is listed may be too old
            record.state, record.error = FAILED, error
    return found


def write(plan: Plan, folder: Path, records: Mapping[str, Record]) -> None:
    """Write the list of runs, for other programs to read."""
    listed = [describe(plan, run) | asdict(records[run.name]) for run in plan.runs]
    text = json.dumps({"base": plan.base, "runs": listed}, indent=1)
    with files.replacing(folder / RECORDS) as part:
        part.write_text(text + "\n", encoding="utf-8")


def describe(plan: Plan, run: Run) -> dict[str, Any]:
    """Return what the list of runs says of a run, besides its record."""
    digest = runs.manifest(run.workdir).get(runs.CONFIG_HASH)
    return {
        "name": run.name,
        "setting": run.setting.name,
        "seed": run.seed if run.setting.is_trained else None,
        "after": run.after or None,
        "config": run.setting.config,
        "changes": {
            key: {"base": old, "here": new}
            for key, (old, new) in plan.changes(run.setting.name).items()
        },
        runs.CONFIG_HASH: digest or config.config_hash(run.config),
        "report": run.report.as_posix() if run.report else None,
    }


class _Child:
    """Runs processes, and passes on to them that this command is to stop."""

    def __init__(self):
        self.stopped = False
        self._process: subprocess.Popen | None = None

    def __enter__(self):
        names = (signal.SIGTERM, signal.SIGINT)
        self._old = {name: signal.signal(name, self._stop) for name in names}
        return self

    def __exit__(self, *_):
        for name, old in self._old.items():
            signal.signal(name, old)

    def run(self, run: Run, lock: int, until: float | None) -> int:
        """Execute a run, and return the exit code of its process."""
        run.workdir.mkdir(parents=True, exist_ok=True)
        with (run.workdir / LOG).open("a", encoding="utf-8") as log:
            # In a group of its own, so that Ctrl-C reaches it through us, as SIGTERM.
            # It holds the lock too, in case we are killed and it is not.
            self._process = process = subprocess.Popen(
                command(run),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                pass_fds=[lock],
            )
        if self.stopped:  # the signal came before there was a process
            process.terminate()
        try:
            return process.wait(until and max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.terminate()
            return process.wait()

    def _stop(self, *_):
        process = self._process
        if process and process.poll() is None:
            if self.stopped:  # asked twice: do not wait for it to save
                process.kill()
            else:
                process.terminate()
        self.stopped = True


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Wait until no other process is at work in a folder; yield the file of the lock.

    If an earlier command was killed, the run that it had started may still be at work.
    """
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{folder}: waiting for another command, or a run that one started")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _because_of(run: Run) -> str:
    return f"{run.after}, which it starts from, failed"


def _say(text: str) -> None:
    print(text, flush=True)


def _last_line(run: Run, code: int) -> str:
    """Return why a run has failed, in one line."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    text = (run.workdir / LOG).read_text("utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removesuffix(cli.HINT) if lines else f"exit code {code}"
