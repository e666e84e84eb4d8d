"""Tasks that change records: no record is already as the request wants it."""

import jax
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.environments.tools import environment
from openagent_jax.environments.tools.worlds import seeds
from openagent_jax.environments.world import SPLITS
from tests import helpers

STATEFUL = ("banking", "calendar", "film", "shop", "travel")
UNSOLVABLE = [name for name, entry in helpers.CATALOGUE.items() if not entry.solvable]


@jax.jit
def changes(tasks):
    """Which tasks have a step that changes nothing, and with which seeds."""
    again = jax.vmap(seeds.with_changes)(tasks)
    return jax.vmap(seeds._is_useless)(tasks), again.world


@jax.jit
def is_same(tasks, others):
    return jax.vmap(perturb.equal)(tasks, others)


@jax.jit
def certify(tasks):
    return jax.vmap(environment.certificate)(tasks)


@pytest.mark.parametrize("split", SPLITS)
def test_no_step_is_useless(split, num=16):
    """Some keys have a seed that is no use, and get another one of their split."""
    num_other = 0
    for i in range(num):
        start = i * helpers.BATCH
        tasks = helpers.tasks("calendar", split, start)
        useless, world = helpers.host(changes(tasks))
        assert not np.any(useless)
        assert np.array_equal(world, tasks.world)
        first = np.asarray(jax.random.key_data(helpers.keys(0, start)))[:, -1]
        num_other += np.sum(first >> 1 != world >> 1)
        assert np.all(world % 2 == (split != "train"))
    assert 0 < num_other < 0.02 * num * helpers.BATCH


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("entry", UNSOLVABLE)
def test_no_task_stays_solvable_by_chance(entry, name, split, num=16):
    """Tasks that have no room for a change stay as they are, except under
    `unsolvable`, which finds another change."""
    num_same = 0
    for i in range(num):
        start = i * helpers.BATCH
        tasks = helpers.edited(name, split, entry, start=start)
        same = np.asarray(is_same(tasks, helpers.tasks(name, split, start)))
        assert not np.any(np.asarray(certify(tasks).solvable) & ~same)
        num_same += np.sum(same)
    assert num_same <= (0 if entry == "unsolvable" else 0.05 * num * helpers.BATCH)
