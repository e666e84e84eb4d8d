"""Reports of several seeds, joined into one."""

import json

import numpy as np
import pytest

from openagent_jax import report
from openagent_jax.report import rows as means
from tests.report import builders
from tests.report.builders import TRAP, make_report, outcomes, without_outcomes

PATHS = "abc"


def runs(*successes, clean=None):
    """One report for each seed, with a clean row and one perturbed row."""
    made = {}
    for i, success in enumerate(successes):
        first = outcomes(np.ones(len(success)) if clean is None else clean[i])
        rows = [builders.row(None, 0.0, first, first)]
        rows.append(builders.row(TRAP, 1.0, outcomes(success), first))
        phrasings = report.number(np.arange(len(success)))
        made[PATHS[i]] = make_report(rows=rows, phrasings=phrasings, train_seed=i)
    return made


def test_numbers_are_means_over_seeds():
    found = report.pool(runs([1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]))
    assert found["num_seeds"] == 3 and "train_seed" not in found
    _, trap = found["rows"]
    assert trap["success"]["mean"] == pytest.approx(5 / 12)
    assert trap["delta"]["mean"] == pytest.approx(5 / 12 - 1)
    assert means.by_seed([trap], "success") == [0.75, 0.5, 0]
    assert trap["n"] == 4  # distinct tasks, not episodes
    assert trap["outcomes"] == ["1110", "1100", "0000"]


def test_means_are_taken_over_seeds_first_and_then_over_rows():
    """Medians of rows came from different seeds, which gave a mean of no seed."""
    one, two = (make_report(x, train_seed=i) for i, x in enumerate("ab"))
    for made, rates in ((one, (0.9, 0.1)), (two, (0.1, 0.3))):
        for r, rate in zip(made["rows"], rates, strict=False):
            r["false_refusal_rate"] = rate
    pooled = report.pool({"a": without_outcomes(one), "b": without_outcomes(two)})
    rows = [r for r in pooled["rows"] if r["false_refusal_rate"] and r["n"]][:2]
    mean = report.summary(rows)["perturbed"]["false_refusal_rate"]
    assert mean["mean"] == pytest.approx((0.9 + 0.1 + 0.1 + 0.3) / 4)
    assert means.by_seed(rows, "false_refusal_rate") == pytest.approx([0.5, 0.2])


def test_the_spread_of_seeds_widens_the_interval():
    agree = report.pool(runs(*[[1] * 20 + [0] * 20] * 3))["rows"][1]
    differ = [1] * 38 + [0] * 2, [1] * 20 + [0] * 20, [1] * 2 + [0] * 38
    differ = report.pool(runs(*differ))["rows"][1]
    for key in ("success", "delta"):
        assert agree[key]["mean"] == pytest.approx(differ[key]["mean"])
        widths = [x[key]["high"] - x[key]["low"] for x in (agree, differ)]
        assert 0.2 < widths[0] < widths[1] / 1.5


def test_intervals_have_a_width_when_nothing_differs():
    found = report.pool(runs(*[[1] * 30] * 3))["rows"][1]
    assert found["success"]["mean"] == 1 and found["success"]["low"] < 0.95
    assert found["delta"]["low"] < -0.05 and 0.05 < found["delta"]["high"]


def test_tasks_that_one_run_did_not_answer():
    made = runs([1, 1, 0, 0], [1, 0, 0, 0])
    clean = outcomes([1] * 4)
    silent = outcomes([1, 1, 0, 0], answered=[1, 1, 0, 1])
    made["a"]["rows"][1] = builders.row(TRAP, 1.0, silent, clean)
    row = report.pool(made)["rows"][1]
    assert (row["n"], row["unanswered"]) == (4, 1)
    assert row["success"]["mean"] == pytest.approx((2 / 3 + 1 / 4) / 2)


def test_reports_without_outcomes_get_an_interval_over_seeds_alone():
    """PAFT's refusals of 96.9, 61.5 and 93.8 % were printed as 93.8 [87.0, 97.1]."""
    made = runs(*[[1] * 93 + [0] * 3, [1] * 59 + [0] * 37, [1] * 90 + [0] * 6])
    old = {name: without_outcomes(x) for name, x in made.items()}
    found = report.pool(old)["rows"][1]["success"]
    assert found["mean"] == pytest.approx((93 + 59 + 90) / 3 / 96)
    assert found["low"] < 0.35 and found["high"] > 0.98  # t over three seeds is wide
    text = report.side_by_side({"PAFT": report.pool(old)})
    assert "PAFT (3 seeds)" in text and "84.0 [" in text
    assert "over 3 seeds alone (Student's t), because these reports do not have" in text


def test_runs_of_different_suites_are_joined_only_if_asked():
    made = runs([1, 1, 0, 0], [1, 0, 0, 0])
    made["a"]["scenario_set_hash"] = "abc"
    with pytest.raises(ValueError, match=r"scenario_set_hash is abc \(a\), none \(b\)"):
        report.pool(made)
    assert report.pool(made, across_suites=True)["num_seeds"] == 2
    assert report.of_different_suites(made) == "scenario_set_hash is abc (a), none (b)"
    made["b"]["scenario_set_hash"] = "abc"
    assert report.of_different_suites(made) == report.differences(made) == ""


def test_runs_that_were_trained_differently_are_not_joined():
    made = runs([1, 1, 0, 0], [1, 0, 0, 0])
    made["b"]["rows"][1]["claim"] = "unseen_kind"
    with pytest.raises(ValueError, match="alike can be joined: claim of semantic_trap"):
        report.pool(made)


def test_bounds_are_those_of_all_runs():
    bounds = {"oracle": {"clean": 1.0}}
    made = {x: make_report(train_seed=x, bounds=bounds) for x in "ab"}
    assert report.pool(made)["bounds"] == bounds
    del made["a"]["bounds"]
    assert "bounds" not in report.pool(made)


def test_costs_are_added_up():
    cost = {"episodes": 8, "prompt_tokens": 90, "completion_tokens": 5}
    costs = cost, cost | {"completion_tokens": 6, "latency_median": 0.5}
    made = {x: make_report(train_seed=x, cost=y) for x, y in zip("ab", costs)}
    total = {"episodes": 16, "prompt_tokens": 180, "completion_tokens": 11}
    assert report.pool(made)["cost"] == total
    made["b"]["cost"]["prompt_tokens"] = None  # an endpoint that does not count them
    assert "prompt_tokens" not in report.pool(made)["cost"]
    del made["a"]["cost"]
    assert "cost" not in report.pool(made)


def test_one_report_is_returned_as_it_is():
    made = make_report()
    assert report.pool({"a": made}) is made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, r"seed is 0 \(a\), 1 \(b\)"),
        ({"grading_version": 2}, r"grading_version is 1 \(a\), 2 \(b\)"),
        ({"rows": make_report()["rows"][1:]}, "a and b do not both have unsolvable"),
        ({"train_seed": 0}, r"a and b are of one training seed \(0\)"),
    ],
)
def test_runs_that_do_not_belong_together(changes, message):
    reports = {"a": make_report(train_seed=0), "b": make_report(train_seed=1)}
    reports["b"] |= changes
    with pytest.raises(ValueError, match=message):
        report.pool(reports)


def test_other_tasks_are_recognised_by_their_digest():
    made = runs([1, 0, 0, 0], [1, 1, 0, 0])
    made["b"]["rows"][1]["tasks"] = "00000000"
    with pytest.raises(ValueError, match=r"tasks of semantic_trap is .* \(b\)"):
        report.pool(made)


def test_outcomes_survive_json_and_are_checked(tmp_path):
    made = runs([1, 0, 0, 1])["a"]
    path = report.write(tmp_path, made)
    assert report.load(path) == made
    for row, outcomes_of in ((0, "111"), (1, "1z01")):
        wrong = json.loads(json.dumps(made))
        wrong["rows"][row]["outcomes"] = outcomes_of
        with pytest.raises(ValueError, match="not a report"):
            report.write(tmp_path / "wrong", wrong)


def test_a_large_report_stays_small(tmp_path):
    """384 tasks, 25 rows."""
    rng = np.random.default_rng(0)
    clean = outcomes(rng.random(384) < 0.5, phrasing=rng.integers(70, size=384))
    row = builders.row(TRAP, 1.0, clean, clean)
    rows = [row | {"scenario": f"scenario_{i}"} for i in range(24)]
    rows.append(builders.row(None, 0.0, clean, clean))
    made = make_report(rows=rows, phrasings=report.number(clean.phrasing))
    assert report.write(tmp_path, made).stat().st_size < 60_000
