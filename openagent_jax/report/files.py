"""Read and write reports: `report.json` and its pages.

A report may have been written by another program or edited by hand, so reports are
checked against the models of `schema`.
"""

import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import pydantic

from openagent_jax import files
from openagent_jax.report import evidence, schema
from openagent_jax.report.outcomes import Json
from openagent_jax.report.pool import pool
from openagent_jax.report.tables import (
    BOUNDS_NOTE,
    DOMAINS_NOTE,
    NOTE,
    bounds,
    by_domain_table,
    by_group_table,
    claims_note,
    glossary,
    spent,
    table,
)
from openagent_jax.report.web import Column, page

_MAX_PROBLEMS = 20  # problems that an error message lists; others are only counted


def write(folder: str | os.PathLike, report: Json) -> pathlib.Path:
    """Write report.md, report.html and, last, report.json.

    Each file is replaced as a whole, so that a reader never sees half of one.

    Returns:
      The path of report.json.

    Raises:
      ValueError: `load` would refuse this report; nothing is written.
    """
    folder = pathlib.Path(folder)
    text = json.dumps(report, indent=1, allow_nan=False)
    _check(folder / "report.json", report)
    markdown = f"# {table(report, markdown=True)}\n\n{NOTE}\n"
    if claims := claims_note(report):
        markdown += f"\n{claims}\n"
    if cost := report.get("cost"):
        markdown += f"\nCost: {spent(cost)}.\n"
    if groups := by_group_table(report, markdown=True):
        markdown += f"\n{groups}\n"
    if differences := evidence.differences_table(report, markdown=True):
        markdown += f"\n{differences}\n\n{evidence.differences_note(report)}\n"
    if repeated := evidence.repeats_table(report, markdown=True):
        markdown += f"\n{repeated}\n\n{evidence.repeats_note(report)}\n"
    if domains := by_domain_table(report, markdown=True):
        markdown += f"\n{domains}\n\n{DOMAINS_NOTE}\n"
    if scripted := bounds(report, markdown=True):
        markdown += f"\n{scripted}\n\n{BOUNDS_NOTE}\n"
    if meanings := glossary(report):
        markdown += f"\n{meanings}\n"
    contents = {
        "report.md": markdown,
        "report.html": page({report["policy"]: Column(report, [folder])}).text,
        "report.json": text + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with files.replacing(folder / name) as part:
            part.write_text(content, encoding="utf-8")
    return folder / "report.json"


def find(path: str | os.PathLike) -> pathlib.Path:
    """Return the path of the report.json that `load` reads, which need not exist."""
    path = pathlib.Path(path)
    if not path.is_dir():
        return path
    steps = [p for p in path.glob("eval/*/report.json") if p.parts[-2].isdecimal()]
    return max(steps, key=lambda p: int(p.parts[-2]), default=path / "report.json")


def load(path: str | os.PathLike) -> Json:
    """Read a report.

    Args:
      path: a report.json, a folder that holds one, or the workdir of a run, whose
        newest report is read.

    Raises:
      ValueError: there is no report, or it is damaged. The message is one line that
        lists the problems with their places.
    """
    folder, path = pathlib.Path(path), find(path)
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror
        if folder.is_dir() and not path.exists():
            why = f"nor in {folder / 'eval'}; python -m launch.evaluate makes one"
        raise ValueError(f"{path}: no report to read ({why})") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    _check(path, report)
    return report


def load_columns(texts: Iterable[str], across_suites: bool = False) -> dict[str, Json]:
    """Read the reports of a comparison; see `columns`."""
    return {name: x.report for name, x in columns(texts, across_suites).items()}


def columns(texts: Iterable[str], across_suites: bool = False) -> dict[str, Column]:
    """Read the reports of a comparison, as the command line names them.

    Args:
      texts: one for each column. Each is a path, or `NAME=PATH`, or `NAME=PATH+PATH`
        for the mean of several runs. An existing path is always taken as a path, even
        if it contains "=" or "+".
      across_suites: whether runs whose mean is taken may be of different suites.

    Returns:
      The columns by name. Where no name was given, it is the path, without the folders
      that all paths begin with.

    Raises:
      ValueError: as for `load` and `pool`, or two columns have one name; the message
        is one line.
    """
    split = list[tuple[str, list[str]]]()
    for text in texts:
        *name, runs = [text] if os.path.exists(text) else text.split("=", 1)
        paths = [runs] if os.path.exists(runs) else runs.split("+")
        paths = [os.path.normpath(path) for path in paths]
        split.append((name[0] if name else "", paths))
    shared = _shared(path for _, paths in split for path in paths)
    made = {}
    for name, paths in split:
        short = (path[shared:].strip("/") for path in paths)
        column = name or "+".join(x.removesuffix("/report.json") for x in short)
        if column in made:
            raise ValueError(f'two columns are called "{column}"; name them NAME=PATH')
        if twice := next((x for x in paths if paths.count(x) > 1), None):
            raise ValueError(f"{column}: {twice} is named twice; join different runs")
        found = {path: load(path) for path in paths}
        folders = [find(path).parent for path in paths]
        made[column] = Column(pool(found, across_suites), folders)
    return made


def _shared(paths: Iterable[str]) -> int:
    """Return the length of the folders that all paths begin with.

    >>> _shared(["runs/sft/eval", "runs/sft_1"]), _shared(["runs/a"]), _shared(["a"])
    (4, 4, 0)
    """
    parents = [os.path.split(path.rstrip("/"))[0] for path in paths]
    same_kind = len({os.path.isabs(path) for path in parents}) == 1
    return len(os.path.commonpath(parents)) if same_kind else 0


def _check(path: pathlib.Path, report: Any) -> None:
    """Raise a ValueError that lists in one line what is wrong with a report."""
    try:
        schema.Report.model_validate(report)
        return
    except pydantic.ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    missing = [_place(e["loc"]) for e in errors if e["type"] == "missing"]
    problems = [f"it lacks {name}" for name in missing]
    problems += [
        f"{_place(e['loc']) or 'it'} {_message(e)}"
        for e in errors
        if e["type"] != "missing"
    ]
    if len(problems) > _MAX_PROBLEMS:
        more = len(problems) - _MAX_PROBLEMS
        problems = [*problems[:_MAX_PROBLEMS], f"and {more} more problems"]
    raise ValueError(f"{path}: not a report: {'; '.join(problems)}")


def _place(loc: tuple[int | str, ...]) -> str:
    """Format the place of an error, such as `rows[0].success.low`."""
    text = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in loc)
    return text.removeprefix(".")


def _message(error: Any) -> str:
    """Format what is wrong, to follow the place."""
    if error["type"] == "model_type":  # pydantic's text names our private class
        return "should be an object"
    if error["type"] == "too_short":
        return "is empty"
    return error["msg"].removeprefix("Input ")
