"""Sample tasks and perturb them; training, data and evaluation all do it here.

A task is a function of its `task_key`, and its perturbation a function of an
`edit_key`. Callers choose the keys. Equal task keys give equal tasks, so that clean and
perturbed versions of a task are paired.

The episodes of an evaluation are numbered. With R repeats of each task, episodes i R to
i R + R - 1 are of task i, each perturbed anew. If an environment has finitely many
tasks (such as the conversations of a log), different numbers are different tasks.
"""

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax import fast_compile, perturb
from openagent_jax.types import (
    Curriculum,
    Environment,
    Local,
    Tables,
    Task,
    undivided,
)

CLEAN = "clean"  # the scenario that leaves tasks as they are
DEFAULT, ALL = "default", "all"  # stand for several perturbations in a config
PARTS = (*perturb.TIERS, *perturb.SHIFTS)
GROUPS = (DEFAULT, ALL, *PARTS)
EDIT = 1  # folded into the key of a task, gives the key of its perturbation
PLAY = 2  # folded into one of these, gives the key of an episode
# Folded into the root key of a run, gives that of tasks that are repeated. No step has
# this number.
TASKS = 2**32 - 3


class Edited(NamedTuple):
    """A task that may have been perturbed."""

    task: Task
    scenario: Int[Array, ""]  # 0: clean; i: the i-th perturbation, counted from 1
    # False if a perturbation found nothing to change; True where clean was asked for.
    changed: Bool[Array, ""]


# (tables, edit_key, task, strength, scenario) -> Edited
Edit = Callable[..., Edited]


def expand(
    environment: perturb.HasCatalogue,
    names: Sequence[str],
    default: str,
    exclude: Collection[str] = (),
) -> tuple[str, ...]:
    """Return names of perturbations, with "default", "all", tiers and shifts expanded.

    A tier or a shift stands for the default perturbations that belong to it.
    Compositions and strengths are kept, and spelled in one way.

    Args:
      environment: an environment, or the spec of one.
      names: the names in a config.
      default: what "default" stands for: `suite` or `training_mix`, fields of the
        environment, or "all", the whole catalogue.
      exclude: perturbations that are left out unless they are named themselves.

    Raises:
      ValueError: the environment has no perturbation of some name, a composition is
        impossible, or a strength is not from 0 to 1.
    """
    entries, found = perturb.catalogue(environment), list[str]()
    defaults = tuple(entries) if default == ALL else getattr(environment, default)
    defaults = [x for x in defaults if x not in exclude]
    for name in names:
        if name == DEFAULT:
            found += defaults
        elif name == ALL:
            found += [x for x in entries if x not in exclude]
        elif name in PARTS:
            of = [(entries[x].tier, entries[x].shift) for x in defaults]
            found += [
                x for x, groups in zip(defaults, of, strict=True) if name in groups
            ]
        else:
            perturb.entry(environment, name)  # raises if it is unknown
            plain, share = perturb.split_strength(name)
            found.append(plain if share == 1 else f"{plain}@{share:g}")
    return tuple(found)


def scenario_set(
    environment: perturb.HasCatalogue,
    names: Sequence[str],
    exclude: Collection[str] = (),
) -> str:
    """Return what a choice of perturbations is, for the headings of a report.

    Args:
      environment: an environment, or the spec of one.
      names: names of perturbations.
      exclude: perturbations that do not belong to the catalogue and the suite here.

    Returns:
      "catalogue", "suite", or "chosen" for any other choice.
    """
    if {*names} == {*perturb.catalogue(environment)} - {*exclude}:
        return "catalogue"
    return "suite" if {*names} == {*environment.suite} - {*exclude} else "chosen"


def described(
    environment: perturb.HasCatalogue,
    names: Sequence[str],
    exclude: Collection[str] = (),
) -> dict[str, Any]:
    """Return what a report says of a choice of perturbations.

    Args:
      environment: an environment, or the spec of one.
      names: names of perturbations.
      exclude: as for `expand`.

    Returns:
      Its `scenario_set`, and the perturbations that a whole catalogue or suite leaves
      out here, as `left_out`, if there are any.
    """
    missed = [name for name in exclude if name not in names]
    found = scenario_set(environment, names, missed)
    lacks = {"left_out": missed} if missed and found != "chosen" else {}
    return {"scenario_set": found} | lacks


def make_edit(environment: Environment, names: Sequence[str], split: str) -> Edit:
    """Return a function that perturbs a task.

    Each entry of the catalogue is compiled once, however many compositions it is part
    of.

    Args:
      environment: the environment of the tasks.
      names: names of perturbations in its catalogue, or of compositions; one with a
        strength of its own (`perturb.split_strength`) gets that share of the strength.
      split: the split whose surface forms they draw from.

    Returns:
      `edit(tables, edit_key, task, strength, scenario=None) -> Edited`. `scenario` is a
      traced index, 0 for clean and i for the i-th name. With None, the key chooses one
      of the names uniformly; a task that it does not change has scenario 0. If there
      are no names, the task stays clean.

    Raises:
      ValueError: the environment has no perturbation of some name, or a composition is
        impossible.
    """
    chosen = [perturb.entry(environment, name) for name in names]
    parts = [entry.parts or (entry,) for entry in chosen]
    by_name = {part.name: part for some in parts for part in some}
    entries, index = [*by_name.values()], {x: 1 + i for i, x in enumerate(by_name)}
    depth = max(map(len, parts), default=1)
    # Row i has the parts of scenario i as indices of branches; 0 leaves the task as is.
    table = np.zeros((1 + len(names), depth), np.int32)
    for row, some in zip(table[1:], parts, strict=True):
        row[: len(some)] = [index[part.name] for part in some]
    shares = np.array([1, *(perturb.split_strength(x)[1] for x in names)], np.float32)

    def edit(
        tables: Tables,
        edit_key: jax.Array,
        task: Task,
        strength: jax.Array,
        scenario: Int[Array, ""] | None = None,
    ) -> Edited:
        if not names:
            return Edited(task, jnp.int32(0), jnp.bool_(True))
        # Not in the switch, for which `jax.vmap` would copy the tables to each task.
        pools = environment.pools(tables, task, split)
        edits = [perturb.identity, *(entry.make(pools) for entry in entries)]
        drawn, key = scenario is None, edit_key
        if scenario is None:
            choice, key = perturb.choose(edit_key, len(names))
            scenario = 1 + choice
        branches = jnp.asarray(table)[scenario]
        if np.any(shares < 1):
            strength = strength * jnp.asarray(shares)[scenario]
        if depth == 1:
            new = perturb.switch(branches[0], edits, key, task, strength)
        else:
            new = _all_of(branches, edits, key, task, strength)
        changed = ~perturb.equal(new, task)
        if drawn:
            return Edited(new, jnp.where(changed, scenario, 0), changed)
        return Edited(new, scenario, changed | (scenario == 0))

    return edit


def _all_of(
    branches: Int[Array, "P"],
    edits: Sequence[perturb.Perturbation],
    key: jax.Array,
    task: Task,
    strength: jax.Array,
) -> Task:
    """Do what `perturb.all_of` does, for parts that are chosen by traced indices."""
    single = branches[1] == 0

    def apply(i, carry):
        old, hit = carry
        part_key = jnp.where(single, key, jax.random.fold_in(key, i))
        new = perturb.switch(branches[i], edits, part_key, old, strength)
        return new, hit & ((branches[i] == 0) | ~perturb.equal(new, old))

    first = task, jnp.bool_(True)
    new, hit = jax.lax.fori_loop(0, branches.shape[0], apply, first)  # compiles once
    return perturb.select(hit, new, task)


def make_draw(
    environment: Environment, names: Sequence[str], split: str
) -> Callable[..., Edited]:
    """Return a function that samples a task and perturbs it.

    Args:
      environment: the environment of the tasks.
      names: names of perturbations in its catalogue.
      split: the split of the tasks and of the surface forms.

    Returns:
      `draw(tables, task_key, edit_key, strength, scenario=None, index=None) -> Edited`;
      see `make_edit` for `strength` and `scenario`. With an `index`, an environment of
      finitely many tasks gives the task of that number, and a mixture of domains one of
      the domain whose turn it is; any other ignores it.

    Raises:
      ValueError: the environment has no perturbation of some name.
    """
    edit = make_edit(environment, names, split)

    def draw(tables, task_key, edit_key, strength, scenario=None, index=None) -> Edited:
        if index is not None and environment.nth_task:
            task = environment.nth_task(tables, task_key, index, split)
        else:
            task = environment.sample(tables, task_key, split)
        return edit(tables, edit_key, task, strength, scenario)

    return draw


def task_keys(
    key: jax.Array, start: jax.Array | int, num: int, repeats: int = 1
) -> jax.Array:
    """Return the keys of the tasks of the episodes `start` to `start + num - 1`.

    A key depends on `key` and the number of the task only, so it is the same for every
    scenario, agent and sharding.
    """
    number, _ = _numbers(start, num, repeats)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, number)


def edit_keys(
    keys: jax.Array, start: jax.Array | int = 0, repeats: int = 1
) -> jax.Array:
    """Return the keys with which an evaluation perturbs the tasks of these keys.

    Args:
      keys: what `task_keys` returned.
      start: the number of the first episode.
      repeats: the number of episodes of each task.
    """
    first = jax.vmap(jax.random.fold_in, (0, None))(keys, EDIT)
    if repeats == 1:
        return first
    _, repeat = _numbers(start, len(keys), repeats)
    return jnp.where(repeat > 0, jax.vmap(jax.random.fold_in)(first, repeat), first)


def indices(
    environment: Environment,
    tables: Tables,
    split: str,
    key: jax.Array,
    start: jax.Array | int,
    num: int,
    repeats: int = 1,
) -> Int[Array, "num"]:
    """Return which task each episode plays, for environments of finitely many tasks.

    Tasks are numbered in a random order, so that the first of them are a random choice.

    Args:
      environment: the environment of the tasks.
      tables: its tables.
      split: the split of the tasks.
      key: the key of the evaluation, as for `task_keys`.
      start: the number of the first episode.
      num: how many episodes.
      repeats: the number of episodes of each task.
    """
    number, _ = _numbers(start, num, repeats)
    if not (total := environment.num_tasks(tables, split)):
        return number
    return jax.random.permutation(key, total)[number % total]


@cache  # evaluations of one environment share compiled programs
def make_batch(
    environment: Environment,
    scenarios: tuple[str, ...],
    split: str,
    num: int,
    repeats: int = 1,
) -> Callable[..., tuple[Edited, jax.Array]]:
    """Return a compiled function that draws the tasks of a batch of episodes.

    Args:
      environment: the environment of the tasks.
      scenarios: names of perturbations.
      split: the split of the tasks.
      num: B, the number of episodes of a call.
      repeats: the number of episodes of each task; see above.

    Returns:
      `(tables, scenario, key, start, strength) -> (edited, keys)`: the tasks and the
      keys of their episodes, leading axis B. `scenario` is 0 for clean tasks and i for
      the i-th perturbation; `start` is the number of the first episode.

    Raises:
      ValueError: the environment has no perturbation of a name.
    """
    one = make_draw(environment, scenarios, split)

    @fast_compile.jit
    def batch(tables, scenario, key, start, strength):
        keys = task_keys(key, start, num, repeats)
        edits = edit_keys(keys, start, repeats)
        index = indices(environment, tables, split, key, start, num, repeats)
        edited = jax.vmap(one, (None, 0, 0, None, None, 0))(
            tables, keys, edits, strength, scenario, index
        )
        # Each repeat is played anew.
        played = keys if repeats == 1 else edits
        return edited, jax.vmap(jax.random.fold_in, (0, None))(played, PLAY)

    return batch


def num_tasks(environment: Environment, tables: Tables, split: str, wanted: int) -> int:
    """Return how many tasks are played if so many are wanted: no task comes twice."""
    return min(wanted, environment.num_tasks(tables, split) or wanted)


def _numbers(start: jax.Array | int, num: int, repeats: int) -> tuple[Array, Array]:
    """Return the task and the repeat of each episode."""
    episode = start + jnp.arange(num)
    if repeats == 1:
        return episode, jnp.zeros_like(episode)
    return episode // repeats, episode % repeats


def clean(
    environment: Environment, split: str = "train", local: Local = undivided
) -> Curriculum:
    """Return the curriculum that samples new clean tasks in every step.

    Args:
      environment: the environment of the tasks.
      split: the split of the tasks.
      local: lets each device sample its own tasks.
    """
    from_keys = local(_sampler(environment, split))

    def sample(state, tables, task_key, edit_key, step, num_tasks) -> Task:
        del state, edit_key, step
        return from_keys(tables, task_keys(task_key, 0, num_tasks))

    return Curriculum(
        init=lambda: (), sample=sample, update=lambda state, tasks, metrics: state
    )


def repeated(
    environment: Environment,
    num: int,
    key: jax.Array,
    split: str = "train",
    local: Local = undivided,
) -> Curriculum:
    """Return the curriculum that repeats `num` clean tasks, in an order for each epoch.

    Every task comes once in an epoch, and batches may lie across two of them.

    Args:
      environment: the environment of the tasks.
      num: the number of tasks, at least as many as a batch has.
      key: the root key of a run. The state of the curriculum is made from it, so that
        runs of other seeds have other tasks and the same program.
      split: the split of the tasks.
      local: lets each device sample its own tasks.
    """
    from_keys = local(_sampler(environment, split))

    def sample(state, tables, task_key, edit_key, step, num_tasks) -> Task:
        del task_key, edit_key
        keys = jax.vmap(jax.random.fold_in, (None, 0))
        first = step * num_tasks
        # Of the epoch that the batch begins in, and of the next one. Numbers below
        # `num` are those of tasks.
        order_keys = keys(state, num + first // num + jnp.arange(2))
        orders = jax.vmap(jax.random.permutation, (0, None))(order_keys, num)
        index = orders.reshape(-1)[first % num + jnp.arange(num_tasks)]
        return from_keys(tables, keys(state, index))

    return Curriculum(
        init=lambda: jax.random.fold_in(key, TASKS),
        sample=sample,
        update=lambda state, tasks, metrics: state,
    )


def _sampler(environment: Environment, split: str) -> Callable[..., Task]:
    """Return `(tables, keys) -> tasks`."""

    def from_keys(tables: Tables, keys: jax.Array) -> Task:
        return jax.vmap(lambda key: environment.sample(tables, key, split))(keys)

    return from_keys
