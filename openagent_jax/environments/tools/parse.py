"""From the bytes of a reply to an `Action` on the tools of a task.

`text/reply_scan.py` scans the bytes; this module binds the result to the task: the name
of a call to a row of its tools, the arguments to the parameters of that tool. An
unknown tool name becomes -1, an argument that is not accepted `UNACCEPTABLE`; for both
`environment.step` returns an error. Null for an optional argument leaves it out.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax.environments.tools import environment
from openagent_jax.environments.tools.types import (
    MISSING,
    UNACCEPTABLE,
    Action,
    Task,
    ToolCall,
)
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan
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
    num_args = task.tools.arg_name.shape[1]
    reply = reply_scan.scan(lexicon, text, num_bytes, num_args)
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
    callable_ = environment.callable_tools(task)
    equal = lexicons.same_text(lexicon, reply.name, tools.name) & callable_
    tool = jnp.where(jnp.any(equal), jnp.argmax(equal), -1)
    row = jnp.maximum(tool, 0)
    has_arg = tools.arg_high[row] > tools.arg_low[row]
    param_names = jnp.concatenate(
        [tools.arg_name[row], jnp.array([lexicon.style.code], jnp.int32)]
    )
    params = jnp.concatenate([has_arg, jnp.array([True])])
    # [parameter, pair]: whether a written (name, value) pair fills a parameter.
    fills = lexicons.same_text(lexicon, param_names[:, None], reply.arg_names[None, :])
    fills &= params[:, None] & reply.given[None]
    fits = jnp.all(jnp.any(fills, axis=0) | ~reply.given)
    fits &= jnp.all(jnp.sum(fills, axis=1) <= 1)
    filled = jnp.any(fills, axis=1)
    pair = jnp.argmax(fills, axis=1)
    value, number = reply.arg_values[pair], reply.arg_numbers[pair]
    ends = tools.arg_low[row], tools.arg_high[row]
    args = lexicons.resolve(lexicon, value[:-1], number[:-1], *ends)
    # A default need not be a value of the type.
    default, said = tools.arg_default[row], jnp.maximum(value, number)[:-1]
    is_default = (default > 0) & lexicons.same_value(lexicon, said, default)
    args = jnp.where((args < 0) & is_default, default, args)
    is_null = reply.is_null[pair][:-1] & (default >= 0)
    absent = jnp.where(is_null, MISSING, UNACCEPTABLE)
    args = jnp.where(args < 0, absent, args)
    code = jnp.where(value[-1] >= 0, value[-1], _BAD_CODE)
    call = ToolCall(
        tool.astype(jnp.int32),
        jnp.where(filled[:-1], args, MISSING),
        jnp.where(filled[-1], code, -1),
    )
    return call, fits
