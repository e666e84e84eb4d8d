"""Lists of records in results: how many there are, what they hold, and which is best.

A list has a field of the result for each column of each record that there can be:
`items.0.id`, `items.0.price`, `items.1.id`, ... How many records a call returns is a
function of the call; the fields of the others are -1. The values of one column differ
from each other, in random order, unless their type has too few values.

From a list, values are derived that no result shows: how many records it has, and a
column of the record that is largest or smallest by a column of numbers.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax import hashing
from openagent_jax.environments.tools.types import Lists
from openagent_jax.text import scalars

NONE, COUNT, MAX, MIN = range(4)  # operations of `Lists.derived`
OPERATIONS = {"count": COUNT, "max": MAX, "min": MIN}
# Added to the hash of a call, so that its parts are independent.
_LENGTH, _STRIDE, _ORDER, _CHANGE = 1 << 20, 2 << 20, 3 << 20, 5 << 20
_SMALLEST = jnp.iinfo(jnp.int32).min


def shift(
    value: UInt[Array, "F"], size: UInt[Array, "F"], changes: Bool[Array, ""] | bool
) -> UInt[Array, "F"]:
    """Return offsets that turn values into different ones of their ranges, modulo size.

    Args:
      value: hashes, of which the offsets are functions.
      size: how many values there are in each range.
      changes: whether values are to differ; if not, the offsets are 0.
    """
    distance = 1 + hashing.mix(value, jnp.int32(_CHANGE)) % jnp.maximum(size - 1, 1)
    return jnp.where(changes, distance, 0).astype(jnp.uint32)


def drawn(
    lists: Lists,
    call: UInt[Array, ""],
    low: Int[Array, "F"],
    high: Int[Array, "F"],
    changes: Bool[Array, ""] | bool = False,
) -> Int[Array, "V"]:
    """Return the fields that a call returns, and then the values derived from them.

    Args:
      lists: the lists of the tool.
      call: a hash of the call.
      low: the first value of each field.
      high: the end of the range of each field, exclusive; `low` if there is none.
      changes: whether to return other values, as they were before they changed.
    """
    field = jnp.arange(low.shape[0])
    size = jnp.maximum(high - low, 1).astype(jnp.uint32)
    # A random start and stride, as in `draw.distinct_symbols`, in random order. A field
    # of no list has its start.
    order = hashing.mix(hashing.mix(call, jnp.int32(_ORDER)), field)
    same = lists.column[:, None] == lists.column[None]
    earlier = order[None] < order[:, None]
    earlier |= (order[None] == order[:, None]) & (field[None] < field[:, None])
    rank = jnp.sum(same & earlier, axis=1).astype(jnp.uint32)
    most = jnp.maximum(lists.most, 1).astype(jnp.uint32)
    stride = hashing.mix(hashing.mix(call, jnp.int32(_STRIDE)), lists.column)
    stride = 1 + stride % jnp.maximum(size // most, 1)
    offset = hashing.mix(call, lists.column) % size
    offset += shift(hashing.mix(call, lists.column), size, changes)
    raw = low + ((offset + rank * stride) % size).astype(jnp.int32)

    spread = (lists.most - lists.least + 1).astype(jnp.uint32)
    length = hashing.mix(hashing.mix(call, jnp.int32(_LENGTH)), lists.first) % spread
    there = lists.record < lists.least + length.astype(jnp.int32)
    there = (high > low) & (there | (lists.most == 0))
    values = jnp.where(there, scalars.canonical(raw), -1)

    operation, compared, taken = jnp.moveaxis(lists.derived, -1, 0)
    member = (lists.column[None] == compared[:, None]) & there[None]
    signed = jnp.where((operation == MIN)[:, None], -raw[None], raw[None])
    best = jnp.argmax(jnp.where(member, signed, _SMALLEST), axis=1)
    of_best = jnp.where(jnp.any(member, axis=1), values[best + taken - compared], -1)
    count = scalars.code(0) + jnp.sum(member, axis=1)
    derived = jnp.where(operation == COUNT, count, of_best)
    return jnp.concatenate([values, jnp.where(operation == NONE, -1, derived)])
