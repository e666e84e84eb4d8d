"""Evaluation: the same tasks, clean and under every perturbation.

Task i of every scenario comes from the same key, so differences are paired. All
scenarios run in one compiled program: which perturbation is a traced index.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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

GRADING_VERSION = "3"  # raise it when the same agent gets other scores


class Recording(NamedTuple):
    """What is kept of episodes, to be shown to people; leading axis B."""

    trajectory: Trajectory
    shown: Int[Array, "B T P"]  # pieces of what the agent is shown, for a transcriber
    tokens: Int[Array, "B M"]
    sampled: Bool[Array, "B M"]  # the policy's own tokens


class Played(NamedTuple):
    """A batch of episodes; leading axis B."""

    outcome: Outcome
    changed: Bool[Array, "B"]  # the scenario has changed the task
    overflow: Bool[Array, "B"]  # a prompt or a result did not fit
    cut: Bool[Array, "B"]  # there was no room for another turn
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
    """`(tables, params, scenario, key, start, strength) -> Played`, compiled.

    `scenario` counts from 0, the clean one; `start` is the index of the first task.
    At temperature 0 it is played greedily.

    Args:
      policy: that plays.
      world: what it plays in.
      scenarios: names of perturbations.
      batch_size: episodes of a call.
      split: of the tasks.
      temperature: at which tokens are sampled.
      record: whether the episodes themselves are returned.

    Raises:
      ValueError: an unknown scenario.
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
            # Behind the end of an episode nothing is read any more.
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
      play: of `make_player`.
      world: that it was made for.
      params: of the policy.
      scenarios: names of perturbations, as `play` was made with.
      seed: of the tasks.
      num_tasks: of each scenario.
      batch_size: as `play` was made with.
      strength: of the perturbations.
      keep: is given each batch of episodes: `(scenario, index of the first, played)`.

    Returns:
      The episodes of each scenario, in NumPy.

    Raises:
      ValueError: a prompt or a result does not fit the sizes of an episode.
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
        del outcome["num_questions"]  # kept with the episodes, and in no row
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
    """Rows of a report.

    Args:
      entries: the catalogue that the scenarios are of, by name.
      scored: the episodes of each scenario, the clean ones first.
      strength: of the perturbations.
      split: of the tasks.
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


def take(tree: Any, index: int) -> Any:
    """Element `index` of a batch."""
    return jax.tree.map(lambda x: x[index], tree)


def elements(tree: Any) -> Iterator[Any]:
    """The elements of a batch in NumPy, one by one."""
    tree = jax.device_get(tree)
    for index in range(len(jax.tree.leaves(tree)[0])):
        yield take(tree, index)
