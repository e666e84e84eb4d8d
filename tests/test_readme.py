"""The README's results are those of the stored reports, and its files exist."""

import re
from pathlib import Path

import pytest

from openagent_jax import report

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.fixture(autouse=True)
def at_the_top(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_table_is_what_its_command_prints():
    columns = re.search(r"--compare=(\w+=docs/[^\s`]+)", README)
    assert columns
    reports = report.columns(columns[1].split(","))
    assert report.side_by_side(reports, markdown=True) in README


def test_files_exist():
    named = re.findall(r"(?:configs|docs|launch|openagent_jax)/[\w/.]*\w", README)
    assert len(named) > 5
    for name in set(named) - {"configs/NAME.py"}:
        assert list(ROOT.glob(name)), name
