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


def test_table_and_picture_are_what_their_command_makes():
    columns = re.search(r"--compare=(\w+=docs/[^\s`]+)", README)
    figure = re.search(r"--figure=(docs/\S+\.svg)", README)
    assert columns and figure
    reports = report.columns(columns[1].split(","))
    assert report.side_by_side(reports, markdown=True) in README
    assert report.picture(reports) == Path(figure[1]).read_text()
    assert f"]({figure[1]})" in README


def test_files_exist():
    named = re.findall(r"(?:configs|docs|launch|openagent_jax)/[\w/.]*\w", README)
    assert len(named) > 5
    for name in set(named) - {"configs/NAME.py"}:
        assert list(ROOT.glob(name)), name
