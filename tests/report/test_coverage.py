"""Simulations: 95 % intervals cover the truth in at least 93.5 % of the cases.

An outcome is a coin whose odds are those of its rate, changed on the scale of logits by
the seed, by how the request is worded, and by the task. The truth is the mean over all
three; for one seed, over wordings and tasks, since one run cannot show what other seeds
would do. Wordings have the shares that tasks of a builtin domain have: 96 tasks with
about 55 wordings, 384 with about 70, and with about 150 as a larger pool would give.
"""

import functools
import itertools

import numpy as np
import pytest
from scipy import optimize, special

from openagent_jax.report import intervals

LEAST = 0.935
NODES = np.linspace(-8, 8, 2001)
DENSITY = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
LAYOUTS = [(96, 73), (384, 71), (384, 160)]  # tasks, and wordings to draw from
SEED_SPREADS = (0.0, 0.5, 1.5)  # standard deviations; PAFT's refusals had 1.5
CORRELATIONS = (0.0, 0.3)  # of tasks that are worded alike
TASK_SPREAD = 1.0


def marginal(location, spread):
    """The mean rate if the logit is normal."""
    return special.expit(location + spread * NODES) @ DENSITY


@functools.cache
def location(rate, spread):
    """The mean of the logits that gives a mean rate."""
    return optimize.brentq(lambda m: marginal(m, spread) - rate, -200, 200)


@functools.cache
def wording_spread(rate, correlation):
    """The standard deviation of logits that gives an intra-cluster correlation."""

    def excess(spread):
        rates = special.expit(location(rate, spread) + spread * NODES)
        return (rates**2 @ DENSITY - rate**2) / (rate * (1 - rate)) - correlation

    return optimize.brentq(excess, 1e-3, 60) if correlation else 0.0


def simulate(rng, num, rates, num_seeds, seed_spread, correlation, wordings):
    """Draw outcomes [num seeds tasks] for each rate, and the true rates [num].

    Seeds, wordings and tasks of the first rate are correlated with those of the second.
    """
    size, drawn, truths = int(wordings.max()) + 1, [], []

    def normals(shared, *shape):
        first, other = rng.standard_normal((2, num, *shape))
        return first, shared * first + np.sqrt(1 - shared**2) * other

    seeds, common = normals(0.5, num_seeds, 1), normals(0.7, 1, size)
    crossed, task = normals(0.7, num_seeds, size), normals(1.0, 1, len(wordings))
    for i, rate in enumerate(rates):
        spread = wording_spread(rate, correlation)
        rest = np.hypot(spread, TASK_SPREAD)
        middle = location(rate, float(np.hypot(rest, seed_spread)))
        of_wording = np.sqrt(0.7) * common[i] + np.sqrt(0.3) * crossed[i]
        logits = middle + seed_spread * seeds[i] + TASK_SPREAD * task[i]
        logits = logits + spread * of_wording[..., wordings]
        drawn.append((rng.random(logits.shape) < special.expit(logits)).astype(float))
        own = middle + seed_spread * seeds[i][:, 0, 0]
        one = np.array([marginal(x, rest) for x in own]) if num_seeds == 1 else rate
        truths.append(np.broadcast_to(one, num))
    return drawn, truths


def coverage(num, num_seeds, num_tasks, pool, seed_spread, correlation, rates):
    """The shares of simulations whose intervals cover: success, and delta.

    Also the least width of any interval.
    """
    case = (num_seeds, num_tasks, pool, 10 * seed_spread, 10 * correlation)
    rng = np.random.default_rng([int(x) for x in (*case, *(100 * r for r in rates))])
    wordings = np.unique(rng.integers(pool, size=num_tasks), return_inverse=True)[1]
    drawn, truths = simulate(
        rng, num, rates, num_seeds, seed_spread, correlation, wordings
    )
    weights = np.full((num_seeds, num_tasks), 1 / num_tasks)
    old, new = (
        intervals.Outcomes(x, weights, [wordings], np.zeros(num_tasks, int))
        for x in drawn
    )
    pairs = [(intervals.rate(new), truths[1])]
    pairs.append((intervals.difference(new, old), truths[1] - truths[0]))
    covered = [
        np.mean((x["low"] <= truth) & (truth <= x["high"])) for x, truth in pairs
    ]
    return *covered, min(np.min(x["high"] - x["low"]) for x, _ in pairs)


@pytest.mark.parametrize("num_seeds", [1, 5])
def test_coverage_of_a_few_cases(num_seeds):
    for spread, correlation in itertools.product((0.0, 1.5), CORRELATIONS):
        case = (1500, num_seeds, 96, 73, spread, correlation, (0.9, 0.5))
        success, delta, width = coverage(*case)
        assert min(success, delta) > LEAST - 0.015 and width > 0.02, case


@pytest.mark.slow
@pytest.mark.parametrize(("num_tasks", "pool"), LAYOUTS)
@pytest.mark.parametrize("num_seeds", [1, 5])
@pytest.mark.parametrize("seed_spread", SEED_SPREADS)
def test_coverage(num_seeds, num_tasks, pool, seed_spread):
    """Each rate is that of a success, and with the one before it that of a delta."""
    for correlation, rates in itertools.product(
        CORRELATIONS,
        [(0.02, 0.02), (0.5, 0.1), (0.5, 0.5), (0.98, 0.9), (0.9, 0.98), (0.9, 0.1)],
    ):
        case = num_seeds, num_tasks, pool, seed_spread, correlation, rates
        success, delta, width = coverage(4000 if num_seeds == 1 else 2000, *case)
        assert success >= LEAST and delta >= LEAST, (case, success, delta)
        assert width > 0, case


def test_pretending_that_tasks_are_independent_covers_too_little():
    """The intervals of earlier reports: one seed, with every task on its own."""
    rng = np.random.default_rng(0)
    wordings = np.unique(rng.integers(71, size=384), return_inverse=True)[1]
    (drawn, _), (truth, _) = simulate(rng, 500, (0.5, 0.5), 1, 0.0, 0.3, wordings)
    weights = np.full((1, 384), 1 / 384)
    alone = intervals.Outcomes(drawn, weights, [np.arange(384)], np.zeros(384, int))
    found = intervals.rate(alone)
    assert np.mean((found["low"] <= truth) & (truth <= found["high"])) < 0.85
