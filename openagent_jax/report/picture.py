"""Reports as pictures: an SVG that compares several, and the HTML page of one."""

import pathlib
from collections.abc import Mapping

from openagent_jax.report.outcomes import Json
from openagent_jax.report.pool import beside
from openagent_jax.report.rows import by_tier, label
from openagent_jax.report.tables import (
    BOUNDS_NOTE,
    DOMAINS_NOTE,
    NOTE,
    asks_needlessly,
    by_domain,
    by_group,
    cells,
    claims_note,
    column,
    heading,
    meaning,
    means_of,
    origin,
    percent,
    questions,
    scenario_set,
    spent,
    standing,
)


def picture(reports: Mapping[str, Json]) -> str:
    """Draw the success rates of several reports as an SVG.

    The picture shows the scenarios that `side_by_side` lists, with a dot and an
    interval for each report, and a small dot for each of its seeds.

    Args:
      reports: the reports, by their name in the legend.

    Returns:
      The source of the SVG.
    """
    reports = beside(reports)
    labelled = [{label(r): r for r in x["rows"]} for x in reports.values()]
    tiers = by_tier(
        r for k, r in labelled[0].items() if all(k in x and x[k]["n"] for x in labelled)
    )
    lines, y = [], 30
    for tier, rows in tiers.items():
        if tier != "clean":
            y += 26
            lines.append({"label": tier.capitalize(), "y": y, "heading": True})
        for name in map(label, rows):
            y += 22
            dots = []
            for i, rows_of in enumerate(labelled):
                row = rows_of[name]
                runs = [r["success"]["mean"] for r in row.get("runs", ())]
                dots.append(
                    {
                        "column": i,
                        "y": y + 6 * i - 3 * (len(labelled) - 1),
                        "text": percent(row["success"]),
                        "seeds": [x for x in runs if x is not None],
                        **row["success"],
                    }
                )
            lines.append({"label": name.strip(), "y": y, "dots": dots})
    return _template("comparison.svg").render(
        names=[column(x) for x in reports.items()],
        lines=lines,
        width=760,
        height=y + 44,
        left=190,
        span=540,
    )


def page(report: Json) -> str:
    """Format one report as an HTML page that loads nothing from the network."""
    return _template("report.html").render(
        policy=report["policy"],
        origin=origin(report),
        tiers=by_tier(report["rows"]),
        means=means_of(report),
        which=scenario_set(report),
        asks=asks_needlessly(report),
        agents=report.get("bounds", {}),
        domains=by_domain(report),
        groups=by_group(report),
        cost=spent(report.get("cost", {})),
        claims=claims_note(report),
        meaning=lambda r: meaning(report, r).replace("`", ""),
        glossary=report.get("glossary", {}),
    )


def _template(name: str):
    import jinja2  # imported here because tables for the terminal do not need it

    text = pathlib.Path(__file__).with_name(name).read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= dict(
        cells=cells,
        heading=heading,
        label=label,
        note=NOTE,
        bounds_note=BOUNDS_NOTE,
        domains_note=DOMAINS_NOTE,
        percent=percent,
        questions=questions,
        standing=standing,
    )
    return environment.from_string(text)
