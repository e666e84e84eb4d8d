"""Worlds that change while the agent acts: tools that come and go, and requests.

The clock of an episode counts the steps that have been done. From some reading of it on
a tool is gone, and another one may take its place: under a new name, or under the same
name with other arguments. After its first right answer the user may change a constant
of the request, so that the steps that depend on it have to be done again.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.tools import conditions
from openagent_jax.environments.tools.types import FOREVER, Task

# The most tools of a task that cease to work after the first step: one for each entry
# of the catalogue that replaces a tool.
MAX_WINDOWS = 4


def as_changed(task: Task, changed: Bool[Array, ""] | bool = True) -> Task:
    """Return a task with the constants that the user wants by now."""
    change = task.faults.change
    here = (jnp.arange(len(task.constants)) == change.constant) & changed
    return replace(
        task,
        constants=jnp.where(here, change.value, task.constants),
        said=jnp.where(here, change.value, task.said),
    )


def _uses(task: Task) -> Bool[Array, "C C"]:
    """Return whether step c takes a result of step b, at [c, b]."""
    uses = jnp.any(task.from_step(task.goal.source), axis=1)
    return uses & (task.goal.tool >= 0)[:, None]


def _closed(relation: Bool[Array, "C C"]) -> Bool[Array, "C C"]:
    """Return the transitive closure of a relation."""
    for _ in range(max(1, int(np.ceil(np.log2(len(relation)))))):
        relation |= jnp.any(relation[:, :, None] & relation[None], axis=1)
    return relation


def dependent(task: Task, constant: Int[Array, "..."]) -> Bool[Array, "... C"]:
    """Return the steps that use a constant, themselves or by others."""
    takes = _closed(_uses(task))

    def of(constant):
        uses = jnp.any(task.goal.source == constant, axis=1) & (constant >= 0)
        uses &= task.goal.tool >= 0
        return uses | jnp.any(takes & uses[None], axis=1)

    return jnp.vectorize(of, signature="()->(c)")(constant)


def again(task: Task) -> Bool[Array, "C"]:
    """Return the steps that a change of the request asks for once more."""
    return dependent(task, task.faults.change.constant)


def gone(task: Task, clock: Int[Array, ""]) -> Bool[Array, "N"]:
    """Return the rows that have ceased to work."""
    return clock >= task.faults.gone_at


def there(task: Task, clock: Int[Array, ""]) -> Bool[Array, "N"]:
    """Return the rows that can be called at some time."""
    is_gone = gone(task, clock)
    leads = (is_gone | task.faults.deprecated) & task.tools.visible
    return (task.tools.visible & ~is_gone) | successors(task, leads)


def new_tool(task: Task, clock: Int[Array, ""]) -> Int[Array, ""]:
    """Return the row that a list of new tools names at some time; -1 for none."""
    silent = gone(task, clock) & task.tools.visible & ~task.faults.guided
    found = successors(task, silent)
    return jnp.where(jnp.any(found), jnp.argmax(found), -1)


def offered(task: Task) -> Bool[Array, "N"]:
    """Return the rows that are documented, or that feedback or a list will name."""
    tools, faults = task.tools, task.faults
    listed = (faults.lister >= 0) & tools.visible[faults.lister]
    named = (faults.guided | listed) & (faults.gone_at < FOREVER) & tools.visible
    return tools.visible | successors(task, named)


def detours(task: Task) -> Int[Array, "N"]:
    """Return how many calls it takes to learn the name of each row: an error, or a list
    of new tools, names one that no document does."""
    return (offered(task) & ~task.tools.visible).astype(jnp.int32)


def successors(task: Task, rows: Bool[Array, "N"]) -> Bool[Array, "N"]:
    """Return the rows that replace some rows."""
    row = jnp.arange(len(rows))
    to = task.faults.moved_to[:, None] == row[None]
    return jnp.any(to & rows[:, None], axis=0)


def saved(
    task: Task, todo: Bool[Array, "C"], again: Bool[Array, "C"], used: Int[Array, "C"]
) -> Int[Array, ""]:
    """Return how many of the detours of a plan can be avoided by an order of steps.

    A tool that ceases to work later can be used before that, if what comes before its
    last use leaves time enough; of several, all have to fit together. These are unit
    tasks with deadlines that are ordered in part: some of them can be done in time if
    for each deadline the tasks that are due by then, and all before them, are not more
    than it allows.

    Args:
      task: the task.
      todo: the steps to do.
      again: the steps to do once more, after the request has changed.
      used: the row that the plan uses for each step. Of tools that cease to work, it
        uses the successor.
    """
    faults, tools = task.faults, task.tools
    num = len(todo)
    own = jnp.eye(num, dtype=bool) & todo[:, None]
    uses = _uses(task) & todo[None]
    before = own | _closed(uses | conditions.needs(task) & todo[:, None] & todo[None])
    # What comes no later than each step, the first time and the second: [2, C, 2 C].
    once = jnp.pad(before, ((0, 0), (0, num)))
    twice = jnp.concatenate(
        [jnp.broadcast_to(todo, (num, num)), (own | _closed(uses)) & again[None]],
        axis=1,
    )
    closure = jnp.stack([once, twice & again[:, None]])

    ends = (faults.gone_at > 0) & (faults.gone_at < FOREVER) & tools.visible
    # The earliest first.
    num_windows = min(MAX_WINDOWS, len(faults.gone_at))
    rows = jnp.argsort(jnp.where(ends, faults.gone_at, FOREVER))[:num_windows]
    is_use = (used[None] == faults.moved_to[rows][:, None]) & todo[None]
    is_use &= ends[rows][:, None]
    last = jnp.any(closure[None] & is_use[:, None, :, None], axis=(1, 2))
    # A deprecated tool is called once to learn of its successor.
    size = jnp.where(is_use, jnp.sum(once, axis=1)[None], 2 * num + 1)
    first = once[jnp.argmin(size, axis=1)]
    due = jnp.where(faults.deprecated[rows][:, None], first, last)

    # All sets of the tools.
    chosen = np.indices((2,) * num_windows).reshape(num_windows, -1).T.astype(bool)
    work, fits = jnp.zeros((len(chosen), 2 * num), bool), jnp.ones(len(chosen), bool)
    for i, deadline in enumerate(faults.gone_at[rows]):
        work |= chosen[:, i, None] & due[i][None]
        fits &= ~chosen[:, i] | (jnp.sum(work, axis=1) <= deadline)
    gain = detours(task)[faults.moved_to[rows]] * jnp.any(is_use, axis=1)
    return jnp.max(jnp.where(fits, chosen @ gain, 0))
