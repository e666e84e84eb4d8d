"""Advantages, by hand and compared with another implementation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import advantages

REWARD = jnp.array([[1.0, 0.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 4.0]])


class TestGroups:
    def test_the_mean_is_subtracted(self):
        got = advantages.group_relative(REWARD)
        expected = [[0.5, -0.5, -0.5, 0.5], [0, 0, 0, 0], [-1, -1, -1, 3]]
        np.testing.assert_allclose(got, expected, atol=1e-6)

    def test_std(self):
        advantage = advantages.group_relative(REWARD)
        none = advantages.scale_by_std(advantage, REWARD, "none")
        np.testing.assert_array_equal(none, advantage)
        group = advantages.scale_by_std(advantage, REWARD, "group", epsilon=0.0)
        np.testing.assert_allclose(group[0], [1, -1, -1, 1], rtol=1e-6)
        np.testing.assert_allclose(group[2], np.array([-1, -1, -1, 3]) / 3**0.5, 1e-6)
        batch = advantages.scale_by_std(advantage, REWARD, "batch", epsilon=0.0)
        np.testing.assert_allclose(batch, advantage / np.std(REWARD), rtol=1e-6)
        guarded = advantages.scale_by_std(advantage, REWARD, "group")
        assert np.all(guarded[1] == 0)
        with pytest.raises(ValueError, match='"row" is not one of none, group, batch'):
            advantages.scale_by_std(advantage, REWARD, "row")

    def test_groups_with_equal_rewards_are_useless(self):
        useful = advantages.has_variance(advantages.group_relative(REWARD))
        assert list(useful) == [True, False, True]

    def test_one_of_each_block_is_kept(self):
        """A useful one, the first of these; blocks do not compete."""
        score = jnp.array([0, 1, 1, 0, 0, 0, 1, 2, 1])
        assert list(advantages.best_in_blocks(score, 3)) == [1, 0, 1]
        assert list(advantages.best_in_blocks(score, 9)) == [7]
        assert list(advantages.best_in_blocks(score, 1)) == [0] * 9


class TestTurns:
    def test_by_hand(self):
        """delta = r + 0.5 v' - v; advantage = delta + 0.5 * 0.8 advantage'."""
        got = advantages.gae(
            jnp.array([[1.0, 2.0, 9.0]]),
            jnp.array([[4.0, 6.0, 9.0]]),
            jnp.array([[True, True, False]]),
            jnp.array([10.0]),
            0.5,
            0.8,
        )
        second = 2 + 0.5 * 10 - 6
        first = (1 + 0.5 * 6 - 4) + 0.4 * second
        np.testing.assert_allclose(got, [[first, second, 0]], rtol=1e-6)

    def test_truncation_is_not_termination(self, getkey):
        reward, value = jax.random.normal(getkey(), (2, 1, 4))
        valid = jnp.ones((1, 4), bool)
        terminated, truncated = (
            advantages.gae(reward, value, valid, jnp.array([last]), 0.9, 0.7)
            for last in (0.0, 2.0)
        )
        np.testing.assert_allclose(
            truncated[0, 3] - terminated[0, 3], 0.9 * 2, rtol=1e-5
        )
        factor = (0.9 * 0.7) ** np.arange(3, -1, -1)
        np.testing.assert_allclose(
            truncated[0] - terminated[0], 0.9 * 2 * factor, rtol=1e-4
        )

    def test_gae_equals_rlax(self, getkey):
        rlax = pytest.importorskip("rlax")
        reward, value = jax.random.normal(getkey(), (2, 5, 7))
        last = jax.random.normal(getkey(), (5,))
        length = jnp.array([7, 1, 3, 5, 6])
        valid = jnp.arange(7)[None] < length[:, None]
        got = advantages.gae(reward, value, valid, last, 0.97, 0.9)
        for i, n in enumerate(length):
            values = jnp.append(value[i, :n], last[i])
            expected = rlax.truncated_generalized_advantage_estimation(
                reward[i, :n], jnp.full(n, 0.97), 0.9, values
            )
            np.testing.assert_allclose(got[i, :n], expected, rtol=1e-4, atol=1e-5)
            assert np.all(got[i, n:] == 0)

    def test_broadcast_to_tokens(self):
        """Tokens of the environment between two turns get 0."""
        sampled = jnp.array([[0, 1, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0, 0]], bool)
        turn = advantages.turn_index(sampled)
        assert turn.tolist() == [[-1, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]]
        per_turn = jnp.array([[5.0, 7.0], [3.0, 0.0]])
        got = advantages.broadcast_to_tokens(per_turn, sampled)
        assert got.tolist() == [[0, 5, 5, 0, 0, 7, 0], [3, 0, 0, 0, 0, 0, 0]]
