"""A start from which a small decoder learns to copy and to match early.

Copying ("after this word comes what came after it before") takes two layers: one
writes into each token which token stood before it, the next looks that up (Olsson et
al., arXiv 2209.11895). The first half is the same for every task, so it can be given
at the start: here some heads of every layer attend to the previous token, or the one
before it, and pass on what they see. Only the initial weights differ; the model stays
a plain Llama, and is free to unlearn them.

A head without biases needs something constant to attend by: one channel of the
embedding is set to the same value for all tokens. With query and key reading that
channel alone, their product depends on the distance only, by rotary position: it is
largest at a distance of one if the query is turned back by one position.
"""

import jax
import jax.numpy as jnp

from openagent_jax.models.transformer import ModelConfig
from openagent_jax.types import Params

EMBEDDING_SCALE = 0.15  # of the other channels
CONSTANT = 0.6  # of channel 0
NUM_FREQUENCIES = 4  # the fastest ones tell neighbours apart
SHARPNESS = 10.0  # of the attention scores, for each frequency
WRITE_SCALE = 0.15  # of what is passed on


def look_back(
    config: ModelConfig, params: Params, key: jax.Array, num_heads: int
) -> Params:
    """The parameters with `num_heads` previous-token heads in every layer.

    The first looks back one token, the second two, and so on.

    Raises:
      ValueError: the model has fewer heads, or they would share keys with others.
    """
    if not 0 <= num_heads <= config.num_heads:
        raise ValueError(
            f"model.look_back_heads={num_heads} is not between 0 and "
            f"model.num_heads={config.num_heads}"
        )
    if num_heads == 0:
        return params
    group = config.num_heads // config.num_kv_heads
    if num_heads % group:
        raise ValueError(
            f"model.look_back_heads={num_heads} is not a multiple of {group}, the "
            "number of heads that share their keys"
        )
    width, size, num = config.width, config.head_size, NUM_FREQUENCIES
    embed_key, value_key, out_key = jax.random.split(key, 3)
    embed = EMBEDDING_SCALE * jax.random.normal(embed_key, params["embed"].shape)
    embed = embed.at[:, 0].set(CONSTANT)
    # What the constant channel is after normalisation.
    constant = CONSTANT / jnp.sqrt(jnp.mean(embed**2))

    turn = config.rope_theta ** (-jnp.arange(0, size, 2) / size)[:num]
    amplitude = jnp.sqrt(SHARPNESS * size**0.5) / constant
    look = jnp.zeros(size).at[:num].set(amplitude)

    def query(distance):
        row = jnp.zeros(size).at[:num].set(amplitude * jnp.cos(distance * turn))
        return row.at[size // 2 : size // 2 + num].set(
            -amplitude * jnp.sin(distance * turn)
        )

    def reads_constant(rows):
        """A weight whose row 0 is the rows, end to end."""
        row = jnp.concatenate(rows)
        return jnp.zeros((width, row.shape[0])).at[0].set(row)

    num_shared = num_heads // group
    queries = reads_constant([query(1 + h) for h in range(num_heads)])
    keys = reads_constant([look] * num_shared)
    orthogonal, layers = jax.nn.initializers.orthogonal(), dict(params["layers"])
    for name, added in (("q", queries), ("k", keys)):
        end = added.shape[1]
        quiet = layers[name].at[..., :end].multiply(0.1)
        layers[name] = quiet.at[..., :end].add(added)
    shape = (config.num_layers, num_shared, width, size)
    values = orthogonal(value_key, shape).at[:, :, 0].set(0).swapaxes(1, 2)
    values = values.reshape(config.num_layers, width, -1)
    shape = (config.num_layers, num_heads, size, width)
    outs = WRITE_SCALE * orthogonal(out_key, shape).at[..., 0].set(0)
    outs = outs.reshape(config.num_layers, -1, width)
    layers["v"] = layers["v"].at[..., : values.shape[2]].set(values)
    layers["o"] = layers["o"].at[:, : outs.shape[1]].set(outs)
    return {**params, "embed": embed, "layers": layers}
