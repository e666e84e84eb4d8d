"""Previous-token heads at initialisation, so that a small decoder learns to copy early.

Copying (this word is followed by whatever followed it earlier) takes two attention
heads in different layers. A previous-token head writes into each position which token
came before it, and an induction head looks that up (Olsson et al., arXiv 2209.11895).
The first head is the same for every task, so it can be built into the initial weights:
here some heads of every layer attend to the previous token, or to the one before it,
and copy its content. Only the initial weights differ; the model stays a plain Llama,
and training is free to change these heads.

Without biases, a head needs a constant input from which to compute queries and keys, so
one channel of the embedding has the same value for all tokens. If queries and keys read
this channel alone, their product depends only on the distance between the tokens,
through the rotary position embedding. It is largest at a distance of one if the query
is rotated back by one position.
"""

import jax
import jax.numpy as jnp

from openagent_jax.models.transformer import ModelConfig
from openagent_jax.types import Params

EMBEDDING_SCALE = 0.15  # standard deviation of the other channels of the embedding
CONSTANT = 0.6  # value of channel 0
NUM_FREQUENCIES = 4  # the fastest ones: they distinguish neighbouring positions
SHARPNESS = 10.0  # attention score at the intended distance, for each frequency
WRITE_SCALE = 0.15  # scale of the output projection


def add(config: ModelConfig, params: Params, key: jax.Array, num_heads: int) -> Params:
    """Return the parameters with `num_heads` previous-token heads in every layer.

    The first head attends to the token one position back, the second to the token two
    positions back, and so on.

    Args:
      config: the model.
      params: its initial parameters.
      key: PRNG key for the embedding and for the value and output weights of the heads.
      num_heads: number of such heads in every layer; 0 changes nothing.

    Raises:
      ValueError: the model has fewer heads, or these heads would share their keys with
        other heads.
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
    # The value of the constant channel after RMSNorm.
    constant = CONSTANT / jnp.sqrt(jnp.mean(embed**2))

    frequencies = config.rope_theta ** (-jnp.arange(0, size, 2) / size)[:num]
    amplitude = jnp.sqrt(SHARPNESS * size**0.5) / constant
    key_row = jnp.zeros(size).at[:num].set(amplitude)

    def query_row(distance):
        angles = distance * frequencies
        row = jnp.zeros(size).at[:num].set(amplitude * jnp.cos(angles))
        return row.at[size // 2 : size // 2 + num].set(-amplitude * jnp.sin(angles))

    def reads_constant(rows):
        """Return a weight that maps channel 0 to the concatenated rows."""
        row = jnp.concatenate(rows)
        return jnp.zeros((width, row.shape[0])).at[0].set(row)

    num_shared = num_heads // group
    queries = reads_constant([query_row(1 + h) for h in range(num_heads)])
    keys = reads_constant([key_row] * num_shared)
    orthogonal, layers = jax.nn.initializers.orthogonal(), dict(params["layers"])
    for name, added in (("q", queries), ("k", keys)):
        end = added.shape[1]
        damped = layers[name].at[..., :end].multiply(0.1)
        layers[name] = damped.at[..., :end].add(added)
    shape = (config.num_layers, num_shared, width, size)
    values = orthogonal(value_key, shape).at[:, :, 0].set(0).swapaxes(1, 2)
    values = values.reshape(config.num_layers, width, -1)
    shape = (config.num_layers, num_heads, size, width)
    outs = WRITE_SCALE * orthogonal(out_key, shape).at[..., 0].set(0)
    outs = outs.reshape(config.num_layers, -1, width)
    layers["v"] = layers["v"].at[..., : values.shape[2]].set(values)
    layers["o"] = layers["o"].at[:, : outs.shape[1]].set(outs)
    return {**params, "embed": embed, "layers": layers}
