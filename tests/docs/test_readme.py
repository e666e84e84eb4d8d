"""The README and the pages of docs/ show the numbers of the stored reports, and name
only files, commands and config keys that exist."""

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest

from configs import base, grpo
from openagent_jax import report
from openagent_jax.environments.tools.perturb import CATALOGUE, perception
from openagent_jax.perturb import Entry
from tests import pages

ROOT = pages.ROOT
README = (ROOT / "README.md").read_text()
COMPARISON = pages.page("sft_and_paft.md")
METHODS = "sft", "paft"
TIERS = "perception", "interaction", "reasoning"
# Pages whose commands are run have tests of their own.
FOLLOWED = {"own_tools.md", "own_logs.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs/results/README.md",
    *sorted(p for p in ROOT.glob("docs/*.md") if p.name not in FOLLOWED),
]


@pytest.fixture(autouse=True)
def in_the_repository_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def cells(line):
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def table_of(text):
    """Return the rows of the first table of a text."""
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table
    return [cells(line) for line in table[0].splitlines()]


def compared_reports(text=COMPARISON):
    """Return the reports that the first command of a text compares."""
    columns = re.search(r"--compare=(\w+=docs/[^\s`]+)", text)
    assert columns
    return report.load_columns(columns[1].split(","))


def test_table_and_figure_match_their_command():
    figure = re.search(r"launch.report --out=docs/(\S+\.svg) (.*)", COMPARISON)
    assert figure and report.load_columns(figure[2].split()) == compared_reports()
    assert report.side_by_side(compared_reports(), markdown=True) in COMPARISON
    assert report.picture(compared_reports()) == (ROOT / "docs" / figure[1]).read_text()
    assert f"]({figure[1]})" in COMPARISON
    assert f"](docs/{figure[1]})" in README


def means(columns):
    """Return the means of a comparison as they are shown, by row."""
    text = report.side_by_side(report.load_columns(columns), markdown=True)
    rows = [cells(line) for line in text.splitlines() if line.startswith("|")]
    return {name: [x.split(" [")[0] for x in values] for name, *values in rows}


def test_before_the_words_were_new():
    """The table of that section, and what README and the page say of asking."""
    results = Path("docs/results")
    columns = [
        "+".join(str(x) for x in sorted(folder.glob(f"{method}_?")))
        for method in METHODS
        for folder in (results / "known_words", results)
    ]
    found = means([f"{name}={x}" for name, x in zip("abcd", columns, strict=True)])
    section = COMPARISON.split("## Before the words were new")[1]
    _, _, *shown = table_of(section)
    assert len(shown) == 4 and all(found[name] == values for name, *values in shown)
    run, name = "docs/results/training_words", ["query_underspecified"]
    asked, other = (mean_success([x], name) for x in (run, results / "paft_0"))
    said = f"solves {asked:.1f} % (`{run}`), and {other:.1f} % of those of the test"
    assert said in " ".join(COMPARISON.split())
    every = float(found[name[0]][3])
    said = (
        f"({every:.0f} %; seed 0: {other:.0f} %, and {asked:.0f} % on training tasks)"
    )
    assert said in " ".join(README.split())


def test_readme_table_is_part_of_the_comparison():
    header, _, *rows = table_of(README.split("## Results")[1])
    whole, _, *all_rows = table_of(
        report.side_by_side(compared_reports(), markdown=True) + "\n"
    )
    assert header == whole and len(rows) > 5
    for row in rows:
        assert row in all_rows


def mean_success(folders, scenarios):
    """Return the mean over runs and scenarios, in percent."""
    found = []
    for folder in folders:
        rows = {row["scenario"]: row for row in report.load(folder)["rows"]}
        found += [100 * rows[name]["success"]["mean"] for name in scenarios]
    return sum(found) / len(found)


def test_readme_table_beyond_what_was_trained_on():
    """Tiers that PAFT left out, beside others on the same kinds; held-out domains."""
    section = README.split("## Results")[1]
    _, _, unseen, held_out = table_of(section[section.index("| beyond") :])
    results = ROOT / "docs/results"
    parts = [results / "unseen_kinds" / f"{tier}_0" for tier in TIERS]
    kinds = {x: [row["scenario"] for row in report.load(x)["rows"]][1:] for x in parts}
    every = [name for names in kinds.values() for name in names]
    columns = [[results / "base"], *(sorted(results.glob(f"{x}_?")) for x in METHODS)]
    shown = [mean_success(x, every) for x in columns[:2]]
    sizes = [len(names) for names in kinds.values()]
    means = [mean_success([x], names) for x, names in kinds.items()]
    shown.append(sum(m * n for m, n in zip(means, sizes, strict=True)) / len(every))
    assert unseen[1:] == [f"{x:.1f}" for x in shown]
    _, _, *shown = table_of(COMPARISON.split("that were left out.**")[1])
    assert [row[0] for row in shown] == every
    left_out = {name: [x] for x, names in kinds.items() for name in names}
    for name, *values in shown:
        runs = [*columns[:2], left_out[name], columns[2]]
        assert values == [f"{mean_success(x, [name]):.1f}" for x in runs]
    columns = [[results / "held_out" / x.name for x in runs] for runs in columns]
    assert held_out[1:] == [f"{mean_success(x, ['clean']):.1f}" for x in columns]


def test_pages_say_whether_their_numbers_are_exploratory():
    """The published table has five seeds and 384 tasks a row; the first edition not."""
    assert not report.exploratory(compared_reports())
    old = pages.page("first_edition.md")
    assert "**Exploratory**" in old and re.search(r"grading\s+version\s+2", old)
    assert "96.9, 61.5 and 93.8" in old and "counting" in old
    # The claims that do not stand occur only where the page says so.
    marks = r"no longer stands|Earlier versions"
    for claim in ("refuses 94 % of", "47.3"):
        for found in re.finditer(re.escape(claim), old):
            before = old[max(0, found.start() - 1200) : found.end() + 60]
            assert re.search(marks, before)


def test_readme_output_matches_a_stored_report():
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL)
    assert shown
    run = report.load("docs/results/paft_0")
    printed = report.table(run).splitlines()
    lines = shown[1].splitlines()
    assert len(lines) > 3
    for line in lines:
        assert any(x.startswith(line) for x in printed), line


def test_readme_is_short():
    assert len(README.splitlines()) <= 90


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_commands_and_keys_exist(page):
    text = re.sub(r"https?://[^\s)]+", "", page.read_text("utf-8"))
    names = re.findall(r"(?:configs|docs|launch|openagent_jax)/[\w/.*]*[\w*]", text)
    for name in set(names) - {"configs/NAME.py"}:
        assert list(ROOT.glob(name)), name
    links = re.findall(r"\]\(([^)#:]+)[^):]*\)", text)
    for link in links:
        assert (page.parent / link).exists(), link
    for name in re.findall(r"(?:python -m |`)launch\.(\w+)", text):
        assert (ROOT / f"launch/{name}.py").exists(), name
    for key in re.findall(r"--config\.([\w.]*\w)", text):
        value = base.get_config()
        for part in key.split("."):
            assert part in value, key
            value = value[part]
    assert names or links


def test_the_example_of_a_perturbation_is_the_code():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(def tool_order.*?)```", page, re.DOTALL)
    code, row = example.split("\n\n\n")
    assert code == inspect.getsource(perception.tool_order).rstrip()
    (entry,) = (x for x in CATALOGUE if x.name == "tool_order")
    assert eval(row, {"Entry": Entry, "perception": perception}) == entry


def test_every_page_is_in_the_index():
    index = pages.page("index.md")
    for page in ROOT.glob("docs/*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index, page.name


def test_perturbations_that_are_named_exist():
    section = pages.page("how_it_works.md").split("## Perturbations")[1]
    listed = re.findall(r"\w+", " ".join(row[1] for row in table_of(section)[2:]))
    assert len(listed) > 9 and {*listed} <= {entry.name for entry in CATALOGUE}


def test_grpo_after_fine_tuning_matches_its_commands():
    text = pages.page("reinforcement_learning.md")
    commands = re.findall(r"--markdown --compare=(\S+)", text)
    assert len(commands) == 2
    for columns in commands:
        compared = report.load_columns(columns.split(","))
        assert report.side_by_side(compared, markdown=True) in text
        assert (why := report.exploratory(compared)) and why in text


def test_what_is_said_of_training_by_grpo_matches_its_metrics():
    file = ROOT / "docs/results/reinforcement/training.json"
    stored = json.loads(file.read_text("utf-8"))
    after_sft, clean, perturbed = (
        {key: np.array(values) for key, values in stored[f"{name}_0"].items()}
        for name in ("sft_grpo", "paft_grpo", "paft_perturbed_grpo")
    )
    text = " ".join(pages.page("reinforcement_learning.md").split())
    equal = np.mean(after_sft["frac_reward_zero_std"])
    reward = perturbed["reward"]
    for said in (
        f"{100 * np.mean(after_sft['reward'][:10]):.0f} % of the episodes of its first",
        f"in {100 * equal:.0f} % of all groups the rewards are equal",
        f"{100 * np.mean(clean['refusal/false_refusal'][:10]):.0f} % of the episodes "
        "of its first ten steps refuse",
        f"({np.mean(reward[:13]):.2f} in the first 13 steps, "
        f"{np.mean(reward[13:]):.2f} in the last 13",
    ):
        assert said in text, said


def test_grpo_after_paft_with_three_seeds_matches_stored_reports():
    section = pages.page("reinforcement_learning.md").split("two more seeds")[1]
    runs = [
        [
            {row["scenario"]: row for row in report.load(f"{folder}_{seed}")["rows"]}
            for seed in range(3)
        ]
        for folder in (
            f"docs/results/reinforcement/{name}"
            for name in ("paft_half", "paft_grpo", "paft_perturbed_grpo")
        )
    ]
    table = table_of(section)[2:]
    assert len(table) == 5
    for label, *shown in table:
        what, _, name = label.rpartition(", ")
        for cell, seeds in zip(shown, runs, strict=True):
            values = [
                rows[name]["false_refusal_rate" if "false" in what else "refusal_rate"]
                if what
                else rows[name]["success"]["mean"]
                for rows in seeds
            ]
            assert cell == ", ".join(f"{100 * x:.1f}" for x in values), label


def test_diagnosis_matches_the_first_edition():
    page = [cells(x) for x in pages.page("first_edition.md").splitlines()]
    names = next(row for row in page if row[0] == "success %")
    columns = ["SFT", "SFT+GRPO", "PAFT", "half of PAFT", "PAFT+GRPO"]
    columns = [*columns, "PAFT+perturbed GRPO"]
    columns = [names.index(f"{name} (3 seeds)") for name in columns]
    section = pages.page("reinforcement_learning.md").split("## Diagnosis")[1]
    table = table_of(section)[2:]
    assert len(table) == 4
    for label, *values in table:
        row = next(row for row in page if row[0] == label)
        assert values == [row[i].split(" [")[0] for i in columns], label


def test_learning_rates_match_stored_rewards():
    section = pages.page("reinforcement_learning.md").split("## The learning rate")[1]
    stored = json.loads((ROOT / "docs/results/learning_rates.json").read_text("utf-8"))
    still, *_ = stored["reward"].values()
    shown = {row[0]: row[1:] for row in table_of(section)[2:]}
    assert [*shown] == [*stored["reward"]]
    for rate, reward in stored["reward"].items():
        late = np.array(reward[13:26])
        change = late - np.array(still[13:26])
        margin = 1.96 * np.std(change, ddof=1) / np.sqrt(13)
        refused = np.mean(stored["false_refusal"][rate][13:26])
        assert shown[rate] == [
            f"{np.mean(reward[:13]):.2f}",
            f"{np.mean(late):.2f}",
            "" if reward is still else f"{np.mean(change):+.3f} ± {margin:.3f}",
            f"{100 * refused:.0f}",
        ]
    best = max(shown, key=lambda rate: np.mean(stored["reward"][rate][13:26]))
    assert grpo.get_config().optim.learning_rate == float(best)


def test_gains_of_grpo_match_stored_reports():
    text = " ".join(pages.page("reinforcement_learning.md").split())
    for how in ("sampled", "greedy"):
        shown = []
        for when in ("before", "after"):
            clean = report.load(f"docs/results/learning/{when}_{how}")["rows"][0]
            mean, low, high = (
                100 * clean["success"][x] for x in ("mean", "low", "high")
            )
            shown.append(f"{mean:.1f} [{low:.1f}, {high:.1f}]")
        assert " to ".join(shown) in text


def test_scores_of_a_pretrained_model_match_stored_reports():
    table = table_of(pages.page("pretrained.md"))[2:]
    stored = report.load_columns(
        [
            "base=docs/results/first/base",
            "paft=" + "+".join(f"docs/results/first/paft_{seed}" for seed in range(3)),
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


def test_scores_on_public_tasks_match_stored_reports():
    (_, *names), _, *table = table_of(pages.page("own_agent.md"))
    stored = report.load_columns([f"{name}=docs/results/bfcl_{name}" for name in names])
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
