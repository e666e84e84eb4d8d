"""Which goals are paired: as likely one way as the other, whatever sets they share."""

import dataclasses

import numpy as np
import pytest

from openagent_jax.domains import domain_spec
from openagent_jax.environments.tools.worlds import goal_tables
from tests import helpers


def test_goals_of_their_own_sets_are_paired_as_single_goals():
    """For `poi`, each goal of which needs a set of its own."""
    made = helpers.host(helpers.arrays("poi"))
    num = int(made.num_goals[0])
    assert made.goal_set[:num].tolist() == [*range(num)]
    rate = made.pairing[0]
    np.testing.assert_allclose(rate, rate.T, atol=1e-6)
    np.testing.assert_allclose(rate[:num].sum(axis=1), 1, atol=1e-3)


def by_goals(needs):
    """The probability of each pair of goals by goals, `P(j | i)`, without sets."""
    ones = np.ones(len(needs), int)
    return goal_tables.pairing(needs, needs, ones)


def random_needs(seed, num_goals, num_sets, num_tools=6):
    rng = np.random.default_rng(seed)
    sets = np.unique(rng.random((num_sets, num_tools)) < 0.4, axis=0)
    return sets, rng.integers(len(sets), size=num_goals)


@pytest.mark.parametrize("seed", range(5))
def test_goals_of_one_set_share_what_the_set_gets(seed):
    """A matrix over sets gives the same distribution as one over goals."""
    sets, of = random_needs(seed, num_goals=40, num_sets=9)
    count = np.bincount(of, minlength=len(sets))
    rate = goal_tables.pairing(sets, sets, count)
    single = rate[of][:, of] / count[of]  # goal j is one of the goals of its set
    np.testing.assert_allclose(single, by_goals(sets[of]), atol=1e-4)


@pytest.mark.parametrize("share_sure, share_paired", [(1, 0.5), (0.8, 0.3)])
@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_symmetric(seed, share_sure, share_paired):
    sets, of = random_needs(seed, num_goals=300, num_sets=20)
    count = np.bincount(of, minlength=len(sets))
    sure = sets & (np.random.default_rng(seed).random(sets.shape) < share_sure)
    joint = count[:, None] / count.sum() * goal_tables.pairing(sets, sure, count)
    assert joint.sum() > share_paired
    np.testing.assert_allclose(joint, joint.T, atol=1e-6)
    # Only those are paired of which each needs a tool, in any case, that the other does
    # not.
    for u, v in np.argwhere(joint > 0):
        assert (sure[u] & ~sets[v]).any() and (sure[v] & ~sets[u]).any()


def test_too_many_sets_are_refused():
    spec = helpers.spec("poi")
    tool = spec.tools[0]
    tools = tuple(
        dataclasses.replace(tool, name=f"tool_{i}", arguments=(), returns=())
        for i in range(10)
    )
    goals = tuple(
        domain_spec.GoalSpec(
            f"goal_{i}",
            (),
            tuple((f"tool_{n}", {}) for n in range(10) if i >> n & 1),
            domain_spec.DONE,
            {},
        )
        for i in range(1, 1 + goal_tables.MAX_SETS + 1)
    )
    limits = dataclasses.replace(helpers.LIMITS, num_steps=10)
    spec = dataclasses.replace(spec, tools=tools, goals=goals)
    with pytest.raises(domain_spec.DomainError, match="513 different sets of tools"):
        goal_tables.compile(spec, {}, limits)
    spec = dataclasses.replace(spec, goals=goals[:-1])
    made = goal_tables.compile(spec, {}, limits)
    assert made.pairing.shape == (512, 512)
    assert np.all(made.pairing.sum(axis=1) <= 1 + 1e-5)
