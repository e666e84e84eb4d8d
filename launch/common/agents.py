"""Evaluate an external agent, which takes messages, on the tasks of `config.eval`."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from tqdm import tqdm

from launch.common import (
    checks,
    errors,
    lineage,
    model_folders,
    scenarios,
    tokenizer_files,
)
from launch.common.config import Config
from launch.common.errors import UsageError
from openagent_jax import perturb, report
from openagent_jax.agents import agents, play
from openagent_jax.agents import cost as costs
from openagent_jax.agents import log as logs
from openagent_jax.agents.cost import Expected, Prices
from openagent_jax.curriculum import draw
from openagent_jax.environments import registry
from openagent_jax.environments.world import Settings, Spelling, World
from openagent_jax.evaluation import evaluate
from openagent_jax.suites import bfcl, scenario_suites
from openagent_jax.suites.tasks import Suite
from openagent_jax.text import messages

LOG = "episodes.jsonl"
FIXED = {"messages", "model", "n", "stream", "tools"}  # --request may not set these


class AgentSpec(NamedTuple):
    """An agent that is not connected yet."""

    name: str
    about: dict[str, Any]  # its entries in the log and in the report
    # Connects the agent. It is called within the event loop that plays the episodes.
    connect: Callable[[], contextlib.AbstractAsyncContextManager[agents.Agent]]


def endpoint(
    base_url: str | None, model: str | None, key_variable: str, **more: Any
) -> AgentSpec:
    """Return the agent behind an endpoint of OpenAI's protocol.

    Args:
      base_url: address of the endpoint, including /v1.
      model: name of the model at the endpoint.
      key_variable: environment variable that holds the key.
      **more: further fields of `agents.Endpoint`.

    Raises:
      UsageError: an argument is missing or wrong, or the endpoint needs a key.
    """
    if not base_url or not model:
        raise UsageError(
            "--agent=openai needs --base_url and --model, such as "
            "--base_url=http://127.0.0.1:8000/v1 --model=NAME"
        )
    if not base_url.startswith(("http://", "https://")):
        raise UsageError(
            f"--base_url={base_url} is not an address; it begins with http://"
        )
    key = os.environ.get(key_variable, "").strip()
    with errors.blame(f"--base_url or {key_variable}"):
        target = agents.Endpoint(base_url, model, key, **more)
    if not key and not target.is_local:
        raise UsageError(f"{target.place} needs a key; put it in {key_variable}")
    with errors.needs_extra("--agent=openai", "agents"):
        import openai  # noqa: F401
    about = {"agent": "openai", "model": model, "base_url": target.place}
    about |= {"request": target.request}
    return AgentSpec(model, about, partial(agents.endpoint, target))


def function(name: str, key_variable: str) -> AgentSpec:
    """Return the agent `python:module:function`.

    Raises:
      UsageError: there is no such function.
    """
    kind, _, name = name.partition(":")
    if kind != "python":
        raise UsageError(f"--agent={kind} is neither openai nor python:module:function")
    with errors.blame("--agent"):
        agent = agents.function(name, os.environ.get(key_variable, "").strip())
    about = {"agent": "python", "model": name}
    return AgentSpec(name, about, lambda: contextlib.nullcontext(agent))


def message_world(sandbox: Settings, domain: str) -> World:
    """Return the environment of a domain for agents that read messages, not tokens."""
    # A tokenizer is needed to make it, but no agent sees its tokens.
    tokenizer = tokenizer_files.tokenizer(model_folders.BUILTIN / "nano")
    max_sizes = {"sandbox.max_turns": sandbox.max_turns}
    return registry.make(sandbox.of(domain), Spelling(tokenizer, max_sizes=max_sizes))


class Tasks(Protocol):
    """Episodes for agents to play."""

    @property
    def names(self) -> tuple[str, ...]: ...  # of scenarios, clean first
    @property
    def num_tasks(self) -> int: ...  # of each scenario
    @property
    def repeats(self) -> int: ...  # episodes of each task; see `draw`
    @property
    def entries(self) -> Mapping[str, perturb.Entry]: ...  # of the scenarios
    def episodes(self, done: Collection[tuple[str, int]]) -> Iterable[play.Episode]: ...
    def about(self) -> dict[str, Any]: ...  # see `draw.described`
    def digest(self) -> str: ...
    def survey(self) -> dict[tuple[str, int], Expected]: ...  # of every episode
    def bounds(self) -> dict[str, dict[str, np.ndarray]]: ...  # see `bounds.successes`
    def domains(self) -> np.ndarray | None: ...  # see `evaluate.Scored`


def suite(c: Config) -> Tasks:
    """Return the episodes that `config.eval` describes.

    Raises:
      UsageError: the config is wrong, or the domain cannot be used.
    """
    if c.eval.domain.startswith(bfcl.PREFIX):
        return _bfcl(c)
    checks.check(c)
    domain = c.eval_domain
    with errors.blame(f"the suite {domain}"):
        world = message_world(c.sandbox, domain)
    if world.summary:
        print(f"{domain}: {world.summary}")
    with errors.blame("eval.split"):  # a log may have no task of this split
        world.check(c.eval.split)
    chosen = scenarios.choose(
        world.environment, c.eval.scenarios, draw.ALL, registry.left_out(c.suite)
    )
    return Suite(
        world,
        chosen.names,
        c.eval.seed,
        draw.num_tasks(world.environment, world.tables, c.eval.split, c.eval.num_tasks),
        c.eval.strength,
        c.eval.split,
        c.eval.repeats,
        chosen.about,
        c.eval.simple_agents,
    )


def _bfcl(c: Config) -> bfcl.Suite:
    """Return a category of BFCL, with those of the scenarios that apply to it."""
    name = c.eval.domain.removeprefix(bfcl.PREFIX)
    checks.check(c.replace({"eval.domain": ""}))  # everything but the domain
    if c.eval.repeats > 1:
        raise UsageError(f"eval.repeats={c.eval.repeats}: {c.eval.domain} needs 1")
    if c.eval.simple_agents:
        raise UsageError(f"eval.simple_agents: they cannot play {c.eval.domain}")
    with errors.blame(f"the suite {c.eval.domain}"):
        items = bfcl.load(name)[: c.eval.num_tasks]
    named, about = scenarios.choose(bfcl.SPEC, c.eval.scenarios, draw.ALL)
    played = tuple(name for name in named if bfcl.applies(name))
    is_suite = scenario_suites.HASH in about
    for name in named:
        # Entries that do not apply are not played; what is fixed has to be whole.
        fixed = is_suite or len(perturb.part_names(name)) > 1 or not played
        if name not in played and fixed:
            raise UsageError(
                f'eval.scenarios: "{name}" does not apply to {c.eval.domain}; take '
                f"some of {', '.join(bfcl.SCENARIOS)}, or compositions of them"
            )
    about = about if is_suite else {}
    return bfcl.Suite(
        name, items, played, c.eval.seed, c.eval.strength, c.eval.split, about
    )


def score(
    c: Config,
    log_file: Path,
    spec: AgentSpec,
    concurrency: int,
    budget: play.Budget,
    system_prompt: str | None = None,
) -> dict:
    """Play the episodes of an agent, and return its report.

    Args:
      c: the config.
      log_file: the log; answered episodes in it are not played again.
      spec: the agent.
      concurrency: episodes that are played at once.
      budget: limits on calls, tokens and money, and the prices of tokens.
      system_prompt: replaces the built-in one; None keeps it.

    Raises:
      RuntimeError: the evaluation did not finish; the log has the finished episodes.
    """
    tasks = suite(c)
    about = spec.about | {
        "suite": c.suite,
        "seed": c.eval.seed,
        "split": c.eval.split,
        "strength": c.eval.strength,
        "max_turns": c.sandbox.max_turns,
        "tasks": tasks.digest(),
        "grading_version": evaluate.GRADING_VERSION,
    }
    # In a log, a key that is missing or null stands for the default.
    more: dict[str, Any] = {"system_prompt": system_prompt}
    more["repeats"] = tasks.repeats if tasks.repeats > 1 else None
    about |= more
    survey = tasks.survey()
    # A task that a scenario leaves as it is need not be played and paid for again.
    reused = {key for key, needs in survey.items() if not needs.changed}
    changed = {name for name, _ in survey.keys() - reused}
    scenarios.check_compositions(tasks.entries, changed, f"the tasks of {c.suite}")
    with contextlib.closing(logs.Log(log_file, about)) as log:
        finished = {key for key, kept in log.done.items() if kept["answered"]}
        done = (finished | reused) & survey.keys()
        total, num_finished = len(survey) - len(reused), len(done - reused)
        left = [needs for key, needs in survey.items() if key not in done]
        if left:
            print(_estimated(left, budget.prices, system_prompt))

        async def run() -> None:
            async with spec.connect() as agent:
                episodes = _prompted(tasks.episodes(done), system_prompt)
                playing = play.play(episodes, agent, concurrency, budget)
                async with contextlib.aclosing(playing):
                    async for outcome in playing:
                        log.add(outcome)
                        bar.update(outcome["answered"])
            reasons = [kept["reason"] for kept in log.done.values()]
            if reasons and not any(kept["answered"] for kept in log.done.values()):
                raise RuntimeError(f"no episode had an answer: {reasons[-1]}")

        with tqdm(total=total, initial=num_finished, unit="episode") as bar:
            try:
                asyncio.run(run())
            except (RuntimeError, agents.Rejected) as error:
                remedy = "run the same command again to resume"
                if isinstance(error, agents.Rejected):
                    remedy = "correct this, then run the command again to resume"
                raise RuntimeError(
                    f"{error}; {bar.n:.0f} of {total} episodes are in {log_file}; "
                    f"{remedy}"
                ) from error
        num_episodes = tasks.num_tasks * tasks.repeats
        scored = logs.scored(log, tasks.names, num_episodes, reused)
        results = evaluate.results(
            tasks.entries,
            evaluate.Scored(scored, tasks.bounds(), tasks.domains()),
            c.eval.strength,
            lineage.claims(c, None),
            tasks.repeats,
        )
        num = min(c.eval.keep, num_episodes)
        logs.keep(log, log_file.parent, tasks.names, num, reused)
        cost = log.cost.summary(budget.prices) | {"reused": len(reused)}
        reasons = log.unanswered()
    for name, row in zip(tasks.names, results["rows"], strict=True):
        if num := sum(name == scenario for scenario, _ in reused):
            row["reused"] = num
    sent = spec.about.get("request", {"temperature": c.eval.temperature})
    return {
        "suite": about["suite"],
        "policy": spec.name,
        "checkpoint_step": 0,
        **spec.about,
        "seed": c.eval.seed,
        "num_tasks": tasks.num_tasks,
        **{key: value for key, value in more.items() if value is not None},
        "split": c.eval.split,
        "temperature": sent.get("temperature", "unknown"),
        "grading_version": evaluate.GRADING_VERSION,
        **tasks.about(),
        "cost": cost,
        **({"unanswered_reasons": reasons} if reasons else {}),
        **results,
    }


def request(text: str, temperature: float) -> dict[str, Any]:
    """Return the extra fields of a request body: the temperature, and `text`.

    Args:
      text: a JSON object, or "". A value of null removes a field.
      temperature: sampling temperature, unless `text` sets it.

    Raises:
      UsageError: it is not a JSON object, or sets what cannot be set.

    >>> request('{"seed": 5, "temperature": null}', temperature=0.0)
    {'seed': 5}
    """
    try:
        fields = json.loads(text or "{}")
        json.dumps(fields, allow_nan=False)
    except ValueError as error:
        raise UsageError(f"--request is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError(f"--request is not a JSON object: {text}")
    if fixed := sorted(FIXED & fields.keys()):
        raise UsageError(
            f"--request: {', '.join(fixed)} cannot be set there; remove it"
        )
    fields = {"temperature": temperature} | fields
    return {key: value for key, value in fields.items() if value is not None}


def system_prompt(text: str | None) -> str | None:
    """Return the system prompt that a flag names: a file, or the text itself.

    A text without white space is taken as the name of a file.

    Raises:
      UsageError: the file cannot be read.

    >>> system_prompt("Use the tools."), system_prompt("")
    ('Use the tools.', '')
    """
    if not text or text.split() != [text]:
        return text
    try:
        return Path(text).read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(
            f"--system_prompt={text}: {reason}; give a file, or a text of several words"
        ) from None


def _estimated(left: list[Expected], prices: Prices, system_prompt: str | None) -> str:
    """Return a line with the estimated cost of the episodes that are left."""
    more = 0 if system_prompt is None else len(system_prompt) - len(messages.SYSTEM)
    found = costs.estimate(left, prices, more)
    return f"about {report.spent(found)}, if played as the oracle does"


def _prompted(
    episodes: Iterable[play.Episode], text: str | None
) -> Iterable[play.Episode]:
    """Yield episodes under another system prompt; None keeps theirs."""
    for episode in episodes:
        begin = episode.begin if text is None else partial(_begin, episode, text)
        yield episode._replace(begin=begin)


def _begin(episode: play.Episode, text: str) -> play.Turns:
    """Begin an episode under a system prompt; "" leaves it without one."""
    made = episode.begin()
    rest = [message for message in made.messages if message["role"] != "system"]
    system = [{"role": "system", "content": text}] if text else []
    made.messages = [*system, *rest]
    return made
