"""Confidence intervals of success rates, of their differences and of their ratios.

What is estimated is the mean over the tasks that the sandbox can draw and, if there are
several training runs, over the seeds that could have been used. Two things make the
outcomes of episodes dependent: tasks whose requests are worded alike, and episodes of
the same run. `Outcomes` says which outcomes are dependent: all outcomes of a task, in
several scenarios or repeated episodes, share at least its wording. The
intervals are of 95 % unless another `alpha` is given.

Variances. The variance over wordings is that of a mean of clusters (Miller,
arXiv:2411.00640). With several seeds, wordings and seeds cross, and their variances are
estimated as in the two-way clustering of Cameron, Gelbach and Miller (2011, J. Bus.
Econ. Stat. 29:238): V = V_seeds + V_wordings - V_interaction, in three parts that are
never negative:

    noise     V_interaction, and at least the variance of independent outcomes
    seeds     V_seeds - noise, which is the spread of seeds beyond chance
    wordings  V_wordings - noise

Quantiles. Everything that only S seeds have shown, which is noise and seeds, is
multiplied by the square of Student's t with S - 1 degrees of freedom; wordings by that
with one less than the number of wordings. No degrees of freedom are estimated, because
Satterthwaite's approximation gave too narrow intervals with few seeds.

Shape. A normal approximation has no width where every outcome is the same, and leaves
[0, 1]. As in the score interval of Wilson (1927, J. Am. Stat. Assoc. 22:209), the
variance therefore depends on the rate p that is tested: noise and wordings are
proportional to p (1 - p), as for n_eff = p (1 - p) / V outcomes, and the spread of
seeds to (p (1 - p))^2, because seeds spread on the scale of logits. Near 0 and 1 the
variance cannot be estimated, so the effective number is shrunk towards what an
intra-cluster correlation of `_CORRELATION` would give. One seed with all wordings
different gets Wilson's interval exactly.

Differences. The intervals of two rates on the same tasks are combined by the method of
Newcombe (1998, Stat. Med. 17:2635, method 10), using the correlation of their errors
that the same variances give, with his correction for continuity. For one seed with all
wordings different it is his interval. With several seeds the interval also covers
Student's t interval of the differences, since five seeds show little of a correlation.

Ratios. The ratio of two rates on the same tasks has the values R for which the same
interval of new - R old contains 0 (Donner and Zou, 2012, Stat. Methods Med. Res.
21:347; with Student's t over seeds it is that of Fieller, 1954, J. R. Stat. Soc. B
16:175).

Fractions. Outcomes may also be fractions in [0, 1], such as the estimates of pass^k of
each task: then their own variance takes the place of p (1 - p) where outcomes are
pretended to be independent.

Known limit: if seeds differ hugely and the rate is near 0 or 1 (2 % on average, with a
standard deviation of 2.5 between seeds on the scale of logits), five seeds may all miss
the rare good one, and the interval covers the mean in 80 % of the cases only.

tests/report/test_coverage.py measures the coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

PARTS = ("mean", "low", "high")  # the keys of an interval
Interval = dict[str, Any]

ALPHA = 0.05  # of intervals of 95 %
# Where outcomes are (almost) all the same, the design effect is shrunk towards that of
# this intra-cluster correlation, of tasks that are worded alike. The prior has the
# weight of this many outcomes.
_CORRELATION, _WEIGHT = 0.3, 5.0


@dataclass(frozen=True)
class Outcomes:
    """The outcomes that a rate is the mean of: S seeds, each with the same M cells.

    A cell is one task, or one task under one of several scenarios. Axes before S are
    independent repetitions, which the simulations of tests use.
    """

    values: Float[np.ndarray, "*R S M"]
    # The rate of a seed is the weighted sum of its values; the weights of each seed add
    # up to 1, and are 0 where an outcome is unknown.
    weights: Float[np.ndarray, "S M"]
    # Within each of these groupings, cells of the same group may be dependent.
    groups: Sequence[Int[np.ndarray, "M"]]
    scenario: Int[np.ndarray, "M"]  # of each cell, counted from 0

    @property
    def num_seeds(self) -> int:
        return self.values.shape[-2]

    @property
    def size(self) -> float:
        """The number of cells, as far as they have the same weight."""
        return 1 / float(np.mean(np.sum(self.weights**2, axis=1)))

    @property
    def rates(self) -> Float[np.ndarray, "*R S"]:
        """The rate of each seed."""
        return np.sum(self.values * self.weights, axis=-1)

    @property
    def independent(self) -> bool:
        """Whether no two outcomes share a seed's training or a wording."""
        groups = (np.unique(x).size == x.size for x in self.groups)
        return self.num_seeds == 1 and all(groups)


class _Variances(NamedTuple):
    """Estimated variances of a rate, and the square of the quantile of each."""

    noise: Float[np.ndarray, "*R"]
    seeds: Float[np.ndarray, "*R"]
    wordings: Float[np.ndarray, "*R"]
    of_seeds: Any  # for noise and seeds; a number or an array, as `alpha` is
    of_wordings: Any

    @property
    def widest(self) -> Float[np.ndarray, "*R"]:
        """The square of the half-width of a symmetric interval."""
        return self.of_seeds * (self.noise + self.seeds) + (
            self.of_wordings * self.wordings
        )


def rate(outcomes: Outcomes, alpha: Any = ALPHA) -> Interval:
    """Compute a rate with its interval.

    Args:
      outcomes: outcomes of 0 or 1, or fractions.
      alpha: the probability that the interval may miss the rate; a number, or an array
        that is broadcast with `*R`.

    Returns:
      `{"mean", "low", "high"}` as fractions in [0, 1], floats or arrays `*R`.
    """
    errors, chance = _errors(outcomes)
    mean = np.clip(outcomes.rates.mean(axis=-1), 0, 1)  # not 1 + 1e-16
    found = _variances(outcomes, errors, chance / outcomes.num_seeds, alpha)
    spread = mean * (1 - mean)
    known = np.where(spread > 0, spread, 1)
    size, few = outcomes.size, outcomes.size * np.minimum(mean, 1 - mean)
    share = np.mean(outcomes.weights, axis=0)
    most = max(np.sum(_sums(share, _index(x)) ** 2) for x in outcomes.groups)
    expected = 1 + max(size * most - 1, 0) * _CORRELATION
    rest = found.of_seeds * found.noise + found.of_wordings * found.wordings
    rest = (few * rest * size / known + _WEIGHT * expected * found.of_wordings) / (
        (few + _WEIGHT) * size
    )
    seeds = np.where(spread > 0, found.of_seeds * found.seeds / known**2, 0)
    low, high = (_solve(mean, seeds, rest, end) for end in (0.0, 1.0))
    return _interval(mean, low, high)


def difference(new: Outcomes, old: Outcomes, alpha: Any = ALPHA) -> Interval:
    """Compute the difference of two rates with its interval.

    Args:
      new: outcomes of 0 or 1.
      old: outcomes of the same cells, under the other condition.
      alpha: as for `rate`.

    Returns:
      `{"mean", "low", "high"}` of `new - old`, as fractions in [-1, 1].
    """
    p, q = rate(new, alpha), rate(old, alpha)
    joint = _joint(new, old, alpha)
    mean = p["mean"] - q["mean"]
    low, high = _minus(p, q, joint, new.num_seeds, 1.0)
    return _interval(mean, np.maximum(low, -1), np.minimum(high, 1))


def ratio(new: Outcomes, old: Outcomes, alpha: Any = ALPHA) -> Interval:
    """Compute the ratio of two rates with its interval.

    Args:
      new: outcomes of 0 or 1.
      old: outcomes of the same cells, under the other condition.
      alpha: as for `rate`.

    Returns:
      `{"mean", "low", "high"}` of `new / old`. All are None, or NaN in arrays, if the
      rate of `old` is 0. `high` is infinite if the seeds of `old` differ so much that
      its rate may be 0.
    """
    p, q = rate(new, alpha), rate(old, alpha)
    joint = _joint(new, old, alpha)
    known = np.asarray(q["mean"]) > 0
    if not np.any(known):
        nothing = np.where(known, 0.0, np.nan)
        return {key: nothing if known.ndim else None for key in PARTS}
    mean = p["mean"] / np.where(known, q["mean"], np.nan)

    def rejected(scale, end):  # whether new - scale * old is clearly not 0
        low, high = _minus(p, q, joint, new.num_seeds, scale)
        return high < 0 if end else low > 0

    shape = np.shape(rejected(np.ones(np.shape(mean)), 0))
    # The ratio is R = share / (1 - share), so that both ends lie in [0, 1) on the scale
    # of `share`, where one bisection finds them.
    middle = np.broadcast_to(mean / (1 + mean), shape)
    ends = []
    for end in (0, 1):
        near, far = middle, np.full(shape, float(end))
        for _ in range(50):
            share = np.clip((near + far) / 2, 0, 1 - 1e-9)
            out = rejected(share / (1 - share), end)
            near, far = np.where(out, near, share), np.where(out, share, far)
        ends.append(near)
    low = ends[0] / (1 - ends[0])
    high = np.where(ends[1] > 1 - 1e-6, np.inf, ends[1] / (1 - ends[1]))
    return _interval(mean, low, np.where(np.isnan(mean), np.nan, high))


class _Joint(NamedTuple):
    """What the errors of two rates have in common."""

    new: Any  # the square of the half-width of a symmetric interval
    old: Any
    common: Any  # their covariance, on the same scale
    correlation: Any


def _joint(new: Outcomes, old: Outcomes, alpha: Any) -> _Joint:
    errors = [_errors(x)[0] for x in (new, old)]
    a, b, both = (
        _variances(new, x, 0, alpha).widest for x in (*errors, errors[0] - errors[1])
    )
    common = covariance = (a + b - both) / 2
    quantile = _variances(new, errors[0], 0, alpha).of_seeds
    correction = quantile / (2 * (new.size * new.num_seeds) ** 2)
    common = np.where(common > 0, np.maximum(common - correction, 0), common)
    scale = np.sqrt(a * b)
    correlation = common / np.where(scale > 0, scale, 1)
    correlation = np.clip(np.where(scale > 0, correlation, 0), -1, 1)
    return _Joint(a, b, covariance, correlation)


def _minus(
    p: Interval, q: Interval, joint: _Joint, num_seeds: int, scale: Any
) -> tuple[Any, Any]:
    """Return the ends of the interval of one rate minus `scale` times another."""

    def distance(x, y):
        y = scale * y
        squares = x * x - 2 * joint.correlation * x * y + y * y
        return np.sqrt(np.maximum(squares, 0))

    mean = p["mean"] - scale * q["mean"]
    low = mean - distance(p["mean"] - p["low"], q["high"] - q["mean"])
    high = mean + distance(p["high"] - p["mean"], q["mean"] - q["low"])
    if num_seeds > 1:
        both = joint.new - 2 * scale * joint.common + scale**2 * joint.old
        half = np.sqrt(np.maximum(both, 0))
        low, high = np.minimum(low, mean - half), np.maximum(high, mean + half)
    return low, high


def over_seeds(means: Sequence[float], size: int, signed: bool = False) -> Interval:
    """Compute the mean of several seeds and its interval from their means alone.

    Without the outcomes of tasks, only the spread of the seeds is known: the interval
    is that of Student's t over seeds, in the shape of Wilson's. It never claims more
    than `size` outcomes would show.

    Args:
      means: the mean of each seed; of one seed alone, nothing is known.
      size: the number of tasks.
      signed: whether the means are differences, in [-1, 1].

    >>> found = over_seeds([0.969, 0.615, 0.938], 96)
    >>> {key: round(value, 2) for key, value in found.items()}
    {'mean': 0.84, 'low': 0.26, 'high': 0.99}
    """
    if signed:  # map [-1, 1] to [0, 1], and back
        found = over_seeds([(x + 1) / 2 for x in means], size)
        return {key: 2 * value - 1 for key, value in found.items()}
    values, num = np.asarray(means, float), len(means)
    mean = np.clip(values.mean(), 0, 1)
    if num < 2:  # nothing is known of the spread of seeds
        return _interval(mean, 0.0, 1.0)
    quantile, spread = _student(ALPHA, num - 1), mean * (1 - mean)
    variance = np.var(values, ddof=1) / num
    normal = _normal(ALPHA)
    rest = max(quantile * variance / spread if spread > 0 else 0.0, normal / size)
    return _interval(mean, *(_solve(mean, 0.0, rest, end) for end in (0.0, 1.0)))


def of_one(
    values: Bool[np.ndarray, "n"],
    groups: Sequence[Int[np.ndarray, "n"]] = (),
    domains: Int[np.ndarray, "n"] | None = None,
) -> Outcomes:
    """Return the outcomes of one seed in one scenario.

    Args:
      values: the outcome of each task.
      groups: for each grouping, the group of each task; by default every task is a
        group of its own.
      domains: the domain of each task, if each domain is to weigh the same, whatever
        its number of tasks.

    >>> found = rate(of_one(np.arange(10) < 8))  # Wilson's interval
    >>> {key: round(value, 3) for key, value in found.items()}
    {'mean': 0.8, 'low': 0.49, 'high': 0.943}
    """
    n = len(values)
    return Outcomes(
        np.asarray(values, float)[None],
        np.full((1, n), 1 / max(n, 1)) if domains is None else domain_weights(domains),
        groups or [np.arange(n)],
        np.zeros(n, int),
    )


def domain_weights(
    domains: Int[np.ndarray, "n"], cells: Bool[np.ndarray, "S n"] | None = None
) -> Float[np.ndarray, "S n"]:
    """Return weights of tasks that add up to 1, with the same sum for each domain.

    Args:
      domains: the domain of each task.
      cells: which tasks are counted for each of S seeds; by default all, for one.

    >>> domain_weights(np.array([0, 0, 1])).tolist()
    [[0.25, 0.25, 0.5]]
    """
    if cells is None:
        cells = np.ones((1, len(domains)), bool)
    member = domains == np.unique(domains)[:, None]
    counts = cells.astype(int) @ member.T  # tasks of each seed and domain
    shares = (counts > 0) / np.maximum(counts, 1)
    shares /= np.maximum((counts > 0).sum(axis=1, keepdims=True), 1)
    return (shares @ member) * cells


def _errors(outcomes: Outcomes) -> tuple[np.ndarray, np.ndarray]:
    """Return what each outcome adds to the error of the rate, [*R S M].

    Also return the variance that the rate of one seed would have if all outcomes were
    independent, [*R].
    """
    values, weights, group = (
        outcomes.values,
        outcomes.weights,
        _index(outcomes.scenario),
    )
    weight = _sums(weights, group).sum(axis=0)
    weight = np.where(weight > 0, weight, 1)

    def average(x):
        return np.clip(_sums(x * weights, group).sum(axis=-2) / weight, 0, 1)

    mean = average(values)
    squares = _sums(np.mean(weights**2, axis=0), group)
    variance = np.maximum(
        average(values**2) - mean**2, 0
    )  # of 0 and 1: mean (1 - mean)
    chance = np.sum(variance * squares, axis=-1)
    center = mean[..., None, group]
    return (values - center) * weights / outcomes.num_seeds, chance


def _variances(
    outcomes: Outcomes, errors: np.ndarray, least: Any, alpha: Any
) -> _Variances:
    """Return the variances of a rate.

    Args:
      outcomes: the outcomes of the rate.
      errors: what each outcome adds to its error, [*R S M].
      least: the least variance of the noise, [*R].
      alpha: as for `rate`.
    """
    num, groups = outcomes.num_seeds, [_index(x) for x in outcomes.groups]
    signs = [1] * len(groups)
    if len(groups) == 2:  # pairs that share both groups are counted once
        groups.append(_index(groups[0] * (groups[1].max() + 1) + groups[1]))
        signs.append(-1)
    within, across, sizes = [], [], []
    for sign, group in zip(signs, groups, strict=True):
        sums, size = _sums(errors, group), int(group.max(initial=0)) + 1
        scale = sign * (1 if outcomes.independent else _unbiased(size * num))
        within.append(scale * np.sum(sums**2, axis=(-1, -2)))
        across.append(sign * _unbiased(size) * np.sum(sums.sum(axis=-2) ** 2, axis=-1))
        sizes.append(size)
    noise = np.maximum(np.maximum(sum(within), within[0]), least)
    freedom = max(min(sizes) - 1, 1)
    of_wordings = _student(alpha, freedom)
    if num == 1:
        quantile = _normal(alpha) if outcomes.independent else of_wordings
        return _Variances(noise, 0 * noise, 0 * noise, quantile, quantile)
    seeds = _unbiased(num) * np.sum(errors.sum(axis=-1) ** 2, axis=-1)
    wordings = np.maximum(sum(across), across[0])
    return _Variances(
        noise,
        np.maximum(seeds - noise, 0),
        np.maximum(wordings - noise, 0),
        _student(alpha, num - 1),
        of_wordings,
    )


def _normal(alpha: Any) -> Any:
    """Return the square of the two-sided quantile of the normal distribution."""
    return stats.norm.isf(np.asarray(alpha) / 2) ** 2


def _student(alpha: Any, freedom: int) -> Any:
    """Return the square of the two-sided quantile of Student's t."""
    return stats.t.isf(np.asarray(alpha) / 2, freedom) ** 2


def _sums(x: np.ndarray, group: Int[np.ndarray, "M"]) -> np.ndarray:
    """Sum the last axis within each group; groups are numbered from 0."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    return np.add.reduceat(x[..., order], starts, axis=-1)


def _unbiased(num: int) -> float:
    """Return the factor that makes the variance of a mean of `num` parts unbiased."""
    return num / max(num - 1, 1)


def _index(groups: Int[np.ndarray, "M"]) -> Int[np.ndarray, "M"]:
    """Number the groups from 0."""
    return np.unique(groups, return_inverse=True)[1]


def _solve(mean: Any, seeds: Any, rest: Any, end: float) -> Any:
    """Return the rate p between `mean` and `end` that is just not rejected.

    It solves (p - mean)^2 = seeds w^2 + rest w with w = p (1 - p), by bisection: the
    right side has a concave square root, so there is one solution on each side.
    """
    near, far = np.asarray(mean, float), np.full(np.shape(mean), end)
    for _ in range(50):
        middle = (near + far) / 2
        w = middle * (1 - middle)
        accepted = (middle - mean) ** 2 <= seeds * w * w + rest * w
        near, far = np.where(accepted, middle, near), np.where(accepted, far, middle)
    return (near + far) / 2


def _interval(mean: Any, low: Any, high: Any) -> Interval:
    values = (mean, np.minimum(low, mean), np.maximum(high, mean))
    return {
        key: value if np.ndim(value) else float(value)
        for key, value in zip(PARTS, values, strict=True)
    }
