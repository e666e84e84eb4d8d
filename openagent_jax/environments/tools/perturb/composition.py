"""Internalization: one request that needs the tools of two domains."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.tools.perturb.edits import (
    OF_ROWS,
    Pools,
    needed,
    occupied,
    source_row,
    wanted,
)
from openagent_jax.environments.tools.types import Faults, Goal, Task, Tools
from openagent_jax.environments.tools.worlds import seeds
from openagent_jax.perturb import Perturbation, bernoulli, select

NUM_DRAWN = 8  # tasks of other domains, of which the first that fits is taken


def cross_domain_composition(pools: Pools) -> Perturbation:
    """Let a request be followed by one of another domain, in the same episode.

    Before: `Find the evening event in Fern Park.`
    After:  `Find the evening event in Fern Park. After that, answer only this: Report
            the duty nurse of Front Cardiac.`

    Both have to be done, and the answer is that of the second. The documents are those
    that either request needs, and others of both domains up to their former number. The
    results of the second request are those of the world of the first.

    A task stays as it is if none of a few tasks of the other domains fits beside it: if
    they have too many steps, constants, pieces of text or tools together, or two tools
    of one name. So do tasks whose own steps have conditions, since what is asked of
    them could change if their answer is not reported, and tasks of worlds with recorded
    results.

    The strength is the probability that a task is composed.
    """

    def apply(key, task, strength):
        if task.facts is not None:
            return task
        coin, others, join, rows = jax.random.split(key, 4)
        drawn = jax.vmap(pools.transfer)(jax.random.split(others, NUM_DRAWN))
        fits = jax.vmap(lambda other: _fits(task, other))(drawn)
        other = jax.tree.map(lambda x: x[jnp.argmax(fits)], drawn)
        joint = pools.joints[jax.random.randint(join, (), 0, len(pools.joints))]
        composed = seeds.with_changes(_composed(rows, task, other, joint))
        return select(bernoulli(coin, strength) & jnp.any(fits), composed, task)

    return apply


class _Size(NamedTuple):
    """How much of the arrays of a task is in use."""

    steps: Int[Array, ""]
    constants: Int[Array, ""]
    pieces: Int[Array, ""]


def _size(task: Task) -> _Size:
    goal, constant = task.goal, jnp.arange(task.constants.shape[0])
    found = [goal.source.reshape(-1), goal.answer[None], -1 - task.phrase]
    if goal.when is not None:
        found.append(goal.when[:, ::2].reshape(-1))
    used = jnp.any(jnp.concatenate(found)[:, None] == constant[None], axis=0)
    return _Size(
        jnp.sum(goal.tool >= 0),
        jnp.max(jnp.where(used, constant + 1, 0)),
        jnp.sum(task.phrase != 0),
    )


def _fits(task: Task, other: Task) -> Bool[Array, ""]:
    """Return whether another task has room beside a task."""
    mine, theirs = _size(task), _size(other)
    ok = mine.constants + theirs.constants <= task.constants.shape[0]
    ok &= mine.pieces + 1 + theirs.pieces <= task.phrase.shape[0]
    new = needed(other, wanted(other))
    # Tools that steps need are calls too, and the turns of an episode are few.
    gates = needed(task, wanted(task)) & ~wanted(task), new & ~wanted(other)
    gates = jnp.sum(gates[0]) + jnp.sum(gates[1])
    ok &= mine.steps + theirs.steps + gates <= task.goal.tool.shape[0]
    ok &= jnp.sum(new) <= jnp.sum(~occupied(task))
    # Tools of the first domain may be documented later.
    name, names = other.tools.name, task.tools.name
    real = other.tools.visible | new
    ok &= ~jnp.any((name[:, None] == names[None]) & (real & (name > 0))[:, None])
    if task.goal.when is not None:
        ok &= jnp.all(task.goal.when[:, 0] < 0)
    return ok


class _Rows(NamedTuple):
    """Where the tools of a second task go."""

    is_new: Bool[Array, "N"]  # rows of the composed task that they take
    origin: Int[Array, "N"]  # the row of the second task that each of these is
    place: Int[Array, "N"]  # the row that each row of the second task gets; -1: none
    visible: Bool[Array, "N"]  # what is documented


def _composed(key: jax.Array, task: Task, other: Task, joint: Array) -> Task:
    mine, theirs, Q = _size(task), _size(other), task.constants.shape[0]
    rows = _rows(key, task, other)

    def moved(source: Int[Array, "..."]) -> Int[Array, "..."]:
        """Return sources of the second task as they are in the composed one."""
        shift = mine.steps * task.tools.num_values
        shift = jnp.where(source < Q, mine.constants, shift)
        return jnp.where(source < 0, source, source + shift)

    def follow(first: Array, second: Array, num: Array) -> Array:
        """Return the first values of an array, followed by another array."""
        place = jnp.arange(len(first))
        both = second[jnp.clip(place - num, 0, len(first) - 1)]
        is_first = (place < num).reshape(-1, *[1] * (first.ndim - 1))
        return jnp.where(is_first, first, both)

    tool = jnp.where(other.goal.tool >= 0, rows.place[other.goal.tool], -1)
    when = task.goal.when
    if when is not None and other.goal.when is not None:
        value, comparison, limit = jnp.moveaxis(other.goal.when, -1, 0)
        theirs_when = jnp.stack([moved(value), comparison, moved(limit)], axis=-1)
        when = follow(when, theirs_when, mine.steps)
    first, second = (
        x.phrase[jnp.argsort(x.phrase == 0, stable=True)] for x in (task, other)
    )
    second = jnp.where(second < 0, second - mine.constants, second)
    phrase = follow(first, jnp.roll(second, 1).at[0].set(joint), mine.pieces)
    at = jnp.arange(len(phrase))
    return replace(
        task,
        tools=_tools(task, other, rows),
        goal=Goal(
            tool=follow(task.goal.tool, tool, mine.steps),
            source=follow(task.goal.source, moved(other.goal.source), mine.steps),
            answer=moved(other.goal.answer),
            # What perturbations draw from fits neither of the two domains alone.
            kind=-1 - jnp.maximum(task.goal.kind, 0),
            when=when,
        ),
        faults=_faults(task, other, rows),
        phrase=jnp.where(at < mine.pieces + 1 + theirs.pieces, phrase, 0),
        constants=follow(task.constants, other.constants, mine.constants),
        said=follow(task.said, other.said, mine.constants),
        shown=follow(task.shown, other.shown, mine.constants),
    )


def _faults(task: Task, other: Task, rows: _Rows) -> Faults:
    """Return the faults of the tools of both, and what else goes wrong in the first."""

    def put(name: str) -> Array:
        old, new = getattr(task.faults, name), getattr(other.faults, name)
        return jnp.where(rows.is_new, new[rows.origin], old)

    return replace(task.faults, **{name: put(name) for name in OF_ROWS})


def _rows(key: jax.Array, task: Task, other: Task) -> _Rows:
    uniforms = jax.random.uniform(key, (3, task.tools.name.shape[0]))
    # A tool that the first request needs may have another source, or an alternative.
    origin = source_row(task)
    must = needed(task, wanted(task))
    same = origin[:, None] == jnp.where(must, origin, -1)[None]
    must = task.tools.visible & jnp.any(same, axis=1)
    new = needed(other, wanted(other))
    num = jnp.sum(task.tools.visible) - jnp.sum(must) - jnp.sum(new)
    free = ~occupied(task)
    # Other documents are drawn from those of both, as far as there is room.
    more = jnp.concatenate([task.tools.visible & ~must, other.tools.visible & ~new])
    order = jnp.where(more, uniforms[:2].reshape(-1), 2.0)
    chosen = more & (jnp.argsort(jnp.argsort(order)) < num)
    of_first, of_second = jnp.split(chosen, 2)
    room = jnp.sum(free) - jnp.sum(new)
    new |= of_second & (jnp.cumsum(of_second) <= room)

    into = jnp.argsort(jnp.where(free, uniforms[2], 2.0))  # free rows come first
    rank = jnp.cumsum(new) - 1
    ranked = jnp.argsort(~new, stable=True)
    place = jnp.where(new, into[rank], -1)
    is_new = jnp.argsort(into) < jnp.sum(new)
    is_new &= free
    return _Rows(is_new, ranked[jnp.argsort(into)], place, must | of_first | is_new)


def _tools(task: Task, other: Task, rows: _Rows) -> Tools:
    """Return the tools of both tasks."""
    tools, num = task.tools, len(rows.is_new)

    def moved(pointer: Int[Array, "N"]) -> Int[Array, "N"]:
        """Return the rows that tools of the second task need, if they are here."""
        pointer = pointer[rows.origin]
        return jnp.where(pointer < 0, -1, rows.place[pointer])

    added = jax.tree.map(lambda x: x[rows.origin], other.tools)
    if added.access is not None and tools.access is not None:
        table = added.access.table + jnp.max(tools.access.table)
        table = jnp.where(added.access.table > 0, table, 0)
        added = replace(added, access=replace(added.access, table=table))
    added = replace(
        added,
        relation=num * (1 + jnp.max(tools.relation // num)) + jnp.arange(num),
        code=tools.code,  # they differ from each other
        code_from=moved(other.tools.code_from),
        call_after=moved(other.tools.call_after),
        place=tools.place,
    )

    def put(old: Array, new: Array) -> Array:
        hit = rows.is_new.reshape(-1, *[1] * (old.ndim - 1))
        return jnp.where(hit, new, old)

    return replace(jax.tree.map(put, tools, added), visible=rows.visible)
