"""The JSON schema that ships is that of the models, and accepts real reports."""

import json
from pathlib import Path

import jsonschema
import pytest

from openagent_jax.report import files, schema
from tests.report.builders import make_report

STORED = sorted((Path(__file__).parents[2] / "docs/results").rglob("report.json"))
SCHEMA = json.loads(schema.FILE.read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_file_is_current():
    assert schema.FILE.read_text("utf-8") == schema.text(), "write it, see schema.py"
    VALIDATOR.check_schema(SCHEMA)


def test_stored_reports_are_accepted():
    assert len(STORED) > 20
    for file in STORED:
        VALIDATOR.validate(json.loads(file.read_text("utf-8")))
    VALIDATOR.validate(make_report(of_the_future=[1]))
    VALIDATOR.validate(make_report(unanswered_reasons={"no answer in 5 s": 2}))
    VALIDATOR.validate(make_report(cost={"episodes": 2, "prompt_tokens": None}))
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(make_report(cost={"episodes": 2, "completion_tokens": -1}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("family", "other"),
        ("n", -1),
        ("outcomes", "1?z"),
        ("success", {"mean": 1.5, "low": 0.0, "high": 1.0}),
        ("refusal_rate", "0.5"),
        ("claim", "all"),
    ],
)
def test_what_the_schema_refuses_a_reader_refuses(tmp_path, key, value):
    made = make_report()
    made["rows"][1][key] = value
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(made)
    (tmp_path / "report.json").write_text(json.dumps(made))
    with pytest.raises(ValueError, match=rf"rows\[1\]\.{key}"):
        files.load(tmp_path)
