"""Lists, nested fields and conditions, played: experts, texts, and dull agents."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments import registry
from openagent_jax.environments.tools import conditions
from openagent_jax.environments.world import Settings, Spelling
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan
from tests import helpers
from tests.environments.tools.worlds import ferries

NUM, TURNS, BYTES = 1024, 7, 400
FIRST, ALWAYS, NEVER, EXPERT = range(4)  # agents


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    file = ferries.save(tmp_path_factory.mktemp("ferries"))
    settings = Settings(domain=str(file), transfer="poi", **ferries.SIZES)
    return registry.make(settings, Spelling(helpers.tokenizer()))


@pytest.fixture(scope="module")
def program(world):
    """Plays an agent that differs from the expert in one way."""
    environment, tables = world.environment, world.tables

    def edited(agent, task):
        """Return the task as a dull agent takes it."""
        goal, when = task.goal, task.goal.when
        num, size = task.constants.shape[0], task.tools.num_values
        # Instead of what a list is searched for, the first record.
        step = (goal.source - num) // size
        row = goal.tool[jnp.maximum(step, 0)]
        lists = task.tools.lists
        which = jnp.maximum(
            (goal.source - num) % size - (size - lists.derived.shape[1]), 0
        )
        derived = lists.derived[row, which]
        is_best = (goal.source >= num) & (
            (goal.source - num) % size >= size - lists.derived.shape[1]
        )
        first = num + step * size + derived[..., 2]
        source = jnp.where(is_best & (agent == FIRST), first, goal.source)
        impossible = jnp.full_like(when[:, 1], conditions.EQUALS)
        when = jnp.where(agent == ALWAYS, -1, when)
        tool = jnp.where((agent == NEVER) & (task.goal.when[:, 0] >= 0), -1, goal.tool)
        del impossible
        return replace(task, goal=replace(goal, source=source, when=when, tool=tool))

    @jax.jit
    @jax.vmap
    def play(key, agent):
        task = environment.sample(tables, key, "train")
        mine = edited(agent, task)
        state, own = environment.reset(tables, task), environment.reset(tables, mine)
        shown = []
        fits = jnp.bool_(True)
        for _ in range(TURNS):
            action = environment.expert(tables, mine, own)
            pieces = environment.utterance(tables, task, action)
            tokens, _, size = lexicons.write(tables.lexicon, pieces, 120)
            text, length = reply_scan.detokenize(tables.lexicon, tokens, size - 1)
            read = environment.parse(tables, task, text, length)
            fits &= (read.call.tool == action.call.tool) | state.finished
            fits &= jnp.all(read.call.args == action.call.args) | state.finished
            state, timestep = environment.step(tables, task, state, read)
            own, _ = environment.step(tables, mine, own, read)
            pieces = environment.observe(tables, task, timestep.observation)
            shown.append((timestep.observation, pieces))
        shown = jax.tree.map(lambda *x: jnp.stack(x), *shown)
        return task, state, shown, fits, environment.certificate(tables, task)

    return play


@pytest.fixture(scope="module")
def expert(program):
    return jax.device_get(program(helpers.keys(num=NUM), jnp.full(NUM, EXPERT)))


def of_goals(world, played, test):
    """Which tasks have a goal that fits."""
    goals = world_goals(world)
    return np.array([test(goals[kind]) for kind in played[0].goal.kind])


def world_goals(world):
    from openagent_jax.environments.tools.worlds import goal_sampling

    return goal_sampling.sample_goals(ferries.spec(), ferries.LIMITS, 1024)


def test_the_expert_solves_every_task(expert):
    task, state, _, fits, proof = expert
    assert fits.all() and proof.solvable.all()
    assert state.success.all() and not state.wrong_effects.any()
    np.testing.assert_array_equal(state.num_calls, proof.fewest_calls)
    steps = np.sum(task.goal.tool >= 0, axis=1)
    has = np.any(task.goal.when[:, :, 0] >= 0, axis=1)
    assert 0.2 < has.mean() < 0.8
    # About half of the conditions hold.
    skipped = (proof.fewest_calls < steps)[has]
    assert 0.35 < skipped.mean() < 0.65
    assert (proof.fewest_calls == steps)[~has].all()
