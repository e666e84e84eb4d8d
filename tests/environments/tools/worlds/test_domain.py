"""Tasks sampled from a domain: disjoint splits, all goals, all needed tools."""

import collections
import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.domains import domain_spec
from openagent_jax.environments.tools.worlds import domain as domains
from openagent_jax.environments.tools.worlds.documents import Documents
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.environments.world import SPLITS
from openagent_jax.text import style
from tests import helpers

ROUNDS = 24  # batches of tasks that are examined


@pytest.fixture(scope="module")
def samples():
    """Many tasks by (domain, split), as one NumPy tree each."""

    def draw(name, split):
        batches = [
            helpers.host(helpers.tasks(name, split, start=i * helpers.BATCH))
            for i in range(ROUNDS)
        ]
        return jax.tree.map(lambda *x: np.concatenate(x), *batches)

    return {
        (name, split): draw(name, split)
        for name in helpers.DOMAINS
        for split in domains.SPLITS
    }


def requests(name, tasks):
    """`(kind, template, constants)` of the request of each task."""
    texts, goals = helpers.texts(name), helpers.spec(name).goals
    for kind, phrase, values in zip(
        tasks.goal.kind, tasks.phrase, tasks.constants, strict=True
    ):
        slots = [slot for slot, _ in goals[kind].constants]
        template = "".join(
            texts[s] if s >= 0 else "{" + slots[-1 - s] + "}" for s in phrase
        )
        yield kind, template, [texts[v] for v in values[: len(slots)]]


@pytest.mark.parametrize("name", helpers.DOMAINS)
class TestSplits:
    def test_phrases(self, samples, name):
        goals, seen = helpers.spec(name).goals, collections.defaultdict(set)
        for split in domains.SPLITS:
            for kind, template, _ in requests(name, samples[name, split]):
                assert template in goals[kind].phrases[split]
                seen[split, kind].add(template)
        for kind, goal in enumerate(goals):
            for split in domains.SPLITS:
                assert seen[split, kind] == set(goal.phrases[split])
            assert not seen["train", kind] & seen["test", kind]

    def test_entities_of_requests(self, samples, name):
        kinds = {kind.name: kind for kind in helpers.spec(name).types}
        seen = collections.defaultdict(set)
        for split in domains.SPLITS:
            for kind, _, values in requests(name, samples[name, split]):
                constants = helpers.spec(name).goals[kind].constants
                for (_, kind), value in zip(constants, values, strict=True):
                    seen[split, kind].add(value)
        entities = {kind for _, kind in seen if kinds[kind].kind == "entity"}
        assert len(entities) >= 3
        for kind in entities:
            for split in domains.SPLITS:
                assert seen[split, kind] <= set(getattr(kinds[kind], split))
                assert len(seen[split, kind]) > 20
            assert not seen["train", kind] & seen["test", kind]

    def test_entities_of_results(self, samples, name):
        kinds, texts = (
            {k.name: k for k in helpers.spec(name).types},
            helpers.texts(name),
        )
        entities = 0
        for n, tool in enumerate(helpers.spec(name).tools):
            for f, (_, kind) in enumerate(tool.returns):
                pools = {}
                for split in domains.SPLITS:
                    tools = samples[name, split].tools
                    ends = np.stack([tools.result_low, tools.result_high])[:, :, n, f]
                    low, high = ends[:, 0]
                    assert np.all(ends == [[low], [high]])
                    pools[split] = set(texts[low:high])
                if kinds[kind].kind == "entity":
                    entities += 1
                    assert pools["train"] == set(kinds[kind].train)
                    assert pools["test"] == set(kinds[kind].test)
        assert entities >= 4

    def test_worlds(self, samples, name):
        train, test = (samples[name, split].world for split in ("train", "test"))
        assert not np.any(train % 2)
        assert np.all(test % 2)
        assert len(np.unique(train)) > 0.99 * len(train)


@pytest.mark.parametrize("split", domains.SPLITS)
@pytest.mark.parametrize("name", helpers.DOMAINS)
class TestTasks:
    def test_goals(self, samples, name, split):
        tasks, goals = samples[name, split], helpers.spec(name).goals
        count = np.bincount(tasks.goal.kind, minlength=len(goals))
        assert len(count) == len(goals)
        assert count.min() > 0.5 * len(tasks.world) / len(goals)
        names = [tool.name for tool in helpers.spec(name).tools]
        for kind, rows in zip(tasks.goal.kind, tasks.goal.tool, strict=True):
            steps = [tool for tool, _ in goals[kind].steps]
            assert [names[n] for n in rows if n >= 0] == steps

    def test_visible_tools(self, samples, name, split):
        tasks, spec = samples[name, split], helpers.spec(name)
        rows, offered = helpers.tool_rows(name), set()
        for kind, visible in zip(tasks.goal.kind, tasks.tools.visible, strict=True):
            goal = spec.goals[kind]
            steps = {tool for tool, _ in goal.steps}
            needs = steps | set(domain_spec.extra_calls(spec, goal))
            assert all(visible[rows[tool]] for tool in needs)
            assert visible.sum() == max(len(needs), helpers.NUM_VISIBLE)
            offered |= set(np.flatnonzero(visible))
        assert offered == set(range(len(spec.tools)))  # and no row without a tool

    def test_values_differ(self, samples, name, split):
        tasks, spec = samples[name, split], helpers.spec(name)
        codes = np.sort(tasks.tools.code, axis=1)
        assert np.all(np.diff(codes, axis=1) > 0)
        assert len(np.unique(codes)) > 2000
        twice = 0
        for kind, _, values in requests(name, tasks):
            by_type = collections.defaultdict(list)
            constants = spec.goals[kind].constants
            for (_, kind), value in zip(constants, values, strict=True):
                by_type[kind].append(value)
            for same in by_type.values():
                twice += len(same) > 1
                assert len(set(same)) == len(same)

    def test_a_task_is_a_function_of_its_key(self, samples, name, split):
        again = helpers.host(helpers.tasks(name, split, start=helpers.BATCH))
        part = jax.tree.map(
            lambda x: x[helpers.BATCH : 2 * helpers.BATCH], samples[name, split]
        )
        chex.assert_trees_all_equal(again, part)


def test_a_split_may_be_given_by_its_index(samples):
    """Tests give it so; training and evaluation give its name."""
    environment, tables = helpers.world("poi").environment, helpers.world("poi").tables
    sample = jax.jit(environment.sample, static_argnums=2)
    pools = jax.jit(functools.partial(vary, environment))
    for index, split in enumerate(SPLITS):
        task = sample(tables, helpers.keys()[0], split)
        first = helpers.row(samples["poi", split], 0)
        chex.assert_trees_all_equal(helpers.host(task), first)
        by_name = jax.jit(functools.partial(vary, environment, split=split))
        chex.assert_trees_all_equal(
            pools(tables, task, split=jnp.int32(index)), by_name(tables, task)
        )


def vary(environment, tables, task, split):
    """The arrays of the pools, and a task that `domain_transfer` draws from them."""
    pools = vars(environment.pools(tables, task, split))
    transfer, position = pools.pop("transfer"), pools.pop("position")
    assert position == ""
    return pools, transfer(jax.random.key(0))


def test_one_program_serves_both_domains(samples):
    chex.assert_trees_all_equal_shapes_and_dtypes(*map(helpers.arrays, helpers.DOMAINS))
    lexicons = [helpers.lexicon(name) for name in helpers.DOMAINS]
    chex.assert_trees_all_equal_shapes_and_dtypes(*lexicons)
    assert jax.tree.structure(lexicons[0]) == jax.tree.structure(lexicons[1])
    tables = [helpers.world(name).tables for name in helpers.DOMAINS]
    chex.assert_trees_all_equal_shapes_and_dtypes(*tables)
    assert jax.tree.structure(tables[0]) == jax.tree.structure(tables[1])
    counts = []
    for made in tables:
        for split in SPLITS:
            helpers.sample(made, helpers.keys(3), split)
        counts.append(helpers.TRACES["_sample"])
    assert counts[0] == counts[1]


def test_a_bad_domain_is_refused():
    with pytest.raises(ValueError, match='did you mean "poi"'):
        helpers.world("pio")


def test_room_for_any_number_of_synonyms():
    """No synonym is dropped."""
    spec = helpers.spec("poi")
    table = ToolSymbols()
    first, *others = spec.tools
    names = tuple(f"name_{i}" for i in range(9))
    first = dataclasses.replace(first, names={**first.names, "train": names})
    spec = dataclasses.replace(spec, tools=(first, *others))
    documents = Documents(style.compact(helpers.LIMITS.num_args))
    compiled = domains.compile(spec, table, helpers.LIMITS, documents)
    assert set(map(table.one, names)) == {*np.asarray(compiled.variants.name[0, 0, 0])}
