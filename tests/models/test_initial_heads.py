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


def _start(config, *heads, kinds=None):
    heads = Heads(*heads)
    plain = transformer.make_policy(config).init(jax.random.key(0))
    embed = initial_heads.embedding(config, jax.random.key(1), heads)
    return plain, initial_heads.add(config, plain, embed, heads, kinds)


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


SPEAKERS, FILLER = (1, 2, 3, 4), 5  # the documents follow the first speaker
SYSTEM, USER = SPEAKERS[:2]


def _match_config(**changes):
    sizes = dict(width=192, num_layers=4, num_heads=4, num_kv_heads=4, head_size=64)
    return _config(**dict(vocab_size=1000, rope_theta=1e6) | sizes | changes)


def _marks(params, config, tokens):
    """Return marks of tokens and their means at each token, from 0 to about 1.

    The marks are those of the request (1) and of documents (0), by projection.
    """
    layers = params["layers"]
    size = config.head_size
    # Nothing but the heads that are built in, which are the first ones of each layer.
    layers = {
        **layers,
        "o": layers["o"].at[0, 2 * size :].set(0).at[1:, size:].set(0).at[3].set(0),
        "down": jnp.zeros_like(layers["down"]),
    }
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden = transformer.make_policy(config).hidden(
        {**params, "layers": layers}, tokens, positions, jnp.ones_like(tokens)
    )
    hidden = np.asarray(hidden)
    hidden = hidden * (CONSTANT / hidden[..., :1])  # the last norm scales all channels
    marks = np.asarray(params["embed"])[[SYSTEM, USER]][:, initial_heads.MARKED]
    towards = (marks[1] - marks[0]) / np.sum((marks[1] - marks[0]) ** 2)
    _, found, means = np.split(hidden[..., 128:176], 3, axis=-1)
    return (found - marks[0]) @ towards, means @ towards


def _prompt(request, documents):
    begin, middle = (np.full((len(request), 1), token) for token in (USER, SYSTEM))
    return jnp.array(np.concatenate([begin, request, middle, documents], axis=1))


def _words(num):
    """Eight rows of words, of which no two of a row are the same."""
    rng = np.random.default_rng(5)
    return np.stack([FILLER + 1 + rng.permutation(900)[:num] for _ in range(8)])


def _match_start(is_content):
    config = _match_config()
    kinds = initial_heads.Kinds(is_content, SPEAKERS, SYSTEM)
    return _start(config, 1, 1, 0, kinds=kinds)[1], config


def test_match_heads_mark_the_words_of_the_request():
    """Every other one of the first 40 words of the documents is in the request."""
    params, config = _match_start(np.arange(1000) > FILLER)
    request, documents = np.split(_words(220), [20], axis=1)
    documents[:, :40:2] = request
    found = _marks(params, config, _prompt(request, documents))[0][:, 22:]
    assert np.mean(found[:, :40:2] > 0.5) > 0.8
    assert np.mean(found[:, 1:40:2] < 0.5) > 0.95
    assert np.mean(found[:, 40:] < 0.5) > 0.95


def _leads(is_content, filled):
    """Return by how much the mean at one of five documents is above the others.

    It has six words of the request, and the others have none. If `filled`, every other
    token of all documents is a filler.
    """
    params, config = _match_start(is_content)
    request, documents = np.split(_words(200), [20], axis=1)
    documents = documents.reshape(8, 5, 36)
    step = 2 if filled else 1
    if filled:
        documents[:, :, 1::2] = FILLER
    documents[:, 2, 22 : 22 + 6 * step : step] = request[:, :6]
    prompt = _prompt(request, documents.reshape(8, -1))
    names = _marks(params, config, prompt)[1][:, 22:].reshape(8, 5, 36)[:, :, -1]
    return names[:, 2] - np.delete(names, 2, axis=1).max(axis=1)


def test_a_name_comes_with_the_mean_of_its_marks():
    assert np.all(_leads(np.arange(1000) > FILLER, filled=False) > 0.5)


def test_content_words_count_most_in_the_mean():
    with_it = _leads(np.arange(1000) > FILLER, filled=True)
    without = _leads(np.zeros(1000, bool), filled=True)
    assert np.mean(with_it) > 1.3 * np.mean(without)


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


def test_the_length_of_embeddings_changes_nothing_at_first(monkeypatch):
    """Only training is different: updates are smaller in proportion."""
    config = _match_config()
    heads = Heads(1, 1, 1)
    plain = transformer.make_policy(config).init(jax.random.key(0))
    empty = {k: 0 * x for k, x in plain["layers"].items() if "norm" not in k}
    plain |= {"layers": {**plain["layers"], **empty}}
    kinds = initial_heads.Kinds(np.arange(1000) > FILLER, SPEAKERS, SYSTEM)
    tokens = _prompt(*np.split(_words(60), [20], axis=1))
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    policy = transformer.make_policy(config)

    def log_probs():
        embed = initial_heads.embedding(config, jax.random.key(1), heads)
        params = initial_heads.add(config, plain, embed, heads, kinds)
        hidden = policy.hidden(params, tokens, positions, jnp.ones_like(tokens))
        return jax.nn.log_softmax(policy.head(params, hidden))

    long = log_probs()
    for name in ("SCALE", "EMBEDDING_NORM", "CONSTANT"):
        value = getattr(initial_heads, name) / 4
        monkeypatch.setattr(initial_heads, name, value)
    np.testing.assert_allclose(long, log_probs(), atol=1e-2)


@pytest.mark.parametrize(
    ("heads", "changes", "names"),
    [
        ((3, 0, 0), {}, "model.look_back_heads=3"),
        ((1, 0, 0), dict(num_kv_heads=1), "multiple of 2"),
        ((2, 0, 0), dict(width=4), "model.width=4"),
        ((2, 1, 0), {}, "look_back_heads from 1 to 1, not 2"),
        ((0, 1, 0), {}, "look_back_heads from 1 to 1, not 0"),
        ((1, 2, 0), {}, "model.match_heads=2 is not between 0 and 1"),
        ((1, 1, 0), {}, "needs 4 layers, not model.num_layers=1"),
        ((1, 1, 0), dict(num_layers=4), "would have 8 channels, not 20 or more"),
        ((1, 0, 1), {}, "needs 3 layers, not model.num_layers=1"),
    ],
)
def test_bad_numbers_of_heads(heads, changes, names):
    with pytest.raises(ValueError, match=names):
        _start(_config(**changes), *heads)
