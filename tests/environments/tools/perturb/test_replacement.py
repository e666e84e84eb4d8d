"""What agents see of tools that are replaced, and of requests that change."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, style
from tests import differences, helpers
from tests.environments.tools.perturb.playing import pair, replay

REPLACED = {
    "tool_redirection": style.MOVED,
    "tool_addition": style.MOVED,
    "schema_drift": style.SCHEMA_CHANGED,
}
every_domain = pytest.mark.parametrize("name", helpers.DOMAINS)


def changed_twice(name, entry, split="test"):
    """Tasks whose request changes, and a tool besides."""
    old = helpers.tasks(name, split)
    first = helpers.edited(name, split, "query_evolution")
    index, tables = helpers.EDITS.index(entry), helpers.world(name).tables
    keys = helpers.keys(2)
    new = helpers.edit(jnp.int32(index), tables, keys, first, jnp.float32(1), split)
    hit = differences.changed_tasks(helpers.host(old), helpers.host(first))
    return new, hit & differences.changed_tasks(helpers.host(first), helpers.host(new))


def statuses(episodes):
    seen = np.asarray(episodes.timestep.observation.status)
    return np.where(episodes.valid, seen, style.NO_RESULT)


@every_domain
@pytest.mark.parametrize("entry", [*REPLACED, "query_evolution"])
def test_who_acts_as_if_nothing_had_changed_fails(name, entry):
    old, new, hit = pair(name, entry)
    tables = helpers.world(name).tables
    episodes, _ = helpers.demonstrate(tables, old)
    states = replay(tables.lexicon, new, episodes.action)
    assert hit.mean() > 0.3
    assert not np.any(np.asarray(states.success)[hit])


@every_domain
def test_a_deprecated_tool_still_works(name):
    old, new, hit = pair(name, "tool_deprecation")
    tables = helpers.world(name).tables
    episodes, _ = helpers.demonstrate(tables, old)
    assert hit.all()
    assert np.all(replay(tables.lexicon, new, episodes.action).success)


@every_domain
@pytest.mark.parametrize("entry", REPLACED)
def test_a_tool_is_gone_when_a_changed_request_needs_it_again(name, entry):
    """It works for the first request, so that the change is in the middle."""
    new, hit = changed_twice(name, entry)
    episodes = helpers.host(helpers.demonstrate(helpers.world(name).tables, new)[0])
    seen = statuses(episodes)[hit]
    assert len(seen) > 30
    after = np.cumsum(seen == style.USER_CHANGE, axis=1) > 0
    gone = seen == REPLACED[entry]
    assert not np.any(gone & ~after)
    # By chance, a changed value may leave the arguments of the tool as they were.
    assert np.mean(np.any(gone & after, axis=1)) > 0.9
    assert np.all(episodes.state.success[hit])


@every_domain
def test_a_notice_tells_in_time_of_a_tool_that_will_be_gone(name):
    """An agent that heeds it gets no error; one that does not gets one."""
    new, hit = changed_twice(name, "tool_deprecation")
    tables = helpers.world(name).tables
    episodes = helpers.host(helpers.demonstrate(tables, new)[0])
    assert not np.any(statuses(episodes)[hit] == style.MOVED)
    call, faults = episodes.action.call, helpers.host(new).faults
    old = np.argmax(faults.deprecated, axis=1)[:, None]
    successor = np.max(np.where(faults.deprecated, faults.moved_to, -1), axis=1)
    swapped = np.where(call.tool == successor[:, None], old, call.tool)
    states, again = (
        replay(
            tables.lexicon,
            new,
            replace(episodes.action, call=replace(call, tool=tool)),
        )
        for tool in (call.tool, swapped)
    )
    assert np.all(states.success[hit])
    used = hit & np.any(call.tool == successor[:, None], axis=1)
    assert used.sum() > 30 and not np.any(np.asarray(again.success)[used])


@every_domain
def test_the_first_answer_is_not_right_any_more(name):
    _, new, hit = pair(name, "query_evolution")
    tables = helpers.world(name).tables
    episodes = helpers.host(helpers.demonstrate(tables, new)[0])
    kinds, values = episodes.action.kind, episodes.action.value
    answers = (kinds == reply_scan.ANSWER) & episodes.valid
    assert np.all(np.sum(answers, axis=1) == 1 + hit)
    assert np.all(np.sum(statuses(episodes) == style.USER_CHANGE, axis=1) == hit)
    progress = np.sum(episodes.timestep.reward["progress"], axis=1)
    np.testing.assert_allclose(progress, 1, rtol=1e-6)
    first = np.argmax(answers, axis=1)
    turn = np.arange(kinds.shape[1])[None]
    # As before, and then the same answer again.
    again = np.minimum(turn, first[:, None])
    rows = np.arange(len(kinds))
    actions = jax.tree.map(lambda x: x[rows[:, None], again], episodes.action)
    states = replay(tables.lexicon, new, actions)
    last = np.sum(episodes.valid, axis=1) - 1
    assert np.mean((values[rows, first] != values[rows, last])[hit]) > 0.9
    assert not np.any(np.asarray(states.success)[hit])


@every_domain
def test_a_value_does_not_change_that_is_also_the_one_left_out(name):
    """The user, who tells the latter when asked, would mean both."""
    tables, keys = helpers.world(name).tables, helpers.keys(2)
    old = helpers.host(helpers.edited(name, "test", "query_underspecified"))
    index = jnp.int32(helpers.EDITS.index("query_evolution"))

    def changing(tasks):
        new = helpers.edit(index, tables, keys, tasks, jnp.float32(1), "test")
        return np.asarray(new.faults.change.constant)

    rows, constant = np.arange(len(old.shown)), changing(old)
    hit = (constant >= 0) & ~old.shown.all(axis=1)
    assert hit.sum() > 10
    said = np.where(~old.shown, old.said[rows, constant][:, None], old.said)
    again = changing(replace(old, said=said))
    assert not np.any((again == constant)[hit])


@every_domain
def test_calls_are_bound_to_the_row_whose_arguments_they_name(name):
    """Old and new arguments of a tool go by one name."""
    _, new, hit = pair(name, "schema_drift")
    tables, environment = helpers.world(name).tables, helpers.ENVIRONMENT
    episodes, _ = helpers.demonstrate(tables, new)

    @jax.jit
    @jax.vmap
    def read(task, actions):
        def one(action):
            pieces = environment.utterance(tables, task, action)
            tokens, _, num = lexicons.write(tables.lexicon, pieces, 64)
            text = reply_scan.detokenize(tables.lexicon, tokens, num - 1)
            return environment.parse(tables, task, *text).call

        return jax.vmap(one)(actions)

    said, call = read(new, episodes.action), episodes.action.call
    is_call = np.asarray(episodes.valid & (episodes.action.kind == reply_scan.CALL))
    assert np.array_equal(
        np.asarray(said.tool)[is_call], np.asarray(call.tool)[is_call]
    )
    assert np.array_equal(
        np.asarray(said.args)[is_call], np.asarray(call.args)[is_call]
    )
    successor = np.max(new.faults.moved_to, axis=1)[:, None]
    used = np.any(is_call & (np.asarray(call.tool) == successor), axis=1)
    assert np.mean(used[hit]) > 0.9
