"""The page of a sweep: one paired table, each scenario, and how the settings differ.

Success is that of solvable tasks and refusals are of unsolvable ones; no number is a
mean over both. The page depends on the reports of the runs alone, so that a sweep that
was interrupted has the page of one that was not.
"""

import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from launch.common import runs
from launch.common.errors import UsageError
from launch.sweeps.plans import Plan
from openagent_jax import report
from openagent_jax.report import intervals, multiple, outcomes, rows
from openagent_jax.report.outcomes import Json
from openagent_jax.report.rows import label
from openagent_jax.report.tables import align, percent

CLEAN, PERTURBED = "clean", "perturbed"
# Columns besides success in each tier: heading, rows, rate.
REFUSALS = (
    ("unsolvable refused", PERTURBED, "refusal_rate"),
    ("false refusals, clean", CLEAN, "false_refusal_rate"),
    ("false refusals, perturbed", PERTURBED, "false_refusal_rate"),
)
NOTE = """\
Success is that of solvable tasks, and refusals are of unsolvable ones; false refusals
are of solvable ones. A column is the mean over its scenarios. Brackets hold intervals
of 95 % over tasks, those that are worded alike taken together, and over seeds if there
are several. Differences are paired: of the same tasks and the same seeds. A star marks
those that hold at 5 % after Holm's correction over all differences of the table. A
setting of one seed has no intervals beside others of several."""


Pair = tuple[intervals.Outcomes, intervals.Outcomes]


@dataclass(frozen=True)
class Column:
    """A rate of some rows of a report."""

    heading: str
    rows: str  # a tier, "perturbed", or a scenario
    rate: str

    def outcomes(self, one: Json) -> intervals.Outcomes | None:
        """Return what the rate is the mean of; None if there is nothing to count."""
        return outcomes.of_rows(self.of(one), one.get("phrasings"), self.rate)

    def pair(self, new: Json, old: Json) -> Pair | None:
        """Return the outcomes of two reports on the same tasks; None without any."""
        others = {label(r): r for r in old["rows"]}
        found = [r for r in self.of(new) if label(r) in others]
        olds = [others[label(r)] for r in found]
        return outcomes.pairs(found, olds, new.get("phrasings"), self.rate)

    def of(self, one: Json) -> list[Json]:
        """Return the rows of a report that the rate is the mean of."""
        return [r for r in one["rows"] if self.rows in _groups(r)]


class Difference(NamedTuple):
    """A difference from the base."""

    interval: intervals.Interval
    p: float  # adjusted over all differences of the table

    @property
    def text(self) -> str:
        """The interval in points, with a star if it holds."""
        star = "*" if self.p <= intervals.ALPHA else ""
        return percent(self.interval, "+") + star


def _bare(interval: intervals.Interval) -> intervals.Interval:
    """Return an interval without its ends, which one seed of several cannot tell."""
    return {**interval, "low": None, "high": None}


Rates = Mapping[Column, Mapping[str, intervals.Interval | None]]


@dataclass(frozen=True, eq=False)
class Results:
    """The reports of a sweep, of those runs that have ended."""

    plan: Plan
    reports: Mapping[str, Mapping[int, Json]]  # by setting and seed

    @cached_property
    def pooled(self) -> dict[str, Json]:
        """The report of each setting over its seeds."""
        return {name: self._pool(name, some) for name, some in self.reports.items()}

    @property
    def bare(self) -> set[str]:
        """The settings of one seed, if others have several: they have no intervals."""
        sizes = {name: len(some) for name, some in self.reports.items()}
        return {name for name, num in sizes.items() if num == 1 < max(sizes.values())}

    @cached_property
    def rates(self) -> Rates:
        """Each column of the table, with the rate of each setting."""
        tiers = {r["tier"] for one in self.pooled.values() for r in one["rows"]}
        columns = [Column(x, x, "solved") for x in report.TIERS if x in tiers]
        return self._rates([*columns, *(Column(*x) for x in REFUSALS)])

    @cached_property
    def scenarios(self) -> Rates:
        """Each scenario, with the rate of each setting."""
        first = next(iter(self.pooled.values()))["rows"]
        return self._rates(
            Column(f"{name}{text}", f" {name}", rate)
            for name in dict.fromkeys(r["scenario"] for r in first)
            for text, rate in (("", "solved"), (", refused", "refusal_rate"))
        )

    @cached_property
    def differences(self) -> dict[str, dict[Column, Difference]]:
        """By how much the rates of each setting differ from those of the base."""
        found = {
            (name, column): pair
            for name in self.reports
            for column in self.rates
            if name != self.plan.base and self.plan.base in self.reports
            if (pair := self._pair(name, column))
        }
        adjusted = multiple.holm([multiple.p_value(*pair) for pair in found.values()])
        made: dict[str, dict[Column, Difference]] = {}
        several = max((new.num_seeds for new, _ in found.values()), default=1) > 1
        for (name, column), p in zip(found, adjusted, strict=True):
            pair = found[name, column]
            difference = intervals.difference(*pair)
            if several and pair[0].num_seeds == 1:
                difference, p = _bare(difference), 1.0
            made.setdefault(name, {})[column] = Difference(difference, p)
        return made

    def _pair(self, setting: str, column: Column) -> Pair | None:
        """Return the outcomes of a setting and of the base.

        They are of the seeds that both have. A model that is not trained stands beside
        each seed of the other.
        """
        pair = setting, self.plan.base
        trained = [x for x in pair if self.plan.settings[x].is_trained] or pair
        seeds = [
            seed
            for seed in self.reports[trained[0]]
            if all(seed in self.reports[x] for x in trained)
        ]
        if not seeds:
            return None
        return column.pair(*(self._pool(x, seeds) for x in pair))

    def _rates(self, columns: Iterable[Column]) -> Rates:
        """Return the columns in which something is counted."""
        made = {}
        for column in columns:
            found = {name: column.outcomes(one) for name, one in self.pooled.items()}
            if any(found.values()):
                rates = {k: x and intervals.rate(x) for k, x in found.items()}
                made[column] = {
                    k: _bare(x) if x and k in self.bare else x for k, x in rates.items()
                }
        return made

    def _pool(self, setting: str, seeds: Collection[int]) -> Json:
        some = self.reports[setting]
        if not self.plan.settings[setting].is_trained:
            (only,) = some.values()
            only = {k: x for k, x in only.items() if k != "train_seed"}
            some = dict.fromkeys(seeds, only)
        return report.pool({f"{setting}_{seed}": some[seed] for seed in seeds})


def load(plan: Plan) -> Results:
    """Read the reports of the runs that have ended.

    Raises:
      UsageError: they cannot be compared; the message names runs and what differs.
    """
    reports: dict[str, dict[int, Json]] = {}
    every: dict[str, Json] = {}
    for run in plan.runs:
        if file := run.report:
            every[run.name] = one = report.load(file)
            reports.setdefault(run.setting.name, {})[run.seed] = one
    if found := report.differences(every):
        raise UsageError(
            f"the reports of these runs cannot be compared: {found}; run those that "
            "are out of date again, in another --workdir"
        )
    ordered = {name: reports[name] for name in plan.settings if name in reports}
    return Results(plan, ordered)


def table(results: Results) -> str:
    """Return the paired table, as text that Markdown and a terminal show alike."""
    plan, rates = results.plan, results.rates
    lines = [["%", "seeds", "tokens", *(x.heading for x in rates)]]
    for name, some in results.reports.items():
        num, planned = len(some), len(plan.of(name))
        lines.append(
            [
                _title(plan, name),
                f"{num}" if num == planned else f"{num} of {planned}",
                _tokens(plan, name),
                *(percent(x[name]) for x in rates.values()),
            ]
        )
    parts = [align(lines, 1, markdown=True)]
    if results.differences:
        lines = [[f"points from {_title(plan, plan.base)}", *lines[0][3:]]]
        for name, found in results.differences.items():
            texts = (found[x].text if x in found else "-" for x in rates)
            lines.append([_title(plan, name), *texts])
        parts.append(align(lines, 1, markdown=True))
    return "\n\n".join(parts)


def page(results: Results, about: str, figure: str, folder: Path) -> str:
    """Return the page of a sweep in Markdown.

    Args:
      results: the reports.
      about: what the sweep is, with a title in the first line.
      figure: the name of the file with the figure.
      folder: the folder of the page, for links to the reports of the runs.
    """
    plan = results.plan
    title, _, text = inspect.cleandoc(about).partition("\n")
    lines = [f"# {title.rstrip('.')}", ""]
    lines += [text.strip("\n"), ""] if text.strip() else []
    pooled = {_title(plan, name): one for name, one in results.pooled.items()}
    trained = {
        _title(plan, name): one
        for name, one in results.pooled.items()
        if plan.settings[name].is_trained
    }
    if why := report.exploratory(trained):
        lines += [f"**{why.replace(':', '**:', 1)}", ""]
    lines += ["## Table", "", table(results), "", NOTE, ""]
    if left := [_title(plan, x) for x in plan.settings if x not in results.reports]:
        lines += [f"Not run yet: {', '.join(left)}.", ""]
    lines += [f"![The table as a figure]({figure})", ""]
    scenarios = [
        [x.heading, *map(percent, rates.values())]
        for x, rates in results.scenarios.items()
    ]
    lines += [
        "## Each scenario",
        "",
        align([["%", *pooled], *scenarios], 1, markdown=True),
        "",
    ]
    lines += ["What the scenarios claim after the training of each setting:", ""]
    lines += [*_claims(results), "", "## Settings", "", _settings(plan, folder)]
    return "\n".join(lines) + "\n"


def differences(plan: Plan, setting: str) -> str:
    """Say in one line in what a setting differs from the base."""
    one = plan.settings[setting]
    texts = [
        f"{key} {_value(old)} -> {_value(new)}"
        for key, (old, new) in plan.changes(setting).items()
    ]
    if not one.is_trained:
        texts = ["not trained"]
    if one.after:
        texts.insert(0, f"after {_title(plan, one.after)}")
    return ", ".join(texts) or ("the base" if setting == plan.base else "nothing")


def _claims(results: Results) -> Iterable[str]:
    """Yield a line for the settings whose scenarios claim the same."""
    found: dict[str, list[str]] = {}
    for name, one in results.pooled.items():
        groups = rows.by_claim(r for r in one["rows"] if r["tier"] != CLEAN)
        texts = (
            f"{claim.replace('_', ' ')}: {', '.join(r['scenario'] for r in some)}"
            for claim, some in groups.items()
            if some
        )
        text = "; ".join(texts) or "nothing"
        found.setdefault(text, []).append(_title(results.plan, name))
    return (f"* **{', '.join(names)}**: {text}." for text, names in found.items())


def _settings(plan: Plan, folder: Path) -> str:
    """Return a table of the settings, with links to the reports of their seeds."""
    base = _title(plan, plan.base)
    lines = [["setting", "config", f"differs from {base} in", "report of seed"]]
    for name, one in plan.settings.items():
        pages = []
        for run in plan.of(name):
            if run.report:
                file = run.report.with_name("report.html").relative_to(folder)
                pages.append(f"[{run.seed}]({file.as_posix()})")
        about = one.config, differences(plan, name), " ".join(pages)
        lines.append([_title(plan, name), *about])
    return align(lines, 4, markdown=True)


def _groups(r: Json) -> set[str]:
    """Return the groups of a row: its tier, its scenario, and whether it is clean."""
    clean = r["tier"] == CLEAN
    return {r["tier"], f" {r['scenario']}", CLEAN if clean else PERTURBED}


def _title(plan: Plan, setting: str) -> str:
    return plan.settings[setting].title or setting


def _tokens(plan: Plan, setting: str) -> str:
    """Return the mean number of tokens of the runs of a setting and those before."""
    by_name = {run.name: run for run in plan.runs}
    totals = []
    for run in plan.of(setting):
        total, at = 0, run if run.report else None
        while at and run.setting.is_trained:
            total += runs.manifest(at.workdir)["ended"]["num_tokens"]
            at = by_name.get(at.after)
        if run.report:
            totals.append(total)
    return f"{sum(totals) / len(totals):,.0f}"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(str, value)) + ")"
    return str(value) if value != "" else '""'
