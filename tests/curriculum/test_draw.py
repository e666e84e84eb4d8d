"""How tasks are drawn and perturbed, on toy tasks; and names in configs."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.curriculum import draw
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.world import SPLITS
from tests import helpers


class Toy(NamedTuple):
    """A stand-in for a task."""

    world: jax.Array
    mark: jax.Array


def entry(name, tier, value):
    """A perturbation that writes a number, to which the pool of the split is added."""

    def make(pools):
        def apply(key, task, strength):
            hit = perturb.bernoulli(key, strength)
            return task._replace(mark=jnp.where(hit, value + pools, task.mark))

        return apply

    return perturb.Entry(
        name=name,
        make=make,
        tier=tier,
        shift="query",
        part="task",
        touches=("mark",),
    )


def add(pools):
    return lambda key, task, strength: task._replace(mark=task.mark + 10 + pools)


def half(pools):
    """Half of the tasks, whatever the strength."""

    def apply(key, task, strength):
        return task._replace(
            mark=task.mark + 50 * jax.random.bernoulli(key, 0.5).astype(jnp.int32)
        )

    return apply


ADD = dataclasses.replace(entry("add", "perception", 0), make=add)
HALF = dataclasses.replace(entry("half", "perception", 0), make=half)


def sample(tables, key, split):
    world = jax.random.randint(key, (), 0, 1 << 20)
    return Toy(world + tables, jnp.int32(SPLITS.index(split)) * 0)


ENVIRONMENT = helpers.ENVIRONMENT._replace(
    sample=sample,
    perturbations=(
        entry("one", "perception", 1),
        entry("two", "interaction", 2),
        entry("idle", "perception", 0),
    ),
    pools=lambda tables, task, split: 100 * SPLITS.index(split),
    training_mix=("one", "two", "two"),
    suite=("two", "one"),
)
TASK = Toy(jnp.int32(5), jnp.int32(0))


class TestExpand:
    @pytest.mark.parametrize(
        ("names", "default", "expected"),
        [
            ((), "suite", ()),
            (("default",), "suite", ("two", "one")),
            (("default",), "training_mix", ("one", "two", "two")),
            (("all",), "suite", ("one", "two", "idle")),
            (("idle", "default"), "suite", ("idle", "two", "one")),
            (("one", "one"), "training_mix", ("one", "one")),
            (("perception",), "suite", ("one",)),  # "idle" is not in the suite
            (("interaction",), "training_mix", ("two", "two")),
            (("one+two", "idle@1.0"), "suite", ("one+two", "idle")),
            (("two+one@.5", "two@0"), "suite", ("two+one@0.5", "two@0")),
        ],
    )
    def test_names(self, names, default, expected):
        assert draw.expand(ENVIRONMENT, names, default) == expected

    def test_unknown_name(self):
        with pytest.raises(ValueError, match='unknown perturbation "tipos"; there are'):
            draw.expand(ENVIRONMENT, ("default", "tipos"), "suite")

    @pytest.mark.parametrize("default", ["suite", "training_mix"])
    def test_tool_worlds(self, default):
        """The spec of an environment can be passed too, and its names are all known."""
        names = draw.expand(tools.DOMAINS, ("default",), default)
        assert names == getattr(tools.DOMAINS, default) != ()
        assert set(names) < set(draw.expand(tools.DOMAINS, ("all",), default))
        assert draw.expand(helpers.ENVIRONMENT, ("all",), default) == helpers.EDITS[1:]


@pytest.fixture(scope="module")
def edit():
    """`(key, strength, scenario, split) -> Edited`, applied to `TASK`."""
    names = ("two", "one", "idle")
    edits = {split: draw.make_edit(ENVIRONMENT, names, split) for split in SPLITS}

    def run(key, strength, scenario=None, split="train"):
        if scenario is not None:
            scenario = jnp.int32(scenario)
        return edits[split]((), key, TASK, jnp.float32(strength), scenario)

    return run


class TestMakeEdit:
    @pytest.mark.parametrize(
        ("scenario", "mark", "changed"),
        [(0, 0, True), (1, 2, True), (2, 1, True), (3, 0, False)],
    )
    def test_scenario(self, edit, getkey, scenario, mark, changed):
        """0 is clean, i is the i-th name; "idle" changes nothing."""
        got = edit(getkey(), 1, scenario)
        assert (got.scenario, got.task.mark) == (scenario, mark)
        assert bool(got.changed) == changed
        assert got.task.world == TASK.world

    def test_without_names_tasks_stay_clean(self, getkey):
        got = draw.make_edit(ENVIRONMENT, (), "train")((), getkey(), TASK, 1.0)
        assert (got.scenario, bool(got.changed)) == (0, True)
        assert got.task is TASK

    def test_split(self, edit, getkey):
        assert edit(getkey(), 1, 1, "test").task.mark == 102

    def test_strength_zero(self, edit, getkey):
        got = edit(getkey(), 0, 1)
        assert (got.scenario, bool(got.changed), got.task.mark) == (1, False, 0)

    def test_scenarios_are_drawn_by_the_key(self, edit, getkey):
        """Names are equally likely, and the reported scenario is the applied one."""
        keys = jax.random.split(getkey(), 900)
        got = jax.jit(jax.vmap(lambda key: edit(key, 1)))(keys)
        marks, scenarios = np.asarray(got.task.mark), np.asarray(got.scenario)
        # A perturbation that changes nothing is reported as clean.
        assert set(zip(scenarios, marks)) == {(1, 2), (2, 1), (0, 0)}
        np.testing.assert_array_equal(got.changed, marks > 0)
        share = np.bincount(marks, minlength=3) / len(keys)
        assert np.all(np.abs(share - 1 / 3) < 0.08)  # five standard errors

    def test_unknown_name(self):
        with pytest.raises(ValueError, match='unknown perturbation "tipos"'):
            draw.make_edit(ENVIRONMENT, ("one", "tipos"), "train")

    @pytest.mark.parametrize("split", SPLITS)
    def test_compositions_are_what_all_of_makes(self, split):
        """And entries alone are as they are without compositions beside them."""
        names = ("add+two", "two+add", "idle+two", "one", "two+half", "add+one+half")
        environment = ENVIRONMENT._replace(
            perturbations=(*ENVIRONMENT.perturbations, ADD, HALF)
        )
        edit = draw.make_edit(environment, names, split)
        keys = jax.random.split(jax.random.key(4), 32)
        run = jax.jit(
            jax.vmap(lambda key, i: edit((), key, TASK, 1.0, i), (0, None)),
        )
        for i, name in enumerate(names):
            made = perturb.make(environment, (), name, split)
            want = [made(key, TASK, jnp.float32(1)).mark for key in keys]
            got = run(keys, jnp.int32(1 + i))
            np.testing.assert_array_equal(got.task.mark, want, name)
            np.testing.assert_array_equal(got.changed, np.array(want) != 0, name)
        pool = 100 * SPLITS.index(split)
        assert run(keys, jnp.int32(1)).task.mark.tolist() == [2 + pool] * 32
        assert run(keys, jnp.int32(2)).task.mark.tolist() == [12 + 2 * pool] * 32
        # One part that finds nothing leaves the task clean.
        idle = run(keys, jnp.int32(3)).task.mark
        assert idle.tolist() == ([0] * 32 if split == "train" else [102] * 32)
        some = set(run(keys, jnp.int32(5)).task.mark.tolist())
        assert some == {0, 52 + pool}  # never "two" alone
        assert run(keys, jnp.int32(0)).task.mark.tolist() == [0] * 32

    def test_each_entry_is_made_once(self):
        made = []

        def counted(pools):
            made.append(pools)
            return perturb.identity

        entries = [dataclasses.replace(x, make=counted) for x in (ADD, HALF)]
        environment = ENVIRONMENT._replace(perturbations=tuple(entries))
        names = ("add", "half", "add+half", "half+add", "half+add@0.5")
        edit = draw.make_edit(environment, names, "train")
        edit((), jax.random.key(0), TASK, jnp.float32(1), jnp.int32(3))
        assert len(made) == 2

    def test_one_compilation_for_all_scenarios_and_strengths(self):
        traces = []

        def counted(tables, key, split):
            traces.append(split)
            return sample(tables, key, split)

        names = ("one", "one@0.25", "one+two", "two+idle@0.5")
        batch = draw.make_batch(ENVIRONMENT._replace(sample=counted), names, "test", 4)
        key = jax.random.key(0)
        drawn = [
            batch(0, jnp.int32(i), key, jnp.int32(0), jnp.float32(strength))[0]
            for i in range(1 + len(names))
            for strength in (0.0, 0.3, 1.0)
        ]
        assert len(traces) == 1
        assert len({tuple(x.task.mark.tolist()) for x in drawn}) > 3

    def test_a_strength_of_its_own(self):
        names = ("one", "one@0.25", "one@0")
        edit = draw.make_edit(ENVIRONMENT, names, "train")
        keys = jax.random.split(jax.random.key(5), 800)

        def share(i, strength):
            run = jax.vmap(lambda key: edit((), key, TASK, strength, jnp.int32(i)))
            return np.mean(run(keys).changed)

        assert [share(i, jnp.float32(1)) for i in (1, 3)] == [1, 0]
        assert abs(share(2, jnp.float32(1)) - 0.25) < 0.08
        assert abs(share(2, jnp.float32(0.5)) - 0.125) < 0.06
        assert share(2, jnp.float32(0)) == 0

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("one@1.5", '"one@1.5": the strength "1.5" is not a number from 0 to 1'),
            ("one+two@-1", "is not a number from 0 to 1"),
            ("one@nan", '"nan" is not a number from 0 to 1'),
            ("one@", '"one@": the strength "" is not a number'),
            ("one+two+one", '"one.two.one" names one twice; name it once'),
            ("one+", 'unknown perturbation ""; there are idle, one, two'),
            ("perception+one", 'unknown perturbation "perception"'),
        ],
    )
    def test_what_cannot_be_composed(self, name, message):
        for use in (draw.make_edit, draw.expand):
            with pytest.raises(ValueError, match=message):
                use(ENVIRONMENT, (name,), "suite")


def test_make_draw(getkey):
    """The first key draws the task, and the second one perturbs it."""
    one = draw.make_draw(ENVIRONMENT, ("one",), "test")
    task_key, edit_key = jax.random.split(getkey())
    clean = one(7, task_key, edit_key, jnp.float32(1), jnp.int32(0)).task
    other = one(7, task_key, edit_key, jnp.float32(1), jnp.int32(1)).task
    assert clean == sample(7, task_key, "test")
    assert clean.world == other.world and (clean.mark, other.mark) == (0, 101)


class TestKeys:
    def test_task_keys_depend_only_on_the_index(self, getkey):
        key = getkey()
        some, more = draw.task_keys(key, 3, 4), draw.task_keys(key, 0, 9)
        assert jnp.array_equal(
            jax.random.key_data(some), jax.random.key_data(more)[3:7]
        )
        assert some[0] == jax.random.fold_in(key, 3)

    def test_edit_keys_differ_from_task_keys(self, getkey):
        keys = draw.task_keys(getkey(), 0, 16)
        both = jnp.concatenate([keys, draw.edit_keys(keys)])
        assert len(np.unique(jax.random.key_data(both), axis=0)) == 32

    @pytest.mark.parametrize("repeats", [1, 2])
    def test_episodes_have_keys_of_their_own(self, getkey, repeats):
        """What draws or perturbs a task does not sample the tokens of its episode."""
        key, num = getkey(), 8
        batch = draw.make_batch(ENVIRONMENT, (), "test", num, repeats)
        _, played = batch(0, jnp.int32(0), key, jnp.int32(0), jnp.float32(1))
        tasks = draw.task_keys(key, 0, num, repeats)
        used = jnp.concatenate([tasks, draw.edit_keys(tasks, 0, repeats)])
        used = {tuple(x) for x in np.asarray(jax.random.key_data(used)).tolist()}
        own = {tuple(x) for x in np.asarray(jax.random.key_data(played)).tolist()}
        assert len(own) == num and not own & used


def test_clean_curriculum(getkey):
    """New tasks from the task key; the edit key does not matter."""
    curriculum, key = draw.clean(ENVIRONMENT), getkey()
    state = curriculum.init()
    got, again = (
        curriculum.sample(state, 7, key, getkey(), jnp.int32(step), 6)
        for step in (0, 3)
    )
    want = [sample(7, k, "train") for k in draw.task_keys(key, 0, 6)]
    assert got.world.tolist() == again.world.tolist() == [int(t.world) for t in want]
    assert len(set(got.world.tolist())) == 6
    assert curriculum.update(state, got, {}) == state


def test_repeated_curriculum(getkey):
    """Each task comes once in an epoch, in another order, also across two batches."""
    curriculum, num = draw.repeated(ENVIRONMENT, 10, getkey()), 6
    state = curriculum.init()
    drawn = np.concatenate(
        [
            curriculum.sample(state, 7, getkey(), getkey(), jnp.int32(i), num).world
            for i in range(5)
        ]
    ).reshape(3, 10)
    assert len(set(drawn[0].tolist())) == 10
    assert all(set(epoch) == set(drawn[0]) for epoch in drawn.tolist())
    assert len({tuple(epoch) for epoch in drawn.tolist()}) == 3
    assert curriculum.update(state, (), {}) is state
    other = draw.repeated(ENVIRONMENT, 10, getkey())
    again = other.sample(other.init(), 7, getkey(), getkey(), jnp.int32(0), num)
    assert not set(again.world.tolist()) & set(drawn[0].tolist())


def test_default_can_stand_for_the_whole_catalogue():
    """`launch.evaluate` plays all of it, so that no choice decides the headline."""
    spec = tools.DOMAINS
    assert draw.expand(spec, ("default",), draw.ALL) == helpers.EDITS[1:]
    tier = draw.expand(spec, ("perception",), draw.ALL)
    assert {"argument_renaming", "description_rewrite"} <= {*tier}
    assert not {"description_rewrite"} & {*draw.expand(spec, ("perception",), "suite")}


def test_a_report_says_which_set_was_played():
    spec = tools.DOMAINS
    assert draw.scenario_set(spec, spec.suite[::-1]) == "suite"
    assert draw.scenario_set(spec, helpers.EDITS[1:]) == "catalogue"
    assert draw.scenario_set(spec, spec.suite[1:]) == "chosen"


FINITE = ENVIRONMENT._replace(
    num_tasks=lambda tables, split: 5,
    nth_task=lambda tables, key, index, split: Toy(index, jnp.int32(0)),
)


def test_finite_tasks_are_drawn_once_each():
    key = jax.random.key(3)
    assert draw.num_tasks(FINITE, 0, "test", 96) == 5
    assert draw.num_tasks(FINITE, 0, "test", 2) == 2
    assert draw.num_tasks(ENVIRONMENT, 0, "test", 96) == 96
    one = draw.make_draw(FINITE, ("one",), "test")

    def worlds(start, num, repeats):
        keys = draw.task_keys(key, start, num, repeats)
        edits = draw.edit_keys(keys, start, repeats)
        index = draw.indices(FINITE, 0, "test", key, start, num, repeats)
        tasks = jax.vmap(lambda k, e, i: one(0, k, e, 1.0, jnp.int32(0), i).task)
        return tasks(keys, edits, index).world.tolist(), edits

    once, first = worlds(0, 5, 1)
    assert sorted(once) == [*range(5)]
    thrice, edits = worlds(0, 15, 3)
    assert thrice == np.repeat(once, 3).tolist()
    assert worlds(4, 6, 3)[0] == thrice[4:10]
    data = jax.random.key_data(edits)
    assert len(np.unique(data, axis=0)) == 15  # every repeat is perturbed anew
    assert (data[::3] == jax.random.key_data(first)).all()
    assert (jax.random.key_data(worlds(4, 6, 3)[1]) == data[4:10]).all()


def test_infinite_tasks_do_not_depend_on_the_index():
    one, key = draw.make_draw(ENVIRONMENT, ("one",), "test"), jax.random.key(3)
    drawn = [one(0, key, key, 1.0, jnp.int32(1), i).task for i in (None, jnp.int32(4))]
    assert drawn[0].world == drawn[1].world
