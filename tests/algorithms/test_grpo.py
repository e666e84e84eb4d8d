"""GRPO on hand-made episodes: what is trained on, and what counts in the loss."""

from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import losses, optim, sharding
from openagent_jax.algorithms import grpo, policy_gradient
from openagent_jax.curriculum import mix
from openagent_jax.perturb import Entry
from openagent_jax.rollout import Rollout
from openagent_jax.types import Curriculum, Policy
from tests import helpers

CONSTANT = 10  # the largest number of tokens of an episode
SIZES = helpers.ENVIRONMENT.sizes._replace(max_turns=2, action_tokens=5)
# The probabilities of the two tokens, now and in the reference model.
NOW, REFERENCE = np.array([0.25, 0.75]), np.array([0.5, 0.5])


def uncalled(*_):
    raise AssertionError


def head(params, hidden):
    return hidden + params["w"].reshape((1,) * (hidden.ndim - 1) + (-1,))


# Every token is drawn from the same distribution.
POLICY = Policy(
    init=uncalled,
    hidden=lambda params, tokens, *_: jnp.zeros((*tokens.shape, 1)),
    init_cache=uncalled,
    extend=uncalled,
    head=head,
)
PARAMS = {
    "w": jnp.log(NOW),
    optim.REFERENCE: {"w": jnp.log(REFERENCE)},
}


def algorithm(play, groups, loss="dapo", **settings):
    """GRPO whose episodes are made by `play(tasks, num_samples)`."""

    class Learner(policy_gradient.Learner):
        def play(self, params, tables, key, tasks, num_samples=1, show_end=False):
            assert not show_end  # only PPO needs it
            return *play(tasks, num_samples), {}

    environment = helpers.ENVIRONMENT._replace(sizes=SIZES)
    surrogate = policy_gradient.Surrogate(loss=loss, **settings)
    learner = Learner(POLICY, environment, {}, 1.0, surrogate)
    return grpo.grpo(learner, groups)


def make_batch(made, tasks):
    return made.make_batch(SimpleNamespace(params=PARAMS), (), jax.random.key(0), tasks)


def episodes(tokens, num_sampled, overflow=False) -> Rollout:
    """Episodes with a prompt of one token; tokens are counted modulo 2."""
    column = jnp.arange(tokens.shape[1])[None]
    sampled = (0 < column) & (column <= num_sampled[:, None])
    log_prob = jnp.where(sampled, jnp.log(NOW)[tokens % 2], 0.0)
    none = jnp.zeros(len(tokens), bool)
    valid = column <= num_sampled[:, None]
    return Rollout(
        (), tokens, valid, sampled, log_prob, none | overflow, none, none, none
    )


# Two groups of two episodes, of 2, 1, 1 and 3 tokens. Those of the second group earn
# the same. On policy, all ratios are 1.


def two_groups(tasks, num_samples, overflow=False):
    del tasks, num_samples
    tokens = jnp.array([[0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    reward = jnp.array([[1.0], [0.0], [1.0], [1.0]])
    return episodes(tokens, jnp.array([2, 1, 1, 3]), overflow), reward


K1, K0 = 2 / 3 - np.log(2 / 3) - 1, 2 - np.log(2) - 1  # KL of token 1 and of token 0
BETA = 0.1
LOG_P = np.log(0.75)  # of the tokens of the first group


@pytest.mark.parametrize(
    ("loss", "num_tokens", "divisor", "expected"),
    [
        # The sequences of the first group have the losses -0.5 and 0.5 per token.
        ("grpo", 7, 4, (-0.5 + 0.5) + BETA * (2 * K1 + 2 * K0)),
        ("gspo", 7, 4, (-0.5 + 0.5) + BETA * (2 * K1 + 2 * K0)),
        ("dr_grpo", 7, 4 * CONSTANT, (-2 * 0.5 + 0.5) + BETA * (3 * K1 + 4 * K0)),
        ("reinforce", 7, 7, (-2 + 1) * 0.5 * LOG_P + BETA * (3 * K1 + 4 * K0)),
        # Dynamic sampling: the second group is left out.
        ("dapo", 3, 3, (-2 * 0.5 + 0.5) + BETA * 3 * K1),
        ("cispo", 3, 3, (-2 + 1) * 0.5 * LOG_P + BETA * 3 * K1),
    ],
)
def test_groups_with_equal_rewards(loss, num_tokens, divisor, expected):
    made = algorithm(two_groups, grpo.Groups(size=2), loss, kl=BETA)
    batch, metrics = make_batch(made, jnp.arange(2))
    assert metrics["frac_reward_zero_std"] == 0.5
    assert np.sum(batch.loss_mask) == num_tokens
    assert np.sum(batch.divisor) == divisor
    assert not np.any(batch.extra.advantage[2:])
    value, _ = made.loss_fn(PARAMS, batch, jnp.sum(batch.divisor))
    np.testing.assert_allclose(value, expected / divisor, rtol=1e-5, atol=1e-7)


def test_overflowed_episodes_do_not_move_the_baseline():
    """A group of which all or all but one overflowed teaches nothing."""
    overflow = jnp.array([True, False, False, True, True, False, True, True, True])
    reward = jnp.array([5.0, 1.0, 0.0, 5.0, 1.0, 0.0, 5.0, 1.0, 0.0])[:, None]

    def play(tasks, num_samples):
        tokens = jnp.zeros((9, 4), jnp.int32)
        return episodes(tokens, jnp.full(9, 2), overflow), reward

    batch, metrics = make_batch(
        algorithm(play, grpo.Groups(size=3), "grpo"), jnp.arange(3)
    )
    advantage = np.asarray(batch.extra.advantage)[:, 1]
    np.testing.assert_allclose(advantage, [0, 0.5, -0.5, *[0] * 6], atol=1e-6)
    assert metrics["frac_reward_zero_std"] == pytest.approx(2 / 3)
    assert not np.any(np.asarray(batch.loss_mask)[np.asarray(overflow)])


@pytest.mark.parametrize("std", ["group", "batch"])
def test_rounding_gives_no_advantage(std):
    """A mean of equal rewards may differ from them in the last digit."""

    def play(tasks, num_samples):
        tokens = jnp.zeros((9, 4), jnp.int32)
        reward = jnp.array([0.0] * 3 + [0.1] * 3 + [1.0, 0.0, 0.0])[:, None]
        return episodes(tokens, jnp.full(9, 2)), reward

    made = algorithm(play, grpo.Groups(size=3, std=std), "grpo")
    batch, _ = make_batch(made, jnp.arange(3))
    assert not np.any(batch.extra.advantage[:6]) and np.any(batch.extra.advantage[6:])


def test_episodes_with_truncated_texts_are_not_trained_on():
    def play(tasks, num_samples):
        return two_groups(tasks, num_samples, jnp.array([True, False, False, True]))

    made = algorithm(play, grpo.Groups(size=2), "grpo")
    batch, _ = make_batch(made, jnp.arange(2))
    assert np.sum(batch.loss_mask, axis=1).tolist() == [0, 1, 1, 0]
    assert np.sum(batch.divisor) == 2


def test_clips_are_those_of_the_loss():
    """An action that has become twice as likely counts up to the upper clip."""

    def ratio(loss, **clips):
        def play(tasks, num_samples):
            played, reward = two_groups(tasks, num_samples)
            return played._replace(log_prob=played.log_prob - np.log(2)), reward

        made = algorithm(play, grpo.Groups(size=2), loss, **clips)
        batch, _ = make_batch(made, jnp.arange(2))
        only = batch.loss_mask & (batch.extra.advantage > 0)
        extra = batch.extra._replace(weight=jnp.ones(4))
        batch = type(batch)(
            batch.tokens, batch.positions, batch.segments, only, batch.divisor, extra
        )
        value, _ = made.loss_fn(PARAMS, batch, jnp.float32(2 * 0.5))
        return float(-value)

    assert ratio("gspo") == pytest.approx(1 + 4e-4, abs=1e-6)
    assert ratio("dapo") == pytest.approx(1.28)
    assert ratio("grpo") == pytest.approx(1.2)
    assert ratio("gspo", clip_high=0.5) == pytest.approx(1.5)
    assert ratio("dapo", clip_low=0.1) == pytest.approx(1.28)
    assert losses.LOSSES["gspo"].clip_low == 3e-4


# What is trained on of clean and perturbed tasks.


class Toy(NamedTuple):
    """A stand-in for tasks."""

    index: jax.Array
    noisy: jax.Array


NOISE = Entry(
    name="noise",
    make=lambda pools: lambda key, task, strength: task._replace(noisy=strength > 0),
    tier="perception",
    shift="query",
    part="task",
    touches=("noisy",),
)


def tasks_of(key, num_tasks, **settings):
    """Toy tasks, a share of them perturbed."""

    def sample(state, tables, task_key, edit_key, step, num):
        return Toy(jnp.arange(num), jnp.zeros(num, bool))

    environment = helpers.ENVIRONMENT._replace(
        perturbations=(NOISE,), pools=lambda tables, task, split: ()
    )
    curriculum = mix.paft(
        Curriculum(lambda: (), sample, lambda state, tasks, metrics: state),
        environment,
        ("noise",),
        strength=lambda step: 1.0,
        **settings,
    )
    return curriculum.sample((), (), key, key, jnp.int32(0), num_tasks)


def player(useful):
    """Make episodes that hold their task. `useful(noisy, index)` tells where rewards
    differ."""

    def play(tasks, num_samples):
        index, noisy = (jnp.repeat(x, num_samples) for x in tasks)
        tokens = jnp.stack([index, noisy, noisy, noisy], axis=1).astype(jnp.int32)
        first = jnp.arange(len(index)) % num_samples == 0
        reward = jnp.where(useful(noisy, index), first, False)[:, None]
        return episodes(tokens, jnp.full(len(index), 3)), reward.astype(jnp.float32)

    return play


@pytest.mark.parametrize(
    "useful",
    [
        lambda noisy, index: noisy,
        lambda noisy, index: ~noisy,
        lambda noisy, index: index % 3 == 0,
        lambda noisy, index: index < 0,
    ],
    ids=["perturbed", "clean", "a third", "none"],
)
def test_oversampling_keeps_the_share(getkey, useful):
    """30 % of the groups that are trained on are perturbed, whichever are useful."""
    made = algorithm(player(useful), grpo.Groups(size=2, oversample=4), "grpo")

    @jax.jit
    def kept(key):
        tasks = tasks_of(key, 4 * 10, alpha=0.3, block=4)
        batch, _ = make_batch(made, tasks)
        return batch.tokens, jnp.any(batch.extra.advantage != 0, axis=1)

    for _ in range(20):
        tokens, teaches = helpers.host(kept(getkey()))
        assert len(tokens) == 10 * 2
        assert np.sum(tokens[:, 1]) == 3 * 2
        # Rows of a group stay together, and one group of each four is kept.
        assert np.all(tokens[::2] == tokens[1::2])
        index = tokens[::2, 0]
        assert (index // 4).tolist() == list(range(10))
        # A useful one is kept where there is one.
        wanted = useful(*(x.reshape(-1, 4) for x in tasks_like(tokens)))
        np.testing.assert_array_equal(teaches[::2], np.any(wanted, axis=1))


def tasks_like(tokens):
    """All 40 tasks, given those that were kept: `(noisy, index)`."""
    return np.repeat(tokens[::2, 1] > 0, 4), np.arange(40)


@pytest.mark.parametrize("unit", [1, 2])
def test_pairs_stay_neighbours(getkey, unit):
    """A clean task and its perturbed version are kept together: as one group, or as two
    groups."""
    groups = grpo.Groups(2, oversample=3, paired=unit == 1, unit=unit)
    useful = player(lambda noisy, index: noisy & (index % 2 == 1))
    made = algorithm(useful, groups, "grpo")
    tasks = tasks_of(getkey(), 3 * 8, alpha=0.5, paired=True)
    batch, _ = make_batch(made, tasks)
    index, noisy = batch.tokens[:, 0], batch.tokens[:, 1]
    assert noisy.tolist() == [0, 0, 1, 1] * 4
    assert index.tolist() == [x for pair in (1, 3, 7, 9) for x in [pair] * 4]


def test_devices_keep_the_same_groups(getkey):
    """Each of eight devices chooses among its own groups."""
    useful = player(lambda noisy, index: index % 3 == 0)
    made = algorithm(useful, grpo.Groups(size=2, oversample=4), "grpo")
    tasks = tasks_of(getkey(), 4 * 8, alpha=0.3, block=4)
    placed = sharding.batch_sharding(sharding.make_mesh())
    make = jax.jit(lambda tasks: make_batch(made, tasks)[0])
    expected, spread = make(tasks), jax.device_put(tasks, placed)
    compiled = make.lower(spread).compile()
    got = compiled(spread)
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    for name in ("all-gather", "all-to-all", "collective-permute"):
        assert name not in compiled.as_text()
