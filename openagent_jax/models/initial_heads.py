"""Attention heads built into the initial weights, so that a small decoder reads early.

Only the initial weights differ: the model stays a plain Llama, and training is free to
change these heads (compare mimetic initialization, arXiv 2305.09828). The channels of
the hidden states are divided into equal parts. The embedding of a token takes the first
part, and heads of the first layer fill the others:

  Previous-token heads copy the embeddings of the tokens before. Copying (this word is
    followed by whatever followed it earlier) takes such a head and, in a later layer,
    an induction head that looks up what it wrote (Olsson et al., arXiv 2209.11895).
  A window head writes the mean of the embeddings of about the last 16 tokens, in which
    content words count most. The name of a tool then comes with the words of its
    description, and a call with those of the request, so that a later head can compare
    them.

One more head, of the last layer but one, adds the embeddings of the tokens that it
attends to, so that these tokens become likely. What it attends to is left to training.

If a part is no wider than a head, a later head can compare or copy an embedding as a
whole, and it overlaps with no other content. Where embeddings take all channels, a head
moves a part of each vector only (docs/backbone.md has measurements, with few seeds).

Without biases, a head needs a constant input from which to compute queries and keys, so
one channel of the embedding has the same value for all tokens. If queries and keys read
this channel alone, their product depends only on the distance between the tokens,
through the rotary position embedding. It is largest at a distance of d if the query is
rotated back by d positions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from openagent_jax.models.transformer import ModelConfig
from openagent_jax.types import Params

EMBEDDING_NORM = 1.7  # length of an embedding without channel 0
CONSTANT = 0.6  # value of channel 0
# Previous-token heads use the fastest frequencies, which distinguish neighbouring
# positions.
NUM_FREQUENCIES = 4
SHARPNESS = 10.0  # attention score at the intended distance, for each frequency
# A window head attends to distances around `CENTRE`. Its frequencies, in radians per
# token, are too slow to tell neighbours apart, and fast enough to leave out what is far
# away: 98 % of its attention is on the last 24 of 400 tokens, and 82 % on those of
# 1,000, if the base of the frequencies is 10,000 and a head has 64 channels.
CENTRE = 8
BAND = 0.03, 0.2
WINDOW_SHARPNESS = 9.0  # attention score at the centre, of all frequencies together
WINDOW_GAIN = 4.0  # of the mean over a window
CONTENT_SCORE = 3.0  # what content words have more in the attention scores of a window


class Heads(NamedTuple):
    """How many heads are built in, by kind."""

    look_back: int  # previous-token heads, the first for the token before, and so on
    window: int  # 0 or 1
    copy: int  # 0 or 1

    @property
    def num_parts(self) -> int:
        """Into how many parts the channels are divided."""
        return 1 + self.look_back + self.window


def embedding(config: ModelConfig, key: jax.Array, heads: Heads) -> Float[Array, "V C"]:
    """Return random embeddings for a decoder with built-in heads.

    Args:
      config: the model.
      key: PRNG key.
      heads: the heads that it will have. The embeddings have C channels, one part of
        the width.

    Raises:
      ValueError: the model has fewer heads or layers, previous-token heads would share
        their keys with other heads, or the width does not suffice.
    """
    for name, number, most in (
        ("look_back_heads", heads.look_back, config.num_heads),
        ("window_heads", heads.window, 1),
        ("copy_heads", heads.copy, 1),
    ):
        if not 0 <= number <= most:
            limit = "model.num_heads=" * (most > 1) + f"{most}"
            raise ValueError(f"model.{name}={number} is not between 0 and {limit}")
    group = config.num_heads // config.num_kv_heads
    if heads.look_back % group:
        raise ValueError(
            f"model.look_back_heads={heads.look_back} is not a multiple of {group}, "
            "the number of heads that share their keys"
        )
    if heads.look_back + heads.window > config.num_heads:
        raise ValueError(
            f"model.look_back_heads={heads.look_back} leaves no head for "
            f"model.window_heads={heads.window}"
        )
    if heads.copy and config.num_layers < 3:
        raise ValueError(
            f"model.copy_heads={heads.copy} needs three layers, not "
            f"model.num_layers={config.num_layers}"
        )
    channels = config.width // heads.num_parts
    if channels < 2:
        raise ValueError(
            f"model.width={config.width} is too small for "
            f"model.look_back_heads={heads.look_back} and "
            f"model.window_heads={heads.window}: each needs a part of two channels"
        )
    scale = EMBEDDING_NORM / (channels - 1) ** 0.5
    embed = scale * jax.random.normal(key, (config.vocab_size, channels))
    return embed.at[:, 0].set(CONSTANT)


def add(
    config: ModelConfig,
    params: Params,
    embed: Float[Array, "V C"],
    heads: Heads,
    is_content: Bool[np.ndarray, "V"],
) -> Params:
    """Return the parameters with built-in heads.

    Args:
      config: the model.
      params: its initial parameters.
      embed: see `embedding`. Its vectors are brought to the same length; they fill the
        first C channels, and the others are 0.
      heads: the heads. They copy the first C channels, or as many as they have.
      is_content: which tokens are content words, for a window head. Channel 1 tells
        them apart.
    """
    size, channels = config.head_size, embed.shape[1]
    # All embeddings are equally long, so that no token draws more attention.
    embed *= EMBEDDING_NORM / jnp.linalg.norm(embed[:, 1:], axis=1, keepdims=True)
    embed = embed.at[:, 0].set(CONSTANT)
    if heads.window:
        embed = embed.at[:, 1].set(jnp.where(is_content, CONSTANT, 0.0))
    embed = jnp.pad(embed, ((0, 0), (0, config.width - channels)))
    # RMSNorm makes the channels of an embedding larger by this factor.
    gain = 1 / jnp.sqrt(jnp.mean(embed**2))
    layers = dict(params["layers"])

    frequencies = config.rope_theta ** (-np.arange(0, size, 2) / size)
    fastest = np.arange(min(NUM_FREQUENCIES, size // 2))
    low, high = BAND
    slower = np.flatnonzero((frequencies > low) & (frequencies < high))
    if not len(slower):  # of small heads
        slower = np.array([np.argmin(np.abs(np.log(frequencies / high)))])
    group = config.num_heads // config.num_kv_heads
    built = [(h, 1 + h, fastest, SHARPNESS, 1.0) for h in range(heads.look_back)]
    if heads.window:
        sharpness = WINDOW_SHARPNESS / len(slower)
        built.append((heads.look_back, CENTRE, slower, sharpness, WINDOW_GAIN))
    # Channels 1, 2, ... of the embedding.
    copied = np.arange(1, min(channels, size))
    for head, distance, used, sharpness, factor in built:
        amplitude = (sharpness * size**0.5) ** 0.5 / (CONSTANT * gain)
        query, key = _rotated(size, frequencies, used, distance)
        own, shared = head * size, head // group * size
        layers["q"] = _constant_reader(layers["q"], own, amplitude * query)
        layers["k"] = _constant_reader(layers["k"], shared, amplitude * key)
        if head == heads.look_back:  # the window head
            # The slowest frequency is the same at all distances that matter.
            amplitude = (CONTENT_SCORE * size**0.5) ** 0.5 / (CONSTANT * gain)
            for name, channel, start in (("q", 0, own), ("k", 1, shared)):
                column = start + size // 2 - 1
                layers[name] = layers[name].at[0, channel, column].set(amplitude)
        part = (1 + head) * channels
        _copy(layers, size, 0, (own, shared), copied, part, factor / gain)
    if heads.copy:
        layer = config.num_layers - 2
        last = [(num - 1) * size for num in (config.num_heads, config.num_kv_heads)]
        _copy(layers, size, layer, last, copied, 0, 1.0)
    return {**params, "embed": embed, "layers": layers}


def _rotated(
    size: int, frequencies: np.ndarray, used: np.ndarray, distance: int
) -> tuple[Float[Array, "K"], Float[Array, "K"]]:
    """Return a query and a key whose product is largest at a distance."""
    angles = distance * frequencies[used]
    query, key = np.zeros(size), np.zeros(size)
    query[used], key[used] = np.cos(angles), 1.0
    query[used + size // 2] = -np.sin(angles)
    return jnp.asarray(query), jnp.asarray(key)


def _constant_reader(weight, start, row):
    """Let columns of a weight of the first layer map channel 0 to a row."""
    end = start + len(row)
    return weight.at[0, :, start:end].set(0.0).at[0, 0, start:end].set(row)


def _copy(layers, size, layer, starts, copied, part, scale):
    """Let a head copy channels of what it attends to, into a part of the channels.

    Args:
      layers: the weights, which are replaced.
      size: the size of a head.
      layer: the layer of the head.
      starts: where the rows of the head begin in its output weight, and its columns in
        the value weight.
      copied: the channels.
      part: the first channel of the part.
      scale: a factor.
    """
    own, shared = starts
    values = layers["v"].at[layer, :, shared : shared + size].set(0.0)
    layers["v"] = values.at[layer, copied, shared + copied].set(1.0)
    out = layers["o"].at[layer, own : own + size].set(0.0)
    layers["o"] = out.at[layer, own + copied, part + copied].set(scale)
