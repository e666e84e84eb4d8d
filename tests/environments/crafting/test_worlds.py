"""Sampled worlds: the splits are disjoint, and episodes fit their limits."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from openagent_jax.environments.crafting import oracle, types, words, worlds
from openagent_jax.environments.world import SPLITS
from openagent_jax.text import lexicon as lexicons
from tests import helpers
from tests.environments.crafting import crafts

POOLS = {
    "names": words.names,
    "opaque": words.opaque,
    "foreign": words.foreign,
    "materials": lambda split: words.MATERIALS[split].split(),
    "things": lambda split: words.THINGS[split].split(),
    "phrases": lambda split: [*words.PHRASES[split], *words.REWRITES[split]],
}


@pytest.mark.parametrize("pool", POOLS)
def test_splits_share_no_text(pool):
    train, test = (POOLS[pool](split) for split in SPLITS)
    assert len({*train}) == len(train) and len({*test}) == len(test)
    assert not {*train} & {*test}


@pytest.mark.parametrize("split", SPLITS)
def test_requests(split):
    for phrase in (*words.PHRASES[split], *words.REWRITES[split]):
        slots = re.findall(r"{(\w+)}", phrase)
        assert sorted(slots) == ["book", "goal", "held", "raw"]
        # Templates strip white space at the ends of a message.
        assert phrase == phrase.strip()


@pytest.mark.parametrize("split", SPLITS)
def test_names_are_short(split):
    for pool in (words.names, words.opaque, words.foreign):
        spans = helpers.tokenizer().encode_batch(pool(split))
        assert max(len(span.ids) for span in spans) <= 5
        num = len(spans)
        assert all(num % i for i in range(2, num))  # see `worlds.draw_names`


@pytest.mark.parametrize("split", SPLITS)
class TestTasks:
    def test_names(self, split):
        texts = np.array(lexicons.texts(crafts.world().tables.lexicon))
        names = texts[crafts.tasks(split).items.name]
        assert {*names.reshape(-1)} <= {*words.names(split)}
        assert len(np.unique(names)) > 300
        assert all(len({*row}) == types.NUM_ITEMS for row in names)

    def test_seeds(self, split):
        seeds = np.asarray(crafts.tasks(split).world)
        assert {*(seeds % 2)} == {SPLITS.index(split)}
        assert len(np.unique(seeds)) == crafts.BATCH

    def test_sources(self, split):
        """No item is both raw and crafted; ingredients fill a row from its start."""
        items = helpers.host(crafts.tasks(split).items)
        given = items.ingredients >= 0
        assert not (given[:, :, 0] & items.raw).any()
        assert not (~given[:, :, :-1] & given[:, :, 1:]).any()
        assert np.asarray(crafts.tasks(split).held).sum(axis=1).max() <= types.MAX_HELD

    def test_depths(self, split):
        tasks = helpers.rows(crafts.tasks(split))
        goal = crafts.world().transcriber.goal
        found, counts = np.unique([goal(task) for task in tasks], return_counts=True)
        assert [*found] == [f"depth {1 + i}" for i in range(6)]
        assert counts.min() > 0.02 * len(tasks)

    def test_goals(self, split):
        """Both can be reached, each needs what the other does not, and a coin chose
        which of them the user asks for."""
        tasks = crafts.tasks(split)
        plan = jax.jit(jax.vmap(lambda task: oracle.true_plan(task, task.held)))
        swapped = replace(tasks, goal=tasks.other_goal, other_goal=tasks.goal)
        goal, other = helpers.host((plan(tasks), plan(swapped)))
        assert goal.has_source.all() and other.has_source.all()
        assert not (goal.circular | other.circular).any()
        for one, another in ((goal, other), (other, goal)):
            assert np.all(((one.todo > 0) & (another.todo == 0)).any(axis=1))
        for sums in (goal.todo.sum(axis=1), other.todo.sum(axis=1)):
            assert 1 <= sums.min() and sums.max() <= worlds.MAX_DEPTH
        first = np.mean(np.asarray(tasks.goal) < worlds.BRANCH)
        assert abs(first - 0.5) < 3 * np.sqrt(0.25 / crafts.BATCH)

    def test_token_limits(self, split):
        """Most clean demonstrations fit a default row; all episodes fit the limits."""
        sizes = crafts.SETTINGS.sizes
        room = {name: getattr(sizes, f"{name}_tokens") for name in ROOM}
        for entry in crafts.EDITS:
            episodes, proof, _, lengths = crafts.played(entry, split)
            for name, most in room.items():
                assert lengths[name].max() <= most, (entry, name)
            assert episodes.state.turn.max() <= sizes.max_turns
        clean = crafts.played("clean", split)[3]["context"]
        assert np.mean(clean <= 512) >= 0.95


ROOM = ("prompt", "action", "result", "context")
