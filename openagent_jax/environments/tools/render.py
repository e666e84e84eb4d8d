"""Write the texts of an episode: prompt, actions and observations, as rows of pieces.

A piece is a symbol; 0 is the empty text. Tokens are made from the pieces last, so the
same few functions serve demonstrations, rollouts and evaluation. The loss mask is made
piece by piece too, so it cannot disagree with the text.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from openagent_jax.environments.tools import result_text, types
from openagent_jax.environments.tools.types import Action, Task, ToolResult
from openagent_jax.text import layout, nesting, reply_scan, scalars
from openagent_jax.text import style as styles
from openagent_jax.text.style import Layout, Style


def prompt(
    style: Style[int], task: Task, table: Int[Array, "K D"] | None = None
) -> Int[Array, "P"]:
    """Return the prompt: documents and request, up to where the agent writes.

    Args:
      style: the style in which it is written.
      task: the task.
      table: what `worlds.documents.Documents.table` returns; None if no tool of the
        task has a document of its own.
    """
    tools = task.tools
    order = jnp.argsort(jnp.where(tools.visible, tools.place, types.FOREVER))
    if table is None:
        num_pieces, shape = tools.description.shape[1], tools.arg_path.shape[1:]
        table = jnp.array(document_codes(style.documents, num_pieces, *shape))
    documents = jax.vmap(lambda row: _document(style, task, table, row))(order)
    others = jnp.arange(len(order)) > 0
    between = jnp.where(others & tools.visible[order], style.between, 0)
    documents = jnp.concatenate([between[:, None], documents], axis=1)
    phrase = scalars.spell(style.digits, request(style, task))
    asked = [layout.single(style.user), phrase.reshape(-1)]
    return jnp.concatenate(
        [
            *(asked if style.request_first else []),
            layout.single(style.system),
            documents.reshape(-1),
            *asked,
            layout.single(style.assistant),
        ]
    )


def request(style: Style[int], task: Task) -> Int[Array, "P"]:
    """Return the request, as symbols and values."""
    shown = jnp.where(task.shown, task.said, style.unknown)
    said = jnp.concatenate([shown, task.said])
    return jnp.where(task.phrase < 0, said[-1 - task.phrase], task.phrase)


def action(style: Style[int], task: Task, act: Action) -> Int[Array, "P"]:
    """Return what the agent writes for an action, including the end mark."""
    call, tool = act.call, jnp.maximum(act.call.tool, 0)
    names = jnp.concatenate([task.tools.arg_name[tool], layout.single(style.code)])
    values = jnp.concatenate([call.args, call.code[None]])
    has = values >= 0
    order = jnp.argsort(~has, stable=True)
    names, values = names[order], values[order]
    bare = task.tools.arg_low[tool] >= scalars.UNQUOTED
    for u in range(task.tools.arg_also.shape[2]):
        low, high = task.tools.arg_also[tool, :, u].T
        is_other = scalars.within(call.args, low, high)
        bare = jnp.where(is_other, low >= scalars.UNQUOTED, bare)
    bare = jnp.append(bare, False)[order]
    slots = {styles.NAME: task.tools.name[tool][None]}
    spelled = scalars.spell(style.digits, values)
    if style.nested is None:
        slots |= {styles.ARGUMENT: names, styles.VALUE: spelled.reshape(-1)}
        called = layout.fill(style.calls, jnp.sum(has), slots, bare)
    else:
        path = jnp.pad(task.tools.arg_path[tool], ((0, 1), (0, 0)))
        leaves = path[order], names, values >= 0, bare, spelled
        called = _nested_call(style, style.nested, slots, leaves)
    answer = layout.fill(
        [style.answer],
        jnp.int32(0),
        {styles.VALUE: scalars.spell(style.digits, act.value)},
    )
    words = [called, answer]
    words += [layout.fill([x], jnp.int32(0), {}) for x in (style.refuse, style.ask)]
    size = max(map(len, words))
    kinds = (reply_scan.CALL, reply_scan.ANSWER, reply_scan.REFUSE, reply_scan.ASK)
    *words, ask = (layout.pad(x, size) for x in words)
    text = jnp.select([act.kind == kind for kind in kinds[:-1]], words, ask)
    return jnp.concatenate([text, layout.single(style.end)])


def _nested_call(
    style: Style[int],
    nested: styles.NestedCalls[int],
    slots: Mapping[int, Int[Array, "_"]],
    leaves: tuple[Array, ...],
) -> Int[Array, "P"]:
    """Return a call whose arguments may be nested.

    Args:
      style: the style.
      nested: its part for nested arguments.
      slots: the name of the tool.
      leaves: the arguments of `nesting.pieces` after the syntax.
    """
    there = jnp.any(leaves[2])
    which = there.astype(jnp.int32)
    parts = [
        layout.fill([style.calls[0], nested.before], which, slots),
        jnp.where(there, nesting.pieces(nested.syntax, *leaves), 0),
    ]
    if nested.after:
        parts.append(layout.fill([(), nested.after], which, slots))
    return jnp.concatenate(parts)


def observation(style: Style[int], task: Task, result: ToolResult) -> Int[Array, "P"]:
    """Return what the agent is shown after an action, up to where it writes again."""
    body = result_text.body(style, task, result)
    guided = (result.status == styles.MOVED) & (result.target >= 0)
    status = jnp.where(guided, styles.MOVED_GUIDED, result.status)
    noticed = (result.status == styles.OK) & (result.target >= 0)
    status = jnp.where(noticed, styles.DEPRECATED, status)
    before, after = jnp.array(styles.error_table(style))[result.wording, status]
    about = jnp.where(result.target >= 0, task.tools.name[result.target], 0)
    frames = jnp.array([(x.open, x.close) for x in style.errors])
    error_open, error_close = frames[result.wording]
    is_limited = result.status == styles.RATE_LIMITED
    wait = jnp.where(is_limited, scalars.code(0) + result.wait, 0)
    number = scalars.spell(style.digits, wait)
    is_drift = result.status == styles.SCHEMA_CHANGED
    about = jnp.where(is_drift, 0, about)
    keys = jnp.where(is_drift, _new_keys(style, task, result.target), 0)
    error = [error_open, before, about, *number, *keys, after, error_close]
    error = jnp.stack(error)
    notice = jnp.where(noticed, jnp.stack([before, about, after]), 0)
    body = jnp.concatenate([body, notice])

    told, said = ~task.shown, scalars.spell(style.digits, task.said)
    between = jnp.where(jnp.cumsum(told) > 1, style.comma_blank, 0)
    reply = jnp.concatenate([between[:, None], said], axis=1)
    reply = jnp.where(told[:, None], reply, 0).reshape(-1)
    reply = jnp.append(reply, jnp.where(jnp.any(told), 0, style.nothing))

    change = task.faults.change
    values = jnp.stack([change.value, task.said[change.constant]])
    (new, old), text = scalars.spell(style.digits, values), change.text
    change = jnp.stack([text[0], *new, text[1], *old, text[2]])

    size = max(map(len, (body, error, reply, change)))
    words = [layout.pad(x, size) for x in (body, reply, change, error)]
    status = jnp.array([styles.OK, styles.USER_REPLY, styles.USER_CHANGE])
    is_of = result.status == status
    words = jnp.select([*is_of], words[:-1], words[-1])
    # An action that could not be parsed called no tool, so the user answers it.
    by_user = is_of[1] | is_of[2] | (result.status == styles.BAD_FORMAT)
    begin = jnp.where(by_user, style.reply_open, style.tool_open)
    end = jnp.where(by_user, style.reply_close, style.tool_close)
    shown = jnp.concatenate([begin[None], words, end[None]])
    return jnp.where(result.status == styles.NO_RESULT, 0, shown)


def _new_keys(style: Style[int], task: Task, row: Int[Array, ""]) -> Array:
    """Return the names of the arguments of a tool, with commas between them."""
    tools = task.tools
    has_arg = tools.arg_high[row] > tools.arg_low[row]
    names = jnp.where(has_arg, tools.arg_name[row], 0)
    commas = jnp.where(has_arg & (jnp.cumsum(has_arg) > 1), style.comma_blank, 0)
    return jnp.stack([commas, names], axis=1).reshape(-1)


def document_codes(
    layouts: Sequence[Layout[int]], num_pieces: int, num_args: int, levels: int
) -> list[list[int]]:
    """Return layouts of documents as rows of codes; see `layout.codes`.

    Args:
      layouts: the layouts.
      num_pieces: W, the number of pieces of a description.
      num_args: A, the number of arguments of a tool.
      levels: L, the number of outer keys of an argument. Slot a of `ARGUMENT` is the
        own key of argument a, and slot A + 1 + a * L + i is its outer key i.
    """
    num_keys = num_args + 1 + num_args * levels  # there may be a code
    sizes = {
        styles.NAME: 1,
        styles.TEXT: num_pieces,
        styles.NEEDS: _NUM_NEEDS,
        styles.ARGUMENT: num_keys,
        styles.VALUE: num_keys,
    }
    # No style writes a document differently because of a number beside a literal.
    return [[code for code, _, _ in row] for row in layout.codes(layouts, sizes)]


_NUM_NEEDS = 6  # two other tools, each with a text before and after its name


def _document(
    style: Style[int], task: Task, table: Int[Array, "K D"], row: Int[Array, ""]
) -> Int[Array, "D"]:
    tools = task.tools
    arg_low, arg_high, names = (
        x[row] for x in (tools.arg_low, tools.arg_high, tools.arg_name)
    )
    untold = task.faults.untold[row]
    code_from, call_after = (
        jnp.where(untold, -1, pointer[row])
        for pointer in (tools.code_from, tools.call_after)
    )
    numeric = jnp.pad(arg_low >= scalars.UNQUOTED, (0, 1))
    names = jnp.pad(names, (0, 1))
    which, own = jnp.sum(arg_high > arg_low), tools.document[row]
    if style.code_is_parameter:
        is_code = jnp.arange(len(names)) == which
        is_code &= (code_from >= 0) & (own < 0)
        names = jnp.where(is_code, style.code, names)
        which += code_from >= 0
        own_row = 2 * own + (code_from >= 0)
    else:
        own_row = own
    needs = []
    for tool, (before, after) in (
        (code_from, style.code_from),
        (call_after, style.call_after),
    ):
        pieces = jnp.stack([before, tools.name[tool], after])
        needs.append(jnp.where(tool >= 0, pieces, 0))
    types, outer = jnp.where(numeric, style.integer, style.string), tools.arg_path[row]
    if outer.size:
        names = jnp.concatenate([names, outer.reshape(-1)])
        types = jnp.pad(types, (0, outer.size))
    slots = {
        styles.NAME: tools.name[row][None],
        styles.TEXT: tools.description[row],
        styles.NEEDS: jnp.concatenate(needs),
        styles.ARGUMENT: names,
        styles.VALUE: types,
    }
    codes = table[jnp.where(own >= 0, len(style.documents) + own_row, which)]
    return jnp.where(tools.visible[row], layout.filled(codes, slots), 0)
