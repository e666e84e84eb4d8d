"""Tables of what a report can claim: differences, retention, repeated tasks."""

from openagent_jax.report import multiple, repeats
from openagent_jax.report.outcomes import Json
from openagent_jax.report.rows import by_tier, label, on_solvable
from openagent_jax.report.tables import align, heading, means_of, percent, scenario_set

DIFFERENCES_NOTE = """\
Retention is perturbed success in percent of the clean success on the same tasks, with
an interval of 95 %; "-" if the clean success is 0 or may be. p is the least alpha at
which the interval of delta does not contain 0. Holm's correction adjusts it over the
{num} rows of this table that are not means; "holds" marks those of at most 5 %."""
REPEATS_NOTE = """\
Each task was played {num} times, each time perturbed anew. pass^k is the probability
that k such trials all succeed, pass@k that at least one does, in percent, with
intervals of 95 % in which a task counts once."""


def differences_table(report: Json, markdown: bool = False) -> str:
    """Format retention and p-values as a table; "" if the report has neither."""
    report = on_solvable(report)
    if not any(r.get("p") for r in report["rows"]):
        return ""
    header = ["scenario", "delta points", "retention %", "p", "p (Holm)", ""]
    tiers, lines = by_tier(report["rows"]), []
    for name, averages in means_of(report).items():
        text = heading(name, averages, tiers, scenario_set(report))
        if text and averages["num_solvable"]:
            shown = percent(averages["delta"], "+"), percent(averages["retention"])
            lines.append([text, *shown, "", "", ""])
        for r in tiers.get(name, []):
            if not r.get("p"):
                continue
            shown = percent(r["delta"], "+"), percent(r.get("retention"))
            values = p_text(r["p"]["raw"]), p_text(r["p"]["holm"])
            lines.append([label(r), *shown, *values, "holds" * multiple.holds(r)])
    return align([header, *lines], 1, markdown)


def differences_note(report: Json) -> str:
    """Say what the table of differences shows."""
    return DIFFERENCES_NOTE.format(num=multiple.family_size(report["rows"]))


def repeats_table(report: Json, markdown: bool = False) -> str:
    """Format pass^k and pass@k as a table; "" if tasks were played once.

    >>> half = {"mean": 0.5, "low": 0.2, "high": 0.8}
    >>> row = {"tier": "clean", "strength": 0.0, "success": half, "refusal_rate": None}
    >>> row |= {"pass_hat_k": {"2": half}, "pass_at_k": {"2": half}}
    >>> print(repeats_table({"rows": [row]}))
    %                success             pass^2             pass@2
    -----  -----------------  -----------------  -----------------
    clean  50.0 [20.0, 80.0]  50.0 [20.0, 80.0]  50.0 [20.0, 80.0]
    """
    rows = [r for r in on_solvable(report)["rows"] if r.get(repeats.KEYS[0])]
    columns = [
        (key, k, f"{name}{k}")
        for key, name in zip(repeats.KEYS, ("pass^", "pass@"), strict=True)
        for k in sorted({k for r in rows for k in r[key]}, key=int)
    ]
    if not columns:
        return ""
    lines = [["%", "success", *(title for _, _, title in columns)]]
    for tier in by_tier(rows).values():
        for r in tier:
            shown = (percent(r[key].get(k)) for key, k, _ in columns)
            lines.append([label(r), percent(r["success"]), *shown])
    return align(lines, 1, markdown)


def repeats_note(report: Json) -> str:
    """Say what the table of repeated tasks shows."""
    return REPEATS_NOTE.format(num=report.get("repeats", "several"))


def p_text(p: float) -> str:
    """Format a p-value.

    >>> p_text(0.0312), p_text(1e-7)
    ('0.031', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
