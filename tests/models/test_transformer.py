"""The decoder: caches, masks and dtypes change nothing that they should not."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.models import layers, transformer

CONFIG = transformer.ModelConfig(
    vocab_size=61,
    width=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_size=8,
    mlp_width=48,
)
LENGTHS = (7, 90, 70)  # more than one block of queries


def noisy_params(config):
    """Return parameters so large that every part of the model affects the logits."""
    shapes = jax.eval_shape(transformer.make_policy(config).init, jax.random.key(0))
    numbers = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(numbers.normal(x.ndim < 2, 0.2, x.shape), jnp.float32),
        shapes,
    )


def right_padded(key, lengths=LENGTHS):
    size = max(lengths)
    tokens = jax.random.randint(key, (len(lengths), size), 0, CONFIG.vocab_size)
    positions = jnp.tile(jnp.arange(size)[None], (len(lengths), 1))
    return tokens, positions, positions < jnp.array(lengths)[:, None]


@partial(jax.jit, static_argnums=0)
def full_logits(config, params, tokens, positions, valid):
    policy = transformer.make_policy(config)
    return policy.head(params, policy.hidden(params, tokens, positions, valid))


def test_cached_decoding_equals_full_forward(getkey):
    """With prompts of several lengths, then a padded chunk, then single tokens."""
    config = dataclasses.replace(CONFIG, tied=False)
    policy = transformer.make_policy(config)
    params = noisy_params(config)
    chunks = [(5, 70, 33), (2, 0, 17)] + [(1, 1, 1)] * 3  # new tokens of each row
    totals = np.sum(chunks, axis=0)
    tokens, positions, valid = right_padded(getkey(), tuple(totals))
    full = jax.nn.log_softmax(full_logits(config, params, tokens, positions, valid))

    cache = policy.init_cache(3, [5, 1, sum(max(chunk) for chunk in chunks) - 2])
    extend = jax.jit(policy.extend)
    start = np.zeros(3, int)
    for num_new in chunks:
        columns = np.arange(max(num_new))[None]
        index = np.minimum(start[:, None] + columns, tokens.shape[1] - 1)
        used = columns < np.array(num_new)[:, None]
        new = jnp.where(used, jnp.take_along_axis(tokens, jnp.array(index), 1), 3)
        x, cache = extend(params, cache, new, jnp.array(num_new))
        got = jax.nn.log_softmax(policy.head(params, x))
        for row in range(3):
            np.testing.assert_allclose(
                got[row, : num_new[row]],
                full[row, start[row] : start[row] + num_new[row]],
                atol=1e-5,
                rtol=1e-5,
            )
        start += np.array(num_new)
    np.testing.assert_array_equal(cache.length, totals)


def test_slots_out_of_range_are_not_written():
    """On either side: -1 is not the last slot."""
    slots = jnp.array([[-2, -1, 0], [1, 2, 3]])
    got = layers.write_slots(jnp.zeros((2, 1, 2)), jnp.ones((2, 1, 3)), slots, axis=2)
    assert got[:, 0].tolist() == [[1, 0], [0, 1]]


def test_extend_works_as_a_loop_body(getkey):
    policy = transformer.make_policy(CONFIG)
    params = noisy_params(CONFIG)
    tokens, positions, valid = right_padded(getkey(), (6, 6))

    def step(cache, column):
        hidden, cache = policy.extend(params, cache, column[:, None], jnp.ones(2, int))
        return cache, hidden[:, 0]

    _, hidden = jax.lax.scan(step, policy.init_cache(2, [4, 2]), tokens.T)
    full = jax.jit(policy.hidden)(params, tokens, positions, valid)
    np.testing.assert_allclose(hidden.swapaxes(0, 1), full, atol=1e-5)


@pytest.mark.parametrize("unstacked", [False, True])
def test_unstacked_layers_are_not_copied(unstacked):
    """A program with a loop copies every layer out of its stack, in each call."""
    policy = transformer.make_policy(dataclasses.replace(CONFIG, mlp_width=4096))
    params = policy.init(jax.random.key(0))
    size = sum(x.nbytes for x in jax.tree.leaves(params["layers"]))

    def loop(params, cache):
        def step(i, cache):
            return policy.extend(
                params, cache, jnp.zeros((1, 1), int), jnp.ones(1, int)
            )[1]

        return jax.lax.fori_loop(0, 3, step, cache)

    given = policy.unstack_layers(params) if unstacked else params
    memory = jax.jit(loop).lower(given, policy.init_cache(1, [4])).compile()
    memory = memory.memory_analysis()
    assert memory
    copied = memory.temp_size_in_bytes / size
    # The output of the last layer is not used here, so it is not copied.
    assert copied < 0.1 if unstacked else copied > 0.4


def test_no_gradient_from_the_future(getkey):
    """Token t depends on the embeddings of all tokens up to t, and on no others."""
    policy = transformer.make_policy(CONFIG)
    params = noisy_params(CONFIG)
    size, at = 70, 66
    tokens = jnp.arange(size)[None] % 60
    tokens = tokens.at[0, at + 1 :].set(60)  # a token used in the future only
    positions, valid = jnp.arange(size)[None], jnp.ones((1, size), bool)

    def score(embed):
        x = policy.hidden(params | {"embed": embed}, tokens, positions, valid)
        return x[0, at].sum()

    grad = np.abs(jax.jit(jax.grad(score))(params["embed"])).max(1)
    assert grad[60] == 0
    assert (grad[:60] > 0).all()


def test_padding_changes_nothing(getkey):
    """Neither the content of padding nor its amount affects valid tokens."""
    params = noisy_params(CONFIG)
    tokens, positions, valid = right_padded(getkey())
    got = full_logits(CONFIG, params, tokens, positions, valid)
    other = jnp.where(valid, tokens, (tokens + 1) % CONFIG.vocab_size)
    changed = full_logits(CONFIG, params, other, positions, valid)
    np.testing.assert_array_equal(got[valid], changed[valid])
    short = full_logits(
        CONFIG, params, tokens[:1, :7], positions[:1, :7], valid[:1, :7]
    )
    np.testing.assert_allclose(got[0, :7], short[0], atol=1e-5)
    # Padding on the left, with the positions of the unpadded row.
    left = [jnp.roll(x[2:], 20, axis=1) for x in (tokens, positions, valid)]
    moved = full_logits(CONFIG, params, *left)
    np.testing.assert_allclose(got[2, :70], moved[0, 20:], atol=1e-5)


def test_row_without_tokens_is_finite(getkey):
    params = noisy_params(CONFIG)
    tokens, positions, valid = right_padded(getkey(), (4, 4))
    valid = valid.at[0].set(False)

    def score(params):
        return full_logits(CONFIG, params, tokens, positions, valid).sum()

    value, grads = jax.jit(jax.value_and_grad(score))(params)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves((value, grads)))


@pytest.mark.parametrize("how", transformer.REMAT)
def test_remat_changes_nothing(getkey, how):
    params = noisy_params(CONFIG)
    batch = right_padded(getkey(), (20, 9))

    def grads(remat):
        config = dataclasses.replace(CONFIG, remat=remat)

        @jax.jit
        @jax.grad
        def grad(params):
            logits = full_logits.__wrapped__(config, params, *batch)
            return jax.nn.log_softmax(logits)[..., 0].mean()

        # The text of the program shows whether the layer is computed again.
        return grad(params), "rematted" in grad.lower(params).as_text(debug_info=True)

    (with_remat, rematted), (without, plain) = grads(how), grads("none")
    assert rematted and not plain
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        with_remat,
        without,
    )


def test_bfloat16_is_near_float32(getkey):
    params = noisy_params(CONFIG)
    batch = right_padded(getkey(), (20, 9))
    config = dataclasses.replace(CONFIG, dtype="bfloat16")
    low = full_logits(config, params, *batch)
    full = full_logits(CONFIG, params, *batch)
    assert low.dtype == full.dtype == jnp.float32
    assert 0 < jnp.abs(low - full).max() < 0.1 * jnp.abs(full).max()
    score = jax.grad(lambda p: full_logits(config, p, *batch).std())
    grads = jax.eval_shape(score, params)
    assert {x.dtype for x in jax.tree.leaves(grads)} == {jnp.dtype("float32")}


def test_logical_axes_fit_the_parameters(getkey):
    for tied in (True, False):
        config = dataclasses.replace(CONFIG, tied=tied)
        policy = transformer.make_policy(config)
        params = jax.eval_shape(policy.init, getkey())
        jax.tree.map(
            lambda x, axes: np.testing.assert_equal(len(axes), x.ndim),
            params,
            transformer.logical_axes(config),
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads=3"),
        ({"head_size": 7}, "head_size=7"),
        ({"dtype": "float16"}, "float16"),
    ],
)
def test_bad_config(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
