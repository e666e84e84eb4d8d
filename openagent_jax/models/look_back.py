"""A start from which a small decoder learns to copy and to match early.

Copying ("after this word comes what came after it before") takes two layers: one
writes into each token which token stood before it, the next looks that up (Olsson et
al., arXiv 2209.11895). The first half is the same for every task, so it can be given
at the start: here some heads of every layer attend to the previous token and pass on
what they see. Only the initial weights differ; the model stays a plain Llama, and is
free to unlearn them.

A head without biases needs something constant to attend by: one channel of the
embedding is set to the same value for all tokens. With query and key reading that
channel alone, their product depends on the distance only, by rotary position: it is
largest at a distance of one if the query is turned back by one position.
"""

import jax
import jax.numpy as jnp

from openagent_jax.models.transformer import ModelConfig
from openagent_jax.types import Params

EMBEDDING_SCALE = 0.05  # of the other channels
CONSTANT = 0.2  # of channel 0
NUM_FREQUENCIES = 4  # the fastest ones tell neighbours apart
SHARPNESS = 10.0  # of the attention scores, for each frequency
WRITE_SCALE = 0.05  # of what is passed on


def look_back(
    config: ModelConfig, params: Params, key: jax.Array, num_heads: int
) -> Params:
    """The parameters with `num_heads` previous-token heads in every layer.

    Raises:
      ValueError: the model has fewer heads, or shares keys between them.
    """
    if not 0 <= num_heads <= config.num_heads:
        raise ValueError(
            f"model.look_back_heads={num_heads} is not between 0 and "
            f"model.num_heads={config.num_heads}"
        )
    if num_heads == 0:
        return params
    if config.num_kv_heads != config.num_heads:
        raise ValueError("model.look_back_heads needs num_kv_heads equal to num_heads")
    width, size, num = config.width, config.head_size, NUM_FREQUENCIES
    embed_key, value_key, out_key = jax.random.split(key, 3)
    embed = EMBEDDING_SCALE * jax.random.normal(embed_key, params["embed"].shape)
    embed = embed.at[:, 0].set(CONSTANT)
    # What the constant channel is after normalisation.
    constant = CONSTANT / jnp.sqrt(jnp.mean(embed**2))

    turn = config.rope_theta ** (-jnp.arange(0, size, 2) / size)[:num]
    amplitude = jnp.sqrt(SHARPNESS * size**0.5) / constant
    query, look = jnp.zeros(size), jnp.zeros(size).at[:num].set(amplitude)
    query = query.at[:num].set(amplitude * jnp.cos(turn))
    query = query.at[size // 2 : size // 2 + num].set(-amplitude * jnp.sin(turn))

    def heads(vector):
        """A weight whose row 0 is the vector, once for each head."""
        row = jnp.tile(vector, num_heads)
        return jnp.zeros((width, num_heads * size)).at[0].set(row)

    shape = (config.num_layers, num_heads)
    orthogonal = jax.nn.initializers.orthogonal()
    values = orthogonal(value_key, (*shape, width, size)).at[:, :, 0].set(0)
    outs = orthogonal(out_key, (*shape, size, width)).at[..., 0].set(0)
    end = num_heads * size
    layers = dict(params["layers"])
    for name, vector in (("q", query), ("k", look)):
        quiet = layers[name].at[..., :end].multiply(0.1)
        layers[name] = quiet.at[..., :end].add(heads(vector))
    values = values.swapaxes(1, 2).reshape(config.num_layers, width, end)
    outs = WRITE_SCALE * outs.reshape(config.num_layers, end, width)
    layers["v"] = layers["v"].at[..., :end].set(values)
    layers["o"] = layers["o"].at[:, :end].set(outs)
    return {**params, "embed": embed, "layers": layers}
