"""The share of a machine's matrix-product throughput that training uses.

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
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from launch.benchmarks.timing import Timer
from launch.common import batching, compiled_step, placement
from launch.common.config import Config
from launch.common.model_loading import Backbone
from launch.compilation import chips
from openagent_jax import sharding
from openagent_jax.environments.world import World
from openagent_jax.models import lora, transformer
from openagent_jax.types import Batch, Params

NUM_BATCHES = 4
# Sizes of the square matrices whose product is timed, on a CPU and on other devices.
CPU_SIZE, SIZE = 2048, 8192


def measure(
    c: Config, model: Backbone, source: World, timer: Timer
) -> dict[str, float]:
    """Return the speed of SFT on batches that are made beforehand.

    `utilisation` is the share of the rate of a large product here, and `mfu` that of
    what the vendor of the device states, if it is known.
    """
    batches = first_batches(c, model, source)
    step, state = compiled_step.trainer(c, model, source, fed=Cycle(c, batches))
    rows = [jax.tree.map(np.asarray, batch) for batch in batches]
    held = [state]

    def train_all():
        for _ in rows:
            held[0], _ = step(held[0])
        return held[0]

    seconds, multiplied = timer(train_all, product(c.model.dtype))
    passes = c.train.num_epochs
    needed = passes * num_flops(c, model.config, rows)
    achieved = needed / seconds / jax.device_count()
    rate = 2 * size() ** 3 / multiplied
    figures = {
        "fed_tokens_per_s": passes * sum(x.valid.sum() for x in rows) / seconds,
        "fed_padded_tokens_per_s": passes * sum(x.valid.size for x in rows) / seconds,
        "matmul_gflops": rate / 1e9,
        "utilisation": achieved / rate,
    }
    chip = chips.of_device(jax.devices()[0].device_kind)
    if chip and c.model.dtype == "bfloat16":  # the vendor's figure is of this type
        figures["mfu"] = achieved / chip.flops
    return figures


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
    # A row may hold several texts, which are numbered from 1 on; 0 is padding.
    rows = itertools.chain(*(np.asarray(batch.segments) for batch in batches))
    lengths = np.concatenate([np.bincount(row)[1:] for row in rows])
    num_loss_tokens = sum(batch.loss_mask.sum() for batch in batches)
    return float(
        per_token * lengths.sum()
        + per_loss_token * num_loss_tokens
        + 6 * heads * np.sum(lengths.astype(float) ** 2)
    )


class Cycle:
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


def size() -> int:
    """Return the size of the matrices that `product` multiplies."""
    return CPU_SIZE if jax.default_backend() == "cpu" else SIZE


def product(dtype: str) -> Callable[[], Any]:
    """Return a function that multiplies two large square matrices on one device."""
    a, b = jax.random.uniform(jax.random.key(0), (2, size(), size())).astype(dtype)
    multiply = jax.jit(jnp.matmul)
    return lambda: multiply(a, b)
