"""Signs that reinforcement learning goes wrong, read from its metrics.

Each is a warning with the likely cause or, where the config says so, ends the run.
"""

import fnmatch
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from openagent_jax.types import Metrics


class Unhealthy(RuntimeError):
    """A monitor that was to stop the run has seen enough."""


class Monitor(NamedTuple):
    """A metric that should not leave its bounds."""

    metric: str  # `*` stands for anything
    cause: str  # likely, and the remedy
    above: bool = True  # what is too much; else what is too little
    drift: bool = False  # of the change since the run began, or last went on


MONITORS = {
    "min_entropy": Monitor(
        "entropy",
        "the policy is certain and tries nothing new; raise surrogate.clip_high or "
        "algorithm.temperature, or lower optim.learning_rate",
        above=False,
    ),
    "max_entropy": Monitor(
        "entropy",
        "the policy falls apart; lower optim.learning_rate, or hold it near its start "
        "with surrogate.kl",
    ),
    "min_calls": Monitor(
        "tools/call_frequency",
        "the policy gives up calling tools; look at what reward.* pays for",
        above=False,
    ),
    "max_refusal_drift": Monitor(
        "refusal/false_refusal",
        "the policy learns to refuse what can be done; lower reward.abstain or "
        "reward.refusal, or raise reward.outcome",
        drift=True,
    ),
    "max_zero_variance": Monitor(
        "frac_reward_zero_std",
        "all episodes of a group earn the same, so nothing is learned: the tasks are "
        "too easy or too hard, or the reward is blind; start from one that succeeds "
        "now and then, raise grpo.size, or weigh more of reward.*",
    ),
    "max_log_prob_gap": Monitor(
        "sampler_trainer/logp_abs_diff_max",
        "what was sampled is not what is trained on; in bfloat16 raise the bound, "
        "otherwise this is a bug",
    ),
    "max_reward_share": Monitor(
        "rewards/*/share",
        "one component outweighs all others; balance reward.*",
    ),
}


class Watch:
    """Sees the metrics of every step.

    Args:
      bounds: of `MONITORS`, by name.
      patience: steps in a row outside its bound until a monitor speaks.
      stop: names of those that end the run.
      say: takes a warning, one line.
    """

    def __init__(
        self,
        bounds: Mapping[str, float],
        patience: int,
        stop: Collection[str],
        say: Callable[[str], None],
    ):
        self._bounds, self._patience, self._stop = dict(bounds), patience, set(stop)
        self._say = say
        self._outside: dict[tuple[str, str], int] = {}
        self._start: dict[str, float] = {}

    def see(self, step: int, metrics: Metrics) -> None:
        """
        Raises:
          Unhealthy: one of `stop` has spoken.
        """
        for name, bound in self._bounds.items():
            monitor = MONITORS[name]
            for metric in fnmatch.filter(metrics, monitor.metric):
                self._judge(step, name, bound, metric, float(metrics[metric]))

    def _judge(self, step: int, name: str, bound: float, metric: str, value: float):
        monitor, which = MONITORS[name], (name, metric)
        change = value - self._start.setdefault(metric, value)
        measured = change if monitor.drift else value
        outside = measured > bound if monitor.above else measured < bound
        count = self._outside.get(which, 0) + 1 if outside else 0
        self._outside[which] = count
        if count != self._patience:
            return
        side = "above" if monitor.above else "below"
        how = "has changed by" if monitor.drift else "is"
        text = (
            f"step {step}: {metric} {how} {measured:.3g}, for {count} steps {side} "
            f"monitor.{name}={bound:g}: {monitor.cause}"
        )
        if name in self._stop:
            raise Unhealthy(text)
        self._say(text)
