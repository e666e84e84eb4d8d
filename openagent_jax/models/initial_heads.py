"""Attention heads built into the initial weights, so that a small decoder reads early.

Only the initial weights differ: the model stays a plain Llama, and training is free to
change these heads (compare mimetic initialization, arXiv 2305.09828). The channels of
the hidden states are divided into parts. The embedding of a token takes the first part,
and heads of the first layers fill the others:

  Previous-token heads copy the embeddings of the tokens before. Copying (this word is
    followed by whatever followed it earlier) takes such a head and, in a later layer,
    an induction head that looks up what it wrote (Olsson et al., arXiv 2209.11895).
  Match heads mark the words of documents that the request contains, where it stands
    before the documents. There are three. One, of the first layer, marks whether
    documents have begun. One of the second layer looks for the token before, by what
    the first previous-token head wrote, and copies the mark it finds there; it finds
    that of a document where the word has not occurred. One of the third layer writes
    the mean of these marks over about the last 16 tokens, in which content words count
    most. So the name of a tool comes with the number of words that its description
    shares with the request.

One more head, of the last layer but one, adds the embeddings of the tokens that it
attends to, so that these tokens become likely. What it attends to is left to training.

If a part is no wider than a head, a later head can compare or copy an embedding as a
whole, and it overlaps with no other content. Where embeddings take all channels, a head
moves a part of each vector only (docs/backbone.md has measurements, with few seeds).

Without biases, a head needs a constant input from which to compute queries and keys, so
one channel of the embedding has the same value for all tokens. If queries and keys read
this channel alone, their product depends only on the distance between the tokens,
through the rotary position embedding. It is largest at a distance of d if the query is
rotated back by d positions. The slowest frequency is the same at all distances that
matter, so scores that do not depend on the distance use it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from openagent_jax.models.transformer import ModelConfig
from openagent_jax.types import Params

# Embeddings are long: updates of Muon have the same size whatever they change, so they
# soon drown what is short. Copies are as long, and the output head reads them by a norm
# that is as much shorter (docs/backbone.md has measurements).
SCALE = 8.0
EMBEDDING_NORM = 1.7 * SCALE  # length of an embedding without channel 0
CONSTANT = 0.6 * SCALE  # value of channel 0
# Further channels with this value, of some tokens only: content words, tokens after
# which somebody speaks, and the one of these after which the documents follow.
CONTENT, SPEAKER, DOCUMENTS = 1, 2, 3
MARKED = np.arange(4, 20)  # channels of the embedding of a speaker that mark its text
# Previous-token heads use the fastest frequencies, which distinguish neighbouring
# positions, and add this score for each of them.
FAST, SHARPNESS = 0.25, 10.0
# Attention score of the head that marks whether documents have begun.
BEGUN = 30.0
# Scores of the same token, and of the token that stands for no match. Frequencies that
# turn by less than `TURN` radians per token can compare tokens at a distance: this many
# tokens apart, the score of the same token is still above that of none.
MATCH, NO_MATCH = 40.0, 26.0
TURN = 1 / 300
# The mean of marks. Its frequencies, in radians per token, are too slow to tell
# neighbours apart, and fast enough to leave out what is far away.
CENTRE, BAND = 8, (0.03, 0.2)
MEAN_SHARPNESS = 9.0  # attention score at the centre, of all frequencies together
CONTENT_SCORE = 3.0  # additional attention score of content words
MEAN_GAIN = 3.0


class Heads(NamedTuple):
    """How many heads are built in, by kind."""

    look_back: int  # previous-token heads, the first for the token before, and so on
    match: int  # 0 or 1: whether there are the three heads that mark what is asked for
    copy: int  # 0 or 1

    def channels(self, config: ModelConfig) -> int:
        """Return the number of channels of an embedding."""
        rest = config.width - 3 * len(MARKED) * self.match
        channels = rest // (1 + self.look_back)
        return min(channels, config.head_size) if self.match else channels


class Kinds(NamedTuple):
    """Which tokens are of which kind, for match heads."""

    content: Bool[np.ndarray, "V"]  # content words
    speakers: tuple[int, ...]  # the tokens after which somebody speaks
    documents: int  # the one of them after which the documents follow


def embedding(config: ModelConfig, key: jax.Array, heads: Heads) -> Float[Array, "V C"]:
    """Return random embeddings for a decoder with built-in heads.

    Args:
      config: the model.
      key: PRNG key.
      heads: the heads that it will have. The embeddings have C channels.

    Raises:
      ValueError: the model has fewer heads or layers, previous-token heads would share
        their keys with other heads, or the width does not suffice.
    """
    for name, number, most in (
        ("look_back_heads", heads.look_back, config.num_heads),
        ("match_heads", heads.match, 1),
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
    if heads.match and not 0 < heads.look_back < config.num_heads:
        raise ValueError(
            f"model.match_heads={heads.match} needs a model.look_back_heads from 1 to "
            f"{config.num_heads - 1}, not {heads.look_back}"
        )
    for name, number, least in (
        ("copy_heads", heads.copy, 3),
        ("match_heads", heads.match, 4),
    ):
        if number and config.num_layers < least:
            raise ValueError(
                f"model.{name}={number} needs {least} layers, not "
                f"model.num_layers={config.num_layers}"
            )
    channels = heads.channels(config)
    least = MARKED[-1] + 1 if heads.match else 2
    if channels < least:
        raise ValueError(
            f"model.width={config.width} and model.head_size={config.head_size} are "
            f"too small for model.look_back_heads={heads.look_back} and "
            f"model.match_heads={heads.match}: embeddings would have {channels} "
            f"channels, not {least} or more"
        )
    scale = EMBEDDING_NORM / (channels - 1) ** 0.5
    embed = scale * jax.random.normal(key, (config.vocab_size, channels))
    return embed.at[:, 0].set(CONSTANT)


def add(
    config: ModelConfig,
    params: Params,
    embed: Float[Array, "V C"],
    heads: Heads,
    kinds: Kinds | None = None,
) -> Params:
    """Return the parameters with built-in heads.

    Args:
      config: the model.
      params: its initial parameters.
      embed: see `embedding`. Its vectors are brought to the same length; they fill the
        first C channels, and the others are 0.
      heads: the heads. They copy the first C channels, or as many as they have.
      kinds: the kinds of tokens, if there are match heads.
    """
    size, channels = config.head_size, embed.shape[1]
    first = 4 if heads.match else 1  # the first channel that tells words apart
    embed = embed.at[:, :first].set(0.0)
    # All embeddings are equally long, so that no token draws more attention.
    embed *= EMBEDDING_NORM / jnp.linalg.norm(embed, axis=1, keepdims=True)
    embed = embed.at[:, 0].set(CONSTANT)
    if heads.match:
        assert kinds is not None
        embed = embed.at[:, CONTENT].set(jnp.where(kinds.content, CONSTANT, 0.0))
        embed = embed.at[jnp.array(kinds.speakers), SPEAKER].set(CONSTANT)
        embed = embed.at[kinds.documents, DOCUMENTS].set(CONSTANT)
    embed = jnp.pad(embed, ((0, 0), (0, config.width - channels)))
    # RMSNorm makes the channels of an embedding larger by this factor, and those of the
    # hidden states of the layers after it by about the other one.
    gain = 1 / jnp.sqrt(jnp.mean(embed**2))
    length = (1 + heads.look_back) * (EMBEDDING_NORM**2 + CONSTANT**2) + SCALE**2
    later = (config.width / length) ** 0.5
    layers = _Layers(config, params["layers"])
    copied = np.arange(first, min(channels, size))

    frequencies = layers.frequencies
    fast = np.flatnonzero(frequencies > FAST)
    for number in range(heads.look_back):
        head = layers.head(0, number, gain)
        head.at_distance(1 + number, fast, SHARPNESS * len(fast))
        head.copies(copied, (1 + number) * channels + copied)
    if heads.match:
        parts = (1 + heads.look_back) * channels + np.arange(3 * len(MARKED))
        begun, match, mean = parts.reshape(3, -1)

        head = layers.head(0, heads.look_back, gain)
        for channel in (SPEAKER, DOCUMENTS):  # so the latter have twice the score
            head.score(channel, BEGUN / 2)
        head.copies(MARKED, begun)

        head = layers.head(1, 0, later)
        head.compares(copied, channels + copied)
        head.score(DOCUMENTS, NO_MATCH)
        head.copies(begun, match)

        head = layers.head(2, 0, later)
        low, high = BAND
        band = np.flatnonzero((frequencies > low) & (frequencies < high))
        head.at_distance(CENTRE, band, MEAN_SHARPNESS)
        head.score(CONTENT, CONTENT_SCORE)
        head.copies(match, mean, MEAN_GAIN)
    if heads.copy:
        head = layers.head(config.num_layers - 2, config.num_heads - 1, 1.0, False)
        head.copies(copied, copied, SCALE)
    norm = params["norm"] / SCALE
    return {**params, "embed": embed, "norm": norm, "layers": layers.weights}


class _Layers:
    """The weights of all layers, with heads that are built into them."""

    def __init__(self, config: ModelConfig, weights: Params):
        self.config, self.weights = config, dict(weights)
        size = config.head_size
        self.frequencies = config.rope_theta ** (-np.arange(0, size, 2) / size)

    def head(self, layer: int, number: int, gain: Any, attends: bool = True) -> "_Head":
        """Return a head to build.

        Args:
          layer: its layer.
          number: its number in the layer.
          gain: the factor by which the norm enlarges the hidden states that it reads.
          attends: whether its queries and keys are built too; otherwise they stay.
        """
        return _Head(self, layer, number, gain, attends)


class _Head:
    """A head that is built; at first it attends to all tokens and adds nothing."""

    def __init__(self, layers, layer, number, gain, attends):
        self._layers, self._layer, self._gain = layers, layer, gain
        config = layers.config
        self._size = size = config.head_size
        shared = number // (config.num_heads // config.num_kv_heads)
        # Where its columns begin (its rows, in `o`).
        self._start = {"q": number * size, "o": number * size}
        self._start |= {"k": shared * size, "v": shared * size}
        for name in "qkv" if attends else "v":
            columns = self._start[name] + np.arange(size)
            self._put(name, slice(None), columns, 0.0)
        self._put("o", self._start["o"] + np.arange(size), slice(None), 0.0)

    def _put(self, name, rows, columns, values):
        weights = self._layers.weights
        weights[name] = weights[name].at[self._layer, rows, columns].set(values)

    def _unit(self, score):
        """Return what a query and a key have, as weights of a constant, for a score."""
        return (score * self._size**0.5) ** 0.5 / (CONSTANT * self._gain)

    def at_distance(self, distance: int, used: np.ndarray, score: float) -> None:
        """Attend to tokens at approximately a given distance.

        Args:
          distance: the distance, in tokens.
          used: the indices of the frequencies; if there are none, the last but one.
          score: the attention score there.
        """
        half = self._size // 2
        used = used if len(used) else np.array([max(half - 2, 0)])
        unit = self._unit(score / len(used))
        angles = distance * self._layers.frequencies[used]
        query, key = self._start["q"] + used, self._start["k"] + used
        self._put("q", 0, query, unit * np.cos(angles))
        self._put("q", 0, query + half, -unit * np.sin(angles))
        self._put("k", 0, key, unit)

    def score(self, channel: int, score: float) -> None:
        """Attend to tokens with a value of `CONSTANT` in a channel, at any distance.

        Args:
          channel: the channel.
          score: what this adds to the attention score.
        """
        column, unit = self._size // 2 - 1, self._unit(1.0)
        self._put("q", 0, self._start["q"] + column, unit)
        self._put("k", channel, self._start["k"] + column, score * unit)

    def compares(self, channels: np.ndarray, of_key: np.ndarray) -> None:
        """Attend to tokens with the same embedding in some channels as the query.

        Args:
          channels: those of the query.
          of_key: those of the key.
        """
        half, frequencies = self._size // 2, self._layers.frequencies
        # The slowest frequency serves `score`.
        slow = np.flatnonzero(frequencies[:-1] < TURN)
        slow = slow if len(slow) else np.array([max(half - 2, 0)])
        used = np.concatenate([slow, slow + half])[: len(channels)]
        # A random projection, since there are fewer of these than channels.
        drawn = np.random.default_rng(0).normal(size=(len(channels), len(used)))
        projection = np.linalg.qr(drawn)[0] * (len(channels) / len(used)) ** 0.5
        unit = (MATCH * self._size**0.5) ** 0.5 / (EMBEDDING_NORM * self._gain)
        for name, read in (("q", channels), ("k", of_key)):
            columns = self._start[name] + used
            self._put(name, read[:, None], columns, unit * projection)

    def copies(self, channels: np.ndarray, to: np.ndarray, factor: float = 1.0) -> None:
        """Add channels of what it attends to, times a factor, to other channels."""
        own = np.arange(len(channels))
        self._put("v", channels, self._start["v"] + own, 1.0)
        self._put("o", self._start["o"] + own, to, factor / self._gain)
