"""Pretrained models: how soon they are there, and how fast they speak."""

import tempfile
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from launch import backbones, settings
from openagent_jax import sampling
from openagent_jax.interop import gguf

PROMPT_TOKENS, NEW_TOKENS = 42, 64  # of `decode`


def load(c, model, medians: Callable) -> dict[str, float]:
    """Weights as they come: from a folder, or through one from a GGUF file."""
    (seconds,) = medians(lambda: backbones.first_params(c, model))
    figures = {"seconds": seconds}
    if file := backbones.gguf_file(c.init_from, "init_from"):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            gguf.folder(file, folder)
            figures["gguf_seconds"] = time.perf_counter() - start
    return figures


def decode(c, model, medians: Callable) -> dict[str, float]:
    """Both are given the same prompt, and the same number of rows and of tokens."""
    from openagent_jax.interop import torch_peer

    policy, params = model.policy, backbones.first_params(c, model)
    with settings.needs_extra("--parts=decode", "hf,torch"):
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
