"""GRPO: a group of episodes of one task, each compared with the others.

Shao et al., arXiv 2402.03300; the losses that came after it are named in `losses.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from openagent_jax import advantages
from openagent_jax.algorithms.policy_gradient import Learner
from openagent_jax.types import Algorithm, Batch, Metrics, Task, TrainState


class Groups(NamedTuple):
    """How episodes are sampled and compared (static)."""

    size: int = 8  # episodes of a task
    oversample: int = 1  # groups sampled for each that is kept
    std: str = "none"  # of advantages.scale_by_std
    twins: bool = False  # a task and the next, its perturbed twin, are one group


def check(groups: Groups, num_tasks: int = 2) -> None:
    """
    Raises:
      ValueError: a group of one, or twins in a batch of an odd number of tasks.
    """
    if groups.size < 2:
        raise ValueError(
            f"grpo.size={groups.size}: one episode has none to be compared with; take "
            "2 or more"
        )
    if groups.twins and num_tasks % 2:
        raise ValueError(f"grpo.twins=True, but {num_tasks} tasks are no pairs")


def grpo(learner: Learner, groups: Groups) -> Algorithm:
    """Play each task `groups.size` times, and reinforce what did better than the rest.

    Of `oversample` times as many groups those are kept that differ in reward. Groups of
    no difference that are kept all the same have no loss tokens.

    Raises:
      ValueError: as `check`.
    """
    check(groups)
    size = groups.size * (2 if groups.twins else 1)

    def make_batch(
        state: TrainState, key: jax.Array, tasks: Task
    ) -> tuple[Batch, Metrics]:
        params = state.params
        played, reward, metrics = learner.play(params, key, tasks, groups.size)
        reward = jnp.sum(reward, axis=1).reshape(-1, size)
        advantage = advantages.group_relative(reward)
        useful = advantages.has_variance(advantage)
        advantage = advantages.scale_by_std(advantage, reward, groups.std)
        kept = advantages.best_groups(useful, len(useful) // groups.oversample)
        rows = (kept[:, None] * size + jnp.arange(size)[None]).reshape(-1)
        some = jax.tree.map(lambda x: x[rows], played._replace(decode_steps=rows))
        mask = some.sampled & jnp.repeat(useful[kept], size)[:, None]
        spread = jnp.where(mask, advantage[kept].reshape(-1, 1), 0)
        batch, checked = learner.batch(params, some, mask, spread)
        return batch, metrics | checked | {
            "reward_std": jnp.mean(jnp.std(reward, axis=1)),
            "frac_reward_zero_std": 1 - jnp.mean(useful),
        }

    return Algorithm(make_batch, learner.loss)
