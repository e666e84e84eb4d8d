"""Reports as pictures: an SVG that compares several, and the HTML page of one."""

import pathlib
from collections.abc import Mapping

from openagent_jax.report.rows import Json, by_tier, label, summary
from openagent_jax.report.tables import NOTE, cells, heading, origin, percent


def picture(reports: Mapping[str, Json]) -> str:
    """Draw the success rates of several reports as an SVG.

    The picture shows the scenarios that `side_by_side` lists, with a dot and an
    interval for each report.

    Args:
      reports: the reports, by their name in the legend.

    Returns:
      The source of the SVG.
    """
    labelled = [{label(r): r for r in x["rows"]} for x in reports.values()]
    tiers = by_tier({k: r for x in labelled for k, r in x.items()}.values())
    lines, y = [], 30
    for tier, rows in tiers.items():
        if tier != "clean":
            y += 26
            lines.append({"label": tier.capitalize(), "y": y, "heading": True})
        for name in map(label, rows):
            y += 22
            dots = []
            for column, rows_of in enumerate(labelled):
                if name in rows_of and rows_of[name]["n"]:
                    success = rows_of[name]["success"]
                    dot_y = y + 6 * column - 3 * (len(labelled) - 1)
                    dot = {"column": column, "y": dot_y, "text": percent(success)}
                    dots.append(dot | success)
            lines.append({"label": name.strip(), "y": y, "dots": dots})
    return _template("comparison.svg").render(
        names=list(reports), lines=lines, width=760, height=y + 44, left=190, span=540
    )


def page(report: Json) -> str:
    """Format one report as an HTML page that loads nothing from the network."""
    return _template("report.html").render(
        policy=report["policy"],
        origin=origin(report),
        tiers=by_tier(report["rows"]),
        means=summary(report["rows"]),
    )


def _template(name: str):
    import jinja2  # imported here because tables for the terminal do not need it

    text = pathlib.Path(__file__).with_name(name).read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= dict(cells=cells, heading=heading, label=label, note=NOTE)
    return environment.from_string(text)
