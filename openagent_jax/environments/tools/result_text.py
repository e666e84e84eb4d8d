"""Write the result of a call, in the form of its tool.

A list without records is written as `[]`, and a value that is missing as null.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.tools.types import Task, ToolResult
from openagent_jax.text import result_writing, scalars
from openagent_jax.text.result_writing import Fields
from openagent_jax.text.style import Style


def body(style: Style[int], task: Task, result: ToolResult) -> Int[Array, "P"]:
    """Return the pieces of the result of a call that succeeded."""
    tools, tool = task.tools, jnp.maximum(result.tool, 0)
    own, low = tools.result_name[tool], tools.result_low[tool]
    none = jnp.zeros_like(own)
    fields = Fields(
        value=result.values,
        literal=none,
        outer=tools.result_path[tool],
        own=own,
        bare=none.astype(bool) if result.bare is None else result.bare,
        is_typed=(result.values >= scalars.NUMBER) | (low >= scalars.UNQUOTED),
    )
    fields = _with_empty_lists(style, task, fields, tool, result.blank)
    # A tool that lists new tools shows a name in place of a code.
    lists_tools = tool == task.faults.lister
    lists_none = lists_tools & (result.code < 0)
    code = Fields(
        value=result.code,
        literal=jnp.where(lists_none, style.no_records, 0),
        outer=jnp.zeros(fields.outer.shape[1:], jnp.int32),
        own=jnp.where(lists_tools, style.new_tool, style.code),
        bare=lists_none,
        is_typed=jnp.bool_(False),
    )
    pairs = zip(fields, code, strict=True)
    fields = Fields(*(jnp.concatenate([x, y[None]]) for x, y in pairs))
    # A tool that returns no values reports that it is done.
    silent = ~jnp.any(fields.given)
    first = jnp.arange(len(fields.own)) == 0
    fields = Fields(
        value=jnp.where(silent & first, style.done, fields.value),
        literal=fields.literal,
        outer=jnp.where((silent & first)[:, None], 0, fields.outer),
        own=jnp.where(silent & first, style.result, fields.own),
        bare=fields.bare & ~silent,
        is_typed=fields.is_typed & ~silent,
    )
    return result_writing.pieces(style, task.faults.form[tool], fields)


def _with_empty_lists(
    style: Style[int],
    task: Task,
    fields: Fields,
    tool: Int[Array, ""],
    blank: Bool[Array, ""],
) -> Fields:
    """Return the fields with each empty list in place of its first field.

    If the values are missing, they are null, and so are the lists.
    """
    tools, missing = task.tools, blank & (fields.own > 0)
    if tools.lists is not None:
        missing &= tools.lists.most[tool] == 0
    fields = fields._replace(
        literal=jnp.where(missing, style.null, 0), bare=fields.bare | missing
    )
    if tools.lists is None:
        return fields
    lists, field = tools.lists, jnp.arange(len(fields.own))
    first, level = lists.first[tool], lists.level[tool]
    empty = (lists.most[tool] > 0) & (first == field) & (fields.value < 0)
    # The list of a path such as `page.items.0.id` has level 2: its keys are the first
    # two, the last of which becomes the own key.
    keys = jnp.concatenate([fields.outer, fields.own[:, None]], axis=1)
    last = jnp.maximum(level - 1, 0)
    key = jnp.take_along_axis(keys, last[:, None], axis=1)[:, 0]
    depth = jnp.arange(fields.outer.shape[1])
    outer = jnp.where(depth[None] < last[:, None], fields.outer, 0)
    none = jnp.where(blank, style.null, style.no_records)
    return fields._replace(
        literal=jnp.where(empty, none, fields.literal),
        outer=jnp.where(empty[:, None], outer, fields.outer),
        own=jnp.where(empty, key, fields.own),
        bare=fields.bare | empty,
    )
