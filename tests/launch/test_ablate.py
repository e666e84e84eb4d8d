"""Sweeps: how they are executed, and the table that they end in."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from configs.paper import methods
from launch.sweeps import execution, plans, sweep_page
from openagent_jax import report
from tests import fake_runs, tiny

FAKE = "tests.fake_runs"
PAFT = "--config=configs/paft.py"
SMALL = [PAFT, "--sweep=paft.alpha=0,0.7", "--sweep=seed=0..1"]
PAGES = ("table.md", "figure.svg")


def test_the_command_uses_no_device(tmp_path):
    """The runs need the devices for themselves. There is no platform of this name."""
    done = subprocess.run(
        [sys.executable, "-m", FAKE, *SMALL, f"--workdir={tmp_path}"],
        env=os.environ | {"JAX_PLATFORMS": "nothing"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    assert (tmp_path / "table.md").exists()


def test_a_sweep_ends_in_a_table(commands, tmp_path):
    done = commands(FAKE, *SMALL, f"--workdir={tmp_path}")
    assert done.code == 0, done
    text = (tmp_path / "table.md").read_text()
    assert "| paft.alpha=0 " in text and "points from paft.alpha=0.7" in text
    assert (
        "* **paft.alpha=0, paft.alpha=0.7**: unseen forms: tool_order, logic_" in text
    )
    assert text.split("## Table")[1].split("\n\n")[1] in done.out
    links = re.findall(r"\[\d\]\((\S+/report)\.html\)", text)
    assert len({*links}) == 4
    assert all((tmp_path / f"{link}.json").exists() for link in links)
    assert {*fake_runs.states(tmp_path).values()} == {"done"}
    listed = json.loads((tmp_path / "sweep.json").read_text())["runs"]
    assert [x["name"] for x in listed] == [
        "paft.alpha=0_0",
        "paft.alpha=0.7_0",
        "paft.alpha=0_1",
        "paft.alpha=0.7_1",
    ]
    assert listed[0]["changes"] == {"paft.alpha": {"base": 0.7, "here": 0.0}}
    assert listed[1]["changes"] == {} and listed[0]["seconds"] > 0
    assert Path(listed[0]["report"]).exists() and len(listed[0]["config_hash"]) == 16
    assert len({x["config_hash"] for x in listed}) == 4
    started = [(tmp_path / x["name"] / "log.txt").read_text() for x in listed]
    again = commands(FAKE, *SMALL, f"--workdir={tmp_path}")
    assert again.code == 0 and "see " not in again.out
    assert started == [(tmp_path / x["name"] / "log.txt").read_text() for x in listed]


def test_numbers_of_the_table(tmp_path):
    """Against the letters of the outcomes, which nothing else here reads."""
    plan = fake_runs.make_plan(tmp_path, "paft.alpha=0,0.7")
    for run in plan.runs:
        fake_runs.leave(run)
    results = sweep_page.load(plan)
    columns = {x.heading: x for x in results.rates}
    assert [*columns] == ["clean", "perception", "reasoning", *list(columns)[3:]]
    letters = {
        (run.setting.name, run.seed): {
            r["scenario"]: r["outcomes"] for r in report.load(run.workdir)["rows"]
        }
        for run in plan.runs
    }

    def share(setting, scenario, counts):
        found = [letters[setting, seed][scenario] for seed in (0, 1)]
        return sum(x.count(counts) for x in found) / sum(map(len, found))

    old, new = "paft.alpha=0.7", "paft.alpha=0"
    for heading, scenario, counts in (
        ("clean", "clean", "1"),
        ("perception", "tool_order", "1"),
        ("unsolvable refused", "tool_withheld", "R"),
        ("false refusals, clean", "clean", "r"),
    ):
        want = share(new, scenario, counts)
        found = results.rates[columns[heading]][new]
        assert found and found["mean"] == pytest.approx(want)
        change = results.differences[new][columns[heading]].interval
        assert change["mean"] == pytest.approx(want - share(old, scenario, counts))
    assert old not in results.differences


def leave_all(plan, outcomes):
    """Leave a report of each run, with the outcomes of a setting and a row."""
    for run in plan.runs:
        fake_runs.leave(run)
        file = fake_runs.report_of(run)
        made = json.loads(file.read_text())
        for r in made["rows"]:
            r["outcomes"] = outcomes(run.setting.name, r)
        file.write_text(json.dumps(made))


def test_differences_that_hold_are_marked(tmp_path):
    """Only where all tasks are lost; the other columns are those of the base."""
    plan = fake_runs.make_plan(tmp_path, "paft.alpha=0,0.7")

    def played(setting, r):
        lost = setting == "paft.alpha=0" and r["tier"] == "perception"
        return ("0" if lost else "1") * 40

    leave_all(plan, played)
    marked = [
        x for x in sweep_page.table(sweep_page.load(plan)).split("\n") if "*" in x
    ]
    (line,) = marked
    assert line.count("]*") == 1 and "-100.0 [" in line
    # With one seed of two, there are means only.
    last = plan.of("paft.alpha=0")[-1]
    fake_runs.report_of(last).unlink()
    table = sweep_page.table(sweep_page.load(plan))
    rows = [x for x in table.split("\n") if x.startswith("| paft.alpha=0 ")]
    assert rows and "[" not in rows[0] and "1 of 2" in rows[0]


def test_unsolvable_tasks_never_count_as_success(tmp_path):
    """An agent that refuses everything has no success, in any tier."""
    plan = fake_runs.make_plan(tmp_path, "paft.alpha=0,0.7")
    leave_all(plan, lambda setting, r: "R" * 20 + "r" * 20)
    results = sweep_page.load(plan)
    found = {k.heading: x["paft.alpha=0"]["mean"] for k, x in results.rates.items()}
    assert found.pop("unsolvable refused") == 1
    assert found.pop("false refusals, clean") == 1
    assert found.pop("false refusals, perturbed") == 1
    assert {*found.values()} == {0.0} and len(found) == 4


def test_a_failed_run_does_not_stop_the_others(commands, tmp_path):
    words = [*SMALL, f"--workdir={tmp_path}"]
    done = commands(FAKE, *words, FAIL="paft.alpha=0.7_0")
    assert done.code == 1 and done.err.count("\n") == 1
    why = "paft.alpha=0.7_0 (train.py: the loss is nan at step 2)"
    assert f"1 of 4 runs are not done; failed: {why}; start" in done.err
    found = fake_runs.states(tmp_path)
    assert found.pop("paft.alpha=0.7_0") == "failed" and {*found.values()} == {"done"}
    assert "1 of 2" in (tmp_path / "table.md").read_text()
    listed = commands(FAKE, *words, "--dry_run").out.splitlines()
    assert listed[3].startswith("paft.alpha=0.7_0  failed (train.py: the loss is nan")
    assert commands(FAKE, *words).code == 0
    log = (tmp_path / "paft.alpha=0.7_0/log.txt").read_text()
    assert "from step 0" in log and "from step 2" in log  # it went on
    assert {*fake_runs.states(tmp_path).values()} == {"done"}


def test_what_starts_from_a_failed_run_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "command", fake_runs.command)
    monkeypatch.setenv("FAIL", "sft_half_0")
    made = methods.get_study("smoke")
    plan = plans.plan(plans.swept(made, ["seed=0"]), tmp_path)
    records = execution.execute(plan, tmp_path, execution.Budget())
    failed = {name for name, x in records.items() if x.state == execution.FAILED}
    assert failed == {"sft_half_0", "sft_grpo_0"}
    assert records["sft_grpo_0"].error == "sft_half_0, which it starts from, failed"
    assert not (tmp_path / "sft_grpo_0").exists()
    results = sweep_page.load(plan)
    assert "Backbone" in sweep_page.table(results)
    row = next(x for x in sweep_page.table(results).split("\n") if "PAFT+GRPO" in x)
    assert row.split("|")[3].strip() == "200"  # the tokens of both halves


def wait_for(condition, seconds=60):
    for _ in range(20 * seconds):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def test_a_killed_sweep_ends_in_the_same_table(commands, tmp_path):
    """Killed twice: the command alone, whose run goes on; then a run alone."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = [PAFT, "--sweep=seed=0..2"]
    assert commands(FAKE, *words, f"--workdir={whole}").code == 0
    words.append(f"--workdir={broken}")
    log = broken / "base_0/log.txt"
    pid = commands.start(FAKE, *words, STEP="0.2")
    wait_for(lambda: log.exists() and log.read_text())
    os.kill(pid, signal.SIGKILL)
    assert commands.wait().code == -signal.SIGKILL
    assert fake_runs.states(broken)["base_0"] == "running"

    pid = commands.start(FAKE, *words, STEP="0.2")
    steps = broken / "base_1/metrics.jsonl"
    wait_for(steps.exists)
    assert "waiting for another command" in commands.output()
    assert fake_runs.states(broken)["base_0"] == "done"
    assert log.read_text().count("from step") == 1  # it was not started again
    kill_child(pid, signal.SIGKILL)
    done = commands.wait()
    assert done.code == 1 and "base_1 (killed by SIGKILL)" in done.err

    assert commands(FAKE, *words).code == 0
    assert "from step 0" not in (broken / "base_1/log.txt").read_text().split("\n")[1]
    for name in PAGES:
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


def kill_child(pid, number):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(children[0]), number)


def test_sigterm_is_passed_on(commands, tmp_path):
    """The run saves its state, and the command ends as a saved run does."""
    words = [*SMALL, f"--workdir={tmp_path}"]
    pid = commands.start(FAKE, *words, STEP="0.2")
    wait_for((tmp_path / "paft.alpha=0_0/metrics.jsonl").exists)
    os.kill(pid, signal.SIGTERM)
    done = commands.wait()
    assert done.code == 143 and done.err.count("\n") == 1
    assert "stopped; 0 of 4 runs are done; start the same command again" in done.err
    assert {*fake_runs.states(tmp_path).values()} == {"waiting"}
    assert [x.name for x in tmp_path.glob("*_*")] == ["paft.alpha=0_0"]
    assert commands(FAKE, *words).code == 0
    log = (tmp_path / "paft.alpha=0_0/log.txt").read_text()
    assert log.count("from step") == 2 and log.count("from step 0") == 1


def test_ctrl_c_lets_the_run_save(tmp_path):
    """A terminal sends SIGINT to the command and to what it has started."""
    process = subprocess.Popen(
        [sys.executable, "-m", FAKE, *SMALL, f"--workdir={tmp_path}"],
        env=os.environ | {"STEP": "0.2"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for((tmp_path / "paft.alpha=0_0/metrics.jsonl").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert "stopped; 0 of 4 runs are done" in process.communicate()[1]
    assert process.returncode == 143
    log = (tmp_path / "paft.alpha=0_0/log.txt").read_text()
    assert "from step 0" in log and "KeyboardInterrupt" not in log


def test_a_budget(commands, tmp_path):
    words = [*SMALL, f"--workdir={tmp_path}"]
    done = commands(FAKE, *words, "--max_runs=3")
    assert done.code == 0 and "1 of 4 runs are not done; start the same" in done.out
    assert [*fake_runs.states(tmp_path).values()] == ["done"] * 3 + ["waiting"]
    done = commands(FAKE, *words, "--max_hours=0.0001", STEP="0.5")
    assert done.code == 0 and "1 of 4 runs are not done" in done.out
    assert fake_runs.states(tmp_path)["paft.alpha=0.7_1"] == "waiting"
    assert "0.7_1: waiting" in done.out


def test_reports_that_cannot_be_compared_are_refused(commands, tmp_path):
    """As soon as there are two of them, whenever the runs were executed."""
    words = [*SMALL, f"--workdir={tmp_path}"]
    for _ in range(2):
        done = commands(FAKE, *words, OTHER="paft.alpha=0.7_0")
        assert done.code == 2 and done.err.count("\n") == 1
        for word in ("none (paft.alpha=0_0)", "abc (paft.alpha=0.7_0)", "--workdir"):
            assert word in done.err
        assert not (tmp_path / "paft.alpha=0_1").exists()


def test_an_untrained_model_stands_beside_each_seed(tmp_path):
    made = methods.get_study("smoke")
    made = plans.swept(made, ["seed=0..2"])
    made = dataclasses.replace(made, settings=made.settings[:2])
    plan = plans.plan(made, tmp_path)
    assert [run.name for run in plan.runs] == ["base", "sft_0", "sft_1", "sft_2"]
    for run in plan.runs:
        fake_runs.leave(run)
    results = sweep_page.load(plan)
    for column, rates in results.rates.items():
        change = results.differences["base"][column].interval
        assert rates["base"] and rates["sft"]
        want = rates["base"]["mean"] - rates["sft"]["mean"]
        assert change["mean"] == pytest.approx(want)


TINY = tiny.SFT_CHANGES | {"train.num_steps": 40, "checkpoint.every": 10}
TINY = [f"--config.{key}={value}" for key, value in TINY.items()]
TEN = [PAFT, *TINY, "--sweep=paft.alpha=0.25,0.5", "--sweep=seed=0..4"]
TEN += ["--config.paft.perturbations=('identity_erasure',)"]


@pytest.mark.hours
def test_ten_runs_killed_twice_end_in_the_table_of_the_unbroken(tmp_path):
    """With real training: all processes are killed, as when a machine is lost."""

    def start(folder):
        words = [f"--workdir={folder}", f"--config.compile_cache={tmp_path}/cache"]
        words = [sys.executable, "-m", "launch.ablate", *TEN, *words]
        return subprocess.Popen(words)

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert start(whole).wait() == 0
    for name in ("paft.alpha=0.25_0", "paft.alpha=0.5_2"):
        process = start(broken)
        saved = broken / name / "checkpoints/10"
        wait_for(saved.exists, 600)
        process.kill()
        kill_run(broken / name)
        process.wait()
        assert fake_runs.states(broken)[name] == "running"
    assert start(broken).wait() == 0
    for name in PAGES:
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    for name in ("paft.alpha=0.25_0", "paft.alpha=0.5_2"):
        log = (broken / name / "log.txt").read_text()
        assert log.count("from step") == 2 and log.count("from step 0") == 1


def kill_run(workdir):
    """Kill the process of a run."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"--workdir={workdir}\0" in (folder / "cmdline").read_text():
                os.kill(int(folder.name), signal.SIGKILL)
