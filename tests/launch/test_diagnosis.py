"""The diagnosis executes the missing runs, and its page shows the stored reports."""

import json
import shutil
from pathlib import Path

import pytest
from absl.testing import flagsaver

from launch import diagnose
from launch.common import diagnosis_page
from tests import pages

ROOT = pages.ROOT
RESULTS = ROOT / "docs/results"


@pytest.fixture
def executed(monkeypatch, tmp_path):
    """The commands that were run; each leaves the files that launch.train leaves."""
    commands = []

    def run(command, config, workdir, changes):
        commands.append((command, config, workdir.name, changes))
        report = workdir / "eval/7/report.json"
        report.parent.mkdir(parents=True)
        shutil.copy(RESULTS / "base/report.json", report)
        if command == "train":
            manifest = json.loads((RESULTS / "sft_0/manifest.json").read_text())
            manifest["ended"] = {"step": 7, "num_tokens": 100}
            (workdir / "manifest.json").write_text(json.dumps(manifest))

    monkeypatch.setattr(diagnose, "run", run)
    monkeypatch.chdir(tmp_path)
    return commands


def run_diagnosis(**flags):
    if not diagnose.flags.FLAGS.is_parsed():
        diagnose.flags.FLAGS(["diagnose"])
    with flagsaver.flagsaver(**flags):
        diagnose.main()
        return Path(diagnose.PAGE.value).read_text()


def test_page_matches_the_stored_reports(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    stored = Path("docs/results.md").read_text()
    assert run_diagnosis(page=str(tmp_path / "results.md"), show=True) == stored


def test_missing_runs_are_executed_once(executed):
    text = run_diagnosis(only=["base", "sft_grpo"], seeds=["3"])
    assert [(c[0], c[2]) for c in executed] == [
        ("evaluate", "base"),
        ("train", "sft_half_3"),
        ("train", "sft_grpo_3"),
    ]
    assert executed[-1][3]["init_from"] == Path("runs/diagnosis/sft_half_3")
    assert executed[-1][3]["seed"] == 3
    assert "| SFT+GRPO | 1 | 200 |" in text  # tokens of both halves
    assert "Not run yet: SFT, half of SFT, GRPO, PAFT" in text
    run_diagnosis(only=["base", "sft_grpo"], seeds=["3"])
    assert len(executed) == 3


def test_first_halves_are_shared(executed):
    run_diagnosis(only=["paft_grpo", "paft_perturbed_grpo"], seeds=["0"])
    assert [c[2] for c in executed].count("paft_half_0") == 1


def test_budgets_are_equal():
    """Two halves, of reinforcement learning or of SFT steps, cost one full run."""
    rl = [
        m.changes["train.max_tokens"]
        for m in diagnose.METHODS.values()
        if "grpo" in m.config
    ]
    assert {diagnose.TOKENS, diagnose.TOKENS // 2} == set(rl)
    for method in diagnose.METHODS.values():
        half = method.changes.get("train.max_tokens") == diagnose.TOKENS // 2
        assert half == bool(method.after)


def test_failed_runs_leave_no_report(executed, monkeypatch):
    def fail(*_):
        raise RuntimeError("gave up")

    monkeypatch.setattr(diagnose, "run", fail)
    with pytest.raises(RuntimeError, match="gave up"):
        run_diagnosis(only=["grpo"], seeds=["0"])
    assert not list(Path().rglob("report.json"))


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
    text = diagnosis_page.page(tmp_path, {"sft": "SFT", "sft_grpo": "SFT+GRPO"})
    assert "| SFT | 1 |" in text and "| SFT+GRPO | 1 |" in text
