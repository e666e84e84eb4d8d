"""Several domains in one program: what each split is sampled from, and how often."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments import registry
from openagent_jax.environments.tools.worlds import mixture
from openagent_jax.environments.world import SPLITS, Settings, Spelling
from tests import helpers
from tests.environments.tools.worlds import many

NUM = helpers.BATCH


@functools.cache
def world(domain="poi,medical", **settings):
    usual = {
        "transfer": "medical,poi",
        "num_goals": 0,  # the authored goals of both
        "num_visible": helpers.NUM_VISIBLE,
        "max_turns": helpers.MAX_TURNS,
    }
    settings = Settings(domain, **usual | settings)
    return registry.make(settings, Spelling(helpers.tokenizer()))


def sampled(made, split, num_batches=1):
    batches = [
        helpers.host(helpers.sample(made.tables, helpers.keys(2, i * NUM), split))
        for i in range(num_batches)
    ]
    return jax.tree.map(lambda *x: np.concatenate(x), *batches)


def domain_of(made, tasks):
    """The name of the domain of each task."""
    source = made.tables.source.tasks
    return np.array(made.domains)[np.asarray(source.goal_domain)[tasks.goal.kind]]


@pytest.mark.parametrize("split", SPLITS)
def test_tasks_are_those_of_their_domain(split):
    """Goals, tools, requests and values all belong to one domain of the mixture."""
    made = world()
    tasks = sampled(made, split)
    texts = [bytes(t).decode() for t in helpers.ragged(made.tables.lexicon.texts)]
    num_seen = dict.fromkeys(made.domains, 0)
    for task, name in zip(helpers.rows(tasks), domain_of(made, tasks), strict=True):
        spec = helpers.spec(name)
        num_seen[name] += 1
        own = {tool.name: tool for tool in spec.tools}
        shown = [texts[s] for s in task.tools.name[task.tools.visible]]
        assert {*shown} <= {*own} and len(shown) >= helpers.NUM_VISIBLE
        assert made.transcriber.goal(task).startswith(f"{name}.")
        goals = {f"{name}.{goal.name}": goal for goal in spec.goals}
        goal = goals[made.transcriber.goal(task)]
        called = [texts[task.tools.name[n]] for n in task.goal.tool if n >= 0]
        assert called == [step for step, _ in goal.steps]
        slots = [slot for slot, _ in goal.constants]
        template = "".join(
            texts[s] if s >= 0 else "{" + slots[-1 - s] + "}" for s in task.phrase
        )
        assert template in goal.phrases[split]
        kinds = {kind.name: kind for kind in spec.types}
        for (_, kind), value in zip(goal.constants, task.constants, strict=False):
            if kinds[kind].kind == "entity":
                assert texts[value] in getattr(kinds[kind], split)
    assert min(num_seen.values()) > NUM / 3


def test_weights_hold():
    made = world(domain_weights="3,1")
    share = np.mean(domain_of(made, sampled(made, "train", 8)) == "poi")
    assert abs(share - 0.75) < 4 * np.sqrt(0.75 * 0.25 / (8 * NUM))
    # A test plays each domain equally often.
    share = np.mean(domain_of(made, sampled(made, "test", 8)) == "poi")
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / (8 * NUM))


def test_goals_are_uniform_within_a_domain():
    made = world(domain_weights="3,1")
    tasks = sampled(made, "train", 8)
    names = domain_of(made, tasks)
    for name in made.domains:
        counts = np.unique(tasks.goal.kind[names == name], return_counts=True)[1]
        num = len(helpers.spec(name).goals)
        assert len(counts) == num
        # The 0.9999 quantile of chi-squared with 13 degrees of freedom.
        expected = counts.sum() / num
        assert np.sum((counts - expected) ** 2 / expected) < 43


def test_an_evaluation_takes_turns_among_the_domains_of_its_split():
    made = world(domain_weights="3,1")
    nth = made.environment.nth_task
    tasks = jax.vmap(lambda key, i: nth(made.tables, key, i, "train"))(
        helpers.keys()[:9], jnp.arange(9)
    )
    assert domain_of(made, tasks).tolist() == ["poi", "medical"] * 4 + ["poi"]


def test_test_domains_are_only_tested():
    made = world("poi", test_domains="medical")
    assert {*domain_of(made, sampled(made, "train"))} == {"poi"}
    assert {*domain_of(made, sampled(made, "test"))} == {"medical"}
    nth = made.environment.nth_task
    tasks = jax.vmap(lambda key, i: nth(made.tables, key, i, "test"))(
        helpers.keys()[:4], jnp.arange(4)
    )
    assert {*domain_of(made, tasks)} == {"medical"}


def test_a_domain_alone_is_not_changed_by_being_named_for_the_test():
    """The same tasks as without a mixture, but for the numbers of goals."""
    made = world("poi", test_domains="medical")
    mine = sampled(made, "train")
    alone = helpers.host(helpers.sample(world("poi").tables, helpers.keys(2), "train"))
    for x, y in zip(jax.tree.leaves(mine), jax.tree.leaves(alone), strict=True):
        np.testing.assert_array_equal(x, y)


def test_domain_transfer_draws_from_all_domains():
    made = world()
    index = jnp.int32(helpers.EDITS.index("domain_transfer"))
    tasks = helpers.sample(made.tables, helpers.keys(2), "test")
    edited = helpers.host(
        helpers.edit(index, made.tables, helpers.keys(1), tasks, jnp.float32(1), "test")
    )
    assert np.all(edited.goal.kind < 0)
    source = made.tables.source.transfer
    which = np.asarray(source.goal_domain)[-1 - edited.goal.kind]
    assert np.bincount(which, minlength=2).min() > NUM / 3


@pytest.mark.parametrize("entry", ["query_rewrite", "entity_shift"])
def test_a_task_of_another_domain_keeps_its_words(entry):
    made = world()
    transfer = jnp.int32(helpers.EDITS.index("domain_transfer"))
    tables, keys = made.tables, helpers.keys(1)
    tasks = helpers.sample(tables, helpers.keys(2), "test")
    other = helpers.edit(transfer, tables, keys, tasks, jnp.float32(1), "test")
    index = jnp.int32(helpers.EDITS.index(entry))
    again = helpers.edit(index, tables, keys, other, jnp.float32(1), "test")
    for x, y in zip(helpers.leaves(other), helpers.leaves(again), strict=True):
        np.testing.assert_array_equal(x, y)


def test_rewritten_requests_are_of_the_same_goal():
    made = world()
    texts = [bytes(t).decode() for t in helpers.ragged(made.tables.lexicon.texts)]
    tasks = helpers.sample(made.tables, helpers.keys(2), "test")
    index = jnp.int32(helpers.EDITS.index("query_rewrite"))
    edited = helpers.host(
        helpers.edit(index, made.tables, helpers.keys(1), tasks, jnp.float32(1), "test")
    )
    goals = [goal for name in made.domains for goal in helpers.spec(name).goals]
    for task in helpers.rows(edited):
        goal = goals[task.goal.kind]
        slots = [slot for slot, _ in goal.constants]
        template = "".join(
            texts[s] if s >= 0 else "{" + slots[-1 - s] + "}" for s in task.phrase
        )
        assert template in goal.phrases["rewrite_test"]


def test_the_order_of_domains_is_one_program():
    """Mixtures of the same domains share compiled programs."""
    made = world(), world("poi,medical", domain_weights="2,1"), world("medical,poi")
    for one in made:
        sampled(one, "train")
    before = helpers.TRACES["_sample"]
    for one in made:
        sampled(one, "train")
    assert helpers.TRACES["_sample"] == before
    shapes = [jax.tree.map(jnp.shape, one.tables.source.tasks) for one in made]
    assert shapes[0] == shapes[1] == shapes[2]


def test_twenty_tools_need_a_flag(tmp_path):
    file = many.write(tmp_path / "many.json", num_tools=20)
    with pytest.raises(ValueError, match="raise sandbox.num_tools") as caught:
        world(f"poi,{file}")
    assert len(str(caught.value).splitlines()) == 1
    made = world(f"poi,{file}", num_tools=32)
    tasks = helpers.sample(made.tables, helpers.keys(2), "train")
    assert tasks.tools.name.shape == (NUM, 32)
    episodes, _ = helpers.demonstrate(made.tables, tasks)
    outcome = jax.vmap(made.environment.outcome, (None, 0, 0))(
        made.tables, episodes.task, episodes.state
    )
    assert np.asarray(outcome.success).all()
    visible = helpers.host(tasks).tools.visible
    assert visible[:, 16:].any()


class TestFaults:
    @pytest.mark.parametrize(
        ("domain", "words"),
        [
            ("pio,medcal", ['"pio"; did you mean "poi"?', 'did you mean "medical"?']),
            ("poi,poi", ['"poi" is named twice']),
            ("poi,,medical", ["an empty name"]),
            ("poi,crafting,x.jsonl", ['"crafting" is another', '"x.jsonl" is a log']),
        ],
    )
    def test_each_bad_name_is_named(self, domain, words):
        with pytest.raises(ValueError) as caught:
            world(domain)
        (line,) = str(caught.value).splitlines()
        for word in words:
            assert word in line

    def test_bad_files_are_all_named(self, tmp_path):
        for name in "ab":
            (tmp_path / f"{name}.json").write_text("{}")
        with pytest.raises(ValueError) as caught:
            world(f"{tmp_path}/a.json,{tmp_path}/b.json")
        (line,) = str(caught.value).splitlines()
        assert "a.json" in line and "b.json" in line

    @pytest.mark.parametrize("weights", ["1", "1,2,3", "1,x", "1,0", "1,-1", "1,nan"])
    def test_weights(self, weights):
        with pytest.raises(ValueError, match='write "1,1", or ""'):
            mixture.shares(Settings("poi,medical", domain_weights=weights))

    def test_the_domains_of_the_test_must_mix_too(self):
        with pytest.raises(ValueError, match='"crafting" is another environment'):
            world("poi", test_domains="crafting")
