"""The contract of every entry in the catalogue of tool worlds."""

import dataclasses
import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb, sharding
from openagent_jax.environments.tools.worlds.symbols import VAGUE
from openagent_jax.environments.world import SPLITS
from openagent_jax.text import error_texts, result_forms, style
from tests import differences, helpers

ENTRIES = tuple(helpers.CATALOGUE)
# Entries that tools answer with errors, as the oracle meets them.
FAILING = (
    "runtime_error",
    "tool_redirection",
    "tool_addition",
    "schema_drift",
    "error_wording",
    "rate_limit",
    "verification_code_change",
    "stale_value",
    "incomplete_information",
    "unsolvable",
    "still_solvable",
    "fatal_error",
    "error_with_alternative",
)
MIN_CHANGED = 0.3  # share of the tasks, at strength 1
every_entry = pytest.mark.parametrize("entry", ENTRIES)
every_split = pytest.mark.parametrize("split", SPLITS)


@functools.cache
def tasks(split="train"):
    return helpers.host(helpers.tasks("poi", split))


@functools.cache
def edited(entry, split="train", strength=1.0, start=0):
    return helpers.host(helpers.edited("poi", split, entry, strength, start))


@functools.cache
def pools(name, split):
    world = helpers.world(name)
    task = helpers.row(helpers.tasks(name, split), 0)
    return world.environment.pools(world.tables, task, split)


def edit(index, keys, strength, split="train"):
    """The tasks of `poi` under one of `helpers.EDITS`, with the given keys."""
    tables, old = helpers.world("poi").tables, helpers.tasks("poi", split)
    return helpers.edit(index, tables, keys, old, jnp.float32(strength), split)


class TestEveryEntry:
    @every_entry
    def test_same_tree_shapes_and_dtypes(self, entry):
        chex.assert_trees_all_equal_structs(tasks(), edited(entry))
        chex.assert_trees_all_equal_shapes_and_dtypes(tasks(), edited(entry))

    @every_split
    @every_entry
    def test_strength_0_is_the_identity(self, entry, split):
        chex.assert_trees_all_equal(edited(entry, split, 0.0), tasks(split))

    @every_split
    @every_entry
    def test_strength_1_changes_most_tasks(self, entry, split):
        share = np.mean(differences.changed_tasks(tasks(split), edited(entry, split)))
        assert share >= MIN_CHANGED

    @every_entry
    def test_strength_scales_the_change(self, entry):
        """A higher strength changes more tasks, or more of each task."""
        strengths = (0.1, 0.4, 1.0)
        news = [differences.leaves(edited(entry, strength=s)) for s in strengths]
        old = differences.leaves(tasks())
        counts = [sum(np.sum(new[p] != old[p]) for p in old) for new in news]
        assert 0 < counts[0] < counts[1] < counts[2]

    @every_entry
    def test_depends_only_on_the_key(self, entry):
        index = jnp.int32(helpers.EDITS.index(entry))
        again = edit(index, helpers.keys(1), 1.0)
        chex.assert_trees_all_equal(again, edited(entry))
        # At full strength some entries are deterministic.
        half, other = (edit(index, helpers.keys(seed), 0.5) for seed in (1, 2))
        assert differences.changed_tasks(half, other).any()

    @every_split
    @every_entry
    def test_touches_what_it_declares(self, entry, split):
        declared = helpers.CATALOGUE[entry].touches
        touched = {
            path
            for path, tasks_ in differences.changed(
                tasks(split), edited(entry, split)
            ).items()
            if tasks_.any()
        }
        for path in touched:
            assert any(path == d or path.startswith(d + ".") or not d for d in declared)
        tools = tasks(split).tools
        if tools.arg_path.size == 0:  # arguments are flat
            declared = [d for d in declared if d != "tools.arg_path"]
        if tools.result_path.size == 0:  # results are flat
            declared = [d for d in declared if d != "tools.result_path"]
        if tools.access is None:  # calls touch no records
            declared = [d for d in declared if not d.startswith("tools.access")]
        for d in declared:  # everything that is declared is touched
            assert any(p == d or p.startswith(d + ".") or not d for p in touched), d

    @every_split
    @every_entry
    def test_solvability(self, entry, split):
        tables = helpers.world("poi").tables
        episodes, _ = helpers.demonstrate(tables, edited(entry, split))
        claim = helpers.CATALOGUE[entry].solvable
        hit = differences.changed_tasks(tasks(split), edited(entry, split))
        assert np.all(np.asarray(episodes.state.solvable)[hit] == claim)
        if entry == "unsolvable":
            assert hit.all()

    @every_entry
    def test_tool_names_are_distinct(self, entry):
        """Otherwise a call could mean either of two tools."""
        new = edited(entry)
        texts = np.asarray(helpers.lexicon("poi").canonical)
        shown = new.tools.visible.copy()
        for i, row in np.argwhere((new.faults.moved_to >= 0) & shown):
            successor = new.faults.moved_to[i, row]
            if new.tools.name[i, successor] != new.tools.name[i, row]:  # or other keys
                shown[i, successor] = True
        for names, on in zip(new.tools.name, shown, strict=True):
            names = texts[names[on]]
            assert len(set(names)) == len(names)
            assert names.min() > 0

    def test_one_trace_for_all(self):
        """Entries, strengths, domains and splits are arguments of one program."""
        helpers.edited("poi", "train", "identity_erasure")
        before = helpers.TRACES["_edit"]  # other files edit worlds of other sizes
        for name in helpers.DOMAINS:
            for split in SPLITS:
                for entry, strength in (("tool_order", 0.5), ("rule_shift", 0.0)):
                    helpers.edited(name, split, entry, strength)
        assert helpers.TRACES["_edit"] == before


@pytest.mark.slow
def test_devices_share_the_tasks():
    """A batch that is edited by 8 devices is the same, bit for bit."""
    mesh = sharding.make_mesh()
    assert sharding.num_shards(mesh) == 8

    def batch(shared, rows):
        index, tables, strength = shared
        one = functools.partial(helpers.edit_one, index, tables, "train")
        return jax.vmap(one, (0, 0, None))(*rows, strength)

    divided = jax.jit(sharding.local(mesh)(batch))
    tables, keys = helpers.world("poi").tables, helpers.keys(1)
    old = helpers.tasks("poi")
    for entry in ENTRIES:
        index = jnp.int32(helpers.EDITS.index(entry))
        new = divided((index, tables, jnp.float32(0.5)), (keys, old))
        assert len(new.world.sharding.device_set) == 8
        want = helpers.host(edit(index, keys, 0.5))
        assert differences.changed_tasks(tasks(), want).any()
        chex.assert_trees_all_equal(helpers.host(new), want)


class TestPools:
    """Surface forms of training perturbations never appear in an evaluation."""

    @pytest.mark.parametrize("name", helpers.DOMAINS)
    @pytest.mark.parametrize(
        "field",
        [
            "names",
            "descriptions",
            "arg_names",
            "opaque",
            "gates",
            "listers",
            "changes",
            "vague",
            "phrases",
        ],
    )
    def test_share_no_surface_form(self, name, field):
        texts = helpers.texts(name)

        def surface_forms(split):
            pool = np.asarray(getattr(pools(name, split), field))
            if field == "opaque":
                pool = np.arange(*pool)
            return {texts[s] for s in np.unique(pool) if s > 0}

        train, test = surface_forms("train"), surface_forms("test")
        if field == "phrases":  # they share pieces: compare whole ones
            train, test = (templates(name, split) for split in SPLITS)
        assert min(len(train), len(test)) >= 4
        assert not train & test

    @pytest.mark.parametrize("name", helpers.DOMAINS)
    def test_rewritten_requests_are_new(self, name):
        plain = set()
        for goal in helpers.spec(name).goals:
            plain |= {*goal.phrases["train"], *goal.phrases["test"]}
        for split in SPLITS:
            assert not templates(name, split) & plain

    @pytest.mark.parametrize(
        "field, all_of", [("forms", result_forms), ("wordings", error_texts)]
    )
    def test_forms(self, field, all_of):
        ranges = [getattr(pools("poi", split), field) for split in SPLITS]
        train, test = (set(range(*map(int, r))) for r in ranges)
        assert train and test and not train & test
        num = {
            result_forms: len(result_forms.FORMS),
            error_texts: len(error_texts.WORDINGS),
        }
        assert train | test == {*range(1, num[all_of])}  # 0 is the normal one

    def test_words_for_values_that_are_left_out(self):
        train, test = (
            {word for text in VAGUE[split] for word in re.findall("[a-z]+", text)}
            for split in SPLITS
        )
        assert not train & test


@every_split
@every_entry
def test_what_tools_answer_has_words_of_the_split(entry, split):
    """All that an oracle meets, so all that a demonstration shows."""
    tables, new = helpers.world("poi").tables, edited(entry, split)
    episodes = helpers.host(helpers.demonstrate(tables, new)[0])
    said, faults = episodes.timestep.observation, new.faults
    is_error = episodes.valid & ~np.isin(said.status, style.NOT_ERRORS)
    notices = faults.wording[faults.deprecated & (faults.moved_to >= 0)]
    low, high = error_texts.RANGES[SPLITS.index(split)]
    for wording in (*said.wording[is_error], *notices):
        assert low <= wording < high
    if entry in FAILING:
        assert is_error.any()


@every_split
def test_what_a_request_leaves_out_has_words_of_the_split(split):
    new, texts = edited("query_underspecified", split), helpers.texts("poi")
    hit = differences.changed_tasks(tasks(split), new)
    for task in (helpers.row(new, int(i)) for i in np.flatnonzero(hit)):
        named = {-1 - int(x) for x in task.phrase if x < 0}
        assert task.shown[[q for q in named if q < len(task.shown)]].all()
        assert {texts[x] for x in task.phrase if x >= 0} & {*VAGUE[split]}


@pytest.mark.parametrize("name", ["query_rewrite", "query_underspecified"])
def test_a_rewritten_request_leaves_out_as_much(name):
    """Whichever of the two comes first."""
    tables, old = helpers.world("poi").tables, tasks("test")
    names = [name, *{"query_rewrite", "query_underspecified"} - {name}]
    edits = [perturb.make(helpers.ENVIRONMENT, tables, x, "test") for x in names]
    both = perturb.batched(perturb.chain(*edits))
    new = helpers.host(jax.jit(both)(helpers.keys(5), old, jnp.float32(1)))
    texts = helpers.texts("poi")
    for task in (helpers.row(new, i) for i in range(len(new.world))):
        says = {texts[x] for x in task.phrase if x >= 0}
        assert bool(says & {*VAGUE["test"]}) == (not task.shown.all())


def templates(name, split):
    """Rewritten requests of a split, with `{slot}` for constants."""
    source, texts = helpers.world(name).tables.source.tasks, helpers.texts(name)
    kinds = jnp.arange(len(helpers.spec(name).goals))
    rewrites = functools.partial(source.phrases.rewrites, SPLITS.index(split))
    phrases, num = helpers.host(jax.vmap(rewrites)(kinds))
    found = set()
    for g, goal in enumerate(helpers.spec(name).goals):
        slots = [slot for slot, _ in goal.constants]
        for row in phrases[g, : num[g]]:
            pieces = (texts[s] if s >= 0 else "{" + slots[-1 - s] + "}" for s in row)
            found.add("".join(pieces))
    return found


def test_on_trajectory_demonstrates_again():
    """An episode whose task is perturbed is demonstrated anew; others stay as is."""
    tables = helpers.world("poi").tables
    episodes, _ = helpers.demonstrate(tables, helpers.tasks("poi"))
    withhold = perturb.make(helpers.ENVIRONMENT, tables, "tool_withheld", "train")

    def mark(task):  # a demonstration that identifies its task
        one = helpers.row(episodes, 0)
        state = dataclasses.replace(one.state, turn=jnp.sum(task.tools.visible))
        return dataclasses.replace(one, task=task, state=state)

    lift = perturb.on_trajectory(perturb.sometimes(withhold, 0.5), mark)
    batch = jax.jit(jax.vmap(lift, (0, 0, None)))
    new = helpers.host(batch(helpers.keys(3), episodes, jnp.float32(1)))
    old = helpers.host(episodes)
    hit = differences.changed_tasks(old.task, new.task)
    assert 0.3 < hit.mean() < 0.7
    kept = (jax.tree.map(lambda x: x[~hit], tree) for tree in (old, new))
    chex.assert_trees_all_equal(*kept)
    for i in np.flatnonzero(hit):
        assert new.state.turn[i] == new.task.tools.visible[i].sum()
        assert np.array_equal(new.action.kind[i], old.action.kind[0])


@pytest.mark.parametrize("entry", ["unsolvable", "fatal_error", "contradiction"])
def test_wordings_do_not_tell_what_can_be_solved(entry):
    """With the same key, an unsolvable task and its counterpart have the same ones."""
    counterpart = helpers.CATALOGUE[entry].counterpart
    tables, old, key = helpers.world("poi").tables, tasks("test"), jax.random.key(3)

    def wordings(name):
        environment = helpers.world("poi").environment
        edits = [
            perturb.make(environment, tables, x, "test")
            for x in (name, "error_wording")
        ]
        both = perturb.batched(perturb.chain(*edits))
        new = jax.jit(both)(jax.random.split(key, len(old.world)), old, jnp.float32(1))
        return helpers.host(new.faults.wording)

    a, b = wordings(entry), wordings(counterpart)
    assert np.array_equal(a, b) and len(np.unique(a)) == 10  # those of the test
