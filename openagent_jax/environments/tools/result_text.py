"""Write the result of a call, in the form of its tool.

A list without records is written as `[]`.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.tools.types import Task, ToolResult
from openagent_jax.text import result_writing, scalars
from openagent_jax.text.result_writing import Fields
from openagent_jax.text.style import Style


class _Leaves(NamedTuple):
    """The fields of a result, and its code."""

    value: Int[Array, "H"]  # -1: there is none
    outer: Int[Array, "H L"]  # as in `nesting`
    own: Int[Array, "H"]
    bare: Bool[Array, "H"]  # written without quotes


def body(style: Style[int], task: Task, result: ToolResult) -> Int[Array, "P"]:
    """Return the pieces of the result of a call that succeeded."""
    tools, tool = task.tools, jnp.maximum(result.tool, 0)
    outer, own = tools.result_path[tool], tools.result_name[tool]
    bare = jnp.zeros(len(own), bool) if result.bare is None else result.bare
    leaves = _Leaves(result.values, outer, own, bare)
    leaves = _with_empty_lists(style, task, leaves, tool, result.blank)
    code = _Leaves(
        result.code,
        jnp.zeros(outer.shape[1:], jnp.int32),
        jnp.int32(style.code),
        jnp.bool_(False),
    )
    pairs = zip(leaves, code, strict=True)
    leaves = _Leaves(*(jnp.concatenate([x, y[None]]) for x, y in pairs))
    # A tool that returns no values reports that it is done.
    silent = ~jnp.any(leaves.value >= 0)
    leaves = leaves._replace(
        own=leaves.own.at[0].set(jnp.where(silent, style.result, leaves.own[0])),
        outer=leaves.outer.at[0].set(jnp.where(silent, 0, leaves.outer[0])),
        value=leaves.value.at[0].set(jnp.where(silent, style.done, leaves.value[0])),
        bare=leaves.bare & ~silent,
    )
    low = jnp.append(tools.result_low[tool], 0)
    fields = Fields(
        given=leaves.value >= 0,
        outer=leaves.outer,
        own=leaves.own,
        bare=leaves.bare,
        is_typed=(leaves.value >= scalars.NUMBER) | (low >= scalars.UNQUOTED),
    )
    spelled = scalars.spell(style.digits, leaves.value)
    form = task.faults.form[tool]
    return result_writing.pieces(style, form, fields, spelled)


def _with_empty_lists(
    style: Style[int],
    task: Task,
    leaves: _Leaves,
    tool: Int[Array, ""],
    blank: Bool[Array, ""],
) -> _Leaves:
    """Return the leaves with each empty list in place of its first field.

    If the values are missing, they are null, and so are the lists.
    """
    tools, missing = task.tools, blank & (leaves.own > 0)
    if tools.lists is not None:
        missing &= tools.lists.most[tool] == 0
    value = jnp.where(missing, style.null, leaves.value)
    leaves = leaves._replace(value=value, bare=leaves.bare | missing)
    if tools.lists is None or style.no_records is None:
        return leaves
    lists, field = tools.lists, jnp.arange(len(leaves.own))
    first, level = lists.first[tool], lists.level[tool]
    empty = (lists.most[tool] > 0) & (first == field) & (leaves.value < 0)
    # The list of a path such as `page.items.0.id` has level 2: its keys are the first
    # two, the last of which becomes the own key.
    keys = jnp.concatenate([leaves.outer, leaves.own[:, None]], axis=1)
    last = jnp.maximum(level - 1, 0)
    key = jnp.take_along_axis(keys, last[:, None], axis=1)[:, 0]
    depth = jnp.arange(leaves.outer.shape[1])
    outer = jnp.where(depth[None] < last[:, None], leaves.outer, 0)
    none = jnp.where(blank, style.null, style.no_records)
    return _Leaves(
        value=jnp.where(empty, none, leaves.value),
        outer=jnp.where(empty[:, None], outer, leaves.outer),
        own=jnp.where(empty, key, leaves.own),
        bare=leaves.bare | empty,
    )
