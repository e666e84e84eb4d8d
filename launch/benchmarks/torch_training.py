"""Fine-tuning beside torch, and both beside the rate at which the machine multiplies.

The rival is the model of transformers (`interop.torch_peer.Trainer`), with the same
weights, batches, loss mask and optimizer. Neither side makes the batches. They are
those of the first steps of a run, in order, and both sides train on them again and
again.

The model FLOPs utilisation (arXiv 2204.02311, appendix B) is the share of the rate of a
large matrix product that training would reach if it computed only what it must:

    (6 N T + 6 V D P + 6 L H K sum(n^2)) / (seconds * FLOP/s of the product)

Of N weights in the layers, each costs 6 FLOPs for each of the T tokens that are not
padding: 2 in the forward pass, 2 for the gradient of its input, and 2 for its own. So
does each weight of the output head, [V D], but only for the P tokens of the loss, the
only ones that need it. Attention of L layers with H heads of size K needs the other
term for texts of n tokens; it is half of what the paper counts, because it is causal.
Weights that are not trained have no gradient of their own: 4 takes the place of their
6. What a side computes besides, for padding or to save memory, counts for nothing.
"""

import itertools
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from launch.benchmarks.timing import Medians
from launch.common import batching, build, placement
from launch.common.config import Config
from launch.common.model_loading import Backbone
from openagent_jax import optim, sharding, train
from openagent_jax.environments.world import World
from openagent_jax.interop import torch_peer
from openagent_jax.models import hf, lora, transformer
from openagent_jax.types import Batch, Params

NUM_BATCHES = 4
SIZE = 2048  # of the square matrices whose product is timed


def unlike(c: Config) -> str:
    """Return why torch cannot train in the same way; "" if it can."""
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
    c: Config, model: Backbone, source: World, medians: Medians
) -> dict[str, float]:
    """Return the speed of both sides, and the difference of their losses.

    Tokens per second are those that are not padding. With `cut`, torch gets batches
    without the columns that are padding in every row, as collators of transformers make
    them; without, both get the same columns.

    Raises:
      ImportError: torch or transformers is not installed.
    """
    batches = first_batches(c, model, source)
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

    seconds, other, cut, product, torch_product = medians(
        train_ours,
        lambda: train_theirs(cut=False),
        lambda: train_theirs(cut=True),
        *_products(),
    )
    num_tokens = sum(batch.valid.sum() for batch in rows)
    num_slots = sum(batch.valid.size for batch in rows)
    needed, flops = num_flops(c, model.config, rows), 2 * SIZE**3
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
    """Return `build.trainer`, fed with batches in turn, and torch in the same state.

    Raises:
      ImportError: torch or transformers is not installed.
    """
    step, state = build.trainer(c, model, source, fed=_Cycle(c, batches))
    schedule = optim.make_schedule(
        c.optim.schedule, c.train.num_steps, c.optim.warmup_steps, c.optim.end_factor
    )
    params = jax.device_get(train.all_params(state))
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


def num_flops(
    c: Config, config: transformer.ModelConfig, batches: list[Batch]
) -> float:
    """Return the FLOPs that training on batches needs; see the top of this file."""
    shapes = transformer.shapes(config)
    tuned = config.lora is not None

    def count(tree: Params) -> int:
        return sum(x.size for x in jax.tree.leaves(tree) if len(x.shape) == 3)

    per_token = (4 if tuned else 6) * count(shapes["layers"])
    if config.lora:
        init = partial(lora.init, config.lora, jax.random.key(0))
        per_token += 6 * count(jax.eval_shape(init, shapes))
    head_is_trained = not tuned and (c.optim.train_embedding or not config.tied)
    per_loss_token = (6 if head_is_trained else 4) * config.vocab_size * config.width
    heads = config.num_layers * config.num_heads * config.head_size
    lengths = np.concatenate([batch.valid.sum(axis=1) for batch in batches])
    num_loss_tokens = sum(batch.loss_mask.sum() for batch in batches)
    return float(
        per_token * lengths.sum()
        + per_loss_token * num_loss_tokens
        + 6 * heads * np.sum(lengths.astype(float) ** 2)
    )


class _Cycle:
    """Batches that come again and again, in the place of `data.feed.Feed`."""

    def __init__(self, c: Config, batches: list[Batch]):
        layout = sharding.batch_sharding(placement.mesh(c))
        placed = [jax.device_put(batch, layout) for batch in batches]
        self._batches = itertools.cycle(placed)
        self.abstract = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout), placed[0]
        )

    def __next__(self) -> Batch:
        return next(self._batches)


def first_batches(c: Config, model: Backbone, source: World) -> list[Batch]:
    """Return the batches of the first steps of a run."""
    _, fed = batching.of_run(c, model, source)
    if fed is not None:
        return [next(fed) for _ in range(NUM_BATCHES)]
    make = batching.maker(c, model, source)
    return [make(step) for step in range(NUM_BATCHES)]


def _products() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return functions that multiply large matrices, by XLA and by torch."""
    a, b = jax.random.uniform(jax.random.key(0), (2, SIZE, SIZE))
    multiply = jax.jit(jnp.matmul)
    return lambda: multiply(a, b), torch_peer.product(SIZE)
