"""Evaluation: the same tasks, clean and under every perturbation.

Task i of every scenario comes from the same key, so differences are paired. All
scenarios run in one compiled program: which perturbation is a traced index.
"""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import perturb, report
from openagent_jax.rollout import Rollout, Sampling, Sizes, rollout
from openagent_jax.sandbox import oracle
from openagent_jax.types import CALL, REFUSE, Params, Policy, Task
from openagent_jax.worlds import Worlds

CLEAN = "clean"
GRADING_VERSION = "3"  # raise it when the same agent gets other scores


def make_draw(
    worlds: Worlds, scenarios: Sequence[str], split: str = "test"
) -> Callable[..., tuple[Task, jax.Array]]:
    """`(scenario, key, strength) -> (task, whether the scenario changed it)`.

    `scenario` counts from 0, the clean one.

    Raises:
      ValueError: an unknown scenario.
    """
    edits = [perturb.identity]
    if scenarios:
        pools = worlds.pools.get(split)
        if pools is None:
            raise ValueError("random worlds have no perturbations: eval.scenarios=()")
        edits += [perturb.make(name, pools) for name in scenarios]

    def draw(scenario, key, strength) -> tuple[Task, jax.Array]:
        task = worlds.sample(key, split)
        edit_key = jax.random.fold_in(key, 1)
        new = jax.lax.switch(scenario, edits, edit_key, task, strength)
        return new, ~perturb.equal(new, task) | (scenario == 0)

    return draw


def task_keys(key: jax.Array, start: jax.Array | int, num: int) -> jax.Array:
    """The keys of tasks `start` and so on: the same for each scenario and agent."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, start + jnp.arange(num))


def make_player(
    policy: Policy,
    worlds: Worlds,
    scenarios: Sequence[str],
    sizes: Sizes,
    batch_size: int,
    split: str = "test",
    temperature: float = 0.0,
) -> Callable[..., dict[str, jax.Array]]:
    """`(params, scenario, key, start, strength) -> one batch of episodes`.

    `scenario` counts from 0, the clean one; `start` is the index of the first task.
    At temperature 0 it is played greedily.

    Raises:
      ValueError: an unknown scenario.
    """
    draw = make_draw(worlds, scenarios, split)

    def play(params: Params, scenario, key, start, strength):
        keys = task_keys(key, start, batch_size)
        tasks, changed = jax.vmap(draw, (None, 0, None))(scenario, keys, strength)
        played = rollout(
            policy, worlds.lexicon, params, keys, tasks, sizes, Sampling(temperature)
        )
        return _grade(played, tasks) | {"changed": changed}

    return jax.jit(play)


def _grade(played: Rollout, tasks: Task) -> dict[str, jax.Array]:
    episode = played.trajectory
    said = episode.action.kind
    refused = jnp.any((said == REFUSE) & episode.valid, axis=1)
    called = jnp.any((said == CALL) & episode.valid, axis=1)
    return {
        "success": episode.state.success,
        "solvable": episode.state.solvable,
        "refused": refused,
        "called": called,
        "num_calls": episode.state.num_calls,
        "num_errors": episode.state.num_errors,
        "fewest_calls": jax.vmap(oracle.fewest_calls)(tasks),
        "answered": jnp.ones_like(refused),
        "overflow": played.overflow,
    }


def evaluate(
    play: Callable[..., dict[str, jax.Array]],
    params: Params,
    scenarios: Sequence[str],
    *,
    seed: int,
    num_tasks: int,
    batch_size: int,
    strength: float = 1.0,
    split: str = "test",
) -> list[dict]:
    """Rows of a report, the clean one first.

    Raises:
      ValueError: a prompt or a result does not fit the sizes of an episode.
    """
    key, scored = jax.random.key(seed), {}
    for i, name in enumerate((CLEAN, *scenarios)):
        batches = [
            play(params, jnp.int32(i), key, jnp.int32(start), jnp.float32(strength))
            for start in range(0, num_tasks, batch_size)
        ]
        episodes = {
            field: np.concatenate([np.asarray(b[field]) for b in batches])[:num_tasks]
            for field in batches[0]
        }
        if episodes.pop("overflow").any():
            raise ValueError(
                f"scenario {name}: a prompt or a result is longer than its room; "
                "raise sandbox.prompt_tokens or sandbox.result_tokens"
            )
        episodes.pop("called")
        scored[name] = report.Episodes(**episodes)
    return rows(scored, strength, split)


def rows(
    scored: Mapping[str, report.Episodes], strength: float, split: str
) -> list[dict]:
    """Rows of a report.

    Args:
      scored: the episodes of each scenario, the clean ones first.
      strength: of the perturbations.
      split: of the tasks.
    """
    clean = scored[CLEAN]
    return [
        report.row(
            perturb.CATALOGUE.get(name),
            0.0 if name == CLEAN else strength,
            episodes,
            clean,
            split,
        )
        for name, episodes in scored.items()
    ]
