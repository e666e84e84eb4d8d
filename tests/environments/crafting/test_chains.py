"""Oracle, expert and certificate agree on all pairs of perturbations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import expert
from openagent_jax.curriculum import draw
from tests import helpers
from tests.environments.crafting import crafts

NUM = len(crafts.EDITS)
REPEATS = 16  # tasks of each pair


@functools.cache
def chained():
    """`(first, second, changed by each, certificates, states)`, a row for each task."""
    first, second = np.divmod(np.arange(NUM * NUM * REPEATS) % (NUM * NUM), NUM)
    environment = crafts.world().environment

    @jax.jit
    def play(tables, keys, first, second):
        edit = draw.make_edit(environment, crafts.EDITS[1:], "train")

        def one(key, *scenarios):
            task = environment.sample(tables, key, "train")
            changed = []
            for i, scenario in enumerate(scenarios):
                edited = edit(
                    tables, jax.random.fold_in(key, i), task, jnp.float32(1), scenario
                )
                task = edited.task
                changed.append(edited.changed)
            proof = environment.certificate(tables, task)
            state = expert.demonstrate(environment, tables, task).state
            return jnp.stack(changed), proof, state

        return jax.vmap(one)(keys, first, second)

    keys = helpers.keys(3, num=len(first))
    changed, *rest = play(crafts.world().tables, keys, first, second)
    return first, second, np.asarray(changed), *helpers.host(rest)


@pytest.mark.slow
def test_expert_and_certificate():
    first, second, _, proof, state = chained()
    pairs = np.array(crafts.EDITS)[np.stack([first, second], axis=1)]
    for claim in (
        state.finished,
        state.success,
        state.refused == ~proof.solvable,
        ~proof.solvable | (state.num_calls == proof.fewest_calls),
        state.wrong_effects == 0,
    ):
        assert claim.all(), pairs[~claim]
    assert 500 < np.sum(proof.solvable) < len(first) - 500


@pytest.mark.slow
def test_solvability():
    """Solvable entries keep tasks solvable; the second may mend what the first broke,
    but never the other way round."""
    first, second, changed, proof, _ = chained()
    solvable = np.array([name not in UNSOLVABLE for name in crafts.EDITS])
    keeps = solvable[np.stack([first, second], axis=1)] | ~changed
    assert proof.solvable[keeps.all(axis=1)].all()
    assert not proof.solvable[~keeps[:, 1]].any()


UNSOLVABLE = {e.name for e in crafts.CATALOGUE.values() if not e.solvable}
