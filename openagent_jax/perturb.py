"""Perturbations and their algebra.

A perturbation is a pure function of one task, `(key, task, strength) -> task`. Its
result has the same tree structure, shapes and dtypes as the task. `strength` is a
traced scalar in [0, 1]; strength 0 is the identity. There are no environment wrappers
and there is no state. Perturbations are combined by functions:

    chain(a, b)          a, then b, each with its own key
    sometimes(a, rate)   a with probability `rate`
    one_of(a, b)         one of the two, chosen by the key
    batched(a)           a on the leading axis of keys and tasks
    on_trajectory(a, f)  a on `trajectory.task`, which `f` then demonstrates again

Each environment has a catalogue of perturbations, one `Entry` for each. The texts that
they draw from (synonyms, names) are the pools of the environment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.types import Environment, Tables, Task, Trajectory

Perturbation = Callable[[jax.Array, Task, jax.Array], Task]


class HasCatalogue(Protocol):
    """An `Environment` or an `EnvironmentSpec`."""

    @property
    def perturbations(self) -> tuple[Any, ...]: ...
    @property
    def suite(self) -> tuple[str, ...]: ...


TIERS = ("perception", "interaction", "reasoning", "internalization")


@dataclass(frozen=True)
class Entry:
    """A perturbation in a catalogue, with its properties."""

    name: str
    make: Callable[[Any], Perturbation]  # takes the pools of the environment
    tier: str  # one of TIERS
    shift: str  # what shifts: query, action, observation or domain
    part: str  # part of the POMDP: observation, action, transition, reward or task
    touches: tuple[str, ...]  # paths of the task's fields that it may change
    family: str  # "train": PAFT may use it; "held_out": evaluation only
    explicit: bool = True  # whether the documents or the feedback reveal it
    transient: bool = False  # whether it goes away within the episode
    position: str = "start"  # when in the episode it takes effect: start or any
    solvable: bool = True  # whether solvable tasks stay solvable
    # For an entry whose tasks cannot be solved: the entry whose tasks can be, but look
    # the same. Only a reader of both request and documents tells the two apart.
    counterpart: str = ""


def catalogue(environment: "HasCatalogue") -> dict[str, Entry]:
    """Return the catalogue of an environment or of its spec, by name."""
    return {entry.name: entry for entry in environment.perturbations}


def entry(environment: HasCatalogue, name: str) -> Entry:
    """Return the catalogue entry with this name.

    Raises:
      ValueError: the environment has no perturbation of that name.
    """
    entries = catalogue(environment)
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise ValueError(f'unknown perturbation "{name}"; there are {known}')
    return entries[name]


def make(
    environment: Environment, tables: Tables, name: str, split: str
) -> Perturbation:
    """Return a perturbation of the catalogue that draws from the pools of a split.

    Args:
      environment: the environment whose catalogue is used.
      tables: the arrays of the environment.
      name: the name of the catalogue entry.
      split: "train" or "test".

    Raises:
      ValueError: the environment has no perturbation of that name.
    """
    row = entry(environment, name)

    def apply(key: jax.Array, task: Task, strength: jax.Array) -> Task:
        return row.make(environment.pools(tables, task, split))(key, task, strength)

    return apply


@dataclass(frozen=True, eq=False)  # hashable, although `which` may be traced
class Variant:
    """One of several perturbations that are the same function with another argument.

    `switch` computes those of a family once.
    """

    apply: Callable[[jax.Array, Task, jax.Array, Any], Task]  # takes `which` last
    family: Any  # equal for those that differ in `which` only
    which: bool | Bool[Array, ""]

    def __call__(self, key: jax.Array, task: Task, strength: jax.Array) -> Task:
        return self.apply(key, task, strength, self.which)


def switch(
    index: Int[Array, ""],
    perturbations: Sequence[Perturbation],
    key: jax.Array,
    task: Task,
    strength: jax.Array,
) -> Task:
    """Apply the perturbation of an index.

    Under `jax.vmap` all are computed. Those of one family become one branch.
    """
    which = [getattr(made, "which", False) for made in perturbations]
    is_which = jnp.array(which)[index]
    families = [getattr(made, "family", made) for made in perturbations]
    branches: dict[Any, Perturbation] = {}
    for made, family in zip(perturbations, families, strict=True):
        if isinstance(made, Variant) and families.count(family) > 1:
            made = replace(made, which=is_which)
        branches.setdefault(family, made)
    order = list(branches)
    branch = jnp.array([order.index(family) for family in families])[index]
    return jax.lax.switch(branch, list(branches.values()), key, task, strength)


def identity(key: jax.Array, task: Task, strength: jax.Array) -> Task:
    """Return the task unchanged."""
    del key, strength
    return task


def chain(*perturbations: Perturbation) -> Perturbation:
    """Apply perturbations in sequence; perturbation i gets `fold_in(key, i)`."""

    def apply(key, task, strength):
        for i, perturbation in enumerate(perturbations):
            task = perturbation(jax.random.fold_in(key, i), task, strength)
        return task

    return apply


def sometimes(perturbation: Perturbation, rate: float) -> Perturbation:
    """Apply a perturbation with probability `rate`."""

    def apply(key, task, strength):
        coin, key = jax.random.split(key)
        new = perturbation(key, task, strength)
        return select(jax.random.bernoulli(coin, rate), new, task)

    return apply


def one_of(*perturbations: Perturbation) -> Perturbation:
    """Apply one of several perturbations, chosen uniformly.

    Under `jax.vmap` all of them are computed, as with any branch; they are cheap.
    """

    def apply(key, task, strength):
        choice, key = choose(key, len(perturbations))
        return switch(choice, perturbations, key, task, strength)

    return apply


def choose(key: jax.Array, num: int) -> tuple[Int[Array, ""], jax.Array]:
    """Return the index of the perturbation that `one_of` applies, and its key."""
    coin, key = jax.random.split(key)
    return jax.random.randint(coin, (), 0, num), key


def batched(perturbation: Perturbation) -> Perturbation:
    """Map a perturbation over the leading axis of keys and tasks, at one strength.

    There is one key for each task (fold in its global index), so the result does not
    depend on how the batch is sharded.
    """
    return jax.vmap(perturbation, in_axes=(0, 0, None))


def on_trajectory(
    perturbation: Perturbation, demonstrate: Callable[[Task], Trajectory]
) -> Callable[[jax.Array, Trajectory, jax.Array], Trajectory]:
    """Perturb the task of a recorded episode, and demonstrate it again.

    A trajectory whose task does not change is returned as it is.

    Args:
      perturbation: the perturbation of the task.
      demonstrate: returns the expert's trajectory on a task.
    """

    def apply(key, trajectory, strength):
        task = perturbation(key, trajectory.task, strength)
        same = equal(task, trajectory.task)
        return select(same, trajectory, demonstrate(task))

    return apply


# Building blocks of perturbations.


def select(condition: Bool[Array, ""], new, old):
    """Return `new` if the condition holds, else `old`; both are pytrees."""

    def one(new, old):  # what is the same array either way needs no program
        return old if new is old else jnp.where(condition, new, old)

    return jax.tree.map(one, new, old)


def equal(a, b) -> Bool[Array, ""]:
    """Tell whether two pytrees of the same structure hold equal values.

    >>> bool(equal({"a": jnp.arange(2)}, {"a": jnp.array([0, 1])}))
    True
    """
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    same = [jnp.all(x == y) for x, y in pairs if x is not y]
    return jnp.all(jnp.stack(same)) if same else jnp.bool_(True)


def bernoulli(key: jax.Array, strength: jax.Array, shape=()) -> Bool[Array, "..."]:
    """Sample booleans: True with probability `strength`, never at 0, always at 1."""
    return jax.random.uniform(key, shape) < strength


def pick(key: jax.Array, among: Bool[Array, "R"]) -> Int[Array, ""]:
    """Sample an index at which `among` is True, uniformly; -1 if there is none."""
    uniforms = jnp.where(among, jax.random.uniform(key, among.shape), -1.0)
    return jnp.where(jnp.any(among), jnp.argmax(uniforms), -1).astype(jnp.int32)
