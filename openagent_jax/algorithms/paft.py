"""PAFT, Perturbation-Augmented Fine-Tuning, as a combinator over an algorithm.

A share `alpha` of each batch is perturbed before the inner algorithm sees it
(Lv et al., arXiv 2607.01084, report alpha = 0.3 for SFT). For SFT the oracle
demonstrates the perturbed tasks anew; for RL they are rolled out.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from openagent_jax.types import Algorithm, Batch, Metrics, Task, TrainState

# Folded into the key. The inner algorithm has the key itself, so that it does the same
# on clean tasks; it may split it, but not that often.
PERTURB = 0x50414654


def ramp(strength: float, num_steps: int) -> Callable[[jax.Array], jax.Array | float]:
    """A strength that is reached after so many steps, from 0 on; at once for 0."""
    if num_steps == 0:
        return lambda step: strength
    return lambda step: strength * jnp.minimum(step / num_steps, 1)


def check(alpha: float, twins: bool) -> None:
    """
    Raises:
      ValueError: `alpha` is not in [0, 1], or not the share of twins.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"paft.alpha={alpha} is not between 0 and 1")
    if twins and alpha != 0.5:
        raise ValueError(f"paft.alpha={alpha}, but of twins one is perturbed: 0.5")


def paft(
    inner: Algorithm,
    perturbation,
    alpha: float,
    strength: Callable[[jax.Array], jax.Array | float],
    twins: bool = False,
) -> Algorithm:
    """The same algorithm on a mix of clean and perturbed tasks.

    Args:
      inner: what learns.
      perturbation: `(key, task, strength) -> task`, on one task.
      alpha: share of a batch that is perturbed. Where it is no whole number of tasks,
        chance decides in each batch between the two next to it.
      strength: of the perturbation, by the step.
      twins: each clean task is followed by itself, perturbed; `alpha` is 0.5 then.

    Raises:
      ValueError: as `check`.
    """
    check(alpha, twins)

    def make_batch(
        state: TrainState, key: jax.Array, tasks: Task
    ) -> tuple[Batch, Metrics]:
        num_tasks = tasks.world.shape[0]
        share = round(alpha * num_tasks, 6)  # 0.3 * 10 is 3
        most = math.ceil(share)
        perturb_key = jax.random.fold_in(key, PERTURB)
        index = jnp.arange(most)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(perturb_key, index)
        some = jax.tree.map(lambda x: x[:most], tasks)
        # Perturbed at no strength is not perturbed at all.
        last = jax.random.uniform(jax.random.fold_in(perturb_key, most))
        now = jnp.asarray(strength(state.step), jnp.float32)
        strengths = jnp.where(share - index > last, now, 0)
        noisy = jax.vmap(perturbation)(keys, some, strengths)

        def mix(new, x):
            if not twins:
                return x.at[:most].set(new)
            return jnp.stack([x[:most], new], axis=1).reshape(x.shape)

        return inner.make_batch(state, key, jax.tree.map(mix, noisy, tasks))

    return Algorithm(make_batch, inner.loss_fn)
