"""`launch.ablate`, with runs that leave the files of a training but train nothing.

    python -m tests.fake_runs --config=configs/paft.py --sweep=seed=0..2

The environment variable FAIL names a run that fails, OTHER one that is evaluated on
another suite, and STEP is the time of a step.
"""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np

from configs.paper import study
from launch.common import cli, config
from launch.sweeps import execution, plans
from openagent_jax import report
from openagent_jax.evaluation import evaluate

NUM_STEPS, NUM_TASKS = 5, 40
# Does as launch.train: goes on from the last step, saves and exits with 143 on SIGTERM,
# and writes the report and the end of the manifest last.
CHILD = """
import json, pathlib, signal, sys, time
workdir, num_steps, step_time, fails, hint = sys.argv[1:]
workdir, num_steps, stop = pathlib.Path(workdir), int(num_steps), []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
made = json.loads((workdir / "made.json").read_text())
if made["manifest"]:
    (workdir / "config.json").write_text(json.dumps(made["manifest"]["config"]))
    (workdir / "manifest.json").write_text(json.dumps(made["manifest"]))
steps = workdir / "metrics.jsonl"
print("from step", first := steps.read_text().count("{") if steps.exists() else 0)
for step in range(first + 1, num_steps + 1):
    time.sleep(float(step_time))
    row = {"step": step, "perf/step_time_s": 0.5, "num_tokens": 20 * step}
    with steps.open("a") as file:
        file.write(json.dumps(row) + "\\n")
    if stop:
        sys.exit(143)
    if step == 2 and fails:
        sys.exit("a warning\\ntrain.py: the loss is nan at step 2" + hint)
folder = workdir / f"eval/{num_steps}"
folder.mkdir(parents=True)
(folder / "report.json").write_text(json.dumps(made["report"]))
if made["manifest"]:
    ended = {"ended": {"step": num_steps, "num_tokens": 100}}
    (workdir / "manifest.json").write_text(json.dumps(made["manifest"] | ended))
"""


class Scenario:
    def __init__(self, name, tier):
        self.name, self.tier, self.shift = name, tier, "action"


SCENARIOS = (
    None,
    Scenario("tool_order", "perception"),
    Scenario("logic_inversion", "reasoning"),
    Scenario("tool_withheld", "internalization"),
)


def command(run: plans.Run) -> list[str]:
    """Return the command that stands for a run; see `execution.command`."""
    c = config.to_dict(run.config)
    manifest = {
        "config": c,
        "config_hash": config.config_hash(run.config),
        "seed": run.seed,
    }
    made = {
        "report": make_report(run.name, run.seed),
        "manifest": manifest if run.setting.is_trained else None,
    }
    return child(run, made)


def child(run: plans.Run, made: dict) -> list[str]:
    """Return the command of a process that leaves a report and a manifest."""
    (run.workdir / "made.json").write_text(json.dumps(made))
    fails = "yes" if os.environ.get("FAIL") == run.name else ""
    step_time = os.environ.get("STEP", "0")
    words = [str(run.workdir), str(NUM_STEPS), step_time, fails, cli.HINT]
    return [sys.executable, "-S", "-c", CHILD, *words]


def make_report(name: str, seed: int) -> report.Json:
    """Return a report whose outcomes are drawn from its name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    clean, rows = None, []
    for scenario in SCENARIOS:
        withheld = scenario is SCENARIOS[-1]
        yes = np.ones(NUM_TASKS, bool)
        count = np.arange(NUM_TASKS)
        refused = rng.random(NUM_TASKS) < 0.4
        episodes = report.Episodes(
            success=refused if withheld else ~refused & (rng.random(NUM_TASKS) < 0.7),
            solvable=np.full(NUM_TASKS, not withheld),
            refused=refused,
            num_calls=count,
            num_errors=0 * count,
            num_needless_questions=0 * count,
            fewest_calls=count,
            task=count,
            phrasing=count % 15,
            changed=yes,
            answered=yes,
        )
        clean = clean or episodes
        standing = report.Standing("train", "unseen_forms", "poi")
        rows.append(report.row(scenario, 1.0, episodes, clean, standing))
    return {
        "suite": "poi",
        "policy": name,
        "checkpoint_step": NUM_STEPS,
        "split": "test",
        "num_tasks": NUM_TASKS,
        "seed": 7,
        "train_seed": seed,
        "grading_version": evaluate.GRADING_VERSION,
        "rows": rows,
        **({report.SET_HASH: "abc"} if os.environ.get("OTHER") == name else {}),
    }


def make_plan(folder: Path, *texts: str) -> plans.Plan:
    """Return the plan of a sweep of configs/paft.py with two seeds."""
    first = study.Setting("", "configs/paft.py")
    return plans.plan(plans.swept(study.Study((first,), (0, 1)), texts), folder)


def report_of(run: plans.Run) -> Path:
    """Return the report of a run that has ended."""
    assert run.report
    return run.report


def leave(run: plans.Run) -> None:
    """Leave the files of a run that has ended."""
    run.workdir.mkdir()
    subprocess.run(command(run), check=True, capture_output=True)


def states(folder: Path) -> dict[str, str]:
    """Return the state of each run that a sweep has listed."""
    listed = json.loads((folder / execution.RECORDS).read_text())["runs"]
    return {x["name"]: x["state"] for x in listed}


if __name__ == "__main__":
    from launch import ablate

    execution.command = command
    cli.run(ablate.main)
