"""A log as a suite: each of its conversations is a task, and is played once."""

import collections

import pytest

from openagent_jax.curriculum import draw
from openagent_jax.suites.tasks import Suite
from tests.environments.logs.examples import GOOD, build, calls, weather, write_log

CITIES = "Rome Bern Oslo Paris Kyiv Riga Lima Cairo Quito Turin Delft Basel".split()


def conversation(city):
    return weather(calls(("get_weather", {"city": city})), GOOD[1], city=city)


@pytest.mark.slow
def test_each_conversation_is_played_once(tmp_path):
    cities = [*CITIES, *CITIES[:6]]  # some are in the log twice
    world = build(write_log(tmp_path, *map(conversation, cities)))
    source, counts = world.tables.source.tasks, {}
    assert sum(source.num_distinct) == 12 and sum(source.num) == 18
    for split in ("train", "test"):
        num = draw.num_tasks(world.environment, world.tables, split, 96)
        made = Suite(world, ("tool_order",), 3, num, 1.0, split)
        played = collections.Counter(
            episode.begin().messages[1]["content"]
            for episode in made.episodes()
            if episode.scenario == draw.CLEAN
        )
        assert set(played.values()) == {1}
        counts[split] = set(played)
    assert len(counts["train"]) + len(counts["test"]) == 12
    assert not counts["train"] & counts["test"]


@pytest.mark.slow
def test_repeats_are_perturbed_anew_and_counted_as_one_task(tmp_path):
    world = build(write_log(tmp_path, *map(conversation, CITIES)))
    made = Suite(world, ("identity_erasure",), 3, 2, 1.0, "train", repeats=4)
    tools, tasks = collections.defaultdict(set), collections.defaultdict(set)
    for episode in made.episodes():
        where = episode.scenario, episode.index // 4
        tools[where].add(str(episode.begin().tools))
        tasks[where].add(episode.facts["task"])
    assert len(tools) == 4 and tasks["clean", 0] != tasks["clean", 1]
    for (name, _), seen in tools.items():
        assert len(seen) == 1 if name == draw.CLEAN else len(seen) > 1
    bounds = made.bounds()["oracle"]
    assert {name: len(x) for name, x in bounds.items()} == dict.fromkeys(made.names, 8)


@pytest.mark.slow
def test_fingerprints_of_one_conversation_are_equal(tmp_path):
    """Codes that the log does not have are drawn, but once for each task."""
    world = build(write_log(tmp_path, *map(conversation, CITIES)))
    made = Suite(world, (), 3, 3, 1.0, "train", repeats=2)
    facts = [episode.facts for episode in made.episodes()]
    assert [x["task"] for x in facts[::2]] == [x["task"] for x in facts[1::2]]
    assert len({x["task"] for x in facts}) == 3
    assert len({tuple(x["task_key"]) for x in facts}) == 3
