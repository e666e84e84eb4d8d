"""Intervals compared with published values, and their coverage computed exactly."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from tests.report import builders
from tests.report.builders import outcomes, paired


def delta_of_counts(both, gained, lost, neither):
    new = np.repeat([1, 1, 0, 0], [both, gained, lost, neither])
    old = np.repeat([1, 0, 1, 0], [both, gained, lost, neither])
    return paired(new, old)


@pytest.mark.parametrize(("count", "n"), [(0, 10), (10, 10), (7, 20), (391, 400)])
def test_success_interval_is_wilson(count, n):
    # A Wilson bound is a p at which the score test just rejects: |c/n - p| = z sd(p).
    success = builders.row(None, 0.0, *[outcomes(np.arange(n) < count)] * 2)["success"]
    z = stats.norm.ppf(0.975)
    for p in {success["low"], success["high"]} - {0.0, 1.0}:
        expected = z * (p * (1 - p) / n) ** 0.5
        np.testing.assert_allclose(abs(count / n - p), expected, rtol=1e-6)
    assert success["low"] <= count / n <= success["high"]
    assert (success["low"] == 0) == (count == 0)
    assert (success["high"] == 1) == (count == n)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [  # data of Cavo 2012 and Bentur 2009, computed by R's contingencytables
        ((59, 6, 16, 80), (-0.0621, -0.1186, -0.0046)),
        ((1, 1, 7, 12), (-0.2857, -0.5069, -0.0256)),
    ],
)
def test_delta_interval_is_newcombe(counts, expected):
    found = delta_of_counts(*counts)
    np.testing.assert_allclose(list(found.values()), expected, atol=5e-5)


@pytest.mark.parametrize("counts", [(9, 0, 0, 0), (0, 0, 0, 9), (0, 9, 0, 0)])
def test_delta_interval_has_a_width_when_all_tasks_agree(counts):
    found = delta_of_counts(*counts)
    assert -1 <= found["low"] < found["high"] <= 1
    assert found["low"] <= found["mean"] <= found["high"]
    assert found["high"] - found["low"] > 0.2


def test_delta_is_antisymmetric():
    there, back = delta_of_counts(20, 3, 9, 8), delta_of_counts(20, 9, 3, 8)
    assert there["mean"] == pytest.approx(-6 / 40)
    np.testing.assert_allclose(there["low"], -back["high"])
    np.testing.assert_allclose(there["high"], -back["low"])


def test_pairing_narrows_the_delta():
    old = np.repeat([True, False], 50)
    new = np.repeat([True, False], [42, 58])
    same, apart = paired(new, old), paired(np.roll(new, 50), old)
    assert same["mean"] == apart["mean"] == pytest.approx(-0.08)
    assert same["high"] < 0 < apart["high"]


@pytest.mark.slow
def test_exact_coverage():
    """Sum the exact probability of all outcomes of n tasks that the interval covers."""
    n = 20
    cuts = np.array(list(itertools.combinations(range(n + 3), 3)))
    bars = np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, n + 3)))
    counts = np.diff(bars, axis=1) - 1  # both, gained, lost, neither
    found = [delta_of_counts(*c) for c in counts]
    low, high = (np.array([x[key] for x in found]) for key in ("low", "high"))
    ways = special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1)
    coverage = []
    for old, new, share in itertools.product(
        (0.5, 0.7, 0.9, 0.97), (0.03, 0.2, 0.5, 0.8, 0.97), (0.1, 0.5, 0.9)
    ):
        # From the fewest tasks that can be solved both times to the most.
        least, most = max(old + new - 1, 0), min(old, new)
        both = least + share * (most - least)
        cells = np.array([both, new - both, old - both, 1 - old - new + both])
        chance = np.exp(ways + special.xlogy(counts, np.maximum(cells, 0)).sum(axis=1))
        np.testing.assert_allclose(chance.sum(), 1)
        inside = (low <= new - old + 1e-9) & (new - old - 1e-9 <= high)
        coverage.append(chance[inside].sum())
    assert 0.95 < np.mean(coverage) < 0.97
    assert min(coverage) > 0.9
