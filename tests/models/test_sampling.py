"""Sampling follows the probabilities of the tokens, at any edge of the random range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from openagent_jax.models import sampling


def test_frequencies_match_the_probabilities(getkey):
    """With a vocabulary that the block size does not divide, and excluded tokens."""
    num, size = 40_000, 37
    logits = 2 * jax.random.normal(getkey(), (size,))
    logits = logits.at[jnp.array([0, 5, 36])].set(-jnp.inf)
    uniforms = jax.random.uniform(getkey(), (num, 2))
    rows = jnp.broadcast_to(logits, (num, size))
    tokens, log_prob = jax.jit(sampling.categorical)(rows, uniforms)
    expected = jax.nn.log_softmax(logits)
    np.testing.assert_allclose(log_prob, expected[tokens], rtol=1e-5, atol=1e-5)
    count, p = np.bincount(tokens, minlength=size), np.exp(np.float64(expected))
    assert count[p == 0].sum() == 0
    possible = p > 0
    expected_count = num * p[possible] / p[possible].sum()
    assert stats.chisquare(count[possible], expected_count).pvalue > 1e-3


@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-23])
def test_smallest_and_largest_uniform_number(uniform):
    """Neither an excluded token nor one outside the vocabulary is chosen."""
    one = jnp.full((1, 37), -jnp.inf).at[0, 20].set(3.0)
    two = one.at[0, 30].set(-40.0)
    for logits in (one, two):
        token, log_prob = sampling.categorical(logits, jnp.full((1, 2), uniform))
        assert jnp.isfinite(logits[0, token[0]])
        np.testing.assert_allclose(log_prob[0], logits[0, token[0]] - 3, atol=1e-5)


def test_greedy_is_argmax(getkey):
    logits = jax.random.normal(getkey(), (50, 19)).at[:, 7].set(0.5)
    logits = logits.at[0].set(1.0).at[1, 3:].set(9.0)  # ties: the first one counts
    tokens, log_prob = sampling.greedy(logits)
    np.testing.assert_array_equal(tokens, jnp.argmax(logits, axis=-1))
    expected = jnp.max(jax.nn.log_softmax(logits), axis=-1)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1e-6, [1]), (0.45, [1]), (0.55, [1, 3]), (0.85, [0, 1, 2, 3]), (1.0, range(5))],
)
def test_nucleus(top_p, kept):
    """The probabilities are 0.1, 0.5, 0.1, 0.25 and 0.05; tokens 0 and 2 tie."""
    logits = jnp.log(jnp.array([[0.1, 0.5, 0.1, 0.25, 0.05]]))
    got = sampling.nucleus(logits, top_p)
    expected = jnp.where(
        jnp.isin(jnp.arange(5), jnp.array(list(kept))), logits, -jnp.inf
    )
    np.testing.assert_array_equal(got, expected)


def test_nucleus_of_each_row():
    logits = jnp.log(jnp.array([[0.75, 0.25], [0.75, 0.25]]))
    got = sampling.nucleus(logits, jnp.array([[0.5], [1.0]]))
    assert jnp.isfinite(got).tolist() == [[True, False], [True, True]]


def test_uniform_numbers_depend_on_key_and_position_only():
    keys = jax.random.split(jax.random.key(0), 3)
    got = sampling.uniform_pairs(keys, jnp.array([4, 4, 9]))
    alone = sampling.uniform_pairs(keys[2:], jnp.array([9]))
    np.testing.assert_array_equal(got[2:], alone)
    moved = sampling.uniform_pairs(keys, jnp.array([4, 5, 9]))
    assert jnp.array_equal(moved[0], got[0]) and jnp.all(moved[1] != got[1])
    assert len(np.unique(got)) == 6 and jnp.all((got >= 0) & (got < 1))
