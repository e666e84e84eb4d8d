"""An effect with one wrong argument never ends in success, in any domain."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.curriculum import draw
from openagent_jax.domains import library
from openagent_jax.environments import registry
from openagent_jax.environments.tools import types
from openagent_jax.environments.world import SPLITS, Settings, Spelling
from openagent_jax.text import reply_scan, scalars
from tests import helpers

DOMAINS = (*library.TRAIN, *library.HELD_OUT)
MAX_TURNS, MAX_EFFECTS = 14, 4  # the most of one goal


@functools.cache
def make_world(domains, num_goals):
    settings = Settings(
        domain=",".join(domains), num_goals=num_goals, max_turns=MAX_TURNS
    )
    return registry.make(settings, Spelling(helpers.tokenizer()))


@functools.cache
def make_replay(domains, num_goals, split, num):
    """Return `replay(tables, start, effect, argument)` for a batch of tasks.

    It plays the expert's actions again, but with another value of one argument in one
    of its effects, and returns by task whether there is such an argument, and whether
    the episode was a success.
    """
    environment = make_world(domains, num_goals).environment

    def one(tables, key, index, effect, argument):
        task = environment.nth_task(tables, key, index, split)
        start = environment.reset(tables, task)
        tools = task.tools

        def turn(state, _):
            action = environment.expert(tables, task, state)
            return environment.step(tables, task, state, action)[0], action

        end, actions = jax.lax.scan(turn, start, None, MAX_TURNS)
        called = actions.kind == reply_scan.CALL
        row = jnp.where(called, actions.call.tool, 0)
        counts = called & tools.effect[row]
        here = counts & (jnp.cumsum(counts) - 1 == effect)
        t = jnp.argmax(here)
        n = row[t]
        low, high = tools.arg_low[n, argument], tools.arg_high[n, argument]
        default = tools.arg_default[n, argument]
        old = actions.call.args[t, argument]
        value = jnp.where(old == types.MISSING, default, old)
        # Several values of its type; the last ones are those of other arguments.
        size = jnp.maximum(high - low, 1).astype(jnp.uint32)
        hashed = jax.vmap(lambda i: draw_mix(task.world, i))(jnp.arange(4))
        base = low - jnp.where(
            (low >= scalars.UNQUOTED) & (low < scalars.NUMBER), scalars.UNQUOTED, 0
        )
        drawn = scalars.canonical(base + (hashed % size).astype(jnp.int32))
        others = jnp.concatenate([drawn, task.constants, types_missing(default)])
        fits = (others != value) & jnp.any(here) & (high > low)
        fits &= scalars.within(others, low, high) | (others == types.MISSING)
        # Left out, an argument is its default.
        fits &= (others != types.MISSING) | ((default >= 0) & (value != default))

        def again(wrong):
            args = actions.call.args.at[t, argument].set(wrong)

            def turn(state, item):
                action, given = item
                call = types.ToolCall(action.call.tool, given, action.call.code)
                action = types.Action(action.kind, call, action.value)
                return environment.step(tables, task, state, action)[0], None

            return jax.lax.scan(turn, start, (actions, args))[0].success

        return fits, jax.vmap(again)(others) & fits, end.success

    @jax.jit
    def replay(tables, start, effect, argument):
        keys = draw.task_keys(jax.random.key(3), start, num)
        each = jax.vmap(one, (None, 0, 0, None, None))
        return each(tables, keys, start + jnp.arange(num), effect, argument)

    return replay


def draw_mix(world, i):
    from openagent_jax import draw as hashing

    return hashing.mix(world, i)


def types_missing(default):
    return jnp.full(1, types.MISSING)


def check(domains, num_goals, split, num, start=0):
    tables = make_world(domains, num_goals).tables
    replay = make_replay(domains, num_goals, split, num)
    found, tried = {}, np.zeros(len(domains), int)
    for effect in range(MAX_EFFECTS):
        for argument in range(helpers.LIMITS.num_args):
            fits, success, solved = helpers.host(
                replay(tables, start, effect, argument)
            )
            assert np.all(solved)
            for i in range(num):
                tried[i % len(domains)] += fits[i].sum()
                if success[i].any():
                    name = domains[i % len(domains)]
                    found.setdefault(name, []).append(
                        (i, effect, argument, int(success[i].sum()), int(fits[i].sum()))
                    )
    return found, tried
