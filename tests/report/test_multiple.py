"""p-values that agree with intervals, Holm's correction, retention and comparisons."""

import dataclasses
import re

import numpy as np
import pytest
from scipy import stats

from openagent_jax import report
from openagent_jax.report import intervals, multiple
from tests.report import builders
from tests.report.builders import TRAP, make_report, outcomes
from tests.report.test_pool import runs


def drawn(rng, num_seeds, num_tasks, num_wordings, rates):
    """Two sets of outcomes on the same tasks."""
    wordings = rng.integers(num_wordings, size=num_tasks)
    weights = np.full((num_seeds, num_tasks), 1 / num_tasks)
    return [
        intervals.Outcomes(
            (rng.random((num_seeds, num_tasks)) < rate).astype(float),
            weights,
            [wordings],
            np.zeros(num_tasks, int),
        )
        for rate in rates
    ]


def test_p_values_invert_the_interval():
    rng = np.random.default_rng(0)
    significant = []
    for num_seeds in (1, 4):
        for gap in (0.0, 0.05, 0.1, 0.2, 0.5):
            pair = drawn(rng, num_seeds, 60, 30, (0.4 + gap, 0.4))
            p = multiple.p_value(*pair)
            found = intervals.difference(*pair)
            significant.append(found["low"] > 0 or found["high"] < 0)
            assert (p <= 0.05) == significant[-1]
            if p < 1:
                near = intervals.difference(*pair, alpha=p * np.array([0.99, 1.01]))
                outside = (near["low"] > 0) | (near["high"] < 0)
                assert outside.tolist() == [False, True]
    assert 0 < sum(significant) < len(significant)


def test_p_value_of_one_rate_against_its_opposite_is_exact():
    """All gained or lost: the correlation is -1, and the intervals are Wilson's."""
    new = intervals.of_one(np.arange(50) < 33)
    old = intervals.of_one(np.arange(50) >= 33)
    # The intervals of p and 1 - p touch where Wilson's interval of p ends at a half.
    z = (33 / 50 - 0.5) / (0.25 / 50) ** 0.5
    assert multiple.p_value(new, old) == pytest.approx(2 * stats.norm.sf(z), rel=1e-3)


def test_equal_rates_have_no_p_value_below_one():
    same = intervals.of_one(np.arange(50) < 33)
    assert multiple.p_value(same, same) == 1
    gone, all_of = (intervals.of_one(np.full(800, x)) for x in (False, True))
    assert multiple.p_value(gone, all_of) == pytest.approx(multiple.LEAST, rel=1e-2)


def test_many_p_values_at_once_are_the_same():
    rng = np.random.default_rng(1)
    pairs = [drawn(rng, 3, 40, 40, (0.8, 0.5)) for _ in range(5)]
    groups = [pairs[0][0].groups] * 2
    stacked = [
        dataclasses.replace(
            pairs[0][i], values=np.stack([x[i].values for x in pairs]), groups=groups[i]
        )
        for i in (0, 1)
    ]
    pairs = [[dataclasses.replace(x, groups=groups[0]) for x in p] for p in pairs]
    one_by_one = [multiple.p_value(*pair) for pair in pairs]
    np.testing.assert_allclose(multiple.p_value(*stacked), one_by_one)


def test_holm():
    p = [0.0001, 0.4, 0.011, 0.02, 0.6]
    # Steps down from the smallest: times 5, 4, 3, 2, 1, and never below the one before.
    expected = [0.0005, 0.8, 0.044, 0.06, 0.8]
    assert multiple.holm(p) == pytest.approx(expected)
    assert multiple.holm([]) == []
    assert multiple.holm([0.9, 0.9]) == [1, 1]


def test_rows_are_adjusted_over_their_report():
    made = make_report()
    tested = [r for r in made["rows"] if "p" in r]
    assert [r["scenario"] for r in tested] == [
        "semantic_trap",
        "semantic_trap",
        "rule_shift",
    ]  # neither clean nor rows without a task that can be solved
    raw = [r["p"]["raw"] for r in tested]
    assert [r["p"]["holm"] for r in tested] == multiple.holm(raw)
    for r in tested:
        assert (r["p"]["raw"] <= 0.05) == (
            not r["delta"]["low"] <= 0 <= r["delta"]["high"]
        )
    assert [multiple.holds(r) for r in tested] == [False, True, False]
    lines = report.table(made).splitlines()
    assert [x.split()[0] for x in lines if "]*" in x] == ["semantic_trap"]
    assert "over the\n3 rows of this table" in report.differences_note(made)


def test_without_outcomes_nothing_is_marked(tmp_path):
    old = builders.without_outcomes(make_report())
    assert report.differences_table(old) == "" and "]*" not in report.table(old)
    pooled = report.pool({"a": old | {"train_seed": 0}, "b": old | {"train_seed": 1}})
    assert report.differences_table(pooled) == ""
    assert pooled["rows"][0]["retention"]["mean"] is None
    report.write(tmp_path, pooled)


def test_pooled_rows_have_p_values_of_their_own():
    made = runs([1] * 4 + [0] * 36, [1] * 6 + [0] * 34, [1] * 5 + [0] * 35)
    for x in made.values():
        report.adjust(x["rows"], x["phrasings"])
    pooled = report.pool(made)["rows"][1]
    assert pooled["p"]["raw"] <= 0.05
    assert pooled["p"]["raw"] != made["a"]["rows"][1]["p"]["raw"]


def test_retention():
    clean, new = outcomes([1] * 16 + [0] * 4), outcomes([1] * 8 + [0] * 12)
    row = builders.row(TRAP, 1.0, new, clean)
    found = row["retention"]
    assert found["mean"] == pytest.approx(0.5)
    assert 0.2 < found["low"] < 0.35 and 0.65 < found["high"] < 0.8
    # It excludes 1 exactly where the difference excludes 0.
    assert row["delta"]["high"] < 0 and found["high"] < 1
    pooled = report.pool(runs([1] * 4 + [0] * 4, [1] * 2 + [0] * 6))["rows"]
    assert pooled[1]["retention"]["mean"] == pytest.approx(3 / 8)
    assert pooled[0]["retention"] == {"mean": 1.0, "low": 1.0, "high": 1.0}


def test_retention_excludes_one_where_the_difference_excludes_zero():
    rng = np.random.default_rng(2)
    for num_seeds in (1, 4):
        for _ in range(20):
            new, old = drawn(rng, num_seeds, 40, 20, (0.5, 0.7))
            ratio, delta = intervals.ratio(new, old), intervals.difference(new, old)
            assert (ratio["high"] < 1) == (delta["high"] < 0)
            assert (ratio["low"] > 1) == (delta["low"] > 0)


def test_retention_without_clean_success():
    none, some = outcomes([0] * 8), outcomes([1] + [0] * 7)
    nothing = {"mean": None, "low": None, "high": None}
    assert builders.row(TRAP, 1.0, some, none)["retention"] == nothing
    assert builders.row(TRAP, 1.0, none, some)["retention"]["mean"] == 0
    # Seeds that differ as much as they can: the clean success may be 0.
    made = runs([1] * 8, [0] * 8, clean=[np.ones(8), np.zeros(8)])
    assert report.pool(made)["rows"][1]["retention"] == nothing


def test_reports_are_compared_row_by_row():
    one, two = make_report(), make_report("other")
    low = outcomes([0] * 8)
    one["rows"][2] = builders.row(TRAP, 1.0, low, outcomes([1] * 7 + [0]))
    found = {x["label"]: x for x in report.between(one, two)}
    trap = found["semantic_trap"]
    assert trap["difference"]["mean"] == pytest.approx(-1 / 8) and trap["n"] == 8
    assert found["clean"]["difference"]["mean"] == 0 and found["clean"]["p"]["raw"] == 1
    assert found["perturbed"]["difference"]["mean"] == pytest.approx(-1 / 8 / 2 / 2)
    assert found["perturbed"]["p"]["holm"] is None and "tool_order" not in found
    several = report.pool(runs([1, 0, 0, 0], [1, 1, 0, 0]))
    with pytest.raises(ValueError, match="as many seeds of both, not 2 and 1"):
        report.between(several, one)
    with pytest.raises(ValueError, match="need the same tasks, but seed is 1"):
        report.between(make_report(seed=1), one)


def test_one_run_has_no_interval_beside_several():
    made = runs([1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0])
    columns = {"one": made["a"], "three": report.pool(made)}
    text = report.side_by_side(columns, markdown=True)
    header, _, *lines = [x for x in text.splitlines() if x.startswith("|")]
    for line in lines:
        one, three = [x.strip() for x in line.split("|")[2:4]]
        assert "[" not in one and ("[" in three or three == "-"), line
    assert "one: none, because one run beside several seeds" in text
    drawn_lines = r"stroke: var\(--(c\d)\); stroke-width: 1.8"
    lines = re.findall(drawn_lines, report.picture(columns))
    assert {*lines} == {"c1"}
    alone = report.side_by_side({"one": made["a"], "other": made["b"]})
    assert "75.0 [" in alone
