"""Monitors: bounds on metrics that show when reinforcement learning goes wrong.

A monitor that fires gives a warning with the likely cause and a remedy. Where the
config says so, it stops the run.
"""

import collections
import fnmatch
import statistics
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from openagent_jax.types import Metrics


class Unhealthy(RuntimeError):
    """A monitor that is configured to stop the run has fired."""


class Monitor(NamedTuple):
    """A bound on a metric, whose value is set in the config.

    Attributes:
      metric: name of the metric; `*` matches any part of a name.
      cause: the likely cause and the remedy, for the warning.
      above: whether values above the bound are bad; if False, values below it are.
      drift: whether the bound is on how far the metric has risen (or fallen, if `above`
        is False), from its mean over the first `patience` steps after the run was
        started or resumed to that over the last `patience` steps. Single steps are too
        noisy to be compared.
    """

    metric: str
    cause: str
    above: bool = True
    drift: bool = False


MONITORS = {
    "min_entropy": Monitor(
        "entropy",
        "the policy has become nearly deterministic and no longer explores; raise "
        "surrogate.clip_high or algorithm.temperature, or lower optim.learning_rate",
        above=False,
    ),
    "max_entropy": Monitor(
        "entropy",
        "the policy is collapsing towards random output; lower optim.learning_rate, or "
        "keep it near its starting point with surrogate.kl",
    ),
    "min_calls": Monitor(
        "tools/call_frequency",
        "the policy is no longer calling tools; check what reward.* rewards",
        above=False,
    ),
    "max_reward_drop": Monitor(
        "reward",
        "the policy earns less than at the beginning, so its updates do harm; lower "
        "optim.learning_rate, or raise train.batch_size",
        above=False,
        drift=True,
    ),
    "max_refusal_drift": Monitor(
        "refusal/false_refusal",
        "the policy is learning to refuse solvable tasks; lower reward.abstain or "
        "reward.refusal, or raise reward.outcome",
        drift=True,
    ),
    "max_zero_variance": Monitor(
        "frac_reward_zero_std",
        "all episodes of a group get the same reward, so nothing is learned: the tasks "
        "are too easy or too hard, or the reward does not tell episodes apart; start "
        "from a policy that succeeds now and then, raise grpo.size, or give weight to "
        "more components of reward.*",
    ),
    "max_log_prob_gap": Monitor(
        "sampler_trainer/logp_abs_diff_max",
        "sampling and training compute different log-probabilities for the same "
        "tokens; in bfloat16 raise the bound, otherwise this is a bug",
    ),
    "max_reward_share": Monitor(
        "rewards/*/share",
        "one component of the reward outweighs all others; rebalance reward.*",
    ),
}


class Watchdog:
    """Checks the metrics of every step against the bounds of the monitors.

    A monitor fires once when its metric has been out of bounds for `patience` steps in
    a row, or its mean over so many steps has drifted too far, and again only after the
    metric has recovered.

    Args:
      bounds: the bound of each active monitor, by its name in `MONITORS`.
      patience: number of consecutive steps out of bounds before a monitor fires, and
        of the steps of a mean whose drift is measured.
      stop: names of the monitors that stop the run.
      warn: called with the text of a warning, which is one line.

    >>> warnings = []
    >>> watchdog = Watchdog({"min_entropy": 0.1}, 2, stop=(), warn=warnings.append)
    >>> watchdog.check(1, {"entropy": 0.05})
    >>> watchdog.check(2, {"entropy": 0.05})
    >>> warnings[0].partition(": the")[0]
    'step 2: entropy is 0.05, for 2 steps below monitor.min_entropy=0.1'
    """

    def __init__(
        self,
        bounds: Mapping[str, float],
        patience: int,
        stop: Collection[str],
        warn: Callable[[str], None],
    ):
        self._bounds, self._patience, self._stop = dict(bounds), patience, set(stop)
        self._warn = warn
        # By monitor and metric: consecutive steps out of bounds.
        self._num_outside: dict[tuple[str, str], int] = {}
        # By metric: its first and its last values, between whose means it drifts.
        self._first: dict[str, list[float]] = {}
        self._last: dict[str, collections.deque[float]] = {}

    def check(self, step: int, metrics: Metrics) -> None:
        """Check the metrics of one step.

        Args:
          step: the step, for the text of a warning.
          metrics: scalars by name; monitors of absent metrics are skipped.

        Raises:
          Unhealthy: a monitor named in `stop` has fired.
        """
        for name, bound in self._bounds.items():
            for metric in fnmatch.filter(metrics, MONITORS[name].metric):
                self._check_one(step, name, bound, metric, float(metrics[metric]))

    def _check_one(self, step: int, name: str, bound: float, metric: str, value: float):
        """Check one metric against one monitor."""
        monitor, pair, patience = MONITORS[name], (name, metric), self._patience
        if monitor.drift:
            change = self._drift(metric, value)
            change = change if monitor.above else -change
            outside, patience = change > bound, 1
            verb = "risen" if monitor.above else "fallen"
            found = f"has {verb} by {change:.3g}, more than"
        else:
            outside = value > bound if monitor.above else value < bound
            side = "above" if monitor.above else "below"
            found = f"is {value:.3g}, for {patience} steps {side}"
        count = self._num_outside.get(pair, 0) + 1 if outside else 0
        self._num_outside[pair] = count
        if count != patience:
            return
        text = (
            f"step {step}: {metric} {found} monitor.{name}={bound:g}: {monitor.cause}"
        )
        if name in self._stop:
            raise Unhealthy(text)
        self._warn(text)

    def _drift(self, metric: str, value: float) -> float:
        """Return how far the mean of a metric has changed; 0 until it is known."""
        first = self._first.setdefault(metric, [])
        if len(first) < self._patience:
            first.append(value)
            return 0.0
        last = self._last.setdefault(metric, collections.deque(maxlen=self._patience))
        last.append(value)
        if len(last) < self._patience:
            return 0.0
        return statistics.fmean(last) - statistics.fmean(first)
