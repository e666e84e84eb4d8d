"""Records that calls change, against a search of all sequences of calls."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.tools import cells, environment, oracle, solution, types
from openagent_jax.text import reply_scan, scalars, style
from tests import helpers
from tests.environments.tools import small_model
from tests.environments.tools import small_worlds as small

BATCH, NUM_CALLS, MAX_CALLS, NUM_TURNS = 64, 72, 6, 48
STATUSES = {
    style.OK: small_model.OK,
    style.BAD_ARGUMENT: small_model.BAD,
    style.NO_RECORD: small_model.NO_RECORD,
    style.TRANSIENT: small_model.DEAD,
    style.PERMANENT: small_model.DEAD,
    style.WRONG_CODE: small_model.EARLY,
    style.OUT_OF_ORDER: small_model.EARLY,
    style.UNKNOWN_TOOL: small_model.UNKNOWN,
    style.EXPIRED_CODE: small_model.EXPIRED,
    style.STALE: small_model.STALE,
    style.RATE_LIMITED: small_model.LIMITED,
}


@jax.jit
@jax.vmap
def facts(task, rows, args):
    """The plain results of calls, and the initial columns of each key."""
    values = jax.vmap(lambda row, arg: solution.results(task, row, arg))(rows, args)
    access = task.tools.access
    row = jnp.argmax(access.table)
    keys = jnp.arange(*small.KEYS)
    first = jax.vmap(lambda key: cells.initial(access, task.world, row, key))(keys)
    return values, first.was


@jax.jit
def play(lexicon, tasks, rows, args):
    """Make some calls, then let the expert act.

    Returns:
      The state at first, what the calls returned with the wrong effects after each, and
      the state at the end.
    """

    def one(task, rows, args):
        start = environment.reset(lexicon, task)

        def call(state, item):
            row, arg = item
            source = task.tools.code_from[row]
            there = task.tools.relation == task.tools.relation[source]
            knows = jnp.any(state.has_code & there) & (source >= 0)
            codes = jnp.where(state.renewed, task.faults.new_code, task.tools.code)
            code = jnp.where(knows, codes[source], -1)
            act = types.Action(
                jnp.int32(reply_scan.CALL),
                types.ToolCall(row, arg, code),
                jnp.int32(-1),
            )
            new, seen = environment.step(lexicon, task, state, act, 99)
            new = jax.tree.map(lambda x, y: jnp.where(row < 0, x, y), state, new)
            return new, (seen.observation, new.wrong_effects)

        def turn(state, _):
            act = oracle.expert(lexicon, task, state)
            new, _ = environment.step(lexicon, task, state, act, 99)
            return new, None

        state, seen = jax.lax.scan(call, start, (rows, args))
        end, _ = jax.lax.scan(turn, state, None, NUM_TURNS)
        return start, seen, end

    return jax.vmap(one)(tasks, rows, args)


def coded(world, row, args):
    """The arguments of a call as values."""
    kinds = world.tools[world.names[world.rows[row]]].args
    values = [
        x if k == "key" else scalars.code(x) for k, x in zip(kinds, args, strict=True)
    ]
    return values + [0] * (small.A - len(values))


def plain(values, kinds):
    if not np.any(values >= 0):
        return (None,) * len(kinds)
    return tuple(
        int(value) if kind == "key" else int(scalars.python(int(value)))
        for value, kind in zip(values, kinds, strict=False)
    )


def models(worlds, tasks):
    """The worlds in plain Python, with their drawn facts."""
    calls = [list(small.calls(world)) for world in worlds]
    rows = np.zeros((len(worlds), NUM_CALLS), np.int32)
    args = np.zeros((len(worlds), NUM_CALLS, small.A), np.int32)
    for i, (world, own) in enumerate(zip(worlds, calls, strict=True)):
        for k, call in enumerate(own):
            rows[i, k], args[i, k] = call[0], coded(world, *call)
    values, first = helpers.host(facts(tasks, rows, args))
    made = []
    for i, world in enumerate(worlds):
        results = {}
        for k, (row, arg) in enumerate(calls[i]):
            name = world.names[world.rows[row]]
            results[name, arg] = plain(values[i, k], world.tools[name].returns)
        initial = {
            key: tuple(int(scalars.python(int(x))) if x else 0 for x in first[i, n])
            for n, key in enumerate(range(*small.KEYS))
        }
        made.append(small_model.Model(world, initial, results))
    return made


def some_calls(world, model, num, rng):
    """Some calls, about half of which the goal asks for."""
    every = list(small.calls(world))
    asked = [
        (row, model.args[c])
        for c, (name, _) in enumerate(world.steps)
        for row, number in enumerate(world.rows)
        if world.names[number] == name
    ]
    return [rng.choice(asked if rng.random() < 0.4 else every) for _ in range(num)]


def check(start, num_calls, seed=0):
    """Check a batch of worlds; return what happened in each.

    The expert goes on from where some calls have led.
    """
    worlds = [small.World(start + i) for i in range(BATCH)]
    tasks = small.batch(worlds, start)
    made, rng = models(worlds, tasks), random.Random(seed)
    rows = np.full((BATCH, MAX_CALLS), -1, np.int32)
    args = np.zeros((BATCH, MAX_CALLS, small.A), np.int32)
    calls = []
    for i, world in enumerate(worlds):
        calls.append(some_calls(world, made[i], num_calls, rng))
        for t, call in enumerate(calls[i]):
            rows[i, t], args[i, t] = call[0], coded(world, *call)
    out = play(helpers.lexicon("poi"), tasks, rows, args)
    first, (seen, wrong), end = helpers.host(out)
    found, faults = [], []
    for i, model in enumerate(made):
        fewest = model.fewest()
        state, shown, spoilt = model.start, set(), 0

        def same(what, ours, theirs, i=i):
            if ours != theirs:
                faults.append((start + i, what, ours, theirs))

        same("fewest", (bool(first.solvable[i]), int(first.fewest_calls[i])),
             (fewest is not None, fewest or 0))  # fmt: skip
        for t, (row, arg) in enumerate(calls[i]):
            status, values, new = model.call(state, row, arg)
            same("status", STATUSES[int(seen.status[i, t])], status)
            name = worlds[i].names[worlds[i].rows[row]]
            if status == small_model.OK:
                kinds = worlds[i].tools[name].returns
                same("values", plain(seen.values[i, t], kinds), values)
                shown |= model.shown(name, arg, values, state, new)
                spoilt += model.wrong_effects(name, arg, values, state, new)
            same("wrong effects", int(wrong[i, t]), spoilt)
            state = new
        if fewest is None:
            same("refusal", bool(end.success[i] and end.refused[i]), True)
            continue
        left = fewest
        if num_calls:
            left = model.fewest(state, model.allows(shown)) if not state[-1] else None
        same("success", bool(end.success[i]), left is not None)
        same("gives up", bool(end.refused[i]), left is None)
        used = int(end.num_calls[i]) - num_calls
        spare = len(worlds[i].rows) > len(worlds[i].names)
        if left is not None and not num_calls and not spare:
            surprises = worlds[i].stale + sum(worlds[i].untold)
            if not surprises:
                same("calls", used, left)
            elif not worlds[i].pause:
                same("enough calls", left <= used <= left + surprises, True)
        found.append((left is not None, used, left))
    assert not faults
    return found


def test_fewest_calls_equal_a_search(num=2):
    found = [x for i in range(num) for x in check(i * BATCH, 0)]
    assert len(found) > 0.5 * num * BATCH
    assert {left for _, _, left in found} >= {1, 2, 3, 4}


def test_the_expert_goes_on_from_any_state(num=1):
    found = [x for i in range(num) for x in check(1000 + i * BATCH, MAX_CALLS, i)]
    assert {ok for ok, *_ in found} == {True, False}


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=pytest.mark.slow if part < 2 else pytest.mark.hours)
        for part in range(256)
    ],
)
def test_many_worlds(part):
    check(10_000 + part * BATCH, 0)
    check(50_000 + part * BATCH, 1 + part % MAX_CALLS, part % 4)
