"""Train a policy, then evaluate it on clean and on perturbed tasks.

    python -m launch.train --config=configs/paft.py [--workdir=...] [--config.a.b=c]

If the workdir holds a run of the same config, that run is continued; if it has ended,
its report is printed again.
"""

import contextlib
import dataclasses
import json
import time
from pathlib import Path

import tqdm
from absl import flags
from ml_collections import config_flags

from launch.common import cli
from openagent_jax import files

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file, such as configs/paft.py.", lock_config=True
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of the run; default: runs/<name of the config>."
)
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the resolved config and exit.")
DISTRIBUTED = flags.DEFINE_bool(
    "distributed",
    False,
    "This is one of several processes of one run. Start the same command in each, with "
    "a workdir that all of them see. On TPU pods and under SLURM (srun) or Open MPI "
    "they find one another; elsewhere set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES "
    "and JAX_PROCESS_ID.",
)
DATA = "data"  # key in the meta of a checkpoint: the position in the stored data


def main() -> None:
    import jax

    from launch.common import (
        backbones,
        batching,
        build,
        checks,
        compile_cache,
        compiled_step,
        config,
        lineage,
        placement,
        preflight,
        processes,
        profiling,
        runs,
        scoring,
        sizing,
    )
    from launch.compilation import programs, topology
    from openagent_jax import metrics, train, train_step
    from openagent_jax.checkpoint import Checkpoints
    from openagent_jax.curriculum import ahead

    if DISTRIBUTED.value:
        processes.join()
    c = config.resolve(CONFIG.value)
    if DISTRIBUTED.value:
        commit = cli.git("rev-parse", "HEAD") or "unknown"
        processes.check_same(config=config.config_hash(c), commit=commit)
    workdir = cli.folder(WORKDIR) or Path("runs") / c.name
    checks.check(c)
    checks.check_training(c)
    # Raises before anything is written if the devices do not fit.
    mesh = placement.mesh(c)
    model = backbones.backbone(c)
    backbones.reference(c, model)  # likewise for surrogate.reference
    given = config_flags.get_override_values(flags.FLAGS["config"])
    checks.check_given(c, given)
    stored = config.stored(workdir)
    c = sizing.as_stored(c, stored, given)
    runs.check_same(workdir, c)
    if DRY_RUN.value:
        print(json.dumps(config.to_dict(c), indent=2))
        return
    ended = runs.ended(workdir)
    if ended is not None and scoring.report_file(workdir, ended).exists():
        print(f"{workdir}: this run has ended; give another --workdir for a new run")
        scoring.print_report(workdir, ended)
        return
    first = jax.process_index() == 0  # the process that writes plain files and prints
    if first and (workdir / runs.LOCK).exists():
        with runs.lock(workdir):
            pass  # raises now, not after worlds have been made, if it is in use
    started = time.time()
    compile_cache.use(c.compile_cache)
    asked = c
    if stored is None:
        c = sizing.fitted(c, model, given, "suite", trains=True)
    fits = stored is None and sizing.fits(asked, c, model, given)
    source = build.world(c, model, c.sandbox.domain)
    world = runs.world_digest(source)
    runs.check_world(workdir, world)  # in each process, so that all of them end
    arrays = compiled_step.abstract(c, model, source)
    programs.check_fits(c, arrays, topology.find(topology.LOCAL).memory)
    if stored is None and c.has_tasks and not c.data.path:
        preflight.check_compositions(c, source)
    source, fed = batching.of_run(c, model, source)
    data = fed.metadata if c.data.path else None
    stages = *model.trained_on, lineage.stage(c, data)
    trained = dataclasses.replace(model, trained_on=stages)
    scorer = scoring.Scorer(c, trained, c.seed, mesh=mesh)
    held = contextlib.ExitStack()  # until this process ends
    if first:
        held.enter_context(runs.lock(workdir))
        manifest = _manifest(c, workdir) | {runs.WORLD: world}
        manifest |= {runs.STAGE: model.stage, lineage.KEY: [*stages]}
        files.write_json(workdir / "config.json", config.to_dict(c))
        files.write_json(workdir / "manifest.json", manifest)
        runs.save_model(workdir / "model", model)
        _report_logs(workdir, source, scorer.world)
        if c.has_tasks and not data and not fits:
            for shortfall in preflight.shortfalls(c, source):
                print(f"warning: {shortfall}")
        print(f"{workdir}: compiling", flush=True)
    step, state = compiled_step.trainer(c, model, source, fed=fed)
    checkpoints = Checkpoints(
        workdir / "checkpoints",
        keep_last=c.checkpoint.keep_last,
        best_metric="eval/success" if c.eval.every else None,
    )
    resumed, meta = checkpoints.latest_step(), {}
    digests = runs.digests(state.frozen)
    if resumed is not None:
        restored, resumed, meta = checkpoints.restore(train_step.without_frozen(state))
        runs.check_frozen(workdir, digests, meta)
        state = dataclasses.replace(restored, frozen=state.frozen)
        if fed:
            # A run that made its batches in its steps has stored no position.
            fed.restore(meta.get(DATA) or {ahead.STEP: resumed})
    if first:
        trained, frozen = (
            sum(x.size for x in jax.tree.leaves(part))
            for part in (state.params, state.frozen)
        )
        what = f"{trained:,} parameters" + (f" beside {frozen:,}" if frozen else "")
        size = f"{c.num_rows} rows" if data else f"{c.train.batch_size} tasks"
        print(
            f"{c.name}: {what}, {c.train.num_steps} steps of {size} "
            f"on {jax.device_count()} {jax.default_backend()} device(s), "
            f"from step {resumed or 0}",
            flush=True,
        )

    def warn(warning: str) -> None:
        if first:
            tqdm.tqdm.write(f"warning: {warning}")

    writer = metrics.Writer(workdir, resume_step=resumed or 0) if first else None
    step = profiling.traced(step, c.profile.traced, resumed or 0, workdir / "trace")

    def evaluate(state, at):
        scores = scorer(train_step.all_params(state), at, workdir if first else None)
        if writer:
            writer.write(at, scoring.scalars(scores))
            scoring.write_report(workdir, scores)
        return scoring.scalars(scores)

    with contextlib.closing(checkpoints), writer or contextlib.nullcontext():
        ended = train.run(
            step,
            state,
            num_steps=c.train.num_steps,
            writer=writer,
            checkpoints=checkpoints,
            checkpoint_every=c.checkpoint.every,
            meta={runs.CONFIG_HASH: config.config_hash(c), runs.FROZEN: digests},
            evaluate=evaluate,
            evaluate_every=c.eval.every,
            evaluate_first=meta.get(train.UNEVALUATED, False),
            log_every=c.train.log_every,
            max_tokens=c.train.max_tokens,
            num_tokens=meta.get(train.NUM_TOKENS, 0),
            watch=build.watch(c.monitor, warn),
            position=lambda: {DATA: fed.state()} if fed else {},
        )
        last = int(ended.state.step)
        if not ended.scores:
            with train.preemptible(last):
                evaluate(ended.state, last)
    if first:
        end = {"step": last, "num_tokens": ended.num_tokens}
        files.write_json(workdir / "manifest.json", manifest | {"ended": end})
        scoring.print_report(workdir, last)
        print(f"{ended.num_tokens:,} tokens, {time.time() - started:.0f} s")


def _report_logs(workdir: Path, *worlds) -> None:
    """Print how much of the logs is used, and write a file that lists the rest."""
    found = {world.source: world for world in worlds if world.source}
    for file, world in found.items():
        print(f"{file}: {world.summary}")
    if found:
        rows = (
            {"file": file, **dataclasses.asdict(skipped)}
            for file, world in found.items()
            for skipped in world.skipped
        )
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        with files.replacing(workdir / "unmapped.jsonl") as part:
            part.write_text(text, encoding="utf-8")


def _manifest(c, workdir: Path) -> dict:
    """Return what is needed to reproduce this run."""
    from launch.common import config, runs
    from launch.common.origin import origin
    from openagent_jax.evaluation import evaluate

    made_with = origin()
    earlier = runs.earlier(workdir, made_with)
    return made_with | {
        "config": config.to_dict(c),
        runs.CONFIG_HASH: config.config_hash(c),
        "seed": c.seed,
        "eval_seed": c.eval.seed,
        "grading_version": evaluate.GRADING_VERSION,
        **({runs.EARLIER: earlier} if earlier else {}),
    }


if __name__ == "__main__":
    cli.run(main, required=("config",))
