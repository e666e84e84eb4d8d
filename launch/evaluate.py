"""Score a policy on clean and on perturbed tasks.

python -m launch.evaluate --workdir=runs/paft            a run's last checkpoint
python -m launch.evaluate --config=configs/base.py       a backbone as it is
python -m launch.evaluate --compare=runs/base,runs/paft  stored reports, side by side
"""

import json
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict, config_flags

from launch import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Evaluate the init_from of this config.", lock_config=True
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "A run to evaluate; with --config: where the report goes."
)
STEP = flags.DEFINE_string("step", "latest", "latest, best, or a step of the run.")
COMPARE = flags.DEFINE_list("compare", None, "Workdirs or reports to set side by side.")


def main() -> None:
    if COMPARE.value:
        from openagent_jax import report

        reports = {Path(name).name: report.load(name) for name in COMPARE.value}
        print(report.side_by_side(reports))
        return
    if CONFIG.value is None and WORKDIR.value is None:
        raise cli.BadUse("give --workdir, --config or --compare")
    import jax

    from launch import build, programs, scoring  # imports jax

    if CONFIG.value is not None:
        c = CONFIG.value
        workdir = Path(WORKDIR.value or Path("runs") / c.name)
    else:
        workdir = Path(WORKDIR.value)
        c = _stored_config(workdir)
    build.check(c)
    programs.keep(c.compile_cache)
    if CONFIG.value is not None:
        model, step = build.backbone(c), 0
        params = model.init(jax.random.fold_in(jax.random.key(c.seed), 1))
    else:
        model, params, step = build.restore(workdir, STEP.value, c)
    scores = scoring.Scorer(c, model)(params, step)
    folder = scoring.write(workdir, scores)
    print(scoring.table(scores))
    print(f"report: {folder}")


def _stored_config(workdir: Path) -> ConfigDict:
    file = workdir / "config.json"
    if not file.is_file():
        raise cli.BadUse(f"{workdir} is no workdir: it has no config.json")
    return ConfigDict(json.loads(file.read_text()))


if __name__ == "__main__":
    cli.run(main)
