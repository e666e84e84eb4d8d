"""GRPO: the baseline of an episode is the mean reward of episodes of the same task.

See Shao et al., arXiv 2402.03300. `losses.policy_gradient` lists the later variants.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from openagent_jax import advantages
from openagent_jax.algorithms.policy_gradient import Learner
from openagent_jax.types import Algorithm, Batch, Metrics, Tables, Task, TrainState


class Groups(NamedTuple):
    """How episodes are sampled and compared (static)."""

    size: int = 8  # number of episodes of each task
    oversample: int = 1  # number of groups that are sampled for each one that is kept
    std: str = "none"  # argument `over` of `advantages.scale_by_std`
    paired: bool = False  # a task and its perturbed version after it form one group


def check(groups: Groups, num_tasks: int = 2) -> None:
    """Check that episodes can be compared within groups.

    Raises:
      ValueError: groups have fewer than two episodes, or tasks are paired and
        `num_tasks` is odd.
    """
    if groups.size < 2:
        raise ValueError(
            f"grpo.size={groups.size}: an episode has to be compared with another one; "
            "set it to 2 or more"
        )
    if groups.paired and num_tasks % 2:
        raise ValueError(f"grpo.paired=True, but {num_tasks} tasks are not pairs")


def grpo(learner: Learner, groups: Groups) -> Algorithm:
    """Return GRPO as an `Algorithm`.

    Each task is played `groups.size` times, and episodes that earn more than the mean
    of their group are reinforced. One in `groups.oversample` groups is kept; groups
    whose rewards differ are kept first. A group that is kept although its rewards are
    all equal has no loss tokens.

    Args:
      learner: plays episodes and computes batches and losses.
      groups: how episodes are sampled and compared.

    Raises:
      ValueError: see `check`.
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
        # `decode_steps` has no batch axis and is not used below: `rows` replaces it.
        chosen = jax.tree.map(lambda x: x[rows], played._replace(decode_steps=rows))
        mask = chosen.sampled & jnp.repeat(useful[kept], size)[:, None]
        by_token = jnp.where(mask, advantage[kept].reshape(-1, 1), 0)
        batch, checked = learner.batch(params, chosen, mask, by_token)
        return batch, metrics | checked | {
            "reward_std": jnp.mean(jnp.std(reward, axis=1)),
            "frac_reward_zero_std": 1 - jnp.mean(useful),
        }

    return Algorithm(make_batch, learner.loss)
