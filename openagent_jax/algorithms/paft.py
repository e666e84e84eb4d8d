"""PAFT, Perturbation-Augmented Fine-Tuning, as a combinator over an algorithm.

A share `alpha` of each batch is perturbed before the inner algorithm sees it
(Lv et al., arXiv 2607.01084, report alpha = 0.3 for SFT). For SFT the oracle
demonstrates the perturbed tasks anew; for RL they are rolled out.
"""

import math

import jax
import jax.numpy as jnp

from openagent_jax.types import Algorithm, Batch, Params, Task

# Folded into the key. The inner algorithm has the key itself, so that it does the same
# on clean tasks; it may split it, but not that often.
PERTURB = 0x50414654


def paft(inner: Algorithm, perturbation, alpha: float, strength: float) -> Algorithm:
    """The same algorithm on a mix of clean and perturbed tasks.

    Args:
      inner: what learns.
      perturbation: `(key, task, strength) -> task`, on one task.
      alpha: share of a batch that is perturbed. Where it is no whole number of tasks,
        chance decides in each batch between the two next to it.
      strength: of the perturbation.

    Raises:
      ValueError: `alpha` is not in [0, 1].
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"paft.alpha={alpha} is not between 0 and 1")

    def make_batch(params: Params, key: jax.Array, tasks: Task) -> Batch:
        share = round(alpha * tasks.world.shape[0], 6)  # 0.3 * 10 is 3
        most = math.ceil(share)
        perturb_key = jax.random.fold_in(key, PERTURB)
        index = jnp.arange(most)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(perturb_key, index)
        some = jax.tree.map(lambda x: x[:most], tasks)
        # Perturbed at no strength is not perturbed at all.
        last = jax.random.uniform(jax.random.fold_in(perturb_key, most))
        strengths = jnp.where(share - index > last, jnp.float32(strength), 0)
        some = jax.vmap(perturbation)(keys, some, strengths)
        mixed = jax.tree.map(lambda new, x: x.at[:most].set(new), some, tasks)
        return inner.make_batch(params, key, mixed)

    return Algorithm(make_batch, inner.loss_fn)
