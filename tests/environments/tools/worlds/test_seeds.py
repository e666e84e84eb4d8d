"""Tasks that change records: no record is already as the request wants it."""

import jax
import numpy as np
import pytest

from openagent_jax.environments.tools.worlds import seeds
from openagent_jax.environments.world import SPLITS
from tests import helpers


@jax.jit
def changes(tasks):
    """Which tasks have a step that changes nothing, and with which seeds."""
    again = jax.vmap(seeds.with_changes)(tasks)
    return jax.vmap(seeds._is_useless)(tasks), again.world


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
