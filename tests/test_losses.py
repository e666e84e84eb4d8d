"""Cross-entropy compared with values worked out by hand, and what cannot affect it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import log_probs, losses
from openagent_jax.models import transformer
from openagent_jax.types import Batch, Policy

# Its parameters are the logits themselves, so gradients show which ones were used.
TABLE = Policy(
    init=None,
    hidden=lambda params, tokens, positions, segments: params,
    init_cache=None,
    extend=None,
    head=lambda params, hidden: hidden,
)
# At every position the three tokens have the probabilities 1/8, 2/8 and 5/8, rolled.
WEIGHTS = np.array([[[1, 2, 5], [5, 1, 2], [2, 5, 1], [1, 2, 5]]] * 2)
LOGITS = jnp.log(jnp.asarray(WEIGHTS, jnp.float32)) + jnp.array([[[3.0]], [[-100.0]]])
TOKENS = jnp.array([[0, 2, 1, 1], [2, 0, 0, 2]])
MASK = jnp.array([[False, True, False, True], [False, False, True, False]])


def make_batch(tokens=TOKENS, mask=MASK, valid=None):
    valid = jnp.ones(tokens.shape, bool) if valid is None else valid
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1])[None], tokens.shape)
    segments = valid.astype(jnp.int32)
    return Batch(tokens, positions, segments, mask, jnp.sum(mask, 1) * 1.0)


def cross_entropy(logits=LOGITS, batch=None, num_loss_tokens=3.0):
    batch = batch or make_batch()
    return losses.cross_entropy(TABLE, logits, batch, jnp.float32(num_loss_tokens))


def test_by_hand():
    log_prob, is_best = log_probs.token_log_probs(TABLE, LOGITS, make_batch())
    expected = np.log([[1, 5 / 8, 1, 5 / 8], [1, 1, 5 / 8, 1]])
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    np.testing.assert_array_equal(is_best, MASK)
    loss, metrics = cross_entropy()
    np.testing.assert_allclose(loss, -np.log(5 / 8), rtol=1e-5)
    assert metrics["token_accuracy"] == 3  # a sum, which becomes a mean in the step
    everything = jnp.ones_like(MASK).at[:, 0].set(False)
    loss, metrics = cross_entropy(batch=make_batch(mask=everything), num_loss_tokens=6)
    np.testing.assert_allclose(loss, -(3 * np.log(5) - 6 * np.log(8)) / 6, rtol=1e-5)
    np.testing.assert_allclose(metrics["token_accuracy"], 3)


def test_only_loss_tokens_have_a_gradient():
    grads = jax.grad(lambda logits: cross_entropy(logits)[0])(LOGITS)
    # Token t is predicted at t - 1.
    used = np.roll(MASK, -1, axis=1)
    np.testing.assert_array_equal(np.any(np.asarray(grads) != 0, axis=-1), used)
    # At row 0, column 0, by hand: softmax minus one-hot, divided by 3 loss tokens.
    expected = (np.array([1, 2, 5]) / 8 - np.array([0, 0, 1])) / 3
    np.testing.assert_allclose(grads[0, 0], expected, rtol=1e-4)


def test_predictions_of_observations_do_not_matter(getkey):
    used = jnp.roll(MASK, -1, axis=1)[..., None]
    noise = 100 * jax.random.normal(getkey(), LOGITS.shape)
    same, other = (
        cross_entropy(jnp.where(where, LOGITS + noise, LOGITS))
        for where in (~used, used)
    )
    assert jax.tree.all(jax.tree.map(jnp.array_equal, same, cross_entropy()))
    assert other[0] != same[0]


def test_losses_of_parts_add_up():
    whole, metrics = cross_entropy()
    parts = [
        cross_entropy(LOGITS[i : i + 1], make_batch(TOKENS[i : i + 1], MASK[i : i + 1]))
        for i in range(2)
    ]
    np.testing.assert_allclose(sum(loss for loss, _ in parts), whole, rtol=1e-6)
    for name, value in metrics.items():
        np.testing.assert_allclose(sum(m[name] for _, m in parts), value, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_large_logits(scale):
    loss, _ = cross_entropy(scale * LOGITS)
    assert jnp.isfinite(loss)


@pytest.mark.slow
def test_padding_changes_nothing(getkey):
    config = transformer.ModelConfig(
        vocab_size=11,
        width=8,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_size=4,
        mlp_width=8,
    )
    policy = transformer.make_policy(config)
    params = jax.tree.map(lambda x: 5 * x, policy.init(getkey()))
    tokens = jax.random.randint(getkey(), (3, 9), 0, 11)
    valid = jnp.arange(9)[None] < jnp.array([[9], [5], [2]])
    mask = valid & jax.random.bernoulli(getkey(), 0.5, (3, 9)).at[:, 0].set(False)

    @jax.jit
    def loss_and_grads(params, batch):
        def loss(params):
            return losses.cross_entropy(policy, params, batch, jnp.float32(7))[0]

        return jax.value_and_grad(loss)(params)

    clean = loss_and_grads(params, make_batch(tokens, mask, valid))
    other = loss_and_grads(
        params, make_batch(jnp.where(valid, tokens, 10 - tokens), mask, valid)
    )
    assert jax.tree.all(jax.tree.map(jnp.array_equal, clean, other))

    def pad(x):
        return jnp.pad(x, ((0, 0), (0, 4)))

    longer = loss_and_grads(params, make_batch(pad(tokens), pad(mask), pad(valid)))
    # Sums over longer rows may be taken in another order, which changes some ulps.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        clean,
        longer,
    )


# A head with weights of its own, and hidden states that are parameters.
LINEAR = Policy(
    init=None,
    hidden=lambda params, tokens, positions, segments: params["hidden"],
    init_cache=None,
    extend=None,
    head=lambda params, hidden: hidden @ params["head"],
)


def test_rows_of_several_blocks(getkey):
    """Compared with a plain computation: full, partly full, and skipped blocks."""
    size, width, vocab_size = 3 * log_probs.BLOCK + 5, 4, 7
    keys = jax.random.split(getkey(), 4)
    params = {
        "hidden": jax.random.normal(keys[0], (3, size, width)),
        "head": jax.random.normal(keys[3], (width, vocab_size)),
    }
    tokens = jax.random.randint(keys[1], (3, size), 0, vocab_size)
    # The fraction of loss tokens: from none to about 70 of 101.
    fraction = jnp.array([[0.0], [0.2], [0.7]])
    mask = jax.random.uniform(keys[2], (3, size)) < fraction
    batch = make_batch(tokens, mask)

    def plain(params):
        logits = params["hidden"] @ params["head"] / 0.7
        every = jax.nn.log_softmax(logits[:, :-1])
        chosen = jnp.take_along_axis(every, tokens[:, 1:, None], axis=-1)[..., 0]
        is_best = jnp.argmax(every, axis=-1) == tokens[:, 1:]
        here = mask[:, 1:]
        return [jnp.pad(here * x, ((0, 0), (1, 0))) for x in (chosen, is_best)]

    def in_blocks(params):
        return log_probs.token_log_probs(LINEAR, params, batch, temperature=0.7)

    for x, y in zip(in_blocks(params), plain(params), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-6)
    grads = [
        jax.grad(lambda x, f=f: jnp.sum(f(x)[0] * jnp.arange(size)[None]))(params)
        for f in (in_blocks, plain)
    ]
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-4), *grads
    )


def test_what_is_not_trained_costs_nothing():
    """One loop over blocks has the logits and their gradient, another the weights'."""
    params = {"hidden": jnp.ones((2, 4, 5)), "head": jnp.ones((5, 3))}

    def num_loops(*trained):
        def loss(part):
            batch = make_batch()
            return losses.cross_entropy(LINEAR, params | part, batch, jnp.float32(3))[0]

        part = {name: params[name] for name in trained}
        text = jax.jit(jax.value_and_grad(loss)).lower(part).as_text()
        return text.count("stablehlo.while")

    assert num_loops("hidden", "head") == num_loops("head") == 2
    assert num_loops("hidden") == num_loops() == 1
