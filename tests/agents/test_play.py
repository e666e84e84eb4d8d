"""Concurrent episodes: budgets, pending replies, and agents that stop answering."""

import asyncio
import contextlib
import itertools
import time

import numpy as np
import pytest

from openagent_jax.agents import agents, cost, play
from openagent_jax.curriculum import draw
from openagent_jax.types import Outcome
from tests import scripted
from tests.agents.endpoints import (
    NUM_TASKS,
    SCENARIOS,
    endpoint_of,
    evaluate,
    expert,
    read_log,
    report_rows,
    suite,
)

pytest.importorskip("openai")
pytestmark = pytest.mark.usefixtures("short_delays")


class OneTurn:
    """An episode that ends with the first reply."""

    def __init__(self):
        self.tools, self.messages, self.actions, self.results = [], [], [], []
        self.rewards, self.finished, self.terminated = {}, False, False
        no, none = np.bool_(False), np.int32(0)
        self.outcome = Outcome(no, no, no, *[none] * 5)

    def receive(self, reply, cut):
        self.finished = True


def test_expert_solves_every_task(reference):
    log, episodes, num_requests = reference
    rows = {row["scenario"]: row for row in report_rows(log)}
    assert list(rows) == [draw.CLEAN, *SCENARIOS]
    for row in rows.values():
        assert row["success"]["mean"] == 1 and row["n"] == NUM_TASKS
        assert "unanswered" not in row
    assert rows["unsolvable"]["refusal_rate"] == 1
    assert rows["runtime_error"]["tool_error_rate"] > 0
    assert rows[draw.CLEAN]["chain_length_ratio"] == 1
    assert sum(e["num_replies"] for e in episodes.values()) == num_requests
    assert sum(e["num_tokens"] for e in episodes.values()) == 7 * num_requests


def test_one_episode_is_that_of_the_whole_suite():
    whole = {(e.scenario, e.index): e for e in suite().episodes()}
    for where in ((draw.CLEAN, 1), ("unsolvable", 3)):
        one = suite().episode(*where)
        assert one.facts == whole[where].facts
        ours, theirs = one.begin(), whole[where].begin()
        assert (ours.messages, ours.tools) == (theirs.messages, theirs.tools)


def test_agents_that_stop_answering_are_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(play, "PATIENCE", 5)
    with scripted.server(lambda *_: ("error", 503, "gone")) as server:
        with pytest.raises(RuntimeError, match="5 episodes in a row .* 503 .*gone"):
            evaluate(tmp_path / "log", endpoint_of(server, max_retries=0), num=1)
        assert len(server.requests) == 5
    # The port is closed now.
    with pytest.raises(RuntimeError, match="5 episodes in a row .*: no connection"):
        evaluate(tmp_path / "log", endpoint_of(server, max_retries=0), num=1)


def test_evaluation_resumes_with_a_larger_budget(reference, tmp_path):
    file = tmp_path / "log"
    with scripted.server(expert) as server:
        with pytest.raises(play.BudgetExceeded, match="10 calls were made"):
            evaluate(file, endpoint_of(server), budget=play.Budget(max_calls=10))
        assert len(server.requests) == 10
        budget = play.Budget(max_tokens=70)
        with pytest.raises(play.BudgetExceeded, match="70 tokens were used"):
            evaluate(file, endpoint_of(server), num=1, budget=budget)
        assert len(server.requests) == 20
        evaluate(file, endpoint_of(server))
    episodes, count = read_log(file)
    assert episodes == reference.episodes and set(count.values()) == {1}


@pytest.mark.parametrize("limit", ["max_tokens", "max_cost"])
def test_a_limit_that_cannot_be_kept_is_refused(limit):
    budget = play.Budget(**{limit: 9})
    budget.use(agents.Reply({}, prompt_tokens=3, completion_tokens=1))
    assert budget.num_tokens == 4  # although the agent did not add them up
    budget.use(agents.Reply({}))  # one reply may lack them
    budget = play.Budget(**{limit: 9})
    with pytest.raises(agents.Rejected, match=f"so {limit} cannot be enforced; give"):
        budget.use(agents.Reply({}))
    play.Budget(max_calls=9).use(agents.Reply({}))


def test_a_sum_of_tokens_has_no_price():
    """So an endpoint that reports nothing else could spend without limit."""
    limits = dict(max_cost=9, prices=cost.Prices(1.0, 1.0))
    with pytest.raises(agents.Rejected, match="prompt and how many are completion tok"):
        play.Budget(**limits).use(agents.Reply({}, num_tokens=5))
    with pytest.raises(agents.Rejected, match="max_cost cannot be enforced"):
        play.Budget(max_tokens=9, **limits).use(agents.Reply({}, num_tokens=5))
    play.Budget(max_tokens=9).use(agents.Reply({}, num_tokens=5))


def test_replies_in_flight_when_the_budget_ends_are_counted():
    numbers, over = itertools.count(), set()

    async def agent(messages, tools):
        await asyncio.sleep(0.1 * (next(numbers) == 0))  # the first call is slow
        return agents.Reply({"content": "Hm"})

    async def go():
        episodes = [play.Episode("clean", i, OneTurn, {}) for i in range(4)]
        async for outcome in play.play(episodes, agent, 2, play.Budget(max_calls=2)):
            over.add(outcome["index"])

    with pytest.raises(play.BudgetExceeded):
        asyncio.run(go())
    assert over == {0, 1}


def test_latency_is_without_compilation():
    """The first turn of a process blocks the loop, while other replies arrive."""
    heard = []

    class Compiled(OneTurn):
        def receive(self, reply, cut):
            time.sleep(0 if heard else 0.5)
            heard.append(reply)
            super().receive(reply, cut)

    async def agent(messages, tools):
        await asyncio.sleep(0.01 * len(heard))
        return agents.Reply({"content": "Hm"})

    async def go():
        episodes = [play.Episode("clean", i, Compiled, {}) for i in range(4)]
        played = play.play(episodes, agent, 4, play.Budget())
        return [latency async for row in played for latency in row["latencies"]]

    latencies = asyncio.run(go())
    assert len(latencies) == 4 and max(latencies) < 0.4


def test_rejection_cancels_pending_requests():
    """If the agent rejects a request, a reply that is still pending is not awaited."""

    async def agent(messages, tools):
        if next(numbers):
            raise agents.Rejected("no")
        await asyncio.sleep(60)

    async def go():
        episodes = [play.Episode("clean", i, OneTurn, {}) for i in range(2)]
        async for _ in play.play(episodes, agent, 2, play.Budget()):
            pass

    numbers, start = itertools.count(), time.monotonic()
    with pytest.raises(agents.Rejected):
        asyncio.run(go())
    assert time.monotonic() - start < 30


def test_finished_episodes_are_yielded_before_giving_up(monkeypatch):
    """The failure that ends the evaluation arrives together with seven answers."""
    slow, last, answered = range(1, 8), play.PATIENCE + 6, {}
    # Among episodes that end together, the unanswered ones are handled first.
    monkeypatch.setattr(play, "_failed", lambda task: task.result()["answered"])

    async def go():
        last_began, numbers = asyncio.Event(), itertools.count()

        async def agent(messages, tools):
            number = next(numbers)
            if number in slow:
                await last_began.wait()
                return agents.Reply({"content": "Hm"})
            if number == last:
                last_began.set()
            raise agents.Unanswered("no")

        episodes = [play.Episode("clean", i, OneTurn, {}) for i in range(last + 1)]
        playing = play.play(episodes, agent, 8, play.Budget())
        with contextlib.suppress(RuntimeError):
            async for outcome in playing:
                answered[outcome["index"]] = outcome["answered"]

    asyncio.run(go())
    assert answered == {i: i in slow for i in range(last + 1)}
