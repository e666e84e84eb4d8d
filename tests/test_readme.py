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


def cells(line):
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def test_the_diagnosis_is_that_of_the_page():
    page = [cells(x) for x in Path("docs/results.md").read_text().splitlines()]
    names = next(row for row in page if row[0] == "success %")
    columns = ["SFT", "SFT+GRPO", "PAFT", "half of PAFT", "PAFT+GRPO"]
    columns = [names.index(name) for name in [*columns, "PAFT+perturbed GRPO"]]
    lines = README.split("## Diagnosis")[1].split("## ")[0].splitlines()
    table = [cells(x) for x in lines if x.startswith("|")][2:]
    assert len(table) == 4
    for label, *values in table:
        row = next(row for row in page if row[0] == label)
        assert values == [row[i].split(" [")[0] for i in columns], label


def test_what_grpo_raises_is_in_stored_reports():
    text = " ".join(README.split())
    for how in ("sampled", "greedy"):
        shown = []
        for when in ("before", "after"):
            clean = report.load(f"docs/results/learning/{when}_{how}")["rows"][0]
            mean, low, high = (
                100 * clean["success"][x] for x in ("mean", "low", "high")
            )
            shown.append(f"{mean:.1f} [{low:.1f}, {high:.1f}]")
        assert " to ".join(shown) in text


def test_scores_of_a_pretrained_model_are_in_stored_reports():
    lines = README.split("## Pretrained models")[1].split("## ")[0].splitlines()
    table = [cells(x) for x in lines if x.startswith("|")][2:]
    stored = report.columns(
        [
            "base=docs/results/base",
            "paft=" + "+".join(f"docs/results/paft_{seed}" for seed in range(3)),
            "smollm2=docs/results/smollm2_base",
        ]
    )
    rows = [
        {row["scenario"]: row["success"] for row in x["rows"]} for x in stored.values()
    ]
    assert len(table) == len(rows[-1])
    for name, *shown in table:
        base, paft, smollm2 = (
            [f"{100 * x[name][field]:.1f}" for field in ("mean", "low", "high")]
            for x in rows
        )
        assert shown == [base[0], paft[0], "{} [{}, {}]".format(*smollm2)]


def test_scores_on_public_tasks_are_in_stored_reports():
    page = Path("docs/own_agent.md").read_text()
    (_, *names), _, *table = [cells(x) for x in page.splitlines() if x.startswith("|")]
    stored = report.columns([f"{name}=docs/results/bfcl_{name}" for name in names])
    rows = [{row["scenario"]: row for row in x["rows"]} for x in stored.values()]
    assert len(table) == len(rows[0]) and len(rows) == 3
    for scenario, *shown in table:
        for cell, row in zip(shown, (x[scenario] for x in rows), strict=True):
            values = [row["success"][field] for field in ("mean", "low", "high")]
            if row["n"]:
                assert cell == "{:.1f} [{:.1f}, {:.1f}]".format(
                    *(100 * x for x in values)
                )
            else:
                assert cell == "no task changed"
