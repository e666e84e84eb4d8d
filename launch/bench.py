"""Measure speed and memory, most figures against a baseline in the same run.

    python -m launch.bench [--config=configs/base.py]

sandbox   environment steps/s without a model, under given actions, in one jitted scan
rollout   tokens/s of whole episodes, of the same model over as many tokens without the
          environment, and the share of rows and steps in which no token was read
episodes  episodes/s, sampled in groups of the same task as in GRPO, and episodes/s of
          the same policy in a Python loop on the same tasks (benchmarks/python_loop.py)
train     time of a training step with its data, and the share of a run that is spent
          outside of the steps, on logs, checkpoints and Python. For SFT also tokens/s
          on batches that are made beforehand, those of torch on the same batches, and
          both as shares of the rate of a large matrix product
          (benchmarks/torch_training.py); without torch, a line says that it is missing
load      seconds until the weights are on the devices; for a GGUF file also the seconds
          to convert it
decode    greedy tokens/s after a short prompt, and those of `generate` of transformers
          with the same weights; transformers and torch must be installed
agents    the time that playing an agent over HTTP adds to the agent's own, in percent,
          with eight episodes at once; and the memory that many episodes add to the peak
serve     tokens/s of clients of launch.serve, and of its decoder in a bare loop, by the
          length of replies

--parts=sandbox,rollout measures only these two. The peak of memory is that of the whole
process so far; to get the peak of one part, measure this part alone.
"""

import json
import os
from collections.abc import Callable
from functools import partial

from absl import flags
from ml_collections import config_flags

from launch.common import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", "configs/base.py", "Config that is measured.", lock_config=True
)
ROWS = flags.DEFINE_integer(
    "rows", 64, "Episodes of a rollout, and requests to a server."
)
GROUP = flags.DEFINE_integer("group", 8, "Sampled episodes of each task.")
ENVS = flags.DEFINE_integer("envs", 4096, "Worlds of the part sandbox.")
REPEATS = flags.DEFINE_integer("repeats", 5, "Runs of which the median is taken.")
PARTS = (
    "sandbox",
    "rollout",
    "episodes",
    "train",
    "load",
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

    errors.check_names("--parts", ONLY.value, PARTS)
    c = config.resolve(CONFIG.value)
    checks.check(c)
    compile_cache.use(c.compile_cache)
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    device = jax.devices()[0].device_kind
    machine = f"{jax.device_count()} x {device}, {os.cpu_count()} cores"
    print(f"{machine}, jax {jax.__version__}")
    figures = {}
    for name in PARTS:
        if name in ONLY.value:
            values = _part(name, c, model, source)()
            figures[name] = values | {"peak_gb": timing.peak_memory()}
            text = ", ".join(f"{k} {v:,.4g}" for k, v in figures[name].items())
            print(f"{name}  {text}", flush=True)
    if JSON.value:
        with open(JSON.value, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


def _part(name: str, c, model, source) -> Callable[[], dict[str, float]]:
    """Return the function that measures a part; imports what it needs."""
    from launch.benchmarks import pretrained, rollouts, sandbox, timing, training
    from launch.common import errors

    medians = partial(timing.medians, repeats=REPEATS.value)
    played = c.seed, model, source
    match name:
        case "sandbox":
            return partial(sandbox.measure, source, ENVS.value, medians)
        case "rollout":
            how = ROWS.value, c.rollout.num_rows
            return partial(rollouts.tokens, *played, *how, medians)
        case "episodes":
            num = ROWS.value, GROUP.value, c.rollout.num_rows
            how = c.algorithm.temperature, *num
            return partial(rollouts.episodes, *played, *how, medians)
        case "train":
            return partial(training.measure, c, model, source, REPEATS.value, medians)
        case "load":
            return partial(pretrained.load, c, model, medians)
        case "decode":
            return partial(pretrained.decode, c, model, medians)
        case "agents":
            with errors.needs_extra("--parts=agents", "agents"):
                import openai  # noqa: F401

                from launch.benchmarks import agents
            return partial(agents.measure, c)
        case _:
            with errors.needs_extra("--parts=serve", "serve"):
                from launch.benchmarks import serving
            return partial(serving.measure, c, model, ROWS.value, medians)


if __name__ == "__main__":
    cli.run(main)
