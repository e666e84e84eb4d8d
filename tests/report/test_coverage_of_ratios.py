"""Simulations of what test_coverage.py leaves out, with the same least coverage.

Tasks that several scenarios play, or that are played several times; retention; pass^k
and pass@k; and Holm's correction, with which at most 5 % of reports may claim a
difference where there is none. As there, the odds of each outcome are changed on the
scale of logits, here by the seed, the task, and the task in this scenario; with one
seed, the truth is that of this seed.
"""

import itertools

import numpy as np
import pytest
from scipy import special

from openagent_jax.report import intervals, multiple, repeats
from tests.report.test_coverage import DENSITY, LEAST, NODES, location, marginal

SEED_SPREADS = (0.0, 0.5, 1.5)  # standard deviations
TASK_SPREAD, CELL_SPREAD = 1.5, 0.7


def draw(rng, num, num_seeds, num_tasks, rates, seed_spread):
    """Draw the probability of success [num seeds tasks] under each condition.

    Also return the true rate of each [num]. Conditions share the seeds in part, and the
    tasks in all but a part.
    """
    shape = (num, num_seeds, 1)
    seeds, task = rng.standard_normal(shape), rng.standard_normal((num, 1, num_tasks))
    rest = np.hypot(TASK_SPREAD, CELL_SPREAD)
    chances, truths = [], []
    for rate in rates:
        own = 0.5 * seeds + np.sqrt(0.75) * rng.standard_normal(shape)
        middle = location(rate, float(np.hypot(rest, seed_spread))) + seed_spread * own
        cell = rng.standard_normal((num, 1, num_tasks))
        logits = middle + TASK_SPREAD * task + CELL_SPREAD * cell
        chances.append(special.expit(logits))
        truths.append(_over_tasks(middle[..., 0], rest, num_seeds, rate))
    return chances, truths


def _over_tasks(middle, spread, num_seeds, rate):
    if num_seeds > 1:  # over seeds too
        return np.full(len(middle), rate)
    return np.array([marginal(x, spread) for x in middle[:, 0]])


def outcomes(values, tasks, scenario=None):
    """Outcomes with the same weight, clustered by task."""
    num_seeds, size = values.shape[-2:]
    weights = np.full((num_seeds, size), 1 / size)
    scenario = np.zeros(size, int) if scenario is None else scenario
    return intervals.Outcomes(values.astype(float), weights, [tasks], scenario)


def covers(found, truth):
    return np.mean((found["low"] <= truth) & (truth <= found["high"]))


def of_scenarios(num, num_seeds, num_tasks, seed_spread, rates):
    """Coverage of the mean over scenarios that play the same tasks.

    And of its difference from clean tasks, which is the first rate.
    """
    rng = generator(num_seeds, num_tasks, seed_spread, rates)
    chances, truths = draw(rng, num, num_seeds, num_tasks, rates, seed_spread)
    solved = [rng.random(x.shape) < x for x in chances]
    tasks, each = np.arange(num_tasks), len(rates) - 1
    cells = np.tile(tasks, each), np.repeat(np.arange(each), num_tasks)
    new = outcomes(np.concatenate(solved[1:], axis=-1), *cells)
    old = outcomes(np.tile(solved[0], each), *cells)
    truth = np.mean(truths[1:], axis=0)
    found = intervals.difference(new, old)
    return covers(intervals.rate(new), truth), covers(found, truth - truths[0])


def of_ratios(num, num_seeds, num_tasks, seed_spread, rates):
    """Coverage of retention, and the share of the intervals that have an end."""
    rng = generator(num_seeds, num_tasks, seed_spread, rates)
    chances, truths = draw(rng, num, num_seeds, num_tasks, rates, seed_spread)
    tasks = np.arange(num_tasks)
    old, new = (outcomes(rng.random(x.shape) < x, tasks) for x in chances)
    found = intervals.ratio(new, old)
    known = np.isfinite(found["high"])
    truth = truths[1] / truths[0]
    covered = (found["low"] <= truth) & (truth <= found["high"])
    return np.mean(covered[known]), np.mean(known)


def of_trials(num, num_seeds, num_tasks, seed_spread, rate, num_trials, k):
    """Coverage of success over all trials, pass^k and pass@k."""
    rng = generator(num_seeds, num_tasks, seed_spread, (rate, k))
    spread = np.hypot(TASK_SPREAD, CELL_SPREAD)
    middle = location(rate, float(np.hypot(spread, seed_spread)))
    seeds = middle + seed_spread * rng.standard_normal((num, num_seeds, 1))
    logits = seeds + spread * rng.standard_normal((num, 1, num_tasks))
    trials = rng.random((*logits.shape, num_trials)) < special.expit(logits)[..., None]
    tasks = np.arange(num_tasks)
    flat = trials.reshape(*logits.shape[:-1], -1)
    found = [intervals.rate(outcomes(flat, np.repeat(tasks, num_trials)))]
    count = trials.sum(axis=-1)
    full = np.full_like(count, num_trials)
    every = repeats.all_of(count, full, k)
    some = 1 - repeats.all_of(full - count, full, k)
    found += [intervals.rate(outcomes(x, tasks)) for x in (every, some)]
    whole = float(np.hypot(spread, seed_spread)) if num_seeds > 1 else spread
    middles = np.array([middle]) if num_seeds > 1 else seeds[:, 0, 0]
    p = special.expit(middles[:, None] + whole * NODES)
    truths = p @ DENSITY, p**k @ DENSITY, 1 - (1 - p) ** k @ DENSITY
    return [covers(x, truth) for x, truth in zip(found, truths, strict=True)]


def of_families(num, num_seeds, num_tasks, seed_spread, rates):
    """How often a difference is claimed between equal rates: corrected, and not.

    The first rate is that of clean tasks. With several seeds, the same seeds are drawn
    for all conditions, since otherwise rates of these seeds do differ.
    """
    rng = generator(num_seeds, num_tasks, seed_spread, rates)
    chances, _ = draw(rng, num, num_seeds, num_tasks, rates, seed_spread)
    tasks = np.arange(num_tasks)
    old, *new = (outcomes(rng.random(x.shape) < x, tasks) for x in chances)
    p = np.stack([multiple.p_value(x, old) for x in new], axis=-1)
    false = np.array([rate == rates[0] for rate in rates[1:]])
    adjusted = np.array([multiple.holm(x) for x in p])
    return [np.mean((x[:, false] <= 0.05).any(axis=1)) for x in (adjusted, p)]


def generator(num_seeds, num_tasks, seed_spread, rates):
    case = (num_seeds, num_tasks, 10 * seed_spread, *(100 * r for r in rates))
    return np.random.default_rng([round(x) for x in case])


@pytest.mark.parametrize("num_seeds", [1, 5])
def test_coverage_of_a_few_cases(num_seeds):
    least = LEAST - 0.015
    for spread in (0.0, 1.0):
        shape = 1000, num_seeds, 60, spread
        assert min(of_scenarios(*shape, (0.9, 0.8, 0.5, 0.2))) > least
        covered, known = of_ratios(*shape, (0.9, 0.4))
        assert covered > least and known == 1
        assert min(of_trials(*shape, 0.6, 4, 2)) > least
    assert of_families(200, num_seeds, 60, 0.0, (0.7,) * 6)[0] < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("num_tasks", [96, pytest.param(384, marks=pytest.mark.hours)])
@pytest.mark.parametrize("num_seeds", [1, 5])
@pytest.mark.parametrize("seed_spread", SEED_SPREADS)
def test_coverage(num_seeds, num_tasks, seed_spread):
    shape = (4000 if num_seeds == 1 else 2000), num_seeds, num_tasks, seed_spread
    for rates in ((0.9, 0.8, 0.5, 0.2), (0.98, 0.95, 0.9, 0.9), (0.5, 0.5, 0.1, 0.02)):
        found = of_scenarios(*shape, rates)
        assert min(found) >= LEAST, (rates, found)
    for rates in ((0.9, 0.9), (0.9, 0.5), (0.98, 0.1), (0.5, 0.02), (0.1, 0.1)):
        covered, known = of_ratios(*shape, rates)
        assert covered >= LEAST and (num_seeds == 5 or known > 0.9), (rates, covered)
    for rate, num_trials, k in itertools.product((0.1, 0.5, 0.9), (4, 8), (2, 4)):
        success, every, some = of_trials(*shape, rate, num_trials, k)
        # What is close to 0 or 1 on average, since single seeds are good or bad: see
        # the known limit in `intervals`.
        rare = (num_seeds > 1 and seed_spread > 1) * (k == 4)
        found = success, 1 if rare and rate < 0.2 else every
        found += (1 if rare and rate > 0.8 else some,)
        assert min(found) >= LEAST, (rate, num_trials, k, found)


@pytest.mark.slow
@pytest.mark.parametrize("num_seeds", [1, 5])
def test_false_claims_in_a_family(num_seeds):
    """With all rates equal, and with half of the scenarios worse than clean."""
    for rates in ((0.7,) * 13, (0.9,) * 7 + (0.5,) * 6):
        corrected, raw = of_families(1000, num_seeds, 96, 0.0, rates)
        assert corrected <= 0.05 + 0.015, (rates, corrected)
        assert num_seeds > 1 or raw > 0.1, raw  # what would be claimed without Holm


def test_trials_that_are_taken_as_independent_cover_too_little():
    rng = np.random.default_rng(0)
    (chance,), (truth,) = draw(rng, 1000, 1, 60, (0.6,), 0.0)
    trials = rng.random((*chance.shape, 8)) < chance[..., None]
    flat = trials.reshape(1000, 1, -1)
    apart = intervals.rate(outcomes(flat, np.arange(480)))
    together = intervals.rate(outcomes(flat, np.repeat(np.arange(60), 8)))
    assert covers(apart, truth) < 0.85 < 0.92 < covers(together, truth)
