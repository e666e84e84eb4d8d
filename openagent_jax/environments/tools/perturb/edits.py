"""The pools that perturbations of tool worlds draw from, and edits of tasks."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax import hashing
from openagent_jax.domains.limits import MAX_PREREQUISITES
from openagent_jax.environments.tools import conditions
from openagent_jax.environments.tools.types import (
    FOREVER,
    NUM_REMARKS,
    Reworded,
    Task,
    TaskPools,
)
from openagent_jax.environments.tools.worlds.asides import Asides
from openagent_jax.perturb import pick
from openagent_jax.text.key_forms import KeyForms


@dataclass(frozen=True)
class Pools(TaskPools):
    """What perturbations of one task and split draw from.

    The pools of the training and the test split share no surface form.
    """

    opaque: Int[Array, "2"]  # range of names without meaning
    forms: Int[Array, "2"]  # range of forms of results
    wordings: Int[Array, "2"]  # range of wordings of errors
    # Notes on the source of a result: of one to follow, and of another one.
    notes: Int[Array, "2 X"]
    joints: Int[Array, "X"]  # what is between two requests that become one
    listers: Int[Array, "X 2"]  # name and description of tools that name new tools
    changes: Int[Array, "X 3"]  # texts around two values; see `types.Change`
    vague: Int[Array, "X"]  # what stands for a value that a request leaves out
    misspelt: Reworded  # the pieces of the request
    noisy_names: Reworded  # of each tool; by level and variant, see `noisy_names`
    worse_descriptions: Reworded  # the first piece of the description of each tool
    asides: Asides
    key_range: Int[Array, "2"]  # range of forms of keys of results
    keys: KeyForms
    special: Int[Array, "Y"]  # number of earlier texts that not all forms can write
    tabled: Bool[Array, ""]  # whether knowledge is that of training; see `knowledge`
    transfer: Callable[[jax.Array], Task]  # samples a task of another domain
    position: str = ""  # of the steps that faults befall; see `perturb.place`


# The faults of each tool.
OF_ROWS = (
    "failures",
    "moved_to",
    "gone_at",
    "guided",
    "deprecated",
    "form",
    "wording",
    "blanks",
    "new_code",
    "untold",
)

# The piece of a description that holds a note on the source of a result.
NOTE = 1
# The pieces that hold a remark on which value stands for another one.
FILING = slice(-NUM_REMARKS, -1)
_WORDING_SALT = 3  # of `hashing.hashed_key`


def edit_tools(task: Task, **fields) -> Task:
    """Return the task with some fields of `Task.tools` replaced."""
    return replace(task, tools=replace(task.tools, **fields))


def edit_faults(task: Task, **fields) -> Task:
    """Return the task with some fields of `Task.faults` replaced."""
    return replace(task, faults=replace(task.faults, **fields))


def worded(key: jax.Array, task: Task, pools: Pools) -> Task:
    """Word the errors of all tools as one interface of the split does.

    Perturbations that make tools fail call this, because policies have met the normal
    wording in training. Tools whose errors another perturbation has worded keep them.
    """
    old, (low, high) = task.faults.wording, pools.wordings
    drawn = hashing.hashed_key(key, _WORDING_SALT) % (high - low).astype(jnp.uint32)
    new = low + drawn.astype(jnp.int32)
    return edit_faults(task, wording=jnp.where(old == 0, new, old))


def rename(task: Task, name: Int[Array, "N"], hit: Bool[Array, "N"]) -> Task:
    """Give tools new names, except where two tools would then have one name.

    Tools without a document count too, since it may be added later.

    Args:
      task: the task.
      name: a new name for each row; 0 for none.
      hit: the rows to rename.
    """
    old = task.tools.name
    hit &= name > 0
    other = ~jnp.eye(len(old), dtype=bool)
    # Two rows of one tool, whose arguments change, keep one name.
    twin = drifted(task)
    first = jnp.where(twin >= 0, twin, jnp.arange(len(old)))
    name, hit = name[first], hit[first]
    other &= first[:, None] != first[None]

    def clashes(hit):
        new = jnp.where(hit, name, old)
        same = (new[:, None] == new[None]) & (new > 0)[:, None]
        return jnp.any(same & other, axis=1)

    # Taking back a new name may uncover another clash with the old one.
    for _ in range(4):
        hit &= ~clashes(hit)
    hit &= ~jnp.any(clashes(hit))
    return edit_tools(task, name=jnp.where(hit, name, old))


def has_own_tools(task: Task) -> Bool[Array, ""]:
    """Return whether the tools are still those that the synonyms of the pools are of.

    `domain_transfer` and `cross_domain_composition` replace them, and `pools` are those
    of the task before any perturbation.
    """
    return task.goal.kind >= 0


def fresh_name(task: Task, key: jax.Array, names: Int[Array, "Y"]) -> Int[Array, ""]:
    """Sample one of Y names that no tool has; 0 if there is none."""
    taken = jnp.any(names[:, None] == task.tools.name[None], axis=1)
    choice = pick(key, (names > 0) & ~taken)
    return jnp.where(choice >= 0, names[choice], 0)


def other_name(
    task: Task, key: jax.Array, pools: Pools, row: Int[Array, ""]
) -> Int[Array, ""]:
    """Sample a name that no tool has for a copy of a tool; 0 if there is none.

    It is a synonym of the name of the tool, or without meaning if there is none left.
    """
    synonyms = jnp.where(has_own_tools(task), pools.names[row], 0)
    name = fresh_name(task, key, synonyms)
    return jnp.where(name > 0, name, opaque_name(task, key, pools))


def opaque_name(task: Task, key: jax.Array, pools: Pools) -> Int[Array, ""]:
    """Sample a name without meaning that no tool has; 0 if a tool has it."""
    low, high = pools.opaque
    draw_key, pick_key = jax.random.split(jax.random.fold_in(key, 1))
    opaque = jax.random.randint(draw_key, (1,), low, high)
    return fresh_name(task, pick_key, opaque)


def in_use(task: Task) -> Bool[Array, "N"]:
    """Return the rows that are documented, or that a redirection leads to."""
    row = jnp.arange(task.tools.name.shape[0])
    moved = task.faults.moved_to
    return task.tools.visible | jnp.any(moved[:, None] == row[None], axis=0)


def needed(task: Task, rows: Bool[Array, "N"]) -> Bool[Array, "N"]:
    """Return some rows and all their prerequisites, and the list of new tools."""
    row = jnp.arange(rows.shape[0])
    rows |= row == task.faults.lister
    pointers = task.tools.code_from, task.tools.call_after
    before = [pointer[:, None] == row[None] for pointer in pointers]

    def more(_, rows):
        for points in before:
            rows |= jnp.any(points & rows[:, None], axis=0)
        return rows

    # Prerequisites of prerequisites. A loop compiles once.
    return jax.lax.fori_loop(0, MAX_PREREQUISITES, more, rows)


def drifted(task: Task) -> Int[Array, "N"]:
    """Return, for each row that is a tool with new arguments, the row of the old ones;
    -1 for all others."""
    name, moved = task.tools.name, task.faults.moved_to
    row = jnp.arange(len(name))
    is_old = (moved[:, None] == row[None]) & (name[:, None] == name[None])
    return jnp.where(jnp.any(is_old, axis=0), jnp.argmax(is_old, axis=0), -1)


def of_drift(task: Task) -> Bool[Array, "N"]:
    """Return both rows of each tool whose arguments change."""
    twin, row = drifted(task), jnp.arange(len(task.tools.name))
    return (twin >= 0) | jnp.any(twin[:, None] == row[None], axis=0)


def lasting(task: Task) -> Bool[Array, "N"]:
    """Return the rows that do not cease to work in the middle of an episode."""
    gone_at = task.faults.gone_at
    return (gone_at == 0) | (gone_at >= FOREVER)


def withheld(task: Task) -> Bool[Array, "N"]:
    """Return the rows whose documents were taken away for good."""
    return ~task.tools.visible & (task.faults.failures >= FOREVER)


def source_row(task: Task) -> Int[Array, "N"]:
    """Return the row that the domain has each tool in, of which others are copies."""
    relation = task.tools.relation
    return relation % relation.shape[0]


def other_relation(task: Task, row: Int[Array, ""]) -> Int[Array, ""]:
    """Return the relation of a new copy of a tool whose results are to differ."""
    relation, num = task.tools.relation, task.tools.relation.shape[0]
    same = source_row(task) == relation[row] % num
    return relation[row] % num + num * (
        1 + jnp.max(jnp.where(same, relation // num, 0))
    )


def alike(task: Task, row: Int[Array, ""]) -> Bool[Array, "N"]:
    """Return the rows that do what a row does, itself included; none for row -1."""
    relation = task.tools.relation
    return (relation == relation[row]) & (row >= 0)


def document(
    task: Task,
    key: jax.Array,
    rows: Bool[Array, "N"],
    num: Int[Array, ""],
    never: Bool[Array, "N"],
) -> Task:
    """Document some rows, and as many others as make up a number of documents.

    Those that are documented already come first among the others; of the rest, a random
    choice.

    Args:
      task: the task.
      key: PRNG key.
      rows: the rows to document.
      num: how many documents there are in all, unless `rows` are more.
      never: rows that are not to be documented, even if they are in `rows`; neither are
        those that were withheld before.
    """
    tools = task.tools
    redirected_to = in_use(task) & ~tools.visible
    never |= withheld(task) | redirected_to
    real = (tools.name > 0) & ~never
    order = jax.random.uniform(key, rows.shape) - tools.visible
    order = jnp.where(rows, -2.0, order)
    rank = jnp.argsort(jnp.argsort(jnp.where(real, order, 2.0)))
    must = rows & ~never
    visible = real & (must | (rank < jnp.maximum(num, jnp.sum(must))))
    return edit_tools(task, visible=visible | must)


def wanted(task: Task) -> Bool[Array, "N"]:
    """Return the rows that the goal names and that are documented."""
    row = jnp.arange(task.tools.visible.shape[0])
    named = jnp.any(task.goal.tool[:, None] == row[None], axis=0)
    return named & task.tools.visible


def placed_steps(task: Task, position: str) -> Bool[Array, "C"]:
    """Return the steps at a position in the order of the goal; all if it is ""."""
    valid = task.goal.tool >= 0
    if not position:
        return valid
    rank, last = jnp.cumsum(valid) - 1, jnp.sum(valid) - 1
    places = {"early": rank == 0, "mid": (rank > 0) & (rank < last)}
    here = places.get(position, rank == last)
    return valid & here & (last > 0)


def wanted_there(task: Task, pools: Pools) -> Bool[Array, "N"]:
    """Return the rows of `wanted` whose first step is at the position of the pools."""
    tool, row = task.goal.tool, jnp.arange(task.tools.visible.shape[0])
    is_step = tool[:, None] == row[None]
    first = jnp.argmax(is_step, axis=0)
    return wanted(task) & placed_steps(task, pools.position)[first]


def wanted_surely(task: Task) -> Bool[Array, "N"]:
    """Return the rows of `wanted` that are of use whether conditions hold or not."""
    if task.goal.when is None:
        return wanted(task)
    sure = conditions.of_use(task, task.goal.when[:, 0] < 0)
    tool = jnp.where(sure, task.goal.tool, -1)
    return wanted(replace(task, goal=replace(task.goal, tool=tool)))


def spare(task: Task) -> Int[Array, ""]:
    """Return a row that nothing refers to, for a new tool; -1 if there is none."""
    used = occupied(task)
    last = used.shape[0] - 1 - jnp.argmax(~used[::-1])
    return jnp.where(jnp.all(used), -1, last).astype(jnp.int32)


def occupied(task: Task) -> Bool[Array, "N"]:
    """Return the rows that are documented, or that something refers to."""
    tools = task.tools
    row = jnp.arange(tools.relation.shape[0])
    used = tools.visible | jnp.any(task.goal.tool[:, None] == row[None], axis=0)
    for pointer in (tools.code_from, tools.call_after, task.faults.moved_to):
        used |= jnp.any((pointer[:, None] == row[None]) & used[:, None], axis=0)
    return used | jnp.any(task.faults.moved_to[:, None] == row[None], axis=0)


def copy_row(task: Task, source: Array, target: Array) -> Task:
    """Return a task in which row `target` is a copy of row `source`, with its faults
    but for a replacement of it; the same task if `target` is -1."""
    row = jnp.arange(task.tools.relation.shape[0])
    is_copy = row == target
    source = jnp.where(is_copy, source, row)

    def take(x: Array) -> Array:
        return jnp.take(x, source, axis=0, mode="clip")

    faults = {name: take(getattr(task.faults, name)) for name in OF_ROWS}
    faults["moved_to"] = jnp.where(is_copy, -1, faults["moved_to"])
    faults["gone_at"] = jnp.where(is_copy, FOREVER, faults["gone_at"])
    for name in ("guided", "deprecated"):
        faults[name] &= ~is_copy
    task = replace(task, tools=jax.tree.map(take, task.tools))
    return edit_faults(task, **faults)


def with_gate(
    key: jax.Array, task: Task, texts: Int[Array, "X 2"]
) -> tuple[Task, Int[Array, ""]]:
    """Add a documented tool without arguments and results.

    Args:
      key: PRNG key.
      task: the task.
      texts: names and descriptions, one of which it gets.

    Returns:
      The task, and the row of the tool: -1, and the task has no such tool then, if
      there is no room for one or the names are all taken.
    """
    which, place = jax.random.split(key)
    tools, row = task.tools, spare(task)
    name = fresh_name(task, which, texts[:, 0])
    description = texts[jnp.argmax(texts[:, 0] == name), 1]
    row = jnp.where(name > 0, row, -1)
    text = jnp.zeros_like(tools.description[0]).at[0].set(description)
    place = jax.random.randint(place, (), 0, tools.place.shape[0])
    here = jnp.arange(tools.place.shape[0]) == row

    def put(old: Array, new: Array | int | bool = 0) -> Array:
        hit = jnp.expand_dims(here, tuple(range(1, old.ndim)))
        return jnp.where(hit, jnp.asarray(new, old.dtype), old)

    gated = edit_tools(
        task,
        **{
            **vars(jax.tree.map(put, tools)),
            "relation": put(tools.relation, row),
            "code": tools.code,
            "code_from": put(tools.code_from, -1),
            "call_after": put(tools.call_after, -1),
            "name": put(tools.name, name),
            "description": put(tools.description, text),
            "place": put(tools.place, place),
            "visible": put(tools.visible, True),
            "document": put(tools.document, -1),
        },
    )
    return gated, row


def variant(key: jax.Array, pool: Array) -> Array:
    """Sample one of the Y variants of each item, `[..., Y] -> [...]`."""
    return chosen(pool, choice_of(key, pool))


def choice_of(key: jax.Array, pool: Array) -> Array:
    """Sample the index of one of the Y variants of each item."""
    return jax.random.randint(key, pool.shape[:-1], 0, pool.shape[-1])


def chosen(pool: Array, choice: Array) -> Array:
    """Return the variant of each item that has an index, `[..., Y] -> [...]`."""
    return jnp.take_along_axis(pool, choice[..., None], axis=-1)[..., 0]
