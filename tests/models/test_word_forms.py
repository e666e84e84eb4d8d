"""Embeddings of the forms of a word: alike, and told apart by what forms share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.models import word_forms

TEXTS = [b"oak", b"oak ", b"Oak", b"elm", b"elm ", b"Elm", b"7", b" ", b"{"]
EMBED = np.array(jax.random.normal(jax.random.key(0), (11, 2001)) * 0.15)
EMBED[:, 0] = 0.6


@pytest.fixture(scope="module")
def joined():
    return np.asarray(word_forms.join(jnp.asarray(EMBED), TEXTS, jax.random.key(1)))


def test_forms_of_a_word_are_alike(joined):
    alike = np.corrcoef(joined[:, 1:])
    np.testing.assert_allclose(alike[0, 1:3], 1 - word_forms.FORM_SHARE, atol=0.06)
    assert np.all(np.abs(alike[0, [4, 5]]) < 0.1)


def test_a_form_differs_in_the_same_way_from_the_plain_word(joined):
    (oak, oak_space), (elm, elm_space) = joined[:2], joined[3:5]
    np.testing.assert_allclose(oak_space - oak, elm_space - elm, atol=1e-6)


def test_all_else_stays(joined):
    np.testing.assert_array_equal(joined[:, 0], EMBED[:, 0])
    np.testing.assert_array_equal(joined[6:], EMBED[6:])
    np.testing.assert_allclose(joined[:, 1:].std(1), EMBED[:, 1:].std(1), rtol=0.1)


def test_a_vocabulary_without_words():
    new = word_forms.join(jnp.asarray(EMBED), [b"7", b"8"], jax.random.key(1))
    np.testing.assert_array_equal(new, EMBED)
