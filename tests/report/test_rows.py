"""Rows compared with counts worked out by hand; means and medians."""

import dataclasses
import json

import numpy as np
import pytest

from openagent_jax import report
from tests.report.builders import (
    TRAP,
    UNSOLVABLE,
    episodes,
    make_report,
    outcomes,
    paired,
)

# success, solvable, refused, calls, errors, fewest, changed
TASKS = [
    (1, 1, 1, 9, 9, 1, 0),  # not changed by the perturbation, so it must not count
    (1, 1, 0, 3, 1, 2, 1),
    (1, 1, 0, 2, 0, 2, 1),
    (0, 1, 1, 0, 0, 1, 1),
    (0, 1, 0, 5, 4, 1, 1),
    (1, 0, 1, 1, 1, 4, 1),
    (0, 0, 0, 4, 0, 0, 1),
    (1, 0, 1, 0, 0, 0, 1),
    (1, 1, 0, 0, 0, 0, 1),
]


CLEAN = [(0, 1, 0, 9, 9, 1, 0)] + [(1, 1, 0, 2, 0, 2, 0)] * 8


def test_row_by_hand():
    row = report.row(UNSOLVABLE, 0.5, episodes(TASKS), episodes(CLEAN))
    success, delta = row.pop("success"), row.pop("delta")
    assert row == {
        "tier": "internalization",
        "shift": "action",
        "scenario": "unsolvable",
        "strength": 0.5,
        "family": "train",
        "n": 8,
        "tool_error_rate": 6 / 15,
        "recovery_rate": 1 / 2,
        "refusal_rate": 2 / 3,
        "false_refusal_rate": 1 / 5,
        "chain_length_ratio": (3 / 2 + 1) / 2,
    }
    assert set(success) == set(delta) == {"mean", "low", "high"}
    assert success["mean"] == 5 / 8
    assert delta["mean"] == 5 / 8 - 1
    json.dumps([row, success, delta], allow_nan=False)  # plain Python numbers only


def test_clean_row():
    clean = episodes(CLEAN)
    row = report.row(None, 0.0, clean, clean)
    what = {"tier": "clean", "scenario": "clean", "shift": "none"}
    assert {key: row[key] for key in what} == what
    assert (row["family"], row["n"]) == ("held_out", 9)  # all tasks, changed or not
    assert row["delta"] == {"mean": 0, "low": 0, "high": 0}
    assert row["success"]["mean"] == 8 / 9
    assert row["refusal_rate"] is None
    seen = report.row(None, 0.0, clean, clean, "train")
    assert seen == row | {"family": "train"}


def test_unanswered_episodes_are_not_failures():
    clean = outcomes([1, 1, 0, 0, 1], answered=[1, 1, 1, 0, 1])
    new = outcomes([1, 0, 0, 0, 0], answered=[1, 1, 0, 1, 0])
    row = report.row(TRAP, 1.0, new, clean)
    # Tasks 0, 1 and 3 were answered, 0 and 1 of them in both.
    assert (row["n"], row["unanswered"]) == (3, 2)
    assert row["success"]["mean"] == 1 / 3
    assert row["delta"] == paired([1, 0], [1, 1])
    first = report.row(None, 0.0, clean, clean)
    assert (first["n"], first["unanswered"], first["success"]["mean"]) == (4, 1, 0.75)
    assert first["delta"]["mean"] == 0
    made = {"suite": "poi", "policy": "x", "checkpoint_step": 0, "rows": [first, row]}
    assert "3 episodes never answered, and not counted" in report.table(made)
    assert "none answered" not in report.table(made)
    silent = report.row(TRAP, 1.0, outcomes([0], answered=[0]), outcomes([1]))
    shown = report.table(made | {"rows": [first, silent]})
    assert "none answered" in shown and "no task changed" not in shown
    assert "unanswered" not in report.row(TRAP, 1.0, outcomes([1]), outcomes([1]))


def test_row_without_a_task():
    rows = [
        report.row(TRAP, 1.0, outcomes([1, 0], [False, False]), outcomes([1, 1])),
        report.row(None, 0.0, outcomes([]), outcomes([])),
    ]
    for row in rows:
        nothing = {"mean": None, "low": None, "high": None}
        assert row["n"] == 0
        assert row["success"] == row["delta"] == nothing
        assert [row[k] for k in row if "rate" in k or "ratio" in k] == [None] * 5


def test_rates_with_a_zero_denominator():
    row = report.row(TRAP, 1.0, outcomes([1, 0]), outcomes([1, 1]))
    for key in ("tool_error_rate", "recovery_rate", "refusal_rate"):
        assert row[key] is None
    assert row["chain_length_ratio"] is None
    assert row["false_refusal_rate"] == 0


def test_episodes_are_checked():
    good = outcomes([1, 0])
    with pytest.raises(ValueError, match="success is not boolean"):
        dataclasses.replace(good, success=np.array([0.5, 1.0]))
    with pytest.raises(ValueError, match="not of the same tasks"):
        report.row(TRAP, 1.0, good, outcomes([1, 0, 1]))


def test_summary_weighs_scenarios_not_rows_or_tasks():
    means = report.summary(make_report()["rows"])
    trap, rule, unsolvable = (6 / 8 + 1 / 8) / 2, 4 / 7, 7 / 8
    assert list(means)[:4] == ["clean", "perception", "reasoning", "internalization"]
    assert means["clean"]["success"] == 7 / 8
    assert means["perception"]["success"] == trap  # not affected by the empty row
    assert means["perception"]["num_scenarios"] == 1
    perturbed = means["perturbed"]
    assert perturbed["success"] == pytest.approx((trap + rule + unsolvable) / 3)
    assert perturbed["refusal_rate"] == 0.5
    assert perturbed["false_refusal_rate"] == 0
    assert means["train"]["success"] == pytest.approx((trap + unsolvable) / 2)
    assert means["held_out"]["success"] == rule
    assert means["held_out"]["delta"] == rule - 1
    assert report.summary([])["perturbed"]["success"] is None


def test_median_is_taken_of_each_number():
    """The median success and the median refusal rate may come from different runs."""
    runs = [make_report(name) for name in "abc"]
    rates = (0.2, 0.9, 0.5), (0.7, 0.1, 0.0), (0, None, 0.4)  # JSON may hold an integer
    for run, clean, other, refused in zip(runs, *rates, strict=True):
        for r in run["rows"]:
            r["success"]["mean"] = clean if r["tier"] == "clean" else other
            r["refusal_rate"] = refused
    middle = report.median(runs)
    for i, r in enumerate(middle["rows"]):
        of = runs[2 if r["tier"] == "clean" else 1]["rows"][i]
        assert r == {**of, "refusal_rate": 0}
    assert report.median(runs[:1]) == runs[0]
    even = report.median(runs[:2])["rows"]
    assert {r["success"]["mean"] for r in even} == {0.2, 0.1}


@pytest.mark.parametrize(("numbers", "middle"), [((7, 0, 0), 0), ((0, 7, 9), 7)])
def test_median_of_optional_fields(numbers, middle):
    """A row says how many episodes were never answered only where there were any."""
    runs = [make_report(name) for name in "abc"]
    for run, number in zip(runs, numbers, strict=True):
        for r in run["rows"]:
            r.update({"unanswered": number} if number else {})
    rows = report.median(runs)["rows"]
    assert [r["unanswered"] for r in rows] == [middle] * len(rows)


@pytest.mark.parametrize("changes", [{"seed": 1}, {"rows": make_report()["rows"][1:]}])
def test_median_refuses_runs_that_are_not_comparable(changes):
    with pytest.raises(ValueError, match="evaluated alike"):
        report.median([make_report(), make_report(**changes)])
