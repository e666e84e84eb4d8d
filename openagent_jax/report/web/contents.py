"""The contents of the page, as plain values for its template."""

from collections.abc import Mapping, Sequence
from typing import Any

from openagent_jax.report import comparison, tables
from openagent_jax.report.outcomes import Json
from openagent_jax.report.pool import MEAN, differences
from openagent_jax.report.rows import TIERS, by_tier, label, perturbations
from openagent_jax.report.web import charts, views
from openagent_jax.report.web.views import View

Cell = dict[str, Any]


def headline(shown: Sequence[View]) -> dict[str, Any]:
    """Return clean against the open world, as sentences, a table and two charts."""
    tiers = [x for x in TIERS[1:] if any(x in v.means for v in shown)]
    groups = [("clean", "Clean"), ("perturbed", "Open world")]
    groups += [(x, f"  {x.capitalize()}") for x in tiers]
    solved = [
        charts.Row(
            text, _points(shown, name, "success"), name in ("clean", "perturbed")
        )
        for name, text in groups
        if any(v.mean(name, "success") is not None for v in shown)
    ]
    refused = [
        charts.Row(text, _points(shown, name, key), key == "refusal_rate")
        for text, name, key in (
            ("Cannot be solved", "perturbed", "refusal_rate"),
            ("Can, open world", "perturbed", "false_refusal_rate"),
            ("Can, clean", "clean", "false_refusal_rate"),
        )
        if any(v.mean(name, key) is not None for v in shown)
    ]
    return {
        "table": [
            {
                "name": v.name,
                "style": v.style,
                "seeds": v.num_seeds,
                "clean": v.mean("clean", "success"),
                "open": v.mean("perturbed", "success"),
                "delta": v.mean("perturbed", "delta"),
                "refused": v.mean("perturbed", "refusal_rate"),
                "false": v.mean("perturbed", "false_refusal_rate"),
                "false_clean": v.mean("clean", "false_refusal_rate"),
                "num_solvable": v.mean("perturbed", "num_solvable") or 0,
                "num_unsolvable": v.mean("perturbed", "num_unsolvable") or 0,
            }
            for v in shown
        ],
        "solved": charts.dots("Success on tasks that can be solved", solved)
        if solved
        else "",
        "refused": charts.dots("Refusals", refused) if refused else "",
    }


def _points(shown: Sequence[View], group: str, key: str) -> list[charts.Point | None]:
    return [
        v.point(v.mean(group, key), v.seeds(v.group(group), key)) if group else None
        for v in shown
    ]


def heat_map(shown: Sequence[View]) -> dict[str, Any]:
    """Return success by tier, scenario and strength, with a group for each column."""
    every = _rows(shown)
    names = [r["scenario"] for r in every.values() if r["tier"] != "clean"]
    swept = {x for x in names if names.count(x) > 1}
    swept |= {"clean"} if swept else set()
    of_swept = (r for r in every.values() if r["scenario"] in swept)
    strengths = sorted({r["strength"] for r in of_swept})
    lines = []
    for tier, rows in by_tier(every.values()).items():
        seen = set()
        for r in rows:
            name = r["scenario"]
            if name in seen:
                continue
            seen.add(name)
            found = [
                _heat(
                    v, [k for k, x in every.items() if x["scenario"] == name], strengths
                )
                for v in shown
            ]
            lines.append({"tier": tier, "scenario": name, "groups": found})
    return {
        "strengths": strengths,
        "lines": lines,
        "refuses": any(x["refused"] for line in lines for x in line["groups"]),
    }


def _heat(v: View, labels: Sequence[str], strengths: Sequence[float]) -> Cell:
    """Return the cells of one scenario in one column."""
    rows = [v.rows[k] for k in labels if k in v.rows]
    by_strength = {r["strength"]: r for r in rows}
    single = [rows[0] if rows else None]
    chosen = [by_strength.get(x) for x in strengths] if strengths else single
    if strengths and len(rows) == 1 and rows[0]["strength"] not in strengths:
        chosen = [*[None] * (len(strengths) - 1), rows[0]]
    most = rows[-1] if rows else None  # the highest strength
    return {
        "solved": [_cell(r, "success") for r in chosen],
        "refused": _cell(most, "refusal"),
        "row": most,
        "questions": tables.questions(most) if most else "-",
        "standing": tables.standing(most) if most else "",
    }


def _cell(r: Json | None, key: str) -> Cell | None:
    """Return a value and what a reader is told of it; None if there is none."""
    if r is None or r["n"] == 0:
        return {"mean": None, "text": "", "why": _why_empty(r)} if r else None
    value = r.get(key)
    mean = value["mean"] if isinstance(value, Mapping) else value
    if mean is None:
        return None
    return {"mean": mean, "text": f"{100 * mean:.0f}", "why": tables.percent(value)}


def _why_empty(r: Json) -> str:
    return "none answered" if r.get("unanswered") else "no task changed"


def by_scenario(shown: Sequence[View]) -> list[tuple[str, str]]:
    """Return a chart of every tier, with a row for each scenario and strength."""
    made = []
    for tier, rows in by_tier(_rows(shown).values()).items():
        lines = []
        for r in rows:
            key = label(r)
            points = [_of_row(v, key) for v in shown]
            if tier != "clean" and any(points):
                lines.append(charts.Row(_cut(key.strip()), points))
        if lines:
            made.append((tier, charts.dots(f"Success by scenario: {tier}", lines)))
    return made


def picture(shown: Sequence[View]) -> str:
    """Return one chart of all tiers, for a file of its own."""
    lines = []
    for tier, rows in by_tier(_rows(shown).values()).items():
        made = [
            charts.Row(_cut(label(r).strip()), [_of_row(v, label(r)) for v in shown])
            for r in rows
            if label(r) in shown[0].shared
        ]
        made = [row for row in made if any(row.points)]
        if tier != "clean" and made:
            lines.append(charts.Row(tier.capitalize(), (), strong=True))
        lines += made
    names = [v.name for v in shown]
    return charts.dots("Success on tasks that can be solved", lines, names)


def severity(shown: Sequence[View]) -> list[tuple[str, str]]:
    """Return a chart of success by strength for every scenario that was swept."""
    every = _rows(shown)
    labels: dict[str, list[str]] = {}
    for k, r in every.items():
        if r["tier"] != "clean":
            labels.setdefault(r["scenario"], []).append(k)
    made = []
    for name, found in labels.items():
        if len(found) < 2:
            continue
        lines = []
        for v in shown:
            rows = sorted(
                (v.rows[k] for k in found if k in v.rows), key=lambda r: r["strength"]
            )
            points = [(r["strength"], _of_row(v, label(r))) for r in rows]
            clean = _of_row(v, "clean")
            points = [(0.0, clean), *points] if clean else points
            known = [(x, p) for x, p in points if p]
            if known:
                xs, ps = zip(*known, strict=True)
                lines.append(charts.Curve(xs, ps, v.style, v.name))
        if lines:
            made.append((name, charts.curves(f"Success under {name}", lines)))
    return made


def _of_row(v: View, key: str) -> charts.Point | None:
    if key not in v.rows:
        return None
    r = v.rows[key]
    runs = [x["success"]["mean"] for x in r.get("runs", ())]
    return v.point(r["success"], [x for x in runs if x is not None])


def _cut(text: str) -> str:
    """Shorten a label to what fits beside a chart."""
    return text if len(text) <= 24 else f"{text[:23]}…"


def _rows(shown: Sequence[View]) -> dict[str, Json]:
    """Return a row for each label that any column has, of the first that has it."""
    every: dict[str, Json] = {}
    for v in shown:
        every |= {k: r for k, r in v.rows.items() if k not in every}
    return every


def compared(shown: Sequence[View]) -> list[dict[str, Any]]:
    """Return the differences of each column from the first, scenario by scenario."""
    base, *others = shown
    found = [views.differences(v, base) for v in others]
    keys = [(k.strip(), r["scenario"]) for k, r in base.rows.items()]
    lines = [
        {
            "label": key if name else "open world, mean",
            "scenario": name,
            "cells": [x.get(key) for x in found],
        }
        for key, name in [*keys, (MEAN, "")]
    ]
    return [line for line in lines if any(line["cells"])]


def warnings(shown: Sequence[View], notes: Sequence[str]) -> list[str]:
    """Return what a reader must know before comparing or quoting."""
    reports = {v.name: v.report for v in shown}
    found = []
    if text := differences(reports):
        found.append(f"The columns cannot be compared, since {text}.")
    if text := comparison.exploratory(reports):
        found.append(text)
    left_out = [
        f"{k.strip()} ({', '.join(v.name for v in shown if not _has(v, k))})"
        for k in _rows(shown)
        if k not in shown[0].shared
    ]
    if left_out and len(shown) > 1:
        found.append(
            "Means leave out rows that a column lacks or has no task of: "
            f"{', '.join(left_out)}."
        )
    return found + [f"Dropped: {note}." for note in notes]


def _has(v: View, key: str) -> bool:
    return key in v.rows and v.rows[key]["n"] > 0


def definitions(shown: Sequence[View]) -> dict[str, dict[str, str]]:
    """Return what each scenario changes, and what is right to do then."""
    known: dict[str, Any] = {}
    for v in reversed(shown):
        known |= v.report.get("glossary", {})
    found = {}
    for r in _rows(shown).values():
        parts = [known[name] for name in perturbations(r) if name in known]
        found[r["scenario"]] = {
            "summary": " ".join(x["summary"] for x in parts).replace("`", ""),
            "right": " ".join(x["right"] for x in parts).replace("`", ""),
            "tier": r["tier"],
            "shift": r["shift"],
        }
    return found
