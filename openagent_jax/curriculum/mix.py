"""PAFT: a share of the tasks of each batch is perturbed before the algorithm sees them.

Perturbation-Augmented Fine-Tuning is described by Lv et al., arXiv 2607.01084, who
report a share alpha = 0.3 for SFT. In SFT the expert demonstrates the perturbed tasks;
in reinforcement learning the policy plays them.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import perturb
from openagent_jax.curriculum import draw
from openagent_jax.types import (
    Curriculum,
    Environment,
    Local,
    Tables,
    Task,
    undivided,
)


def ramp(strength: float, num_steps: int) -> Callable[[jax.Array], jax.Array | float]:
    """Return the strength as a function of the step.

    It grows linearly from 0 over `num_steps` steps; if that is 0, it is constant.

    >>> ramp(0.5, 0)(3)
    0.5
    >>> float(ramp(0.5, 10)(jnp.int32(4)))
    0.20000000298023224
    """
    if num_steps == 0:
        return lambda step: strength
    return lambda step: strength * jnp.minimum(step / num_steps, 1)


def check(alpha: float, paired: bool, num_tasks: int = 2) -> None:
    """Check the share of perturbed tasks.

    Raises:
      ValueError: `alpha` is not in [0, 1]; or tasks are paired, and it is not 0.5 or
        the number of tasks is odd.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"paft.alpha={alpha} is not between 0 and 1")
    if paired and alpha != 0.5:
        raise ValueError(
            f"paft.alpha={alpha} does not go with paft.paired=True, where one task of "
            "each pair is perturbed: set paft.alpha=0.5"
        )
    if paired and num_tasks % 2:
        raise ValueError(
            f"paft.paired=True, but {num_tasks} tasks are not pairs; set "
            "train.batch_size to an even number"
        )


def is_perturbed(
    index: np.ndarray, alpha: float, start: float | jax.Array = 0.0
) -> Any:
    """Tell which indices are perturbed: a share `alpha`, evenly spread.

    This is systematic sampling: with a `start` drawn uniformly from [0, 1), each index
    is perturbed with probability `alpha`, and any n consecutive ones contain alpha n
    perturbed ones, rounded up or down.

    Args:
      index: indices of tasks, or of blocks of tasks, counted from 0.
      alpha: the share.
      start: in [0, 1); it may be traced. A dataset has no batches and no random start.

    >>> is_perturbed(np.arange(5), 0.4).tolist()
    [False, False, True, False, True]
    >>> is_perturbed(np.arange(5), 0.4, start=0.7).tolist()
    [True, False, False, True, False]
    """

    def before(n):
        """Return how many of the first n indices are perturbed."""
        share = np.round(alpha * n, 6)  # 0.3 * 10 is 3
        whole = np.floor(share)
        return whole + (share - whole + start >= 1)

    return before(index + 1) > before(index)


def chosen(
    environment: perturb.HasCatalogue,
    names: Sequence[str],
    left_out: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the perturbations that PAFT draws from.

    Args:
      environment: an environment, or the spec of one.
      names: what a config names; see `draw.expand`.
      left_out: perturbations, tiers or shifts that are not trained on. Whatever applies
        one of them is left out too, and unsolvable entries are left out together with
        their counterparts. Each remaining name in turn is drawn in place of one that is
        left out. Unsolvable entries and counterparts are the exception: their share
        stays as it is.

    Raises:
      ValueError: a name is unknown or cannot be trained on, or is left out although it
        is not trained on, or none is left.
    """
    mixed = draw.expand(environment, names, "training_mix")
    made = perturb.entries(environment, mixed)
    for one in made.values():
        if one.unseen:
            raise ValueError(
                f'"{one.name}" cannot be trained on, since its tasks are of another '
                f"{'domain' if one.unseen == 'domain' else 'kind of entities'}, which "
                "evaluation holds out; remove it"
            )
    if not left_out:
        return mixed
    gone = _kinds_of(environment, left_out)
    for name in left_out:
        if mixed and not _kinds_of(environment, [name]) & perturb.kinds(
            environment, mixed
        ):
            raise ValueError(f'"{name}" is left out, but is not trained on; remove it')
    stays = [x for x in mixed if not perturb.kinds_of(made[x]) & gone]
    catalogue = perturb.catalogue(environment)
    paired = {x.name for x in catalogue.values() if not x.solvable}
    paired |= {catalogue[x].counterpart for x in paired}
    kept = dict.fromkeys(x for x in stays if x not in paired)
    in_turn = itertools.cycle(kept or [""])
    found: list[str] = []
    for i, name in enumerate(mixed):
        if name in stays:
            found.append(name)
        elif name not in paired:
            found.append(next(in_turn))
        elif rest := [x for x in made[name].includes if x not in gone]:
            found.append(rest[mixed[:i].count(name) % len(rest)])
    found = [name for name in found if name]
    if mixed and not found:
        raise ValueError(
            f"nothing is left without {', '.join(left_out)}; leave out less"
        )
    return tuple(found)


def _kinds_of(environment: perturb.HasCatalogue, names: Sequence[str]) -> set[str]:
    """Return the kinds of perturbations, tiers and shifts, and their counterparts."""
    every = draw.expand(environment, names, draw.ALL)
    entries = perturb.catalogue(environment).values()
    pairs = [{x.name, x.counterpart} for x in entries if x.counterpart]
    met = {x for name in every for x in perturb.part_names(name)}
    for pair in pairs:
        if met & pair:
            met |= pair
    found = perturb.kinds(environment, sorted(met))
    for pair in pairs:
        if found & pair:
            found |= pair
    return found


def paft(
    inner: Curriculum,
    environment: Environment,
    names: Sequence[str],
    alpha: float,
    strength: Callable[[jax.Array], jax.Array | float],
    paired: bool = False,
    block: int = 1,
    local: Local = undivided,
) -> Curriculum:
    """Return a curriculum that perturbs a share of the tasks of another one.

    Whether a task is perturbed depends on the key and on the index of the task, and
    tasks stay in their place, so that nothing moves between the devices of a mesh.

    Args:
      inner: the curriculum that samples the tasks.
      environment: the environment of the tasks.
      names: names of perturbations, one of which is drawn for each perturbed task; a
        name that occurs twice is drawn twice as often.
      alpha: share of the tasks of a batch that are perturbed, which are evenly spread
        (see `is_perturbed`). If that is not a whole number of tasks, each batch rounds
        it up or down at random, so that it holds on average.
      strength: returns the strength of the perturbations in a step.
      paired: whether each clean task is followed by its perturbed version; `alpha` must
        be 0.5 then.
      block: number of consecutive tasks that are either all perturbed or all clean. An
        algorithm that trains on one task of each block then trains on a share `alpha`
        of perturbed tasks, whichever it takes. Pairs need no blocks.
      local: lets each device perturb its own tasks.

    Raises:
      ValueError: see `check`; or the environment has no perturbation of some name.
    """
    check(alpha, paired)
    edit = draw.make_edit(environment, names, "train")

    @local
    def edited(tables: Tables, rows) -> Task:
        keys, tasks, strengths = rows
        new = jax.vmap(edit, (None, 0, 0, 0))(tables, keys, tasks, strengths).task
        if not paired:
            return new
        return jax.tree.map(
            lambda x, y: jnp.stack([x, y], axis=1).reshape(2 * len(x), *x.shape[1:]),
            tasks,
            new,
        )

    def sample(
        state,
        tables: Tables,
        task_key: jax.Array,
        edit_key: jax.Array,
        step: jax.Array,
        num_tasks: int,
    ) -> Task:
        check(alpha, paired, num_tasks)
        num = num_tasks // 2 if paired else num_tasks
        tasks = inner.sample(state, tables, task_key, edit_key, step, num)
        now = jnp.asarray(strength(step), jnp.float32)
        strengths = jnp.full(num, now)
        if not paired:
            # No task has this index, so none is perturbed with this key.
            start = jax.random.uniform(jax.random.fold_in(edit_key, num))
            chosen = is_perturbed(np.arange(num) // block, alpha, start)
            strengths = jnp.where(chosen, now, 0)  # 0 leaves a task as it is
        keys = jax.vmap(jax.random.fold_in, (None, 0))(edit_key, jnp.arange(num))
        return edited(tables, (keys, tasks, strengths))

    return inner._replace(sample=sample)
