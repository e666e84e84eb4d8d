"""A Llama-shaped decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

The semantics are those of Hugging Face `LlamaForCausalLM` and of its relatives with
biases (Qwen2) or with norms of queries and keys (Qwen3), so that weights can be
exchanged (`models.hf`). Parameters are a plain dict: per-layer weights are stacked on
a leading axis and `[in, out]`, so `x @ weight`:

    {"embed": [V D], "layers": {"q": [L D HK], ...}, "norm": [D], "head": [D V]}

Training scans over the layers: it compiles in a time that does not depend on their
number. Decoding unrolls them: a step then reads each weight in place.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from openagent_jax.models import layers, lora, rope
from openagent_jax.models.lora import Lora
from openagent_jax.types import Cache, Params, Policy


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the decoder, and what some families have and others have not."""

    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    mlp_width: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied: bool = True  # the embedding is the output head too
    max_positions: int = 8192  # not a limit here; written to config.json
    dtype: str = "float32"  # of the activations: "float32" or "bfloat16"
    remat: bool = True  # recompute each layer in the backward pass
    param_dtype: str = "float32"  # in which parameters are held
    qkv_bias: bool = False  # Qwen2 has it
    o_bias: bool = False
    qk_norm: bool = False  # RMSNorm of each head's query and key; Qwen3 has it
    rope_scaling: rope.Scaling | None = None
    lora: Lora | None = None  # of the adapters that parameters may have

    def __post_init__(self):
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads={self.num_heads} is not a multiple of "
                f"num_kv_heads={self.num_kv_heads}"
            )
        if self.head_size % 2:
            raise ValueError(f"head_size={self.head_size} must be even for RoPE")
        for name in ("dtype", "param_dtype"):
            value = getattr(self, name)
            if value not in ("float32", "bfloat16"):
                raise ValueError(f'{name}="{value}" is not "float32" or "bfloat16"')


def make_policy(config: ModelConfig) -> Policy:
    """The decoder as pure functions of its parameters."""
    block = Block(config)
    dtype = jnp.dtype(config.dtype)

    def init(key: Array) -> Params:
        embed_key, layers_key, head_key = jax.random.split(key, 3)
        x = jnp.zeros((1, 1, config.width), dtype)
        rotation = _rotation(config, jnp.zeros((1, 1), jnp.int32))

        def init_layer(key):
            return block.init(key, x, rotation, lambda q, k, v: (q, ()))["params"]

        normal = nn.initializers.truncated_normal(0.02)
        params = {
            "embed": normal(embed_key, (config.vocab_size, config.width)),
            "layers": jax.vmap(init_layer)(
                jax.random.split(layers_key, config.num_layers)
            ),
            "norm": jnp.ones(config.width),
        }
        if not config.tied:
            params["head"] = normal(head_key, (config.width, config.vocab_size))
        return jax.tree.map(lambda x: x.astype(config.param_dtype), params)

    def stacked(params: Params) -> tuple[Params, Params]:
        """Weights and adapters of all layers."""
        if lora.LORA not in params:
            return params["layers"], {}
        if config.lora is None:
            raise ValueError("the parameters have adapters, their config has none")
        return params["layers"], params[lora.LORA]["layers"]

    def hidden(
        params: Params,
        tokens: Int[Array, "B S"],
        positions: Int[Array, "B S"],
        segments: Int[Array, "B S"],
    ) -> Float[Array, "B S D"]:
        rotation = _rotation(config, positions)

        def layer(x, of_layer):
            weights, adapters = of_layer

            def attend(q, k, v):
                return layers.causal_attention(q, k, v, segments), ()

            x, _ = block.apply({"params": weights}, x, rotation, attend, adapters)
            return x, None

        if config.remat:
            layer = jax.checkpoint(layer, prevent_cse=False)
        x = params["embed"].astype(dtype)[tokens]
        x, _ = lax.scan(layer, x, stacked(params))
        return layers.rms_norm(x, params["norm"], config.norm_eps)

    def init_cache(num_rows: int, blocks: Sequence[int]) -> Cache:
        heads, size, every = config.num_kv_heads, config.head_size, config.num_layers

        def zeros(*shape):
            return tuple(
                jnp.zeros((num_rows, heads, *shape), dtype) for _ in range(every)
            )

        return Cache(
            keys=tuple(zeros(size, num_slots) for num_slots in blocks),
            values=tuple(zeros(num_slots, size) for num_slots in blocks),
            length=jnp.zeros(num_rows, jnp.int32),
        )

    def extend(
        params: Params,
        cache: Cache,
        tokens: Int[Array, "B S"],
        num_new: Int[Array, "B"],
    ) -> tuple[Float[Array, "B S D"], Cache]:
        # All S tokens are written, those that do not count behind those that do, where
        # no query looks and the next chunk is written.
        starts = list(itertools.accumulate(cache.block_sizes, initial=0))
        columns, before = jnp.arange(tokens.shape[1])[None], []
        slots = cache.num_used[:, None] + columns
        mask = jnp.arange(starts[-1])[None, None] <= slots[..., None]
        if prefix := cache.prefix:
            before = [prefix]
            read = jnp.arange(prefix.keys[0].shape[-1])[None] < prefix.length[:, None]
            read = jnp.broadcast_to(read[:, None], (*slots.shape, read.shape[1]))
            mask = jnp.concatenate([read, mask], axis=-1)
        rotation = _rotation(config, cache.length[:, None] + columns)
        x = params["embed"].astype(dtype)[tokens]
        keys, values = [], []
        for i in range(config.num_layers):

            def attend(q, k, v, i=i):
                k, v = layers.as_keys(k), layers.as_values(v)
                ks, vs = (
                    [
                        layers.put(part[i], new, slots - start, axis)
                        for part, start in zip(blocks, starts, strict=False)
                    ]
                    for blocks, new, axis in ((cache.keys, k, 3), (cache.values, v, 2))
                )
                all_k = [x.keys[i] for x in before] + ks
                all_v = [x.values[i] for x in before] + vs
                return layers.attention(q, all_k, all_v, mask), (ks, vs)

            weights, adapters = jax.tree.map(
                lambda w, i=i: w[i],
                stacked(params),
                is_leaf=lambda w: isinstance(w, list),  # they are apart already
            )
            x, (k, v) = block.apply({"params": weights}, x, rotation, attend, adapters)
            keys.append(k)
            values.append(v)
        x = layers.rms_norm(x, params["norm"], config.norm_eps)
        keys, values = (tuple(zip(*x, strict=True)) for x in (keys, values))
        return x, Cache(keys, values, cache.length + num_new, prefix)

    def head(
        params: Params, hidden: Float[Array, "*batch D"]
    ) -> Float[Array, "*batch V"]:
        weight = params["embed"].T if config.tied else params["head"]
        return layers.matmul(hidden, weight.astype(dtype), jnp.float32)

    def apart(params: Params) -> Params:
        """Each stack of layers becomes a list of them."""
        parts = {"layers": jax.tree.map(list, params["layers"])}
        if lora.LORA in params:
            adapters = params[lora.LORA]["layers"]
            parts[lora.LORA] = {"layers": jax.tree.map(list, adapters)}
        return {**params, **parts}

    return Policy(init, hidden, init_cache, extend, head, apart)


class Block(nn.Module):
    """One layer. `attend` is an argument, so training and decoding share it."""

    config: ModelConfig

    def setup(self):
        c = self.config
        heads, kv_heads = c.num_heads * c.head_size, c.num_kv_heads * c.head_size
        inner = nn.initializers.truncated_normal(0.02)
        # Two of these are added to the stream by each layer: keep its variance.
        outer = nn.initializers.truncated_normal(0.02 / (2 * c.num_layers) ** 0.5)
        ones = nn.initializers.ones
        self.attention_norm = self.param("attention_norm", ones, (c.width,))
        self.q = self.param("q", inner, (c.width, heads))
        self.k = self.param("k", inner, (c.width, kv_heads))
        self.v = self.param("v", inner, (c.width, kv_heads))
        self.o = self.param("o", outer, (heads, c.width))
        self.mlp_norm = self.param("mlp_norm", ones, (c.width,))
        self.gate = self.param("gate", inner, (c.width, c.mlp_width))
        self.up = self.param("up", inner, (c.width, c.mlp_width))
        self.down = self.param("down", outer, (c.mlp_width, c.width))

        def perhaps(asked, name, start, size):
            return self.param(name, start, (size,)) if asked else None

        zeros = nn.initializers.zeros
        self.q_bias = perhaps(c.qkv_bias, "q_bias", zeros, heads)
        self.k_bias = perhaps(c.qkv_bias, "k_bias", zeros, kv_heads)
        self.v_bias = perhaps(c.qkv_bias, "v_bias", zeros, kv_heads)
        self.o_bias = perhaps(c.o_bias, "o_bias", zeros, c.width)
        self.q_norm = perhaps(c.qk_norm, "q_norm", ones, c.head_size)
        self.k_norm = perhaps(c.qk_norm, "k_norm", ones, c.head_size)

    def __call__(self, x, rotation, attend, adapters=()):
        """`attend(q, k, v) -> (heads, extra)`; returns `(x, extra)`."""
        c = self.config

        def project(x, name):
            y = layers.matmul(x, getattr(self, name).astype(x.dtype), x.dtype)
            bias = getattr(self, f"{name}_bias", None)
            if bias is not None:
                y = y + bias.astype(x.dtype)[None, None]
            if c.lora and name in adapters:
                y = y + lora.added(c.lora, x, adapters[name])
            return y

        def split(x):
            return x.reshape(*x.shape[:-1], -1, c.head_size)

        def turn(x, scale):
            x = x if scale is None else layers.rms_norm(x, scale, c.norm_eps)
            return rope.rotate(x, rotation)

        y = layers.rms_norm(x, self.attention_norm, c.norm_eps)
        q = turn(split(project(y, "q")), self.q_norm)
        k = turn(split(project(y, "k")), self.k_norm)
        out, extra = attend(q, k, split(project(y, "v")))
        x = x + project(out.reshape(*x.shape[:-1], -1), "o")
        y = layers.rms_norm(x, self.mlp_norm, c.norm_eps)
        y = jax.nn.silu(project(y, "gate")) * project(y, "up")
        return x + project(y, "down"), extra


def logical_axes(config: ModelConfig) -> Params:
    """The parameters' tree with a tuple of axis names for each array."""
    axes = {
        "embed": ("vocab", "embed"),
        "layers": {
            "attention_norm": ("layers", None),
            "q": ("layers", "embed", "heads"),
            "k": ("layers", "embed", "kv_heads"),
            "v": ("layers", "embed", "kv_heads"),
            "o": ("layers", "heads", "embed"),
            "mlp_norm": ("layers", None),
            "gate": ("layers", "embed", "mlp"),
            "up": ("layers", "embed", "mlp"),
            "down": ("layers", "mlp", "embed"),
        },
        "norm": (None,),
    }
    if config.qkv_bias:
        axes["layers"]["q_bias"] = ("layers", "heads")
        axes["layers"]["k_bias"] = axes["layers"]["v_bias"] = ("layers", "kv_heads")
    if config.o_bias:
        axes["layers"]["o_bias"] = ("layers", None)
    if config.qk_norm:
        axes["layers"]["q_norm"] = axes["layers"]["k_norm"] = ("layers", None)
    if not config.tied:
        axes["head"] = ("embed", "vocab")
    return axes | lora.logical_axes(config.lora, axes)


def _rotation(config, positions):
    theta, scaling = config.rope_theta, config.rope_scaling
    return rope.rotation(positions, config.head_size, theta, scaling)
