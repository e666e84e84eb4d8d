"""GRPO: the baseline of an episode is the mean reward of episodes of the same task.

See Shao et al., arXiv 2402.03300. `losses.policy_gradient` lists the later variants.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from openagent_jax import advantages, losses
from openagent_jax.algorithms.policy_gradient import Learner
from openagent_jax.types import Algorithm, Batch, Metrics, Tables, Task, TrainState


class Groups(NamedTuple):
    """How episodes are sampled and compared (static)."""

    size: int = 8  # number of episodes of each task
    oversample: int = 1  # number of groups that are sampled for each one that is kept
    std: str = "none"  # argument `over` of `advantages.scale_by_std`
    paired: bool = False  # a task and its perturbed version after it form one group
    # Number of consecutive groups that are kept or left out together: 2 if tasks are
    # paired, but groups are not.
    unit: int = 1


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
        raise ValueError(
            f"grpo.paired=True, but {num_tasks} tasks are not pairs; set "
            "train.batch_size to an even number"
        )


def grpo(learner: Learner, groups: Groups) -> Algorithm:
    """Return GRPO as an `Algorithm`.

    Each task is played `groups.size` times, and episodes that earn more than the mean
    of their group are reinforced. Of each `groups.oversample` consecutive groups one is
    kept, if possible one whose rewards differ. If the curriculum perturbs either all of
    these groups or none (`mix.paft`, argument `block`), the share of perturbed tasks
    among those that are trained on is that of the curriculum.

    A group that is kept although its rewards are all equal has advantages of 0. Whether
    its tokens count in the divisor and in the KL penalty depends on the loss; see
    `losses.LOSSES`.

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
        # Episodes that are not trained on do not move the baseline of the others.
        reward = _without(reward, played.overflow.reshape(-1, size))
        advantage = advantages.group_relative(reward)
        useful = advantages.has_variance(advantage)
        advantage = advantages.scale_by_std(advantage, reward, groups.std)
        advantage = jnp.where(useful[:, None], advantage, 0)  # no rounding errors
        best = advantages.best_in_blocks(
            jnp.sum(useful.reshape(-1, groups.unit), axis=1), groups.oversample
        )

        def keep(x):
            """Keep the best part of each block of an array of groups or episodes."""
            num = len(x) // groups.oversample
            # Arrays may be empty, so that no size can be inferred.
            each = num // len(best)
            blocks = x.reshape(len(best), groups.oversample, each, *x.shape[1:])
            chosen = jax.vmap(lambda block, i: block[i])(blocks, best)
            return chosen.reshape(num, *x.shape[1:])

        chosen = jax.tree.map(keep, played)
        kept, advantage = keep(useful), keep(advantage)
        mask = chosen.sampled
        if losses.LOSSES[learner.surrogate.loss].filters:
            mask = mask & jnp.repeat(kept, size)[:, None]
        by_token = jnp.where(mask, advantage.reshape(-1, 1), 0)
        batch, checked = learner.batch(params, chosen, mask, by_token)
        return batch, metrics | checked | {
            "reward_std": jnp.mean(jnp.std(reward, axis=1)),
            "frac_reward_zero_std": 1 - jnp.mean(useful),
        }

    return Algorithm(make_batch, learner.loss)


def _without(
    reward: Float[Array, "G N"], left_out: Bool[Array, "G N"]
) -> Float[Array, "G N"]:
    """Replace rewards that are left out by the mean of the others of their group."""
    num = jnp.sum(~left_out, axis=1, keepdims=True)
    mean = jnp.sum(jnp.where(left_out, 0, reward), axis=1, keepdims=True)
    return jnp.where(left_out, mean / jnp.maximum(num, 1), reward)
