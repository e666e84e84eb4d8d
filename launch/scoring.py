"""From a config and a policy to a report, for `train` and for `evaluate`."""

from pathlib import Path

from ml_collections import ConfigDict

from launch import backbones, build, settings
from openagent_jax import evaluate, report
from openagent_jax.types import Metrics, Params


class Scorer:
    """Evaluates parameters as `config.eval` says; compiled once."""

    def __init__(self, c: ConfigDict, model: backbones.Backbone):
        self._c = c
        self._batch_size = min(c.eval.batch_size, c.eval.num_tasks)
        source = build.task_worlds(c, model, settings.eval_domain(c))
        with settings.blamed_on("eval.split"):  # not when all is trained
            source.check(c.eval.split)
        self.log = source.log
        self._play = evaluate.make_player(
            model.policy,
            source,
            tuple(c.eval.scenarios),
            settings.sizes(c),
            self._batch_size,
            c.eval.split,
            c.eval.temperature,
        )

    def __call__(self, params: Params, step: int) -> dict:
        c = self._c.eval
        rows = evaluate.evaluate(
            self._play,
            params,
            tuple(c.scenarios),
            seed=c.seed,
            num_tasks=c.num_tasks,
            batch_size=self._batch_size,
            strength=c.strength,
            split=c.split,
        )
        return {
            "suite": settings.eval_domain(self._c),
            "policy": self._c.name,
            "checkpoint_step": step,
            "seed": c.seed,
            "num_tasks": c.num_tasks,
            "split": c.split,
            "temperature": c.temperature,
            "grading_version": evaluate.GRADING_VERSION,
            **({"log": self.log.summary()} if self.log else {}),
            "rows": rows,
        }


def file(workdir: Path, step: int) -> Path:
    """Where the report of a step is; it is there when the whole of it is."""
    return workdir / "eval" / str(step) / "report.json"


def write(workdir: Path, scores: dict) -> None:
    report.write(file(workdir, scores["checkpoint_step"]).parent, scores)


def show(workdir: Path, step: int) -> None:
    """Print a report."""
    path = file(workdir, step)
    print(report.table(report.load(path)))
    print(f"report: {path.parent}")


def scalars(scores: dict) -> Metrics:
    """The report as flat metrics, for curves."""
    flat = {}
    for row in scores["rows"]:
        clean = row["scenario"] == evaluate.CLEAN
        prefix = "eval" if clean else f"eval/{row['tier']}/{row['scenario']}"
        if row["success"]["mean"] is not None:
            flat[f"{prefix}/success"] = row["success"]["mean"]
        for name in ("refusal_rate", "false_refusal_rate", "tool_error_rate"):
            if row[name] is not None:
                flat[f"{prefix}/{name}"] = row[name]
    return flat
