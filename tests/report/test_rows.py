"""Rows compared with counts worked out by hand, and means over scenarios."""

import dataclasses
import json

import numpy as np
import pytest

from openagent_jax import report
from tests.report import builders
from tests.report.builders import (
    TRAP,
    UNSOLVABLE,
    episodes,
    make_report,
    outcomes,
    paired,
    without_outcomes,
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
    row = builders.row(UNSOLVABLE, 0.5, episodes(TASKS), episodes(CLEAN))
    success, delta = row.pop("success"), row.pop("delta")
    assert row.pop("retention")["mean"] == 5 / 8
    assert len(row.pop("tasks")) == 8
    assert row == {
        "tier": "internalization",
        "shift": "action",
        "scenario": "unsolvable",
        "strength": 0.5,
        "family": "train",
        "claim": "unseen_forms",
        "domain": "tiny",
        "n": 8,
        "tool_error_rate": 6 / 15,
        "recovery_rate": 1 / 2,
        "refusal_rate": 2 / 3,
        "false_refusal_rate": 1 / 5,
        "chain_length_ratio": (3 / 2 + 1) / 2,
        "needless_questions": 0,
        "outcomes": ".11r0RxR1",
    }
    assert set(success) == set(delta) == {"mean", "low", "high"}
    assert success["mean"] == 5 / 8
    assert delta["mean"] == 5 / 8 - 1
    json.dumps([row, success, delta], allow_nan=False)  # plain Python numbers only


def test_clean_row():
    clean = episodes(CLEAN)
    row = builders.row(None, 0.0, clean, clean)
    what = {"tier": "clean", "scenario": "clean", "shift": "none"}
    assert {key: row[key] for key in what} == what
    assert (row["family"], row["n"]) == ("held_out", 9)  # all tasks, changed or not
    assert row["delta"] == {"mean": 0, "low": 0, "high": 0}
    assert row["success"]["mean"] == 8 / 9
    assert row["refusal_rate"] is None
    seen = report.row(None, 0.0, clean, clean, report.Standing("train", None, "poi"))
    assert seen == row | {"family": "train", "claim": None, "domain": "poi"}


def test_unanswered_episodes_are_not_failures():
    clean = outcomes([1, 1, 0, 0, 1], answered=[1, 1, 1, 0, 1])
    new = outcomes([1, 0, 0, 0, 0], answered=[1, 1, 0, 1, 0])
    row = builders.row(TRAP, 1.0, new, clean)
    # Tasks 0, 1 and 3 were answered, 0 and 1 of them in both.
    assert (row["n"], row["unanswered"]) == (3, 2)
    assert row["success"]["mean"] == 1 / 3
    assert row["delta"] == paired([1, 0], [1, 1])
    first = builders.row(None, 0.0, clean, clean)
    assert (first["n"], first["unanswered"], first["success"]["mean"]) == (4, 1, 0.75)
    assert first["delta"]["mean"] == 0
    made = {"suite": "poi", "policy": "x", "checkpoint_step": 0, "rows": [first, row]}
    assert "3 episodes never answered, and not counted" in report.table(made)
    assert "none answered" not in report.table(made)
    silent = builders.row(TRAP, 1.0, outcomes([0], answered=[0]), outcomes([1]))
    shown = report.table(made | {"rows": [first, silent]})
    assert "none answered" in shown and "no task changed" not in shown
    assert "unanswered" not in builders.row(TRAP, 1.0, outcomes([1]), outcomes([1]))


def test_row_without_a_task():
    rows = [
        builders.row(TRAP, 1.0, outcomes([1, 0], [False, False]), outcomes([1, 1])),
        builders.row(None, 0.0, outcomes([]), outcomes([])),
    ]
    for row in rows:
        nothing = {"mean": None, "low": None, "high": None}
        assert row["n"] == 0
        assert row["success"] == row["delta"] == nothing
        assert [row[k] for k in row if "rate" in k or "ratio" in k] == [None] * 5
        assert row["needless_questions"] is None


def test_rates_with_a_zero_denominator():
    row = builders.row(TRAP, 1.0, outcomes([1, 0]), outcomes([1, 1]))
    for key in ("tool_error_rate", "recovery_rate", "refusal_rate"):
        assert row[key] is None
    assert row["chain_length_ratio"] is None
    assert row["false_refusal_rate"] == 0


def test_episodes_are_checked():
    good = outcomes([1, 0])
    with pytest.raises(ValueError, match="success is not boolean"):
        dataclasses.replace(good, success=np.array([0.5, 1.0]))
    with pytest.raises(ValueError, match="not of the same tasks"):
        builders.row(TRAP, 1.0, good, outcomes([1, 0, 1]))


def test_summary_weighs_scenarios_not_rows_or_tasks():
    means = report.summary(without_outcomes(make_report())["rows"])
    trap, rule = (6 / 8 + 1 / 8) / 2, 4 / 7
    assert list(means)[:4] == ["clean", "perception", "reasoning", "internalization"]
    assert means["clean"]["success"] == 7 / 8
    assert means["perception"]["success"] == trap  # not affected by the empty row
    assert means["perception"]["num_scenarios"] == 1
    perturbed = means["perturbed"]
    assert perturbed["success"] == pytest.approx((trap + rule) / 2)
    assert perturbed["num_scenarios"] == 3
    assert (perturbed["num_solvable"], perturbed["num_unsolvable"]) == (2, 1)
    assert perturbed["refusal_rate"] == 0.5
    assert perturbed["false_refusal_rate"] == 0
    assert means["train"]["success"] == trap
    assert means["internalization"]["success"] is None
    assert means["held_out"]["success"] == rule
    assert means["held_out"]["delta"] == rule - 1
    assert report.summary([])["perturbed"]["success"] is None


def test_summary_has_intervals_where_outcomes_are_known():
    made = make_report()
    known = report.summary(made["rows"], made["phrasings"])
    # Earlier versions have no claims; here they are the families.
    known |= {"train": known["unseen_forms"], "held_out": known["unseen_kind"]}
    numbers = report.summary(without_outcomes(made)["rows"])
    for name, means in numbers.items():
        for key in ("success", "delta", "refusal_rate", "false_refusal_rate"):
            found = known[name][key]
            if not isinstance(found, dict):
                assert found == means[key] and (key == "delta" or found is None)
                continue
            assert found["mean"] == means[key]
            assert found["low"] <= found["mean"] <= found["high"]
            assert found["low"] < found["high"]
    # One row alone has the interval of its row.
    (rule,) = (r for r in made["rows"] if r["scenario"] == "rule_shift")
    assert known["held_out"]["success"] == pytest.approx(rule["success"])
    assert known["held_out"]["delta"] == pytest.approx(rule["delta"])


def refuser(num=8):
    """The rows of an agent that refuses everything, on half a mix of both kinds."""
    yes, no = np.ones(num, bool), np.zeros(num, bool)
    half = np.arange(num) % 2 == 0
    clean = outcomes(no, refused=yes)
    all_gone = outcomes(yes, solvable=no, refused=yes)
    mixed = outcomes(half, solvable=~half, refused=yes)
    return [
        builders.row(None, 0.0, clean, clean),
        builders.row(builders.UNSOLVABLE, 1.0, all_gone, clean),
        builders.row(TRAP, 1.0, mixed, clean),
    ]


def test_an_agent_that_refuses_everything_gains_nothing():
    """Its refusals are one number, and its success, which is 0, is another."""
    rows = refuser()
    # What the contract calls success counts both; shown alone, it would be a gain.
    assert [r["success"]["mean"] for r in rows] == [0, 1, 0.5]
    made = report.on_solvable({"rows": rows, "phrasings": "0 1 2 3 4 5 6 7"})
    assert [r["success"]["mean"] for r in made["rows"]] == [0, None, 0]
    assert [r["delta"]["mean"] for r in made["rows"]] == [0, None, 0]
    assert [r["refusal"]["mean"] for r in made["rows"][1:]] == [1, 1]
    assert made["rows"][0] is rows[0]  # all of its tasks can be solved
    for name, means in report.summary(rows, made["phrasings"]).items():
        assert report.average([means["success"], means["delta"]]) in (None, 0), name
    perturbed = report.summary(rows, made["phrasings"])["perturbed"]
    assert perturbed["refusal_rate"]["mean"] == perturbed["false_refusal_rate"]["mean"]
    assert perturbed["refusal_rate"]["mean"] == 1
    # Without outcomes nothing is known of a row with tasks of both kinds.
    old = report.on_solvable(without_outcomes({"rows": rows}))["rows"]
    assert [r["success"]["mean"] for r in old] == [0, None, None]


def test_seeds_that_refuse_everything_gain_nothing_either():
    runs = {
        str(i): make_report(rows=refuser(), train_seed=i, phrasings="0 1 2 3 4 5 6 7")
        for i in range(2)
    }
    pooled = report.pool(runs)
    made = report.on_solvable(pooled)["rows"]
    assert [r["success"]["mean"] for r in made] == [0, None, 0]
    assert [x["success"]["mean"] for x in made[2]["runs"]] == [0, 0]
    text = report.side_by_side({"a": pooled, "b": pooled})
    line = next(x for x in text.splitlines() if x.startswith("perturbed"))
    assert line.startswith("perturbed, mean of 1 + 2 ") and line.split()[6] == "0.0"
    assert "100.0" not in text.split("false refusals")[0]


def test_every_scenario_counts_for_a_mean_but_tasks_are_shared():
    """Two scenarios with the same outcomes tell no more than one of them."""
    clean = outcomes([1] * 8)
    rows = [builders.row(TRAP, 1.0, outcomes([1, 1, 1, 0, 0, 0, 0, 0]), clean)]
    twin = rows[0] | {"scenario": "tool_order"}
    one = report.summary(rows, "0 1 2 3 4 5 6 7")["perturbed"]["success"]
    two = report.summary([*rows, twin], "0 1 2 3 4 5 6 7")["perturbed"]["success"]
    assert two["mean"] == one["mean"] == 3 / 8
    assert two["low"] <= one["low"] and two["high"] >= one["high"]


def test_a_task_that_was_drawn_twice_counts_once():
    clean = outcomes([1, 1, 0, 1], task=np.array([5, 5, 7, 9]))
    row = builders.row(None, 0.0, clean, clean)
    assert (row["n"], row["outcomes"], row["success"]["mean"]) == (3, "1.01", 2 / 3)
    # The second of two equal tasks counts if the first was not answered.
    new = outcomes([0, 1, 0, 1], answered=[0, 1, 1, 1], task=np.array([5, 5, 7, 9]))
    row = builders.row(TRAP, 1.0, new, clean)
    assert (row["n"], row["outcomes"], row["unanswered"]) == (3, "?101", 1)


def test_tasks_that_are_worded_alike_widen_the_interval():
    success = np.repeat([1, 0], 20)
    apart = builders.row(None, 0.0, *[outcomes(success)] * 2)["success"]
    alike = outcomes(success, phrasing=np.repeat(np.arange(10), 4))
    alike = builders.row(None, 0.0, alike, alike)["success"]
    assert alike["mean"] == apart["mean"]
    assert alike["high"] - alike["low"] > 1.5 * (apart["high"] - apart["low"])


def test_a_reworded_row_has_its_own_phrasings():
    clean = outcomes([1, 0, 1, 1], phrasing=np.array([3, 3, 4, 4]))
    new = outcomes([1, 0, 0, 1], phrasing=np.array([8, 9, 8, 9]))
    assert builders.row(TRAP, 1.0, new, clean)["phrasings"] == "0 1 0 1"
    same = outcomes([1, 0, 0, 1], phrasing=np.array([6, 6, 2, 2]))
    assert "phrasings" not in builders.row(TRAP, 1.0, same, clean)


def test_needless_questions_are_averaged_over_episodes():
    asked = outcomes([1, 1, 1, 1], num_needless_questions=np.array([2, 0, 1, 0]))
    row = builders.row(None, 0.0, asked, asked)
    assert row["needless_questions"] == 0.75
    made = {"suite": "poi", "policy": "x", "checkpoint_step": 0, "rows": [row]}
    header, _, line = report.table(made).splitlines()[-3:]
    assert header.endswith("needless questions") and line.endswith(" 0.75")
    assert ">needless questions<" in builders.page(made)
    silent = builders.row(None, 0.0, *[outcomes([1, 1])] * 2)
    assert "needless" not in report.table(made | {"rows": [silent]})


def test_n_counts_tasks_and_intervals_are_of_tasks():
    """Five tasks that are played twenty times each are no hundred tasks."""
    number = np.repeat(np.arange(5), 20)
    played = episodes([(i < 3, 1, 0, 1, 0, 1, 1) for i in number])
    clean = dataclasses.replace(played, task=number, phrasing=number)
    edited = dataclasses.replace(clean, task=np.arange(100) + 100)  # each differs
    again = builders.row(TRAP, 1.0, edited, clean, repeats=20)
    assert again["n"] == 5 and again["outcomes"] == "1" * 60 + "0" * 40
    once = np.arange(0, 100, 20)

    def first(x):
        return dataclasses.replace(x, **{k: v[once] for k, v in vars(x).items()})

    single = builders.row(TRAP, 1.0, first(edited), first(clean))
    assert single["n"] == 5 and single["outcomes"] == "11100"

    def width(row):
        return row["success"]["high"] - row["success"]["low"]

    assert width(again) >= 0.9 * width(single) > 0.5
    # A clean task counts once in each repeat, and only once without repeats.
    assert builders.row(None, 0.0, clean, clean, repeats=20)["outcomes"].count(".") == 0
    assert builders.row(None, 0.0, clean, clean)["outcomes"].count(".") == 95


def test_n_of_pooled_repeats():
    """Runs of two seeds have tasks, not episodes, in common."""
    number = np.repeat(np.arange(3), 2)
    clean = dataclasses.replace(
        episodes([(1, 1, 0, 1, 0, 1, 1)] * 6), task=number, phrasing=number
    )
    rows = [builders.row(None, 0.0, clean, clean, repeats=2)]
    made = make_report() | {"rows": rows, "repeats": 2, "phrasings": "0 0 1 1 2 2"}
    runs = {name: made | {"train_seed": name} for name in "ab"}
    assert report.pool(runs)["rows"][0]["n"] == 3
    runs["b"] = runs["b"] | {"repeats": 1}
    with pytest.raises(ValueError, match="repeats is 2 .*, 1 "):
        report.pool(runs)
