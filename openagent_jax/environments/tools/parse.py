"""From the bytes of a reply to an `Action` on the tools of a task.

`text/reply_scan.py` scans the bytes; this module binds the result to the task: the name
of a call to a row of its tools, the arguments to the parameters of that tool. An
unknown tool name becomes -1, an argument that is not accepted `UNACCEPTABLE`; for both
`environment.step` returns an error. Null for an optional argument leaves it out. If
arguments are nested, the leaves are the arguments; null or an empty container omits
the leaves that should be in it.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax.environments.tools.response import callable_tools
from openagent_jax.environments.tools.types import (
    MISSING,
    UNACCEPTABLE,
    Action,
    Task,
    ToolCall,
)
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, scalars
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.text.reply_scan import Scan


def parse(
    lexicon: Lexicon,
    task: Task,
    text: UInt[Array, "Z"],
    num_bytes: Int[Array, ""],
) -> Action:
    """Return the action that the bytes `text[:num_bytes]` spell.

    Args:
      lexicon: holds all surface forms.
      task: the task whose tools may be called.
      text: the bytes of the reply.
      num_bytes: number of bytes of the reply.
    """
    _, num_args, num_outer = task.tools.arg_path.shape
    reply = reply_scan.scan(lexicon, text, num_bytes, num_args, num_outer + 1)
    call, fits = _bind(lexicon, task, reply)
    bad_code = jnp.where(reply.kind == reply_scan.CALL, _BAD_CODE, -1)
    return Action(
        kind=reply.kind,
        call=ToolCall(
            tool=call.tool,
            # An unknown, surplus or repeated argument invalidates all of them.
            args=jnp.where(fits, call.args, UNACCEPTABLE),
            code=jnp.where(fits, call.code, bad_code),
        ),
        value=reply.value,
    )


_BAD_CODE = 0  # the empty text: a code was passed that is not the code of any tool


def _bind(
    lexicon: Lexicon, task: Task, reply: Scan
) -> tuple[ToolCall, Bool[Array, ""]]:
    """Return the call on the tools of the task, and whether its arguments fit."""
    tools = task.tools
    callable_ = callable_tools(task)
    equal = lexicons.same_text(lexicon, reply.name, tools.name) & callable_
    # One name may have two rows, if the arguments of the tool change.
    rows = jnp.argmax(equal), len(equal) - 1 - jnp.argmax(equal[::-1])
    calls, fits = jax.vmap(lambda row: _bind_to(lexicon, task, reply, row))(
        jnp.stack(rows)
    )
    i = jnp.where(fits[1] & ~fits[0], 1, 0)
    call = jax.tree.map(lambda x: x[i], calls)
    tool = jnp.where(jnp.any(equal), call.tool, -1)
    return replace(call, tool=tool), fits[i]


def _bind_to(
    lexicon: Lexicon, task: Task, reply: Scan, row: Int[Array, ""]
) -> tuple[ToolCall, Bool[Array, ""]]:
    """Return the call on a row of the tools, and whether its arguments fit."""
    tools = task.tools
    has_arg = tools.arg_high[row] > tools.arg_low[row]
    param_names = jnp.concatenate(
        [tools.arg_name[row], jnp.array([lexicon.style.code], jnp.int32)]
    )
    params = jnp.concatenate([has_arg, jnp.array([True])])
    # [parameter, pair]: whether a written (name, value) pair fills a parameter.
    taken = params[:, None] & reply.given[None]
    if tools.arg_path.shape[2]:
        fills, covers = _nested(lexicon, tools.arg_path[row], param_names, reply)
        fills, covers = fills & taken, covers & taken
        fits = jnp.all(jnp.any(fills | covers, axis=0) | ~reply.given)
        fits &= ~reply.repeated
    else:
        fills = taken & lexicons.same_text(
            lexicon, param_names[:, None], reply.arg_names[None, :]
        )
        fits = jnp.all(jnp.any(fills, axis=0) | ~reply.given)
    fits &= jnp.all(jnp.sum(fills, axis=1) <= 1)
    filled = jnp.any(fills, axis=1)
    pair = jnp.argmax(fills, axis=1)
    value, number = reply.arg_values[pair], reply.arg_numbers[pair]
    ends = tools.arg_low[row], tools.arg_high[row]
    args = lexicons.resolve(lexicon, value[:-1], number[:-1], *ends)
    for u in range(tools.arg_also.shape[2]):
        ends = tools.arg_also[row, :, u].T
        found = lexicons.resolve(lexicon, value[:-1], number[:-1], *ends)
        args = jnp.where(args < 0, found, args)
    # A default need not be a value of the type.
    default, said = tools.arg_default[row], jnp.maximum(value, number)[:-1]
    is_default = (default > 0) & lexicons.same_value(lexicon, said, default)
    args = jnp.where((args < 0) & is_default, default, args)
    is_null = reply.is_null[pair][:-1] & (default >= 0)
    absent = jnp.where(is_null, MISSING, UNACCEPTABLE)
    args = jnp.where(args < 0, absent, args)
    code = jnp.where(value[-1] >= 0, value[-1], _BAD_CODE)
    call = ToolCall(
        row.astype(jnp.int32),
        jnp.where(filled[:-1], args, MISSING),
        jnp.where(filled[-1], code, -1),
    )
    return call, fits


def _nested(
    lexicon: Lexicon, outer: Int[Array, "A L"], names: Int[Array, "A+1"], reply: Scan
) -> tuple[Bool[Array, "A+1 K"], Bool[Array, "A+1 K"]]:
    """Compare the paths of parameters with those of written pairs.

    Args:
      lexicon: the lexicon.
      outer: the outer keys of the arguments of the tool.
      names: the own keys of the parameters: the arguments, and the code.
      reply: the pairs.

    Returns:
      Whether a pair has the path of a parameter, and whether it is null or an empty
      container in place of one that the parameter is in.
    """
    outer = jnp.pad(outer, ((0, 1), (0, 0)))
    wanted, depth = _full(outer, names)
    written, size = _full(reply.arg_path, reply.arg_names)
    wanted, written = wanted[:, None], written[None]
    is_index = (wanted >= scalars.NUMBER) | (written >= scalars.NUMBER)
    same = lexicons.same_text(lexicon, wanted, written)
    same = jnp.where(is_index, wanted == written, same)
    beyond = jnp.arange(same.shape[2])[None] >= size[:, None]
    agree = jnp.all(same | beyond[None], axis=2)
    more = depth[:, None] - size[None]
    # The key that follows tells whether the container is an array.
    at = jnp.minimum(size, same.shape[2] - 1)
    in_list = wanted[:, 0, at] >= scalars.NUMBER
    right = jnp.where(in_list, reply.is_empty[1][None], reply.is_empty[0][None])
    covers = agree & (more > 0) & (right | reply.is_null[None])
    return agree & (more == 0), covers


def _full(outer: Int[Array, "K L"], name: Int[Array, "K"]) -> tuple[Array, Array]:
    """Return all keys of some paths, padded with 0, and how many there are."""
    depth = jnp.sum(outer != 0, axis=1)
    keys = jnp.pad(outer, ((0, 0), (0, 1)))
    here = jnp.arange(keys.shape[1])[None] == depth[:, None]
    return jnp.where(here, name[:, None], keys), depth + 1
