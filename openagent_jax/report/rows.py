"""Compute the rows of a report from episodes, and means and medians from rows.

A row describes one scenario at one strength, over the tasks that the scenario changed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Int

from openagent_jax.report import intervals

Json = dict[str, Any]
TIERS = ("clean", "perception", "interaction", "reasoning", "internalization")
# The rates that summaries average and tables show.
RATES = ("refusal_rate", "false_refusal_rate", "tool_error_rate", "recovery_rate")
# The keys that say how a report was made, with the values that are assumed for a report
# that lacks them. Reports that differ in any of them cannot be compared.
SETUP = {
    "suite": "unknown",
    "split": "unknown",
    "num_tasks": "unknown",
    "seed": "unknown",
    "grading_version": "unknown",
    "temperature": 0.0,
}


class Scenario(Protocol):
    """What a row takes from its perturbation; catalogue entries have these fields."""

    @property
    def name(self) -> str: ...

    @property
    def tier(self) -> str: ...

    @property
    def shift(self) -> str: ...

    @property
    def family(self) -> str: ...


@dataclass(frozen=True)
class Episodes:
    """The outcomes of one episode for each of n tasks.

    Every scenario plays the same tasks in the same order.

    Raises:
      ValueError: a flag is not boolean.
    """

    success: Bool[np.ndarray, "n"]
    solvable: Bool[np.ndarray, "n"]
    refused: Bool[np.ndarray, "n"]
    num_calls: Int[np.ndarray, "n"]
    num_errors: Int[np.ndarray, "n"]  # calls that were answered by an error
    fewest_calls: Int[np.ndarray, "n"]  # the number of calls that the oracle needs
    changed: Bool[np.ndarray, "n"]  # whether the perturbation changed this task
    # False if a reply of a remote agent never came. This does not count as a failure.
    answered: Bool[np.ndarray, "n"]

    def __post_init__(self):
        for name in ("success", "solvable", "refused", "changed", "answered"):
            if getattr(self, name).dtype != bool:  # partial success does not exist
                raise ValueError(f"{name} is not boolean")


def row(
    entry: Scenario | None,
    strength: float,
    episodes: Episodes,
    clean: Episodes,
    split: str = "test",
) -> Json:
    """Compute one row of `report.json`.

    Args:
      entry: the catalogue entry of the perturbation; None makes the row of the clean
        tasks.
      strength: the strength of the perturbation, in [0, 1].
      episodes: the episodes of this scenario.
      clean: the episodes of the same n tasks without a perturbation.
      split: the split that the tasks come from, which determines the family of the
        clean row.

    Returns:
      The row. Rates are fractions, or None where nothing was counted.

    Raises:
      ValueError: `episodes` and `clean` have different numbers of tasks.
    """
    if len(episodes.success) != len(clean.success):
        raise ValueError("the clean episodes are not of the same tasks")
    counted = episodes.changed | (entry is None)
    unanswered = counted & ~episodes.answered
    counted &= episodes.answered
    pairs = counted & clean.answered
    e = Episodes(**{name: x[counted] for name, x in vars(episodes).items()})
    no_change = dict.fromkeys(intervals.PARTS, 0.0 if counted.any() else None)
    solved = e.success & e.solvable & (e.fewest_calls > 0)
    num_calls = int(e.num_calls.sum())
    # Clean tasks have no perturbation, so their family follows from the split.
    family = "train" if split == "train" else "held_out"
    return {
        "tier": entry.tier if entry else "clean",
        "shift": entry.shift if entry else "none",
        "scenario": entry.name if entry else "clean",
        "strength": float(strength),
        "family": entry.family if entry else family,
        "n": len(e.success),
        "success": intervals.wilson(int(e.success.sum()), len(e.success)),
        "delta": intervals.newcombe(episodes.success[pairs], clean.success[pairs])
        if entry
        else no_change,
        "tool_error_rate": int(e.num_errors.sum()) / num_calls if num_calls else None,
        "recovery_rate": _mean(e.success[e.solvable & (e.num_errors > 0)]),
        "refusal_rate": _mean(e.refused[~e.solvable]),
        "false_refusal_rate": _mean(e.refused[e.solvable]),
        "chain_length_ratio": _mean(e.num_calls[solved] / e.fewest_calls[solved]),
        **({"unanswered": int(unanswered.sum())} if unanswered.any() else {}),
    }


def summary(rows: Iterable[Json]) -> dict[str, Json]:
    """Average rows over scenarios, by group.

    Each scenario has the same weight, whatever its number of tasks. Scenarios that
    changed no task (n = 0) are left out.

    Returns:
      The means of each tier, of all perturbed rows ("perturbed"), and of those whose
      family is "train" or "held_out". Each has `num_scenarios`, `success`, `delta` and
      the rates.

    >>> row = {"tier": "perception", "scenario": "tool_order", "family": "train"}
    >>> row |= {"n": 8, "success": {"mean": 0.5}, "delta": {"mean": -0.25}}
    >>> means = summary([row | dict.fromkeys(RATES)])
    >>> means["perturbed"]["success"], means["held_out"]["success"]
    (0.5, None)
    """
    rows = list(rows)
    perturbed = [r for r in rows if r["tier"] != "clean"]
    groups = by_tier(rows) | {"perturbed": perturbed}
    for family in ("train", "held_out"):
        groups[family] = [r for r in perturbed if r["family"] == family]
    return {name: means(group) for name, group in groups.items()}


def means(rows: Sequence[Json]) -> Json:
    """Average one group of rows over its scenarios, as `summary` does."""
    names = dict.fromkeys(r["scenario"] for r in rows if r["n"])
    averages: Json = {"num_scenarios": len(names)}
    for key in ("success", "delta", *RATES):
        # A scenario that was played at several strengths is averaged over them first.
        groups = ([r[key] for r in rows if r["scenario"] == x] for x in names)
        averages[key] = _mean(map(_mean, groups))
    return averages


def by_tier(rows: Iterable[Json]) -> dict[str, list[Json]]:
    """Group rows by tier: first those of `TIERS` in their order, then any others."""
    groups: dict[str, list[Json]] = {tier: [] for tier in TIERS}
    for r in rows:
        groups.setdefault(r["tier"], []).append(r)
    return {tier: rows for tier, rows in groups.items() if rows}


def label(r: Json) -> str:
    """Return the label of a row: its scenario, and its strength unless that is 1."""
    strength = "" if r["strength"] == 1 else f" at {r['strength']:g}"
    return "clean" if r["tier"] == "clean" else f"  {r['scenario']}{strength}"


def median(reports: Sequence[Json]) -> Json:
    """Combine several runs on the same tasks into one report of medians.

    Each number has its own median: the median success and the median refusal rate may
    come from different runs. An interval is that of the run with the median mean. For
    an even number of runs the lower of the two middle values is taken, so that every
    number is one that was measured.

    Raises:
      ValueError: the runs do not have the same tasks and scenarios.
    """
    first, *others = reports
    labels = [label(r) for r in first["rows"]]
    for report in others:
        same = [report.get(k, x) == first.get(k, x) for k, x in SETUP.items()]
        if not all(same) or [label(r) for r in report["rows"]] != labels:
            raise ValueError(
                "a median needs runs that were evaluated alike, on the same tasks and "
                "scenarios"
            )
    rows = []
    for runs in zip(*(report["rows"] for report in reports), strict=True):
        names = dict.fromkeys(name for run in runs for name in run)
        # Only a row where episodes were never answered has their number.
        columns = {
            name: [r.get(name, 0 if name == "unanswered" else None) for r in runs]
            for name in names
        }
        rows.append({name: _middle(values) for name, values in columns.items()})
    return {**first, "rows": rows}


def _middle(values: Sequence[Any]) -> Any:
    """Return the median of numbers or intervals; of other values, the first."""
    measured = [(x["mean"] if isinstance(x, dict) else x, x) for x in values]
    measured = [pair for pair in measured if isinstance(pair[0], int | float)]
    if not measured:
        return values[0]
    return sorted(measured, key=lambda pair: pair[0])[(len(measured) - 1) // 2][1]


def _mean(values: Iterable[Any]) -> float | None:
    """Average numbers or the means of intervals, leaving out None."""
    values = [x["mean"] if isinstance(x, dict) else x for x in values]
    values = [float(x) for x in values if x is not None]
    # From Python 3.12 on `sum` rounds differently, and tests compare tables exactly.
    return math.fsum(values) / len(values) if values else None
