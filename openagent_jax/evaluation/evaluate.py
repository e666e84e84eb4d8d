"""Evaluate a policy on the same tasks, clean and under every perturbation.

Task i of every scenario comes from the same key, so differences are paired. All
scenarios run in one compiled program, which takes the perturbation as a traced index.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax import perturb, report
from openagent_jax.curriculum import draw
from openagent_jax.curriculum.draw import CLEAN
from openagent_jax.environments.world import World
from openagent_jax.models.decoding import Sampling
from openagent_jax.rollout import rollout
from openagent_jax.types import Outcome, Params, Policy, Trajectory

GRADING_VERSION = "3"  # raise it when a change affects the scores of the same agent


class Recording(NamedTuple):
    """What is recorded of episodes to show them to people; leading axis B."""

    trajectory: Trajectory
    shown: Int[Array, "B T P"]  # what `Transcriber.observe` returns for each turn
    tokens: Int[Array, "B M"]
    sampled: Bool[Array, "B M"]  # mask of the tokens that the policy sampled


class Played(NamedTuple):
    """A batch of episodes; leading axis B."""

    outcome: Outcome
    changed: Bool[Array, "B"]  # whether the scenario changed the task
    overflow: Bool[Array, "B"]  # whether a prompt or a result did not fit
    cut: Bool[Array, "B"]  # whether there was no room for another turn
    recording: Recording | None


def make_player(
    policy: Policy,
    world: World,
    scenarios: Sequence[str],
    batch_size: int,
    split: str = "test",
    temperature: float = 0.0,
    record: bool = False,
) -> Callable[..., Played]:
    """Return a compiled function that plays a batch of episodes.

    Args:
      policy: the policy that plays.
      world: the world of the tasks.
      scenarios: names of perturbations.
      batch_size: B, the number of episodes of a call.
      split: the split of the tasks.
      temperature: the temperature at which tokens are sampled; 0 means greedily.
      record: whether to return a `Recording` of the episodes.

    Returns:
      `(tables, params, scenario, key, start, strength) -> Played`. `scenario` is 0 for
      clean tasks and i for the i-th perturbation; `start` is the index of the first
      task.

    Raises:
      ValueError: the environment has no perturbation of a name.
    """
    environment = world.environment
    one = draw.make_draw(environment, scenarios, split)

    def play(tables, params: Params, scenario, key, start, strength) -> Played:
        keys = draw.task_keys(key, start, batch_size)
        edited = jax.vmap(one, (None, 0, 0, None, None))(
            tables, keys, draw.edit_keys(keys), strength, scenario
        )
        played = rollout(
            policy,
            environment,
            tables,
            params,
            keys,
            edited.task,
            Sampling(temperature),
        )
        episode, recording = played.trajectory, None
        outcome = jax.vmap(environment.outcome, (None, 0, 0))(
            tables, episode.task, episode.state
        )
        if record:
            observe = jax.vmap(world.transcriber.observe, (None, 0))
            shown = jax.vmap(observe)(episode.task, episode.timestep.observation)
            # The agent reads nothing after the end of an episode.
            over = episode.timestep.terminated | episode.timestep.truncated
            shown = jnp.where(over[..., None], 0, shown)
            recording = Recording(episode, shown, played.tokens, played.sampled)
        return Played(outcome, edited.changed, played.overflow, played.cut, recording)

    return jax.jit(play)


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
    keep: Callable[[str, int, Played], None] = lambda name, start, played: None,
) -> dict[str, report.Episodes]:
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
      keep: called with each batch: `(scenario, index of the first task, played)`.

    Returns:
      The episodes of each scenario, in NumPy.

    Raises:
      ValueError: a prompt or a result is longer than the sizes of an episode allow.
    """
    key, scored = jax.random.key(seed), {}
    for i, name in enumerate((CLEAN, *scenarios)):
        batches = []
        for start in range(0, num_tasks, batch_size):
            played = play(
                world.tables,
                params,
                jnp.int32(i),
                key,
                jnp.int32(start),
                jnp.float32(strength),
            )
            keep(name, start, played)
            batches.append(jax.device_get(played._replace(recording=None)))
        episodes = jax.tree.map(lambda *x: np.concatenate(x)[:num_tasks], *batches)
        if episodes.overflow.any():
            raise ValueError(
                f"scenario {name}: a prompt or a result is longer than its room; "
                "raise sandbox.prompt_tokens or sandbox.result_tokens"
            )
        outcome = episodes.outcome._asdict()
        # Part of the episodes, but not of a report.
        del outcome["num_questions"], outcome["num_needless_questions"]
        scored[name] = report.Episodes(
            **outcome,
            changed=episodes.changed,
            answered=np.ones_like(episodes.changed),
        )
    return scored


def rows(
    entries: Mapping[str, perturb.Entry],
    scored: Mapping[str, report.Episodes],
    strength: float,
    split: str,
) -> list[dict[str, Any]]:
    """Return the rows of a report.

    Args:
      entries: the catalogue of the perturbations, by name.
      scored: the episodes of each scenario, the clean ones first.
      strength: the strength of the perturbations.
      split: the split of the tasks.
    """
    clean = scored[CLEAN]
    return [
        report.row(
            entries.get(name),
            0.0 if name == CLEAN else strength,
            episodes,
            clean,
            split,
        )
        for name, episodes in scored.items()
    ]
