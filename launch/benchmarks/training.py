"""The time of a training step with its data, and of a run outside of its steps."""

import contextlib
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from launch.benchmarks import torch_training, utilisation
from launch.benchmarks.timing import Timer
from launch.common import batching, build, compiled_step
from launch.common.config import Config
from launch.common.model_loading import Backbone
from openagent_jax import metrics, train
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.environments.world import World


def measure(
    c: Config, model: Backbone, source: World, timer: Timer
) -> dict[str, float]:
    """Return the seconds of a step, its tokens per second, and the share of padding.

    The share of time outside of the steps, the number of parameters and, for SFT, the
    speed on batches that are made beforehand are included.
    """
    source, feed = batching.of_run(c, model, source)
    step, state = compiled_step.trainer(c, model, source, fed=feed)
    state, measured = step(state)
    num_tokens = float(measured["train/num_tokens"])
    num_slots = c.num_rows * c.num_columns * c.train.num_epochs
    held = [state]

    def one():
        held[0], _ = step(held[0])
        return held[0]

    (seconds,) = timer(one)
    figures = {
        "step_s": seconds,
        "outside_share": _outside_share(c, step, held[0]),
        "tokens_per_s": num_tokens / seconds,
        "padding_share": 1 - num_tokens / num_slots,
        "parameters": float(sum(jnp.size(x) for x in jax.tree.leaves(held[0].params))),
    }
    if not c.algorithm.is_reinforcement:
        figures |= fed(c, model, source, timer)
    return figures


def fed(c: Config, model: Backbone, source: World, timer: Timer) -> dict[str, float]:
    """Return the speed on batches made beforehand, beside torch where it can train."""
    reason = torch_training.unlike(c)
    try:
        if not reason:
            return torch_training.compare(c, model, source, timer)
    except ImportError as error:
        reason = f'{error}: pip install -e ".[hf,torch]"'
    print(f"train  not compared with torch: {reason}")
    return utilisation.measure(c, model, source, timer)


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
