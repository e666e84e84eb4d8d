"""The contract of every entry, and that no shortcut reveals what can be solved."""

from dataclasses import replace

import chex
import jax
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.environments.crafting import make, oracle
from openagent_jax.text import lexicon as lexicons
from tests import differences, helpers
from tests.environments.crafting import crafts

SPLITS = ("train", "test")
MIN_CHANGED = 0.3  # share of the tasks, at strength 1
every_entry = pytest.mark.parametrize("name", crafts.CATALOGUE)
every_split = pytest.mark.parametrize("split", SPLITS)


class TestEveryEntry:
    @every_entry
    def test_same_tree_shapes_and_dtypes(self, name):
        tasks = crafts.tasks()
        chex.assert_trees_all_equal_structs(tasks, crafts.edited(name))
        chex.assert_trees_all_equal_shapes_and_dtypes(tasks, crafts.edited(name))

    @every_split
    @every_entry
    def test_strength_0_is_the_identity(self, name, split):
        chex.assert_trees_all_equal(
            crafts.edited(name, split, 0.0), crafts.tasks(split)
        )

    @every_split
    @every_entry
    def test_strength_scales_the_change(self, name, split):
        tasks = crafts.tasks(split)
        old = differences.leaves(tasks)
        news = [
            differences.leaves(crafts.edited(name, split, s)) for s in (0.1, 0.4, 1.0)
        ]
        counts = [sum(np.sum(new[p] != old[p]) for p in old) for new in news]
        assert 0 < counts[0] < counts[1] < counts[2]
        hit = differences.changed_tasks(tasks, crafts.edited(name, split))
        assert hit.mean() >= MIN_CHANGED
        if name in ("impossible_goal", "missing_spare"):
            assert hit.all()

    @every_entry
    def test_depends_only_on_the_key(self, name):
        same = crafts.edited.__wrapped__(name, "train", 0.5)
        chex.assert_trees_all_equal(same, crafts.edited(name, "train", 0.5))
        other = crafts.edited(name, "train", 0.5, seed=2)
        assert differences.changed_tasks(same, other).any()

    @every_split
    @every_entry
    def test_touches_what_it_declares(self, name, split):
        hit = differences.changed(crafts.tasks(split), crafts.edited(name, split))
        touched = {path for path, tasks in hit.items() if tasks.any()}
        assert touched == {*crafts.CATALOGUE[name].touches}

    @every_split
    @every_entry
    def test_solvability(self, name, split):
        hit = differences.changed_tasks(crafts.tasks(split), crafts.edited(name, split))
        solvable = crafts.played(name, split)[1].solvable
        assert np.all(solvable[hit] == crafts.CATALOGUE[name].solvable)
        assert solvable[~hit].all()

    @every_entry
    def test_item_names_are_distinct(self, name):
        names = crafts.edited(name).items.name
        names = np.asarray(crafts.world().tables.lexicon.canonical)[names]
        assert all(len({*row}) == len(row) for row in names)

    @every_entry
    def test_docstring_has_an_example(self, name):
        text = crafts.CATALOGUE[name].make.__doc__
        assert "Before:" in text and "After:" in text


def test_catalogue():
    entries = crafts.CATALOGUE.values()
    assert {entry.tier for entry in entries} == {*perturb.TIERS}
    trained = {entry.name for entry in entries if not entry.unseen}
    assert trained == crafts.CATALOGUE.keys() - {"entity_shift"}
    assert {*make.SPEC.training_mix} == trained
    assert {*make.SPEC.suite} <= crafts.CATALOGUE.keys()


def test_pools_are_disjoint():
    """Surface forms of training perturbations never appear in an evaluation."""
    environment, tables = crafts.world().environment, crafts.world().tables
    texts = lexicons.texts(tables.lexicon)
    train, test = (environment.pools(tables, None, split) for split in SPLITS)
    for field in ("opaque", "foreign", "forms"):
        a, b = ({*range(*map(int, getattr(x, field)))} for x in (train, test))
        assert a and b and not a & b
        if field != "styles":
            assert not {texts[s] for s in a} & {texts[s] for s in b}
        else:
            assert 0 not in a | b  # the normal one
    rows = [{tuple(map(int, row)) for row in x.rewrites} for x in (train, test)]
    assert not rows[0] & rows[1]


class TestNoShortcut:
    """Why an unsolvable entry and its counterpart look the same.

    `tests/environments/test_shortcuts.py` measures it.
    """

    def test_goals_change_roles(self):
        """What `missing_spare` does to a world, `impossible_goal` does to the same
        world if the user asks for the other goal: only the request differs."""
        keys, tasks = helpers.keys(1, num=crafts.BATCH), crafts.tasks()
        swapped = replace(tasks, goal=tasks.other_goal, other_goal=tasks.goal)
        one, other = (
            perturb.batched(crafts.CATALOGUE[name].make(None))(keys, batch, 1.0)
            for name, batch in (("missing_spare", tasks), ("impossible_goal", swapped))
        )
        chex.assert_trees_all_equal(one.items, other.items)
        chex.assert_trees_all_equal(one.held, other.held)
        assert np.all(one.goal == other.other_goal)
        assert differences.changed_tasks(tasks, one).all()

    def test_one_item_loses_its_source_to_another(self):
        for name in ("impossible_goal", "missing_spare"):
            for field in ("recipes", "raw", "held", "ingredients"):
                before, after = self.counts("clean")[field], self.counts(name)[field]
                assert np.array_equal(before, after), (name, field)

    @staticmethod
    def counts(name):
        """For each task, what can be counted in a request without understanding it."""
        tasks = helpers.host(crafts.edited(name))
        ingredients = tasks.items.ingredients
        return {
            "recipes": (ingredients[:, :, 0] >= 0).sum(axis=1),
            "raw": tasks.items.raw.sum(axis=1),
            "held": tasks.held.sum(axis=1),
            "ingredients": (ingredients >= 0).sum(axis=(1, 2)),
        }

    @pytest.mark.parametrize("name", ["sold_out", "sold_out_with_recipe"])
    def test_sold_out(self, name):
        """One raw item gets a recipe: the one that is sold out, or else another one
        that the goal needs as well."""
        clean = crafts.tasks()
        old, new = helpers.host(clean), helpers.host(crafts.edited(name))
        todo = jax.jit(jax.vmap(lambda task: oracle.true_plan(task, task.held).todo))
        needed = np.asarray(todo(clean)) == 1
        gone = new.faults.sold_out
        made = new.items.ingredients[:, :, 0] >= 0
        made &= old.items.ingredients[:, :, 0] < 0
        hit = differences.changed_tasks(old, new)
        for rows in (gone, made):
            assert np.all(rows.sum(axis=1) == hit)
            assert not np.any(rows & ~(needed & old.items.raw))
        assert np.all((gone & made).any(axis=1) == (hit & (name != "sold_out")))
        assert np.array_equal(old.items.raw, new.items.raw)
