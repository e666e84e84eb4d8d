"""Shuffled embeddings: which tokens take part, and that no embedding is lost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.models import embedding_shuffle

V, D = 40, 3
TOKENS = np.array([3, 4, 5, 6, 7, 8, 20, 21, 22, 30, 31, 39])
SHAPES = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3])
EMBED = np.arange(V * D, dtype=np.float32).reshape(V, D)
shuffled = jax.jit(embedding_shuffle.shuffle)


@pytest.fixture(scope="module")
def owners():
    """Return whose embedding each token has, for many keys."""
    keys = jax.random.split(jax.random.key(0), 200)
    many = jax.vmap(lambda k: shuffled({"embed": EMBED}, k, TOKENS, SHAPES)["embed"])
    embeds = np.asarray(many(keys))
    assert np.all(embeds - embeds[..., :1] == EMBED[0])  # whole rows move
    return (embeds[..., 0] / D).astype(int)


def test_each_embedding_has_one_owner(owners):
    assert np.all(np.sort(owners, axis=1) == np.arange(V))


def test_other_tokens_keep_their_embeddings(owners):
    others = np.setdiff1d(np.arange(V), TOKENS)
    assert np.all(owners[:, others] == others)


def test_embeddings_stay_within_a_shape(owners):
    shape = np.full(V, -1)
    shape[TOKENS] = SHAPES
    assert np.all(shape[owners] == shape)
    assert {*owners[:, 3]} == {3, 4, 5, 6, 7, 8}


def test_any_fraction_takes_part(owners):
    moved = np.mean(owners[:, 3:9] != np.arange(3, 9), axis=1)
    assert 0.2 < np.mean(moved == 0) < 0.6 and np.mean(moved == 1) > 0.01
    assert len({*moved}) == 6  # a single token has no other to swap with


def test_an_untied_head_is_permuted_too():
    params = {"embed": EMBED, "head": EMBED.T + 1000, "norm": jnp.ones(D)}
    new = shuffled(params, jax.random.key(1), TOKENS, SHAPES)
    assert np.any(new["embed"] != EMBED)
    np.testing.assert_array_equal(new["head"], new["embed"].T + 1000)
    np.testing.assert_array_equal(new["norm"], 1)


def test_tokens_are_exchanged_for_others_of_their_shape():
    texts = [b"place", b"tea", b"place ", b"seats ", b"count_", b"reserve_", b"Bay"]
    tokens, shapes = embedding_shuffle.free([*texts, b"the "], fixed={7})
    assert tokens.tolist() == [*range(7)]
    place, tea, spaced, seats, count, reserve, bay = shapes.tolist()
    assert place == tea != spaced == seats and count == reserve
    assert len({place, spaced, count, bay}) == 4
