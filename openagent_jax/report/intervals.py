"""Confidence intervals of success rates, and pass^k.

A success rate gets the Wilson score interval. The difference of two success rates on
the same tasks gets Newcombe's interval for paired proportions (1998, Stat. Med.
17:2635, method 10), which combines the two Wilson intervals using the correlation of
the outcomes. Miller (arXiv:2411.00640) also recommends pairing, but his normal
approximation gives an interval of zero width if no task changes its outcome, as happens
with an agent that solves every task.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Bool
from scipy import stats

PARTS = ("mean", "low", "high")  # the keys of an interval
Interval = dict[str, Any]


def wilson(num_successes: int, n: int) -> Interval:
    """Compute the 95 % Wilson score interval of a success rate.

    Args:
      num_successes: the number of tasks solved.
      n: the number of tasks.

    Returns:
      `{"mean", "low", "high"}` as fractions in [0, 1]; None for each if `n` is 0.

    >>> {key: round(value, 3) for key, value in wilson(8, 10).items()}
    {'mean': 0.8, 'low': 0.49, 'high': 0.943}
    """
    if n == 0:
        return dict.fromkeys(PARTS)
    test = stats.binomtest(num_successes, n)
    low, high = test.proportion_ci(method="wilson")
    return {"mean": num_successes / n, "low": float(low), "high": float(high)}


def newcombe(new: Bool[np.ndarray, "n"], old: Bool[np.ndarray, "n"]) -> Interval:
    """Compute the difference of two success rates with its 95 % interval.

    This is Newcombe's method 10 for paired proportions (1998, Stat. Med. 17:2635).

    Args:
      new: success on each task.
      old: success on the same tasks, in the same order, under the other condition.

    Returns:
      `{"mean", "low", "high"}` of `new - old`, as fractions in [-1, 1]; None for each
      if there are no tasks.

    >>> old = np.array([True] * 8 + [False] * 2)
    >>> new = np.array([True] * 5 + [False] * 5)
    >>> {key: round(value, 3) for key, value in newcombe(new, old).items()}
    {'mean': -0.3, 'low': -0.567, 'high': 0.053}
    """
    n = len(new)
    if n == 0:
        return dict.fromkeys(PARTS)
    a, b, both = int(new.sum()), int(old.sum()), int((new & old).sum())
    p, q = wilson(a, n), wilson(b, n)
    covariance = n * both - a * b
    if covariance > 0:
        covariance = max(covariance - n / 2, 0)  # correction for continuity
    scale = math.sqrt(a * (n - a) * b * (n - b))
    correlation = covariance / scale if scale else 0.0

    def distance(x, y):
        return math.sqrt(x * x - 2 * correlation * x * y + y * y)

    mean = p["mean"] - q["mean"]
    low = mean - distance(p["mean"] - p["low"], q["high"] - q["mean"])
    high = mean + distance(p["high"] - p["mean"], q["mean"] - q["low"])
    return {"mean": mean, "low": low, "high": high}


def pass_hat_k(successes: Bool[np.ndarray, "tasks trials"], k: int) -> float:
    """Estimate pass^k, the probability that k trials of a task all succeed.

    The estimator is the mean over tasks of C(c, k) / C(n, k), with c successes in n
    trials (tau-bench, arXiv:2406.12045).

    Args:
      successes: 0 or 1 for each trial of each task.
      k: the number of trials, from 1 to the number of trials of each task.

    Raises:
      ValueError: an outcome is not 0 or 1, there are none, or `k` is out of range.

    >>> pass_hat_k(np.array([[1, 1, 0, 1], [1, 1, 1, 1]]), k=2)
    0.75
    """
    binary = np.isin(successes, (0, 1))
    if binary.ndim != 2 or not binary.size or not binary.all():
        raise ValueError(
            "pass^k needs outcomes of 0 or 1, with a row for each task and a column "
            "for each trial"
        )
    num_trials = binary.shape[1]
    if not 1 <= k <= num_trials:
        raise ValueError(f"pass^{k} needs 1 <= k <= {num_trials}, the number of trials")
    count = np.asarray(successes).astype(int).sum(axis=1, keepdims=True)
    i = np.arange(k)
    return float(np.mean(np.prod((count - i) / (num_trials - i), axis=1)))
