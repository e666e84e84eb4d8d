"""The viewer of episodes: a part of a report's page that needs no network.

`embed` returns it as one HTML fragment that stands anywhere in the body of a page. It
takes its colours from these CSS variables where the page defines them: `--ink --soft
--line --page --panel --accent --better --worse --warn`.

The rest of a page can link to it; `link` writes these addresses:

    #episodes                              the viewer
    #scenario=NAME                         the episodes of a scenario
    #scenario=NAME&run=RUN&failure=REASON  filters can be joined by "&"
    #episode=SCENARIO/INDEX/RUN            one episode; filters may follow

    scenario    a scenario, by its name in the files
    run         a column of the report, or one of its runs by its name in the viewer
    outcome     "success" or "failure"
    cause       one of `causes.CAUSES`
    failure     one of `trajectories.FAILURES`
    task        "solvable" or "unsolvable"
    q           words to search for

Names are percent-encoded, also the "/" in them. A link to filters clears all others.
"""

import itertools
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence

from openagent_jax import files
from openagent_jax.report.viewer import pack

_HERE = pathlib.Path(__file__).parent
_SCRIPTS = ("data", "diff", "list", "conversation", "tokens", "episode", "main")
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Episodes</title>
<style>
  body { margin: 1.25rem; background: #fff }
  h2 { margin: 0; font: 600 1.5rem/1.3 system-ui, sans-serif }
  @media (prefers-color-scheme: dark) { body { background: #16191c } }
</style>
"""


def embed(
    runs: Mapping[str, Sequence[pathlib.Path]],
    glossary: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Return the viewer of the episodes of some evaluations, as an HTML fragment.

    Episodes that cannot be read are left out; the viewer says how many.

    Args:
      runs: for each column of the report, the folders of its evaluations
        (`eval/<step>`), whose `trajectories` are shown.
      glossary: what scenarios change and what is right to do then, as in a report. By
        default, that of the `report.json` in the folders.
    """
    made = pack.pack(runs, glossary)
    data = "\n".join(
        f'<script type="text/plain" data-part="{name}">{text}</script>'
        for name, text in made.items()
    )
    scripts = "".join(_text(f"{name}.js") for name in _SCRIPTS)
    return (
        f"<style>\n{_text('viewer.css')}</style>\n"
        + _text("viewer.html").replace("<!-- data -->", data)
        + f'<script>\n(() => {{\n"use strict";\n{scripts}}})();\n</script>\n'
    )


def write(
    file: pathlib.Path,
    runs: Mapping[str, Sequence[pathlib.Path]],
    glossary: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Write a page of the viewer alone; the arguments are those of `embed`."""
    page = f"{_PAGE}{embed(runs, glossary)}</html>\n"
    with files.replacing(file) as part:
        part.write_text(page, encoding="utf-8")


def names(runs: Mapping[str, Sequence[pathlib.Path]]) -> dict[str, list[str]]:
    """Return what the viewer calls the runs of each column; for `runs`, see `embed`."""
    labels = iter(pack.labels(runs))
    return {
        column: [name for _, name in itertools.islice(labels, len(folders))]
        for column, folders in runs.items()
    }


def link(episode: tuple[str, int, str] | None = None, **filters: str) -> str:
    """Return an address in the page of the viewer.

    Args:
      episode: the scenario, the index and the run of an episode.
      **filters: the filters that the module names.

    >>> link(scenario="semantic_trap+runtime_error", outcome="failure")
    '#scenario=semantic_trap%2Bruntime_error&outcome=failure'
    >>> link(("rule_shift@0.5", 3, "PAFT 0.3"))
    '#episode=rule_shift%400.5/3/PAFT%200.3'
    """
    parts = [f"{key}={_quoted(value)}" for key, value in filters.items()]
    if episode:
        parts.insert(0, f"episode={'/'.join(map(_quoted, episode))}")
    return f"#{'&'.join(parts) or 'episodes'}"


def _quoted(value: str | int) -> str:
    return urllib.parse.quote(str(value), safe="", errors="replace")


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
