"""Pretrained models: the time to load them, and the speed of greedy decoding."""

import tempfile
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from launch.benchmarks.timing import Medians
from launch.common import backbones, errors, model_folders
from launch.common.config import Config
from launch.common.model_loading import Backbone
from openagent_jax.interop import gguf
from openagent_jax.models import sampling

PROMPT_TOKENS, NEW_TOKENS = 42, 64  # for `decode`


def load(c: Config, model: Backbone, medians: Medians) -> dict[str, float]:
    """Return the seconds to load the weights, and to convert them from a GGUF file."""
    (seconds,) = medians(lambda: backbones.first_params(c, model))
    figures = {"seconds": seconds}
    if file := model_folders.gguf_file(c.init_from, "init_from"):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            gguf.folder(file, folder)
            figures["gguf_seconds"] = time.perf_counter() - start
    return figures


def decode(c: Config, model: Backbone, medians: Medians) -> dict[str, float]:
    """Compare tokens per second with `generate` of transformers, for 1 and 16 rows.

    Both get the same prompt. The share of tokens that agree is reported too.
    """
    from openagent_jax.interop import torch_peer

    policy, params = model.policy, backbones.first_params(c, model)
    with errors.needs_extra("--parts=decode", "hf,torch"):
        rival = torch_peer.Generator(model.folder)
    prompt = np.random.default_rng(0).integers(100, 1000, PROMPT_TOKENS)

    @partial(jax.jit, static_argnums=1)
    def ours(params, rows):
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
        return jax.lax.scan(token, start, length=NEW_TOKENS)[1].T

    def theirs(rows):
        return rival(np.tile(prompt, (rows, 1)), NEW_TOKENS)

    figures = {}
    for rows in (1, 16):
        same = np.mean(np.asarray(ours(params, rows)) == theirs(rows))
        seconds, other = medians(partial(ours, params, rows), partial(theirs, rows))
        figures |= {
            f"tokens_per_s_{rows}": rows * NEW_TOKENS / seconds,
            f"generate_tokens_per_s_{rows}": rows * NEW_TOKENS / other,
            f"ratio_{rows}": other / seconds,
            f"same_tokens_{rows}": float(same),
        }
    return figures
