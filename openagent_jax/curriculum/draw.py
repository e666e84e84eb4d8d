"""Tasks drawn and perturbed: the one place that does it.

A task comes from a `task_key`, and its perturbation from an `edit_key`. Callers choose
the keys: equal task keys give equal tasks, so that clean and perturbed are paired.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax import perturb
from openagent_jax.types import Curriculum, Environment, Tables, Task

CLEAN = "clean"  # the scenario that leaves tasks as they are
DEFAULT, ALL = "default", "all"  # what a config may say instead of names
GROUPS = (DEFAULT, ALL, *perturb.TIERS)
EDIT = 1  # folded into the key of a task for the key of its perturbation


class Edited(NamedTuple):
    """A task, and what was done to it."""

    task: Task
    scenario: Int[Array, ""]  # 0: clean; i: the i-th of the names
    changed: Bool[Array, ""]  # some perturbations find nothing to change in some tasks


# (tables, edit_key, task, strength, scenario) -> Edited
Edit = Callable[..., Edited]


def expand(
    environment: perturb.HasCatalogue, names: Sequence[str], usual: str
) -> tuple[str, ...]:
    """Names of perturbations, where "default", "all" or a tier may stand for several.

    A tier stands for those of its entries that "default" names.

    Args:
      environment: an environment, or the spec of one.
      names: as a config has them.
      usual: the field of the environment that "default" stands for, `suite` or
        `training_mix`.

    Raises:
      ValueError: the environment has no entry of a name.
    """
    found: list[str] = []
    for name in names:
        if name == DEFAULT:
            found += getattr(environment, usual)
        elif name == ALL:
            found += perturb.catalogue(environment)
        elif name in perturb.TIERS:
            usual_names = getattr(environment, usual)
            entries = perturb.catalogue(environment)
            found += [x for x in usual_names if entries[x].tier == name]
        else:
            found.append(perturb.entry(environment, name).name)
    return tuple(found)


def make_edit(environment: Environment, names: Sequence[str], split: str) -> Edit:
    """`(tables, edit_key, task, strength, scenario) -> Edited`.

    `scenario` is a traced index, 0 for clean and i for the i-th name; None takes one of
    the names by the key, each with the same probability.

    Args:
      environment: of the tasks.
      names: of perturbations of its catalogue.
      split: whose surface forms they draw from.

    Raises:
      ValueError: the environment has no entry of a name.
    """
    for name in names:
        perturb.entry(environment, name)

    def edit(
        tables: Tables,
        edit_key: jax.Array,
        task: Task,
        strength: jax.Array,
        scenario: Int[Array, ""] | None = None,
    ) -> Edited:
        edits = [perturb.make(environment, tables, name, split) for name in names]
        if scenario is None:
            choice, key = perturb.choose(edit_key, len(names))
            new = jax.lax.switch(choice, edits, key, task, strength)
            changed = ~perturb.equal(new, task)
            return Edited(new, jnp.where(changed, 1 + choice, 0), changed)
        edits = [perturb.identity, *edits]
        new = jax.lax.switch(scenario, edits, edit_key, task, strength)
        changed = ~perturb.equal(new, task) | (scenario == 0)
        return Edited(new, scenario, changed)

    return edit


def make_draw(
    environment: Environment, names: Sequence[str], split: str
) -> Callable[..., Edited]:
    """`(tables, task_key, edit_key, strength, scenario) -> Edited`, as `make_edit`."""
    edit = make_edit(environment, names, split)

    def draw(tables, task_key, edit_key, strength, scenario=None) -> Edited:
        task = environment.sample(tables, task_key, split)
        return edit(tables, edit_key, task, strength, scenario)

    return draw


def task_keys(key: jax.Array, start: jax.Array | int, num: int) -> jax.Array:
    """The keys of tasks `start`, `start + 1` and so on: a function of the index alone,
    the same for each scenario, agent and layout over devices."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, start + jnp.arange(num))


def edit_keys(keys: jax.Array) -> jax.Array:
    """The keys by which an evaluation perturbs the tasks of these keys."""
    return jax.vmap(jax.random.fold_in, (0, None))(keys, EDIT)


def clean(environment: Environment, split: str = "train") -> Curriculum:
    """Fresh tasks in every step, as they are drawn."""

    def sample(state, tables, task_key, edit_key, step, num_tasks) -> Task:
        del state, edit_key, step
        keys = task_keys(task_key, 0, num_tasks)
        return jax.vmap(lambda key: environment.sample(tables, key, split))(keys)

    return Curriculum(
        init=lambda: (), sample=sample, update=lambda state, tasks, metrics: state
    )
