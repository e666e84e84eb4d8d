"""Results in pages: a call shows some records of a list, and the cursor of the next.

A call without a cursor shows the first page. While there are more records, a page holds
a cursor; a call with the same arguments and that cursor shows the next page. The last
page has no cursor. Cursors are hashes of the call and the page, so that they cannot be
guessed: a page is only reached by way of all pages before it. Any other cursor, such as
that of another call, is a wrong argument.

How far a goal has to read depends on what it uses: the number of records, or the best
one, is known after the last page; another value is known with the page that shows it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax import hashing
from openagent_jax.domains.limits import MAX_PAGES

ALL = MAX_PAGES - 1  # `Pages.last` of a value that is known after the last page
_SALT = 4 << 20  # added to the hash of a call, as those of `result_lists`


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pages:
    """How the tools of a task divide their results.

    A row of zeros is that of a tool whose results are whole.
    """

    size: Int[Array, "N"]  # records of a page; 0: all records are on one
    # 1 + the number of the record of the divided list that a field is of; 0: of none.
    record: Int[Array, "N F"]
    stride: Int[Array, "N"]  # fields of such a record
    cursor: Int[Array, "N"]  # 1 + the argument that takes a cursor; 0: none
    next: Int[Array, "N"]  # 1 + the field that returns the next cursor; 0: none
    last: Int[Array, "N V"]  # the page with which each value of a result is known

    def is_cursor(self, num_args: int) -> Bool[Array, "N A"]:
        """Return which arguments take a cursor."""
        return self.cursor[:, None] == 1 + jnp.arange(num_args)[None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Reading:
    """How far the results of the steps of a goal have been read."""

    read: Int[Array, "C"]  # pages that have been shown, from the first one on
    needed: Int[Array, "C"]  # pages that show what the goal needs


class Page(NamedTuple):
    """What one call shows of a result."""

    number: Int[Array, ""]  # from 0; -1: the cursor is wrong
    fields: Int[Array, "F"]


def without_cursor(
    pages: Pages, tool: Int[Array, ""], args: Int[Array, "A"]
) -> tuple[Int[Array, "A"], Int[Array, ""]]:
    """Return the arguments that a result depends on, and the cursor; 0 for none."""
    is_cursor = pages.is_cursor(args.shape[0])[tool]
    return jnp.where(is_cursor, 0, args), jnp.sum(jnp.where(is_cursor, args, 0))


def num_pages(
    pages: Pages, tool: Int[Array, ""], values: Int[Array, "V"]
) -> Int[Array, ""]:
    """Return on how many pages all values of a result are."""
    record, size = pages.record[tool], jnp.maximum(pages.size[tool], 1)
    records = jnp.max(jnp.where(values[: record.shape[0]] >= 0, record, 0))
    return jnp.maximum(-(-records // size), 1)


def call_hash(
    world: UInt[Array, ""], relation: Int[Array, ""], args: Int[Array, "A"]
) -> UInt[Array, ""]:
    """Return the hash of a call, of which its result is a function."""
    value = hashing.mix(world, relation)
    for i in range(args.shape[0]):
        value = hashing.mix(value, args[i])
    return value


def cursors(
    pages: Pages,
    call: UInt[Array, ""],
    tool: Int[Array, ""],
    arg_low: Int[Array, "N A"],
    arg_high: Int[Array, "N A"],
) -> Int[Array, "_"]:
    """Return the cursor of each page that a result may have; 0 for the first.

    They differ from each other, and none reveals another.

    Args:
      pages: how the tools divide their results.
      call: the hash of the call, without a cursor.
      tool: the row of the called tool.
      arg_low: the first value of each argument of each tool.
      arg_high: one past its last value.
    """
    page, a = jnp.arange(MAX_PAGES), jnp.maximum(pages.cursor[tool] - 1, 0)
    low, high = arg_low[tool, a], arg_high[tool, a]
    value = hashing.mix(hashing.mix(call, jnp.int32(_SALT)), page)
    groups = jnp.maximum((high - low) // MAX_PAGES, 1).astype(jnp.uint32)
    symbol = low + MAX_PAGES * (value % groups).astype(jnp.int32) + page
    return jnp.where(page > 0, symbol, 0)


def turn(
    pages: Pages,
    tool: Int[Array, ""],
    values: Int[Array, "V"],
    every: Int[Array, "_"],
    cursor: Int[Array, ""],
) -> Page:
    """Return what a call with a cursor shows.

    Args:
      pages: how the tools divide their results.
      tool: the row of the called tool.
      values: all values of the result.
      every: the `cursors` of the call.
      cursor: the cursor that it gives; 0 for none.
    """
    num, record = num_pages(pages, tool, values), pages.record[tool]
    right = (every == cursor) & (jnp.arange(MAX_PAGES) < num)
    number = jnp.where(jnp.any(right), jnp.argmax(right), -1).astype(jnp.int32)
    before = jnp.maximum(number, 0) * pages.size[tool]
    # The records of a page take the fields of the first records.
    field = jnp.arange(record.shape[0])
    moved = values[jnp.minimum(field + before * pages.stride[tool], len(field) - 1)]
    inside = record + before <= jnp.max(record)
    inside &= (record <= pages.size[tool]) & (record > 0)
    fields = jnp.where(inside, moved, -1)
    fields = jnp.where(record > 0, fields, values[: len(field)])
    following = jnp.where(number + 1 < num, every[(number + 1) % MAX_PAGES], -1)
    is_next = pages.next[tool] == 1 + field
    return Page(number, jnp.where(is_next, following, fields))


def start(
    pages: Pages,
    goal_tool: Int[Array, "C"],
    sources: Int[Array, "..."],
    values: Int[Array, "C V"],
) -> Reading:
    """Return the state before the first call.

    Args:
      pages: how the tools divide their results.
      goal_tool: the tools of the steps.
      sources: all values of results that the goal uses, as `c * V + v`; negative
        numbers stand for none.
      values: the results of the steps.
    """
    tool = jnp.maximum(goal_tool, 0)
    num = jax.vmap(lambda n, value: num_pages(pages, n, value))(tool, values)
    step, value = jnp.divmod(jnp.maximum(sources.reshape(-1), 0), values.shape[1])
    last = jnp.where(sources.reshape(-1) >= 0, pages.last[tool[step], value], 0)
    needed = jnp.zeros_like(goal_tool).at[step].max(last)
    return Reading(jnp.zeros_like(goal_tool), jnp.minimum(needed + 1, num))


def noted(reading: Reading, shown: Bool[Array, "C"], page: Int[Array, ""]) -> Reading:
    """Return the state after a call has shown a page of the results of some steps."""
    is_next = shown & (reading.read == page)
    return Reading(reading.read + is_next, reading.needed)


def complete(reading: Reading) -> Bool[Array, "C"]:
    """Return the steps whose results have been read as far as the goal needs."""
    return reading.read >= reading.needed


def num_further(reading: Reading, steps: Bool[Array, "C"]) -> Int[Array, ""]:
    """Return the calls that some steps need besides one for each."""
    return jnp.sum(jnp.where(steps, reading.needed - 1, 0))
