"""The grammar of a call, checked over its JSON tokens.

A call is an object with a name and an object of arguments. The values of arguments are
scalars. With a depth of more than 1 they may also be objects and arrays, in which
scalars are the leaves; a small stack holds the containers that are open.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.text.json_tokens import (
    BARE,
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    NOTHING,
    OPEN,
    OPEN_LIST,
    STRING,
    Tokens,
)

# States of the grammar, named after what may come next.
_START, _KEY, _KEY_COLON, _KEY_VALUE, _MORE = range(5)
_ARG_OR_END, _ARG, _ARG_COLON, _VALUE, _ARG_MORE = range(5, 10)
_END, _FAIL, _ITEM, _ITEM_OR_END = range(10, 14)
_NUM_FLAT = _FAIL + 1  # states without those of arrays


class Call(NamedTuple):
    """Where the parts of a call are: indices of JSON tokens, or -1.

    K is the most leaves of its arguments, and M the depth. An empty object or array
    below the arguments counts as a leaf, whose value is the bracket that closes it.

    Attributes:
      well_formed: whether the grammar holds.
      keys: the keys of the name and of the arguments. The caller checks that they are
        "name" and "arguments".
      name: the name.
      paths: the keys of each leaf, outermost first; the last one is its own. That of an
        element of an array is the token with which the element begins.
      indices: for a key that is an index, that index; else -1.
      values: the value of each leaf.
    """

    well_formed: Bool[Array, ""]
    keys: Int[Array, "2"]
    name: Int[Array, ""]
    paths: Int[Array, "K M"]
    indices: Int[Array, "K M"]
    values: Int[Array, "K"]


class _Stack(NamedTuple):
    """The open containers of the arguments, outermost first, and what is in them."""

    level: Int[Array, ""]  # how many are open
    is_list: Bool[Array, "M"]
    key: Int[Array, "M"]  # the token of the key, or that begins the element
    index: Int[Array, "M"]  # of the element, if it is an array


def max_tokens(max_pairs: int, depth: int) -> int:
    """Return the most JSON tokens of a call with so many leaves."""
    return 11 + max_pairs * (4 + 5 * (depth - 1))


def check(json: Tokens, max_pairs: int, depth: int) -> Call:
    """Check the grammar.

    Args:
      json: the tokens of the call.
      max_pairs: K, the most leaves; a call with more is not well formed.
      depth: M, the depth of the arguments; neither is a call with deeper ones.
    """
    nested, row = depth > 1, jnp.arange(depth)
    pair = jnp.arange(max_pairs)

    def step(carry, item):
        state, key, keys, name, num, paths, indices, values, stack = carry
        kind, index = item
        text, bare = kind == STRING, kind == BARE
        opens, closes = kind == OPEN, kind == CLOSE
        colon, comma = kind == COLON, kind == COMMA

        def goes(condition, to, other: int | jax.Array = _FAIL):
            return jnp.where(condition, to, other)

        complete = jnp.all(keys >= 0)
        ends, next_, after, into = closes, _ARG, _MORE, _FAIL
        if nested:
            in_list = jnp.any(stack.is_list & (row == stack.level - 1))
            ends = jnp.where(in_list, kind == CLOSE_LIST, closes)
            next_ = jnp.where(in_list, _ITEM, _ARG)
            after = jnp.where(stack.level > 1, _ARG_MORE, _MORE)
            lists = (kind == OPEN_LIST) & (stack.level < depth)
            into = goes(opens & (stack.level < depth), _ARG_OR_END)
            into = goes(lists, _ITEM_OR_END, into)
        scalar = goes(text | bare, _ARG_MORE, into)
        table: list[int | jax.Array] = [_FAIL] * (_ITEM_OR_END + 1)
        table[_START] = goes(opens, _KEY)
        table[_KEY] = goes(text, _KEY_COLON)
        table[_KEY_COLON] = goes(colon, _KEY_VALUE)
        table[_KEY_VALUE] = goes(
            text & (keys[0] < 0), _MORE, goes(opens & (keys[1] < 0), _ARG_OR_END)
        )
        table[_MORE] = goes(comma & ~complete, _KEY, goes(closes & complete, _END))
        table[_ARG_OR_END] = goes(text, _ARG_COLON, goes(closes, after))
        table[_ARG] = goes(text, _ARG_COLON)
        table[_ARG_COLON] = goes(colon, _VALUE)
        table[_VALUE] = scalar
        table[_ARG_MORE] = goes(comma, next_, goes(ends, after))
        table[_END] = goes(kind == NOTHING, _END)
        table[_ITEM] = scalar
        table[_ITEM_OR_END] = goes(kind == CLOSE_LIST, after, scalar)
        table = table if nested else table[:_NUM_FLAT]
        new = jnp.stack(list(map(jnp.int32, table)))[state]

        key = jnp.where(new == _KEY_COLON, index, key)
        is_text = (state == _KEY_VALUE) & (new == _MORE)
        is_object = (state == _KEY_VALUE) & (new == _ARG_OR_END)
        keys = jnp.where(jnp.stack([is_text, is_object]), key, keys)
        name = jnp.where(is_text, index, name)
        if nested:
            stack, leaf, path = _moved(stack, state, new, kind, index)
            new = jnp.where(leaf & (num >= max_pairs), _FAIL, new)
            here = leaf & (pair == num)
            paths = jnp.where(here[:, None], path[0][None], paths)
            indices = jnp.where(here[:, None], path[1][None], indices)
            values = jnp.where(here, index, values)
            num = num + leaf
        else:
            here = (new == _ARG_COLON) & (pair == num)
            paths = jnp.where(here[:, None], index, paths)
            values = jnp.where((new == _ARG_MORE) & (pair == num), index, values)
            new = jnp.where((new == _ARG_COLON) & (num >= max_pairs), _FAIL, new)
            num = num + (new == _ARG_MORE)
        return (new, key, keys, name, num, paths, indices, values, stack), None

    none = jnp.full(max_pairs, -1, jnp.int32)
    no_path = jnp.full((max_pairs, depth), -1, jnp.int32)
    no_key = jnp.full(depth, -1, jnp.int32)
    start = (
        jnp.int32(_START),
        jnp.int32(-1),
        jnp.full(2, -1, jnp.int32),
        jnp.int32(-1),
        jnp.int32(0),
        no_path,
        no_path if nested else no_path[:0],
        none,
        _Stack(jnp.int32(1), no_key > 0, no_key, no_key) if nested else None,
    )
    items = (json.kind, jnp.arange(json.kind.shape[0], dtype=jnp.int32))
    (state, _, keys, name, _, paths, indices, values, _), _ = jax.lax.scan(
        step, start, items
    )
    indices = indices if nested else no_path
    return Call(state == _END, keys, name, paths, indices, values)


def _moved(
    stack: _Stack, state: Array, new: Array, kind: Array, index: Array
) -> tuple[_Stack, Array, tuple[Array, Array]]:
    """Return the stack after a token, whether the token ends a leaf, and its path.

    Args:
      stack: the containers that were open before the token.
      state: the state before the token.
      new: the state after it.
      kind: the kind of the token.
      index: its index.
    """
    row = jnp.arange(stack.key.shape[0])
    is_item = (state == _ITEM) | (state == _ITEM_OR_END)
    closes = (kind == CLOSE) | (kind == CLOSE_LIST)
    may_end = (state == _ARG_OR_END) | (state == _ITEM_OR_END)
    pops = closes & (may_end | (state == _ARG_MORE)) & (new != _FAIL)
    pushes = (new == _ARG_OR_END) | (new == _ITEM_OR_END)
    pushes &= is_item | (state == _VALUE)
    top = row == stack.level - 1
    begins = is_item & (new != _FAIL) & ~pops
    has_key = top & (begins | (new == _ARG_COLON))
    key = jnp.where(has_key, index, stack.key)
    count = jnp.where(top & begins, stack.index + 1, stack.index)
    scalar = (is_item | (state == _VALUE)) & (new == _ARG_MORE) & ~closes
    empty = pops & may_end & (stack.level > 1)
    inside = row < stack.level - empty
    path = jnp.where(inside, key, -1), jnp.where(inside & stack.is_list, count, -1)
    opened = pushes & (row == stack.level)
    moved = _Stack(
        level=stack.level + pushes - pops,
        is_list=jnp.where(opened, new == _ITEM_OR_END, stack.is_list),
        key=key,
        index=jnp.where(opened, -1, count),
    )
    return moved, scalar | empty, path
