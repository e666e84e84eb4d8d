"""The oracle solves the tasks of the library, clean and perturbed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import expert, perturb
from openagent_jax.curriculum import draw
from openagent_jax.domains import library
from openagent_jax.environments import registry
from openagent_jax.environments.world import Settings, Spelling
from tests import helpers

NUM = 1024  # tasks at once
ENTRIES = sorted(perturb.catalogue(registry.spec("poi")))


@pytest.fixture(scope="module")
def world():
    names = ",".join((*library.TRAIN, *library.HELD_OUT))
    settings = Settings(
        domain=names,
        transfer="medical",
        num_goals=96,
        max_turns=14,
        action_tokens=96,
        result_tokens=112,
    )
    return registry.make(settings, Spelling(helpers.tokenizer()))


def play(world, entry, split, num_batches=1):
    """Return the outcomes of the oracle's episodes, and the kind of each goal."""
    environment = world.environment
    names = (entry,) if entry else ()
    make = draw.make_draw(environment, names, split)

    @jax.jit
    def batch(tables, task_keys, edit_keys):
        def one(task_key, edit_key):
            scenario = jnp.int32(len(names))  # 0: clean
            task = make(tables, task_key, edit_key, 1.0, scenario).task
            kind = environment.sample(tables, task_key, split).goal.kind
            episode = expert.demonstrate(environment, tables, task)
            return environment.outcome(tables, task, episode.state), kind

        return jax.vmap(one)(task_keys, edit_keys)

    for i in range(num_batches):
        keys = draw.task_keys(jax.random.key(1), i * NUM, NUM)
        edits = draw.edit_keys(keys)
        yield jax.device_get(batch(world.tables, keys, edits))


def check(world, entry, num_batches=1):
    num_solvable = seen = 0
    for split in ("train", "test"):
        kinds = set()
        for outcome, kind in play(world, entry, split, num_batches):
            assert outcome.success.all(), (entry, split)
            solvable = outcome.solvable
            assert (outcome.refused == ~solvable).all()
            num_solvable += solvable.sum()
            kinds |= set(kind.tolist())
        domains = world.tables.source.tasks.goal_domain
        seen = len(set(np.asarray(domains)[sorted(kinds)].tolist()))
        assert seen == 26
    return num_solvable


@pytest.mark.slow
def test_clean(world):
    assert check(world, "") == 2 * NUM


@pytest.mark.hours
@pytest.mark.parametrize("entry", ENTRIES)
def test_perturbed(world, entry):
    check(world, entry, num_batches=4)
