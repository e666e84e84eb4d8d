"""From a task and its turns to tokens: lists of symbols, written last.

Every text is a row of pieces (symbols; 0 is empty), so the same few functions
serve demonstrations, rollouts and the reader of an evaluation. What the policy
must produce is marked piece by piece: the loss mask cannot disagree with the text.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax import types
from openagent_jax.sandbox import lexicon as lexicons
from openagent_jax.sandbox import style as styles
from openagent_jax.sandbox.style import Style
from openagent_jax.types import Action, Task, ToolResult, Trajectory


def prompt(style: Style[int], task: Task) -> Int[Array, "P"]:
    """Documents and request, up to where the agent speaks."""
    tools = task.tools
    order = jnp.argsort(jnp.where(tools.visible, tools.place, types.FOREVER))
    documents = jax.vmap(lambda row: _document(style, task, row))(order)
    others = jnp.arange(len(order)) > 0
    between = jnp.where(others & tools.visible[order], style.between, 0)
    documents = jnp.concatenate([between[:, None], documents], axis=1)
    constants = jnp.where(task.shown, task.constants, style.unknown)
    phrase = jnp.where(task.phrase < 0, constants[-1 - task.phrase], task.phrase)
    return jnp.concatenate(
        [
            _row(style.system),
            documents.reshape(-1),
            _row(style.user),
            phrase,
            _row(style.assistant),
        ]
    )


def action(style: Style[int], task: Task, act: Action) -> Int[Array, "P"]:
    """What the agent says, with the mark of its end."""
    call, tool = act.call, jnp.maximum(act.call.tool, 0)
    names = jnp.concatenate([task.tools.arg_name[tool], _row(style.code)])
    values = jnp.concatenate([call.args, call.code[None]])
    has = values >= 0
    order = jnp.argsort(~has, stable=True)
    names, values = names[order], values[order]
    low, high = style.numbers
    # What a tool is for can be said of those in the documents.
    purpose = jnp.where(task.tools.visible[tool], task.tools.description[tool], 0)
    slots = {
        styles.NAME: task.tools.name[tool][None],
        styles.TEXT: purpose,
        styles.ARGUMENT: names,
        styles.VALUE: values,
    }
    called = _fill(style.calls, jnp.sum(has), slots, (values >= low) & (values < high))
    answer = _fill(
        [style.answer],
        jnp.int32(0),
        {styles.VALUE: jnp.maximum(act.value, 0)[None]},
    )
    words = [called, answer]
    words += [_fill([x], jnp.int32(0), {}) for x in (style.refuse, style.ask)]
    size = max(map(len, words))
    kinds = (types.CALL, types.ANSWER, types.REFUSE, types.ASK)
    *words, ask = (_pad(x, size) for x in words)
    said = jnp.select([act.kind == kind for kind in kinds[:-1]], words, ask)
    return jnp.concatenate([said, _row(style.end)])


def observation(style: Style[int], task: Task, result: ToolResult) -> Int[Array, "P"]:
    """What the agent is shown after its action, up to where it speaks again."""
    tool = jnp.maximum(result.tool, 0)
    names = jnp.concatenate([task.tools.result_name[tool], _row(style.code)])
    values = jnp.concatenate([result.values, result.code[None]])
    has = values >= 0
    # A tool that returns nothing says that it is done.
    silent = ~jnp.any(has)
    names = names.at[0].set(jnp.where(silent, style.result, names[0]))
    values = values.at[0].set(jnp.where(silent, style.done, values[0]))
    has = has.at[0].set(has[0] | silent)
    forms = jnp.array(style.results)[task.faults.style[tool]]
    body, is_first = [forms[0]], jnp.bool_(True)
    for i in range(names.shape[0]):
        body += [
            jnp.where(has[i] & ~is_first, forms[2], 0),
            jnp.where(has[i], names[i], 0),
            jnp.where(has[i], forms[1], 0),
            jnp.where(has[i], values[i], 0),
        ]
        is_first &= ~has[i]
    body.append(forms[3])

    guided = (result.status == types.MOVED) & (result.target >= 0)
    message = jnp.array(style.errors)[result.status]
    message = jnp.where(guided, style.moved_guided, message)
    about = jnp.where(result.target >= 0, task.tools.name[result.target], 0)
    error = [style.error_open, message, about, style.error_close]

    reply = []
    told, is_first = ~task.shown, jnp.bool_(True)
    for q in range(told.shape[0]):
        reply += [
            jnp.where(told[q] & ~is_first, style.comma_blank, 0),
            jnp.where(told[q], task.constants[q], 0),
        ]
        is_first &= ~told[q]
    reply += [jnp.where(is_first, style.nothing, 0)]

    size = max(len(body), len(reply))
    body, error, reply = (_pad(_stack(x), size) for x in (body, error, reply))
    replied = result.status == types.USER_REPLY
    words = jnp.where(result.status == types.OK, body, error)
    words = jnp.where(replied, reply, words)
    # What cannot be read called no tool that could answer.
    by_user = replied | (result.status == types.BAD_FORMAT)
    begin = jnp.where(by_user, style.reply_open, style.tool_open)
    end = jnp.where(by_user, style.reply_close, style.tool_close)
    shown = jnp.concatenate([begin[None], words, end[None]])
    return jnp.where(result.status == types.NO_RESULT, 0, shown)


def trajectory(
    lexicon: lexicons.Lexicon, episode: Trajectory, num_tokens: int
) -> tuple[Int[Array, "S"], Bool[Array, "S"], Bool[Array, "S"], Int[Array, ""]]:
    """A whole episode: `(tokens, valid, loss_mask, true length)`.

    The loss mask covers exactly the tokens of the agent's actions. An episode that
    is longer than `num_tokens` is cut, and its true length tells so.
    """
    style, task = lexicon.style, episode.task

    def turn(act, result, valid):
        said, seen = action(style, task, act), observation(style, task, result)
        pieces = jnp.where(valid, jnp.concatenate([said, seen]), 0)
        return pieces, jnp.arange(pieces.shape[0]) < said.shape[0]

    turns, spoken = jax.vmap(turn)(episode.action, episode.result, episode.valid)
    head = prompt(style, task)
    pieces = jnp.concatenate([head, turns.reshape(-1)])
    mine = jnp.concatenate([jnp.zeros(head.shape, bool), spoken.reshape(-1)])
    tokens, index, length = lexicons.write(lexicon, pieces, num_tokens)
    valid = jnp.arange(num_tokens) < length
    return tokens, valid, mine[index] & valid, length


def _document(style: Style[int], task: Task, row: Int[Array, ""]) -> Int[Array, "P"]:
    tools = task.tools
    arg_low, arg_high, names = (
        x[row] for x in (tools.arg_low, tools.arg_high, tools.arg_name)
    )
    code_from, call_after = tools.code_from[row], tools.call_after[row]
    low, high = style.numbers
    numeric = (arg_low >= low) & (arg_high <= high)
    num = jnp.sum(arg_high > arg_low)
    if style.code_is_parameter:
        is_code = jnp.arange(len(names) + 1) == num
        is_code &= code_from >= 0
        names = jnp.where(is_code, style.code, jnp.pad(names, (0, 1)))
        numeric = jnp.pad(numeric, (0, 1))
        num += code_from >= 0
    needs = []
    for tool, (before, after) in (
        (code_from, style.code_from),
        (call_after, style.call_after),
    ):
        pieces = jnp.stack([before, tools.name[tool], after])
        needs.append(jnp.where(tool >= 0, pieces, 0))
    slots = {
        styles.NAME: tools.name[row][None],
        styles.TEXT: tools.description[row],
        styles.NEEDS: jnp.concatenate(needs),
        styles.ARGUMENT: names,
        styles.VALUE: jnp.where(numeric, style.integer, style.string),
    }
    pieces = _fill(style.documents, num, slots, numeric)
    return jnp.where(tools.visible[row], pieces, 0)


def _fill(
    layouts: Sequence[styles.Layout[int]],
    which: Int[Array, ""],
    slots: dict[int, Int[Array, "_"]],
    numeric: Bool[Array, "A"] | None = None,
) -> Int[Array, "P"]:
    """One of the layouts, with its slots filled.

    Args:
      layouts: symbols and slots.
      which: of them.
      slots: the symbols that fill each kind of slot.
      numeric: of each argument, whether its value is a number.
    """
    start, total = {}, 0
    for kind, filling in slots.items():
        start[kind], total = total, total + len(filling)
    whole = (styles.NAME, styles.TEXT, styles.NEEDS)

    def codes(piece: styles.Piece):
        """A symbol as it is, beside a number, and that number; slots are negative."""
        if piece.kind == styles.LITERAL:
            return [(piece.text, piece.number, piece.index)]
        size = len(slots[piece.kind]) if piece.kind in whole else 1
        first = start[piece.kind] + piece.index
        return [(-1 - i, -1 - i, 0) for i in range(first, first + size)]

    rows = [[code for piece in layout for code in codes(piece)] for layout in layouts]
    size = max(map(len, rows))
    table = jnp.array([row + [(0, 0, 0)] * (size - len(row)) for row in rows])
    text, number, beside = jnp.moveaxis(table[which], -1, 0)
    code = text if numeric is None else jnp.where(numeric[beside], number, text)
    filled = jnp.concatenate([*slots.values(), jnp.zeros(1, jnp.int32)])
    return jnp.where(code >= 0, code, filled[-1 - code])


def _row(symbol: int) -> Int[Array, "1"]:
    return jnp.array([symbol], jnp.int32)


def _stack(pieces) -> Int[Array, "_"]:
    return jnp.stack(list(map(jnp.int32, pieces)))


def _pad(pieces: Int[Array, "_"], size: int) -> Int[Array, "size"]:
    return jnp.pad(pieces, (0, size - pieces.shape[0]))
