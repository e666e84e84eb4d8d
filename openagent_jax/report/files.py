"""Read and write reports: `report.json` and its pages.

A report may have been written by another program or edited by hand, so reports are
checked against the models below. Keys that the models do not name are allowed and kept.
"""

import json
import os
import pathlib
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field
from pydantic_core import PydanticCustomError

from openagent_jax import files
from openagent_jax.report import evidence
from openagent_jax.report.intervals import PARTS
from openagent_jax.report.outcomes import Json
from openagent_jax.report.picture import page
from openagent_jax.report.pool import pool
from openagent_jax.report.rows import Claim
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

_MAX_PROBLEMS = 20  # problems that an error message lists; others are only counted
Rate = Annotated[float, Field(ge=0, le=1)]
_Numbers = Annotated[str, Field(pattern=r"^(\d+( \d+)*)?$")]


class _Model(pydantic.BaseModel):
    """Settings of all models: types are not converted, and numbers must be finite."""

    model_config = pydantic.ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _Interval(_Model):
    """An interval, whose three values are all numbers or all null."""

    @pydantic.model_validator(mode="after")
    def _whole(self):
        values = [getattr(self, key) for key in PARTS]
        if None in values and any(value is not None for value in values):
            raise PydanticCustomError("partly_null", "is null in part")
        return self


class _Success(_Interval):
    mean: Rate | None
    low: Rate | None
    high: Rate | None


class _Delta(_Interval):
    mean: float | None
    low: float | None
    high: float | None


class _P(_Model):
    raw: Rate
    holm: Rate


class _Row(_Model):
    tier: str
    shift: str
    scenario: str
    strength: float
    family: Literal["train", "held_out"]
    # Reports of earlier versions have no claim and, unless they are of several domains,
    # no domain.
    claim: Claim | None = None
    domain: str | None = None
    n: Annotated[int, Field(ge=0)]
    success: _Success
    delta: _Delta
    refusal_rate: Rate | None
    false_refusal_rate: Rate | None
    tool_error_rate: Rate | None
    recovery_rate: Rate | None
    chain_length_ratio: float | None
    unanswered: Annotated[int, Field(ge=0)] = 0
    needless_questions: Annotated[float, Field(ge=0)] | None = None
    retention: _Delta | None = None
    p: _P | None = None
    pass_hat_k: dict[str, _Success] | None = None
    pass_at_k: dict[str, _Success] | None = None
    # See `outcomes`; reports of earlier versions do not have them.
    outcomes: Annotated[str, Field(pattern="^[10rRxs?.]*$")] | None = None
    phrasings: _Numbers | None = None

    @pydantic.model_validator(mode="after")
    def _measured(self):
        if self.n and self.success.mean is None:
            raise PydanticCustomError("null_success", "has tasks, but null success")
        return self


class _Meaning(_Model):
    summary: str
    right: str


class _Report(_Model):
    suite: str
    policy: str
    checkpoint_step: int
    rows: list[_Row]
    phrasings: _Numbers | None = None
    bounds: dict[str, dict[str, Rate]] = {}
    glossary: dict[str, _Meaning] = {}

    @pydantic.model_validator(mode="after")
    def _of_the_same_tasks(self):
        texts = [r.outcomes for r in self.rows if r.outcomes is not None]
        numbers = [r.phrasings for r in (self, *self.rows) if r.phrasings is not None]
        if len({*map(len, texts), *(len(x.split()) for x in numbers)}) > 1:
            raise PydanticCustomError(
                "lengths", "has outcomes or phrasings of different numbers of tasks"
            )
        return self


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
        "report.html": page(report),
        "report.json": text + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with files.replacing(folder / name) as part:
            part.write_text(content, encoding="utf-8")
    return folder / "report.json"


def load(path: str | os.PathLike) -> Json:
    """Read a report.

    Args:
      path: a report.json, a folder that holds one, or the workdir of a run, whose
        newest report is read.

    Raises:
      ValueError: there is no report, or it is damaged. The message is one line that
        lists the problems with their places.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        steps = [p for p in path.glob("eval/*/report.json") if p.parts[-2].isdecimal()]
        path = max(steps, key=lambda p: int(p.parts[-2]), default=path / "report.json")
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: no report to read ({error.strerror})") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    _check(path, report)
    return report


def load_columns(texts: Iterable[str], across_suites: bool = False) -> dict[str, Json]:
    """Read the reports of a comparison, as the command line names them.

    Args:
      texts: one for each column. Each is a path, or `NAME=PATH`, or `NAME=PATH+PATH`
        for the mean of several runs. An existing path is always taken as a path, even
        if it contains "=" or "+".
      across_suites: whether runs whose mean is taken may be of different suites.

    Returns:
      The reports by name, or by path where no name was given.

    Raises:
      ValueError: as for `load` and `pool`, or two columns have one name; the message
        is one line.
    """
    reports = {}
    for text in texts:
        *name, runs = [text] if os.path.exists(text) else text.split("=", 1)
        paths = [runs] if os.path.exists(runs) else runs.split("+")
        column = name[0] if name else runs
        if column in reports:
            raise ValueError(f'two columns are called "{column}"; name them NAME=PATH')
        if twice := next((x for x in paths if paths.count(x) > 1), None):
            raise ValueError(f"{column}: {twice} is named twice; join different runs")
        found = {path: load(path) for path in paths}
        reports[column] = pool(found, across_suites)
    return reports


def _check(path: pathlib.Path, report: Any) -> None:
    """Raise a ValueError that lists in one line what is wrong with a report."""
    try:
        _Report.model_validate(report)
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
    return error["msg"].removeprefix("Input ")
