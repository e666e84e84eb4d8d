"""Scripted agents whose success bounds that of any policy on the same tasks.

They act on the state of the sandbox rather than on tokens, so they are cheap:

    oracle     acts as the expert of the environment
    counting   refuses by counts alone, without reading
    refuser    refuses every task
    asker      asks one question, and then acts as the expert does

The counting agent decides at its first action whether to refuse, from
`Environment.counts` only: it refuses where most of the training tasks with these counts
could not be solved. Otherwise it acts as the expert does, except that it never refuses
because of what it has read: where the expert would refuse at once, it sends replies
that cannot be parsed until the episode ends. Where feedback calls for a refusal, it
refuses as the expert does. Only what a policy does better than the counting agent shows
that it reads.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax import fast_compile, hashing, perturb
from openagent_jax.curriculum import draw
from openagent_jax.environments.world import World
from openagent_jax.types import Action, Environment, Outcome, Tables, Task

AGENTS = ("oracle", "counting", "refuser", "asker")
NUM_TASKS = 2048  # training tasks that the counting agent learns from
SHARE = 0.7  # share of them that is perturbed, as in configs/paft.py
BLOCK = 64  # tasks that `successes` plays at once


def play(
    environment: Environment, tables: Tables, task: Task, refused: Int[Array, "R"]
) -> dict[str, Outcome]:
    """Play one task with each agent.

    Args:
      environment: the environment of the task.
      tables: its arrays.
      task: the task.
      refused: what `fit` returned.

    Returns:
      The outcome of each agent of `AGENTS`.
    """
    expert = partial(environment.expert, tables, task)
    blank, refuse, ask = (
        make(tables, task)
        for make in (environment.blank, environment.refuse, environment.ask)
    )
    start = environment.reset(tables, task)
    by_counting = jnp.any(_counts(environment, tables, task) == refused)

    def episode(agent: Int[Array, ""]) -> Outcome:
        oracle, counting, refuser, asker = (agent == i for i in range(len(AGENTS)))
        del oracle
        refuses = refuser | (counting & by_counting)

        def turn(played, number):
            state, by_reading = played
            tries = number < 0  # what the expert would do first; then all starts anew
            action = expert(state)
            action = _choose(counting & by_reading, blank, action)
            action = _choose(asker & (number == 0), ask, action)
            action = _choose(refuses & ~tries, refuse, action)
            state, _ = environment.step(tables, task, state, action)
            by_reading |= tries & environment.outcome(tables, task, state).refused
            return (perturb.select(tries, start, state), by_reading), None

        turns = jnp.arange(-1, environment.sizes.max_turns)
        (state, _), _ = jax.lax.scan(turn, (start, jnp.bool_(False)), turns)
        return environment.outcome(tables, task, state)

    # All agents in one program, which compiles faster than one for each.
    found = jax.vmap(episode)(jnp.arange(len(AGENTS)))
    return {
        name: jax.tree.map(lambda x, i=i: x[i], found) for i, name in enumerate(AGENTS)
    }


def fit(world: World, num_tasks: int = NUM_TASKS) -> Int[np.ndarray, "R"]:
    """Learn at which counts the counting agent refuses.

    It sees tasks of the training split, a share `SHARE` of which is perturbed by the
    training mix of the environment.

    Returns:
      Fingerprints of the counts, padded by -1 so that the shape rarely changes.
    """
    counts, solvable = jax.device_get(
        _training(world.environment, num_tasks)(world.tables, jax.random.key(0))
    )
    values, index = np.unique(counts, return_inverse=True)
    solved = np.bincount(index, solvable) / np.bincount(index)
    refused = values[solved < 0.5]
    size = 8
    while size < len(refused):
        size *= 2
    return np.pad(refused, (0, size - len(refused)), constant_values=-1)


def successes(
    world: World,
    scenarios: Sequence[str],
    *,
    split: str,
    seed: int,
    num_tasks: int,
    strength: float,
    repeats: int = 1,
) -> dict[str, dict[str, Bool[np.ndarray, "n"]]]:
    """Play the tasks that an evaluation draws, without a policy.

    Args:
      world: the world of the tasks.
      scenarios: names of perturbations; clean tasks are played too.
      split: the split of the tasks.
      seed: the seed of the tasks.
      num_tasks: the number of tasks of each scenario.
      strength: the strength of the perturbations, in [0, 1].
      repeats: the number of episodes of each task; see `draw`.

    Returns:
      By agent and scenario, which tasks it solves.
    """
    environment, num = world.environment, num_tasks * repeats
    draw_block = draw.make_batch(environment, tuple(scenarios), split, BLOCK, repeats)
    play_block = player(environment)
    refused, key = fit(world), jax.random.key(seed)
    found: dict[str, dict[str, np.ndarray]] = {agent: {} for agent in AGENTS}
    for i, name in enumerate((draw.CLEAN, *scenarios)):
        blocks = []
        for start in range(0, num, BLOCK):
            drawn, _ = draw_block(world.tables, i, key, start, jnp.float32(strength))
            played = play_block(world.tables, drawn.task, refused)
            blocks.append(jax.device_get(played))
        for agent in AGENTS:
            success = np.concatenate([outcome[agent].success for outcome in blocks])
            found[agent][name] = success[:num]
    return found


@cache  # evaluations of one environment share compiled programs
def player(environment: Environment) -> Callable[..., dict[str, Outcome]]:
    """Return `play` for a batch of tasks, compiled."""
    return fast_compile.jit(jax.vmap(partial(play, environment), (None, 0, None)))


@cache
def _training(environment: Environment, num_tasks: int) -> Callable:
    """Return a compiled function that draws tasks as PAFT does."""
    mix = environment.training_mix
    names = tuple(dict.fromkeys(mix))  # each is compiled once
    one = draw.make_draw(environment, names, "train")
    rate = SHARE if mix else 0.0
    odds = [1 - rate, *(rate * mix.count(name) / len(mix) for name in names)]
    # As many tasks of each kind as are expected.
    places = (np.arange(num_tasks) + 0.5) / num_tasks
    scenarios = np.searchsorted(np.cumsum(odds)[:-1], places)

    def of(tables, key, edit_key, scenario) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        task = one(tables, key, edit_key, jnp.float32(1), scenario).task
        proof = environment.certificate(tables, task)
        return _counts(environment, tables, task), proof.solvable

    @fast_compile.jit
    def every(tables, key):
        keys = draw.task_keys(key, 0, num_tasks)
        return jax.vmap(of, (None, 0, 0, 0))(
            tables, keys, draw.edit_keys(keys), jnp.asarray(scenarios)
        )

    return every


def _counts(environment: Environment, tables: Tables, task: Task) -> Int[Array, ""]:
    return hashing.fingerprint(environment.counts(tables, task))


def _choose(condition: Bool[Array, ""], new: Action, old: Action) -> Action:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
