"""Models: the time to load and to save them, and the speed of greedy decoding."""

import itertools
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from launch.benchmarks.timing import Timer
from launch.common import backbones, compiled_step, model_folders
from launch.common.config import Config
from launch.common.model_loading import Backbone
from launch.compilation import chips
from openagent_jax import train_step
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.environments.world import World
from openagent_jax.interop import gguf
from openagent_jax.models import sampling

PROMPT_TOKENS, NEW_TOKENS = 128, 64  # for `decode`
ROWS = 1, 16, 64  # likewise
READ_BYTES = 2**29  # of the weights of a product with a vector, which are read once


def load(c: Config, model: Backbone, timer: Timer) -> dict[str, float]:
    """Return the seconds to load the weights, and to convert them from a GGUF file."""
    (seconds,) = timer(lambda: backbones.first_params(c, model))
    figures = {"seconds": seconds}
    if file := model_folders.gguf_file(c.init_from, "init_from"):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            gguf.folder(file, folder)
            figures["gguf_seconds"] = time.perf_counter() - start
    return figures


def checkpoint(
    c: Config, model: Backbone, source: World, timer: Timer
) -> dict[str, float]:
    """Return the seconds to save a training state to the disk, and to restore it.

    Both include the digests of its arrays.
    """
    _, state = compiled_step.trainer(c, model, source)
    state = train_step.without_frozen(state)
    size = sum(x.nbytes for x in jax.tree.leaves(state) if hasattr(x, "nbytes"))
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()
        checkpoints = Checkpoints(Path(folder) / "checkpoints", keep_last=1)

        def save():
            checkpoints.save(next(numbers), state, metrics={}, meta={})
            checkpoints.wait()

        saved, restored = timer(save, lambda: checkpoints.restore(state)[0])
        checkpoints.close()
    return {"save_s": saved, "restore_s": restored, "gb": size / 1e9}


def decode(c: Config, model: Backbone, timer: Timer) -> dict[str, float]:
    """Return tokens per second of prefilling and of greedy decoding, by rows.

    Beside them are those of `generate` of transformers with the same prompts, if it is
    installed and the model is in float32, with the share of tokens that agree. To
    decode a token, a device reads all weights and the keys and values of every row, so
    the rate at which it reads weights limits the speed; `read_share` is the share of
    that rate. On a CPU the rate is that of a product with a vector, measured here; for
    other devices it is what the vendor states, if that is known.
    """
    policy = model.policy
    params = jax.tree.map(jnp.asarray, backbones.first_params(c, model))
    width = jnp.dtype(c.model.dtype).itemsize  # weights may be cast to it just once
    sizes = (x.size * min(x.itemsize, width) for x in jax.tree.leaves(params))
    weights = sum(sizes)
    if not model.config.tied:  # of the embedding, a row is read for each token
        weights -= params["embed"].size * min(params["embed"].itemsize, width)
    rival, reason = _generator(c, model)
    if reason:
        print(f"decode  not compared with transformers: {reason}")
    bandwidth = _bandwidth(timer)
    figures = {"read_gb_per_s": bandwidth / 1e9}
    prompt = np.random.default_rng(0).integers(100, 1000, PROMPT_TOKENS)

    @partial(jax.jit, static_argnums=(1, 2))
    def ours(params, rows, num_new):
        """Decode `num_new` tokens, of which the prompt gives the first."""
        tokens = jnp.broadcast_to(jnp.asarray(prompt, jnp.int32), (rows, len(prompt)))
        cache = policy.init_cache(rows, [len(prompt) + NEW_TOKENS])
        each = jnp.full(rows, len(prompt))
        hidden, cache = policy.extend(params, cache, tokens, each)

        def token(carry, _):
            cache, logits = carry
            tokens = sampling.greedy(logits)[0]
            one = jnp.ones(rows, jnp.int32)
            hidden, cache = policy.extend(params, cache, tokens[:, None], one)
            return (cache, policy.head(params, hidden[:, 0])), tokens

        start = cache, policy.head(params, hidden[:, -1])
        (_, logits), tokens = jax.lax.scan(token, start, length=num_new - 1)
        last = sampling.greedy(logits)[0]
        return jnp.concatenate([tokens.T, last[:, None]], axis=1)

    unstacked = jax.jit(policy.unstack_layers)(params)
    for rows in ROWS:
        runs = [partial(ours, unstacked, rows, num) for num in (1, NEW_TOKENS)]
        if rival:
            prompts = np.tile(prompt, (rows, 1))
            runs += [partial(rival, prompts, num) for num in (1, NEW_TOKENS)]
            same = np.mean(np.asarray(runs[1]()) == runs[3]())
            figures[f"same_tokens_{rows}"] = float(same)
        first, all_, *others = timer(*runs)
        num_new = rows * (NEW_TOKENS - 1)
        caches = policy.init_cache(rows, [PROMPT_TOKENS + NEW_TOKENS])
        read = weights + sum(x.nbytes for x in jax.tree.leaves(caches))
        seconds = (all_ - first) / (NEW_TOKENS - 1)
        figures |= {
            f"prefill_tokens_per_s_{rows}": rows * PROMPT_TOKENS / first,
            f"tokens_per_s_{rows}": num_new / (all_ - first),
            f"read_share_{rows}": read / seconds / bandwidth,
        }
        if others:
            first, all_ = others
            figures |= {
                f"generate_prefill_tokens_per_s_{rows}": rows * PROMPT_TOKENS / first,
                f"generate_tokens_per_s_{rows}": num_new / (all_ - first),
            }
    return figures


def _generator(c: Config, model: Backbone) -> tuple[Any, str]:
    """Return the rival, or why there is none."""
    from openagent_jax.interop import torch_peer

    if c.model.dtype != "float32":
        return None, f'model.dtype="{c.model.dtype}" is not "float32"'
    if jax.default_backend() != "cpu":
        return None, "it would run on the CPU"
    if c.init_from == "random" or not [*model.folder.glob("model*.safetensors")]:
        return None, f'init_from="{c.init_from}" is not a folder with weights'
    try:
        return torch_peer.Generator(model.folder), ""
    except ImportError as error:
        return None, f'{error}: pip install -e ".[hf,torch]"'


def _bandwidth(timer: Timer) -> float:
    """Return the bytes per second at which the first device can read weights."""
    if chip := chips.of_device(jax.devices()[0].device_kind):
        return chip.bandwidth
    side = round((READ_BYTES / 4) ** 0.5)
    matrix, vector = jnp.ones((side, side)), jnp.ones((1, side))
    multiply = jax.jit(jnp.matmul)
    (seconds,) = timer(lambda: multiply(vector, matrix))
    return matrix.nbytes / seconds
