"""PPO's value of a truncated episode is read where its next turn would begin."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import rollout, train
from openagent_jax.algorithms import policy_gradient, ppo
from openagent_jax.environments.tools import make as tools
from openagent_jax.text import style
from openagent_jax.types import Sizes
from tests import helpers
from tests.algorithms.test_reinforcement import shortest_prompt

# A policy that asks, refuses, or writes what cannot be read, with or without an end.
LIKELY = {style.END: 10.5, "Refuse": 10.0, "Ask": 8.0}
MAX_TURNS, ACTION, RESULT, NUM = 3, 3, 16, 32
DISCOUNT = 0.9
SPARE = 4
# What a hand-made critic says after these tokens; 0 after all others.
AT_END, AT_START = 100.0, 10.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made():
    """`(batch, episodes, episodes as an evaluation plays them, prompt tokens, room)`"""
    policy, params = helpers.biased_policy(LIKELY)
    width = params["embed"].shape[1]
    row, prompt = shortest_prompt()
    # Room for two turns, and for a third one unless the first two are long.
    room = prompt + 2 * (ACTION + RESULT) + SPARE
    environment = tools.functions(
        Sizes(MAX_TURNS, prompt, ACTION, RESULT, room), helpers.NUM_VISIBLE
    )
    tables = helpers.world("poi").tables
    tasks = jax.tree.map(
        lambda x: jnp.broadcast_to(x[row], (NUM, *x.shape[1:])), helpers.tasks("poi")
    )
    end, begin = (helpers.tokenizer().token_to_id(x) for x in (style.END, BEGIN))

    def hidden(params, tokens, *rest):
        """The hidden states, with two more features: what the token is."""
        marks = jnp.stack([tokens == end, tokens == begin], axis=-1)
        states = policy.hidden(params, tokens, *rest)
        return jnp.concatenate([states, marks.astype(states.dtype)], axis=-1)

    critic = jnp.zeros(width + 2).at[-2:].set(jnp.array([AT_END, AT_START]))
    params = params | {ppo.VALUE: {"weight": critic, "bias": jnp.zeros(())}}

    class Learner(policy_gradient.Learner):
        def play(self, params, tables, key, tasks, *args, **kwargs):
            played, reward, metrics = super().play(
                params, tables, key, tasks, *args, **kwargs
            )
            return played, reward, metrics | {"played": played}

    learner = Learner(
        policy._replace(
            hidden=hidden,
            head=lambda params, states: policy.head(params, states[..., :width]),
        ),
        environment,
        {"step": 1.0},
        1.0,
        policy_gradient.Surrogate(),
    )
    algorithm = ppo.ppo(learner, ppo.Critic(discount=DISCOUNT, gae_lambda=0.0))
    key = jax.random.key(0)

    @jax.jit
    def run(tables, tasks):
        state = dataclasses.replace(START, params=params)
        batch, metrics = algorithm.make_batch(state, tables, key, tasks)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(NUM))
        evaluated = rollout.rollout(
            policy, environment, tables, params, keys, tasks, 1.0
        )
        return batch, metrics["played"], evaluated

    return *helpers.host(run(tables, tasks)), prompt, room


BEGIN = "<|assistant|>"
START = train.TrainState(jnp.int32(0), {}, (), jax.random.key(0))


def last_column(mask):
    """The last column of each row that is in the mask."""
    return mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)


def ends_of(played):
    """Which episodes the policy has ended, the context has, and the turns have."""
    timestep, valid = played.trajectory.timestep, played.trajectory.valid
    ended = np.any(timestep.terminated & valid, axis=1)
    return ended, played.cut, ~ended & ~played.cut


def test_truncated_episodes_bootstrap_from_the_next_turn(made):
    """With a lambda of 0, the target of a turn is its reward plus the discounted next
    value. The critic says something else at the end of an action."""
    batch, played, *_ = made
    target, rows = batch.extra.critic.target, np.arange(NUM)
    last = target[rows, last_column(played.sampled)]
    ended, cut, out_of_turns = ends_of(played)
    assert min(ended.sum(), cut.sum(), out_of_turns.sum()) > 2
    np.testing.assert_allclose(last[ended], 1.0)
    np.testing.assert_allclose(last[~ended], 1 + DISCOUNT * AT_START)
    # So do all other turns, by the value of the turn that follows them.
    first = target[rows, np.argmax(played.sampled, axis=1)]
    several = played.trajectory.valid[:, 1]
    assert several.any()
    np.testing.assert_allclose(first[several], 1 + DISCOUNT * AT_START)


def test_the_place_is_one_whose_value_is_trained(made):
    """The value loss covers the token before each sampled one. Among these is the token
    that the bootstrap reads, at the start of other turns, and never the end mark."""
    batch, played, *_ = made
    trained = np.pad(batch.loss_mask[:, 1:], ((0, 0), (0, 1)))
    end, begin = (helpers.tokenizer().token_to_id(x) for x in (style.END, BEGIN))
    assert not np.any(played.tokens[trained] == end)
    assert np.sum(played.tokens[trained] == begin) == np.sum(played.trajectory.valid)
    truncated = ~ends_of(played)[0]
    last = played.tokens[np.arange(NUM), last_column(played.valid)]
    assert np.all(last[truncated] == begin)


def test_the_last_result_always_fits(made):
    _, played, _, prompt, room = made
    length = np.sum(played.valid, axis=1)
    assert not played.overflow.any() and length.max() <= room
    # Without the last result, no row would be as long.
    assert length.max() > prompt + MAX_TURNS * ACTION
    first = np.arange(room) < length[:, None]
    np.testing.assert_array_equal(played.valid, first)


def test_evaluations_do_not_change(made):
    """They play the same episodes, and their tokens end with the last action."""
    _, played, evaluated, *_ = made
    names = "trajectory", "sampled", "log_prob", "overflow", "cut", "idle"
    for name in names:
        jax.tree.map(
            np.testing.assert_array_equal,
            getattr(played, name),
            getattr(evaluated, name),
        )
    ended = ends_of(played)[0]
    both = evaluated.valid
    np.testing.assert_array_equal(played.tokens[both], evaluated.tokens[both])
    np.testing.assert_array_equal(played.valid[ended], evaluated.valid[ended])
    assert np.all(played.valid.sum(1)[~ended] > both.sum(1)[~ended])
    last = last_column(both)
    assert np.all(evaluated.sampled[np.arange(NUM), last])
