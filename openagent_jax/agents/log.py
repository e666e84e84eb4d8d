"""The log of an evaluation by messages: every episode that is over.

An evaluation that was stopped continues from its log. It then plays again the episodes
in which a reply never came.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from openagent_jax import report
from openagent_jax.agents.cost import Cost
from openagent_jax.report import trajectories

Line = dict[str, Any]  # an episode, with the keys that `report.trajectories` describes
Reused = Set[tuple[str, int]]  # scenario and index of episodes
_FIELDS = {  # the fields of `report.Episodes`
    "success": bool,
    "solvable": bool,
    "refused": bool,
    "num_calls": int,
    "num_errors": int,
    "num_needless_questions": int,
    "fewest_calls": int,
    "task": int,
    "phrasing": int,
    "changed": bool,
    "answered": bool,
}


class Log:
    """A file of JSON lines: first what is evaluated, then the episodes that are over.

    `done` has the fields of each episode that a report needs, by scenario and index.
    `cost` is what all lines together have cost.

    Raises:
      ValueError: the file belongs to another evaluation, or is damaged.
      OSError: it cannot be written, or another evaluation is writing it.
    """

    def __init__(self, file: Path, about: dict[str, Any]):
        """
        Args:
          file: the path of the log, which is created if it does not exist.
          about: the settings of the evaluation. An existing log must have the same.
        """
        self.done: dict[tuple[str, int], Line] = {}
        self.cost = Cost()
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("a+b")
        try:
            _lock(self._file)
            self._read(file, about)
        except BaseException:
            self._file.close()
            raise

    def add(self, outcome: Line) -> None:
        self._write(outcome)
        self._keep(outcome)

    def close(self) -> None:
        self._file.close()

    def unanswered(self) -> dict[str, int]:
        """Count the episodes that were never answered, by the reason."""
        lines = self.done.values()
        found = Counter(x["reason"] for x in lines if not x["answered"])
        return dict(found.most_common())

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
        self._file.write(text.encode(errors="replace") + b"\n")
        self._file.flush()

    def _keep(self, outcome: Line) -> None:
        """Keep the fields that a report needs, and no others, to save memory."""
        where = outcome["scenario"], outcome["index"]
        kept = {field: outcome[field] for field in _FIELDS}
        kept |= {"reason": outcome.get("reason", "")}
        self.cost.add(outcome)
        if kept["answered"] or where not in self.done:
            self.done[where] = kept

    def _read(self, file: Path, about: dict[str, Any]) -> None:
        self._file.seek(0)
        size = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break  # the evaluation was stopped while writing this line
            size += len(line)
            try:
                found = json.loads(line.decode())
                if number == 1:
                    theirs = dict(found["evaluation"])
                else:
                    self._keep(found)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{file}: line {number} is not a line of this log ({error!r}); "
                    "correct or remove it, or use another --workdir"
                ) from None
            if number == 1:
                _compare(file, about, theirs)
        self._file.truncate(size)
        self._file.seek(size)
        if not size:
            self._write({"evaluation": about})

    def episodes(self, name: str, num: int) -> Iterator[Line]:
        """Yield episodes 0 to num - 1 of a scenario, in order.

        If the log has several lines of an episode, the last one counts, except that an
        unanswered one never replaces another.
        """
        self._file.flush()
        found: dict[int, bytes] = {}
        with open(self._file.name, "rb") as file:
            for line in file:
                # A cheap test first, since most lines may be of other scenarios.
                if f'"scenario": "{name}"'.encode() not in line:
                    continue
                episode = json.loads(line)
                if episode.get("scenario") == name and episode["index"] < num:
                    kept = found.get(episode["index"])
                    if kept is None or episode["answered"]:
                        found[episode["index"]] = line
        for index in sorted(found):
            yield json.loads(found[index])


def scored(
    log: Log, names: Sequence[str], num: int, reused: Reused = frozenset()
) -> dict[str, report.Episodes]:
    """Return the outcomes of each scenario.

    Args:
      log: the log, which must have all of the episodes.
      names: the names of the scenarios, the clean one first.
      num: the number of episodes of each scenario.
      reused: the episodes that have the outcome of the clean one, because the scenario
        left their task as it was.
    """
    made = {}
    for name in names:
        found = [
            log.done[names[0], i] | {"changed": False}
            if (name, i) in reused
            else log.done[name, i]
            for i in range(num)
        ]
        columns = {
            field: np.array([outcome[field] for outcome in found], kind)
            for field, kind in _FIELDS.items()
        }
        made[name] = report.Episodes(**columns)
    return made


def keep(
    log: Log,
    folder: Path,
    names: Sequence[str],
    num: int,
    reused: Reused = frozenset(),
) -> None:
    """Write the first `num` episodes of each scenario to a report's `trajectories`.

    They replace the episodes of an earlier evaluation.

    Args:
      log: the log of the episodes.
      folder: the folder of the report.
      names: the names of the scenarios, the clean one first.
      num: how many episodes of each scenario to write; 0 writes none.
      reused: as for `scored`; these are the clean ones, marked as `reused`.
    """
    names = list(names) if num else []
    trajectories.clear(folder / trajectories.FOLDER, names)
    for name in names:
        lines = {line["index"]: line for line in log.episodes(name, num)}
        if any(scenario == name for scenario, _ in reused):
            for line in log.episodes(names[0], num):
                if (name, line["index"]) in reused:
                    marks = {"scenario": name, "changed": False, "reused": True}
                    lines[line["index"]] = line | marks
        ordered = (lines[i] for i in sorted(lines))
        trajectories.write(folder / trajectories.FOLDER, name, ordered)


def _compare(file: Path, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for key, value in ours.items():
        if theirs.get(key) != value:
            raise ValueError(
                f"{file} belongs to another evaluation: {key} was {theirs.get(key)!r} "
                f"and is now {value!r}; use another --workdir, or remove the file"
            )


def _lock(file: Any) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OSError(f"{file.name}: another evaluation is writing it") from None
