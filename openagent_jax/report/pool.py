"""Join the reports of several seeds, and tell which reports can be compared."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from openagent_jax.report import intervals, multiple, outcomes, repeats
from openagent_jax.report.outcomes import Json
from openagent_jax.report.rows import average, by_seed, claim_of, label

SET_HASH = "scenario_set_hash"  # of a suite of scenarios, if one was played
MEAN = "perturbed"  # the label of a mean over all perturbed rows
# The keys that say how a report was made, with the values that are assumed for a report
# that lacks them. Reports that differ in any of them cannot be compared.
SETUP = {
    "suite": "unknown",
    "split": "unknown",
    "num_tasks": "unknown",
    "repeats": 1,
    "seed": "unknown",
    "grading_version": "unknown",
    "temperature": 0.0,
    SET_HASH: "none",
}


def pool(reports: Mapping[str, Json], across_suites: bool = False) -> Json:
    """Join the reports of several training runs on the same tasks into one report.

    Every number is the mean over the runs. Success and delta get intervals over tasks
    and seeds (`intervals.rate`); where a report does not have the outcomes of its
    tasks, intervals over seeds alone (`intervals.over_seeds`).

    Args:
      reports: the reports, by a name for error messages. One alone is returned as it
        is.
      across_suites: whether they may be of different suites of scenarios.

    Returns:
      The report. It has `num_seeds`, and its rows have `runs`, the rows of the runs,
      and a list of `outcomes` with a text for each.

    Raises:
      ValueError: the runs do not have the same tasks and scenarios, or two are the
        same run.
    """
    name, first = next(iter(reports.items()))
    if len(reports) == 1:
        return first
    if found := differences(reports, ignore=(SET_HASH,) if across_suites else ()):
        raise ValueError(f"only runs that were evaluated alike can be joined: {found}")
    for other, report in reports.items():
        odd = {label(r) for r in first["rows"]} ^ {label(r) for r in report["rows"]}
        if odd:
            raise ValueError(
                f"only runs that were evaluated alike can be joined: {name} and "
                f"{other} do not both have {', '.join(sorted(x.strip() for x in odd))}"
            )
    for r in first["rows"]:
        standings = {}
        for other, report in reports.items():
            same = next(x for x in report["rows"] if label(x) == label(r))
            standings[other] = (
                claim_of(same) or "none" if "claim" in same else "unknown"
            )
        if found := _listed(f"claim of {label(r).strip()}", standings):
            raise ValueError(
                f"only runs that were trained alike can be joined: {found[0]}"
            )
    runs: dict[object, str] = {}
    for name, report in reports.items():
        run = report.get("train_seed", name)
        if run in runs:
            raise ValueError(
                f"{runs[run]} and {name} are of one training seed ({run}); join runs "
                "of different seeds"
            )
        runs[run] = name
    by_label = [{label(r): r for r in x["rows"]} for x in reports.values()]
    num = first.get("repeats", 1)
    rows = [_row([x[label(r)] for x in by_label], num) for r in first["rows"]]
    clean = next((r for r in rows if r["tier"] == "clean"), None)
    for r in rows:
        _add_intervals(r, clean, first.get("phrasings"))
        r.update(repeats.of_row(r, num, first.get("phrasings")))
    multiple.adjust(rows, first.get("phrasings"))
    of_one = {"cost", "train_seed"}
    if any(x.get("bounds") != first.get("bounds") for x in reports.values()):
        of_one.add("bounds")  # equal tasks have equal ones, but not of all versions
    joined = {k: v for k, v in first.items() if k not in of_one}
    if all(x.get("cost") for x in reports.values()):
        joined["cost"] = _sums([x["cost"] for x in reports.values()])
    if "domains" in first:
        joined["domains"] = [
            pool({name: x["domains"][i] for name, x in reports.items()})
            for i in range(len(first["domains"]))
        ]
    return {**joined, "num_seeds": len(reports), "rows": rows}


def _sums(costs: Sequence[Json]) -> Json:
    """Add up what is known of all costs, and can be added up."""
    keys = [k for k in costs[0] if not k.startswith("latency")]
    keys = [k for k in keys if all(x.get(k) is not None for x in costs)]
    return {k: sum(x[k] for x in costs) for k in keys}


def between(new: Json, old: Json) -> list[Json]:
    """Compare two reports row by row, on the same tasks.

    Args:
      new: a report, possibly pooled.
      old: a report of the same tasks and of as many seeds. Seeds are paired in the
        order of their runs.

    Returns:
      For each row in which both have tasks that can be solved, and last for the mean of
      those that are perturbed: `label`, `n`, the `difference` of success on such tasks
      (`new - old`, with its interval), and `p`, in which `holm` is adjusted over the
      rows; the mean is not in this family, and its `holm` is None. Rows without
      outcomes are left out.

    Raises:
      ValueError: they have different numbers of seeds, or other tasks.
    """
    sizes = [x.get("num_seeds", 1) for x in (new, old)]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"paired differences need as many seeds of both, not {sizes[0]} and "
            f"{sizes[1]}"
        )
    names = ("new", "old")
    if found := differences(dict(zip(names, (new, old), strict=True))):
        raise ValueError(f"paired differences need the same tasks, but {found}")
    others = {label(r): r for r in old["rows"]}
    rows = [r for r in new["rows"] if label(r) in others]
    rows = [r for r in rows if r["n"] and others[label(r)]["n"]]
    made = []
    perturbed = [r for r in rows if r["tier"] != "clean"]
    for name, group in [*((label(r).strip(), [r]) for r in rows), (MEAN, perturbed)]:
        olds = [others[label(r)] for r in group]
        if pair := outcomes.pairs(group, olds, new.get("phrasings"), "solved"):
            n = max(r["n"] for r in group)
            p = {"raw": multiple.p_value(*pair), "holm": None}
            found = intervals.difference(*pair)
            made.append({"label": name, "n": n, "difference": found, "p": p})
    family = [x["p"] for x in made if x["label"] != MEAN]
    adjusted = multiple.holm([p["raw"] for p in family])
    for p, value in zip(family, adjusted, strict=True):
        p["holm"] = value
    return made


def beside(reports: Mapping[str, Json]) -> dict[str, Json]:
    """Return reports as they can be shown beside each other.

    The interval of one run says nothing of other seeds, so that it would look too
    certain beside one over several seeds. Where some reports are of several seeds,
    those of one run therefore have only their means.
    """
    if all("num_seeds" not in x for x in reports.values()):
        return dict(reports)
    return {
        name: x if "num_seeds" in x else _without_intervals(x)
        for name, x in reports.items()
    }


def _without_intervals(report: Json) -> Json:
    """Return a report whose rows have means only; further means get no interval."""
    rows = []
    for r in report["rows"]:
        bare = {k: v for k, v in r.items() if k not in ("outcomes", "p")}
        for key, value in bare.items():
            if isinstance(value, dict) and set(value) == set(intervals.PARTS):
                bare[key] = value | {"low": None, "high": None}
        rows.append(bare)
    return {**report, "rows": rows}


def of_different_suites(reports: Mapping[str, Json]) -> str:
    """Say which suites of scenarios reports are of; "" if they are all of the same."""
    owners = {name: x.get(SET_HASH, SETUP[SET_HASH]) for name, x in reports.items()}
    return "; ".join(_listed(SET_HASH, owners))


def differences(reports: Mapping[str, Json], ignore: Collection[str] = ()) -> str:
    """Say in which respects reports cannot be compared; "" if they can.

    It names the keys, and for each value the reports that have it.

    Args:
      reports: the reports, by name.
      ignore: keys of `SETUP` in which they may differ.
    """
    found = []
    for key, default in SETUP.items():
        if key in ignore:
            continue
        values = {name: str(x.get(key, default)) for name, x in reports.items()}
        found += _listed(key, values)
    shared = [{label(r): r for r in x["rows"]} for x in reports.values()]
    for name in shared[0] if shared else ():
        rows = {k: x[name] for k, x in zip(reports, shared, strict=True) if name in x}
        digests = {k: r["tasks"] for k, r in rows.items() if "tasks" in r}
        if listed := _listed(f"tasks of {name.strip()}", digests):
            found += listed
            break  # one scenario is enough
    return "; ".join(found)


def _listed(key: str, values: Mapping[str, str]) -> list[str]:
    """Return `["key is a (first), b (second, third)"]`; nothing if all are equal."""
    owners: dict[str, list[str]] = {}
    for name, value in values.items():
        owners.setdefault(value, []).append(name)
    if len(owners) < 2:
        return []
    texts = [f"{value} ({', '.join(names)})" for value, names in owners.items()]
    return [f"{key} is {', '.join(texts)}"]


def _row(rows: Sequence[Json], num_trials: int) -> Json:
    """Join the rows of one scenario; intervals are added later."""
    made = {k: v for k, v in rows[0].items() if k not in (*repeats.KEYS, "p")}
    for key in rows[0]:
        if key.endswith("_rate") or key in ("chain_length_ratio", "needless_questions"):
            made[key] = average(r.get(key) for r in rows)
    del made["success"], made["delta"]
    made["runs"] = list(rows)
    made["n"] = max(r["n"] for r in rows)
    if unanswered := sum(r.get("unanswered", 0) for r in rows):
        made["unanswered"] = unanswered
    texts = [r.get("outcomes") for r in rows]
    made["outcomes"] = texts
    if any(text is None for text in texts):
        del made["outcomes"]
    elif (found := outcomes.letters(made)) is not None:
        counted = np.isin(found, list(outcomes.COUNTED)).any(axis=0)
        made["n"] = int(counted.reshape(-1, num_trials).any(axis=1).sum())
    return made


def _add_intervals(row: Json, clean: Json | None, phrasings: str | None) -> None:
    """Add success, delta and retention to a joined row, in place."""
    row["success"] = row["delta"] = dict.fromkeys(intervals.PARTS)
    row["retention"] = dict.fromkeys(intervals.PARTS)
    if found := outcomes.of_rows([row], phrasings, "success"):
        mean = average(by_seed([row], "success"))  # without errors of rounding
        row["success"] = intervals.rate(found) | {"mean": mean}
    elif known := by_seed([row], "success"):
        row["success"] = intervals.over_seeds(known, row["n"])
    if row["tier"] == "clean":
        row["delta"] = dict.fromkeys(intervals.PARTS, 0.0 if row["n"] else None)
        row["retention"] = dict.fromkeys(intervals.PARTS, 1.0 if row["n"] else None)
    elif pairs := outcomes.pairs([row], clean, phrasings):
        row["delta"] = intervals.difference(*pairs)
        row["retention"] = multiple.retention(*pairs)
    elif known := by_seed([row], "delta"):
        row["delta"] = intervals.over_seeds(known, row["n"], signed=True)
