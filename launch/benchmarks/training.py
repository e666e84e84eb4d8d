"""The time of a training step with its data, and of a run outside of its steps."""

import contextlib
import statistics
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from launch.benchmarks import torch_training
from launch.benchmarks.timing import Medians
from launch.common import batching, build
from launch.common.config import Config
from launch.common.model_loading import Backbone
from openagent_jax import metrics, train
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.environments.world import World


def measure(
    c: Config, model: Backbone, source: World, repeats: int, medians: Medians
) -> dict[str, float]:
    """Return the seconds of a step, its tokens per second, and the share of padding.

    The share of time outside of the steps, the number of parameters and, where torch
    can train in the same way, the comparison with it are included.
    """
    source, fed = batching.of_run(c, model, source)
    step, state = build.trainer(c, model, source, fed=fed)
    state, measured = step(state)
    num_tokens = float(measured["train/num_tokens"])
    num_slots = c.num_rows * c.num_columns * c.train.num_epochs
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        state, measured = step(state)
        jax.block_until_ready(state)
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    figures = {
        "step_s": seconds,
        "outside_share": _outside_share(c, step, state),
        "tokens_per_s": num_tokens / seconds,
        "padding_share": 1 - num_tokens / num_slots,
        "parameters": float(sum(jnp.size(x) for x in jax.tree.leaves(state.params))),
    }
    return figures | beside_torch(c, model, source, medians)


def beside_torch(
    c: Config, model: Backbone, source: World, medians: Medians
) -> dict[str, float]:
    """Return the comparison with torch; empty, after a line that says why, without."""
    reason = torch_training.unlike(c)
    try:
        if not reason:
            return torch_training.compare(c, model, source, medians)
    except ImportError as error:
        reason = f'{error}: pip install -e ".[hf,torch]"'
    print(f"train  not compared with torch: {reason}")
    return {}


def _outside_share(c: Config, step, state) -> float:
    """Return the share of a run's time outside of its compiled step.

    It is measured from one checkpoint to the next, and is an upper bound: here no step
    overlaps with what the loop does.
    """
    inside, first = [], int(state.step)

    def timed(state):
        start = time.perf_counter()
        made = jax.block_until_ready(step(state))
        inside.append(time.perf_counter() - start)
        return made

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Checkpoints(Path(folder) / "checkpoints")) as checkpoints,
        metrics.Writer(folder) as writer,
    ):
        start = time.perf_counter()
        train.run(
            timed,
            state,
            num_steps=first + c.checkpoint.every,
            writer=writer,
            checkpoints=checkpoints,
            checkpoint_every=c.checkpoint.every,
            meta={},
            log_every=c.train.log_every,
            watch=build.watch(c.monitor, print),
        )
        total = time.perf_counter() - start
    return 1 - sum(inside) / total
