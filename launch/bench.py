"""Measure speed and memory, most figures against a baseline in the same run.

    python -m launch.bench [--config=configs/base.py]

sandbox   environment steps/s without a model, under given actions, in one jitted scan
rollout   tokens/s of whole episodes; tokens/s of the same model on as many tokens, but
          without the environment; and the share of row-steps that are idle
episodes  episodes/s, sampled in groups of the same task as in GRPO, and episodes/s of
          the same policy in a Python loop on the same tasks (benchmarks/python_loop.py)
train     time of a training step with its data, and the share of a run that is spent
          outside of the steps, on logs, checkpoints and Python. For SFT also tokens/s
          on batches that are made beforehand, those of torch on the same batches, and
          both as shares of the rate of a large matrix product
          (benchmarks/utilisation.py); without torch, a line says that it is missing
load      seconds until the weights are on the devices; for a GGUF file also the seconds
          to convert it
save      seconds to save a training state, and to restore it
decode    tokens/s of prefilling a prompt and of greedy decoding, in 1, 16 and 64 rows;
          those of `generate` of transformers with the same weights; and the share of
          the rate at which the device can read the weights
agents    the time that playing an agent over HTTP adds to the agent's own, in percent,
          with eight episodes at once; and the memory that many episodes add to the peak
serve     tokens/s of clients of launch.serve, and of its decoder in a bare loop, by the
          length of replies

--parts=sandbox,rollout measures only these two. All figures are computed from median
times. --json writes them to a file with the commit, the versions and the device. For
each part, the file also has the spread of its times and the seconds of the first calls.
These are not counted, because they include compilation, unless compile_cache has the
program. The peak memory is that of the whole process so far; to get that of one part,
measure this part alone.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch.common import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", "configs/base.py", "Config that is measured.", lock_config=True
)
ROWS = flags.DEFINE_integer(
    "rows", 64, "Episodes of a rollout, and requests to a server.", 1
)
GROUP = flags.DEFINE_integer("group", 8, "Sampled episodes of each task.", 1)
ENVS = flags.DEFINE_integer("envs", 4096, "Parallel environments of sandbox.", 1)
REPEATS = flags.DEFINE_integer("repeats", 5, "Runs of which the median is taken.", 1)
PARTS = (
    "sandbox",
    "rollout",
    "episodes",
    "train",
    "load",
    "save",
    "decode",
    "agents",
    "serve",
)
ONLY = flags.DEFINE_list("parts", [*PARTS[:4]], f"Some of {', '.join(PARTS)}.")
JSON = flags.DEFINE_string("json", None, "File to write the figures to.")


def main() -> None:
    import jax

    from launch.benchmarks import timing
    from launch.common import backbones, build, checks, compile_cache, config, errors
    from launch.common.origin import origin
    from openagent_jax import files

    errors.check_names("--parts", ONLY.value, PARTS)
    if "episodes" in ONLY.value and ROWS.value % GROUP.value:
        raise cli.UsageError(
            f"--rows={ROWS.value} is not a multiple of --group={GROUP.value}"
        )
    c = config.resolve(CONFIG.value)
    checks.check(c)
    compile_cache.use(c.compile_cache)
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    device = jax.devices()[0].device_kind
    machine = f"{jax.device_count()} x {device}, {os.cpu_count()} cores"
    print(f"{machine}, jax {jax.__version__}")
    found = origin() | {"config": config.to_dict(c), "repeats": REPEATS.value}
    for name in PARTS:
        if name in ONLY.value:
            timer = timing.Timer(REPEATS.value)
            figures = _part(name, c, model, source, timer)()
            figures |= {"peak_gb": timing.peak_memory()}
            text = ", ".join(f"{k} {v:,.4g}" for k, v in figures.items())
            print(f"{name}  {text}", flush=True)
            about = {"spread": timer.spread, "first_calls_s": timer.first_s}
            found.setdefault("parts", {})[name] = about | {"figures": figures}
            if JSON.value:  # after each part, so that a later failure loses nothing
                files.write_json(Path(JSON.value), found)


def _part(name: str, c, model, source, timer) -> Callable[[], dict[str, float]]:
    """Return the function that measures a part; imports what it needs."""
    from launch.benchmarks import pretrained, rollouts, sandbox, training
    from launch.common import errors

    played = c.seed, model, source
    match name:
        case "sandbox":
            return partial(sandbox.measure, source, ENVS.value, timer)
        case "rollout":
            how = ROWS.value, c.rollout.num_rows
            return partial(rollouts.tokens, *played, *how, timer)
        case "episodes":
            num = ROWS.value, GROUP.value, c.rollout.num_rows
            how = c.algorithm.temperature, *num
            return partial(rollouts.episodes, *played, *how, timer)
        case "train":
            return partial(training.measure, c, model, source, timer)
        case "load":
            return partial(pretrained.load, c, model, timer)
        case "save":
            return partial(pretrained.checkpoint, c, model, source, timer)
        case "decode":
            return partial(pretrained.decode, c, model, timer)
        case "agents":
            with errors.needs_extra("--parts=agents", "agents"):
                import openai  # noqa: F401

                from launch.benchmarks import agents
            return partial(agents.measure, c)
        case _:
            with errors.needs_extra("--parts=serve", "serve"):
                from launch.benchmarks import serving
            return partial(serving.measure, c, model, ROWS.value, timer)


if __name__ == "__main__":
    cli.run(main)
