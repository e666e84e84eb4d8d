"""Evaluate an agent that speaks by messages, on the tasks that a checkpoint meets."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ml_collections import ConfigDict
from tqdm import tqdm

from launch import backbones, settings
from launch.cli import BadUse
from openagent_jax import evaluate, worlds
from openagent_jax.interop import agents, bfcl, play

LOG = "episodes.jsonl"
FIXED = {"messages", "model", "n", "stream", "tools"}  # what --request may not say


class Speaker(NamedTuple):
    """An agent that is not there yet."""

    name: str
    about: dict[str, Any]  # what the log and the report say of it
    # Waits for the event loop that it will live in.
    connect: Callable[[], contextlib.AbstractAsyncContextManager[agents.Agent]]


def endpoint(
    base_url: str | None, model: str | None, key_variable: str, **more: Any
) -> Speaker:
    """What the flags say of an endpoint; the key comes from the environment."""
    if not base_url or not model:
        raise BadUse(
            "--agent=openai needs --base_url and --model, such as "
            "--base_url=http://127.0.0.1:8000/v1 --model=NAME"
        )
    if not base_url.startswith(("http://", "https://")):
        raise BadUse(f"--base_url={base_url} is no address; it begins with http://")
    key = os.environ.get(key_variable, "").strip()
    with settings.blamed_on(f"--base_url or {key_variable}"):
        where = agents.Endpoint(base_url, model, key, **more)
    if not key and not where.is_local:
        raise BadUse(f"{where.place} needs a key; put it in {key_variable}")
    with settings.needs_extra("--agent=openai", "agents"):
        import openai  # noqa: F401
    about = {"agent": "openai", "model": model, "base_url": where.place}
    about |= {"request": where.request}
    return Speaker(model, about, partial(agents.endpoint, where))


def function(name: str, key_variable: str) -> Speaker:
    """The agent `python:module:function`."""
    kind, _, name = name.partition(":")
    if kind != "python":
        raise BadUse(f"--agent={kind} is neither openai nor python:module:function")
    with settings.blamed_on("--agent"):
        found = agents.function(name, os.environ.get(key_variable, "").strip())
    about = {"agent": "python", "model": name}
    return Speaker(name, about, lambda: contextlib.nullcontext(found))


def spoken(c: ConfigDict, domain: str) -> worlds.Worlds:
    """Tasks as messages tell them."""
    return worlds.build(
        domain,
        backbones.load_tokenizer(backbones.BACKBONES / "nano"),  # sees no token
        settings.limits(c),
        num_visible=c.sandbox.num_visible,
        min_visible=c.sandbox.min_visible,
        transfer=c.sandbox.transfer,
        room={"sandbox.max_turns": c.sandbox.max_turns},
    )


class Tasks(Protocol):
    """Episodes that agents are to play."""

    @property
    def names(self) -> tuple[str, ...]: ...  # of the scenarios, the clean one first
    @property
    def num_tasks(self) -> int: ...  # of each
    def episodes(self, done: Collection[tuple[str, int]]) -> Iterable[play.Episode]: ...
    def digest(self) -> str: ...


def suite(c: ConfigDict) -> Tasks:
    """The episodes of a config."""
    if c.eval.domain.startswith(bfcl.PREFIX):
        return _bfcl(c)
    settings.check(c)
    domain = settings.eval_domain(c)
    with settings.blamed_on(f"the suite {domain}"):
        source = spoken(c, domain)
    if source.log:
        print(f"{domain}: {source.log.summary()}")
    return play.Suite(
        source,
        tuple(c.eval.scenarios),
        c.eval.seed,
        c.eval.num_tasks,
        c.eval.strength,
        c.eval.split,
        c.sandbox.max_turns,
    )


def _bfcl(c: ConfigDict) -> bfcl.Suite:
    """Of the scenarios of the config those that have a meaning there."""
    name = c.eval.domain.removeprefix(bfcl.PREFIX)
    others = c.copy_and_resolve_references()
    others.eval.domain = ""  # it is none of ours
    settings.check(others)
    with settings.blamed_on(f"the suite {c.eval.domain}"):
        items = bfcl.load(name)[: c.eval.num_tasks]
    scenarios = tuple(x for x in c.eval.scenarios if x in bfcl.SCENARIOS)
    if c.eval.scenarios and not scenarios:
        raise BadUse(f"eval.scenarios: take some of {', '.join(bfcl.SCENARIOS)}")
    return bfcl.Suite(
        name, items, scenarios, c.eval.seed, c.eval.strength, c.eval.split
    )


def score(
    c: ConfigDict,
    log_file: Path,
    speaker: Speaker,
    concurrency: int,
    budget: play.Budget,
) -> dict:
    """The report of an agent; goes on from the log.

    Raises:
      RuntimeError: it was not played to its end; what was played is in the log.
    """
    tasks = suite(c)
    about = speaker.about | {
        "suite": settings.eval_domain(c),
        "seed": c.eval.seed,
        "split": c.eval.split,
        "strength": c.eval.strength,
        "max_turns": c.sandbox.max_turns,
        "tasks": tasks.digest(),
        "grading_version": evaluate.GRADING_VERSION,
    }
    with contextlib.closing(play.Log(log_file, about)) as log:
        total = len(tasks.names) * tasks.num_tasks
        over = {key for key, kept in log.done.items() if kept["answered"]}

        async def run() -> None:
            async with speaker.connect() as found:
                playing = play.play(tasks.episodes(over), found, concurrency, budget)
                async with contextlib.aclosing(playing):
                    async for outcome in playing:
                        log.add(outcome)
                        bar.update(outcome["answered"])
            reasons = [kept["reason"] for kept in log.done.values()]
            if reasons and not any(kept["answered"] for kept in log.done.values()):
                raise RuntimeError(f"no episode had an answer: {reasons[-1]}")

        with tqdm(total=total, initial=_wanted(tasks, over), unit="episode") as bar:
            try:
                asyncio.run(run())
            except (RuntimeError, agents.Rejected) as error:
                raise RuntimeError(
                    f"{error}; {bar.n:.0f} of {total} episodes are in {log_file}, and "
                    "the same command goes on from there"
                ) from error
        rows = play.rows(
            log, tasks.names, tasks.num_tasks, c.eval.strength, c.eval.split
        )
    asked = speaker.about.get("request", {"temperature": c.eval.temperature})
    return {
        "suite": about["suite"],
        "policy": speaker.name,
        "checkpoint_step": 0,
        **speaker.about,
        "seed": c.eval.seed,
        "num_tasks": tasks.num_tasks,
        "split": c.eval.split,
        "temperature": asked.get("temperature", "unknown"),
        "grading_version": evaluate.GRADING_VERSION,
        "rows": rows,
    }


def request(text: str, temperature: float) -> dict[str, Any]:
    """More of the body of a request: the temperature, and what a flag says."""
    try:
        said = json.loads(text or "{}")
        json.dumps(said, allow_nan=False)
    except ValueError as error:
        raise BadUse(f"--request is no JSON: {error}") from None
    if not isinstance(said, dict):
        raise BadUse(f"--request is no JSON object: {text}")
    if fixed := sorted(FIXED & said.keys()):
        raise BadUse(f"--request: {', '.join(fixed)} cannot be set there; remove it")
    said = {"temperature": temperature} | said
    return {key: value for key, value in said.items() if value is not None}


def _wanted(tasks: Tasks, over: set[tuple[str, int]]) -> int:
    return sum(n in tasks.names and i < tasks.num_tasks for n, i in over)
