"""Compare training methods at equal cost, on clean and on perturbed tasks.

    python -m launch.diagnose                       do missing runs, write the page
    python -m launch.diagnose --only=sft,grpo --seeds=0
    python -m launch.diagnose --show                only write the page
    python -m launch.diagnose --show --seeds=0,1,2  of these seeds

A method is one run of launch.train, or one that starts from the run of another method.
The report and the manifest of each run are kept in docs/results/NAME_SEED, and
docs/results.md is made from them. A run that was killed is continued. All runs are
evaluated on the whole catalogue. The page states its number of seeds and tasks, is
headed "exploratory" if there are fewer than by default, and is refused if a method
lacks a seed or the reports were not made alike.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from absl import flags

from launch.common import cli

NUM_TASKS = 384  # of each scenario

ONLY = flags.DEFINE_list("only", None, "Names of methods; default: all.")
SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2", "3", "4"], "Seeds of each method.")
SHOW = flags.DEFINE_bool("show", False, "Only write the page, and run nothing.")
RUNS = flags.DEFINE_string("runs", "runs/diagnosis", "Folder of the runs.")
RESULTS = flags.DEFINE_string("results", "docs/results", "Folder of their reports.")
PAGE = flags.DEFINE_string(
    "page", "docs/results.md", "Page that is made from the reports."
)

TOKENS = 1_900_000  # sampled and trained on by each method, as by configs/sft.py
SFT_STEPS = 550  # half of the steps of configs/sft.py


@dataclass(frozen=True)
class Method:
    """One run of launch.train."""

    title: str
    config: str
    changes: dict[str, Any] = field(default_factory=dict)
    after: str = ""  # the method whose weights it starts from


HALF_SFT = {"train.num_steps": SFT_STEPS}
HALF_RL = {"train.num_steps": 1_000, "train.max_tokens": TOKENS // 2}
ALL_RL = {"train.num_steps": 1_000, "train.max_tokens": TOKENS}
METHODS = {
    "sft": Method("SFT", "configs/sft.py"),
    "sft_half": Method("half of SFT", "configs/sft.py", HALF_SFT),
    "grpo": Method("GRPO", "configs/grpo.py", ALL_RL),
    "sft_grpo": Method("SFT+GRPO", "configs/grpo.py", HALF_RL, "sft_half"),
    "paft": Method("PAFT", "configs/paft.py"),
    "paft_half": Method("half of PAFT", "configs/paft.py", HALF_SFT),
    "paft_grpo": Method("PAFT+GRPO", "configs/grpo.py", HALF_RL, "paft_half"),
    "paft_perturbed_grpo": Method(
        "PAFT+perturbed GRPO", "configs/paft_grpo.py", HALF_RL, "paft_half"
    ),
}
# The whole catalogue, so that no choice of rows decides what the page says.
EVALUATION = {"eval.num_tasks": NUM_TASKS, "eval.scenarios": '("all",)'}
BASE = "base"  # the backbone, which is only evaluated


def main() -> None:
    titles = {BASE: "Backbone"}
    titles |= {name: method.title for name, method in METHODS.items()}
    chosen = ONLY.value or list(titles)
    for name in chosen:
        if name not in titles:
            raise cli.UsageError(f'--only: there is no "{name}"; {", ".join(titles)}')
    for seed in SEEDS.value:
        if not seed.isdecimal():
            raise cli.UsageError(f'--seeds: "{seed}" is not a number')
    from launch.common import diagnosis_page, errors

    seeds = [int(seed) for seed in dict.fromkeys(SEEDS.value)]
    results = Path(RESULTS.value)
    if not SHOW.value:
        with errors.blame("--results"):
            diagnosis_page.check_stored(results, titles, seeds, NUM_TASKS)
        for seed in seeds:
            for name in chosen:
                make(name, seed)
    with errors.blame("--page"):
        text = diagnosis_page.page(results, titles, seeds)
    Path(PAGE.value).parent.mkdir(parents=True, exist_ok=True)
    Path(PAGE.value).write_text(text, "utf-8")
    print(PAGE.value)


def make(name: str, seed: int) -> None:
    """Run a method, unless its report exists."""
    kept = Path(RESULTS.value) / (name if name == BASE else f"{name}_{seed}")
    if (kept / "report.json").exists():
        return
    workdir = Path(RUNS.value) / kept.name
    if name == BASE:
        run("evaluate", "configs/base.py", workdir, EVALUATION)
        manifest = None
    else:
        manifest = train(name, seed)
    kept.mkdir(parents=True, exist_ok=True)
    if manifest:
        text = json.dumps(manifest, indent=2) + "\n"
        (kept / "manifest.json").write_text(text, "utf-8")
    reports = workdir.glob("eval/*/report.json")
    last = max(reports, key=lambda path: int(path.parent.name))
    # Copied last, so that a folder with a report is complete.
    shutil.copy(last, kept / "report.json")


def train(name: str, seed: int) -> dict[str, Any]:
    """Run a method, after the method that it starts from.

    Returns:
      The manifest of the run, with that of the run it starts from under "after".
    """
    method, workdir = METHODS[name], Path(RUNS.value) / f"{name}_{seed}"
    changes, before = {"seed": seed, **EVALUATION, **method.changes}, None
    if method.after:
        before = train(method.after, seed)
        changes["init_from"] = Path(RUNS.value) / f"{method.after}_{seed}"
    file = workdir / "manifest.json"
    if not (file.exists() and "ended" in json.loads(file.read_text("utf-8"))):
        run("train", method.config, workdir, changes)
    manifest = json.loads(file.read_text("utf-8"))
    return manifest | ({"after": before} if before else {})


def run(command: str, config: str, workdir: Path, changes: dict[str, Any]) -> None:
    """Run a command of launch/ in a process of its own.

    Raises:
      RuntimeError: it failed.
    """
    words = [f"--config={config}", f"--workdir={workdir}"]
    words += [f"--config.{key}={value}" for key, value in changes.items()]
    print(f"launch.{command} " + " ".join(words), flush=True)
    done = subprocess.run([sys.executable, "-m", f"launch.{command}", *words])
    if done.returncode:
        raise RuntimeError(
            f"launch.{command} of {workdir} failed; start this command again"
        )


if __name__ == "__main__":
    cli.run(main)
