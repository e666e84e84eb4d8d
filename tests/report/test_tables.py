"""Tables compared with stored text."""

import pytest

from openagent_jax import report
from tests.report.builders import make_report

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
    assert len({*map(len, grid)}) == 1  # the columns are aligned
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


def test_side_by_side():
    base, paft = make_report(), make_report("paft")
    # A scenario that one report lacks or did not change is left out of both means.
    paft["rows"] = [r for r in paft["rows"] if r["scenario"] != "rule_shift"]
    paft["rows"][1] |= {"n": 0, "success": dict.fromkeys(("mean", "low", "high"))}
    assert report.side_by_side({"base": base, "paft": paft}) + "\n" == SIDE_BY_SIDE
    text = report.side_by_side({"a|b": base}, markdown=True)
    assert text.splitlines()[0].startswith("| success %")
    assert r"a\|b |" in text
    assert {line.replace(r"\|", "").count("|") for line in text.splitlines()} == {3}


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({}, None),
        ({"checkpoint_step": 4}, None),
        ({"temperature": 0.0}, None),  # the default of a report that does not say
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


def test_side_by_side_warns_about_missing_settings():
    silent = make_report()
    del silent["seed"]
    text = report.side_by_side({"a": make_report(), "b": silent})
    assert text.startswith("Warning: not comparable: seed is 0, unknown.\n")
