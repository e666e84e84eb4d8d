"""Tables compared with stored text."""

import pytest

from openagent_jax import report
from openagent_jax.report import tables
from tests.report.builders import make_report, page

GOLDEN = """\
# Robustness of base

suite tiny, checkpoint step 3, split test, num tasks 8, seed 0, grading version 1

| scenario                       | claim        |   n |         success % |          delta points |         refusal % | false refusal % | tool errors % |
| ------------------------------ | ------------ | --: | ----------------: | --------------------: | ----------------: | --------------: | ------------: |
| clean                          | unseen forms |   8 | 87.5 [52.9, 97.8] |     +0.0 [+0.0, +0.0] |                 - |             0.0 |             - |
| perception, mean of 1          |              |     | 43.8 [19.8, 71.0] |   -43.8 [-65.5, -7.9] |                 - | 0.0 [0.0, 31.2] |             - |
| semantic_trap at 0.5           | unseen forms |   8 | 75.0 [40.9, 92.9] |  -12.5 [-45.9, +22.8] |                 - |             0.0 |             - |
| semantic_trap                  | unseen forms |   8 |  12.5 [2.2, 47.1] | -75.0 [-89.5, -26.1]* |                 - |             0.0 |             - |
| tool_order                     | unseen kind  |   0 |   no task changed |                     - |                 - |               - |             - |
| reasoning, mean of 1           |              |     | 57.1 [25.0, 84.2] |   -42.9 [-75.0, +1.7] |                 - | 0.0 [0.0, 35.4] |             - |
| rule_shift                     | unseen kind  |   7 | 57.1 [25.0, 84.2] |   -42.9 [-75.0, +1.7] |                 - |             0.0 |             - |
| internalization, mean of 0 + 1 |              |     |                 - |                     - | 50.0 [21.5, 78.5] |               - |             - |
| unsolvable                     | unseen forms |   8 |                 - |                     - | 50.0 [21.5, 78.5] |               - |             - |
| perturbed, mean of 2 + 1       |              |     | 50.4 [23.3, 77.3] |   -43.3 [-70.6, -3.9] | 50.0 [21.5, 78.5] | 0.0 [0.0, 29.5] |             - |
| unseen forms, mean of 1 + 1    |              |     | 43.8 [19.8, 71.0] |   -43.8 [-65.5, -7.9] | 50.0 [21.5, 78.5] | 0.0 [0.0, 31.2] |             - |
| unseen kind, mean of 1         |              |     | 57.1 [25.0, 84.2] |   -42.9 [-75.0, +1.7] |                 - | 0.0 [0.0, 35.4] |             - |

Success, and delta from clean on the same tasks, are of tasks that can be solved.
Refusal is of tasks that cannot, and is never part of success; false refusal is of tasks
that can; tool errors are of calls. Intervals are 95 % confidence intervals over the n
distinct tasks that the scenario changed; tasks whose requests are worded alike are not
counted as independent. Means are over scenarios: "mean of 3 + 1" is of 3 with tasks
that can be solved, and of 1 with tasks that cannot. Deltas marked * are significant
after Holm's correction over the scenarios of the report (adjusted p at most 5 %; means
are never marked).

{CLAIMS}

| scenario                    |         delta points |        retention % |     p | p (Holm) |       |
| --------------------------- | -------------------: | -----------------: | ----: | -------: | ----: |
| perception, mean of 1       |  -43.8 [-65.5, -7.9] |  50.0 [23.7, 87.2] |       |          |       |
| semantic_trap at 0.5        | -12.5 [-45.9, +22.8] | 85.7 [47.6, 140.6] | 0.474 |    0.474 |       |
| semantic_trap               | -75.0 [-89.5, -26.1] |   14.3 [2.6, 60.5] | 0.002 |    0.005 | holds |
| reasoning, mean of 1        |  -42.9 [-75.0, +1.7] | 57.1 [25.0, 102.4] |       |          |       |
| rule_shift                  |  -42.9 [-75.0, +1.7] | 57.1 [25.0, 102.4] | 0.059 |    0.118 |       |
| perturbed, mean of 2 + 1    |  -43.3 [-70.6, -3.9] |  53.8 [24.9, 94.6] |       |          |       |
| unseen forms, mean of 1 + 1 |  -43.8 [-65.5, -7.9] |  50.0 [23.7, 87.2] |       |          |       |
| unseen kind, mean of 1      |  -42.9 [-75.0, +1.7] | 57.1 [25.0, 102.4] |       |          |       |

Retention is perturbed success in percent of the clean success on the same tasks, with
an interval of 95 %; "-" if the clean success is 0 or may be. p is the least alpha at
which the interval of delta does not contain 0. Holm's correction adjusts it over the
3 rows of this table that are not means; "holds" marks those of at most 5 %.
"""  # noqa: E501


def test_golden_markdown(tmp_path):
    report.write(tmp_path, make_report())
    claims = tables.claims_note(make_report())
    assert (tmp_path / "report.md").read_text() == GOLDEN.replace("{CLAIMS}", claims)


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
    made["rows"][4]["delta"]["mean"] = -1e-5
    (line,) = [x for x in report.table(made).splitlines() if "  rule_shift" in x]
    assert "+0.0 [" in line


SIDE_BY_SIDE = """\
success %                                          base               paft
------------------------------------  -----------------  -----------------
clean                                 87.5 [52.9, 97.8]  87.5 [52.9, 97.8]
perception, mean of 1 (shared)         12.5 [2.2, 47.1]   12.5 [2.2, 47.1]
  semantic_trap                        12.5 [2.2, 47.1]   12.5 [2.2, 47.1]
perturbed, mean of 1 + 1 (shared)      12.5 [2.2, 47.1]   12.5 [2.2, 47.1]
unseen forms, mean of 1 + 1 (shared)   12.5 [2.2, 47.1]   12.5 [2.2, 47.1]
false refusals, clean                   0.0 [0.0, 32.4]    0.0 [0.0, 32.4]
false refusals, perturbed               0.0 [0.0, 32.4]    0.0 [0.0, 32.4]
refusals, unsolvable                  50.0 [21.5, 78.5]  50.0 [21.5, 78.5]

Left out, because not all reports have tasks of it: semantic_trap at 0.5, tool_order, rule_shift.

Intervals are 95 % confidence intervals: over tasks, those that are worded alike taken together, for this one run: another seed may give other numbers.
"""  # noqa: E501


def test_side_by_side():
    base, paft = make_report(), make_report("paft")
    # A scenario that one report lacks or did not change is left out, and named.
    paft["rows"] = [r for r in paft["rows"] if r["scenario"] != "rule_shift"]
    paft["rows"][1] |= {"n": 0, "success": dict.fromkeys(("mean", "low", "high"))}
    assert report.side_by_side({"base": base, "paft": paft}) + "\n" == SIDE_BY_SIDE
    text = report.side_by_side({"a|b": base}, markdown=True)
    assert text.splitlines()[0].startswith("| success %")
    assert r"a\|b |" in text
    grid = text.split("\n\n")[0]
    assert {line.replace(r"\|", "").count("|") for line in grid.splitlines()} == {3}


def test_headings_say_what_means_are_over():
    made = make_report(scenario_set="suite")
    assert "perturbed, mean of 2 + 1 (suite)" in report.table(made)
    assert "unseen kind, mean of 1 (suite)" in report.table(made)
    both = report.side_by_side({"a": made, "b": made})
    # One row changed no task: it is left out, so the set is no longer the suite.
    assert "perturbed, mean of 2 + 1 (shared)" in both
    made["rows"] = [r for r in made["rows"] if r["n"]]
    both = report.side_by_side({"a": made, "b": made})
    assert "perturbed, mean of 2 + 1 (suite)" in both and "Left out" not in both
    mixed = report.side_by_side({"a": made, "b": made | {"scenario_set": "chosen"}})
    assert "perturbed, mean of 2 + 1 " in mixed and "(suite)" not in mixed


def test_claims_are_shown_per_column_where_they_differ():
    """What one run was trained on is unseen for another: no mean is over both."""
    made = make_report()
    made["rows"] = [r for r in made["rows"] if r["n"]]
    other = make_report("sft")
    other["rows"] = [
        r | {"claim": "unseen_kind", "family": "held_out"}
        if r["scenario"] != "clean"
        else r
        for r in made["rows"]
    ]
    text = report.side_by_side({"paft": made, "sft": other})
    assert "unseen kind, mean" not in text and "unseen forms, mean" not in text
    assert "perturbed, mean of 2 + 1" in text
    assert (
        "Columns were trained on different things, and claim: paft: unseen forms: "
        "unsolvable, semantic_trap at 0.5, semantic_trap; unseen kind: rule_shift. "
        "sft: unseen kind: unsolvable, semantic_trap at 0.5, semantic_trap, rule_shift."
    ) in text
    same = report.side_by_side({"a": made, "b": made})
    assert "unseen kind, mean of 1" in same and "trained on different" not in same


def test_a_held_out_domain_is_not_mixed_with_unseen_kinds():
    made = make_report()
    rows = [r | {"claim": "held_out_domain", "domain": "x"} for r in made["rows"]]
    transfer = {"scenario": "domain_transfer", "shift": "domain", "family": "held_out"}
    rows.append(rows[0] | transfer)
    means = report.summary(rows, made["phrasings"])
    assert means["held_out_domain"]["num_scenarios"] == 3  # the transfer is no kind
    assert means["held_out_domain_unseen_kind"]["num_scenarios"] == 1
    assert means["unseen_kind"]["num_scenarios"] == 0
    shown = report.table(made | {"rows": rows})
    assert "held out domain unseen kind, mean of 1" in shown
    nothing = [r | {"claim": None} for r in made["rows"]]
    shown = report.table(made | {"rows": nothing})
    assert "unseen" not in shown and "perturbed, mean of 2 + 1" in shown


def test_groups_of_a_suite_have_means_of_their_own():
    made = make_report()
    names = [r["scenario"] for r in made["rows"] if r["tier"] != "clean"]
    assert names[1:] == ["semantic_trap", "semantic_trap", "tool_order", "rule_shift"]
    groups = {"a": names[:2], "b": names[2:]}
    made |= {"scenario_groups": groups, "scenario_set": "x", "scenario_set_version": 3}
    lines = report.by_group_table(made, markdown=True).splitlines()[2:]
    found = [[x.strip() for x in line.split("|")[1:5]] for line in lines]
    assert [x[:3] for x in found] == [
        ["a", "unseen forms", "2"],
        ["b", "unseen forms", "1"],
        ["b", "unseen kind", "1"],  # a row without tasks is left out
    ]
    assert found[0][3].startswith("75.0 [") and found[1][3].startswith("12.5 [")
    assert '<td>b<td class="left">unseen kind<td>1' in page(made)
    assert "scenarios x version 3" in report.table(made)
    assert report.by_group_table(made | {"rows": made["rows"][1:]}) == ""
    assert report.by_group_table(make_report()) == ""


def test_what_a_policy_was_trained_on_is_said():
    assert "is not known here" in tables.claims_note(make_report())
    made = make_report(trained_on=[])
    assert tables.claims_note(made).endswith("\nTrained on: nothing.")
    old = make_report()
    old["rows"] = [
        {k: v for k, v in r.items() if k not in ("claim", "domain")}
        for r in old["rows"]
    ]
    assert tables.claims_note(old) == ""
    assert "| family " in report.table(old, markdown=True)
    assert "| train " in report.table(old, markdown=True)


def test_bounds_are_listed():
    found = {"oracle": {"clean": 1.0, "semantic_trap": 1.0}}
    found |= {"counting": {"clean": 0.75, "semantic_trap": 0.5}}
    text = report.bounds(make_report(bounds=found), markdown=True)
    assert [[x.strip() for x in line.split("|")[1:-1]] for line in text.splitlines()][
        2:
    ] == [["clean", "100.0", "75.0"], ["semantic_trap", "100.0", "50.0"]]
    assert report.bounds(make_report()) == ""


def test_exploratory_comparisons_are_called_so():
    made = make_report()
    text = report.exploratory({"a": made})
    assert text.startswith("Exploratory: fewer than 5 training seeds (a 1); n = 7 to 8")
    many = dict(made, num_seeds=5, rows=[r | {"n": 384} for r in made["rows"]])
    assert report.exploratory({"a": many}) == ""
    shipped = dict(many, num_seeds=1, checkpoint_step=0)  # trained elsewhere
    assert report.exploratory({"a": many, "b": shipped}) == ""
    alone = dict(shipped, train_seed=0)  # a run, evaluated by itself
    assert "seeds (b 1)" in report.exploratory({"a": many, "b": alone})
    many["rows"][0]["n"] = 200  # a scenario that does not change all of 384 tasks
    assert report.exploratory({"a": many}) == ""


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({}, None),
        ({"checkpoint_step": 4}, None),
        ({"temperature": 0.0}, None),  # the default of a report that does not say
        ({"temperature": 1.0}, "temperature is 0.0 (a), 1.0 (b)."),
        ({"seed": 1}, "seed is 0 (a), 1 (b)."),
        (
            {"split": "train", "num_tasks": 64},
            "split is test (a), train (b); num_tasks is 8 (a), 64 (b).",
        ),
        ({"suite": "other"}, "suite is tiny (a), other (b)."),
        ({"grading_version": 2}, "grading_version is 1 (a), 2 (b)."),
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
    assert text.startswith("Warning: not comparable: seed is 0 (a), unknown (b).\n")


def test_rows_are_linked_to_their_definitions():
    text = report.side_by_side({"a": make_report()}, markdown=True, page="x.md")
    links = ("[semantic_trap](x.md#semantic_trap)", "[rule_shift](x.md#rule_shift)")
    for link in (*links, f"{links[0]} at 0.5"):
        assert f"| {link} " in text
    assert "](" not in report.side_by_side({"a": make_report()}, markdown=True)
