"""Perturbations and their algebra.

A perturbation is one pure function on one element, `(key, task, strength) -> task`,
with the same tree, shapes and dtypes. `strength` is a traced scalar in [0, 1]; 0 is
the identity. There are no wrappers and there is no state:

    chain(a, b)          a, then b, each with a key of its own
    sometimes(a, rate)   a with probability `rate`
    one_of(a, b)         one of them, by the key
    batched(a)           over leading axes of keys and tasks
    on_trajectory(a, f)  edit `trajectory.task`, and let `f` demonstrate again
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.types import Task, Tools, Trajectory

Perturbation = Callable[[jax.Array, Task, jax.Array], Task]


class Pools(NamedTuple):
    """What perturbations of one domain and split draw from.

    Pools of the train and of the test split share no surface form.
    """

    names: Int[Array, "N Y"]  # synonyms of each tool
    descriptions: Int[Array, "N Y"]
    arg_names: Int[Array, "N A Y"]
    opaque: Int[Array, "2"]  # range of names that say nothing
    gates: Int[Array, "R 2"]  # name and description of tools that guard others
    phrases: Int[Array, "G R P"]  # rewritten requests
    num_phrases: Int[Array, "G"]
    styles: Int[Array, "2"]  # range of result styles
    shifted: Int[Array, "N F 2"]  # result ranges of unfamiliar entities
    constant_range: Int[Array, "G Q 2"]  # of unfamiliar entities in requests
    transfer: Callable[[jax.Array], Task]  # a task of another domain


# Or the pools of each task, where tasks have tools of their own.
SomePools = Pools | Callable[[Task], Pools]


@dataclass(frozen=True)
class Entry:
    """A row of the catalogue: a perturbation, and what it claims about itself."""

    name: str
    make: Callable[[Pools], Perturbation]
    tier: str  # perception, interaction, reasoning, internalization
    shift: str  # query, action, observation, domain
    part: str  # of the POMDP: observation, action, transition, reward, task
    explicit: bool  # the documents or the feedback tell of it
    transient: bool  # goes away within the episode
    position: str  # where in the episode it bites: start, or any
    solvable: bool  # solvable tasks stay solvable
    touches: tuple[str, ...]  # paths of `Task` that it may change
    family: str  # "train": PAFT may use it; "held_out": evaluation only


def identity(key: jax.Array, task: Task, strength: jax.Array) -> Task:
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
    """One of them, each as likely.

    Under `vmap` all of them run (as any branch does): they are cheap table edits.
    """

    def apply(key, task, strength):
        choice, key = drawn(key, len(perturbations))
        return jax.lax.switch(choice, perturbations, key, task, strength)

    return apply


def drawn(key: jax.Array, num: int) -> tuple[Int[Array, ""], jax.Array]:
    """Which of `num` perturbations `one_of` takes, and the key that it gets."""
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


# What the entries are made of.


def select(condition: Bool[Array, ""], new, old):
    """`new` where the condition holds, else `old`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def equal(a, b) -> Bool[Array, ""]:
    """Whether two trees hold the same numbers."""
    same = jax.tree.map(lambda x, y: jnp.all(x == y), a, b)
    return jnp.all(jnp.stack(jax.tree.leaves(same)))


def chance(key: jax.Array, strength: jax.Array, shape=()) -> Bool[Array, "..."]:
    """True with probability `strength`; never at 0, always at 1."""
    return jax.random.uniform(key, shape) < strength


def pick(key: jax.Array, among: Bool[Array, "R"]) -> Int[Array, ""]:
    """A random index where `among` holds; -1 if there is none."""
    lot = jnp.where(among, jax.random.uniform(key, among.shape), -1.0)
    return jnp.where(jnp.any(among), jnp.argmax(lot), -1).astype(jnp.int32)


def edit_tools(task: Task, **fields) -> Task:
    return replace(task, tools=replace(task.tools, **fields))


def edit_faults(task: Task, **fields) -> Task:
    return replace(task, faults=replace(task.faults, **fields))


def wanted(task: Task) -> Bool[Array, "N"]:
    """Rows that the goal names and the documents show."""
    row = jnp.arange(task.tools.relation.shape[0])
    named = jnp.any(task.goal.tool[:, None] == row[None], axis=0)
    return named & task.tools.visible


def spare(task: Task) -> Int[Array, ""]:
    """A row that nothing refers to, for a new tool; -1 if there is none."""
    tools = task.tools
    row = jnp.arange(tools.relation.shape[0])
    used = tools.visible | jnp.any(task.goal.tool[:, None] == row[None], axis=0)
    for pointer in (tools.code_from, tools.call_after, task.faults.moved_to):
        used |= jnp.any((pointer[:, None] == row[None]) & used[:, None], axis=0)
    used |= jnp.any(task.faults.moved_to[:, None] == row[None], axis=0)
    last = row.shape[0] - 1 - jnp.argmax(~used[::-1])
    return jnp.where(jnp.all(used), -1, last).astype(jnp.int32)


def copy_row(tools: Tools, source: Array, target: Array) -> Tools:
    """Row `target` becomes a copy of row `source`."""
    return jax.tree.map(lambda x: x.at[target].set(x[source]), tools)


def add_gate(
    task: Task, row: Array, presentation: Int[Array, "2"], place: Array
) -> Task:
    """A new documented tool without arguments and results at a spare row."""
    tools = task.tools
    empty = jax.tree.map(lambda x: x.at[row].set(jnp.zeros_like(x[0])), tools)
    description = jnp.zeros_like(tools.description[0]).at[0].set(presentation[1])
    return edit_tools(
        task,
        **{
            **vars(empty),
            "relation": empty.relation.at[row].set(row),
            "code": tools.code,
            "code_from": empty.code_from.at[row].set(-1),
            "call_after": empty.call_after.at[row].set(-1),
            "name": empty.name.at[row].set(presentation[0]),
            "description": empty.description.at[row].set(description),
            "place": empty.place.at[row].set(place),
            "visible": empty.visible.at[row].set(True),
        },
    )
