"""Scripted agents that lack a skill, which show what skill a perturbation asks for.

    memoriser  makes the calls that it would have made before the perturbation, by the
               names that tools and arguments had then; it reads no document and no
               feedback
    reader     plans by the documents as they are, and reads no feedback
    retrier    does what the reader does, but repeats a call that returns an error
    refuser    refuses every task

Each acts as the expert would in a world that it believes in, where nothing ever fails,
and says in the real one what it would say there. A memoriser believes that tools are as
they were; a reader believes that all is as documented. All of them understand requests,
ask for what these leave out, and take values from results whatever their form, so that
entries which change nothing else do not affect them. After an error, memoriser and
reader have nothing to go on, and say nothing useful any more.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax import fast_compile, perturb
from openagent_jax.curriculum import draw
from openagent_jax.environments.world import World
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan
from openagent_jax.types import Action, Environment, Outcome, Tables, Task


class Solved(NamedTuple):
    """Which of the n tasks that a scenario changes are solved."""

    success: dict[str, Bool[np.ndarray, "n"]]  # by each agent of `AGENTS`
    phrasing: Int[np.ndarray, "n"]  # equal for tasks whose requests are worded alike


AGENTS = ("memoriser", "reader", "retrier", "refuser")
BLOCK = 128  # tasks that `successes` plays at once


def play(
    environment: Environment, tables: Tables, clean: Task, task: Task
) -> dict[str, Outcome]:
    """Play one task with each agent.

    Args:
      environment: the environment of the task.
      tables: its arrays.
      clean: the task before it was perturbed.
      task: the task.

    Returns:
      The outcome of each agent of `AGENTS`.
    """
    documented = partial(environment.documented, tables)
    as_told = documented(task)
    as_ever = documented(environment.remembered(tables, clean, task))
    blank, refuse = environment.blank(tables, task), environment.refuse(tables, task)

    def episode(agent: Int[Array, ""]) -> Outcome:
        memoriser, _, retrier, refuser = (agent == i for i in range(len(AGENTS)))
        believed = perturb.select(memoriser, as_ever, as_told)

        def turn(played, _):
            state, belief, lost = played
            plan = environment.expert(tables, believed, belief)
            action = _said(environment, tables, believed, task, plan)
            action = perturb.select(lost, blank, action)
            action = perturb.select(refuser, refuse, action)
            after, _ = environment.step(tables, task, state, action)
            ahead, _ = environment.step(tables, believed, belief, plan)
            failed = _errors(environment, tables, task, after)
            failed = failed > _errors(environment, tables, task, state)
            belief = perturb.select(failed & retrier, belief, ahead)
            return (after, belief, lost | (failed & ~retrier)), None

        start = environment.reset(tables, task), environment.reset(tables, believed)
        (state, *_), _ = jax.lax.scan(
            turn, (*start, jnp.bool_(False)), length=environment.sizes.max_turns
        )
        return environment.outcome(tables, task, state)

    # All agents in one program, which compiles faster than one for each.
    found = jax.vmap(episode)(jnp.arange(len(AGENTS)))
    return {
        name: jax.tree.map(lambda x, i=i: x[i], found) for i, name in enumerate(AGENTS)
    }


def successes(
    world: World,
    scenarios: Sequence[str],
    *,
    split: str,
    seed: int,
    num_tasks: int,
) -> dict[str, Solved]:
    """Play tasks that perturbations change.

    Args:
      world: the world of the tasks.
      scenarios: names of perturbations; they are played at strength 1.
      split: the split of the tasks.
      seed: the seed of the tasks.
      num_tasks: the number of tasks of each scenario, before those are left out that
        it does not change.

    Returns:
      Which tasks the agents solve, by scenario; clean tasks are one too.
    """
    found: dict[str, Solved] = {}
    for name, played in _played(world, scenarios, split, seed, num_tasks):
        changed, success, phrasing = played
        success = {agent: x[changed] for agent, x in success.items()}
        found[name] = Solved(success, phrasing[changed])
    return found


def bounds(
    world: World,
    scenarios: Sequence[str],
    *,
    split: str,
    seed: int,
    num_tasks: int,
    strength: float,
    repeats: int = 1,
) -> dict[str, dict[str, Bool[np.ndarray, "n"]]]:
    """Play the tasks that an evaluation draws; see `evaluation.bounds.successes`.

    Returns:
      By agent and scenario, which tasks it solves. The refuser is left out, because
      `evaluation.bounds` has it.
    """
    agents, num = [x for x in AGENTS if x != "refuser"], num_tasks * repeats
    found: dict[str, dict[str, np.ndarray]] = {agent: {} for agent in agents}
    all_played = _played(world, scenarios, split, seed, num, strength, repeats)
    for name, (_, success, _) in all_played:
        for agent in agents:
            found[agent][name] = success[agent]
    return found


def _played(
    world: World,
    scenarios: Sequence[str],
    split: str,
    seed: int,
    num: int,
    strength: float = 1.0,
    repeats: int = 1,
) -> Iterator[tuple[str, Any]]:
    """Yield each scenario, with `(changed, success by agent, phrasing)` of episodes."""
    drawn = draw.make_batch(world.environment, tuple(scenarios), split, BLOCK, repeats)
    play_block, key = player(world.environment), jax.random.key(seed)

    def block(scenario: int, start: int):
        return drawn(world.tables, scenario, key, start, jnp.float32(strength))[0]

    starts = range(0, num, BLOCK)
    clean = [block(0, start).task for start in starts]
    for i, name in enumerate((draw.CLEAN, *scenarios)):
        blocks = []
        for start, believed in zip(starts, clean, strict=True):
            edited = block(i, start)
            played, phrasing = play_block(world.tables, believed, edited.task)
            success = {agent: one.success for agent, one in played.items()}
            blocks.append(jax.device_get((edited.changed, success, phrasing)))
        yield name, jax.tree.map(lambda *x: np.concatenate(x)[:num], *blocks)


@cache  # evaluations of one environment share compiled programs
def player(environment: Environment) -> Callable[..., tuple[dict[str, Outcome], Array]]:
    """Return `play` for a batch of tasks, compiled; it returns their phrasing too."""

    def one(tables: Tables, clean: Task, task: Task):
        phrasing = environment.phrasing(tables, clean)
        return play(environment, tables, clean, task), phrasing

    return fast_compile.jit(jax.vmap(one, (None, 0, 0)))


def _said(
    environment: Environment, tables: Tables, believed: Task, task: Task, plan: Action
) -> Action:
    """Return what the words for an action in one task mean in another one."""
    pieces = environment.utterance(tables, believed, plan)
    tokens, _, num = lexicons.write(
        tables.lexicon, pieces, environment.sizes.action_tokens
    )
    # The last token ends the reply, and is not part of it.
    text, num_bytes = reply_scan.detokenize(tables.lexicon, tokens, num - 1)
    return environment.parse(tables, task, text, num_bytes)


def _errors(environment: Environment, tables: Tables, task: Task, state) -> Array:
    return environment.outcome(tables, task, state).num_errors
