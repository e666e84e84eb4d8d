"""Evaluate an agent that speaks by messages, on the tasks that a checkpoint meets."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict
from tqdm import tqdm

from launch import backbones, settings
from launch.cli import BadUse
from openagent_jax import evaluate, worlds
from openagent_jax.interop import agents, play

LOG = "episodes.jsonl"


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
    key = os.environ.get(key_variable, "")
    where = agents.Endpoint(base_url, model, key, **more)
    if not key and not where.is_local:
        raise BadUse(f"{where.place} needs a key; put it in {key_variable}")
    with settings.needs_extra("--agent=openai", "agents"):
        import openai  # noqa: F401
    about = {"agent": "openai", "model": model, "base_url": where.place}
    about |= {"request": where.request}
    return Speaker(model, about, partial(agents.endpoint, where))


def function(name: str) -> Speaker:
    """The agent `python:module:function`."""
    kind, _, name = name.partition(":")
    if kind != "python":
        raise BadUse(f"--agent={kind} is neither openai nor python:module:function")
    with settings.blamed_on("--agent"):
        found = agents.function(name)
    about = {"agent": "python", "model": name}
    return Speaker(name, about, lambda: contextlib.nullcontext(found))


def suite(c: ConfigDict) -> play.Suite:
    """The episodes of a config."""
    settings.check(c)
    domain = settings.eval_domain(c)
    with settings.blamed_on(f"the suite {domain}"):
        source = worlds.build(
            domain,
            backbones.load_tokenizer(backbones.BACKBONES / "nano"),  # no token is seen
            settings.limits(c),
            num_visible=c.sandbox.num_visible,
            min_visible=c.sandbox.min_visible,
            transfer=c.sandbox.transfer,
        )
    return play.Suite(
        source,
        tuple(c.eval.scenarios),
        c.eval.seed,
        c.eval.num_tasks,
        c.eval.strength,
        c.eval.split,
        c.sandbox.max_turns,
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
        "seed": tasks.seed,
        "split": tasks.split,
        "strength": tasks.strength,
        "max_turns": tasks.max_turns,
        "tasks": tasks.digest(),
        "grading_version": evaluate.GRADING_VERSION,
    }
    with contextlib.closing(play.Log(log_file, about)) as log:
        total = len(tasks.names) * c.eval.num_tasks
        over = {key for key, kept in log.done.items() if kept["answered"]}

        async def run() -> None:
            async with speaker.connect() as found:
                playing = play.play(tasks.episodes(over), found, concurrency, budget)
                async with contextlib.aclosing(playing):
                    async for outcome in playing:
                        log.add(outcome)
                        bar.update(outcome["answered"])

        with tqdm(total=total, initial=_wanted(tasks, over), unit="episode") as bar:
            try:
                asyncio.run(run())
            except (RuntimeError, agents.Rejected) as error:
                raise RuntimeError(
                    f"{error}; {bar.n:.0f} of {total} episodes are in {log_file}, and "
                    "the same command goes on from there"
                ) from error
        rows = play.rows(log, tasks.names, tasks.num_tasks, tasks.strength, tasks.split)
    return {
        "suite": about["suite"],
        "policy": speaker.name,
        "checkpoint_step": 0,
        **speaker.about,
        "seed": tasks.seed,
        "num_tasks": tasks.num_tasks,
        "split": tasks.split,
        "temperature": c.eval.temperature,
        "grading_version": evaluate.GRADING_VERSION,
        "rows": rows,
    }


def request(text: str, temperature: float) -> dict[str, Any]:
    """More of the body of a request: the temperature, and what a flag says."""
    try:
        said = json.loads(text or "{}")
    except ValueError as error:
        raise BadUse(f"--request is no JSON: {error}") from None
    if not isinstance(said, dict):
        raise BadUse(f"--request is no JSON object: {text}")
    said = {"temperature": temperature} | said
    return {key: value for key, value in said.items() if value is not None}


def _wanted(tasks: play.Suite, over: set[tuple[str, int]]) -> int:
    return sum(n in tasks.names and i < tasks.num_tasks for n, i in over)
