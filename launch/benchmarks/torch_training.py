"""Fine-tuning beside torch, and both beside the rate at which the machine multiplies.

The rival is the model of transformers (`interop.torch_peer.Trainer`), with the same
weights, batches, loss mask and optimizer. Neither side makes the batches. They are
those of the first steps of a run, in order, and both sides train on them again and
again.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from launch.benchmarks import utilisation
from launch.benchmarks.timing import Timer
from launch.common import compiled_step
from launch.common.config import Config
from launch.common.model_loading import Backbone
from openagent_jax import optim, train_step
from openagent_jax.environments.world import World
from openagent_jax.interop import torch_peer
from openagent_jax.models import hf, lora
from openagent_jax.types import Batch


def unlike(c: Config) -> str:
    """Return why torch cannot train in the same way; "" if it can."""
    if jax.default_backend() != "cpu":
        return "it would run on the CPU"
    needed = {
        "algorithm.name": (c.algorithm.name, "sft"),
        "algorithm.num_rows": (c.algorithm.num_rows, 0),
        "optim.name": (c.optim.name, "adamw"),
        "model.dtype": (c.model.dtype, "float32"),
        "model.param_dtype": (c.model.param_dtype, "float32"),
        "train.num_epochs": (c.train.num_epochs, 1),
        "train.num_minibatches": (c.train.num_minibatches, 1),
        "train.shuffle_vectors": (c.train.shuffle_vectors, False),
    }
    for key, (value, wanted) in needed.items():
        if value != wanted:
            value, wanted = (
                f'"{x}"' if isinstance(x, str) else x for x in (value, wanted)
            )
            return f"{key}={value} is not {wanted}"
    return ""


def compare(
    c: Config, model: Backbone, source: World, timer: Timer
) -> dict[str, float]:
    """Return the speed of both sides, and the difference of their losses.

    Tokens per second are those that are not padding. With `cut`, torch gets batches
    without the columns that are padding in every row, as collators of transformers make
    them; without, both get the same columns.

    Raises:
      ImportError: torch or transformers is not installed.
    """
    batches = utilisation.first_batches(c, model, source)
    step, state, rival = sides(c, model, source, batches)
    rows = [jax.tree.map(np.asarray, batch) for batch in batches]
    losses = []
    for batch in rows:
        state, metrics = step(state)
        losses.append((float(metrics["train/loss"]), rival(*arguments(batch))))
    ours, theirs = np.array(losses).T
    held = [state]

    def train_ours():
        for _ in rows:
            held[0], _ = step(held[0])
        return held[0]

    def train_theirs(cut: bool):
        for batch in rows:
            rival(*arguments(batch, cut))

    seconds, other, cut, product, torch_product = timer(
        train_ours,
        lambda: train_theirs(cut=False),
        lambda: train_theirs(cut=True),
        utilisation.product(c.model.dtype),
        torch_peer.product(utilisation.size()),
    )
    num_tokens = sum(batch.valid.sum() for batch in rows)
    num_slots = sum(batch.valid.size for batch in rows)
    needed = utilisation.num_flops(c, model.config, rows)
    flops = 2 * utilisation.size() ** 3
    return {
        "fed_tokens_per_s": num_tokens / seconds,
        "fed_padded_tokens_per_s": num_slots / seconds,
        "torch_tokens_per_s": num_tokens / other,
        "torch_padded_tokens_per_s": num_slots / other,
        "torch_cut_tokens_per_s": num_tokens / cut,
        "ratio": other / seconds,
        "cut_ratio": cut / seconds,
        "loss_difference": float(np.max(np.abs(ours - theirs) / theirs)),
        "matmul_gflops": flops / product / 1e9,
        "torch_matmul_gflops": flops / torch_product / 1e9,
        "utilisation": needed / seconds / (flops / product),
        "torch_cut_utilisation": needed / cut / (flops / torch_product),
    }


def sides(
    c: Config, model: Backbone, source: World, batches: list[Batch]
) -> tuple[Callable[[Any], Any], Any, torch_peer.Trainer]:
    """Return our step, fed with batches in turn, and torch in the same state.

    Raises:
      ImportError: torch or transformers is not installed.
    """
    step, state = compiled_step.trainer(
        c, model, source, fed=utilisation.Cycle(c, batches)
    )
    schedule = optim.make_schedule(
        c.optim.schedule, c.num_updates, c.optim.warmup_steps, c.optim.end_factor
    )
    params = jax.device_get(train_step.all_params(state))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "model"
        hf.save(made, model.config, lora.base(params))
        rival = torch_peer.Trainer(
            made,
            lambda step: c.optim.learning_rate * float(schedule(step)),
            betas=(optim.B1, optim.B2),
            weight_decay=c.optim.weight_decay,
            clip_norm=c.optim.clip_norm,
            train_embedding=c.optim.train_embedding,
            num_micro_batches=c.train.num_micro_batches,
            lora=model.config.lora,
            adapters=params.get(lora.LORA),
        )
    return step, state, rival


def arguments(batch: Batch, cut: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return a batch for torch, of all columns or of those that some row needs."""
    end = batch.valid.sum(axis=1).max() if cut else batch.valid.shape[1]
    tokens, loss_mask = np.asarray(batch.tokens), np.asarray(batch.loss_mask)
    return tokens[:, :end], loss_mask[:, :end]
