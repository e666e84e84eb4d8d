"""What the page shows of each column: its report, its means, its episodes."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from openagent_jax.report import multiple, pool, viewer
from openagent_jax.report.outcomes import Json
from openagent_jax.report.rows import average, by_seed, label, on_solvable, summary
from openagent_jax.report.web import failures
from openagent_jax.report.web.charts import Point

AGENT = "agent"  # a key of reports of agents that are reached by messages


class Column(NamedTuple):
    """One or several runs that are shown together."""

    report: Json  # of several runs: what `pool` returned
    folders: Sequence[pathlib.Path] = ()  # of the evaluations, for their episodes


@dataclass(frozen=True)
class View:
    """A column of the page."""

    name: str
    style: int  # index of its colour and marker
    report: Json  # what is shown: success is of tasks that can be solved
    whole: Json  # with every outcome and interval
    shared: frozenset[str]  # labels of the rows that every column has
    counts: Mapping[str, failures.Counts]  # by scenario
    runs: Sequence[str]  # how the viewer of episodes names them

    @property
    def num_seeds(self) -> int:
        return self.report.get("num_seeds", 1)

    @property
    def is_agent(self) -> bool:
        """Whether it is reached by messages, so that it has no steps of training."""
        return AGENT in self.report

    @cached_property
    def rows(self) -> dict[str, Json]:
        """The rows by their label."""
        return {label(r): r for r in self.report["rows"]}

    @cached_property
    def means(self) -> dict[str, Json]:
        """Means over the rows that every column has; see `rows.summary`."""
        rows = [r for k, r in self.rows.items() if k in self.shared]
        return summary(rows, self.report.get("phrasings"))

    def mean(self, group: str, key: str) -> Any:
        return self.means[group][key] if group in self.means else None

    def seeds(self, group: Iterable[Json], key: str) -> list[float]:
        """Return the mean of each seed; nothing if there is only one."""
        return by_seed(list(group), key)

    def point(self, value: Any, seeds: Sequence[float] = ()) -> Point | None:
        """Return a rate as a point of a chart; None if there is no value."""
        if value is None or isinstance(value, Mapping) and value["mean"] is None:
            return None
        if not isinstance(value, Mapping):
            return Point(value, seeds=seeds, style=self.style)
        return Point(value["mean"], value["low"], value["high"], seeds, self.style)

    def group(self, name: str) -> list[Json]:
        """Return the shared rows of a tier, or all "perturbed" ones."""
        rows = [r for k, r in self.rows.items() if k in self.shared]
        if name == "perturbed":
            return [r for r in rows if r["tier"] != "clean"]
        return [r for r in rows if r["tier"] == name]


def of(columns: Mapping[str, Column]) -> tuple[list[View], list[str]]:
    """Return the views of columns, and notes on episodes that cannot be read."""
    reports = {name: on_solvable(x.report) for name, x in columns.items()}
    reports = pool.beside(reports)
    counted = [{label(r) for r in x["rows"] if r["n"]} for x in reports.values()]
    shared = frozenset(set.intersection(*counted)) if counted else frozenset()
    runs = viewer.names({name: x.folders for name, x in columns.items()})
    made, notes = [], []
    for i, (name, column) in enumerate(columns.items()):
        counts, lost = failures.of_folders(column.folders)
        notes += lost
        whole = column.report
        made.append(View(name, i, reports[name], whole, shared, counts, runs[name]))
    return made, notes


def confusion(view: View, clean: bool) -> dict[str, dict[str, int]]:
    """Count how episodes end, for tasks that can be solved and for others.

    Args:
      view: the column.
      clean: whether to count the clean tasks, or all perturbed ones.

    Returns:
      `refused`, `solved` and `failed` of `solvable` and of `unsolvable` tasks; {} if
      the report does not have the outcomes of its tasks.
    """
    # The report that is shown has no outcomes of one run beside several seeds.
    rows = [r for r in view.whole["rows"] if (r["tier"] == "clean") == clean]
    if not rows or any("outcomes" not in r for r in rows):
        return {}
    texts = [x for r in rows for x in _texts(r["outcomes"])]
    text = "".join(texts)

    def num(letters: str) -> int:
        return sum(map(text.count, letters))

    return {
        "solvable": {"refused": num("r"), "solved": num("1"), "failed": num("0")},
        "unsolvable": {"refused": num("R"), "solved": num("s"), "failed": num("x")},
    }


def _texts(found: str | Sequence[str]) -> Sequence[str]:
    return [found] if isinstance(found, str) else found


class Difference(NamedTuple):
    """By how much the success of a column is above that of another, in one row."""

    value: Any  # an interval, or a number where the tasks cannot be paired
    holds: bool = False  # after Holm's correction over the rows of the column


def differences(view: View, base: View) -> dict[str, Difference]:
    """Compare a column with another on tasks that can be solved.

    Returns:
      The differences by label, and last of the mean of the perturbed rows.
    """
    try:
        found = pool.between(view.whole, base.whole)
    except ValueError:  # other tasks, or other numbers of seeds
        found = []
    made = {
        x["label"]: Difference(x["difference"], multiple.significant(x["p"]))
        for x in found
    }
    if made:
        return made
    for key in view.shared:
        a, b = (x.rows[key]["success"]["mean"] for x in (view, base))
        if a is not None and b is not None:
            made[key.strip()] = Difference(a - b)
    a, b = (average([x.mean("perturbed", "success")]) for x in (view, base))
    if a is not None and b is not None:
        made[pool.MEAN] = Difference(a - b)
    return made
