"""Robustness reports: from episodes to rows, from rows to pages.

A row is one scenario at one strength, over the tasks that it changed. Success has the
Wilson interval. Its difference from clean, paired on the same tasks, has Newcombe's
(1998, Stat. Med. 17:2635, method 10): both Wilson intervals, put together by the
correlation. Miller (arXiv:2411.00640) asks for pairing, but his normal interval has no
width where no task changes sides, as with an agent that solves all.
"""

import json
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from scipy import stats

from openagent_jax.perturb.base import Entry

Json = dict[str, Any]
TIERS = ("clean", "perception", "interaction", "reasoning", "internalization")
_RATES = ("refusal_rate", "false_refusal_rate", "tool_error_rate", "recovery_rate")
_WHAT = ("tier", "shift", "scenario", "strength", "family", "n")
_ROW_KEYS = (*_WHAT, "success", "delta", *_RATES, "chain_length_ratio")
_REFUSALS = (  # below a comparison of success
    ("false refusals, clean", "clean", "false_refusal_rate"),
    ("false refusals, perturbed", "perturbed", "false_refusal_rate"),
    ("refusals, unsolvable", "perturbed", "refusal_rate"),
)
_PARTS = ("mean", "low", "high")  # of success and delta
_KEYS = ("suite", "policy", "checkpoint_step", "rows")
_SETUP = {  # and what a report has that does not say
    "suite": "unknown",
    "split": "unknown",
    "num_tasks": "unknown",
    "seed": "unknown",
    "grading_version": "unknown",
    "temperature": 0.0,
}
_NOTE = """\
Success and delta have 95 % intervals (Wilson; Newcombe, paired with clean on the same
tasks), over the n tasks that the scenario changed. Refusal is of unsolvable tasks,
false refusal of solvable ones, tool errors of calls. Means are over scenarios."""


@dataclass(frozen=True)
class Episodes:
    """An episode for each of n tasks, the same in each scenario and in this order."""

    success: Bool[np.ndarray, "n"]
    solvable: Bool[np.ndarray, "n"]
    refused: Bool[np.ndarray, "n"]
    num_calls: Int[np.ndarray, "n"]
    num_errors: Int[np.ndarray, "n"]  # calls that were answered by an error
    fewest_calls: Int[np.ndarray, "n"]  # by the oracle
    changed: Bool[np.ndarray, "n"]  # the perturbation changed this task
    # False: the agent, reached from afar, never said a word. That is no failure of it.
    answered: Bool[np.ndarray, "n"]

    def __post_init__(self):
        for name in ("success", "solvable", "refused", "changed", "answered"):
            if getattr(self, name).dtype != bool:  # half a success is none
                raise ValueError(f"{name} is not boolean")


def row(
    entry: Entry | None,
    strength: float,
    episodes: Episodes,
    clean: Episodes,
    split: str = "test",
) -> Json:
    """A row of `report.json`; without an entry, that of the clean tasks of a split."""
    if len(episodes.success) != len(clean.success):
        raise ValueError("the clean episodes are not of the same tasks")
    counts = episodes.changed | (entry is None)
    silent = counts & ~episodes.answered
    counts &= episodes.answered
    pairs = counts & clean.answered
    e = Episodes(**{name: x[counts] for name, x in vars(episodes).items()})
    no_change = dict.fromkeys(_PARTS, 0.0 if counts.any() else None)
    solved = e.success & e.solvable & (e.fewest_calls > 0)
    num_calls = int(e.num_calls.sum())
    # Clean tasks are of worlds that training has seen, or of others.
    family = "train" if split == "train" else "held_out"
    return {
        "tier": entry.tier if entry else "clean",
        "shift": entry.shift if entry else "none",
        "scenario": entry.name if entry else "clean",
        "strength": float(strength),
        "family": entry.family if entry else family,
        "n": len(e.success),
        "success": _wilson(e.success),
        "delta": _newcombe(episodes.success[pairs], clean.success[pairs])
        if entry
        else no_change,
        "tool_error_rate": int(e.num_errors.sum()) / num_calls if num_calls else None,
        "recovery_rate": _mean(e.success[e.solvable & (e.num_errors > 0)]),
        "refusal_rate": _mean(e.refused[~e.solvable]),
        "false_refusal_rate": _mean(e.refused[e.solvable]),
        "chain_length_ratio": _mean(e.num_calls[solved] / e.fewest_calls[solved]),
        **({"unanswered": int(silent.sum())} if silent.any() else {}),
    }


def pass_hat_k(successes: Bool[np.ndarray, "tasks trials"], k: int) -> float:
    """How likely k trials of a task all succeed: the mean of C(c, k) / C(n, k), with c
    successes in n trials of each task (tau-bench, arXiv:2406.12045)."""
    binary = np.isin(successes, (0, 1))
    if binary.ndim != 2 or not binary.size or not binary.all():
        raise ValueError("pass^k needs outcomes of 0 or 1, a row of trials for a task")
    num_trials = binary.shape[1]
    if not 1 <= k <= num_trials:
        raise ValueError(f"pass^{k} of {num_trials} trials")
    count = np.asarray(successes).astype(int).sum(axis=1, keepdims=True)
    i = np.arange(k)
    return float(np.mean(np.prod((count - i) / (num_trials - i), axis=1)))


def summary(rows: Iterable[Json]) -> dict[str, Json]:
    """Means over scenarios of equal weight, whatever their n; those of n = 0 are out.

    By tier, and of what is perturbed: "perturbed", of this "train" and "held_out".
    """
    rows = list(rows)
    perturbed = [r for r in rows if r["tier"] != "clean"]
    groups = _by_tier(rows) | {"perturbed": perturbed}
    for family in ("train", "held_out"):
        groups[family] = [r for r in perturbed if r["family"] == family]
    return {name: _means(group) for name, group in groups.items()}


def write(folder: str | os.PathLike, report: Json) -> pathlib.Path:
    """Writes report.md, report.html and, last, report.json; returns its path."""
    folder = pathlib.Path(folder)
    _check(folder / "report.json", report)
    text = json.dumps(report, indent=1, allow_nan=False)
    tiers, means = _by_tier(report["rows"]), summary(report["rows"])
    html = _template("report.html").render(
        policy=report["policy"], origin=_origin(report), tiers=tiers, means=means
    )
    markdown = f"# {table(report, markdown=True)}\n\n{_NOTE}\n"
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"report.md": markdown, "report.html": html, "report.json": text + "\n"}
    for name, content in pages.items():
        temporary = folder / f"{name}.tmp"
        temporary.write_text(content, encoding="utf-8")
        os.replace(temporary, folder / name)
    return folder / "report.json"


def load(path: str | os.PathLike) -> Json:
    """Reads a report.json, that of a folder, or the newest of a workdir; ValueError, in
    one line, if there is none or it is damaged."""
    path = pathlib.Path(path)
    if path.is_dir():
        found = [p for p in path.glob("eval/*/report.json") if p.parts[-2].isdecimal()]
        path = max(found, key=lambda p: int(p.parts[-2]), default=path / "report.json")
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: no report to read ({error.strerror})") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    _check(path, report)
    return report


def table(*reports: Json, markdown: bool = False) -> str:
    """Reports as tables: clean first, then tier by tier, then the families."""
    head = ["scenario", "family", "n", "success %", "delta points"]
    head += ["refusal %", "false refusal %", "tool errors %"]
    parts = []
    for report in reports:
        tiers, lines = _by_tier(report["rows"]), []
        for name, means in summary(report["rows"]).items():
            if heading := _heading(name, means, tiers):
                lines.append([heading, "", "", *_cells(means)])
            for r in tiers.get(name, []):
                family = r["family"].replace("_", " ")
                lines.append([_label(r), family, str(r["n"]), *_cells(r)])
        grid = _grid([head, *lines], 2, markdown)
        title = f"Robustness of {report['policy']}"
        parts.append(f"{title}\n\n{_origin(report)}\n\n{grid}")
    return "\n\n".join(parts)


def side_by_side(reports: Mapping[str, Json], markdown: bool = False) -> str:
    """Success of several reports, with means over the scenarios that all of them have,
    and how often they refuse; the first line warns if they cannot be compared."""
    found = [{_label(r): r for r in x["rows"]} for x in reports.values()]
    every = {k: r for x in found for k, r in x.items()}
    shared = [k for k in every if all(k in x and x[k]["n"] for x in found)]
    summaries = [summary(x[k] for k in shared) for x in found]
    tiers, lines = _by_tier(every.values()), [["success %", *reports]]
    for name in {**tiers, **summary([])}:
        means = [x.get(name, _means([])) for x in summaries]
        if heading := _heading(name, means[0], tiers):
            lines.append([heading, *(_cells(m)[0] for m in means)])
        for k in map(_label, tiers.get(name, [])):
            lines.append([k, *(_cells(x[k])[0] if k in x else "-" for x in found)])
    for label, group, rate in _REFUSALS:
        rates = [x[group][rate] if group in x else None for x in summaries]
        if any(value is not None for value in rates):
            lines.append([label, *map(_percent, rates)])
    differ = []
    for key, unsaid in _SETUP.items():
        values = [str(report.get(key, unsaid)) for report in reports.values()]
        differ += [f"{key} is {', '.join(values)}"] if len({*values}) > 1 else []
    warning = f"Warning: not comparable: {'; '.join(differ)}.\n\n" if differ else ""
    return warning + _grid(lines, 1, markdown)


def picture(reports: Mapping[str, Json]) -> str:
    """An SVG of what `side_by_side` tells: a dot and an interval for each success."""
    found = [{_label(r): r for r in x["rows"]} for x in reports.values()]
    tiers = _by_tier({k: r for x in found for k, r in x.items()}.values())
    lines, y = [], 30
    for tier, rows in tiers.items():
        if tier != "clean":
            y += 26
            lines.append({"label": tier.capitalize(), "y": y, "heading": True})
        for label in map(_label, rows):
            y += 22
            dots = []
            for column, rows_of in enumerate(found):
                if label in rows_of and rows_of[label]["n"]:
                    success = rows_of[label]["success"]
                    at = y + 6 * column - 3 * (len(found) - 1)
                    dots.append({"column": column, "y": at, "text": _percent(success)})
                    dots[-1] |= success
            lines.append({"label": label.strip(), "y": y, "dots": dots})
    return _template("comparison.svg").render(
        names=list(reports), lines=lines, width=760, height=y + 44, left=190, span=540
    )


def median(reports: Sequence[Json]) -> Json:
    """One report of several runs of the same tasks: each success, delta and rate is the
    median of its own (of an even number the lower one), with the interval it has.

    Raises:
      ValueError: the runs are not of the same tasks or scenarios.
    """
    first, *others = reports
    labels = [_label(r) for r in first["rows"]]
    for report in others:
        same = [report.get(k, x) == first.get(k, x) for k, x in _SETUP.items()]
        if not all(same) or [_label(r) for r in report["rows"]] != labels:
            raise ValueError("a median is of runs that were evaluated alike")
    rows = []
    for runs in zip(*(report["rows"] for report in reports), strict=True):
        columns = {name: [r.get(name) for r in runs] for name in runs[0]}
        rows.append({name: _middle(values) for name, values in columns.items()})
    return {**first, "rows": rows}


def _middle(values: Sequence[Any]) -> Any:
    """The median of what was measured, without None; of names, the first of them."""
    measured = [(x["mean"] if isinstance(x, dict) else x, x) for x in values]
    measured = [pair for pair in measured if isinstance(pair[0], int | float)]
    if not measured:
        return values[0]
    return sorted(measured, key=lambda pair: pair[0])[(len(measured) - 1) // 2][1]


def columns(texts: Iterable[str]) -> dict[str, Json]:
    """Reports by name: `SFT=a+b` is a name and its runs, whose median it stands for;
    what exists is a path, whatever it contains.

    Raises:
      ValueError: in one line; as `load` and `median`.
    """
    found = {}
    for text in texts:
        *name, runs = [text] if os.path.exists(text) else text.split("=", 1)
        paths = [runs] if os.path.exists(runs) else runs.split("+")
        found[name[0] if name else runs] = median([load(path) for path in paths])
    return found


def _template(name: str):
    import jinja2  # the terminal needs none

    text = pathlib.Path(__file__).with_name(name).read_text("utf-8")
    page = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page.globals |= dict(cells=_cells, heading=_heading, label=_label, note=_NOTE)
    return page.from_string(text)


def _wilson(success: np.ndarray) -> Json:
    n, count = len(success), int(success.sum())
    if n == 0:
        return dict.fromkeys(_PARTS)
    low, high = stats.binomtest(count, n).proportion_ci(method="wilson")
    return {"mean": count / n, "low": float(low), "high": float(high)}


def _newcombe(new: np.ndarray, old: np.ndarray) -> Json:
    n, p, q = len(new), _wilson(new), _wilson(old)
    if n == 0:
        return p
    a, b, both = int(new.sum()), int(old.sum()), int((new & old).sum())
    cross = n * both - a * b
    if cross > 0:
        cross = max(cross - n / 2, 0)  # correction for continuity
    scale = math.sqrt(a * (n - a) * b * (n - b))
    correlation = cross / scale if scale else 0.0

    def reach(x, y):
        return math.sqrt(x * x - 2 * correlation * x * y + y * y)

    mean = p["mean"] - q["mean"]
    low = mean - reach(p["mean"] - p["low"], q["high"] - q["mean"])
    high = mean + reach(p["high"] - p["mean"], q["mean"] - q["low"])
    return {"mean": mean, "low": low, "high": high}


def _mean(values: Iterable[Any]) -> float | None:
    values = [x["mean"] if isinstance(x, dict) else x for x in values]
    values = [float(x) for x in values if x is not None]
    # fsum: sum rounds otherwise from Python 3.12 on, and tables are compared.
    return math.fsum(values) / len(values) if values else None


def _means(rows: Sequence[Json]) -> Json:
    names = dict.fromkeys(r["scenario"] for r in rows if r["n"])
    means: Json = {"num_scenarios": len(names)}
    for key in ("success", "delta", *_RATES):  # a scenario may have several strengths
        groups = ([r[key] for r in rows if r["scenario"] == x] for x in names)
        means[key] = _mean(map(_mean, groups))
    return means


def _by_tier(rows: Iterable[Json]) -> dict[str, list[Json]]:
    groups: dict[str, list[Json]] = {tier: [] for tier in TIERS}
    for r in rows:
        groups.setdefault(r["tier"], []).append(r)
    return {tier: rows for tier, rows in groups.items() if rows}


def _check(path: pathlib.Path, report: Any) -> None:
    try:
        lacks = [key for key in _KEYS if key not in report]
        for i, r in enumerate([] if lacks else report["rows"]):
            lacks += [f"rows[{i}].{key}" for key in _ROW_KEYS if key not in r]
            for key in ("success", "delta"):
                gone = [x for x in _PARTS if key in r and x not in r[key]]
                lacks += [f"rows[{i}].{key}.{x}" for x in gone]
    except TypeError:
        raise ValueError(f"{path}: not a report") from None
    if lacks:
        raise ValueError(f"{path}: not a report, it lacks {', '.join(lacks[:5])}")


def _origin(report: Json) -> str:
    keys = dict.fromkeys(("suite", "checkpoint_step", *_SETUP))
    said = [f"{k.replace('_', ' ')} {report[k]}" for k in keys if k in report]
    silent = sum(r.get("unanswered", 0) for r in report["rows"])
    said += [f"{silent} episodes never answered, and not counted"] if silent else []
    return ", ".join(said)


def _heading(name: str, means: Json, tiers: Json) -> str:
    if name == "clean" or not (name in tiers or means["num_scenarios"]):
        return ""  # it has no line of means
    return f"{name.replace('_', ' ')}, mean of {means['num_scenarios']}"


def _label(r: Json) -> str:
    strength = "" if r["strength"] == 1 else f" at {r['strength']:g}"
    return "clean" if r["tier"] == "clean" else f"  {r['scenario']}{strength}"


def _cells(x: Json) -> list[str]:
    """Success, delta and rates in percent, of a row or of means."""
    success = _percent(x["success"])
    if x.get("n") == 0:
        success = "none answered" if x.get("unanswered") else "no task changed"
    return [success, _percent(x["delta"], "+"), *(_percent(x[k]) for k in _RATES[:3])]


def _percent(x: Any, sign: str = "") -> str:
    if isinstance(x, dict) and x["mean"] is not None:
        mean, low, high = (_percent(x[k], sign) for k in _PARTS)
        return f"{mean} [{low}, {high}]"
    if x is None or isinstance(x, dict):
        return "-"
    return f"{round(100 * x, 1) + 0.0:{sign}.1f}"  # + 0.0: there is no -0.0


def _grid(lines: Sequence[Sequence[str]], num_left: int, markdown: bool) -> str:
    if markdown:
        lines = [[cell.strip().replace("|", "\\|") for cell in x] for x in lines]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    sides = ["<"] * num_left + [">"] * (len(widths) - num_left)
    pairs = list(zip(sides, widths, strict=True))
    rule = ["-" * (w - 1) + "-:"[markdown and side == ">"] for side, w in pairs]
    rows = []
    for cells in (lines[0], rule, *lines[1:]):
        aligned = [f"{x:{side}{w}}" for x, (side, w) in zip(cells, pairs, strict=True)]
        rows.append(f"| {' | '.join(aligned)} |" if markdown else "  ".join(aligned))
    return "\n".join(rows)
