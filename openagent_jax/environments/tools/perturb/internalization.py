"""Internalization: unfamiliar domains and entities, and unsolvable tasks.

Whether a task can be solved must follow from request and documents taken together, and
from nothing else that an agent could go by: the number of documents, their order and
length, or the words of one of the two alone. So unsolvable tasks come in a crossed
design. Another request is drawn that could be made of the same tools, such that each of
the two requests needs a tool that the other does not. The documents suit both, until
one such tool is taken away, broken, or made unusable. If it is a tool of the request
that is made, the task cannot be solved; if it is a tool of the other request, the task
stays solvable. Each unsolvable entry thus has a solvable counterpart, with the same
distribution of documents and the same distribution of requests. That tool is one that
its request needs whatever the results are: a tool that is only needed on a condition
might turn out not to be.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from openagent_jax import draw
from openagent_jax.environments.tools.perturb.edits import (
    Pools,
    alike,
    copy_row,
    document,
    edit_faults,
    edit_tools,
    needed,
    other_name,
    source_row,
    spare,
    wanted,
    wanted_surely,
    with_gate,
    worded,
)
from openagent_jax.environments.tools.types import FOREVER, Task
from openagent_jax.perturb import (
    Perturbation,
    Variant,
    bernoulli,
    equal,
    pick,
    select,
)
from openagent_jax.text import scalars

Solvable = bool | Bool[Array, ""]  # whether the task stays solvable
# (key, task, pools, solvable) -> task: the change at full strength
Change = Callable[[jax.Array, Task, Pools, Solvable], Task]


def domain_transfer(pools: Pools) -> Perturbation:
    """Replace the task by one of another domain, with other tools, types and goals.

    Before: `Find the evening event in Fern Park.`
    After:  `Report the duty nurse of Front Cardiac.`
    """

    def apply(key, task, strength):
        coin, key = jax.random.split(key)
        other = pools.transfer(key)
        kind = -1 - other.goal.kind
        other = replace(other, goal=replace(other.goal, kind=kind))
        return select(bernoulli(coin, strength), other, task)

    return apply


def entity_shift(pools: Pools) -> Perturbation:
    """Replace the names of entities, also in records, by names of unfamiliar forms.

    Before: `Find the evening event in Fern Park.`
    After:  `Find the evening event in Nowy Varo-Alto.`
    """

    def apply(key, task, strength):
        uniforms = jax.random.uniform(key, (3,))
        ranges = pools.constant_range
        new = draw.distinct_symbols(uniforms[1:], ranges[:, 0], ranges[:, 1])
        new = scalars.canonical(new)
        # A value that a document says to replace stays.
        same = task.said == task.constants
        access, columns = task.tools.access, pools.shifted_columns
        if access is not None and columns is not None:
            low, high = columns[..., 0], columns[..., 1]
            access = replace(access, initial_low=low, initial_high=high)
        # A copy of a tool returns what the tool does.
        results = pools.shifted[source_row(task)]
        shifted = edit_tools(
            replace(
                task,
                constants=jnp.where(same, new, task.constants),
                said=jnp.where(same, new, task.said),
            ),
            result_low=results[..., 0],
            result_high=results[..., 1],
            access=access,
        )
        # The ranges are those of the domain, not of one that has replaced it.
        hit = (uniforms[0] < strength) & (task.goal.kind >= 0)
        return select(hit, shifted, task)

    return apply


def tool_withheld(pools: Pools) -> Perturbation:
    """Replace the document of a needed tool with that of another tool.

    Before: `"description":"opening hour of a place"` is among five documents.
    After:  no document mentions an opening hour, and there are still five.
    """
    return _perturbation(_withhold, pools, solvable=False)


def spare_withheld(pools: Pools) -> Perturbation:
    """Replace the document of a tool that only another request would need.

    Before: `"description":"free seats of an event"` is among five documents.
    After:  no document mentions seats; the request asks for an opening hour.
    """
    return _perturbation(_withhold, pools, solvable=True)


def fatal_error(pools: Pools) -> Perturbation:
    """Make every call of a needed tool fail, which only a call reveals.

    The documents also contain a duplicate, but of another tool.

    Before: `{"hour":"17"}`. After: `HTTP/1.1 410 Gone`.
    """
    return _perturbation(_break, pools, solvable=False)


def error_with_alternative(pools: Pools) -> Perturbation:
    """Make every call of a needed tool fail, but document another that does the same.

    Before: `{"hour":"17"}`
    After:  `HTTP/1.1 410 Gone`, and a second document has the description of the first:
            its tool gives the hour.
    """
    return _perturbation(_break, pools, solvable=True)


def contradiction(pools: Pools) -> Perturbation:
    """Make a needed tool and a new tool require each other's code.

    Before: `"name":"opening_hour","parameters":["place"]`
    After:  `"name":"opening_hour",...,"code_from":"get_pass"` beside
            `"name":"get_pass",...,"code_from":"opening_hour"`
    """
    return _perturbation(_contradict, pools, solvable=False)


def spare_contradiction(pools: Pools) -> Perturbation:
    """Make a tool that is not needed and a new tool require each other's code.

    Before: `"name":"count_seats","parameters":["event"]`
    After:  `"name":"count_seats",...,"code_from":"get_pass"` beside
            `"name":"get_pass",...,"code_from":"count_seats"`; the request asks for an
            opening hour.
    """
    return _perturbation(_contradict, pools, solvable=True)


def unsolvable(pools: Pools) -> Perturbation:
    """Make the task unsolvable in one of three ways.

    If a task has no room for the chosen way, a tool is withheld instead, so at strength
    1 no task stays solvable.
    """
    return _perturbation(_any, pools, solvable=False)


def still_solvable(pools: Pools) -> Perturbation:
    """Apply the counterpart of one of the three ways of `unsolvable`."""
    return _perturbation(_any, pools, solvable=True)


def _perturbation(change: Change, pools: Pools, solvable: bool) -> Perturbation:
    def apply(key, task, strength, solvable):
        coin, key = jax.random.split(key)
        changed = change(key, task, pools, solvable)
        hit = bernoulli(coin, strength) & ~equal(changed, task)
        return select(hit, worded(key, changed, pools), task)

    return Variant(apply, family=(change, id(pools)), which=solvable)


class _Crossing(NamedTuple):
    """The rows that a request and another request of the same tools need."""

    # Needed by the request of the task only, whatever its conditions.
    own: Bool[Array, "N"]
    other: Bool[Array, "N"]  # the same for the other request
    either: Bool[Array, "N"]  # needed by one of the two, or by both


def _cross(key: jax.Array, task: Task, pools: Pools) -> _Crossing:
    """Draw another request of the tools.

    Where there is none, documents that the task does not need stand for it.
    """
    tools = task.tools
    works = (task.faults.failures < FOREVER) & (tools.name > 0)
    mine, mine_surely = needed(task, wanted(task)), needed(task, wanted_surely(task))
    mine_surely &= works
    ends = jnp.cumsum(pools.other_rate)
    which = jnp.sum(jax.random.uniform(key) >= ends)  # past the end: none
    row = jnp.minimum(which, len(ends) - 1)
    theirs = needed(task, pools.other_needs[row] & works)
    theirs_surely = needed(task, pools.other_sure[row] & works)
    pairs = jnp.any(theirs_surely & ~mine) & jnp.any(mine_surely & ~theirs)
    pairs &= which < len(ends)
    spares = tools.visible & ~mine
    theirs = jnp.where(pairs, theirs, spares)
    theirs_surely = jnp.where(pairs, theirs_surely, spares) & works
    return _Crossing(mine_surely & ~theirs, theirs_surely & ~mine, mine | theirs)


def _withhold(key: jax.Array, task: Task, pools: Pools, solvable: Solvable) -> Task:
    keys = jax.random.split(key, _NUM_KEYS[0])
    return _without(keys[1:], task, _cross(keys[0], task, pools), solvable)


def _break(key: jax.Array, task: Task, pools: Pools, solvable: Solvable) -> Task:
    keys = jax.random.split(key, _NUM_KEYS[1])
    rows = _cross(keys[0], task, pools)
    return _broken(keys[1:], task, pools, rows, solvable)


def _contradict(key: jax.Array, task: Task, pools: Pools, solvable: Solvable) -> Task:
    keys = jax.random.split(key, _NUM_KEYS[2])
    rows = _cross(keys[0], task, pools)
    return _contradicted(keys[1:], task, pools, rows, solvable)


_NUM_KEYS = 3, 6, 5  # that the three changes use; the first one draws the other request


def _any(key: jax.Array, task: Task, pools: Pools, solvable: Solvable) -> Task:
    """Make one of the three changes; withhold a tool if it finds no room."""
    choice, key, again = jax.random.split(key, 3)
    choice = jax.random.randint(choice, (), 0, len(_NUM_KEYS))
    of_withheld, of_broken, of_contradicted = (
        jax.random.split(key, num) for num in _NUM_KEYS
    )
    first = jnp.stack([of_withheld[0], of_broken[0], of_contradicted[0]])[choice]
    again = jax.random.split(again, _NUM_KEYS[0])
    # What is done twice is compiled once.
    rows = jax.vmap(lambda key: _cross(key, task, pools))(jnp.stack([first, again[0]]))
    both = jax.vmap(_without, (0, None, 0, None))(
        jnp.stack([of_withheld[1:], again[1:]]), task, rows, solvable
    )
    of_first = jax.tree.map(lambda x: x[0], rows)
    withheld, otherwise = (jax.tree.map(lambda x, i=i: x[i], both) for i in (0, 1))
    kinds = [
        withheld,
        _broken(of_broken[1:], task, pools, of_first, solvable),
        _contradicted(of_contradicted[1:], task, pools, of_first, solvable),
    ]
    new = jax.tree.map(lambda *x: jax.lax.select_n(choice, *x), *kinds)
    return select(equal(new, task), otherwise, new)


def _without(keys: jax.Array, task: Task, rows: _Crossing, solvable: Solvable) -> Task:
    """Withhold a tool."""
    which, fill = keys
    tool = pick(which, jnp.where(solvable, rows.other, rows.own))
    gone = alike(task, tool)
    num = jnp.maximum(jnp.sum(task.tools.visible), jnp.sum(rows.either) - 1)
    new = document(task, fill, rows.either, num, never=gone)
    # It also fails for good, which keeps later perturbations from documenting it again.
    failures = jnp.where(gone, FOREVER, task.faults.failures)
    return select(tool >= 0, edit_faults(new, failures=failures), task)


def _broken(
    keys: jax.Array, task: Task, pools: Pools, rows: _Crossing, solvable: Solvable
) -> Task:
    """Break a tool that the request needs, and one that the other request needs."""
    which, others, fill, words, place = keys
    tool, other = pick(which, rows.own), pick(others, rows.other)
    failures = task.faults.failures
    dead = alike(task, tool) | alike(task, other)
    failures = jnp.where(dead, FOREVER, failures)
    task, old = _documented(fill, task, rows), task
    # The documents have a second tool either way.
    source, row = jnp.where(solvable, tool, other), spare(task)
    name = other_name(task, words, pools, source)
    copied = copy_row(task, source, row)
    copy = copied.tools
    place = jax.random.randint(place, (), 0, copy.place.shape[0])
    added = edit_tools(
        edit_faults(copied, failures=failures.at[row].set(0)),
        name=copy.name.at[row].set(name),
        place=copy.place.at[row].set(place),
        visible=copy.visible.at[row].set(True),
    )
    ok = (tool >= 0) & (other >= 0) & (row >= 0) & (name > 0)
    return select(ok, added, old)


def _contradicted(
    keys: jax.Array, task: Task, pools: Pools, rows: _Crossing, solvable: Solvable
) -> Task:
    """Let a tool and a new one need each other's code."""
    which, others, fill, gate = keys
    free = task.tools.code_from < 0
    tool, other = pick(which, rows.own & free), pick(others, rows.other & free)
    task, old = _documented(fill, task, rows), task
    gated, row = with_gate(gate, task, pools.gates)
    bound = jnp.where(solvable, other, tool)
    code_from = jnp.where(alike(task, bound), row, gated.tools.code_from)
    code_from = code_from.at[row].set(bound)
    ok = (tool >= 0) & (other >= 0) & (row >= 0)
    return select(ok, edit_tools(gated, code_from=code_from), old)


def _documented(key: jax.Array, task: Task, rows: _Crossing) -> Task:
    """Document what either request needs, and leave room for one document more."""
    num = jnp.maximum(jnp.sum(task.tools.visible) - 1, jnp.sum(rows.either))
    return document(task, key, rows.either, num, never=jnp.zeros_like(rows.own))
