"""What is watched for: when a monitor speaks, how often, and when it ends the run."""

import pytest

from configs import base
from openagent_jax import monitors

BOUNDS = {"min_entropy": 0.1, "max_refusal_drift": 0.3, "max_reward_share": 0.9}


def watch(stop=(), patience=3):
    said = []
    return monitors.Watch(BOUNDS, patience, stop, said.append), said


def see(watched, name, values, first=1):
    for step, value in enumerate(values, first):
        watched.see(step, {name: value})


def test_speaks_once_when_patience_ends():
    watched, said = watch()
    see(watched, "entropy", [0.0, 0.0, 0.5, 0.0, 0.05])
    assert not said  # never three in a row
    see(watched, "entropy", [0.01, 0.0, 0.0], first=6)
    (line,) = said
    assert line.startswith("step 6: entropy is 0.01, for 3 steps below")
    assert "monitor.min_entropy=0.1" in line and "\n" not in line
    see(watched, "entropy", [0.5, 0.0, 0.0, 0.0], first=9)
    assert len(said) == 2  # it had recovered


def test_drift_is_from_the_start():
    watched, said = watch()
    see(watched, "refusal/false_refusal", [0.5, 0.7, 0.79, 0.75, 0.4])
    assert not said
    see(watched, "refusal/false_refusal", [0.85, 0.9, 0.95], first=6)
    assert "has changed by 0.45" in said[0] and "step 8" in said[0]


def test_a_pattern_is_for_each_metric_alone():
    watched, said = watch(patience=2)
    for step in (1, 2):
        # One each: neither has been outside for two steps.
        watched.see(step, {f"rewards/{'ab'[step - 1]}/share": 0.99, "loss": 1e9})
    assert not said
    watched.see(3, {"rewards/b/share": 0.95})
    assert "rewards/b/share is 0.95" in said[0]


def test_stops():
    watched, said = watch(stop=("min_entropy",))
    with pytest.raises(monitors.Unhealthy, match="step 3: entropy is 0"):
        see(watched, "entropy", [0.0] * 3)
    assert not said


def test_nan_is_outside_nothing():
    """It has a stop of its own, in the loop."""
    watched, said = watch()
    see(watched, "entropy", [float("nan")] * 9)
    assert not said


def test_each_has_a_bound_in_the_config():
    section = base.get_config().monitor
    assert set(section) == {*monitors.MONITORS, "patience", "stop"}
    for monitor in monitors.MONITORS.values():
        assert len(monitor.cause) > 30
