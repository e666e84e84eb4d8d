"""An effect with one wrong argument does not end in success, in any domain."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import hashing
from openagent_jax.curriculum import draw
from openagent_jax.domains import library
from openagent_jax.environments import registry
from openagent_jax.environments.tools import types
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.environments.world import SPLITS, Settings, Spelling
from openagent_jax.text import reply_scan, scalars
from tests import helpers

DOMAINS = (*library.TRAIN, *library.HELD_OUT)
MAX_TURNS, MAX_EFFECTS = 14, 4  # of one episode
NUM_VALUES = 4  # that an argument is drawn to be


def wrong_values(task, row, argument, value):
    """Other values of an argument, and which of them are wrong and accepted."""
    tools = task.tools
    low, high = tools.arg_low[row, argument], tools.arg_high[row, argument]
    default = tools.arg_default[row, argument]
    is_unquoted = (low >= scalars.UNQUOTED) & (low < scalars.NUMBER)
    first = low - jnp.where(is_unquoted, scalars.UNQUOTED, 0)
    size = jnp.maximum(high - low, 1).astype(jnp.uint32)
    hashed = hashing.mix(task.world, jnp.arange(NUM_VALUES))
    drawn = scalars.canonical(first + (hashed % size).astype(jnp.int32))
    left_out = jnp.full(1, types.MISSING)
    others = jnp.concatenate([drawn, task.constants, left_out])
    true = jnp.where(value == types.MISSING, default, value)
    optional = (others == types.MISSING) & (default >= 0) & (true != default)
    fits = scalars.within(others, low, high) & (others != true) | optional
    return others, fits & (high > low)


@functools.cache
def make_world(domains):
    settings = Settings(domain=",".join(domains), num_goals=96, max_turns=MAX_TURNS)
    return registry.make(settings, Spelling(helpers.tokenizer()))


@functools.cache
def make_replay(domains, num):
    """Return a function that plays the expert's episodes again, with wrong values.

    `replay(tables, split, effect, argument)` changes one argument in one of the effects
    of each episode. It returns whether values are wrong, whether the episodes with them
    are a success, and whether those of the expert are.
    """
    environment = make_world(domains).environment

    def one(tables, split, key, index, effect, argument):
        task = environment.nth_task(tables, key, index, split)
        start = environment.reset(tables, task)

        def turn(state, _):
            action = environment.expert(tables, task, state)
            return environment.step(tables, task, state, action)[0], action

        end, actions = jax.lax.scan(turn, start, None, MAX_TURNS)
        called = actions.kind == reply_scan.CALL
        rows = jnp.where(called, actions.call.tool, 0)
        counts = called & task.tools.effect[rows]
        here = counts & (jnp.cumsum(counts) - 1 == effect)
        t = jnp.argmax(here)
        value = actions.call.args[t, argument]
        others, fits = wrong_values(task, rows[t], argument, value)

        def again(wrong):
            args = actions.call.args.at[t, argument].set(wrong)

            def turn(state, item):
                action, given = item
                call = types.ToolCall(action.call.tool, given, action.call.code)
                action = types.Action(action.kind, call, action.value)
                return environment.step(tables, task, state, action)[0], None

            return jax.lax.scan(turn, start, (actions, args))[0].success

        return fits & jnp.any(here), jax.vmap(again)(others), end.success

    @jax.jit
    def replay(tables, split, effect, argument):
        keys = draw.task_keys(jax.random.key(3), 0, num)
        each = jax.vmap(one, (None, None, 0, 0, None, None))
        return each(tables, split, keys, jnp.arange(num), effect, argument)

    return replay


def check(domains, split, num):
    tables, replay = make_world(domains).tables, make_replay(domains, num)
    split = jnp.int32(domain.index(split))
    found, tried = set(), np.zeros(len(domains), int)
    for effect in range(MAX_EFFECTS):
        for argument in range(helpers.LIMITS.num_args):
            fits, success, solved = helpers.host(
                replay(tables, split, effect, argument)
            )
            assert np.all(solved)
            for i in range(num):
                tried[i % len(domains)] += np.sum(fits[i])
                if np.any(success[i] & fits[i]):
                    found.add((domains[i % len(domains)], i, effect, argument))
    assert np.all(tried >= num // len(domains))
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_every_domain(split, num=6):
    check(DOMAINS, split, num * len(DOMAINS))


@pytest.mark.hours
@pytest.mark.parametrize("split", SPLITS)
def test_many_tasks_of_every_domain(split, num=32):
    check(DOMAINS, split, num * len(DOMAINS))
