"""Policy-gradient losses, by hand and compared with another implementation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import losses

LOW, HIGH = 0.2, 0.28
# Ratios 1.5 and 0.5, with advantages of both signs; the last token is not sampled.
OLD = jnp.log(jnp.array([[0.2, 0.4, 0.2, 0.4, 0.9]]))
NOW = jnp.log(jnp.array([[0.3, 0.2, 0.3, 0.2, 0.1]]))
ADVANTAGE = jnp.array([[2.0, 2.0, -1.0, -1.0, 100.0]])
MASK = jnp.array([[True, True, True, True, False]])


def compute(kind, now=NOW, old=OLD, advantage=ADVANTAGE, mask=MASK):
    return losses.policy_gradient(kind, now, old, advantage, mask, LOW, HIGH)


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "dapo"])
def test_clipped_surrogate(kind):
    loss, clipped = compute(kind)
    # min(r A, clip(r) A): a good action counts up to 1.28, a bad one down to 0.8.
    expected = [-(1.28 * 2), -(0.5 * 2), 1.5 * 1, 0.8 * 1, 0]
    np.testing.assert_allclose(loss[0], expected, rtol=1e-6)
    assert clipped[0].tolist() == [1, 0, 0, 1, 0]


def test_cispo():
    loss, clipped = compute("cispo")
    log_p = np.log([0.3, 0.2, 0.3, 0.2])
    weight = np.array([1.28, 0.8, 1.28, 0.8]) * [2, 2, -1, -1]
    np.testing.assert_allclose(loss[0, :4], -weight * log_p, rtol=1e-6)
    assert clipped[0].tolist() == [1, 1, 1, 1, 0]
    # A clipped token still has a gradient: that of log p, weighted.
    grad = jax.grad(lambda now: jnp.sum(compute("cispo", now)[0]))(NOW)
    np.testing.assert_allclose(grad[0], [*-weight, 0], rtol=1e-6)


def test_reinforce():
    loss, clipped = compute("reinforce")
    expected = -np.array([2, 2, -1, -1]) * np.log([0.3, 0.2, 0.3, 0.2])
    np.testing.assert_allclose(loss[0], [*expected, 0], rtol=1e-6)
    assert not np.any(clipped)


def test_gspo_has_one_ratio_per_row():
    mask = MASK.at[0, 2:].set(False)  # 1.5 and 0.5: geometric mean 0.866
    loss, clipped = compute("gspo", mask=mask)
    ratio = (1.5 * 0.5) ** 0.5
    np.testing.assert_allclose(loss[0], [-2 * ratio, -2 * ratio, 0, 0, 0], rtol=1e-6)
    assert not np.any(clipped)
    # Each of the n tokens has the gradient of the ratio of its row: n times r A / n.
    grad = jax.grad(lambda now: jnp.sum(compute("gspo", now, mask=mask)[0]))(NOW)
    np.testing.assert_allclose(grad[0], [-2 * ratio, -2 * ratio, 0, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("kind", losses.LOSSES)
def test_gradient_on_policy(kind):
    """On policy, all losses have the gradient of the policy-gradient theorem."""
    grad = jax.grad(lambda now: jnp.sum(compute(kind, now, old=NOW)[0]))(NOW)
    np.testing.assert_allclose(grad, -jnp.where(MASK, ADVANTAGE, 0), rtol=1e-6)


@pytest.mark.parametrize("kind", losses.LOSSES)
def test_tokens_outside_the_mask_do_not_matter(kind):
    now, old = jnp.where(MASK, NOW, jnp.nan), jnp.where(MASK, OLD, -jnp.inf)
    advantage = jnp.where(MASK, ADVANTAGE, jnp.inf)

    def total(now, old, advantage):
        return jnp.sum(compute(kind, now, old, advantage)[0])

    clean = jax.value_and_grad(total)(NOW, OLD, ADVANTAGE)
    dirty = jax.value_and_grad(total)(now, old, advantage)
    np.testing.assert_array_equal(dirty[0], clean[0])
    np.testing.assert_array_equal(dirty[1], clean[1])
    assert clean[1][0, 4] == 0


def test_clipped_surrogate_equals_rlax():
    rlax = pytest.importorskip("rlax")
    mask = jnp.ones_like(MASK)
    ratio = jnp.exp(NOW - OLD)[0]
    loss, _ = losses.policy_gradient("dapo", NOW, OLD, ADVANTAGE, mask, 0.2, 0.2)
    expected = rlax.clipped_surrogate_pg_loss(ratio, ADVANTAGE[0], 0.2)
    np.testing.assert_allclose(jnp.mean(loss), expected, rtol=1e-6)


def test_unknown():
    with pytest.raises(ValueError, match='"ppo" is not one of grpo, dr_grpo, dapo'):
        compute("ppo")
    with pytest.raises(ValueError, match='"row" is not one of token, sequence'):
        losses.row_weights("row", MASK, 8)


def test_normalisers():
    """With rows of 4, 1 and 0 tokens that all have a loss of 1."""
    mask = jnp.array([[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]], bool)
    for name, row_sums, divisor in (
        ("token", [4, 1, 0], 5),
        ("sequence", [1, 1, 0], 2),
        ("constant", [4, 1, 0], 20),
    ):
        weight, row_divisor = losses.row_weights(name, mask, 10)
        np.testing.assert_allclose(weight * jnp.sum(mask, axis=1), row_sums)
        assert jnp.sum(row_divisor) == divisor


def test_kl_estimate():
    now, reference = jnp.log(jnp.array([[0.5, 0.2]])), jnp.log(jnp.array([[0.25, 0.9]]))
    got = losses.kl_estimate(now, reference, jnp.array([[True, False]]))
    np.testing.assert_allclose(got, [[0.5 - np.log(0.5) - 1, 0]], rtol=1e-6)


def test_kl_estimate_is_unbiased(getkey):
    """Its mean over samples is the KL divergence itself."""
    now, reference = jax.nn.log_softmax(jax.random.normal(getkey(), (2, 8)))
    exact = jnp.sum(jnp.exp(now) * (now - reference))
    tokens = jax.random.categorical(getkey(), now, shape=(200_000,))
    every = jnp.ones((1, 200_000), bool)
    got = losses.kl_estimate(now[tokens][None], reference[tokens][None], every)
    np.testing.assert_allclose(jnp.mean(got), exact, rtol=0.03)
    assert jnp.min(got) >= 0
