"""No run of a chain draws the tasks of another one."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch.common import backbones, build, compiled_step, runs
from openagent_jax import train, train_step
from tests import helpers, tiny

NUM_STEPS, NUM_TASKS = 6, 8


def save_run(workdir, c, manifest=True):
    """Write the files of a run from which others can start, without training it."""
    model = backbones.backbone(c)
    workdir.mkdir()
    tiny.save_run(workdir, c, model, backbones.first_params(c, model))
    if manifest:
        text = json.dumps({runs.STAGE: model.stage})
        (workdir / "manifest.json").write_text(text)
    return c.replace({"init_from": str(workdir)})


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Configs of seed 0, each of which starts from the run of the one before."""
    folder = tmp_path_factory.mktemp("chain")
    first = tiny.config("sft")
    second = save_run(folder / "first", first)
    third = save_run(folder / "second", second)
    return first, second, third


@jax.jit
def sample(tables, key):
    """The worlds, goals and values of the tasks of a run's first steps."""
    curriculum = build.curriculum(tiny.config("sft"), helpers.ENVIRONMENT, key)

    def one(step):
        state = train.TrainState(step, {}, (), key)
        task_key, edit_key = train_step.step_keys(state)
        return curriculum.sample((), tables, task_key, edit_key, step, NUM_TASKS)

    tasks = jax.lax.map(one, jnp.arange(NUM_STEPS))
    return tasks.world, tasks.goal.kind, tasks.constants


def tasks_of(c):
    """The tasks of a run, as a set."""
    model = backbones.backbone(c)
    tables = helpers.world("poi").tables
    found = helpers.host(sample(tables, compiled_step.root_key(c, model)))
    rows = (x.reshape(NUM_STEPS * NUM_TASKS, -1) for x in found)
    return {*map(tuple, np.concatenate([*rows], axis=1).tolist())}


def test_runs_of_a_chain_share_no_tasks(chain):
    """SFT, and GRPO that starts from it; two successive runs of one algorithm; and
    different algorithms that start from the same model. The seed is 0 everywhere."""
    grpo = {"algorithm.name": "grpo"}
    configs = [*chain, *(c.replace(grpo) for c in chain)]
    every = [tasks_of(c) for c in configs]
    assert all(len(tasks) == NUM_STEPS * NUM_TASKS for tasks in every)
    for one, other in itertools.combinations(every, 2):
        assert not one & other
    assert tasks_of(chain[0]) == every[0]
    assert not tasks_of(chain[0].replace({"seed": 1})) & every[0]


def test_stages(chain, tmp_path):
    """A run of an earlier version has no stage in its manifest."""
    assert [backbones.backbone(c).stage for c in chain] == [0, 1, 2]
    old = save_run(tmp_path / "old", chain[2], manifest=False)
    assert backbones.backbone(old).stage == 3
    (tmp_path / "old" / "manifest.json").write_text("{}")
    assert backbones.backbone(old).stage == 3
    gone = chain[2].replace({"init_from": "no/longer/there"})
    (tmp_path / "old" / "config.json").write_text(
        json.dumps(tiny.configs.to_dict(gone))
    )
    assert backbones.backbone(old).stage == 1
