"""Prefill and decode agree with the full forward pass, however they are divided."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.models import decoding, transformer
from openagent_jax.models.decoding import Sampling

CONFIG = transformer.ModelConfig(
    vocab_size=13,
    width=16,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_size=8,
    mlp_width=16,
    remat=False,
)
POLICY = transformer.make_policy(CONFIG)
ROWS, ROOM, END = 3, 24, 0
ALL = np.ones(ROWS, bool)
LENGTHS = jnp.array([5, 0, 2])


@pytest.fixture(scope="module")
def params():
    """Large weights, so that the next token depends on the tokens before it."""
    return jax.tree.map(lambda x: 8 * x, jax.jit(POLICY.init)(jax.random.key(0)))


@pytest.fixture(scope="module")
def text():
    return jax.random.randint(jax.random.key(1), (ROWS, 6), 1, CONFIG.vocab_size)


@pytest.fixture(scope="module")
def context(params, text):
    """Two texts, the first one for all rows; the cache has several blocks."""
    empty = decoding.empty_context(POLICY, ROWS, ROOM, ROOM, CONFIG.vocab_size)
    blocks = decoding.block_sizes(ROOM, CONFIG.num_layers)
    empty = empty._replace(cache=POLICY.init_cache(ROWS, blocks))

    once = append(params, empty, text, jnp.full(ROWS, 6))
    return append(params, once, text, LENGTHS)


append = jax.jit(partial(decoding.append, POLICY, chunk=4))


@jax.jit
def full_log_probs(params, tokens):
    """Log-probabilities of the token after each one, without a cache."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden = POLICY.hidden(params, tokens, positions, jnp.ones_like(tokens))
    return jax.nn.log_softmax(POLICY.head(params, hidden))


@partial(jax.jit, static_argnums=(2, 4))
def decode(params, context, sampling, active=ALL, num_tokens=10):
    keys = jax.random.split(jax.random.key(2), ROWS)
    return decoding.decode(
        POLICY, params, context, keys, active, num_tokens, END, sampling
    )


class TestAppend:
    def test_tokens_are_dense(self, context, text):
        for row, length in enumerate(LENGTHS):
            expected = [*text[row], *text[row, :length]]
            assert context.tokens[row, : 6 + length].tolist() == expected
        assert context.cache.length.tolist() == (6 + LENGTHS).tolist()
        assert not context.sampled.any() and not context.overflow.any()

    def test_next_logits_equal_the_full_pass(self, context, params):
        expected = full_log_probs(params, context.tokens)
        got = jax.nn.log_softmax(context.logits)
        last = context.cache.length - 1
        np.testing.assert_allclose(got, expected[jnp.arange(ROWS), last], rtol=1e-5)

    def test_overlong_texts_are_marked(self, context, params, text):
        length = jnp.array([7, 6, 0])
        longer = append(params, context, text, length)
        assert longer.overflow.tolist() == [True, False, False]
        assert (longer.cache.length - context.cache.length).tolist() == [6, 6, 0]


class TestDecode:
    @pytest.mark.parametrize("temperature", [0.0, 0.7])
    def test_log_probs_equal_the_full_pass(self, context, params, temperature):
        after, new, *_ = decode(params, context, Sampling(temperature))
        scores = full_log_probs(params, after.tokens) / (temperature or 1)
        scores = jax.nn.log_softmax(scores)[:, :-1]
        chosen = jnp.take_along_axis(scores, after.tokens[:, 1:, None], -1)[..., 0]
        own = after.sampled[:, 1:]
        assert own.sum() >= ROWS
        np.testing.assert_allclose(after.log_prob[:, 1:][own], chosen[own], atol=1e-4)
        assert not after.log_prob[~after.sampled].any()
        if not temperature:
            best = jnp.argmax(scores, axis=-1)
            assert jnp.array_equal(after.tokens[:, 1:][own], best[own])
        for row in range(ROWS):
            count = int(after.sampled[row].sum())
            own = after.tokens[row, after.sampled[row]]
            assert own.tolist() == new[row, :count].tolist()
            assert not new[row, count:].any()

    def test_rows_stop_after_the_end_token(self, context, params):
        """The number of steps is that of the longest row."""
        after, new, ended, num_steps = decode(params, context, Sampling(2.0))
        count = after.sampled.sum(axis=1)
        assert num_steps == count.max()
        for row in range(ROWS):
            tokens = new[row, : count[row]].tolist()
            assert END not in tokens[:-1]
            assert bool(ended[row]) == (tokens[-1] == END)
            assert ended[row] or count[row] == 10
        assert ended.any()

    def test_inactive_rows_get_nothing(self, context, params):
        active = np.array([True, False, True])
        full = decode(params, context, Sampling(1.0))[0]
        after, new, ended, _ = decode(params, context, Sampling(1.0), active)
        assert ended[1] and not new[1].any() and not after.sampled[1].any()
        assert after.cache.length[1] == context.cache.length[1]
        others = jnp.array([0, 2])  # their samples do not depend on other rows
        assert jnp.array_equal(after.tokens[others], full.tokens[others])

    def test_num_tokens(self, context, params):
        after, new, _, num_steps = decode(params, context, Sampling(1.0), ALL, 1)
        assert num_steps == 1 and new.shape == (ROWS, 1)
        assert after.sampled.sum(axis=1).tolist() == [1] * ROWS


def test_rows_continue_a_shared_prefix(context, params, text):
    """They give the same result as rows that computed the prefix themselves."""
    one = decoding.empty_context(POLICY, 1, 6, ROOM, CONFIG.vocab_size)
    length = jnp.array([6])
    one = append(params, one, text[:1], length)
    cache = decoding.broadcast_prefix(POLICY, one.cache, 2, ROOM)
    assert cache.length.tolist() == [6, 6] and cache.num_used.tolist() == [0, 0]
    more, lengths = text[1:], jnp.array([2, 5])
    logits = jnp.zeros((2, CONFIG.vocab_size))
    prefill = jax.jit(partial(decoding.prefill, POLICY, chunk=4))
    cache, got = prefill(params, cache, logits, more, lengths)
    assert cache.length.tolist() == [8, 11] and cache.num_used.tolist() == [2, 5]
    for row in range(2):
        tokens = jnp.concatenate([text[0], more[row, : lengths[row]]])[None]
        expected = full_log_probs(params, tokens)[0, -1]
        np.testing.assert_allclose(jax.nn.log_softmax(got[row]), expected, rtol=1e-5)


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


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, top_p=0.3)])
def test_choices_within_a_small_nucleus_are_greedy(sampling):
    keys = jax.random.split(jax.random.key(0), 50)
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.2, 0.5, 0.3])), (50, 3))
    tokens, log_prob = decoding.choose(logits, keys, jnp.arange(50), sampling)
    assert jnp.all(tokens == 1)
    expected = np.log(0.5) if sampling.temperature == 0 else 0.0
    np.testing.assert_allclose(log_prob, expected, atol=1e-6)


def test_temperature_flattens():
    keys = jax.random.split(jax.random.key(0), 2000)
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.9, 0.1])), (2000, 2))
    shares = [
        jnp.mean(decoding.choose(logits, keys, jnp.arange(2000), Sampling(t))[0])
        for t in (0.5, 1.0, 4.0)
    ]
    odds = np.array([(1 / 9) ** (1 / t) for t in (0.5, 1.0, 4.0)])
    np.testing.assert_allclose(shares, odds / (1 + odds), atol=0.03)
