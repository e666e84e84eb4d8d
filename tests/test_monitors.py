"""When a monitor fires, how often, and when it stops the run."""

import pytest

from configs import base
from openagent_jax import monitors

BOUNDS = {
    "min_entropy": 0.1,
    "max_refusal_drift": 0.3,
    "max_reward_drop": 0.2,
    "max_reward_share": 0.9,
}


def make(stop=(), patience=3):
    warnings = []
    return monitors.Watchdog(BOUNDS, patience, stop, warnings.append), warnings


def check(watchdog, name, values, first=1):
    for step, value in enumerate(values, first):
        watchdog.check(step, {name: value})


def test_fires_once_when_patience_ends():
    watchdog, warnings = make()
    check(watchdog, "entropy", [0.0, 0.0, 0.5, 0.0, 0.05])
    assert not warnings  # never three in a row
    check(watchdog, "entropy", [0.01, 0.0, 0.0], first=6)
    (line,) = warnings
    assert line.startswith("step 6: entropy is 0.01, for 3 steps below")
    assert "monitor.min_entropy=0.1" in line and "\n" not in line
    check(watchdog, "entropy", [0.5, 0.0, 0.0, 0.0], first=9)
    assert len(warnings) == 2  # because it had recovered in between


def test_drift_is_the_change_since_the_start():
    watchdog, warnings = make()
    # The mean of the first three is 0.5. One step alone would be no measure.
    check(watchdog, "refusal/false_refusal", [0.9, 0.2, 0.4, 1.0, 0.8, 0.6])
    assert not warnings  # the last three have a mean of 0.8, which is not more
    check(watchdog, "refusal/false_refusal", [1.0, 1.0, 0.0, 1.0, 1.0], first=7)
    (line,) = warnings
    assert line.startswith("step 8: refusal/false_refusal has risen by 0.367, more")


def test_a_reward_that_falls():
    """A rise is none, and a monitor that has fired fires again after a recovery."""
    watchdog, warnings = make()
    check(watchdog, "reward", [0.2, 0.3, 0.4, 0.9, 0.9, 0.9])
    assert not warnings
    check(watchdog, "reward", [0.0] * 4 + [0.9] * 2 + [0.0] * 3, first=7)
    steps = [line.partition(": reward has fallen by")[0] for line in warnings]
    assert steps == ["step 9", "step 15"]


def test_metrics_of_a_pattern_are_counted_separately():
    watchdog, warnings = make(patience=2)
    for step in (1, 2):
        # Each metric has been out of bounds for one step only.
        watchdog.check(step, {f"rewards/{'ab'[step - 1]}/share": 0.99, "loss": 1e9})
    assert not warnings
    watchdog.check(3, {"rewards/b/share": 0.95})
    assert "rewards/b/share is 0.95" in warnings[0]


def test_a_monitor_can_stop_the_run():
    watchdog, warnings = make(stop=("min_entropy",))
    with pytest.raises(monitors.Unhealthy, match="step 3: entropy is 0"):
        check(watchdog, "entropy", [0.0] * 3)
    assert not warnings


def test_nan_is_not_out_of_bounds():
    """The training loop has a check of its own for NaN."""
    watchdog, warnings = make()
    check(watchdog, "entropy", [float("nan")] * 9)
    assert not warnings


def test_each_monitor_has_a_bound_in_the_config():
    section = base.get_config().monitor
    assert set(section) == {*monitors.MONITORS, "patience", "stop"}
    for monitor in monitors.MONITORS.values():
        assert len(monitor.cause) > 30
