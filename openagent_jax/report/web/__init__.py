"""The page of a report: one HTML file that loads nothing from the network.

It shows one column or several, each of one run or of several seeds. Success on tasks
that can be solved and refusals of tasks that cannot are two numbers everywhere on it.
"""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from openagent_jax.report import causes, comparison, multiple, tables, viewer
from openagent_jax.report.outcomes import Json
from openagent_jax.report.web import charts, contents, details, views
from openagent_jax.report.web.views import Column, View

_HERE = pathlib.Path(__file__).parent


class Page(NamedTuple):
    text: str
    notes: list[str]  # on episodes that could not be read, and are not shown


def page(columns: Mapping[str, Column]) -> Page:
    """Return the page of some columns.

    Args:
      columns: the columns by their name; differences are from the first.
    """
    shown, notes = views.of(columns)
    first = shown[0].report
    text = _template("page.html").render(
        shown=shown,
        title=f"Robustness of {_listed([v.name for v in shown])}",
        facts=[(v, facts(v)) for v in shown],
        warnings=contents.warnings(shown, notes),
        headline=contents.headline(shown),
        heat=contents.heat_map(shown),
        charts=contents.by_scenario(shown),
        curves=contents.severity(shown),
        compared=contents.compared(shown) if len(shown) > 1 else [],
        endings=details.endings(shown),
        why=details.why(shown),
        definitions=contents.definitions(shown),
        examples={
            name: details.examples(shown, name)
            for name in dict.fromkeys(r["scenario"] for r in first["rows"])
        },
        cost=details.cost(shown),
        standing=details.standing(shown),
        remote=details.remote(shown),
        groups=[(v.name, tables.by_group(v.report)) for v in shown],
        domains=[(v.name, tables.by_domain(v.report)) for v in shown],
        claims=_claims(shown),
        episodes=_episodes(columns, shown),
    )
    return Page(text, notes)


def picture(reports: Mapping[str, Json]) -> str:
    """Return success by scenario of several reports as an SVG for a file of its own.

    It has a dot with its interval for each report, and a small one for each seed, of
    the scenarios that all reports have.

    Args:
      reports: the reports, by the name that the picture gives them.
    """
    named = {comparison.column(x): Column(x[1]) for x in reports.items()}
    shown, _ = views.of(named)
    return contents.picture(shown)


def facts(v: View) -> dict[str, str]:
    """Return how a column was made."""
    report = v.report
    keys = ["suite", "split", "num_tasks", "repeats", "seed", "temperature"]
    keys += ["grading_version"]
    made = {k.replace("_", " "): str(report[k]) for k in keys if k in report}
    if v.is_agent:
        made = {"model": str(report.get("model", report["policy"]))} | made
    else:
        seeds = report.get("num_seeds")
        step = f"{report['policy']}, step {report['checkpoint_step']}"
        made = {"policy": f"{step}, mean of {seeds} seeds" if seeds else step} | made
    if which := tables.scenario_set(report):
        version = report.get("scenario_set_version")
        made["scenarios"] = f"{which} version {version}" if version else which
    if stages := report.get("trained_on"):
        made["trained on"] = tables.lineage(stages)[len("Trained on: ") : -1]
    return made


def _episodes(columns: Mapping[str, Column], shown: list[View]) -> str:
    """Return the viewer of the kept episodes; "" if there are none."""
    if not any(v.counts for v in shown):
        return ""
    return viewer.embed({name: x.folders for name, x in columns.items()})


def _claims(shown: list[View]) -> str:
    """Say what the claims of rows are; "" if no row of any column claims anything."""
    rows = [r for v in shown for r in v.report["rows"]]
    return tables.CLAIMS_NOTE if any(r.get("claim") for r in rows) else ""


def _listed(names: list[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _template(name: str):
    import jinja2  # imported here because tables for the terminal do not need it

    loader = jinja2.FileSystemLoader(_HERE)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= dict(
        percent=tables.percent,
        holds=multiple.holds,
        meanings=causes.MEANINGS,
        notes=tables,
        num_styles=charts.NUM_STYLES,
        spent=tables.spent,
    )
    environment.filters |= dict(words=lambda x: str(x).replace("_", " "))
    return environment.get_template(name)
