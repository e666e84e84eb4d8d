"""The scripted agents that bound what a policy can do, in two environments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.curriculum import draw
from openagent_jax.environments import registry
from openagent_jax.environments.world import Settings, Spelling
from openagent_jax.evaluation import bounds, simple_agents
from openagent_jax.report import intervals
from tests import helpers

NUM = helpers.BATCH
NEVER = np.full(8, -1)  # what `fit` returns if no counts are refused
# An entry whose tasks the documents show to be unsolvable, and its counterpart.
PAIRS = [
    ("poi", "tool_withheld", "spare_withheld"),
    ("poi", "contradiction", "spare_contradiction"),
    ("poi", "unsolvable", "still_solvable"),
    ("crafting", "impossible_goal", ""),
]


@functools.cache
def world(name):
    if name == "crafting":
        return registry.make(Settings(name), Spelling(helpers.tokenizer()))
    return helpers.world(name)


@functools.cache
def fitted(name):
    return bounds.fit(world(name))


@functools.cache
def tasks(name, scenario):
    """A batch of test tasks under a scenario, and which of them it changed."""
    environment, names = world(name).environment, [scenario] * (scenario != draw.CLEAN)
    one = draw.make_draw(environment, names, "test")

    @jax.jit
    def every(tables, keys):
        edited = jax.vmap(lambda key, edit: one(tables, key, edit, 1.0, len(names)))
        found = edited(keys, draw.edit_keys(keys))
        return found.task, found.changed

    made, changed = every(world(name).tables, helpers.keys(7))
    return made, np.asarray(changed)


def refuses_at_once(environment, tables, task):
    """Return whether the documents alone tell the expert to refuse a task."""
    start = environment.reset(tables, task)
    action = environment.expert(tables, task, start)
    after, _ = environment.step(tables, task, start, action)
    return environment.outcome(tables, task, after).refused


@functools.partial(jax.jit, static_argnums=0)
def play_all(environment, tables, batch, refused):
    def one(task):
        at_once = refuses_at_once(environment, tables, task)
        return bounds.play(environment, tables, task, refused), at_once

    return jax.vmap(one)(batch)


def play(name, scenario, refused=None, environment=None):
    """Outcomes of each agent, and which tasks the expert refuses at once; NumPy."""
    batch, changed = tasks(name, scenario)
    refused = fitted(name) if refused is None else refused
    environment = environment or world(name).environment
    found = play_all(environment, world(name).tables, batch, jnp.asarray(refused))
    return jax.tree.map(lambda x: np.asarray(x)[changed], found)


def counterpart(name, scenario, named):
    """The counterpart of an entry if the catalogue has it, else ""."""
    entries = perturb.catalogue(world(name).environment)
    other = entries[scenario].counterpart or named
    return other if other in entries else ""


@pytest.mark.parametrize("name", ["poi", "crafting"])
def test_agents_on_clean_tasks(name):
    found, at_once = play(name, draw.CLEAN)
    assert set(found) == set(bounds.AGENTS)
    assert not at_once.any()
    for agent in ("oracle", "counting", "asker"):
        assert found[agent].success.all(), agent
    assert found["refuser"].refused.all() and not found["refuser"].success.any()
    assert (found["oracle"].num_questions == 0).all()
    assert (found["asker"].num_needless_questions == 1).all()
    assert (found["asker"].num_calls == found["oracle"].num_calls).all()


@pytest.mark.parametrize(
    ("name", "scenario"), [("poi", "query_underspecified"), ("crafting", "vague_goal")]
)
def test_a_question_that_tells_something_is_not_needless(name, scenario):
    found, _ = play(name, scenario)
    assert found["asker"].success.all()
    assert (found["asker"].num_questions == 1).all()
    assert not found["asker"].num_needless_questions.any()


@pytest.mark.parametrize(("name", "scenario", "_"), PAIRS)
def test_without_reading_nobody_refuses(name, scenario, _):
    """Where documents decide, the counting agent fails unless counts tell it."""
    found, at_once = play(name, scenario, NEVER)
    assert at_once.any()
    assert found["oracle"].success.all() and found["refuser"].success.all()
    assert not found["counting"].success[at_once].any()
    assert not found["counting"].refused[at_once].any()
    assert found["counting"].success[~at_once].all()  # feedback decides these


@pytest.mark.parametrize("name", ["poi", "crafting"])
def test_the_counting_agent_uses_counts_that_give_the_answer_away(name):
    environment = world(name).environment
    telling = environment._replace(
        counts=lambda tables, task: environment.certificate(
            tables, task
        ).solvable.astype(jnp.int32)[None]
    )
    refused = bounds.fit(world(name)._replace(environment=telling), num_tasks=512)
    assert (refused >= 0).sum() == 1
    scenario = next(scenario for x, scenario, _ in PAIRS if x == name)
    for played in (draw.CLEAN, scenario):
        found, _ = play(name, played, refused, telling)
        assert found["counting"].success.all()


@pytest.mark.parametrize(("name", "scenario", "other"), PAIRS)
def test_counts_do_not_tell_what_is_solvable(name, scenario, other):
    """The law of shortcuts: over an entry and its counterpart, counting is a guess.

    An entry without a counterpart in the catalogue breaks the law, and the counting
    agent shows it. Only tasks that documents decide count: feedback may be read.
    """
    other = counterpart(name, scenario, other)
    found, at_once = play(name, scenario)
    refused = found["counting"].success[at_once]
    if not other:
        assert name != "poi" or refused.mean() > 0.95  # 4 and 6 documents give it away
        pytest.skip(f"{scenario} has no counterpart in the catalogue")
    acted = play(name, other)[0]["counting"].success
    size = min(len(refused), len(acted))
    assert size > 50
    both = np.concatenate([refused[:size], acted[:size]])
    assert intervals.rate(intervals.of_one(both))["low"] <= 0.5


def test_simple_agents_play_the_tasks_of_an_evaluation():
    """All of them, with the repeats of each; a report averages those that changed."""
    names, settings = ("semantic_renaming", "runtime_error"), {"split": "test"}
    found = simple_agents.bounds(
        world("poi"), names, seed=3, num_tasks=20, strength=1.0, repeats=2, **settings
    )
    assert set(found) == {"memoriser", "reader", "retrier"}
    for by_scenario in found.values():
        assert list(by_scenario) == [draw.CLEAN, *names]
        assert all(len(x) == 40 for x in by_scenario.values())
        assert by_scenario[draw.CLEAN].all()
    assert not found["memoriser"]["semantic_renaming"].any()
    assert found["reader"]["semantic_renaming"].all()
    assert not found["reader"]["runtime_error"].any()
    assert found["retrier"]["runtime_error"].all()
