"""Two processes train as one: they share the batch or the parameters of a step."""

import json
import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from launch.common import processes as processes_of
from openagent_jax import sharding
from tests import tiny

pytestmark = pytest.mark.slow

NUM_STEPS = 3
TRAIN = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", 1)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
me, port, cases = sys.argv[1:]
jax.distributed.initialize(f"localhost:{port}", 2, int(me))
from launch.common import processes as processes_of
from tests import tiny
for name, changes in json.loads(cases):
    step, state = tiny.trainer(tiny.config(name, **changes), num_devices=2)
    for _ in range(NUM_STEPS):
        state, metrics = step(state)
        print(json.dumps({key: float(x) for key, x in metrics.items()}), flush=True)
""".replace("NUM_STEPS", str(NUM_STEPS))
# Each case takes a minute to compile, in three processes. With several devices of one
# process, tests of other files train by SFT and by GRPO over all axes.
FIRST, SECOND, THIRD = sharding.MESH_AXES
CASES = [("paft", FIRST), ("sft", SECOND), ("sft", THIRD), ("grpo", SECOND)]


def changes_of(name, axis=None):
    few = {"paft__perturbations": tiny.FEW} if name == "paft" else {}
    if axis is None:
        return few
    return few | {f"mesh__{key}": 1 + (key == axis) for key in sharding.MESH_AXES}


@pytest.fixture(scope="module")
def together():
    """For each case, the metrics of each step, as each of two processes has them."""
    cases = [(name, changes_of(name, axis)) for name, axis in CASES]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, str(i), port, json.dumps(cases)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )
        for i in range(2)
    ]
    outputs = [process.communicate(timeout=1200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    # Gloo writes lines of its own.
    lines = [
        [json.loads(x) for x in text.splitlines() if x.startswith("{")]
        for text in outputs
    ]
    assert [len(x) for x in lines] == [NUM_STEPS * len(CASES)] * 2
    parts = range(0, NUM_STEPS * len(CASES), NUM_STEPS)
    return {
        case: [x[i : i + NUM_STEPS] for x in lines]
        for case, i in zip(CASES, parts, strict=True)
    }


def alone(name, **changes):
    """The same of one process with one device."""
    step, state = tiny.trainer(tiny.config(name, **changes))
    lines = []
    for _ in range(NUM_STEPS):
        state, metrics = step(state)
        lines.append({key: float(x) for key, x in metrics.items()})
    return lines


@pytest.mark.parametrize(("name", "axis"), CASES)
def test_two_processes_train_as_one(together, name, axis):
    first, second = together[name, axis]
    assert first == second
    for got, expected in zip(first, alone(name, **changes_of(name)), strict=True):
        assert set(got) == set(expected)
        expected.pop("rollout/idle", None)  # each device plays its own episodes
        for key, value in expected.items():
            # Sums are taken in another order; a gap is itself the rounding of two ways.
            loose = key.endswith(("logp_abs_diff_max", "grad_norm"))
            limit = 1e-3 if loose else 1e-5
            np.testing.assert_allclose(
                got[key], value, rtol=limit, atol=1e-5, err_msg=key
            )


def start(num, workdir, flags=lambda i: [], **env):
    """Start `launch.train` in several processes, as one run."""
    command = [sys.executable, "-m", "launch.train", "--config=configs/sft.py:smoke"]
    command += [f"--workdir={workdir}", "--distributed"]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    return [
        subprocess.Popen(
            [*command, *flags(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | {
                "JAX_PLATFORMS": "cpu",
                "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
                processes_of.ADDRESS: address,
                processes_of.NUMBER: str(num),
                processes_of.INDEX: str(i),
            }
            | {key: value for key, value in env.items() if i},
        )
        for i in range(num)
    ]


def errors(process):
    """The lines that the command itself has written to stderr."""
    lines = process.communicate(timeout=120)[1].splitlines()
    return [x for x in lines if x.startswith("train.py: ")]


LAST = 120
LONG = f"""init_from=random model.width=16 model.num_layers=1 train.num_steps={LAST}
optim.learning_rate=1e-4 train.log_every=1 checkpoint.every=15 mesh.data=1 mesh.fsdp=-1
algorithm.num_tokens=256 paft.alpha=0.0 eval.scenarios=()""".split()
LONG = [f"--config.{change}" for change in LONG]


@pytest.mark.parametrize(
    "lost_ones",
    [((2, 0),), pytest.param(((4, 3), (2, 0)), marks=pytest.mark.hours)],
    ids=["two", "four, then two"],
)
def test_processes_are_lost_and_fewer_go_on(tmp_path, lost_ones):
    """So many, then one do the same as one that is never interrupted."""
    workdir, whole = tmp_path / "run", tmp_path / "whole"
    for num, victim in lost_ones:
        steps = checkpoints(workdir)
        started = start(num, workdir, lambda i: LONG)
        wait_for(lambda before=steps: checkpoints(workdir) - before, started)
        started[victim].kill()
        lost = time.monotonic()
        for i, process in enumerate(started):
            if i == victim:
                process.communicate()
                continue
            out, err = process.communicate(timeout=60)
            assert time.monotonic() - lost < 60
            assert process.returncode != 0, out
            # JAX aborts a process if it is the first to miss the one that leads.
            said = "another process of this run has ended" in err
            assert said or "another task died" in err and victim == 0, err
    (alone,) = start(1, workdir, lambda i: LONG)
    out, err = alone.communicate(timeout=600)
    assert alone.returncode == 0, err
    (begun,) = [x for x in out.splitlines() if "from step" in x]
    # Those of the last loss had gone on from the ones before.
    assert int(begun.split()[-1]) > max(steps, default=0)
    (other,) = start(1, whole, lambda i: LONG)
    assert other.communicate(timeout=600) and other.returncode == 0

    def steps_of(folder):
        rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        return [row for row in rows if "train/loss" in row]

    got, expected = steps_of(workdir), steps_of(whole)
    assert [row["step"] for row in got] == [*range(1, LAST + 1)]  # each once
    for row, other in zip(got, expected, strict=True):
        assert row["train/num_tokens"] == other["train/num_tokens"]  # the same tasks
        assert row["train/loss"] == pytest.approx(other["train/loss"], rel=1e-3)
    for folder in (workdir, whole):
        assert (folder / f"eval/{LAST}/report.json").exists()


def checkpoints(workdir):
    """The steps that have been saved."""
    names = {x.parent.name for x in workdir.glob("checkpoints/*/state")}
    return {int(name) for name in names if name.isdecimal()}


def wait_for(done, started):
    """Wait until something is done, while processes run."""
    for _ in range(1200):
        if done():
            return
        ended = [x for x in started if x.poll() is not None]
        assert not ended, ended[0].communicate()
        time.sleep(0.25)
    raise AssertionError("nothing was done in five minutes")


@pytest.mark.parametrize("what", ["config", "commit"])
def test_processes_that_differ_end_with_one_line(what, tmp_path):
    """Each of them says which differ, and none trains."""

    def seed(i):
        return [f"--config.seed={i}"] if what == "config" else []

    # A folder where there is no commit.
    env = {"GIT_DIR": str(tmp_path)} if what == "commit" else {}
    started = start(2, tmp_path / "run", seed, **env)
    for process in started:
        (line,) = errors(process)
        assert process.returncode == 2 and f"process 0 has the {what}" in line
    assert not (tmp_path / "run").exists()


def test_a_coordinator_that_is_not_there():
    code = "from launch.common import processes as p; p.CONNECT_TIMEOUT = 3; p.join()"
    env = {processes_of.ADDRESS: "localhost:1", processes_of.NUMBER: "2"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | env | {processes_of.INDEX: "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = [x for x in done.stderr.splitlines() if "--distributed" in x]
    assert done.returncode == 2 and len(lines) == 1
    assert "have connected to localhost:1; start the same command in each" in lines[0]
