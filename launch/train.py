"""The main job: train a policy in the sandbox, and print what survives.

    python -m launch.train --config=configs/paft.py [--workdir=...] [--config.a.b=c]

A workdir that holds a run of the same config is gone on with.
"""

import json
import os
import platform
import subprocess
import time
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file, such as configs/paft.py.", lock_config=True
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where the run is kept; default: runs/<name of the config>."
)
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the resolved config and leave.")


def main() -> None:
    from launch import build, programs  # imports jax

    c = CONFIG.value
    build.check(c)
    if DRY_RUN.value:
        print(json.dumps(c.to_dict(), indent=2))
        return
    started = time.time()
    workdir = Path(WORKDIR.value or Path("runs") / c.name)
    _claim(workdir, c)
    programs.keep(c.compile_cache)

    import jax

    from launch import scoring
    from openagent_jax import metrics, train
    from openagent_jax.checkpoint import Checkpoints

    model = build.backbone(c)
    source = build.task_worlds(c, model.tokenizer, c.sandbox.domain)
    step, state = build.trainer(c, model, source)
    build.save_model(workdir / "model", model)
    _write_json(workdir / "manifest.json", _manifest(c, build.config_hash(c)))

    checkpoints = Checkpoints(
        workdir / "checkpoints",
        keep_last=c.checkpoint.keep_last,
        best_metric="eval/success" if c.eval.every else None,
    )
    resumed = None
    if checkpoints.latest_step() is not None:
        state, resumed, _ = checkpoints.restore(state)
        print(f"{workdir}: goes on from step {resumed}")
    num_params = sum(x.size for x in jax.tree.leaves(state.params))
    print(
        f"{c.name}: {num_params:,} parameters, {c.train.num_steps} steps of "
        f"{c.train.batch_size} tasks on {jax.device_count()} {jax.default_backend()} "
        f"device(s), in {workdir}",
        flush=True,
    )
    scorer = scoring.Scorer(c, model)
    with metrics.Writer(workdir, resume_step=resumed or 0) as writer:

        def evaluate(state, at):
            report = scorer(state.params, at)
            scoring.write(workdir, report)
            return scoring.scalars(report)

        try:
            state = train.run(
                step,
                state,
                num_steps=c.train.num_steps,
                writer=writer,
                checkpoints=checkpoints,
                checkpoint_every=c.checkpoint.every,
                meta={"config_hash": build.config_hash(c)},
                evaluate=evaluate,
                evaluate_every=c.eval.every,
                log_every=c.train.log_every,
            )
        finally:
            checkpoints.close()
        report = scorer(state.params, c.train.num_steps)
        writer.write(c.train.num_steps, scoring.scalars(report))
    folder = scoring.write(workdir, report)
    print(scoring.table(report))
    print(f"{time.time() - started:.0f} s; report: {folder}")


def _claim(workdir: Path, c) -> None:
    """Make the workdir this config's own; another config's is left alone."""
    file = workdir / "config.json"
    if file.exists():
        try:
            old = json.loads(file.read_text())
        except ValueError as error:
            raise cli.BadUse(f"{file} is damaged ({error}); use another --workdir")
        new = json.loads(json.dumps(c.to_dict()))
        for key in _different(old, new):
            if key != "compile_cache":
                raise cli.BadUse(
                    f"{workdir} holds a run of another config ({key} differs); "
                    "use another --workdir, or remove it"
                )
    workdir.mkdir(parents=True, exist_ok=True)
    _write_json(file, c.to_dict())


def _different(old, new, path: str = ""):
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            inner = f"{path}.{key}" if path else key
            yield from _different(old.get(key), new.get(key), inner)
    elif old != new:
        yield path


def _write_json(file: Path, value) -> None:
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(temporary, file)


def _manifest(c, config_hash: str) -> dict:
    from importlib import metadata

    import jax

    from openagent_jax import evaluate

    def git(*words):
        try:
            return subprocess.run(
                ["git", *words], capture_output=True, text=True, check=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None

    names = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    device = jax.devices()[0]
    return {
        "git_commit": git("rev-parse", "HEAD"),
        "git_dirty": bool(git("status", "--porcelain")),
        "config": c.to_dict(),
        "config_hash": config_hash,
        "seed": c.seed,
        "eval_seed": c.eval.seed,
        "device_kind": device.device_kind,
        "platform": device.platform,
        "num_devices": jax.device_count(),
        "num_processes": jax.process_count(),
        "cpu_count": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in names},
        "grading_version": evaluate.GRADING_VERSION,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


if __name__ == "__main__":
    cli.run(main, required=("config",))
