"""Shuffled embeddings: which words take part, and that no embedding is lost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.models import embedding_shuffle

V, D = 40, 3
# Six words of one form, three of two forms, two of another form, and a lonely one.
WORDS = [[3], [4], [5], [6], [7], [8], [20, 10], [21, 11], [22, 12], [30], [31], [39]]
KINDS = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3])
TOKENS = np.array([[*word, -1][:2] for word in WORDS])
EMBED = np.arange(V * D, dtype=np.float32).reshape(V, D)
shuffled = jax.jit(embedding_shuffle.shuffle)


@pytest.fixture(scope="module")
def owners():
    """Return whose embedding each token has, for many keys."""
    keys = jax.random.split(jax.random.key(0), 200)
    many = jax.vmap(lambda k: shuffled({"embed": EMBED}, k, TOKENS, KINDS)["embed"])
    embeds = np.asarray(many(keys))
    assert np.all(embeds - embeds[..., :1] == EMBED[0])  # whole rows move
    return (embeds[..., 0] / D).astype(int)


def test_each_embedding_has_one_owner(owners):
    assert np.all(np.sort(owners, axis=1) == np.arange(V))


def test_other_tokens_keep_their_embeddings(owners):
    others = np.setdiff1d(np.arange(V), TOKENS)
    assert np.all(owners[:, others] == others)


def test_embeddings_stay_within_a_kind(owners):
    kind = np.full(V, -1)
    for word, number in zip(WORDS, KINDS, strict=True):
        kind[word] = number
    assert np.all(kind[owners] == kind)
    assert {*owners[:, 3]} == {3, 4, 5, 6, 7, 8}


def test_the_forms_of_a_word_move_together(owners):
    assert np.all(owners[:, [20, 21, 22]] - owners[:, [10, 11, 12]] == 10)
    assert {*owners[:, 20]} == {20, 21, 22}


def test_any_fraction_takes_part(owners):
    moved = np.mean(owners[:, 3:9] != np.arange(3, 9), axis=1)
    assert 0.05 < np.mean(moved == 0) < 0.4 and np.mean(moved == 1) > 0.1
    assert len({*moved}) == 6  # a single token has no other to swap with


def test_an_untied_head_is_permuted_too():
    params = {"embed": EMBED, "head": EMBED.T + 1000, "norm": jnp.ones(D)}
    new = shuffled(params, jax.random.key(1), TOKENS, KINDS)
    assert np.any(new["embed"] != EMBED)
    np.testing.assert_array_equal(new["head"], new["embed"].T + 1000)
    np.testing.assert_array_equal(new["norm"], 1)


def test_words_are_exchanged_for_others_with_the_same_forms():
    texts = [b"place", b"Place ", b"tea", b"Tea ", b"seats ", b"count_", b"a_", b"7"]
    words, kinds = embedding_shuffle.free([*texts, b"the "], fixed={8})
    assert words.tolist() == [[1, 0], [3, 2], [4, -1], [5, -1], [6, -1], [7, -1]]
    place, tea, seats, count, letter, digit = kinds.tolist()
    assert place == tea
    assert len({place, seats, count, letter, digit}) == 5


def test_other_tokens_are_exchanged_for_those_that_begin_and_end_alike():
    texts = [b" oak", b" elm", b'","', b'":"', b"},", b";", b"#"]
    kinds = embedding_shuffle.free(texts, fixed={})[1].tolist()
    oak, elm, comma, colon, brace, semicolon, hash_sign = kinds
    assert oak == elm and comma == colon and semicolon == hash_sign
    assert len({oak, comma, brace, semicolon}) == 4


def test_two_tokens_of_one_text():
    words, kinds = embedding_shuffle.free([b"oak", b"oak", b"elm"], fixed={})
    assert words.tolist() == [[0, 1], [2, -1]] and kinds[0] != kinds[1]
