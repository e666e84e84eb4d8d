"""Traces of some steps of a run."""

import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from launch.common import checks, profiling
from launch.common.errors import UsageError
from tests import tiny


def test_the_steps_of_a_trace(tmp_path):
    folder = tmp_path / "trace"
    step = jax.jit(lambda x: (x @ x, {}))
    traced = profiling.traced(step, range(5, 7), 3, folder)
    x = jnp.eye(8)
    for number in range(4, 9):
        assert not list(folder.rglob("*.gz")) or number > 6
        x, _ = traced(x)
    (file,) = folder.rglob("perfetto_trace.json.gz")
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert sum(event.get("name") == "step" for event in events) == 2
    assert list(folder.rglob("*.xplane.pb"))


def test_a_run_that_is_resumed_among_these_steps(tmp_path):
    traced = profiling.traced(lambda x: (x, {}), range(5, 8), 5, tmp_path)
    x = jnp.eye(8)
    for _ in range(6, 9):
        x, _ = traced(x)
    (file,) = tmp_path.rglob("perfetto_trace.json.gz")
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert sum(event.get("name") == "step" for event in events) == 2


def test_no_steps_change_nothing(tmp_path):
    assert profiling.traced(len, range(0), 0, tmp_path) is len


@pytest.mark.parametrize("steps", ["3", "3:", ":3", "3:3", "4:3", "a:b", "-1:2"])
def test_steps_that_are_none(steps):
    with pytest.raises(UsageError, match=f'profile.steps="{steps}" is not the first '):
        checks.check(tiny.config("sft", profile__steps=steps))
