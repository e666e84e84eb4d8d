"""Requests that need the tools of two domains in one episode."""

import jax
import numpy as np
import pytest

from openagent_jax.environments.world import SPLITS
from openagent_jax.text import reply_scan
from tests import differences, helpers

ENTRY = "cross_domain_composition"
every_domain = pytest.mark.parametrize("name", helpers.DOMAINS)
every_split = pytest.mark.parametrize("split", SPLITS)


def pair(name, split):
    old = helpers.host(helpers.tasks(name, split))
    new = helpers.host(helpers.edited(name, split, ENTRY))
    return old, new, differences.changed_tasks(old, new)


def names(task, texts, rows):
    return [texts[task.tools.name[n]] for n in rows]


@every_split
@every_domain
def test_steps_of_both_domains_and_the_answer_of_the_second(name, split):
    old, new, hit = pair(name, split)
    assert hit.mean() > 0.5
    texts = helpers.texts(name)
    of_domain = {d: {t.name for t in helpers.spec(d).tools} for d in helpers.DOMAINS}
    num_values = new.tools.result_low.shape[2]
    for i in np.flatnonzero(hit):
        before, task = helpers.row(old, i), helpers.row(new, i)
        num = (before.goal.tool >= 0).sum()
        tools = names(task, texts, task.goal.tool[task.goal.tool >= 0])
        assert tools[:num] == names(before, texts, before.goal.tool[:num])
        assert tools[num:] and {*tools[num:]} <= of_domain[helpers.OTHER[name]]
        assert task.tools.visible[task.goal.tool[task.goal.tool >= 0]].all()
        if task.goal.answer >= 0:
            assert task.goal.answer >= len(task.constants) + num * num_values
        # No tool of either domain refers to one that is not there.
        shown = np.flatnonzero(task.tools.visible)
        for pointer in (task.tools.code_from, task.tools.call_after):
            for n in shown[pointer[shown] >= 0]:
                assert task.tools.name[pointer[n]] > 0
        relation = task.tools.relation[shown]
        assert len({*relation}) == len(relation)


@every_split
@every_domain
def test_the_request_says_both(name, split):
    old, new, hit = pair(name, split)
    texts = helpers.texts(name)
    source = helpers.world(name).tables.source
    joints = {texts[s] for s in np.asarray(source.joints)[SPLITS.index(split)]}

    def spoken(task):
        values = (task.constants[-1 - s] if s < 0 else s for s in task.phrase)
        return "".join(texts[s] for s in values)

    for i in np.flatnonzero(hit):
        first, both = spoken(helpers.row(old, i)), spoken(helpers.row(new, i))
        assert both.startswith(first)
        rest = both[len(first) :]
        (joint,) = [x for x in joints if rest.startswith(x)]
        assert len(rest) > len(joint) + 8


def test_joints_of_the_splits_differ():
    texts, joints = helpers.texts("poi"), helpers.world("poi").tables.source.joints
    train, test = ({texts[s] for s in row} for row in np.asarray(joints))
    assert len(train) == len(test) == 4 and not train & test


@every_domain
def test_both_requests_have_to_be_done(name):
    """An expert that only does the second one cannot answer rightly."""
    _, new, hit = pair(name, "test")
    tables = helpers.world(name).tables
    episodes, _ = helpers.host(helpers.demonstrate(tables, new))
    assert np.all(episodes.state.success & episodes.state.solvable)
    called = episodes.valid & (episodes.action.kind == reply_scan.CALL)
    num_steps = (new.goal.tool >= 0).sum(axis=1)
    assert np.all(called.sum(axis=1)[hit] >= num_steps[hit])
    for i in np.flatnonzero(hit):
        rows = {*episodes.action.call.tool[i][called[i]]}
        assert rows >= {*new.goal.tool[i][new.goal.tool[i] >= 0]}
    assert jax.tree.leaves(episodes.state.turn)[0].max() <= helpers.MAX_TURNS
