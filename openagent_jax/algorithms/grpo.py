"""GRPO: each episode is compared with others of the same task.

Shao et al., arXiv 2402.03300. The losses that followed it are listed in `losses.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from openagent_jax import advantages
from openagent_jax.algorithms.policy_gradient import Learner
from openagent_jax.types import Algorithm, Batch, Metrics, Tables, Task, TrainState


class Groups(NamedTuple):
    """How episodes are sampled and compared (static)."""

    size: int = 8  # episodes of a task
    oversample: int = 1  # groups that are sampled for each one that is kept
    std: str = "none"  # what advantages are divided by; see advantages.scale_by_std
    paired: bool = False  # a task and the next, its perturbed twin, are one group


def check(groups: Groups, num_tasks: int = 2) -> None:
    """
    Raises:
      ValueError: a group of one, or pairs in a batch of an odd number of tasks.
    """
    if groups.size < 2:
        raise ValueError(
            f"grpo.size={groups.size}: an episode has to be compared with another one; "
            "set it to 2 or more"
        )
    if groups.paired and num_tasks % 2:
        raise ValueError(f"grpo.paired=True, but {num_tasks} tasks are not pairs")


def grpo(learner: Learner, groups: Groups) -> Algorithm:
    """Play each task `groups.size` times, and reinforce the episodes that earned more
    than the mean of their group.

    Of `oversample` times as many groups, those whose rewards differ are kept. A group
    without any difference that has to be kept has no loss tokens.

    Args:
      learner: plays, and computes batch and loss.
      groups: how episodes are sampled and compared.

    Raises:
      ValueError: as `check`.
    """
    check(groups)
    size = groups.size * (2 if groups.paired else 1)

    def make_batch(
        state: TrainState, tables: Tables, key: jax.Array, tasks: Task
    ) -> tuple[Batch, Metrics]:
        params = state.params
        played, reward, metrics = learner.play(params, tables, key, tasks, groups.size)
        reward = jnp.sum(reward, axis=1).reshape(-1, size)
        advantage = advantages.group_relative(reward)
        useful = advantages.has_variance(advantage)
        advantage = advantages.scale_by_std(advantage, reward, groups.std)
        kept = advantages.best_groups(useful, len(useful) // groups.oversample)
        rows = (kept[:, None] * size + jnp.arange(size)[None]).reshape(-1)
        chosen = jax.tree.map(lambda x: x[rows], played._replace(decode_steps=rows))
        mask = chosen.sampled & jnp.repeat(useful[kept], size)[:, None]
        by_token = jnp.where(mask, advantage[kept].reshape(-1, 1), 0)
        batch, checked = learner.batch(params, chosen, mask, by_token)
        return batch, metrics | checked | {
            "reward_std": jnp.mean(jnp.std(reward, axis=1)),
            "frac_reward_zero_std": 1 - jnp.mean(useful),
        }

    return Algorithm(make_batch, learner.loss)
