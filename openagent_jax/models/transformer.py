"""A Llama decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

It computes what Hugging Face's `LlamaForCausalLM` and its relatives with biases (Qwen2)
or with normalised queries and keys (Qwen3) compute, so that weights can be exchanged
(`models.hf`). Parameters are a plain dict. Weights have the shape `[in, out]` and are
used as `x @ weight`; those of all layers are stacked on a leading axis:

    {"embed": [V D], "layers": {"q": [L D HK], ...}, "norm": [D], "head": [D V]}

Training scans over the layers, so that compilation time does not grow with their
number. Decoding unrolls the layers, so that a step reads each weight in place.
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

# What the backward pass keeps of a layer, besides its input, if not all that it needs:
# nothing, or the products with its weights. The attention scores, whose number grows
# with the square of the length, are computed again in both cases.
REMAT = {
    "full": None,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the decoder, and the options in which architectures differ.

    Attributes:
      vocab_size: V, the number of tokens.
      width: D, the size of the hidden states.
      num_layers: L, the number of layers.
      num_heads: H, the number of query heads.
      num_kv_heads: the number of key and value heads; must divide `num_heads`.
      head_size: K, the size of a head; must be even.
      mlp_width: the size of the hidden layer of the MLP.
      rope_theta: the base of the frequencies of RoPE.
      norm_eps: the epsilon of RMSNorm.
      tied: whether the embedding also serves as the output head.
      max_positions: written to config.json; not a limit here.
      dtype: the dtype of the activations, "float32" or "bfloat16".
      remat: what the backward pass computes again: "none", or see `REMAT`.
      param_dtype: the dtype of the parameters, "float32" or "bfloat16".
      qkv_bias: whether queries, keys and values have biases (Qwen2).
      o_bias: whether the output projection of attention has a bias.
      qk_norm: whether RMSNorm is applied to each head's queries and keys (Qwen3).
      rope_scaling: how the frequencies of RoPE are lowered, for long contexts.
      lora: settings of the adapters that the parameters may have.

    Raises:
      ValueError: sizes do not fit together, or a dtype is not supported.
    """

    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    mlp_width: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied: bool = True
    max_positions: int = 8192
    dtype: str = "float32"
    remat: str = "dots"
    param_dtype: str = "float32"
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    rope_scaling: rope.Scaling | None = None
    lora: Lora | None = None

    def __post_init__(self):
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads={self.num_heads} is not a multiple of "
                f"num_kv_heads={self.num_kv_heads}"
            )
        if self.head_size % 2:
            raise ValueError(f"head_size={self.head_size} must be even for RoPE")
        if self.remat not in (*REMAT, "none"):
            known = ", ".join(f'"{name}"' for name in REMAT)
            raise ValueError(f'remat="{self.remat}" is not one of {known}, "none"')
        for name in ("dtype", "param_dtype"):
            value = getattr(self, name)
            if value not in ("float32", "bfloat16"):
                raise ValueError(f'{name}="{value}" is not "float32" or "bfloat16"')


def make_policy(config: ModelConfig) -> Policy:
    """Return the decoder as pure functions of its parameters (see `types.Policy`).

    >>> config = ModelConfig(
    ...     vocab_size=11,
    ...     width=8,
    ...     num_layers=1,
    ...     num_heads=2,
    ...     num_kv_heads=1,
    ...     head_size=4,
    ...     mlp_width=16,
    ... )
    >>> policy = make_policy(config)
    >>> params = policy.init(jax.random.key(0))
    >>> tokens = jnp.array([[3, 1, 4]])
    >>> positions, segments = jnp.array([[0, 1, 2]]), jnp.array([[1, 1, 1]])
    >>> policy.head(params, policy.hidden(params, tokens, positions, segments)).shape
    (1, 3, 11)
    """
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
        """Return the stacked weights and adapters of all layers."""
        if lora.LORA not in params:
            return params["layers"], {}
        if config.lora is None:
            raise ValueError(
                "the parameters have adapters, but their config has no lora settings"
            )
        return params["layers"], params[lora.LORA]["layers"]

    def hidden(
        params: Params,
        tokens: Int[Array, "B S"],
        positions: Int[Array, "B S"],
        segments: Int[Array, "B S"],
    ) -> Float[Array, "B S D"]:
        rotation = _rotation(config, positions)

        def layer(x, layer_params):
            weights, adapters = layer_params

            def attend(q, k, v):
                return layers.causal_attention(q, k, v, segments), ()

            x, _ = block.apply({"params": weights}, x, rotation, attend, adapters)
            return x, None

        if config.remat != "none":
            keeps = REMAT[config.remat]
            layer = jax.checkpoint(layer, prevent_cse=False, policy=keeps)
        x = params["embed"].astype(dtype)[tokens]
        x, _ = lax.scan(layer, x, stacked(params))
        return layers.rms_norm(x, params["norm"], config.norm_eps)

    def init_cache(num_rows: int, blocks: Sequence[int]) -> Cache:
        heads, size = config.num_kv_heads, config.head_size

        def zeros(*shape):
            return tuple(
                jnp.zeros((num_rows, heads, *shape), dtype)
                for _ in range(config.num_layers)
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
        # All S tokens are written, including padding. Padding comes after the real
        # tokens of a row, in slots that no real query attends to and that the next call
        # overwrites.
        starts = list(itertools.accumulate(cache.block_sizes, initial=0))
        slots = cache.length[:, None] + jnp.arange(tokens.shape[1])[None]
        mask = jnp.arange(starts[-1])[None, None] <= slots[..., None]
        rotation = _rotation(config, slots)
        x = params["embed"].astype(dtype)[tokens]
        keys, values = [], []
        for i in range(config.num_layers):

            def attend(q, k, v, i=i):
                k, v = layers.as_keys(k), layers.as_values(v)
                ks, vs = (
                    [
                        layers.write_slots(block[i], new, slots - start, axis)
                        for block, start in zip(blocks, starts, strict=False)
                    ]
                    for blocks, new, axis in ((cache.keys, k, 3), (cache.values, v, 2))
                )
                return layers.attention(q, ks, vs, mask), (ks, vs)

            weights, adapters = jax.tree.map(
                lambda w, i=i: w[i],
                stacked(params),
                is_leaf=lambda w: isinstance(w, list),  # already unstacked
            )
            x, (k, v) = block.apply({"params": weights}, x, rotation, attend, adapters)
            keys.append(k)
            values.append(v)
        x = layers.rms_norm(x, params["norm"], config.norm_eps)
        keys, values = (tuple(zip(*x, strict=True)) for x in (keys, values))
        return x, Cache(keys, values, cache.length + num_new)

    def head(
        params: Params, hidden: Float[Array, "*batch D"]
    ) -> Float[Array, "*batch V"]:
        weight = params["embed"].T if config.tied else params["head"]
        return layers.matmul(hidden, weight.astype(dtype), jnp.float32)

    def unstack_layers(params: Params) -> Params:
        unstacked = {"layers": jax.tree.map(list, params["layers"])}
        if lora.LORA in params:
            adapters = params[lora.LORA]["layers"]
            unstacked[lora.LORA] = {"layers": jax.tree.map(list, adapters)}
        return {**params, **unstacked}

    return Policy(init, hidden, init_cache, extend, head, unstack_layers)


class Block(nn.Module):
    """One layer of the decoder.

    The attention function is an argument, so that training and decoding share the
    layer.
    """

    config: ModelConfig

    def setup(self):
        c = self.config
        heads, kv_heads = c.num_heads * c.head_size, c.num_kv_heads * c.head_size
        inner = nn.initializers.truncated_normal(0.02)
        # Every layer adds the outputs of two such maps to the residual stream. Their
        # smaller scale keeps its variance from growing with the number of layers.
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

        def optional(enabled, name, init, size):
            return self.param(name, init, (size,)) if enabled else None

        zeros = nn.initializers.zeros
        self.q_bias = optional(c.qkv_bias, "q_bias", zeros, heads)
        self.k_bias = optional(c.qkv_bias, "k_bias", zeros, kv_heads)
        self.v_bias = optional(c.qkv_bias, "v_bias", zeros, kv_heads)
        self.o_bias = optional(c.o_bias, "o_bias", zeros, c.width)
        self.q_norm = optional(c.qk_norm, "q_norm", ones, c.head_size)
        self.k_norm = optional(c.qk_norm, "k_norm", ones, c.head_size)

    def __call__(self, x, rotation, attend, adapters=()):
        """Apply the layer.

        Args:
          x: [B S D] hidden states.
          rotation: the RoPE rotation of the tokens.
          attend: `attend(q, k, v) -> (heads, extra)`, where `q` and `heads` are
            [B S H K].
          adapters: the LoRA adapters of this layer, by name.

        Returns:
          The hidden states after the layer, and `extra`.
        """
        c = self.config

        def project(x, name):
            y = layers.matmul(x, getattr(self, name).astype(x.dtype), x.dtype)
            bias = getattr(self, f"{name}_bias", None)
            if bias is not None:
                y = y + bias.astype(x.dtype)[None, None]
            if c.lora and name in adapters:
                y = y + lora.adapter_output(c.lora, x, adapters[name])
            return y

        def split(x):
            return x.reshape(*x.shape[:-1], -1, c.head_size)

        def normalise_and_rotate(x, scale):
            x = x if scale is None else layers.rms_norm(x, scale, c.norm_eps)
            return rope.rotate(x, rotation)

        y = layers.rms_norm(x, self.attention_norm, c.norm_eps)
        q = normalise_and_rotate(split(project(y, "q")), self.q_norm)
        k = normalise_and_rotate(split(project(y, "k")), self.k_norm)
        out, extra = attend(q, k, split(project(y, "v")))
        x = x + project(out.reshape(*x.shape[:-1], -1), "o")
        y = layers.rms_norm(x, self.mlp_norm, c.norm_eps)
        y = jax.nn.silu(project(y, "gate")) * project(y, "up")
        return x + project(y, "down"), extra


def shapes(config: ModelConfig) -> Params:
    """Return the shapes and dtypes of a model's parameters, without adapters."""
    return jax.eval_shape(make_policy(config).init, jax.random.key(0))


def logical_axes(config: ModelConfig) -> Params:
    """Return the tree of the parameters with a tuple of axis names for each array.

    The names are fields of `sharding.Rules`; an axis named None is never sharded.
    """
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
