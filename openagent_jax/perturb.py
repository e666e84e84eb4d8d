"""Perturbations and their algebra.

A perturbation is one pure function on one task, `(key, task, strength) -> task`, with
the same tree, shapes and dtypes. `strength` is a traced scalar in [0, 1]; 0 is the
identity. There are no wrappers and there is no state:

    chain(a, b)          a, then b, each with a key of its own
    sometimes(a, rate)   a with probability `rate`
    one_of(a, b)         one of them, by the key
    batched(a)           over leading axes of keys and tasks
    on_trajectory(a, f)  edit `trajectory.task`, and let `f` demonstrate again

An environment has a catalogue of them, one `Entry` a row. What an entry draws from
(synonyms, names) are the pools of the environment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.types import Environment, Tables, Task, Trajectory

Perturbation = Callable[[jax.Array, Task, jax.Array], Task]


class HasCatalogue(Protocol):
    """An `Environment`, or its spec."""

    @property
    def perturbations(self) -> tuple[Any, ...]: ...


TIERS = ("perception", "interaction", "reasoning", "internalization")


@dataclass(frozen=True)
class Entry:
    """A row of a catalogue: a perturbation, and what it claims about itself."""

    name: str
    make: Callable[[Any], Perturbation]  # from the pools of the environment
    tier: str  # one of TIERS
    shift: str  # query, action, observation, domain
    part: str  # of the POMDP: observation, action, transition, reward, task
    touches: tuple[str, ...]  # paths of the task that it may change
    family: str  # "train": PAFT may use it; "held_out": evaluation only
    explicit: bool = True  # the documents or the feedback tell of it
    transient: bool = False  # it goes away within the episode
    position: str = "start"  # where in the episode it has an effect: start, or any
    solvable: bool = True  # solvable tasks stay solvable


def catalogue(environment: "HasCatalogue") -> dict[str, Entry]:
    """The entries of an environment, or of its spec, by name."""
    return {entry.name: entry for entry in environment.perturbations}


def entry(environment: HasCatalogue, name: str) -> Entry:
    """The entry of that name.

    Raises:
      ValueError: the environment has none.
    """
    entries = catalogue(environment)
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise ValueError(f'unknown perturbation "{name}"; there are {known}')
    return entries[name]


def make(
    environment: Environment, tables: Tables, name: str, split: str
) -> Perturbation:
    """The perturbation of an entry, which draws from the pools of a split.

    Raises:
      ValueError: the environment has no entry of that name.
    """
    row = entry(environment, name)

    def apply(key: jax.Array, task: Task, strength: jax.Array) -> Task:
        return row.make(environment.pools(tables, task, split))(key, task, strength)

    return apply


def identity(key: jax.Array, task: Task, strength: jax.Array) -> Task:
    """The task as it is."""
    del key, strength
    return task


def chain(*perturbations: Perturbation) -> Perturbation:
    """One after the other; member i gets `fold_in(key, i)`."""

    def apply(key, task, strength):
        for i, perturbation in enumerate(perturbations):
            task = perturbation(jax.random.fold_in(key, i), task, strength)
        return task

    return apply


def sometimes(perturbation: Perturbation, rate: float) -> Perturbation:
    """With probability `rate`, else the identity."""

    def apply(key, task, strength):
        coin, key = jax.random.split(key)
        new = perturbation(key, task, strength)
        return select(jax.random.bernoulli(coin, rate), new, task)

    return apply


def one_of(*perturbations: Perturbation) -> Perturbation:
    """One of them, each with the same probability.

    Under `vmap` all of them run (as any branch does): they are cheap table edits.
    """

    def apply(key, task, strength):
        choice, key = choose(key, len(perturbations))
        return jax.lax.switch(choice, perturbations, key, task, strength)

    return apply


def choose(key: jax.Array, num: int) -> tuple[Int[Array, ""], jax.Array]:
    """Which of `num` perturbations `one_of` applies, and the key that it gets."""
    coin, key = jax.random.split(key)
    return jax.random.randint(coin, (), 0, num), key


def batched(perturbation: Perturbation) -> Perturbation:
    """Over the leading axis of keys and tasks, at one strength.

    Keys belong to elements (fold a global index in), so the layout over devices
    changes nothing.
    """
    return jax.vmap(perturbation, in_axes=(0, 0, None))


def on_trajectory(
    perturbation: Perturbation, demonstrate: Callable[[Task], Trajectory]
) -> Callable[[jax.Array, Trajectory, jax.Array], Trajectory]:
    """The same edit on a recorded episode: its task, demonstrated again.

    A trajectory whose task did not change is kept as it is.
    """

    def apply(key, trajectory, strength):
        task = perturbation(key, trajectory.task, strength)
        same = equal(task, trajectory.task)
        return select(same, trajectory, demonstrate(task))

    return apply


# What entries are made of.


def select(condition: Bool[Array, ""], new, old):
    """`new` where the condition holds, else `old`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def equal(a, b) -> Bool[Array, ""]:
    """Whether two trees hold the same numbers.

    >>> bool(equal({"a": jnp.arange(2)}, {"a": jnp.array([0, 1])}))
    True
    """
    same = jax.tree.map(lambda x, y: jnp.all(x == y), a, b)
    return jnp.all(jnp.stack(jax.tree.leaves(same)))


def bernoulli(key: jax.Array, strength: jax.Array, shape=()) -> Bool[Array, "..."]:
    """True with probability `strength`; never at 0, always at 1."""
    return jax.random.uniform(key, shape) < strength


def pick(key: jax.Array, among: Bool[Array, "R"]) -> Int[Array, ""]:
    """A random index where `among` holds; -1 if there is none."""
    uniforms = jnp.where(among, jax.random.uniform(key, among.shape), -1.0)
    return jnp.where(jnp.any(among), jnp.argmax(uniforms), -1).astype(jnp.int32)
