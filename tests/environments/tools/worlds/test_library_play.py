"""The oracle solves the tasks of the library, clean and perturbed."""

import contextlib
import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.curriculum import draw
from openagent_jax.domains import library
from openagent_jax.environments import registry
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.environments.world import SPLITS, Settings, Spelling
from tests import helpers

DOMAINS = (*library.TRAIN, *library.HELD_OUT)
FEW, MANY = (num * len(DOMAINS) for num in (10, 100))  # at once; domains take turns
NUM_BATCHES = 50  # of each split: with two splits, 10,000 tasks of each domain
CATALOGUE = perturb.catalogue(registry.spec("poi"))
NAMES = tuple(CATALOGUE)
# Compiling all of them takes most of the time of a few tasks each.
SUITE = registry.spec("poi").suite
UNSOLVABLE = tuple(name for name, entry in CATALOGUE.items() if not entry.solvable)
NUM_PAIRS = 200


class Played(NamedTuple):
    """What the oracle's episodes came to, by task; the domains take turns."""

    changed: np.ndarray  # by the perturbation; True where there is none
    solvable: np.ndarray
    as_certified: np.ndarray  # solved, or refused where that is certified as right


@functools.cache
def make_world(num_goals):
    settings = Settings(
        domain=",".join(DOMAINS),
        transfer="medical",
        num_goals=num_goals,
        max_turns=24,  # the certificate does not know how many there are
        action_tokens=96,
        result_tokens=112,
    )
    return registry.make(settings, Spelling(helpers.tokenizer()))


@functools.cache
def make_play(num_goals, names, num):
    """Return a function that plays a batch; all of its arguments are traced.

    Args:
      num_goals: how many goals are sampled from each domain.
      names: the perturbations that the scenarios 1, 2, ... stand for.
      num: how many tasks a batch has.

    Returns:
      `play(scenario, split, start) -> Played` of the tasks `start` to `start + num - 1`
      of a split, with its surface forms.
    """
    world = make_world(num_goals)
    environment = world.environment

    @jax.jit
    def batch(tables, scenario, split, start):
        make = draw.make_draw(environment, names, split)
        index = start + jnp.arange(num)
        keys = draw.task_keys(jax.random.key(1), start, num)

        def begin(index, key, edit_key):
            made = make(tables, key, edit_key, 1.0, scenario, index)
            return made.task, made.changed, environment.reset(tables, made.task)

        def turn(task, state):
            action = environment.expert(tables, task, state)
            return environment.step(tables, task, state, action)[0]

        # Most episodes are much shorter than the longest that there may be.
        task, changed, state = jax.vmap(begin)(index, keys, draw.edit_keys(keys))
        state = jax.lax.while_loop(
            lambda state: ~jnp.all(state.finished),
            lambda state: jax.vmap(turn)(task, state),
            state,
        )
        done = jax.vmap(lambda *x: environment.outcome(tables, *x))(task, state)
        right = done.success & (done.refused == ~done.solvable)
        return Played(changed, done.solvable, right)

    def play(scenario, split, start):
        index = jnp.int32(domain.index(split))
        return jax.device_get(batch(world.tables, scenario, index, start))

    return play


def wrong(played, is_solvable):
    """Return which tasks were not played as they should be, or are not as declared."""
    declared = np.where(played.changed, is_solvable, True)
    return ~played.as_certified | (played.solvable != declared)


def failed(play, scenario, split, start, is_solvable):
    """Return the domains of such tasks."""
    found = np.flatnonzero(wrong(play(scenario, split, start), is_solvable))
    return {DOMAINS[i % len(DOMAINS)] for i in found}


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("entry", ["clean", *SUITE])
def test_some_tasks_of_each_domain(entry, split):
    """A mixture has all that one of its domains has, so these are more than their sum.

    No task stays solvable by chance: no tool that is taken away belongs to a step that
    has nothing to do. A task that has no room for a change stays as it is, except under
    `unsolvable`, which finds another change.
    """
    scenario = 0 if entry == "clean" else 1 + SUITE.index(entry)
    played = make_play(96, SUITE, FEW)(scenario, split, 0)
    is_solvable = entry not in UNSOLVABLE
    assert not wrong(played, is_solvable).any()
    if not is_solvable:
        assert played.changed.mean() >= (1 if entry == "unsolvable" else 0.95)


@pytest.mark.hours
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("entry", ["clean", *NAMES])
def test_ten_thousand_tasks_of_each_domain(entry, split):
    scenario = 0 if entry == "clean" else 1 + NAMES.index(entry)
    play, solvable = make_play(1024, NAMES, MANY), entry not in UNSOLVABLE
    for i in range(NUM_BATCHES):
        assert not failed(play, scenario, split, i * MANY, solvable), i


def random_pairs():
    """Compositions of two entries, drawn from those that are possible."""
    pairs = []
    for names in itertools.permutations(CATALOGUE, 2):
        with contextlib.suppress(ValueError):
            pairs.append(perturb.entry(registry.spec("poi"), "+".join(names)).name)
    chosen = np.random.default_rng(0).choice(len(pairs), NUM_PAIRS, replace=False)
    return tuple(pairs[i] for i in chosen)


@pytest.mark.hours
@pytest.mark.parametrize("split", SPLITS)
def test_random_pairs(split):
    """On 100 tasks of each domain for each pair and split.

    Whether a task can be solved, the certificate says of each: what one part takes
    away, the other one may need, or make needless.
    """
    pairs = random_pairs()
    play, changed, bad = make_play(1024, pairs, MANY), 0, []
    for i, pair in enumerate(pairs, 1):
        played = play(i, split, 0)
        changed += played.changed.any()
        if not played.as_certified.all():
            bad.append(pair)
    assert not bad
    assert changed > 0.9 * len(pairs)
