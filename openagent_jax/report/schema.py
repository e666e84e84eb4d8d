"""What a `report.json` has to look like, as models and as a JSON schema.

Keys that the models do not name are allowed and kept. `report.schema.json`, which other
programs can check reports against, is made from the models, in Python:

    from openagent_jax.report import schema; schema.FILE.write_text(schema.text())
"""

import json
import pathlib
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field
from pydantic_core import PydanticCustomError

from openagent_jax.report.intervals import PARTS
from openagent_jax.report.rows import Claim

FILE = pathlib.Path(__file__).with_name("report.schema.json")
Rate = Annotated[float, Field(ge=0, le=1)]
Numbers = Annotated[str, Field(pattern=r"^(\d+( \d+)*)?$")]


class Model(pydantic.BaseModel):
    """Settings of all models: types are not converted, and numbers must be finite."""

    model_config = pydantic.ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Interval(Model):
    """An interval, whose three values are all numbers or all null."""

    @pydantic.model_validator(mode="after")
    def _whole(self):
        values = [getattr(self, key) for key in PARTS]
        if None in values and any(value is not None for value in values):
            raise PydanticCustomError("partly_null", "is null in part")
        return self


class Success(Interval):
    mean: Rate | None
    low: Rate | None
    high: Rate | None


class Delta(Interval):
    mean: float | None
    low: float | None
    high: float | None


class P(Model):
    raw: Rate
    holm: Rate


class Row(Model):
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
    success: Success
    delta: Delta
    refusal_rate: Rate | None
    false_refusal_rate: Rate | None
    tool_error_rate: Rate | None
    recovery_rate: Rate | None
    chain_length_ratio: float | None
    unanswered: Annotated[int, Field(ge=0)] = 0
    needless_questions: Annotated[float, Field(ge=0)] | None = None
    retention: Delta | None = None
    p: P | None = None
    pass_hat_k: dict[str, Success] | None = None
    pass_at_k: dict[str, Success] | None = None
    # See `outcomes`; reports of earlier versions do not have them.
    outcomes: Annotated[str, Field(pattern="^[10rRxs?.]*$")] | None = None
    phrasings: Numbers | None = None

    @pydantic.model_validator(mode="after")
    def _measured(self):
        if self.n and self.success.mean is None:
            raise PydanticCustomError("null_success", "has tasks, but null success")
        return self


Count = Annotated[int, Field(ge=0)]


class Cost(Model):
    """What all episodes cost. A number is null if an endpoint does not count it."""

    episodes: Count
    # Shown to the agent: a checkpoint reads each once, and an endpoint counts those of
    # every request.
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    requests: Count | None = None
    retries: Count | None = None
    price: Annotated[float, Field(ge=0)] | None = None


class Meaning(Model):
    summary: str
    right: str


class Stage(Model):
    """A run of training; null if nothing is known of it."""

    name: str
    domains: list[str] | None
    perturbations: list[str] | None


class Domain(Model):
    domain: str
    rows: Annotated[list[Row], Field(min_length=1)]


class Report(Model):
    suite: str
    policy: str
    checkpoint_step: int
    rows: Annotated[list[Row], Field(min_length=1)]
    phrasings: Numbers | None = None
    trained_on: list[Stage] | None = None
    domains: list[Domain] = []  # of a report of several
    scenario_groups: dict[str, list[str]] = {}  # rows by group, except the clean one
    bounds: dict[str, dict[str, Rate]] = {}
    cost: Cost | None = None
    glossary: dict[str, Meaning] = {}
    # Of an agent that is reached by messages: how many episodes, by the reason.
    unanswered_reasons: dict[str, Annotated[int, Field(ge=1)]] = {}

    @pydantic.model_validator(mode="after")
    def _of_the_same_tasks(self):
        texts = [r.outcomes for r in self.rows if r.outcomes is not None]
        numbers = [r.phrasings for r in (self, *self.rows) if r.phrasings is not None]
        if len({*map(len, texts), *(len(x.split()) for x in numbers)}) > 1:
            raise PydanticCustomError(
                "lengths", "has outcomes or phrasings of different numbers of tasks"
            )
        return self


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a report.

    It cannot say that an interval is null as a whole or not at all, nor that texts with
    a letter for each task are equally long; `files.load` checks both.
    """
    made = Report.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "report.json",
        "description": "A robustness report of openagent_jax; see docs/report.md.",
    } | {key: value for key, value in made.items() if key != "title"}


def text() -> str:
    """Return what `FILE` holds."""
    return json.dumps(json_schema(), indent=1) + "\n"
