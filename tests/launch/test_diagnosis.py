"""The diagnosis executes the missing runs, and its page shows the stored reports."""

import json
import shutil
from pathlib import Path

import pytest
from absl.testing import flagsaver

from configs.paper import study
from launch import diagnose
from launch.common import config
from launch.pages import diagnosis_page
from launch.sweeps import execution
from openagent_jax.environments import registry
from openagent_jax.evaluation.evaluate import GRADING_VERSION
from tests import fake_runs, pages

ROOT = pages.ROOT
RESULTS = ROOT / "docs/results"
FIRST = "docs/results/first"


@pytest.fixture
def executed(monkeypatch, tmp_path):
    """The runs that were started; each leaves the files that launch.train leaves."""
    started = []

    def command(run):
        started.append(run)
        made = json.loads((RESULTS / "base/report.json").read_text())
        made |= {"grading_version": GRADING_VERSION, "num_tasks": study.NUM_TASKS}
        manifest = json.loads((RESULTS / "sft_0/manifest.json").read_text())
        manifest["config"] = config.to_dict(run.config)
        return fake_runs.child(
            run,
            {"report": made, "manifest": manifest if run.setting.is_trained else None},
        )

    monkeypatch.setattr(execution, "command", command)
    for name in ("configs", "launch"):  # read from where the command is started
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return started


def run_diagnosis(**flags):
    if not diagnose.flags.FLAGS.is_parsed():
        diagnose.flags.FLAGS(["diagnose"])
    with flagsaver.flagsaver(**flags):
        diagnose.main()
        return Path(diagnose.PAGE.value).read_text()


@pytest.mark.parametrize(
    ("name", "results", "seeds"),
    [("results", "docs/results", "01234"), ("first_edition", FIRST, "012")],
)
def test_page_matches_the_stored_reports(monkeypatch, tmp_path, name, results, seeds):
    monkeypatch.chdir(ROOT)
    page = str(tmp_path / "page.md")
    made = run_diagnosis(page=page, show=True, results=results, seeds=[*seeds])
    assert pages.page(f"{name}.md") == made


def test_earlier_results_are_called_exploratory(monkeypatch, tmp_path):
    """Three seeds, 96 tasks and an earlier grading version, which the page states."""
    monkeypatch.chdir(ROOT)
    page, seeds = str(tmp_path / "page.md"), ["0", "1", "2"]
    text = run_diagnosis(page=page, show=True, results=FIRST, seeds=seeds)
    head = text.split("## Runs")[0]
    assert "**Exploratory**: fewer than 5 training seeds (" in head
    assert "n = 50 to 96 tasks in a row" in head
    assert "of grading version 2. The code is of version" in head
    # The means that used to be medians of rows, with every seed beside them.
    assert "| 49.3, 10.5, 53.7 |" in text and " 37.8 [" in text
    assert "| 96.9, 61.5, 93.8 |" in text


def test_a_page_of_missing_seeds_is_refused(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    page = tmp_path / "results.md"
    message = f"seeds 0, 1, 2, 3, 4, but {FIRST} has no report of sft_3, sft_4;"
    with pytest.raises(diagnose.cli.UsageError, match=message):
        run_diagnosis(page=str(page), show=True, results=FIRST)
    assert not page.exists()


def test_no_seed_is_refused(tmp_path):
    """A page of the backbone alone would replace that of all methods."""
    page = tmp_path / "page.md"
    with pytest.raises(diagnose.cli.UsageError, match="--seeds names no seed"):
        run_diagnosis(page=str(page), show=True, results=FIRST, seeds=[])
    assert not page.exists()


def test_by_default_there_are_five_seeds_and_many_tasks(executed):
    run_diagnosis(only=["sft"])
    assert [run.name for run in executed] == [f"sft_{seed}" for seed in range(5)]
    for run in executed:
        assert run.config.eval.num_tasks == 384
        assert run.config.eval.scenarios == registry.spec("poi").suite


@pytest.mark.parametrize(
    ("key", "value"), [("grading_version", "2"), ("num_tasks", 96), ("suite", "x")]
)
def test_a_page_of_mixed_methods_is_refused(executed, key, value):
    run_diagnosis(only=["base", "sft"], seeds=["0"])
    file = Path("docs/results/base/report.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    message = rf"settings, but {key} is .*{value} \(docs/results/base\)"
    with pytest.raises(diagnose.cli.UsageError, match=message):
        run_diagnosis(show=True, seeds=["0"])


@pytest.mark.parametrize(
    ("key", "value"), [("grading_version", "2"), ("num_tasks", 96), ("suite", "x")]
)
def test_a_page_of_mixed_seeds_is_refused(executed, key, value):
    run_diagnosis(only=["sft"], seeds=["0", "1"])
    file = Path("docs/results/sft_1/report.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(
        diagnose.cli.UsageError, match=rf"{key} is .*docs/results/sft_1"
    ):
        run_diagnosis(only=["sft"], seeds=["0", "1"], show=True)
    if key != "suite":  # new runs are not started beside old ones
        started = len(executed)
        with pytest.raises(diagnose.cli.UsageError, match=f"sft_1 has {key} {value}"):
            run_diagnosis(only=["grpo"], seeds=["0", "1"])
        assert len(executed) == started


def test_missing_runs_are_executed_once(executed):
    text = run_diagnosis(only=["base", "sft_grpo"], seeds=["3"])
    assert [(run.command, run.name) for run in executed] == [
        ("evaluate", "base"),
        ("train", "sft_half_3"),
        ("train", "sft_grpo_3"),
    ]
    assert executed[-1].config.init_from == "runs/diagnosis/sft_half_3"
    assert executed[-1].config.seed == 3
    assert "| SFT+GRPO | 1 | 200 |" in text  # tokens of both halves
    assert "no report of these seeds: SFT, half of SFT, GRPO, PAFT" in text
    run_diagnosis(only=["base", "sft_grpo"], seeds=["3"])
    assert len(executed) == 3
    kept = json.loads(Path("docs/results/sft_grpo_3/manifest.json").read_text())
    assert kept["config"]["seed"] == kept["after"]["config"]["seed"] == 3
    assert kept["config"]["init_from"] == "sft_half_3"  # no folder of this machine
    assert not Path("docs/results/sft_half_3").exists()  # nobody asked for it


def test_first_halves_are_shared(executed):
    run_diagnosis(only=["paft_grpo", "paft_perturbed_grpo"], seeds=["0"])
    assert [run.name for run in executed].count("paft_half_0") == 1


def test_a_run_that_ended_before_is_kept(executed):
    """As after an interruption between a run and the copy of its report."""
    run_diagnosis(only=["sft"], seeds=["0"])
    shutil.rmtree("docs/results/sft_0")
    run_diagnosis(only=["sft"], seeds=["0"])
    assert len(executed) == 1 and Path("docs/results/sft_0/report.json").exists()


def test_failed_runs_leave_no_report(executed, monkeypatch):
    monkeypatch.setenv("FAIL", "grpo_0")
    message = r"1 of 2 runs are not done; failed: grpo_0 \(train.py: the loss is nan"
    with pytest.raises(RuntimeError, match=message):
        run_diagnosis(only=["grpo", "sft"], seeds=["0"])
    assert [*Path("docs").rglob("report.json")] == [
        Path("docs/results/sft_0/report.json")
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"only": ["ppo"]}, 'there is no "ppo"; base, sft, sft_half'),
        ({"seeds": ["one"]}, '"one" is not a number'),
    ],
)
def test_bad_flags(flags, message):
    with pytest.raises(diagnose.cli.UsageError, match=message):
        run_diagnosis(**flags)


def test_runs_are_matched_by_the_full_method_name(tmp_path):
    """`sft_grpo_0` is not a run of `sft`."""
    for name in ("sft_0", "sft_grpo_0"):
        shutil.copytree(RESULTS / "sft_0", tmp_path / name)
    titles = {"sft": "SFT", "sft_grpo": "SFT+GRPO"}
    text = diagnosis_page.page(tmp_path, titles, [0])
    assert "| SFT | 1 |" in text and "| SFT+GRPO | 1 |" in text
