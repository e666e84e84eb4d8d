"""Train with many settings and seeds, and compare them in one table.

    python -m launch.ablate --config=configs/paft.py \\
        --sweep=paft.alpha=0,0.3,0.5,0.7 --sweep=seed=0..4
    python -m launch.ablate --config=configs/paft.py \\
        --ablate=no_semantic_trap --ablate=tier:reasoning
    python -m launch.ablate --study=configs/paper/alpha.py

Every combination of the values of the --sweep keys is trained, and once more for each
--ablate, without what that flag names. The runs are executed one after the other. Runs
that have ended are skipped, and one that was killed is resumed, so start the same
command again after any interruption. The folder --workdir gets table.md,
figure.svg, sweep.json (the list of the runs) and the folder of each run.
"""

from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch.common import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file, such as configs/paft.py.", lock_config=True
)
STUDY = flags.DEFINE_string(
    "study", None, "File of a study, such as configs/paper/alpha.py; not with --config."
)
SWEEP = flags.DEFINE_multi_string(
    "sweep", [], "A config key and its values: paft.alpha=0,0.1 or seed=0..4. Repeat."
)
ABLATE = flags.DEFINE_multi_string(
    "ablate",
    [],
    "What to leave out of the perturbed tasks of training, beside a run with "
    "everything: no_KIND, tier:TIER or shift:SHIFT. Repeat.",
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of the sweep; default: runs/NAME_sweep or runs/STUDY."
)
DRY_RUN = flags.DEFINE_bool("dry_run", False, "List the runs and exit.")
MAX_RUNS = flags.DEFINE_integer(
    "max_runs", None, "Start at most this many runs.", lower_bound=1
)
MAX_HOURS = flags.DEFINE_float(
    "max_hours", None, "Stop after this many hours; the current run is saved first.", 0
)


def main() -> None:
    if (CONFIG.value is None) == (not STUDY.value):
        raise cli.UsageError("give either --config or --study")
    if CONFIG.value is not None and not (SWEEP.value or ABLATE.value):
        raise cli.UsageError("a sweep needs several runs; give --sweep or --ablate")
    from configs.paper.study import Setting, Study
    from launch.common import config
    from launch.sweeps import execution, plans, sweep_list, sweep_page
    from openagent_jax import files

    if file := STUDY.value:
        study, about = plans.load(file)
        path, _, arg = file.partition(":")
        folder = Path("runs") / "_".join(filter(None, (Path(path).stem, arg)))
    else:
        c = config.resolve(CONFIG.value)
        flag = flags.FLAGS["config"]
        given = config_flags.get_override_values(flag)
        file = config_flags.get_config_filename(flag)
        setting = Setting("", file, given)
        study = Study((setting,), (c.seed,))
        about = f"Sweep of {file}"
        folder = Path("runs") / f"{c.name}_sweep"
    study = plans.ablated(plans.swept(study, SWEEP.value), ABLATE.value)
    folder = cli.folder(WORKDIR) or folder
    plan = plans.plan(study, folder)
    sweep_page.load(plan)  # raises if what is there cannot be compared
    for name in plans.not_evaluated(plan):
        print(f"note: no run is evaluated on {name}; name it in eval.scenarios")
    if DRY_RUN.value:
        print(sweep_list.text(plan, folder))
        return
    records = execution.execute(
        plan,
        folder,
        execution.Budget(MAX_RUNS.value, MAX_HOURS.value),
        after_each=lambda run: sweep_page.load(plan) and None,
    )
    results = sweep_page.load(plan)
    left = execution.unfinished(records)
    if results.reports:
        from launch.sweeps import sweep_figure

        sweep_figure.write(results, folder / "figure.svg")
        with files.replacing(folder / "table.md") as part:
            page = sweep_page.page(results, about, "figure.svg", folder)
            part.write_text(page, "utf-8")
        print(f"\n{sweep_page.table(results)}\n\n{folder / 'table.md'}")
    if any(x.state == execution.FAILED for x in records.values()):
        raise RuntimeError(left)
    print(left, end="\n" if left else "")


if __name__ == "__main__":
    cli.run(main)
