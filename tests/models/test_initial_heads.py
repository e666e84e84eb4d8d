"""Heads that are built into the initial weights do what they should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.models import initial_heads, transformer
from openagent_jax.models.initial_heads import CONSTANT, Heads


def _config(**changes):
    sizes = dict(
        vocab_size=97,
        width=64,
        num_layers=1,
        num_heads=2,
        num_kv_heads=2,
        head_size=32,
        mlp_width=64,
    )
    return transformer.ModelConfig(**sizes | changes)


def _influence(params, config):
    """Return how much hidden states change, by their distance from a changed token."""
    tokens = jax.random.randint(jax.random.key(5), (16, 12), 0, config.vocab_size)
    other = tokens.at[:, 4].set((tokens[:, 4] + 1) % config.vocab_size)
    positions = jnp.broadcast_to(jnp.arange(12), tokens.shape)
    valid = jnp.ones(tokens.shape, bool)
    hidden = transformer.make_policy(config).hidden
    change = hidden(params, other, positions, valid) - hidden(
        params, tokens, positions, valid
    )
    return jnp.mean(jnp.linalg.norm(change, axis=-1), axis=0)[4:]


def _start(config, *heads):
    heads = Heads(*heads)
    plain = transformer.make_policy(config).init(jax.random.key(0))
    embed = initial_heads.embedding(config, jax.random.key(1), heads)
    is_content = np.arange(config.vocab_size) % 2 == 0
    return plain, initial_heads.add(config, plain, embed, heads, is_content)


@pytest.mark.parametrize("num_kv_heads", [1, 2])
@pytest.mark.slow
def test_heads_attend_one_and_two_tokens_back(num_kv_heads):
    config = _config(num_kv_heads=num_kv_heads)
    plain, initialised = _start(config, 2, 0, 0)
    assert jax.tree.map(jnp.shape, plain) == jax.tree.map(jnp.shape, initialised)
    by_distance = _influence(initialised, config)
    assert jnp.min(by_distance[1:3]) > 8 * jnp.max(by_distance[3:])
    by_distance = _influence(plain, config)
    assert jnp.min(by_distance[1:3]) < 4 * jnp.max(by_distance[3:])


def test_the_embeddings_of_tokens_before_are_copied_to_parts_of_their_own():
    """The part of a token stays as it is; those of the heads are nearly the tokens'."""
    config = _config(width=96, num_heads=4, num_kv_heads=4)
    _, params = _start(config, 2, 0, 0)
    tokens = jax.random.randint(jax.random.key(5), (3, 12), 0, config.vocab_size)
    embed = params["embed"][tokens]
    assert not jnp.any(embed[..., 32:])
    # The first layer without its MLP, and without other heads.
    layers = {
        **params["layers"],
        "o": params["layers"]["o"].at[:, 2 * 32 :].set(0),
        "down": jnp.zeros_like(params["layers"]["down"]),
    }
    positions = jnp.broadcast_to(jnp.arange(12), tokens.shape)
    hidden = transformer.make_policy(config).hidden(
        {**params, "layers": layers}, tokens, positions, jnp.ones_like(tokens)
    )
    # The last norm scales all channels alike.
    hidden *= CONSTANT / hidden[..., :1]
    np.testing.assert_allclose(hidden[..., :32], embed[..., :32], atol=1e-5)
    for distance in (1, 2):
        part = hidden[:, 2:, 32 * distance + 1 : 32 * distance + 32]
        before = embed[:, 2 - distance : -distance, 1:32]
        product = jnp.sum(part * before, -1)
        lengths = jnp.linalg.norm(part, axis=-1), jnp.linalg.norm(before, axis=-1)
        assert jnp.min(product / (lengths[0] * lengths[1])) > 0.9
        assert jnp.allclose(lengths[0], lengths[1], rtol=0.2)


def _windows(params, config, tokens):
    """Return what the window head adds to the hidden states, in embeddings."""
    size = config.head_size
    layers = {
        **params["layers"],
        "o": params["layers"]["o"].at[:, 2 * size :].set(0),
        "down": jnp.zeros_like(params["layers"]["down"]),
    }
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden = transformer.make_policy(config).hidden(
        {**params, "layers": layers}, tokens, positions, jnp.ones_like(tokens)
    )
    # The last norm scales all channels alike.
    hidden *= CONSTANT / hidden[..., :1]
    return hidden[..., 2 * size + 1 : 3 * size]


def test_a_window_head_averages_the_last_tokens():
    """Its part is a mean of about 16 embeddings, wherever the token stands."""
    config = _config(width=192, num_heads=4, num_kv_heads=4, head_size=64)
    _, params = _start(config, 1, 1, 0)
    tokens = jax.random.randint(jax.random.key(5), (16, 100), 0, config.vocab_size)
    tokens = tokens // 2 * 2  # content words
    means = _windows(params, config, tokens)
    embed = params["embed"][tokens][..., 1:64]
    for last in (60, 99):
        # The weights of the tokens, by least squares over all rows and channels.
        before = embed[:, : last + 1].swapaxes(0, 1).reshape(last + 1, -1)
        weights = np.linalg.lstsq(before.T, means[:, last].ravel(), rcond=None)[0]
        weights = weights[::-1] / initial_heads.WINDOW_GAIN
        np.testing.assert_allclose(weights.sum(), 1, rtol=0.05)
        assert weights[:17].sum() > 0.9
        assert weights[2:15].min() > 0.02
        assert np.argmax(weights) in (7, 8, 9)


def test_content_words_count_most_in_a_window():
    config = _config(width=192, num_heads=4, num_kv_heads=4, head_size=64)
    _, params = _start(config, 1, 1, 0)
    tokens = jax.random.randint(jax.random.key(5), (16, 100), 0, config.vocab_size)
    tokens = tokens // 2 * 2 + 1
    tokens = jnp.minimum(tokens, config.vocab_size - 2)  # none is a content word
    one = tokens.at[:, 95].add(1)
    embed = params["embed"][one[:, 95], 1:64]
    with_it, without = (_windows(params, config, x)[:, 99] for x in (one, tokens))
    difference = with_it - without
    share = jnp.sum(difference * embed, -1) / jnp.sum(embed**2, -1)
    assert jnp.min(share) > 0.4 * initial_heads.WINDOW_GAIN  # one token of 16


def test_a_copy_head_makes_what_it_attends_to_likely():
    config = _config(width=128, num_layers=3, head_size=64)
    key = jax.random.key(5)
    tokens = jax.random.randint(key, (8, 20), 0, config.vocab_size)
    positions = jnp.broadcast_to(jnp.arange(20), tokens.shape)
    policy = transformer.make_policy(config)

    def share(params):
        """The probability of the tokens of each text, but for its last one."""
        hidden = policy.hidden(params, tokens, positions, jnp.ones_like(tokens))
        probs = jax.nn.softmax(policy.head(params, hidden[:, -1]))
        which = jax.nn.one_hot(tokens, config.vocab_size)
        seen = which[:, :-1].max(axis=1) * (1 - which[:, -1])
        return jnp.sum(probs * seen, axis=-1)

    _, without = _start(config, 1, 0, 0)
    _, params = _start(config, 1, 0, 1)
    assert jnp.all(share(params) > 5 * share(without))


@pytest.mark.parametrize(
    ("heads", "changes", "names"),
    [
        ((3, 0, 0), {}, "model.look_back_heads=3"),
        ((1, 0, 0), dict(num_kv_heads=1), "multiple of 2"),
        ((2, 0, 0), dict(width=4), "model.width=4"),
        ((2, 1, 0), {}, "leaves no head"),
        ((1, 2, 0), {}, "model.window_heads=2 is not between 0 and 1"),
        ((1, 0, 1), {}, "three layers, not model.num_layers=1"),
    ],
)
def test_bad_numbers_of_heads(heads, changes, names):
    with pytest.raises(ValueError, match=names):
        _start(_config(**changes), *heads)
