"""Records that calls create, change and delete, and an overlay that holds the changes.

Every record of a table exists or not, and has a value in each column, by a hash of the
world's seed. A call touches one record. `Cells` holds the few records that calls have
changed or read since, so that the state of an episode stays small; where it has no room
for another change, the episode can no longer succeed.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax import hashing
from openagent_jax.text import scalars, style

SPARE = 4  # wrong records that the overlay has room for, besides those of the goal
_SALT = -7  # no relation has this number, so columns differ from results


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Access:
    """What the tools of a task do to records; E is the number of columns of a table.

    A row of zeros is that of a tool that touches no record.
    """

    table: Int[Array, "N"]  # numbered from 1; 0: none
    # Where the key is: an argument, or A + f for result field f, which a call that
    # creates a record draws.
    key: Int[Array, "N"]
    present: Bool[Array, "N"]  # whether the records of the table exist initially
    creates: Bool[Array, "N"]
    deletes: Bool[Array, "N"]
    reads: Int[Array, "N F"]  # 1 + the column that a result is; 0: it is none
    source: Int[Array, "N E"]  # 1 + the argument that a column is written from; 0: none
    sign: Int[Array, "N E"]  # 0: it is set; 1: the argument is added; -1: subtracted
    # The range of the initial values of each column; low == high: no such column.
    initial_low: Int[Array, "N E"]
    initial_high: Int[Array, "N E"]
    # The range that a column keeps to when arguments are added to it.
    low: Int[Array, "N E"]
    high: Int[Array, "N E"]

    @property
    def writes(self) -> Bool[Array, "N"]:
        """Whether a tool changes the record that it touches."""
        return self.creates | self.deletes | jnp.any(self.source > 0, axis=1)

    @property
    def adds(self) -> Bool[Array, "N"]:
        """Whether a tool adds to a column, or subtracts from it."""
        return jnp.any((self.source > 0) & (self.sign != 0), axis=1)

    def kept(self, num_args: int) -> Bool[Array, "N A"]:
        """Whether an argument is the key of a record, or written to a column.

        What else a call is given, such as who is paid or told, cannot be seen from the
        record, and no call undoes it.
        """
        argument = jnp.arange(num_args)
        is_key = self.key[:, None] == argument[None]
        written = self.source[:, None] == 1 + argument[None, :, None]  # [N, A, E]
        return is_key | jnp.any(written, axis=2)


class Record(NamedTuple):
    """A record as it is, and as it was initially; leading axes as for its key."""

    alive: Bool[Array, ""]
    columns: Int[Array, "E"]  # the initial ones if it does not exist
    was_alive: Bool[Array, ""]
    was: Int[Array, "E"]

    @property
    def is_changed(self) -> Bool[Array, ""]:
        differs = jnp.any(self.columns != self.was, axis=-1)
        return (self.alive != self.was_alive) | differs


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cells:
    """The records that differ from the initial world, and some that have been read."""

    table: Int[Array, "M"]  # 0: the row is free
    key: Int[Array, "M"]
    record: Record  # leading axis M
    seen: Bool[Array, "M E"]  # whether a call has shown the initial value of a column


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Steps:
    """The records that the steps of a goal touch, as all of its steps leave them."""

    key: Int[Array, "C"]
    record: Record  # leading axis C
    # Whether a step needs its own call, as no record keeps one of its arguments.
    own_call: Bool[Array, "C"]


class Touch(NamedTuple):
    """What a call does to a record."""

    status: Int[Array, ""]  # see `text.style`
    key: Int[Array, ""]
    before: Record
    after: Record
    values: Int[Array, "F"]  # the results of the call, and what is derived from them


def untouched(num_tools: int, num_fields: int, num_columns: int) -> Access:
    """Return what tools do that touch no record, in NumPy."""
    none, no = np.zeros(num_tools, np.int32), np.zeros(num_tools, bool)
    of_columns = np.zeros((6, num_tools, num_columns), np.int32)
    reads = np.zeros((num_tools, num_fields), np.int32)
    arrays: Any = (none, none.copy(), no, no.copy(), no.copy(), reads, *of_columns)
    return Access(*arrays)


def empty(num: int, num_columns: int) -> Cells:
    """Return an overlay of the initial world with room for some records."""
    no, zero = jnp.zeros(num, bool), jnp.zeros((num, num_columns), jnp.int32)
    none = jnp.zeros(num, jnp.int32)
    return Cells(none, none, Record(no, zero, no, zero), zero > 0)


def initial(
    access: Access, world: UInt[Array, ""], tool: Int[Array, ""], key: Int[Array, ""]
) -> Record:
    """Return a record of the table that a tool touches as it is in the initial world.

    Args:
      access: what the tools do to records.
      world: the seed of the world.
      tool: the row of the tool.
      key: the key of the record.
    """
    low, high = access.initial_low[tool], access.initial_high[tool]
    value = hashing.mix(
        hashing.mix(hashing.mix(world, jnp.int32(_SALT)), access.table[tool]), key
    )
    value = hashing.mix(value, jnp.arange(low.shape[0]))
    size = jnp.maximum(high - low, 1).astype(jnp.uint32)
    drawn = scalars.canonical(low + (value % size).astype(jnp.int32))
    columns = jnp.where(high > low, drawn, 0)
    alive = access.present[tool]
    return Record(alive, columns, alive, columns)


def find(
    access: Access,
    world: UInt[Array, ""],
    cells: Cells,
    tool: Int[Array, ""],
    key: Int[Array, ""],
) -> Record:
    """Return a record of the table that a tool touches as it is now."""
    here = (cells.table == access.table[tool]) & (cells.key == key)
    held = jax.tree.map(lambda x: x[jnp.argmax(here)], cells.record)
    first = initial(access, world, tool, key)
    return jax.tree.map(lambda x, y: jnp.where(jnp.any(here), x, y), held, first)


def touch(
    access: Access,
    world: UInt[Array, ""],
    cells: Cells,
    tool: Int[Array, ""],
    args: Int[Array, "A"],
    values: Int[Array, "F"],
) -> Touch:
    """Return what a call does to its record, whether or not it touches one.

    Args:
      access: what the tools do to records.
      world: the seed of the world.
      cells: the records that differ from the initial world.
      tool: the row of the called tool.
      args: its arguments.
      values: its results, without regard to records.
    """
    key = jnp.concatenate([args, values])[access.key[tool]]
    before = find(access, world, cells, tool, key)
    source, sign = access.source[tool], access.sign[tool]
    creates, deletes = access.creates[tool], access.deletes[tool]
    given = args[jnp.maximum(source - 1, 0)]
    added = scalars.plus(before.columns, given, sign)
    fits = scalars.within(added, access.low[tool], access.high[tool])
    written = jnp.where(sign == 0, given, added)
    columns = jnp.where(source > 0, written, before.columns)
    after = before._replace(
        alive=(before.alive | creates) & ~deletes,
        columns=jnp.where(deletes, before.was, columns),
    )
    touches = access.table[tool] > 0
    known = jnp.where(creates, style.BAD_ARGUMENT, style.NO_RECORD)
    status = jnp.where(before.alive == creates, known, style.OK)
    beyond = jnp.any((source > 0) & (sign != 0) & ~fits)
    status = jnp.where((status == style.OK) & beyond, style.BAD_ARGUMENT, status)
    # A call returns a record as it leaves it, or as it was if it deletes it.
    reads = access.reads[tool]  # none of the values that are derived from lists
    reads = jnp.pad(reads, (0, values.shape[0] - reads.shape[0]))
    shown = jnp.where(deletes, before.columns, after.columns)
    read = shown[jnp.maximum(reads - 1, 0)]
    return Touch(
        jnp.where(touches, status, style.OK),
        key,
        before,
        after,
        jnp.where(touches & (reads > 0), read, values),
    )


def write(
    cells: Cells,
    table: Int[Array, ""],
    key: Int[Array, ""],
    record: Record,
    seen: Bool[Array, "E"],
) -> tuple[Cells, Bool[Array, ""]]:
    """Note a record as a call has left it.

    Args:
      cells: the overlay before.
      table: the table; 0 notes nothing.
      key: the key of the record.
      record: the record after the call.
      seen: the columns whose initial values the call has shown.

    Returns:
      The overlay, and whether it had room. A record that is only read is forgotten
      where there is none.
    """
    here = (cells.table == table) & (cells.key == key)
    free, spare = cells.table == 0, ~cells.record.is_changed
    rank = jnp.where(here, 0, jnp.where(free, 1, jnp.where(spare, 2, 3)))
    m = jnp.argmin(rank)
    room, there = rank[m] < 3, rank[m] == 0
    hit = (table > 0) & room & (there | record.is_changed | jnp.any(seen))
    seen |= there & cells.seen[m]

    def put(old: Array, new: Array) -> Array:
        return old.at[m].set(jnp.where(hit, new, old[m]))

    noted = Cells(
        put(cells.table, table),
        put(cells.key, key),
        jax.tree.map(put, cells.record, record),
        put(cells.seen, seen),
    )
    return noted, room | (table == 0) | ~record.is_changed


def shown(access: Access, tool: Int[Array, ""], call: Touch) -> Bool[Array, "E"]:
    """Return the columns whose initial values the results of a call have shown."""
    num_columns = access.source.shape[1]
    column = 1 + jnp.arange(num_columns)
    returned = jnp.any(access.reads[tool][:, None] == column[None], axis=0)
    record = call.before
    same = (call.after.columns == record.was) | access.deletes[tool]
    return returned & (record.columns == record.was) & same


def is_of_step(
    access: Access, goal_tool: Int[Array, "C"], steps: Steps, cells: Cells
) -> Bool[Array, "M C"]:
    """Return whether a record of the overlay is the one that a step touches."""
    table = jnp.where(goal_tool >= 0, access.table[goal_tool], 0)
    same = cells.table[:, None] == table[None]
    return same & (cells.key[:, None] == steps.key[None]) & (table > 0)[None]


def targets(
    access: Access, goal_tool: Int[Array, "C"], steps: Steps, cells: Cells
) -> Record:
    """Return the records of the overlay as the goal leaves them; see `Cells.record`."""
    of_step = is_of_step(access, goal_tool, steps, cells)
    mine, first = jnp.any(of_step, axis=1), jnp.argmax(of_step, axis=1)
    wanted = jax.tree.map(lambda x: x[first], steps.record)
    was = cells.record
    return was._replace(
        alive=jnp.where(mine, wanted.alive, was.was_alive),
        columns=jnp.where(mine[:, None], wanted.columns, was.was),
    )


def as_wanted(
    access: Access, goal_tool: Int[Array, "C"], steps: Steps, cells: Cells
) -> Bool[Array, ""]:
    """Return whether no record differs from what the goal makes of the world.

    It does not tell whether the goal's own records have been changed at all; see
    `in_place`.
    """
    wanted, now = targets(access, goal_tool, steps, cells), cells.record
    same = (now.alive == wanted.alive) & jnp.all(now.columns == wanted.columns, axis=1)
    return jnp.all(same | (cells.table == 0) | ~now.is_changed)


def now(
    access: Access,
    world: UInt[Array, ""],
    goal_tool: Int[Array, "C"],
    steps: Steps,
    cells: Cells,
) -> Record:
    """Return the record that each step touches, as it is now."""

    def one(tool: Array, key: Array) -> Record:
        return find(access, world, cells, jnp.maximum(tool, 0), key)

    return jax.vmap(one)(goal_tool, steps.key)


def in_place(
    access: Access, goal_tool: Int[Array, "C"], steps: Steps, records: Record
) -> Bool[Array, "C"]:
    """Return whether what each step writes is there; True for steps that write nothing.

    Args:
      access: what the tools do to records.
      goal_tool: the tools of the steps.
      steps: the records as the goal leaves them.
      records: the records as they are; see `now`.
    """
    own = access.source[goal_tool] > 0
    same = jnp.all(~own | (records.columns == steps.record.columns), axis=1)
    there = (records.alive == steps.record.alive) & (same | ~records.alive)
    return there | ~access.writes[goal_tool] | (goal_tool < 0)


def is_astray(call: Touch, wanted: Record) -> Bool[Array, ""]:
    """Return whether a call has changed something to neither its initial value nor the
    one that the goal leaves."""
    old, new = call.before, call.after
    alive = (new.alive != wanted.was_alive) & (new.alive != wanted.alive)
    column = (new.columns != wanted.was) & (new.columns != wanted.columns)
    # The columns of a record that the goal deletes may be anything until then.
    column &= (new.columns != old.columns) & new.alive
    return (alive & (new.alive != old.alive)) | jnp.any(column)


def step_order(
    access: Access, goal_tool: Int[Array, "C"], steps: Steps
) -> Bool[Array, "C C"]:
    """Return whether step b has to wait for step a, at [a, b], as one of them changes
    what the other one reads or changes."""
    num = goal_tool.shape[0]
    table = jnp.where(goal_tool >= 0, access.table[goal_tool], 0)
    same = (table[:, None] == table[None]) & (table > 0)[None]
    same &= steps.key[:, None] == steps.key[None]
    whole = access.creates[goal_tool] | access.deletes[goal_tool]
    own = (access.source[goal_tool] > 0) | whole[:, None]  # [C, E]
    column = 1 + jnp.arange(own.shape[1])
    reads = access.reads[goal_tool][:, :, None] == column[None, None]
    uses = own | jnp.any(reads, axis=1)
    meets = jnp.any(own[:, None] & uses[None], axis=2)
    meets |= whole[:, None]  # also a step that uses no column needs the record
    return same & (meets | meets.T) & jnp.triu(jnp.ones((num, num), bool), 1)


def start(num_steps: int, num_columns: int) -> Cells:
    """Return the overlay of an episode before its first call."""
    return empty(num_steps + SPARE, num_columns)
