"""Reports as tables, in plain text for the terminal or in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from openagent_jax.report.intervals import PARTS
from openagent_jax.report.rows import (
    RATES,
    SETUP,
    Json,
    by_tier,
    label,
    means,
    summary,
)

# What `write` adds below the table of a report.
NOTE = """\
Success and delta have 95 % intervals (Wilson; Newcombe, paired with clean on the same
tasks), over the n tasks that the scenario changed. Refusal is of unsolvable tasks,
false refusal of solvable ones, tool errors of calls. Means are over scenarios."""
_REFUSALS = (  # the last lines of a comparison: label, group of rows, rate
    ("false refusals, clean", "clean", "false_refusal_rate"),
    ("false refusals, perturbed", "perturbed", "false_refusal_rate"),
    ("refusals, unsolvable", "perturbed", "refusal_rate"),
)


def table(*reports: Json, markdown: bool = False) -> str:
    """Format each report as a table: clean first, then each tier, then the families.

    >>> row = {"tier": "clean", "scenario": "clean", "strength": 0.0, "n": 10}
    >>> row |= {"family": "held_out", **dict.fromkeys(RATES)}
    >>> row["success"] = {"mean": 0.8, "low": 0.49, "high": 0.943}
    >>> row["delta"] = {"mean": 0.0, "low": 0.0, "high": 0.0}
    >>> text = table({"suite": "poi", "policy": "sft", "rows": [row]})
    >>> print("\\n".join(line[:42].rstrip() for line in text.splitlines()))
    Robustness of sft
    <BLANKLINE>
    suite poi
    <BLANKLINE>
    scenario  family      n          success %
    --------  --------  ---  -----------------
    clean     held out   10  80.0 [49.0, 94.3]
    """
    header = ["scenario", "family", "n", "success %", "delta points"]
    header += ["refusal %", "false refusal %", "tool errors %"]
    parts = []
    for report in reports:
        tiers, lines = by_tier(report["rows"]), []
        for name, averages in summary(report["rows"]).items():
            if text := heading(name, averages, tiers):
                lines.append([text, "", "", *cells(averages)])
            for r in tiers.get(name, []):
                family = r["family"].replace("_", " ")
                lines.append([label(r), family, str(r["n"]), *cells(r)])
        grid = _grid([header, *lines], 2, markdown)
        title = f"Robustness of {report['policy']}"
        parts.append(f"{title}\n\n{origin(report)}\n\n{grid}")
    return "\n\n".join(parts)


def side_by_side(reports: Mapping[str, Json], markdown: bool = False) -> str:
    """Format the success of several reports as one table, with a column for each.

    Means are over the scenarios that all of the reports have. The last lines compare
    how often the agents refuse. If the reports cannot be compared, because their tasks
    or their grading differ, the first line is a warning that says why.

    Args:
      reports: the reports, by the heading of their column.
      markdown: whether to write Markdown instead of plain text.
    """
    labelled = [{label(r): r for r in x["rows"]} for x in reports.values()]
    all_rows = {k: r for x in labelled for k, r in x.items()}
    shared = [k for k in all_rows if all(k in x and x[k]["n"] for x in labelled)]
    summaries = [summary(x[k] for k in shared) for x in labelled]
    tiers, lines = by_tier(all_rows.values()), [["success %", *reports]]
    for name in {**tiers, **summary([])}:
        averages = [x.get(name, means([])) for x in summaries]
        if text := heading(name, averages[0], tiers):
            lines.append([text, *(cells(m)[0] for m in averages)])
        for k in map(label, tiers.get(name, [])):
            lines.append([k, *(cells(x[k])[0] if k in x else "-" for x in labelled)])
    for text, group, rate in _REFUSALS:
        rates = [x[group][rate] if group in x else None for x in summaries]
        if any(value is not None for value in rates):
            lines.append([text, *map(percent, rates)])
    differences = []
    for key, default in SETUP.items():
        values = [str(report.get(key, default)) for report in reports.values()]
        if len(set(values)) > 1:
            differences.append(f"{key} is {', '.join(values)}")
    warning = ""
    if differences:
        warning = f"Warning: not comparable: {'; '.join(differences)}.\n\n"
    return warning + _grid(lines, 1, markdown)


def origin(report: Json) -> str:
    """Describe in one line how a report was made."""
    keys = dict.fromkeys(("suite", "checkpoint_step", *SETUP))
    facts = [f"{k.replace('_', ' ')} {report[k]}" for k in keys if k in report]
    unanswered = sum(r.get("unanswered", 0) for r in report["rows"])
    if unanswered:
        facts.append(f"{unanswered} episodes never answered, and not counted")
    return ", ".join(facts)


def heading(name: str, averages: Json, tiers: Json) -> str:
    """Return the heading of a line of means, or "" if the group has no such line."""
    if name == "clean" or not (name in tiers or averages["num_scenarios"]):
        return ""
    return f"{name.replace('_', ' ')}, mean of {averages['num_scenarios']}"


def cells(x: Json) -> list[str]:
    """Format success, delta and rates of a row or of means, in percent."""
    success = percent(x["success"])
    if x.get("n") == 0:
        success = "none answered" if x.get("unanswered") else "no task changed"
    return [success, percent(x["delta"], "+"), *(percent(x[k]) for k in RATES[:3])]


def percent(x: Any, sign: str = "") -> str:
    """Format a fraction, or an interval, in percent; "-" if there is no value.

    >>> percent({"mean": 0.8, "low": 0.49, "high": 0.943})
    '80.0 [49.0, 94.3]'
    """
    if isinstance(x, dict) and x["mean"] is not None:
        mean, low, high = (percent(x[k], sign) for k in PARTS)
        return f"{mean} [{low}, {high}]"
    if x is None or isinstance(x, dict):
        return "-"
    return f"{round(100 * x, 1) + 0.0:{sign}.1f}"  # adding 0.0 turns -0.0 into 0.0


def _grid(lines: Sequence[Sequence[str]], num_left: int, markdown: bool) -> str:
    """Align the cells of lines; the first `num_left` columns are left-aligned."""
    if markdown:
        lines = [[cell.strip().replace("|", "\\|") for cell in x] for x in lines]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    sides = ["<"] * num_left + [">"] * (len(widths) - num_left)
    pairs = list(zip(sides, widths, strict=True))
    rule = ["-" * (w - 1) + "-:"[markdown and side == ">"] for side, w in pairs]
    rows = []
    for line in (lines[0], rule, *lines[1:]):
        aligned = [f"{x:{side}{w}}" for x, (side, w) in zip(line, pairs, strict=True)]
        rows.append(f"| {' | '.join(aligned)} |" if markdown else "  ".join(aligned))
    return "\n".join(rows)
