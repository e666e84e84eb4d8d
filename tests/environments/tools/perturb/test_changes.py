"""What the perturbations that change tools during an episode mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.tools import environment, types
from openagent_jax.text import reply_scan, style
from tests import helpers
from tests.environments.tools.perturb.playing import pair, replay

ENTRIES = (
    "missing_values",
    "rate_limit",
    "verification_code_change",
    "stale_value",
    "incomplete_information",
)
every_domain = pytest.mark.parametrize("name", helpers.DOMAINS)


@every_domain
@pytest.mark.parametrize("entry", ENTRIES)
def test_who_acts_as_if_nothing_had_changed_fails(name, entry):
    old, new, hit = pair(name, entry)
    tables = helpers.world(name).tables
    episodes, _ = helpers.demonstrate(tables, old)
    states = replay(tables.lexicon, new, episodes.action)
    if entry == "rate_limit":  # where the first call that is refused is a step
        calls, quota = np.asarray(episodes.action.call.tool), new.faults.quota
        refused = np.take_along_axis(calls, quota[:, None], axis=1)
        hit &= np.any((refused == old.goal.tool) & (refused >= 0), axis=1)
    if entry == "incomplete_information":  # what is not said may be as it was
        hit &= np.any(
            (old.tools.code_from != new.tools.code_from)
            | (old.tools.call_after != new.tools.call_after),
            axis=1,
        )
    assert hit.mean() > 0.1
    assert not np.any(np.asarray(states.success)[hit])


@jax.jit
def retry(lexicon, tasks, actions):
    """The last states of agents that repeat each recorded call until it works."""
    num_turns = actions.kind.shape[1]

    def one(task, actions):
        def step(carry, _):
            state, turn = carry
            action = jax.tree.map(lambda x: x[turn], actions)
            new, timestep = environment.step(lexicon, task, state, action, 99)
            seen = timestep.observation
            again = (seen.status == style.RATE_LIMITED) | seen.blank
            return (new, jnp.minimum(turn + ~again, num_turns - 1)), None

        start = environment.reset(lexicon, task), jnp.int32(0)
        return jax.lax.scan(step, start, None, 3 * num_turns)[0][0]

    return jax.vmap(one)(tasks, actions)


@every_domain
def test_a_retry_solves_what_passes_and_nothing_else(name):
    for entry in ENTRIES:
        old, new, hit = pair(name, entry)
        tables = helpers.world(name).tables
        episodes, _ = helpers.demonstrate(tables, old)
        success = np.asarray(retry(tables.lexicon, new, episodes.action).success)
        if entry in ("missing_values", "rate_limit"):
            assert np.all(success)
        elif entry in ("verification_code_change", "stale_value"):
            assert not np.any(success[hit])


@every_domain
def test_a_code_expires_in_every_changed_task(name):
    """Also that of a new tool, whose row is the last one that is free."""
    _, new, hit = pair(name, "verification_code_change")
    assert np.array_equal(np.any(new.faults.new_code > 0, axis=1), hit)
    assert hit.mean() > 0.9


def test_how_a_value_changes_cannot_be_foreseen():
    """Otherwise an agent could name the new value without reading it again."""
    _, new, _ = pair("poi", "stale_value")
    state = jax.vmap(lambda task: environment.reset(helpers.lexicon("poi"), task))(new)
    first, last = np.asarray(state.first_args), np.asarray(state.args)
    changed = first != last
    assert changed.any(axis=(1, 2)).mean() > 0.3
    # Several arguments of one task can be one value; most ranges have 50 or fewer.
    distances, counts = np.unique((last - first)[changed], return_counts=True)
    assert len(distances) > 50 and counts.max() < 0.1 * counts.sum()


def test_the_number_of_calls_to_wait_is_right():
    _, new, hit = pair("poi", "rate_limit")
    for task in helpers.rows(new)[:8]:
        state, waits = helpers.reset(helpers.lexicon("poi"), task), []
        none = jnp.full(task.tools.arg_low.shape[1], types.MISSING)
        tool = jnp.int32(np.argmax(task.tools.visible))
        call = types.ToolCall(tool, none, jnp.int32(-1))
        action = types.Action(jnp.int32(reply_scan.CALL), call, jnp.int32(-1))
        for _ in range(6):
            state, timestep = helpers.step(
                helpers.lexicon("poi"), task, state, action, helpers.MAX_TURNS
            )
            seen = timestep.observation
            limited = int(seen.status) == style.RATE_LIMITED
            waits.append(int(seen.wait) if limited else -1)
        for turn, wait in enumerate(waits[:4]):
            if wait >= 0:
                assert all(x >= 0 for x in waits[turn + 1 : turn + 1 + wait])
                assert waits[turn + 1 + wait] == -1
        assert max(waits) == int(task.faults.pause) - 1
    assert hit.all()
