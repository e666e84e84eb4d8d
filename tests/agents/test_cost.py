"""What evaluations by messages cost: estimates, counts, and reused episodes."""

import asyncio
import json

import numpy as np
import pytest

from openagent_jax import report
from openagent_jax.agents import agents, cost, play
from openagent_jax.agents import log as logs
from openagent_jax.agents.cost import Prices
from openagent_jax.curriculum import draw
from tests import scripted
from tests.agents.endpoints import (
    ABOUT,
    NUM_TASKS,
    SCENARIOS,
    endpoint_of,
    evaluate,
    expert,
    read_log,
    suite,
)
from tests.agents.test_play import OneTurn

pytest.importorskip("openai")
pytestmark = pytest.mark.usefixtures("short_delays")


def test_estimate_of_the_expert(reference):
    """For an agent that plays as the expert does, the requests are exact."""
    log, episodes, num_requests = reference
    survey = suite().survey()
    assert survey.keys() == episodes.keys() == log.done.keys()
    for key, needs in survey.items():
        assert needs.num_requests == episodes[key]["num_replies"]
        assert needs.changed == episodes[key]["changed"]
    found = cost.estimate(survey.values(), Prices(prompt=2.0))
    assert found["requests"] == num_requests == log.cost.requests
    # Each request sends the whole conversation, of which the log has the last.
    sent = 0
    for episode in episodes.values():
        before = [
            episode["messages"][:i]
            for i, message in enumerate(episode["messages"])
            if message["role"] == "assistant"
        ]
        sent += sum(len(json.dumps([x, episode["tools"]])) for x in before)
    assert found["prompt_tokens"] == pytest.approx(sent / 4, rel=0.25)
    assert found["price"] == pytest.approx(2e-6 * found["prompt_tokens"], abs=1e-6)
    longer = cost.estimate(survey.values(), Prices(), more_chars=400)
    assert longer["prompt_tokens"] == pytest.approx(
        found["prompt_tokens"] + 100 * num_requests, abs=1
    )
    assert "price" not in longer


def test_retries_and_latency_are_counted(tmp_path):
    """Every third request fails with a status that is retried."""

    def script(body, number):
        return ("error", 503) if number % 3 == 2 else expert(body)

    with scripted.server(script) as server:
        log = evaluate(tmp_path / "log", endpoint_of(server, max_retries=3), num=1)
        num = len(server.requests)
    assert log.cost.requests == num > log.cost.replies == num - num // 3
    made = log.cost.summary(Prices())
    assert made["retries"] == num // 3 and len(log.cost.latencies) == log.cost.replies
    assert 0 < made["latency_median"] <= made["latency_p95"]
    again = logs.Log(tmp_path / "log", ABOUT)  # it is counted from the file too
    again.close()
    assert again.cost.summary(Prices()) == made


def test_requests_without_an_answer_are_counted(tmp_path):
    """They were sent, and perhaps paid for; so were those of repeated episodes."""
    with scripted.server(lambda *_: ("error", 500)) as server:
        with pytest.raises(RuntimeError, match="no answer"):
            evaluate(tmp_path / "log", endpoint_of(server, max_retries=2), num=1)
        first = len(server.requests)
    with scripted.server(expert) as server:
        log = evaluate(tmp_path / "log", endpoint_of(server))
        assert log.cost.requests == first + len(server.requests)
    assert log.cost.episodes == 16 + len(suite().names) * NUM_TASKS


def usage(prompt, completion):
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    counts |= {"total_tokens": prompt + completion}
    return scripted.reply("Refuse") | {"usage": counts}


def test_tokens_and_money(tmp_path):
    with scripted.server(lambda *_: usage(1000, 10)) as server:
        log = evaluate(tmp_path / "log", endpoint_of(server))
    prices = Prices(prompt=3.0, completion=15.0)
    made, num = log.cost.summary(prices), len(suite().names) * NUM_TASKS
    assert (made["prompt_tokens"], made["completion_tokens"]) == (1000 * num, 10 * num)
    assert made["price"] == pytest.approx(num * (3e-3 + 15e-5))
    tokens = f"{1000 * num:,} prompt tokens, {10 * num} completion tokens"
    assert report.spent(made).startswith(f"{num} episodes, {num} requests, {tokens}")
    with scripted.server(lambda *_: usage(1000, 10)) as server:
        budget = play.Budget(max_cost=0.01, prices=prices)
        with pytest.raises(
            play.BudgetExceeded, match="max_cost is reached: 0.01 was spent"
        ):
            evaluate(tmp_path / "new", endpoint_of(server), num=1, budget=budget)
        assert len(server.requests) == 4  # 0.0126


def test_tokens_that_no_agent_counts_are_unknown():
    async def agent(messages, tools):
        return agents.Reply({"content": "Hm"})

    async def go():
        playing = play.play(
            [play.Episode("clean", 0, OneTurn, {})], agent, 1, play.Budget()
        )
        return [line async for line in playing]

    (line,) = asyncio.run(go())
    found = cost.Cost()
    found.add(line)
    made = found.summary(Prices(prompt=1.0))
    assert made["prompt_tokens"] is None and "price" not in made
    assert "tokens" not in report.spent(made)


def test_unchanged_episodes_have_the_outcome_of_the_clean_ones(reference, tmp_path):
    """They are scored and kept without having been played."""
    name, reused = SCENARIOS[0], {(SCENARIOS[0], i) for i in (1, 3)}
    log = logs.Log(tmp_path / "log", ABOUT)
    for key, line in reference.episodes.items():
        if key not in reused:
            lost = key == (draw.CLEAN, 3)
            times = {"seconds": 0, "latencies": [], "num_requests": 1}
            log.add(line | times | {"success": not lost})
    names = suite().names
    made = logs.scored(log, names, NUM_TASKS, reused)
    assert made[name].changed.tolist() == [True, False, True, False]
    assert made[name].success.tolist() == [True, True, True, False]
    np.testing.assert_array_equal(
        made[name].task[[1, 3]], made[draw.CLEAN].task[[1, 3]]
    )
    logs.keep(log, tmp_path, names, NUM_TASKS, reused)
    log.close()
    kept = (tmp_path / "trajectories" / f"{name}.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in kept]
    assert [line["index"] for line in lines] == [0, 1, 2, 3]
    assert [line.get("reused", False) for line in lines] == [False, True, False, True]
    clean = reference.episodes[draw.CLEAN, 1]
    assert lines[1]["messages"] == clean["messages"] and not lines[1]["changed"]
    assert {line["scenario"] for line in lines} == {name}
    _, count = read_log(tmp_path / "log")
    assert not count.keys() & reused
