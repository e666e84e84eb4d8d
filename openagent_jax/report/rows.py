"""Compute the rows of a report from episodes, and means over scenarios from rows.

A row describes one scenario at one strength, over the tasks that the scenario changed.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from jaxtyping import Bool, Int

from openagent_jax.report import intervals, multiple, outcomes
from openagent_jax.report.outcomes import Json
from openagent_jax.report.repeats import of_row

TIERS = ("clean", "perception", "interaction", "reasoning", "internalization")
# The rates that summaries average and tables show.
RATES = ("refusal_rate", "false_refusal_rate", "tool_error_rate", "recovery_rate")


class Scenario(Protocol):
    """What a row takes from its perturbation; catalogue entries have these fields."""

    @property
    def name(self) -> str: ...

    @property
    def tier(self) -> str: ...

    @property
    def shift(self) -> str: ...


Claim = Literal["unseen_forms", "unseen_kind", "entities", "held_out_domain"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)


class Standing(NamedTuple):
    """How the tasks of a row relate to what the policy was trained on."""

    family: str  # "train" if this kind of perturbation was trained on, or "held_out"
    claim: Claim | None  # None if nothing can be claimed
    domain: str  # the domain of the tasks, or a list of several


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
    num_needless_questions: Int[np.ndarray, "n"]  # whose answer was known
    fewest_calls: Int[np.ndarray, "n"]  # the number of calls that the oracle needs
    task: Int[np.ndarray, "n"]  # equal for equal tasks, which may be drawn repeatedly
    phrasing: Int[np.ndarray, "n"]  # equal for tasks whose requests are worded alike
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
    standing: Standing,
    repeats: int = 1,
    domains: Int[np.ndarray, "n"] | None = None,
) -> Json:
    """Compute one row of `report.json`.

    Args:
      entry: the catalogue entry of the perturbation; None makes the row of the clean
        tasks.
      strength: the strength of the perturbation, in [0, 1].
      episodes: the episodes of this scenario.
      clean: the episodes of the same n tasks without a perturbation.
      standing: how the row relates to what the policy was trained on.
      repeats: the number of consecutive episodes of each task, which are counted as
        outcomes of one task.
      domains: the domain of each task, if each domain is to weigh the same in success
        and delta.

    Returns:
      The row. Rates are fractions, or None where nothing was counted. A task that was
      drawn more than once counts once; n is the number of different tasks, before the
      perturbation, however often each was played. Intervals are clustered by the
      wording of the request, and so by task.

    Raises:
      ValueError: `episodes` and `clean` have different numbers of tasks.
    """
    if len(episodes.success) != len(clean.success):
        raise ValueError("the clean episodes are not of the same tasks")
    asked = episodes.changed | (entry is None)
    unanswered = asked & ~episodes.answered
    # A task is left out if it came before, unless that was another repeat of it.
    repeat = np.arange(len(asked)) % repeats
    tasks = episodes.task.astype(np.int64) * repeats + repeat
    counted = _first(tasks, asked & episodes.answered)
    pairs = counted & clean.answered
    e = Episodes(**{name: x[counted] for name, x in vars(episodes).items()})
    groups = [clean.phrasing]
    if reworded := not np.array_equal(_same(episodes.phrasing), _same(clean.phrasing)):
        groups.append(episodes.phrasing)

    def of(values, among):
        which = None if domains is None else domains[among]
        return intervals.of_one(values[among], [x[among] for x in groups], which)

    def mean(values, among):
        if domains is None:
            return float(values[among].mean())
        return float(intervals.domain_weights(domains[among])[0] @ values[among])

    no_change = dict.fromkeys(intervals.PARTS, 0.0 if counted.any() else None)
    nothing = dict.fromkeys(intervals.PARTS)
    success, delta = nothing, no_change if entry is None else nothing
    kept = nothing  # the retention
    if entry is None and counted.any():
        kept = dict.fromkeys(intervals.PARTS, 1.0)
    if counted.any():
        solved_rate = mean(episodes.success, counted)
        success = intervals.rate(of(episodes.success, counted)) | {"mean": solved_rate}
    if entry and pairs.any():
        new, old = episodes.success, clean.success
        both = of(new, pairs), of(old, pairs)
        delta = intervals.difference(*both)
        delta |= {"mean": mean(new, pairs) - mean(old, pairs)}
        kept = multiple.retention(*both)
    solved = e.success & e.solvable & (e.fewest_calls > 0)
    num_calls = int(e.num_calls.sum())
    made = {
        "tier": entry.tier if entry else "clean",
        "shift": entry.shift if entry else "none",
        "scenario": entry.name if entry else "clean",
        "strength": float(strength),
        **standing._asdict(),
        "n": len(np.unique(clean.task[counted])),
        "success": success,
        "delta": delta,
        "retention": kept,
        "tool_error_rate": int(e.num_errors.sum()) / num_calls if num_calls else None,
        "recovery_rate": average(e.success[e.solvable & (e.num_errors > 0)]),
        "refusal_rate": average(e.refused[~e.solvable]),
        "false_refusal_rate": average(e.refused[e.solvable]),
        "chain_length_ratio": average(e.num_calls[solved] / e.fewest_calls[solved]),
        "needless_questions": average(e.num_needless_questions),
        "outcomes": outcomes.encode(
            episodes.success,
            episodes.solvable,
            episodes.refused,
            counted | unanswered,
            episodes.answered,
        ),
        "tasks": digest(episodes.task),
        **({"phrasings": outcomes.number(episodes.phrasing)} if reworded else {}),
        **({} if domains is None else {"domains": outcomes.number(domains)}),
        **({"unanswered": int(unanswered.sum())} if unanswered.any() else {}),
    }
    return made | of_row(made, repeats, outcomes.number(clean.phrasing))


def digest(tasks: Int[np.ndarray, "n"]) -> str:
    """Return a digest of tasks, by which runs on the same tasks are recognised."""
    data = np.ascontiguousarray(tasks, np.int64).tobytes()
    return hashlib.sha256(data).hexdigest()[:8]


def _first(tasks: Int[np.ndarray, "n"], among: Bool[np.ndarray, "n"]) -> np.ndarray:
    """Return which tasks occur for the first time among the given ones."""
    where = np.flatnonzero(among)
    _, first = np.unique(tasks[where], return_index=True)
    found = np.zeros(len(tasks), bool)
    found[where[first]] = True
    return found


def _same(groups: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """Number groups, so that equal groupings are equal arrays."""
    _, first, index = np.unique(groups, return_index=True, return_inverse=True)
    return first[index]


def summary(rows: Iterable[Json], phrasings: str | None = None) -> dict[str, Json]:
    """Average rows over scenarios, by group.

    Each scenario has the same weight, whatever its number of tasks. Scenarios that
    changed no task (n = 0) are left out. Success and delta are of tasks that can be
    solved (see `on_solvable`), and refusals of tasks that cannot are a rate apart.

    Args:
      rows: the rows of one report, possibly of several seeds.
      phrasings: the `phrasings` of the report, for the intervals.

    Returns:
      The means of each tier, of all perturbed rows ("perturbed"), and of those with the
      same claim (see `by_claim`). Each has `success`, `delta`, the rates, and how many
      scenarios there are: `num_scenarios`, `num_solvable` with tasks that can be
      solved, and `num_unsolvable` with others. Success, delta, and the rates of
      refusals are intervals where the rows have the outcomes of their tasks, else
      numbers. `retention` is the ratio of the means, not a mean of ratios; None where
      outcomes are missing.

    >>> row = {"tier": "perception", "scenario": "tool_order", "family": "train"}
    >>> row |= {"shift": "action", "claim": "unseen_forms", "domain": "poi"}
    >>> row |= {"n": 8, "success": {"mean": 0.5}, "delta": {"mean": -0.25}}
    >>> means = summary([row | dict.fromkeys(RATES)])
    >>> means["perturbed"]["success"], means["unseen_kind"]["success"]
    (0.5, None)
    """
    rows = list(rows)
    perturbed = [r for r in rows if r["tier"] != "clean"]
    clean = next((r for r in rows if r["tier"] == "clean"), None)
    groups = by_tier(rows) | {"perturbed": perturbed} | by_claim(perturbed)
    return {name: means(group, clean, phrasings) for name, group in groups.items()}


def means(
    rows: Sequence[Json], clean: Json | None = None, phrasings: str | None = None
) -> Json:
    """Average one group of rows over its scenarios, as `summary` does."""
    rows = [_on_solvable(r, clean, phrasings) for r in rows if r["n"]]
    solvable = [r for r in rows if r["success"]["mean"] is not None]
    unsolvable = [r for r in rows if r["refusal_rate"] is not None]
    averages: Json = {
        "num_scenarios": len({r["scenario"] for r in rows}),
        "num_solvable": len({r["scenario"] for r in solvable}),
        "num_unsolvable": len({r["scenario"] for r in unsolvable}),
        "retention": None,
    }
    for key in ("success", "delta", *RATES):
        averages[key] = mean = _over_scenarios(rows, key)
        if mean is None:
            continue
        found, rate = None, "solved" if key == "success" else key
        if rate in outcomes.RATES:
            cells = outcomes.of_rows(rows, phrasings, rate)
            found = intervals.rate(cells) if cells else None
        elif key == "delta" and all(r["tier"] != "clean" for r in rows):
            pairs = outcomes.pairs(rows, clean, phrasings, "solved")
            found = intervals.difference(*pairs) if pairs else None
            averages["retention"] = multiple.retention(*pairs) if pairs else None
        if not found and (rate in outcomes.RATES or key == "delta"):
            if known := by_seed(rows, key):
                size = max(r["n"] for r in rows)
                found = intervals.over_seeds(known, size, signed=key == "delta")
        if found:
            averages[key] = found | {"mean": mean}
    return averages


def on_solvable(report: Json) -> Json:
    """Return a report whose success is of the tasks that can be solved.

    In `report.json` success also counts refusals of tasks that cannot be solved. This
    is never what a page shows: an agent that refuses everything would look good.
    Success, delta and retention are None if a row has no task that can be solved, or if
    an earlier version did not record which of its tasks can be. Rows with tasks that
    cannot be solved have `refusal`, how often these were refused, as an interval if it
    is known.
    """
    clean = next((r for r in report["rows"] if r["tier"] == "clean"), None)
    phrasings = report.get("phrasings")
    rows = [_on_solvable(r, clean, phrasings) for r in report["rows"]]
    return {**report, "rows": rows}


def _on_solvable(r: Json, clean: Json | None, phrasings: str | None) -> Json:
    if r["refusal_rate"] is None or "refusal" in r:
        return r
    made = {**r, "success": dict.fromkeys(intervals.PARTS)}
    made["delta"] = made["retention"] = made["success"]
    if "runs" in r:
        olds = clean.get("runs", [None] * len(r["runs"])) if clean else ()
        each = zip(r["runs"], olds or [None] * len(r["runs"]), strict=True)
        made["runs"] = [_on_solvable(one, old, phrasings) for one, old in each]
    made["refusal"] = r["refusal_rate"]
    if refused := outcomes.of_rows([r], phrasings, "refusal_rate"):
        made["refusal"] = intervals.rate(refused)
    if r["false_refusal_rate"] is None:
        if "outcomes" not in r:  # success was that of refusing
            made["refusal"] = r["success"]
        return made
    if solved := outcomes.of_rows([r], phrasings, "solved"):
        made["success"] = intervals.rate(solved)
        if r["tier"] == "clean":
            made["delta"] = dict.fromkeys(intervals.PARTS, 0.0)
            made["retention"] = dict.fromkeys(intervals.PARTS, 1.0)
        elif pairs := outcomes.pairs([r], clean, phrasings, "solved"):
            made["delta"] = intervals.difference(*pairs)
            made["retention"] = multiple.retention(*pairs)
    return made


def by_seed(rows: Sequence[Json], key: str) -> list[float]:
    """Return the mean over scenarios of each training run.

    Args:
      rows: rows of one report.
      key: a key of a row.

    Returns:
      One mean for each run in which something was counted; an empty list for a report
      of a single run.
    """
    if not all("runs" in r for r in rows):
        return []
    runs = zip(*(r["runs"] for r in rows), strict=True)
    means = (_over_scenarios([r for r in run if r["n"]], key) for run in runs)
    return [x for x in means if x is not None]


def _over_scenarios(rows: Sequence[Json], key: str) -> float | None:
    """Average over scenarios; one played at several strengths counts once."""
    names = dict.fromkeys(r["scenario"] for r in rows)
    groups = ([r.get(key) for r in rows if r["scenario"] == x] for x in names)
    return average(map(average, groups))


def by_tier(rows: Iterable[Json]) -> dict[str, list[Json]]:
    """Group rows by tier: first those of `TIERS` in their order, then any others."""
    groups: dict[str, list[Json]] = {tier: [] for tier in TIERS}
    for r in rows:
        groups.setdefault(r["tier"], []).append(r)
    return {tier: rows for tier, rows in groups.items() if rows}


def by_claim(rows: Iterable[Json]) -> dict[str, list[Json]]:
    """Group perturbed rows by what they claim; rows that claim nothing are left out.

    Rows of a held-out domain whose kind was left out of training too are a group of
    their own. Rows of earlier versions have no claim, and are grouped by family.
    """
    rows = list(rows)
    if not any("claim" in r for r in rows):
        names: tuple[str, ...] = ("train", "held_out")
        return {name: [r for r in rows if r["family"] == name] for name in names}
    names = (*CLAIMS, f"{CLAIMS[-1]}_{CLAIMS[1]}")
    return {name: [r for r in rows if claim_of(r) == name] for name in names}


def claim_of(r: Json) -> str:
    """Return the group of a row by its claim; "" if it claims nothing."""
    claim = r.get("claim") or ""
    of_kind = r["tier"] != "clean" and "domain" not in r["shift"].split("+")
    both = claim == CLAIMS[-1] and of_kind and r["family"] == "held_out"
    return f"{claim}_{CLAIMS[1]}" if both else claim


def label(r: Json) -> str:
    """Return the label of a row: its scenario, and its strength unless that is 1."""
    strength = "" if r["strength"] == 1 else f" at {r['strength']:g}"
    return "clean" if r["tier"] == "clean" else f"  {r['scenario']}{strength}"


def perturbations(r: Json) -> list[str]:
    """Return the names of the perturbations of a row; a composition has several.

    >>> perturbations({"scenario": "semantic_trap+runtime_error:late@0.5"})
    ['semantic_trap', 'runtime_error']
    """
    return [x.partition(":")[0] for x in r["scenario"].partition("@")[0].split("+")]


def average(values: Iterable[Any]) -> float | None:
    """Average numbers or the means of intervals, leaving out None."""
    values = [x["mean"] if isinstance(x, dict) else x for x in values]
    values = [float(x) for x in values if x is not None]
    # From Python 3.12 on `sum` rounds differently, and tests compare tables exactly.
    return math.fsum(values) / len(values) if values else None
