"""Previous-token heads at initialisation, so that a small decoder learns to copy early.

Copying (this word is followed by whatever followed it earlier) takes two attention
heads in different layers. A previous-token head writes into each position which token
came before it, and an induction head looks that up (Olsson et al., arXiv 2209.11895).
The first head is the same for every task, so it can be built into the initial weights:
the channels of the hidden states are divided into equal parts, the embedding of a token
takes the first part, and heads of the first layer copy the embeddings of the tokens
before it into the other parts. If a part is no wider than a head, a later head can
compare or copy an embedding as a whole, and it overlaps with no other content. Where
embeddings take all channels, a head moves a part of each vector only (docs/backbone.md
has measurements, with few seeds).

Only the initial weights differ; the model stays a plain Llama, and training is free to
change these heads.

Without biases, a head needs a constant input from which to compute queries and keys, so
one channel of the embedding has the same value for all tokens. If queries and keys read
this channel alone, their product depends only on the distance between the tokens,
through the rotary position embedding. It is largest at a distance of one if the query
is rotated back by one position.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from openagent_jax.models.transformer import ModelConfig
from openagent_jax.types import Params

EMBEDDING_NORM = 1.7  # length of an embedding without channel 0
CONSTANT = 0.6  # value of channel 0
NUM_FREQUENCIES = 4  # the fastest ones: they distinguish neighbouring positions
SHARPNESS = 10.0  # attention score at the intended distance, for each frequency


def embedding(
    config: ModelConfig, key: jax.Array, num_heads: int
) -> Float[Array, "V C"]:
    """Return random embeddings for a decoder with `num_heads` previous-token heads.

    Args:
      config: the model.
      key: PRNG key.
      num_heads: number of such heads. The embeddings have C channels, one part of the
        width for the token and one for each head.

    Raises:
      ValueError: the model has fewer heads, these heads would share their keys with
        other heads, or the width does not suffice.
    """
    if not 0 <= num_heads <= config.num_heads:
        raise ValueError(
            f"model.look_back_heads={num_heads} is not between 0 and "
            f"model.num_heads={config.num_heads}"
        )
    group = config.num_heads // config.num_kv_heads
    if num_heads % group:
        raise ValueError(
            f"model.look_back_heads={num_heads} is not a multiple of {group}, the "
            "number of heads that share their keys"
        )
    channels = config.width // (1 + num_heads)
    if channels < 2:
        raise ValueError(
            f"model.width={config.width} is too small for "
            f"model.look_back_heads={num_heads}: each needs a part of two channels"
        )
    scale = EMBEDDING_NORM / (channels - 1) ** 0.5
    embed = scale * jax.random.normal(key, (config.vocab_size, channels))
    return embed.at[:, 0].set(CONSTANT)


def add(
    config: ModelConfig, params: Params, embed: Float[Array, "V C"], num_heads: int
) -> Params:
    """Return the parameters with `num_heads` previous-token heads in the first layer.

    The first head attends to the token one position back, the second to the token two
    positions back, and so on. It copies the first C channels, or as many as it has.

    Args:
      config: the model.
      params: its initial parameters.
      embed: see `embedding`. Its vectors are brought to the same length; they fill the
        first C channels, and the others are 0.
      num_heads: number of such heads; at least 1.
    """
    width, size, num = config.width, config.head_size, NUM_FREQUENCIES
    channels = embed.shape[1]
    # All embeddings are equally long, so that no token draws more attention.
    embed *= EMBEDDING_NORM / jnp.linalg.norm(embed[:, 1:], axis=1, keepdims=True)
    embed = jnp.pad(embed.at[:, 0].set(CONSTANT), ((0, 0), (0, width - channels)))
    # RMSNorm makes the channels of an embedding larger by this factor.
    gain = 1 / jnp.sqrt(jnp.mean(embed**2))
    constant = CONSTANT * gain

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

    num_shared = num_heads * config.num_kv_heads // config.num_heads
    queries = reads_constant([query_row(1 + h) for h in range(num_heads)])
    keys = reads_constant([key_row] * num_shared)
    # Channels 1, 2, ... of the embedding, and where each head copies them to.
    copied = jnp.arange(1, min(channels, size))
    values, outs = jnp.zeros((width, num_shared * size)), []
    for h in range(num_shared):
        values = values.at[copied, h * size + copied].set(1.0)
    for h in range(1, num_heads + 1):
        out = jnp.zeros((size, width))
        outs.append(out.at[copied, h * channels + copied].set(1 / gain))
    added = {"q": queries, "k": keys, "v": values, "o": jnp.concatenate(outs)}
    layers = dict(params["layers"])
    for name in ("q", "k", "v"):
        end = added[name].shape[1]
        layers[name] = layers[name].at[0, :, :end].set(added[name])
    layers["o"] = layers["o"].at[0, : num_heads * size].set(added["o"])
    return {**params, "embed": embed, "layers": layers}
