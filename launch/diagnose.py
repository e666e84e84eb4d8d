"""Compare training methods at equal cost, on clean and on perturbed tasks.

    python -m launch.diagnose                       do missing runs, write the page
    python -m launch.diagnose --only=sft,grpo --seeds=0
    python -m launch.diagnose --show                only write the page
    python -m launch.diagnose --show --seeds=0,1,2  write it for these seeds

The methods are those of configs/paper/methods.py, and the runs those of launch.ablate:
a method is one run of launch.train, or one that starts from the run of another method.
The report and the manifest of each run are kept in docs/results/NAME_SEED, and
docs/results.md is made from them. A run that was killed is continued. All runs are
evaluated on the suite of their environment. The page states its number of seeds and
tasks, and is headed "exploratory" if there are fewer than by default. It is not written
if a method has reports of some seeds but not of all, or if the reports were made with
different settings. Methods without any report are listed as missing.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from absl import flags

from configs.paper import methods, study
from launch.common import cli
from openagent_jax import files

ONLY = flags.DEFINE_list("only", None, "Names of methods; default: all.")
SEEDS = flags.DEFINE_list(
    "seeds", [str(seed) for seed in study.SEEDS], "Seeds of each method."
)
SHOW = flags.DEFINE_bool("show", False, "Only write the page, and run nothing.")
RUNS = flags.DEFINE_string("runs", "runs/diagnosis", "Folder of the runs.")
RESULTS = flags.DEFINE_string("results", "docs/results", "Folder of their reports.")
PAGE = flags.DEFINE_string(
    "page", "docs/results.md", "Page that is made from the reports."
)


def main() -> None:
    diagnosis = methods.get_study()
    titles = {setting.name: setting.title for setting in diagnosis.settings}
    chosen = ONLY.value or list(titles)
    if SHOW.value:
        cli.refuse_unused(ONLY, RUNS, other="executing runs, not for --show")
    for name in chosen:
        if name not in titles:
            raise cli.UsageError(f'--only: there is no "{name}"; {", ".join(titles)}')
    if not SEEDS.value:
        raise cli.UsageError("--seeds names no seed; leave it out, or give numbers")
    for seed in SEEDS.value:
        if not seed.isdecimal():
            raise cli.UsageError(f'--seeds: "{seed}" is not a number')
    from launch.common import errors
    from launch.pages import diagnosis_page

    seeds = tuple(dict.fromkeys(int(seed) for seed in SEEDS.value))
    results = Path(RESULTS.value)
    if not SHOW.value:
        with errors.blame("--results"):
            diagnosis_page.check_stored(results, titles, seeds, study.NUM_TASKS)
        execute(dataclasses.replace(diagnosis, seeds=seeds), chosen, results)
    with errors.blame("--page"):
        text = diagnosis_page.page(results, titles, seeds)
    Path(PAGE.value).parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(Path(PAGE.value)) as part:
        part.write_text(text, "utf-8")
    print(PAGE.value)


def execute(diagnosis: study.Study, chosen: list[str], results: Path) -> None:
    """Execute the runs of the chosen methods that have no report among the results."""
    from launch.sweeps import execution, plans

    folder = Path(RUNS.value)
    plan = plans.plan(diagnosis, folder)
    missing = {
        run.name
        for run in plan.runs
        if run.setting.name in chosen
        and not (results / run.name / "report.json").exists()
    }

    def keep(run: plans.Run) -> None:
        if run.report and run.name in missing:
            _keep(plan, run, results / run.name)

    records = execution.execute(plan, folder, execution.Budget(), keep, missing)
    for run in plan.runs:  # also of those that had ended before
        keep(run)
    if left := execution.unfinished({name: records[name] for name in missing}):
        raise RuntimeError(left)


def _keep(plan: Any, run: Any, folder: Path) -> None:
    """Copy the report and the manifests of a run.

    If the run starts from another run, its manifest names that run as `init_from`
    without its folder on this machine, and contains its manifest as "after".
    """
    from launch.common import runs

    by_name = {run.name: run for run in plan.runs}

    def manifest(run) -> dict[str, Any]:
        own = runs.manifest(run.workdir)
        if not run.after:
            return own
        config = own.get("config", {}) | {"init_from": run.after}
        return own | {"config": config, "after": manifest(by_name[run.after])}

    folder.mkdir(parents=True, exist_ok=True)
    if run.setting.is_trained:
        files.write_json(folder / "manifest.json", manifest(run))
    # Copied last, so that a folder with a report is complete.
    with files.replacing(folder / "report.json") as part:
        shutil.copy(run.report, part)


if __name__ == "__main__":
    cli.run(main)
