"""pass^k and pass@k of rows, compared with all choices of k trials."""

import itertools

import numpy as np
import pytest

from openagent_jax import report
from openagent_jax.report import intervals, repeats
from tests.report import builders
from tests.report.builders import TRAP, make_report, outcomes

TRIALS = [[1, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]]


def choices(trials, k):
    """The trials of each choice of k."""
    return [[trials[i] for i in c] for c in itertools.combinations(range(4), k)]


def repeated(trials, **changes):
    """Episodes in which the trials of a task follow each other."""
    trials = np.asarray(trials)
    task = np.repeat(np.arange(len(trials)), trials.shape[1])
    changes = {"phrasing": task} | changes
    return outcomes(trials.ravel(), task=task, **changes)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_estimators_are_means_over_all_choices(k):
    every = np.mean([np.mean([all(c) for c in choices(x, k)]) for x in TRIALS])
    some = np.mean([np.mean([any(c) for c in choices(x, k)]) for x in TRIALS])
    assert report.pass_hat_k(np.array(TRIALS), k) == pytest.approx(every)
    assert report.pass_at_k(np.array(TRIALS), k) == pytest.approx(some)


def test_many_trials():
    assert report.pass_hat_k(np.ones((2, 2000)), 1000) == 1
    assert report.pass_at_k(np.eye(1, 2000), 2000) == 1


@pytest.mark.parametrize("estimate", [report.pass_hat_k, report.pass_at_k])
@pytest.mark.parametrize(
    ("successes", "k"),
    [
        ([[0.5, 1.0]], 1),
        ([[np.nan, 1.0]], 1),
        ([[2, 1]], 1),
        ([[0, 1]], 3),
        ([[0, 1]], 0),
        ([0, 1], 1),
        (np.zeros((0, 3)), 1),
    ],
)
def test_bad_outcomes(estimate, successes, k):
    with pytest.raises(ValueError, match="pass"):
        estimate(successes, k)


def test_rows_have_them_where_tasks_are_repeated():
    clean = repeated(np.ones((4, 4)))
    row = builders.row(TRAP, 1.0, repeated(TRIALS), clean, repeats=4)
    assert set(row["pass_hat_k"]) == set(row["pass_at_k"]) == {"2", "4"}
    for k in (2, 4):
        every, some = row["pass_hat_k"][str(k)], row["pass_at_k"][str(k)]
        assert every["mean"] == pytest.approx(report.pass_hat_k(np.array(TRIALS), k))
        assert some["mean"] == pytest.approx(report.pass_at_k(np.array(TRIALS), k))
        assert every["low"] < every["mean"] < some["mean"] < some["high"]
    # All trials of a task are one outcome: this is Wilson's interval of 1 of 4.
    wilson = intervals.rate(intervals.of_one(np.arange(4) < 1))
    assert row["pass_hat_k"]["4"] == pytest.approx(wilson)
    once = builders.row(TRAP, 1.0, outcomes(TRIALS[0]), outcomes([1] * 4))
    assert not set(repeats.KEYS) & set(once)


def test_trials_that_were_not_played_or_not_changed():
    answered = np.ones((4, 4))
    answered[0, 2] = answered[1, 1:] = 0  # three trials are left of 0, one of 1
    new = repeated(TRIALS, answered=answered.ravel())
    row = builders.row(TRAP, 1.0, new, repeated(np.ones((4, 4))), repeats=4)
    assert row["pass_hat_k"]["2"]["mean"] == pytest.approx((1 + 1 + 0) / 3)
    assert row["pass_hat_k"]["4"]["mean"] == pytest.approx(1 / 2)
    none = repeated(TRIALS, changed=np.zeros(16))
    row = builders.row(TRAP, 1.0, none, repeated(np.ones((4, 4))), repeats=4)
    assert row["pass_hat_k"] == {}


def test_pooled_seeds_and_their_table(tmp_path):
    runs = {}
    for i, name in enumerate("ab"):
        clean = repeated(np.ones((4, 4)))
        new = repeated(TRIALS[i:] + TRIALS[:i])
        rows = [builders.row(None, 0.0, clean, clean, repeats=4)]
        rows.append(builders.row(TRAP, 1.0, new, clean, repeats=4))
        phrasings = report.number(clean.phrasing)
        made = {"rows": rows, "repeats": 4, "train_seed": i, "phrasings": phrasings}
        runs[name] = make_report() | made
    pooled = report.pool(runs)
    found = pooled["rows"][1]["pass_hat_k"]["2"]
    one = runs["a"]["rows"][1]["pass_hat_k"]["2"]
    assert found["mean"] == pytest.approx(one["mean"])
    assert found["high"] - found["low"] > 0.3
    text = report.repeats_table(runs["a"], markdown=True)
    header = [x.strip() for x in text.splitlines()[0].split("|")[1:-1]]
    assert header == ["%", "success", "pass^2", "pass^4", "pass@2", "pass@4"]
    report.write(tmp_path, runs["a"])
    assert text in (tmp_path / "report.md").read_text()
    assert report.repeats_note(runs["a"]).startswith("Each task was played 4 times")
    assert report.repeats_table(make_report()) == ""


def test_each_domain_weighs_the_same():
    new, clean = repeated(TRIALS), repeated(np.ones((4, 4)))
    domains = np.repeat([0, 0, 0, 1], 4)
    row = builders.row(TRAP, 1.0, new, clean, repeats=4, domains=domains)
    expected = (np.mean([1 / 2, 0, 1]) + 0) / 2
    assert row["pass_hat_k"]["2"]["mean"] == pytest.approx(expected)
