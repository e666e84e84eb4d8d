"""The details of the page: how episodes end, why they fail, what they cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from openagent_jax.report import causes, viewer
from openagent_jax.report.rows import average
from openagent_jax.report.web import charts, failures, views
from openagent_jax.report.web.views import View

ANSWERED = ("wrong_answer", "missed_refusal")  # failures that end with an answer
ENDLESS = ("out_of_turns", "out_of_context")  # and that end without one


def endings(shown: Sequence[View]) -> list[dict[str, Any]]:
    """Return how episodes end: refused, solved, answered wrongly, never ended."""
    made = []
    for v in shown:
        for clean, kind, text in (
            (True, "solvable", "can be solved, clean"),
            (False, "solvable", "can be solved, open world"),
            (True, "unsolvable", "cannot be solved, clean"),
            (False, "unsolvable", "cannot be solved, open world"),
        ):
            found = views.confusion(v, clean).get(kind, {})
            if not (total := sum(found.values())):
                continue
            wrong = _answered(v, clean, kind == "solvable", found["failed"])
            cells = [("refused", found["refused"]), ("solved", found["solved"])]
            if wrong is None:
                cells += [("failed", found["failed"]), None]
            else:
                rest = found["failed"] - wrong
                cells += [("answered wrongly", wrong), ("did not end", rest)]
            made.append(
                {
                    "name": v.name,
                    "style": v.style,
                    "text": text,
                    "right": "refused" if kind == "unsolvable" else "solved",
                    "total": total,
                    "cells": [
                        x and {"what": x[0], "num": x[1], "share": x[1] / total}
                        for x in cells
                    ],
                }
            )
    return made


def _answered(v: View, clean: bool, solvable: bool, failed: int) -> int | None:
    """Return how many failed by an answer; None if not all episodes were kept."""
    counts = [c for name, c in v.counts.items() if (name == "clean") == clean]
    found: Counter[str] = Counter()
    for c in counts:
        found += c.unsolvable if not solvable else c.solvable
    known = sum(n for k, n in found.items() if k not in ("false_refusal", "unanswered"))
    return sum(found[k] for k in ANSWERED) if known == failed else None


def why(shown: Sequence[View]) -> dict[str, Any]:
    """Return the causes of failures by scenario, from the kept episodes."""
    used = [
        x
        for x in causes.CAUSES
        if any(c.causes[x] for v in shown for c in v.counts.values())
    ]
    names = list(dict.fromkeys(name for v in shown for name in v.counts))
    order = {r["scenario"]: i for v in shown for i, r in enumerate(v.report["rows"])}
    names.sort(key=lambda name: order.get(name, len(order)))
    lines = []
    for name in names:
        for v in shown:
            if not (c := v.counts.get(name)) or not c.kept:
                continue
            cells = [(c.causes[x], c.causes[x] / (c.failed or 1)) for x in used]
            lines.append(
                {
                    "scenario": name,
                    "name": v.name,
                    "style": v.style,
                    "kept": c.kept,
                    "failed": c.failed,
                    "cells": cells,
                    "late": sum(c.endings[x] for x in ENDLESS),
                }
            )
    kept = sum(c.kept for v in shown for c in v.counts.values())
    failed = sum(c.failed for v in shown for c in v.counts.values())
    unchanged = sum(c.unchanged for v in shown for c in v.counts.values())
    return {
        "causes": used,
        "lines": lines,
        "kept": kept,
        "failed": failed,
        "unchanged": unchanged,
    }


def examples(shown: Sequence[View], scenario: str) -> list[dict[str, Any]]:
    """Return, for each column, the causes of a scenario with an example of each."""
    made = []
    for v in shown:
        c = v.counts.get(scenario)
        if not c or not c.kept:
            continue
        found = []
        for cause, num in c.causes.most_common():
            example = c.examples.get(cause)
            found.append(
                {
                    "label": causes.MEANINGS[cause][0],
                    "cause": cause,
                    "num": num,
                    "of": _reasons(c) if cause == "not_refused" else "",
                    "example": example,
                    "link": _link(v, scenario, example),
                    "all": viewer.link(scenario=scenario, run=v.name, cause=cause),
                }
            )
        made.append(
            {
                "name": v.name,
                "style": v.style,
                "failed": c.failed,
                "kept": c.kept,
                "unchanged": c.unchanged,
                "causes": found,
                "link": viewer.link(scenario=scenario, run=v.name, outcome="failure"),
            }
        )
    return made


def _reasons(c: failures.Counts) -> str:
    """Say of each reason why a task cannot be solved how often it was missed."""
    return ", ".join(
        f"{c.missed[reason]} of {num} {reason.replace('_', ' ')}"
        for reason, num in c.hopeless.most_common()
    )


def _link(v: View, scenario: str, example: failures.Example | None) -> str:
    """Return the address of an example in the viewer; "" if there is none."""
    if example is None:
        return ""
    return viewer.link((scenario, example.index, v.runs[example.run]))


def cost(shown: Sequence[View]) -> list[dict[str, Any]]:
    """Return what each column costs in calls and tokens."""
    made = []
    for v in shown:
        for group, text in (("clean", "clean"), ("perturbed", "open world")):
            rows = [r for r in v.group(group) if r["n"]]
            if not rows:
                continue
            counts = [
                c for k, c in v.counts.items() if (k == "clean") == (group == "clean")
            ]
            calls = [x for c in counts for x in c.calls]
            tokens = [x for c in counts for x in c.tokens]
            made.append(
                {
                    "name": v.name,
                    "style": v.style,
                    "text": text,
                    "ratio": average(r["chain_length_ratio"] for r in rows),
                    "errors": average(r["tool_error_rate"] for r in rows),
                    "recovery": average(r["recovery_rate"] for r in rows),
                    "questions": average(r.get("needless_questions") for r in rows),
                    "calls": sum(calls) / len(calls) if calls else None,
                    "tokens": sum(tokens) / len(tokens) if tokens else None,
                }
            )
    return made


def standing(shown: Sequence[View]) -> dict[str, str]:
    """Return charts of where columns stand between the bounding agents.

    Only rows all of whose tasks can be solved, or none, are averaged: in others the
    agents' successes mix both.
    """
    agents: Mapping[str, Any] = {}
    for v in shown:
        agents = agents or v.report.get("bounds", {})
    if not agents:
        return {}
    made = {}
    for kind, title in (
        ("solvable", "Success on tasks that can be solved"),
        ("unsolvable", "Refusals of tasks that cannot be solved"),
    ):
        lines = _standing(shown, agents, kind)
        if lines:
            made[kind] = charts.dots(title, lines)
    return made


def _standing(
    shown: Sequence[View], agents: Mapping[str, Any], kind: str
) -> list[charts.Row]:
    other = "refusal_rate" if kind == "solvable" else "false_refusal_rate"
    key = "success" if kind == "solvable" else "refusal_rate"
    rows = [
        r
        for r in shown[0].group("perturbed")
        if r[other] is None and r["n"] and r["strength"] == 1
    ]
    names = [r["scenario"] for r in rows]
    found = []
    for agent, success in agents.items():
        mean = average(success.get(name) for name in names)
        if mean is not None:
            point = charts.Point(mean, style=charts.BOUND)
            found.append(charts.Row(agent, [point]))
    for v in shown:
        theirs = [r for r in v.group("perturbed") if r["scenario"] in names]
        mean = average(r[key] for r in theirs if r["strength"] == 1)
        if mean is not None:
            point = charts.Point(mean, style=v.style)
            found.append(charts.Row(v.name[:24], [point], strong=True))
    return sorted(found, key=lambda row: -(row.points[0].mean if row.points[0] else 0))


def remote(shown: Sequence[View]) -> list[dict[str, Any]]:
    """Return what a reader asks of an agent that is reached by messages."""
    made = []
    for v in shown:
        if not v.is_agent:
            continue
        report = v.report
        unanswered = sum(r.get("unanswered", 0) for r in report["rows"])
        reasons = Counter(report.get("unanswered_reasons", {}))
        if not reasons:
            for c in v.counts.values():
                reasons += c.reasons
        made.append(
            {
                "name": v.name,
                "report": report,
                "cost": report.get("cost", {}),
                "unanswered": unanswered,
                "reasons": reasons.most_common(5),
            }
        )
    return made
