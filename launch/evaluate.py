"""Score a policy on clean and on perturbed tasks.

    python -m launch.evaluate --workdir=runs/paft           a run, as it was set up
    python -m launch.evaluate --config=configs/base.py      a backbone as it is
    python -m launch.evaluate --compare=runs/sft,runs/paft  reports, side by side

--markdown prints the table for a page, --figure=FILE.svg draws it.

Runs joined by + stand for their median; a name may be given:
--compare=SFT=runs/sft_0+runs/sft_1+runs/sft_2,runs/paft

A run under other settings: --config=configs/base.py --config.init_from=runs/paft
"""

from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Evaluate the init_from of this config.", lock_config=True
)
WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "A run to evaluate; with --config: where the report goes, default runs/<name>.",
)
STEP = flags.DEFINE_string("step", "latest", "latest, best, or a step of the run.")
COMPARE = flags.DEFINE_list("compare", None, "Workdirs or reports to set side by side.")
FIGURE = flags.DEFINE_string("figure", None, "Compare in an SVG file of this name too.")
MARKDOWN = flags.DEFINE_bool("markdown", False, "Compare in Markdown.")


def main() -> None:
    if COMPARE.value:
        from openagent_jax import report

        try:
            reports = report.columns(COMPARE.value)
        except ValueError as error:
            raise cli.BadUse(f"--compare: {error}") from None
        if FIGURE.value:
            Path(FIGURE.value).write_text(report.picture(reports), encoding="utf-8")
        print(report.side_by_side(reports, markdown=MARKDOWN.value))
        return
    if FIGURE.value:
        raise cli.BadUse("--figure draws a comparison; give --compare too")
    if CONFIG.value is None and WORKDIR.value is None:
        raise cli.BadUse("give --workdir, --config or --compare")
    from launch import backbones, programs, scoring, settings

    if CONFIG.value is not None:
        c = CONFIG.value
        workdir = Path(WORKDIR.value or Path("runs") / c.name)
        settings.check(c)
        model, step = backbones.backbone(c), 0
        params = backbones.first_params(c, model, backbones.split(c, model.config))
    else:
        workdir = Path(str(WORKDIR.value))
        c = settings.stored_config(workdir)
        settings.check(c)
        model, params, step = backbones.restore(workdir, STEP.value, c)
    programs.keep(c.compile_cache)
    scoring.write(workdir, scoring.Scorer(c, model)(params, step))
    scoring.show(workdir, step)


if __name__ == "__main__":
    cli.run(main)
