"""Prefill agrees with the full forward pass, and tokens are chosen as asked."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.models import decoding, transformer

CONFIG = transformer.ModelConfig(
    vocab_size=13,
    width=16,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_size=8,
    mlp_width=16,
    remat="none",
)
POLICY = transformer.make_policy(CONFIG)
ROWS, ROOM = 3, 24
LENGTHS = jnp.array([5, 0, 2])


@pytest.fixture(scope="module")
def params():
    """Large weights, so that the next token depends on the tokens before it."""
    return jax.tree.map(lambda x: 8 * x, jax.jit(POLICY.init)(jax.random.key(0)))


@pytest.fixture(scope="module")
def text():
    return jax.random.randint(jax.random.key(1), (ROWS, 6), 1, CONFIG.vocab_size)


@jax.jit
def full_log_probs(params, tokens):
    """Log-probabilities of the token after each one, without a cache."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden = POLICY.hidden(params, tokens, positions, jnp.ones_like(tokens))
    return jax.nn.log_softmax(POLICY.head(params, hidden))


def test_prefill_equals_the_full_pass(params, text):
    """Two texts for each row, one after the other; the cache has several blocks."""
    prefill = jax.jit(partial(decoding.prefill, POLICY, chunk=4))
    cache = POLICY.init_cache(ROWS, decoding.block_sizes(ROOM, CONFIG.num_layers))
    logits = jnp.zeros((ROWS, CONFIG.vocab_size))
    cache, once = prefill(params, cache, logits, text, jnp.full(ROWS, 6))
    cache, twice = prefill(params, cache, once, text, LENGTHS)
    assert cache.length.tolist() == (6 + LENGTHS).tolist()
    assert jnp.array_equal(twice[1], once[1])  # the row without new tokens
    for row, length in enumerate(LENGTHS):
        tokens = jnp.concatenate([text[row], text[row, :length]])
        expected = full_log_probs(params, tokens[None])[0, -1]
        got = jax.nn.log_softmax(twice[row])
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("num_layers", [1, decoding.MANY_LAYERS])
@pytest.mark.parametrize("num", [1, 2, 7, 8, 500, 512])
def test_blocks_cover_the_context(num, num_layers):
    sizes = decoding.block_sizes(num, num_layers)
    assert sum(sizes) == num and min(sizes) > 0
    assert len(sizes) <= (4 if num_layers == 1 else 2)


def test_loops_see_more_blocks_only_when_they_need_them():
    """A loop that counts to 5, and stops when its slots are used up."""
    cache = POLICY.init_cache(1, [2, 4, 8])

    def loop(cache, carry):
        count, seen = carry
        slots = sum(cache.block_sizes)
        return cache, (min(5, slots), [*seen, slots])

    after, (count, seen) = decoding.loop_in_blocks(loop, cache, (0, []))
    assert after.block_sizes == [2, 4, 8]
    assert count == 5 and seen == [2, 6, 14]


def test_without_temperature_choices_are_greedy():
    keys = jax.random.split(jax.random.key(0), 50)
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.2, 0.5, 0.3])), (50, 3))
    tokens, log_prob = decoding.choose(logits, keys, jnp.arange(50), 0.0)
    assert jnp.all(tokens == 1)
    np.testing.assert_allclose(log_prob, np.log(0.5), atol=1e-6)


def test_temperature_flattens():
    keys = jax.random.split(jax.random.key(0), 2000)
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.9, 0.1])), (2000, 2))
    shares = [
        jnp.mean(decoding.choose(logits, keys, jnp.arange(2000), t)[0])
        for t in (0.5, 1.0, 4.0)
    ]
    odds = np.array([(1 / 9) ** (1 / t) for t in (0.5, 1.0, 4.0)])
    np.testing.assert_allclose(shares, odds / (1 + odds), atol=0.03)
