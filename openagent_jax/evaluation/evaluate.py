"""Evaluate a policy on the same tasks, clean and under every perturbation.

Task i of every scenario comes from the same key, so differences are paired. All
scenarios run in the same compiled programs, which take the perturbation as a traced
index: one draws the tasks, one plays them, and others grade and describe the episodes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import fast_compile, hashing, perturb, report
from openagent_jax.curriculum import draw
from openagent_jax.curriculum.draw import CLEAN
from openagent_jax.environments.world import World
from openagent_jax.evaluation import bounds
from openagent_jax.evaluation.claims import Claims
from openagent_jax.rollout import Rollout, rollout
from openagent_jax.types import (
    Environment,
    Local,
    Outcome,
    Params,
    Policy,
    Trajectory,
    undivided,
)

GRADING_VERSION = "11"  # raise it when a change affects the scores of the same agent


class Recording(NamedTuple):
    """What is recorded of episodes to show them to people; leading axis B."""

    trajectory: Trajectory
    shown: Int[Array, "B T P"]  # what `Transcriber.observe` returns for each turn
    tokens: Int[Array, "B M"]
    valid: Bool[Array, "B M"]  # tokens that are not padding
    sampled: Bool[Array, "B M"]  # tokens that the policy sampled
    log_prob: Float[Array, "B M"]  # log-prob at sampling time; 0 for other tokens


class Played(NamedTuple):
    """A batch of episodes; leading axis B."""

    outcome: Outcome
    bounds: dict[str, Outcome] | None  # of each scripted agent; see `bounds.play`
    task: Int[Array, "B"]  # equal for equal tasks
    phrasing: Int[Array, "B"]  # equal for tasks whose requests are worded alike
    changed: Bool[Array, "B"]  # whether the scenario changed the task
    overflow: Bool[Array, "B"]  # whether a prompt or a result did not fit
    cut: Bool[Array, "B"]  # whether there was no room for another turn
    read: Int[Array, "B"]  # tokens that the policy was shown, each counted once
    written: Int[Array, "B"]  # tokens that it sampled
    recording: Recording | None
    # Index into `World.domains` of the clean tasks of a mixture; else None.
    domain: Int[Array, "B"] | None = None


class Scored(NamedTuple):
    """The outcomes of an evaluation, in NumPy."""

    episodes: dict[str, report.Episodes]  # by scenario, the clean one first
    # Success of each scripted agent on the n tasks of each scenario; empty if they did
    # not play.
    bounds: dict[str, dict[str, Bool[np.ndarray, "n"]]]
    # The domain of each task, by name; None unless the tasks are of a mixture.
    domains: np.ndarray | None = None
    cost: report.Json | None = None  # the sums over all episodes, if they are known


def make_roll(
    policy: Policy,
    environment: Environment,
    temperature: float = 0.0,
    local: Local = undivided,
    num_rows: int = 0,
) -> Any:
    """Return a compiled function `((tables, params), (keys, tasks)) -> Rollout`.

    Args:
      policy: the policy that plays.
      environment: the environment that it plays in.
      temperature: the temperature at which tokens are sampled; 0 means greedily.
      local: lets each device play its own episodes.
      num_rows: the number of episodes that are played at once; see `rollout.rollout`.
    """

    @jax.jit
    @local
    def roll(shared, rows) -> Rollout:
        (tables, params), (keys, tasks) = shared, rows
        return rollout(
            policy,
            environment,
            tables,
            params,
            keys,
            tasks,
            temperature,
            num_rows=num_rows,
        )

    return roll


def make_player(
    policy: Policy,
    world: World,
    scenarios: Sequence[str],
    batch_size: int,
    split: str = "test",
    temperature: float = 0.0,
    record: bool = False,
    repeats: int = 1,
    local: Local = undivided,
    num_rows: int = 0,
) -> Callable[..., Played]:
    """Return a function that plays a batch of episodes. It compiles once.

    Args:
      policy: the policy that plays.
      world: the world of the tasks.
      scenarios: names of perturbations.
      batch_size: B, the number of episodes of a call.
      split: the split of the tasks.
      temperature: the temperature at which tokens are sampled; 0 means greedily.
      record: whether to return a `Recording` of the episodes.
      repeats: the number of episodes of each task; see `draw`.
      local: lets each device play its own episodes.
      num_rows: the number of episodes that are played at once; see `rollout.rollout`.

    Returns:
      `(tables, params, scenario, key, start, strength, refused=None) -> Played`.
      `scenario` is 0 for clean tasks and i for the i-th perturbation; `start` is the
      number of the first episode. `refused` is what `bounds.fit` returned; without it,
      the scripted agents do not play.

    Raises:
      ValueError: the environment has no perturbation of a name.
    """
    environment, observe = world.environment, world.transcriber.observe
    names = tuple(scenarios)
    # Only the rollout is worth compiling for speed.
    roll = make_roll(policy, environment, temperature, local, num_rows)
    tasks = draw.make_batch(environment, names, split, batch_size, repeats)
    scripted = bounds.player(environment)

    @fast_compile.jit
    def describe(tables, task):
        phrasing = jax.vmap(environment.phrasing, (None, 0))(tables, task)
        domain = None
        if world.domains:
            domain = jax.vmap(environment.domain, (None, 0))(tables, task)
        return jax.vmap(hashing.fingerprint_of_tree)(task), phrasing, domain

    @fast_compile.jit
    def watch(tables, played: Rollout):
        """Return the outcomes of episodes, what a recording shows, and their tokens."""
        episode, written = played.trajectory, played.valid & played.sampled
        grade = jax.vmap(environment.outcome, (None, 0, 0))
        outcome, shown = grade(tables, episode.task, episode.state), None
        if record:
            each_turn = jax.vmap(jax.vmap(observe, (None, 0)))
            shown = each_turn(episode.task, episode.timestep.observation)
            # The agent reads nothing after the end of an episode.
            over = episode.timestep.terminated | episode.timestep.truncated
            shown = jnp.where(over[..., None], 0, shown)
        tokens = (played.valid & ~written, written)
        return outcome, shown, *(jnp.sum(x, axis=1, dtype=jnp.int32) for x in tokens)

    def play(
        tables, params: Params, scenario, key, start, strength, refused=None
    ) -> Played:
        edited, keys = tasks(tables, scenario, key, start, strength)
        played = roll((tables, params), (keys, edited.task))
        episode, recording = played.trajectory, None
        outcome, shown, read, written = watch(tables, played)
        if record:
            recording = Recording(
                episode,
                shown,
                played.tokens,
                played.valid,
                played.sampled,
                played.log_prob,
            )
        task, phrasing, domain = describe(tables, edited.task)
        return Played(
            outcome=outcome,
            bounds=None if refused is None else scripted(tables, edited.task, refused),
            task=task,
            phrasing=phrasing,
            changed=edited.changed,
            overflow=played.overflow,
            cut=played.cut,
            read=read,
            written=written,
            recording=recording,
            domain=domain,
        )

    return play


def evaluate(
    play: Callable[..., Played],
    world: World,
    params: Params,
    scenarios: Sequence[str],
    *,
    seed: int,
    num_tasks: int,
    batch_size: int,
    strength: float = 1.0,
    repeats: int = 1,
    refused: Int[np.ndarray, "R"] | None = None,
    keep: Callable[[str, int, Played], None] = lambda name, start, played: None,
    load: Callable[[str], Played | None] = lambda name: None,
    save: Callable[[str, Played], None] = lambda name, played: None,
) -> Scored:
    """Play every scenario, the clean one first.

    Args:
      play: the function that `make_player` returned.
      world: the world that `play` was made for.
      params: the parameters of the policy.
      scenarios: names of perturbations, the same as for `make_player`.
      seed: the seed of the tasks.
      num_tasks: the number of tasks of each scenario.
      batch_size: the same as for `make_player`.
      strength: the strength of the perturbations, in [0, 1].
      repeats: the same as for `make_player`.
      refused: what `bounds.fit` returned, if scripted agents are to play too.
      keep: called with each batch: `(scenario, number of its first episode, played)`.
      load: returns what `save` stored for a scenario; that scenario is then not played
        again.
      save: called with each scenario that was played, without recordings.

    Raises:
      ValueError: a prompt or a result is longer than the sizes of an episode allow.
    """
    key, num = jax.random.key(seed), num_tasks * repeats
    cost = {"episodes": 0, "prompt_tokens": 0, "completion_tokens": 0}
    scored = Scored({}, {}, cost=cost)
    for i, name in enumerate((CLEAN, *scenarios)):
        episodes: Any = load(name)  # with leaves in NumPy
        if episodes is None:
            batches = []
            for start in range(0, num, batch_size):
                played = play(
                    world.tables,
                    params,
                    jnp.int32(i),
                    key,
                    jnp.int32(start),
                    jnp.float32(strength),
                    refused,
                )
                keep(name, start, played)
                batches.append(jax.device_get(played._replace(recording=None)))
            episodes = jax.tree.map(lambda *x: np.concatenate(x)[:num], *batches)
            save(name, episodes)
        if episodes.overflow.any():
            raise ValueError(
                f"scenario {name}: a prompt or a result is longer than its room; "
                "raise sandbox.prompt_tokens or sandbox.result_tokens"
            )
        cost["episodes"] += num
        cost["prompt_tokens"] += int(episodes.read.sum())
        cost["completion_tokens"] += int(episodes.written.sum())
        outcome = episodes.outcome._asdict()
        del outcome["num_questions"]  # part of the episodes, but not of a report
        scored.episodes[name] = report.Episodes(
            **outcome,
            task=episodes.task,
            phrasing=episodes.phrasing,
            changed=episodes.changed,
            answered=np.ones_like(episodes.changed),
        )
        for agent in bounds.AGENTS if episodes.bounds else ():
            success = episodes.bounds[agent].success
            scored.bounds.setdefault(agent, {})[name] = success
        if name == CLEAN and episodes.domain is not None:
            names = np.array(world.domains)[episodes.domain]
            scored = scored._replace(domains=names)
    return scored


def results(
    entries: Mapping[str, perturb.Entry],
    scored: Scored,
    strength: float,
    claims: Claims,
    repeats: int = 1,
) -> report.Json:
    """Return the part of a report that depends on the episodes.

    Args:
      entries: the perturbations, by the names of their scenarios.
      scored: the outcomes.
      strength: the strength of the perturbations.
      claims: says what the rows claim.
      repeats: the number of episodes of each task.

    Returns:
      Its `rows`, a `glossary` of their perturbations, the `phrasings` of the clean
      tasks, the success of scripted agents (`bounds`, if they played) on the tasks that
      each row counts, and the `cost` of all episodes, if it is known. If the tasks are
      of several domains, `rows` and `bounds` are means in which each domain weighs the
      same, and `domains` is a list of what the tasks of each domain alone give, by
      name. A perturbed task belongs to the domain of its clean version.
    """
    domains = np.array([""] if scored.domains is None else scored.domains)
    names = list(dict.fromkeys(domains.tolist()))
    common = {"glossary": perturb.glossary(entries.values())}
    common |= {"cost": scored.cost} if scored.cost else {}
    if len(names) == 1:
        return common | _results(entries, scored, strength, claims, repeats)
    parts = []
    for name in names:
        some, of_one = _among(scored, domains == name), replace(claims, domains=(name,))
        made = _results(entries, some, strength, of_one, repeats)
        parts.append({"domain": name, **made})
    which = np.array([names.index(name) for name in domains.tolist()])
    made = _results(entries, scored, strength, claims, repeats, which)
    for i, row in enumerate(made["rows"]):
        theirs = [part["rows"][i] for part in parts]
        for key in (*report.RATES, "chain_length_ratio", "needless_questions"):
            row[key] = report.average(x[key] for x in theirs)
    return {**common, **made, "domains": parts}


def _among(scored: Scored, among: Bool[np.ndarray, "n"]) -> Scored:
    """Return the outcomes of some tasks."""
    episodes = {
        name: report.Episodes(**{key: x[among] for key, x in vars(one).items()})
        for name, one in scored.episodes.items()
    }
    success = {
        agent: {name: x[among] for name, x in of.items()}
        for agent, of in scored.bounds.items()
    }
    return Scored(episodes, success)


def _results(
    entries: Mapping[str, perturb.Entry],
    scored: Scored,
    strength: float,
    claims: Claims,
    repeats: int,
    domains: Int[np.ndarray, "n"] | None = None,
) -> report.Json:
    clean = scored.episodes[CLEAN]
    rows = [
        report.row(
            entries.get(name),
            0.0 if name == CLEAN else strength * perturb.split_strength(name)[1],
            episodes,
            clean,
            claims.of(entries.get(name)),
            repeats,
            domains,
        )
        for name, episodes in scored.episodes.items()
    ]
    phrasings = report.number(clean.phrasing)
    report.adjust(rows, phrasings)

    def mean(success: Bool[np.ndarray, "n"], row: report.Json) -> float:
        counted = report.counted(row)
        if domains is None:
            return float(success[counted].mean())
        return float(report.domain_weights(domains[counted])[0] @ success[counted])

    means = {
        agent: {
            name: mean(success[name], row)
            for name, row in zip(scored.episodes, rows, strict=True)
            if row["n"]
        }
        for agent, success in scored.bounds.items()
    }
    return {
        "phrasings": phrasings,
        **({"bounds": means} if means else {}),
        "rows": rows,
    }
