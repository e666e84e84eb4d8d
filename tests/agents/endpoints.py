"""Evaluations of a scripted endpoint: its expert replies, its faults, and the log."""

import asyncio
import collections
import contextlib
import functools
import json

import jax
import numpy as np

from openagent_jax.agents import agents, play
from openagent_jax.agents import log as logs
from openagent_jax.evaluation import evaluate as evaluation
from openagent_jax.evaluation.claims import Claims
from openagent_jax.suites import tasks as suites
from tests import helpers, messages, scripted

SCENARIOS = ("identity_erasure", "runtime_error", "unsolvable")
NUM_TASKS = 4
ABOUT = {"model": "scripted"}  # the settings that a log records

# What a server may do instead of replying.
FAULTS = {
    "rate limit": ("error", 429, "slow down"),
    "server error": ("error", 500),
    "not JSON": ("reply", b"<html>Bad Gateway</html>"),
    "connection lost": ("drop", scripted.reply("Refuse")),
    "no choices": ("reply", {"choices": []}),
    "not an object": ("reply", [1, 2]),
    "no message": ("reply", {"choices": [{"message": None}]}),
    "not UTF-8": ("reply", b'{"choices": "\xff"}'),
    "deep nesting": ("reply", b"[" * 100_000),
    "no reply": ("hang",),
}


@functools.cache
def suite():
    return suites.Suite(helpers.world("poi"), SCENARIOS, 3, NUM_TASKS, 1.0, "test")


@functools.cache
def expert_replies():
    """Return the expert's reply to each conversation, by its canonical form."""
    episodes = list(suite().episodes())
    room = helpers.BATCH - len(episodes)
    tasks = [task for episode in episodes for task in episode.begin.args]
    tasks += tasks[:1] * room
    tasks = jax.tree.map(lambda *x: np.stack(x), *tasks)
    demonstrated, _ = helpers.demonstrate(helpers.world("poi").tables, tasks)
    found = {}
    for episode in helpers.rows(demonstrated)[: len(episodes)]:
        theirs = messages.Conversation("poi", episode)
        *before, whole = theirs.messages()
        for seen in before:
            key = canonical(seen, theirs.documents())
            assert found.setdefault(key, whole[len(seen)]) == whole[len(seen)]
    return found


def canonical(seen, tools):
    """Return a conversation in a form that ignores variants of spelling."""
    turns = []
    for message in seen:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        for call in calls:
            arguments = call["arguments"]
            if isinstance(arguments, str):
                arguments = json.loads(arguments)
            turns.append(["call", call["name"], sorted(arguments.items())])
        turns.append([message["role"], message.get("content") or ""])
    return json.dumps([turns, tools], sort_keys=True)


def expert(body, number=0):
    """A script for `scripted.server`, which replies as the expert does."""
    message = expert_replies()[canonical(body["messages"], body["tools"])]
    calls = [
        {"function": dict(function, arguments=json.dumps(function["arguments"]))}
        for function in (call["function"] for call in message.get("tool_calls", ()))
    ]
    return scripted.reply({"content": message["content"], "tool_calls": calls})


def endpoint_of(server, **changes):
    settings = {"timeout": 5.0, "max_retries": 2} | changes
    return agents.Endpoint(server.base_url, "scripted", **settings)


def evaluate(file, endpoint, num=4, budget=None):
    """Play the episodes that the log does not have yet, and return the log."""
    log = logs.Log(file, ABOUT)
    done = {key for key, kept in log.done.items() if kept["answered"]}

    async def go():
        async with agents.endpoint(endpoint) as agent:
            playing = play.play(
                suite().episodes(done), agent, num, budget or play.Budget()
            )
            async with contextlib.aclosing(playing):
                async for outcome in playing:
                    log.add(outcome)

    try:
        asyncio.run(go())
    finally:
        log.close()
    return log


def report_rows(log):
    entries, names = suite().entries, suite().names
    scored = evaluation.Scored(logs.scored(log, names, NUM_TASKS), {})
    return evaluation.results(entries, scored, 1.0, Claims("test", ("poi",), ()))[
        "rows"
    ]


def read_log(file):
    """Return a log's episodes by scenario and task, and their count.

    Times and retries are left out: they differ from run to run.
    """
    _, *rows = map(json.loads, file.read_text("utf-8").splitlines())
    count = collections.Counter((row["scenario"], row["index"]) for row in rows)
    for row in rows:
        del row["seconds"], row["latencies"], row["num_requests"]
    return {(row["scenario"], row["index"]): row for row in rows}, count
