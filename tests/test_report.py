"""Rows against closed forms, intervals against their promise, pages as text."""

import dataclasses
import functools
import itertools
import json
import os
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import special, stats

from openagent_jax import report
from openagent_jax.perturb import CATALOGUE

UNSOLVABLE, TRAP = CATALOGUE["unsolvable"], CATALOGUE["semantic_trap"]
FIELDS = {"success": bool, "solvable": bool, "refused": bool, "num_calls": int}
FIELDS |= {"num_errors": int, "fewest_calls": int, "changed": bool}


def episodes(tasks):
    """From rows of numbers, a task each, in the order of the fields."""
    columns = np.reshape(tasks, (-1, len(FIELDS))).T
    pairs = zip(FIELDS.items(), columns, strict=True)
    found = {name: x.astype(t) for (name, t), x in pairs}
    return report.Episodes(**found, answered=np.ones(columns.shape[1], bool))


def outcomes(success, changed=None, answered=None):
    """Episodes of which only the success matters."""
    success = np.asarray(success, bool)
    no, zero = np.zeros(len(success), bool), np.zeros(len(success), int)
    changed, answered = (
        ~no if x is None else np.array(x, bool) for x in (changed, answered)
    )
    return report.Episodes(success, ~no, no, zero, zero, zero, changed, answered)


def test_unanswered_episodes_are_no_failures():
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


def paired(new, old):
    return report.row(TRAP, 1.0, outcomes(new), outcomes(old))["delta"]


def table_of_four(both, gained, lost, neither):
    new = np.repeat([1, 1, 0, 0], [both, gained, lost, neither])
    old = np.repeat([1, 0, 1, 0], [both, gained, lost, neither])
    return paired(new, old)


# success, solvable, refused, calls, errors, fewest, changed
TASKS = [
    (1, 1, 1, 9, 9, 1, 0),  # not changed: must not count
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


def test_row_is_the_contract():
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
    json.dumps([row, success, delta], allow_nan=False)  # numbers of Python only


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


def test_rates_without_what_they_are_of():
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


@pytest.mark.parametrize(("count", "n"), [(0, 10), (10, 10), (7, 20), (391, 400)])
def test_success_interval_is_wilson(count, n):
    # Those p at which a score test would not reject: |c/n - p| = z sd(p).
    success = report.row(None, 0.0, *[outcomes(np.arange(n) < count)] * 2)["success"]
    z = stats.norm.ppf(0.975)
    for p in {success["low"], success["high"]} - {0.0, 1.0}:
        np.testing.assert_allclose(abs(count / n - p), z * (p * (1 - p) / n) ** 0.5)
    assert success["low"] <= count / n <= success["high"]
    assert (success["low"] == 0) == (count == 0)
    assert (success["high"] == 1) == (count == n)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [  # of Cavo 2012 and Bentur 2009, as R's contingencytables gives them
        ((59, 6, 16, 80), (-0.0621, -0.1186, -0.0046)),
        ((1, 1, 7, 12), (-0.2857, -0.5069, -0.0256)),
    ],
)
def test_delta_interval_is_newcombe(counts, expected):
    found = table_of_four(*counts)
    np.testing.assert_allclose(list(found.values()), expected, atol=5e-5)


@pytest.mark.parametrize("counts", [(9, 0, 0, 0), (0, 0, 0, 9), (0, 9, 0, 0)])
def test_delta_interval_has_a_width_when_all_tasks_agree(counts):
    found = table_of_four(*counts)
    assert -1 <= found["low"] < found["high"] <= 1
    assert found["low"] <= found["mean"] <= found["high"]
    assert found["high"] - found["low"] > 0.2


def test_delta_turns_around():
    there, back = table_of_four(20, 3, 9, 8), table_of_four(20, 9, 3, 8)
    assert there["mean"] == pytest.approx(-6 / 40)
    np.testing.assert_allclose(there["low"], -back["high"])
    np.testing.assert_allclose(there["high"], -back["low"])


def test_pairing_narrows_the_delta():
    old = np.repeat([True, False], 50)
    new = np.repeat([True, False], [42, 58])
    same, apart = paired(new, old), paired(np.roll(new, 50), old)
    assert same["mean"] == apart["mean"] == pytest.approx(-0.08)
    assert same["high"] < 0 < apart["high"]


def test_coverage(monkeypatch):
    """Exact: all outcomes of n tasks, weighed by how likely they are."""
    monkeypatch.setattr(report.stats, "binomtest", functools.cache(stats.binomtest))
    n = 20
    cuts = np.array(list(itertools.combinations(range(n + 3), 3)))
    bars = np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, n + 3)))
    counts = np.diff(bars, axis=1) - 1  # both, gained, lost, neither
    found = [table_of_four(*c) for c in counts]
    low, high = (np.array([x[key] for x in found]) for key in ("low", "high"))
    ways = special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1)
    coverage = []
    for old, new, share in itertools.product(
        (0.5, 0.7, 0.9, 0.97), (0.03, 0.2, 0.5, 0.8, 0.97), (0.1, 0.5, 0.9)
    ):
        # From as few tasks solved both times as can be, to as many.
        least, most = max(old + new - 1, 0), min(old, new)
        both = least + share * (most - least)
        cells = np.array([both, new - both, old - both, 1 - old - new + both])
        chance = np.exp(ways + special.xlogy(counts, np.maximum(cells, 0)).sum(axis=1))
        np.testing.assert_allclose(chance.sum(), 1)
        inside = (low <= new - old + 1e-9) & (new - old - 1e-9 <= high)
        coverage.append(chance[inside].sum())
    assert 0.95 < np.mean(coverage) < 0.97
    assert min(coverage) > 0.9


def test_pass_hat_k():
    successes = np.array([[1, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]])
    for k in range(1, 5):
        # The share of k of the trials that all succeed.
        groups = list(itertools.combinations(range(4), k))
        expected = np.mean([[row[list(g)].all() for g in groups] for row in successes])
        assert report.pass_hat_k(successes, k) == pytest.approx(expected)
    assert report.pass_hat_k(successes > 0, 1) == 0.5
    assert report.pass_hat_k(np.ones((2, 2000)), 1000) == 1


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
def test_pass_hat_k_refuses(successes, k):
    with pytest.raises(ValueError, match="pass"):
        report.pass_hat_k(successes, k)


def make_report(policy="base", **changes):
    """Of each tier but one; a scenario at two strengths, and one without tasks."""
    clean = outcomes([1, 1, 1, 1, 1, 1, 1, 0])
    half, none = [1, 1, 1, 1, 0, 0, 0, 0], np.zeros(8, bool)
    refuses = dataclasses.replace(clean, solvable=none, refused=np.array(half) > 0)
    rows = [
        report.row(UNSOLVABLE, 1.0, refuses, clean),  # the tables put it last
        report.row(TRAP, 0.5, outcomes([1, 1, 1, 1, 1, 1, 0, 0]), clean),
        report.row(TRAP, 1.0, outcomes([1, 0, 0, 0, 0, 0, 0, 0]), clean),
        report.row(CATALOGUE["tool_order"], 1.0, outcomes(half, none), clean),
        report.row(CATALOGUE["rule_shift"], 1.0, outcomes(half, clean.success), clean),
        report.row(None, 0.0, clean, clean),
    ]
    made = {"suite": "tiny", "policy": policy, "checkpoint_step": 3, "seed": 0}
    made |= {"split": "test", "num_tasks": 8, "grading_version": 1, "rows": rows}
    return made | changes


def test_summary_weighs_scenarios_not_rows_or_tasks():
    means = report.summary(make_report()["rows"])
    trap, rule, unsolvable = (6 / 8 + 1 / 8) / 2, 4 / 7, 7 / 8
    assert list(means)[:4] == ["clean", "perception", "reasoning", "internalization"]
    assert means["clean"]["success"] == 7 / 8
    assert means["perception"]["success"] == trap  # not pulled by the empty row
    assert means["perception"]["num_scenarios"] == 1
    perturbed = means["perturbed"]
    assert perturbed["success"] == pytest.approx((trap + rule + unsolvable) / 3)
    assert perturbed["refusal_rate"] == 0.5
    assert perturbed["false_refusal_rate"] == 0
    assert means["train"]["success"] == pytest.approx((trap + unsolvable) / 2)
    assert means["held_out"]["success"] == rule
    assert means["held_out"]["delta"] == rule - 1
    assert report.summary([])["perturbed"]["success"] is None


GOLDEN = """\
# Robustness of base

suite tiny, checkpoint step 3, split test, num tasks 8, seed 0, grading version 1

| scenario                   | family   |   n |         success % |         delta points | refusal % | false refusal % | tool errors % |
| -------------------------- | -------- | --: | ----------------: | -------------------: | --------: | --------------: | ------------: |
| clean                      | held out |   8 | 87.5 [52.9, 97.8] |    +0.0 [+0.0, +0.0] |         - |             0.0 |             - |
| perception, mean of 1      |          |     |              43.8 |                -43.8 |         - |             0.0 |             - |
| semantic_trap at 0.5       | train    |   8 | 75.0 [40.9, 92.9] | -12.5 [-45.9, +22.8] |         - |             0.0 |             - |
| semantic_trap              | train    |   8 |  12.5 [2.2, 47.1] | -75.0 [-89.5, -26.1] |         - |             0.0 |             - |
| tool_order                 | held out |   0 |   no task changed |                    - |         - |               - |             - |
| reasoning, mean of 1       |          |     |              57.1 |                -42.9 |         - |             0.0 |             - |
| rule_shift                 | held out |   7 | 57.1 [25.0, 84.2] |  -42.9 [-75.0, +1.7] |         - |             0.0 |             - |
| internalization, mean of 1 |          |     |              87.5 |                 +0.0 |      50.0 |               - |             - |
| unsolvable                 | train    |   8 | 87.5 [52.9, 97.8] |  +0.0 [-31.6, +31.6] |      50.0 |               - |             - |
| perturbed, mean of 3       |          |     |              62.8 |                -28.9 |      50.0 |             0.0 |             - |
| train, mean of 2           |          |     |              65.6 |                -21.9 |      50.0 |             0.0 |             - |
| held out, mean of 1        |          |     |              57.1 |                -42.9 |         - |             0.0 |             - |

Success and delta have 95 % intervals (Wilson; Newcombe, paired with clean on the same
tasks), over the n tasks that the scenario changed. Refusal is of unsolvable tasks,
false refusal of solvable ones, tool errors of calls. Means are over scenarios.
"""  # noqa: E501


def test_golden_markdown(tmp_path):
    report.write(tmp_path, make_report())
    assert (tmp_path / "report.md").read_text() == GOLDEN


def test_table_for_the_terminal():
    text = report.table(make_report(), make_report("other"))
    lines = text.splitlines()
    assert lines[0] == "Robustness of base"
    assert "Robustness of other" in lines
    grid = lines[4 : lines.index("", 4)]
    assert len({*map(len, grid)}) == 1  # columns stand below each other
    assert "|" not in text
    assert [x.split()[0] for x in grid[2:8]] == [
        "clean",
        "perception,",
        "semantic_trap",
        "semantic_trap",
        "tool_order",
        "reasoning,",
    ]


def test_no_negative_zero():
    made = make_report()
    made["rows"][0]["delta"]["mean"] = -1e-5
    (line,) = [x for x in report.table(made).splitlines() if "  unsolvable" in x]
    assert "+0.0 [" in line


def test_write_then_load(tmp_path):
    made = make_report('<script>"x"</script>|')
    path = report.write(tmp_path / "eval" / "12", made)
    report.write(tmp_path / "eval" / "9", make_report("older"))
    (tmp_path / "eval" / "100").mkdir()  # begun, not written
    report.write(tmp_path / "eval" / "notes", make_report("no step"))
    for place in (path, path.parent, tmp_path):
        assert report.load(place) == made
    names = {"report.json", "report.md", "report.html"}
    assert {*os.listdir(path.parent)} == names
    html = (path.parent / "report.html").read_text()
    assert "<script" not in html
    assert "://" not in html  # nothing from the net
    assert html.count("<svg") == 5  # one each row that has tasks
    assert html.count("no task changed") == 1
    assert '<rect class="bar" y="3" width="140.0"' in html  # 7/8 of 160


def test_a_killed_write_keeps_the_old_report(tmp_path, monkeypatch):
    path = report.write(tmp_path, make_report("old"))
    monkeypatch.setattr(os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report.write(tmp_path, make_report("new"))
    assert report.load(path)["policy"] == "old"


def test_write_refuses_what_load_would(tmp_path):
    made = make_report()
    made["rows"][0]["success"].pop("low")
    with pytest.raises(ValueError, match=r"lacks rows\[0\]\.success\.low"):
        report.write(tmp_path / "new", made)
    assert not (tmp_path / "new").exists()


def test_write_refuses_what_json_lacks(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        report.write(tmp_path / "new", make_report(seed=float("nan")))
    assert not (tmp_path / "new").exists()


def without(key, row_key=None):
    made = make_report()
    del (made["rows"][1] if row_key else made)[row_key or key]
    return json.dumps(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"suite": ', "not JSON"),
        ("", "not JSON"),
        ("\x00\xff", "not JSON"),
        ("[]", "lacks suite, policy, checkpoint_step, rows"),
        ("null", "not a report"),
        ("3", "not a report"),
        (without("policy"), "lacks policy$"),
        (without("rows", "delta"), r"lacks rows\[1\]\.delta$"),
        (json.dumps(make_report(rows=[3])), "not a report"),
        (json.dumps(make_report(rows=3)), "not a report"),
    ],
)
def test_load_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "report.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as error:
        report.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_load_where_there_is_none(tmp_path):
    for place in (tmp_path, tmp_path / "absent", tmp_path / "absent.json"):
        with pytest.raises(ValueError, match="no report to read"):
            report.load(place)


def test_side_by_side():
    base, paft = make_report(), make_report("paft")
    # One scenario less, and one that changed no task: out of both means.
    paft["rows"] = [r for r in paft["rows"] if r["scenario"] != "rule_shift"]
    paft["rows"][1] |= {"n": 0, "success": dict.fromkeys(("mean", "low", "high"))}
    assert report.side_by_side({"base": base, "paft": paft}) + "\n" == SIDE_BY_SIDE
    text = report.side_by_side({"a|b": base}, markdown=True)
    assert text.splitlines()[0].startswith("| success %")
    assert r"a\|b |" in text
    assert {line.replace(r"\|", "").count("|") for line in text.splitlines()} == {3}


def test_picture():
    """Every success that the table tells, where it belongs, and nothing else."""
    base, paft = make_report(), make_report("paft")
    paft["rows"] = [r for r in paft["rows"] if r["scenario"] != "rule_shift"]
    root = ElementTree.fromstring(report.picture({"<base>": base, "paft": paft}))
    find = "{http://www.w3.org/2000/svg}"
    width, height = map(float, root.get("viewBox").split()[2:])
    words = [node.text for node in root.iter(f"{find}text")]
    assert {"<base>", "paft", "clean", "Reasoning", "rule_shift"} <= {*words}
    dots = [c for c in root.iter(f"{find}circle") if c.find(f"{find}title") is not None]
    known = [r["success"]["mean"] for x in (base, paft) for r in x["rows"] if r["n"]]
    assert len(dots) == len(known)
    places = sorted(float(dot.get("cx")) for dot in dots)
    zero, per_one = np.polyfit(sorted(known), places, 1)[::-1]
    np.testing.assert_allclose(places, zero + per_one * np.sort(known), atol=0.1)
    assert 0 < zero < zero + per_one < width
    assert all(0 < float(dot.get("cy")) < height for dot in dots)
    assert {dot.get("class") for dot in dots} == {"c0", "c1"}


SIDE_BY_SIDE = """\
success %                                base               paft
--------------------------  -----------------  -----------------
clean                       87.5 [52.9, 97.8]  87.5 [52.9, 97.8]
perception, mean of 1                    12.5               12.5
  semantic_trap at 0.5      75.0 [40.9, 92.9]    no task changed
  semantic_trap              12.5 [2.2, 47.1]   12.5 [2.2, 47.1]
  tool_order                  no task changed    no task changed
reasoning, mean of 0                        -                  -
  rule_shift                57.1 [25.0, 84.2]                  -
internalization, mean of 1               87.5               87.5
  unsolvable                87.5 [52.9, 97.8]  87.5 [52.9, 97.8]
perturbed, mean of 2                     50.0               50.0
train, mean of 2                         50.0               50.0
false refusals, clean                     0.0                0.0
false refusals, perturbed                 0.0                0.0
refusals, unsolvable                     50.0               50.0
"""


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({}, None),
        ({"checkpoint_step": 4}, None),
        ({"temperature": 0.0}, None),  # what a report has that does not say
        ({"temperature": 1.0}, "temperature is 0.0, 1.0."),
        ({"seed": 1}, "seed is 0, 1."),
        (
            {"split": "train", "num_tasks": 64},
            "split is test, train; num_tasks is 8, 64.",
        ),
        ({"suite": "other"}, "suite is tiny, other."),
        ({"grading_version": 2}, "grading_version is 1, 2."),
    ],
)
def test_side_by_side_warns(changes, warning):
    text = report.side_by_side({"a": make_report(), "b": make_report(**changes)})
    first, second = text.splitlines()[:2]
    if warning is None:
        assert first.startswith("success %")
    else:
        assert (first, second) == (f"Warning: not comparable: {warning}", "")


def test_side_by_side_warns_where_one_does_not_say():
    silent = make_report()
    del silent["seed"]
    text = report.side_by_side({"a": make_report(), "b": silent})
    assert text.startswith("Warning: not comparable: seed is 0, unknown.\n")


def test_median_is_of_each_number():
    """Not of the run: the median success and the median refusal may be of two."""
    runs = [make_report(name) for name in "abc"]
    rates = (0.2, 0.9, 0.5), (0.7, 0.1, 0.0), (0, None, 0.4)  # JSON may say 0
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


@pytest.mark.parametrize("changes", [{"seed": 1}, {"rows": make_report()["rows"][1:]}])
def test_median_is_of_runs_that_compare(changes):
    with pytest.raises(ValueError, match="evaluated alike"):
        report.median([make_report(), make_report(**changes)])


def test_columns(tmp_path):
    """Names, medians, and paths that look like them."""
    for name, seed in (("a", 0), ("b", 0), ("x=y+z", 0)):
        report.write(tmp_path / name, make_report(name, seed=seed))
    a, b, odd = (str(tmp_path / name) for name in ("a", "b", "x=y+z"))
    found = report.columns([a, f"Both={a}+{b}", odd, f"Odd={odd}"])
    assert list(found) == [a, "Both", odd, "Odd"]
    assert [x["policy"] for x in found.values()] == ["a", "a", "x=y+z", "x=y+z"]
    with pytest.raises(ValueError, match="no report to read"):
        report.columns([f"Both={a}+{tmp_path}/c"])
