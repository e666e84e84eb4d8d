"""The rewards of episodes, by component, compared with what was done in them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import rewards
from openagent_jax.text import reply_scan
from tests import helpers

ENVIRONMENT = helpers.ENVIRONMENT
COMPONENTS = [name for name, _ in ENVIRONMENT.rewards]


@pytest.fixture(scope="module")
def earn():
    """`episodes -> {component: [B, T]}` of valid actions, replayed in one program."""

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def run(tables, episode):
        def act(state, action):
            return ENVIRONMENT.step(tables, episode.task, state, action)

        start = ENVIRONMENT.reset(tables, episode.task)
        _, timestep = jax.lax.scan(act, start, episode.action)
        return timestep.reward

    def earn(episodes):
        paid = helpers.host(run(helpers.world("poi").tables, episodes))
        return {name: np.where(episodes.valid, x, 0) for name, x in paid.items()}

    return earn


@functools.cache
def expert(entry: str = helpers.CLEAN):
    """Episodes of the expert, and the fewest calls."""
    tasks = helpers.tasks("poi", "train")
    tables = helpers.world("poi").tables
    if entry != helpers.CLEAN:
        tasks = helpers.edit_alone(entry, tables, tasks, "train")
    return helpers.host(helpers.demonstrate(tables, tasks))


def change(episodes, turn: int, **fields):
    """The same episodes with another action at one turn, and nothing after it."""
    action = episodes.action
    kind = np.array(action.kind)
    kind[:, turn] = fields["kind"]
    value = np.array(action.value)
    value[:, turn] = fields.get("value", -1)
    valid = np.array(episodes.valid)
    valid[:, turn] = True
    valid[:, turn + 1 :] = False
    action = dataclasses.replace(action, kind=kind, value=value)
    return dataclasses.replace(episodes, action=action, valid=valid)


def sums(earned):
    return {name: x.sum(axis=1) for name, x in earned.items()}


@pytest.mark.slow
def test_the_expert_earns_the_outcome(earn):
    episodes, _ = expert()
    earned = earn(episodes)
    assert set(earned) == set(COMPONENTS)
    for name, paid in earned.items():  # the same as when the expert played
        seen = np.where(episodes.valid, episodes.timestep.reward[name], 0)
        np.testing.assert_array_equal(paid, seen)
    num_turns = episodes.valid.sum(axis=1)
    got = sums(earned)
    assert np.all(got["outcome"] == 1)
    np.testing.assert_allclose(got["progress"], 1, rtol=1e-6)
    np.testing.assert_array_equal(got["step"], num_turns)
    for name in ("refusal", "abstain", "wrong", "effect", "format", "detour"):
        assert not np.any(got[name]), name
    # The answer is the last action.
    last = np.argmax(earned["outcome"], axis=1)
    np.testing.assert_array_equal(last, num_turns - 1)


def test_refusing_an_unsolvable_task(earn):
    got = sums(earn(expert("unsolvable")[0]))
    assert np.all(got["refusal"] == 1)
    assert not np.any(got["outcome"]) and not np.any(got["abstain"])


def test_refusing_a_solvable_task(earn):
    got = sums(earn(change(expert()[0], 0, kind=reply_scan.REFUSE)))
    assert np.all(got["abstain"] == 1)
    for name in ("outcome", "refusal", "wrong", "progress"):
        assert not np.any(got[name]), name


def test_an_answer_without_the_calls_is_wrong(earn):
    """Even the right value is wrong, because the agent cannot know it."""
    episodes, _ = expert()
    turns = np.arange(len(episodes.valid)), episodes.valid.sum(axis=1) - 1
    right = episodes.action.value[turns]
    got = sums(earn(change(episodes, 0, kind=reply_scan.ANSWER, value=right)))
    assert np.all(got["wrong"] == 1)
    assert not np.any(got["outcome"])


def test_a_malformed_action(earn):
    got = sums(earn(change(expert()[0], 0, kind=reply_scan.MALFORMED)))
    assert np.all(got["format"] == 1) and np.all(got["step"] == 1)
    assert not np.any(got["outcome"])


def test_progress_is_paid_for_each_step(earn):
    """A step of the goal is rewarded with its share once, when it is done."""
    episodes, _ = expert()
    earned = earn(episodes)["progress"]
    num_steps = np.sum(episodes.task.goal.tool >= 0, axis=1)
    share = earned[earned > 0] * np.repeat(num_steps, np.sum(earned > 0, axis=1))
    np.testing.assert_allclose(share, 1, rtol=1e-5)
    calls = episodes.action.kind == reply_scan.CALL
    assert not np.any(earned[~(calls & episodes.valid)])


def test_unneeded_calls_are_detours(earn):
    """The first call is made twice, then the rest: one call too many."""
    episodes, fewest = expert()
    again = jax.tree.map(
        lambda x: np.concatenate([x[:, :1], x[:, :-1]], axis=1), episodes.action
    )
    valid = np.concatenate([episodes.valid[:, :1], episodes.valid[:, :-1]], axis=1)
    twice = dataclasses.replace(episodes, action=again, valid=valid)
    fits = episodes.valid.sum(axis=1) < helpers.MAX_TURNS
    got = sums(earn(twice))
    assert fits.sum() > 0.9 * len(fits)
    assert np.all(got["detour"][fits] == 1)
    effects = episodes.task.tools.effect.any(axis=1)
    assert np.all(got["effect"][fits & ~effects] == 0)
    assert np.all(fewest > 0)


def test_retries_after_faults_are_not_detours(earn):
    """A call that has to be repeated counts among the fewest calls."""
    episodes, fewest = expert("runtime_error")
    got = sums(earn(episodes))
    assert np.all(got["outcome"] == 1)
    assert not np.any(got["detour"])
    assert np.mean(fewest > np.sum(episodes.task.goal.tool >= 0, axis=1)) > 0.9


def test_total():
    earned = {name: jnp.full((2, 3), 1.0) for name in COMPONENTS}
    got = rewards.total(earned, {"outcome": 1.0, "step": -0.25})
    np.testing.assert_allclose(got, 0.75)
    for weights, message in (
        ({"outcme": 1.0}, 'reward "outcme" is not one of outcome'),
        ({"outcome": float("nan")}, "reward.outcome=nan is not a finite number"),
        ({"outcome": float("inf")}, "reward.outcome=inf is not a finite number"),
        ({}, "no component has a weight"),
    ):
        with pytest.raises(ValueError, match=message):
            rewards.total(earned, weights)
