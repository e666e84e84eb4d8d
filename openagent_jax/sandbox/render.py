"""From a task and its turns to tokens: lists of symbols, written last.

Every text is a row of pieces (symbols; 0 is empty), so the same few functions
serve demonstrations, rollouts and the reader of an evaluation. What the policy
must produce is marked piece by piece: the loss mask cannot disagree with the text.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax import types
from openagent_jax.sandbox import lexicon as lexicons
from openagent_jax.sandbox.symbols import Style
from openagent_jax.types import Action, Task, ToolResult, Trajectory


def prompt(style: Style, task: Task) -> Int[Array, "P"]:
    """Documents and request, up to where the agent speaks."""
    tools = task.tools
    order = jnp.argsort(jnp.where(tools.visible, tools.place, types.FOREVER))
    documents = jax.vmap(lambda row: _document(style, task, row))(order)
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


def action(style: Style, task: Task, act: Action) -> Int[Array, "P"]:
    """What the agent says, with the mark of its end."""
    call, tool = act.call, jnp.maximum(act.call.tool, 0)
    names = jnp.concatenate([task.tools.arg_name[tool], _row(style.code)])
    values = jnp.concatenate([call.args, call.code[None]])
    has = values >= 0
    pairs, is_first = [], jnp.bool_(True)
    for i in range(names.shape[0]):
        pairs += [
            jnp.where(has[i] & ~is_first, style.comma, 0),
            jnp.where(has[i], names[i], 0),
            jnp.where(has[i], style.is_, 0),
            jnp.where(has[i], values[i], 0),
        ]
        is_first &= ~has[i]
    any_arg = jnp.any(has)
    # What a tool is for can be said of those in the documents.
    purpose = jnp.where(task.tools.visible[tool], task.tools.description[tool], 0)
    spoken = jnp.stack(
        [
            jnp.int32(style.call_open),
            *purpose,
            jnp.int32(style.call_name),
            task.tools.name[tool],
            jnp.where(any_arg, style.call_args, 0),
            *pairs,
            jnp.where(any_arg, style.call_close, style.call_no_args),
        ]
    )
    answer = _pad([style.answer, jnp.maximum(act.value, 0)], spoken.shape[0])
    refuse = _pad([style.refuse], spoken.shape[0])
    ask = _pad([style.ask], spoken.shape[0])
    words = jnp.select(
        [act.kind == kind for kind in (types.CALL, types.ANSWER, types.REFUSE)],
        [spoken, answer, refuse],
        ask,
    )
    return jnp.concatenate([words, _row(style.end)])


def observation(style: Style, task: Task, result: ToolResult) -> Int[Array, "P"]:
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
    body = jnp.stack([*body, forms[3]])

    guided = (result.status == types.MOVED) & (result.target >= 0)
    message = jnp.array(style.errors)[result.status]
    message = jnp.where(guided, style.moved_guided, message)
    about = jnp.where(result.target >= 0, task.tools.name[result.target], 0)
    error = [style.error_open, message, about, style.result_close]

    reply = []
    told, is_first = ~task.shown, jnp.bool_(True)
    for q in range(told.shape[0]):
        reply += [
            jnp.where(told[q] & ~is_first, style.comma_blank, 0),
            jnp.where(told[q], task.constants[q], 0),
        ]
        is_first &= ~told[q]
    reply += [jnp.where(is_first, style.nothing, 0)]

    size = max(body.shape[0], len(reply))
    replied = result.status == types.USER_REPLY
    words = jnp.where(result.status == types.OK, _pad(body, size), _pad(error, size))
    words = jnp.where(replied, _pad(reply, size), words)
    speaker = jnp.where(replied, style.user, style.tool)
    shown = jnp.concatenate([speaker[None], words, _row(style.assistant)])
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


def _document(style: Style, task: Task, row: Int[Array, ""]) -> Int[Array, "P"]:
    tools = task.tools
    has_arg = tools.arg_high[row] > tools.arg_low[row]
    names, is_first = [], jnp.bool_(True)
    for a in range(has_arg.shape[0]):
        names += [
            jnp.where(has_arg[a] & ~is_first, style.comma, 0),
            jnp.where(has_arg[a], tools.arg_name[row, a], 0),
        ]
        is_first &= ~has_arg[a]
    code_from, call_after = tools.code_from[row], tools.call_after[row]
    pieces = [
        style.doc_open,
        *tools.description[row],
        style.doc_name,
        tools.name[row],
        jnp.where(is_first, style.doc_no_params, style.doc_params),
        *names,
        jnp.where(is_first, 0, style.doc_params_close),
    ]
    for tool, label in (
        (code_from, style.doc_code_from),
        (call_after, style.doc_call_after),
    ):
        has = tool >= 0
        pieces += [
            jnp.where(has, label, 0),
            jnp.where(has, tools.name[tool], 0),
            jnp.where(has, style.quote, 0),
        ]
    pieces.append(style.doc_close)
    return jnp.where(tools.visible[row], jnp.stack(list(map(jnp.int32, pieces))), 0)


def _row(symbol: int) -> Int[Array, "1"]:
    return jnp.array([symbol], jnp.int32)


def _pad(pieces, size: int) -> Int[Array, "size"]:
    row = jnp.stack(list(map(jnp.int32, pieces)))
    return jnp.concatenate([row, jnp.zeros(size - row.shape[0], jnp.int32)])
