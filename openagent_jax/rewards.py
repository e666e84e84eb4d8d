"""Rewards as data: what an episode earns is a weighted sum of components.

A component reads the policy's own actions and the state of the world, nothing else: not
what a tool has said, and not which perturbation was at work. That a task cannot be
solved is the oracle's word.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from openagent_jax import types
from openagent_jax.sandbox import environment, lexicon, oracle
from openagent_jax.types import State, Trajectory

COMPONENTS = {
    "outcome": "1 for the right answer to a task that can be solved",
    "refusal": "1 for refusing a task that cannot be solved",
    "abstain": "1 for refusing a task that can be solved",
    "wrong": "1 for a wrong answer",
    "effect": "1 for each change of the world that was not asked for",
    "format": "1 for each action that could not be read",
    "step": "1 for each action",
    "detour": "1 for each call more than the fewest that solve the task",
    "progress": "the share of the steps of the goal that an action does",
}


def by_turn(
    lexicon: lexicon.Lexicon, episode: Trajectory, max_turns: int
) -> dict[str, Float[Array, "T"]]:
    """What each action of one episode earns, by component, before any weight.

    The episode is replayed from its actions. One that was cut has no answer, and so
    neither the reward of one nor a fine.
    """
    task = episode.task
    begin = environment.reset(lexicon, task)

    def act(state: State, turn):
        action, valid = turn
        new, _ = environment.step(lexicon, task, state, action, max_turns)
        new = jax.tree.map(lambda a, b: jnp.where(valid, a, b), new, state)
        return new, (state, new)

    _, (before, after) = jax.lax.scan(act, begin, (episode.action, episode.valid))
    kind, valid = episode.action.kind, episode.valid
    answers, refuses = kind == types.ANSWER, kind == types.REFUSE
    solvable = begin.solvable
    num_steps = jnp.maximum(jnp.sum(task.goal.tool >= 0), 1)
    done = (after.done & ~before.done) & (task.goal.tool >= 0)[None]
    # Without a solution there is no fewest: no call is one too many.
    fewest = jnp.where(solvable, oracle.fewest_calls(task), max_turns)
    found = {
        "outcome": answers & after.success & solvable,
        "refusal": refuses & ~solvable,
        "abstain": refuses & solvable,
        "wrong": answers & ~after.success,
        "effect": after.wrong_effects - before.wrong_effects,
        "format": kind == types.MALFORMED,
        "step": valid,
        "detour": (after.num_calls > fewest) & (after.num_calls > before.num_calls),
        "progress": jnp.sum(done, axis=1) / num_steps,
    }
    return {
        name: jnp.where(valid, found[name], 0).astype(jnp.float32)
        for name in COMPONENTS
    }


def total(
    earned: dict[str, Float[Array, "*any"]], weights: dict[str, float]
) -> Float[Array, "*any"]:
    """The weighted sum; a component without a weight counts nothing."""
    check(weights)
    parts = [weight * earned[name] for name, weight in weights.items()]
    return jnp.sum(jnp.stack(parts), axis=0)


def check(weights: dict[str, float]) -> None:
    """
    Raises:
      ValueError: there is no weight, or one of no component, or no finite number.
    """
    if not weights:
        raise ValueError("reward: no component has a weight; set reward.outcome")
    for name, weight in weights.items():
        if name not in COMPONENTS:
            known = ", ".join(COMPONENTS)
            raise ValueError(f'reward "{name}" is not one of {known}')
        if not abs(weight) < float("inf"):
            raise ValueError(f"reward.{name}={weight} is not a finite number")
