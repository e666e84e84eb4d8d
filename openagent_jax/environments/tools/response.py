"""The response to an action: the result or the error that the agent is shown."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool

from openagent_jax.environments.tools import cells as records
from openagent_jax.environments.tools import dynamic, oracle, pages, types
from openagent_jax.environments.tools.cells import Touch
from openagent_jax.environments.tools.pages import Page
from openagent_jax.environments.tools.solution import leaves_trace, recorded, results
from openagent_jax.environments.tools.types import Action, State, Task, ToolResult
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, scalars, style


class Response(NamedTuple):
    """What an action does, and what the agent is shown of it."""

    result: ToolResult
    useful: Bool[Array, "C"]  # the steps of the goal that the action matches
    is_first: Bool[Array, "C"]  # of them those whose results will change
    outdated: Bool[Array, "C"]  # those whose results it uses as they were at first
    touch: Touch | None  # what it does to a record
    page: Page | None  # what it shows of a result in pages
    leaves_trace: Bool[Array, ""]


def respond(
    lexicon: lexicons.Lexicon, task: Task, state: State, action: Action
) -> Response:
    """Return the response to an action.

    Args:
      lexicon: holds the surface forms of the task.
      task: the task, with the steps that its goal needs, and the constants that the
        user wants by now.
      state: the state before the action.
      action: the action of the agent.
    """
    tools, faults = task.tools, task.faults
    call = action.call
    tool = jnp.maximum(call.tool, 0)
    has_arg = tools.arg_high[tool] > tools.arg_low[tool]
    default = tools.arg_default[tool]
    left_out = (call.args == types.MISSING) & (default >= 0)
    given = jnp.where(left_out, default, call.args)
    fits = scalars.within(given, tools.arg_low[tool], tools.arg_high[tool])
    for u in range(tools.arg_also.shape[2]):
        fits |= scalars.within(given, *tools.arg_also[tool, :, u].T)
    fits |= (given == default) & (default >= 0)
    code_from, call_after = tools.code_from[tool], tools.call_after[tool]
    first_code, new_code = tools.code[code_from], faults.new_code[code_from]
    is_first_code, is_new_code = (
        lexicons.same_text(lexicon, call.code, code) for code in (first_code, new_code)
    )
    is_renewed = state.renewed[code_from]
    right_code = jnp.where(is_renewed, is_new_code, is_first_code)
    expires = is_first_code & (new_code > 0)
    after = (tools.relation == tools.relation[call_after]) & state.succeeded
    failing = state.attempts[tool] < faults.failures[tool]
    forever = faults.failures[tool] >= types.FOREVER
    moved, deprecated = faults.moved_to[tool], faults.deprecated[tool]
    successor = jnp.where(faults.guided[tool], moved, -1)
    is_gone, is_there = (
        of(task, state.clock)[tool] for of in (dynamic.gone, dynamic.there)
    )
    precedes = tools.visible & (faults.moved_to == tool)
    is_drift = (successor >= 0) & (tools.name[moved] == tools.name[tool])
    moved_status = jnp.where(is_drift, style.SCHEMA_CHANGED, style.MOVED)
    # The arguments of a tool are not yet those that it will have.
    too_early = jnp.any(precedes & (tools.name == tools.name[tool]))
    unknown = jnp.where(too_early, style.BAD_ARGUMENT, style.UNKNOWN_TOOL)
    is_unknown = ~is_there & ~(is_gone & (moved >= 0) & tools.visible[tool])
    args, cursor = jnp.where(has_arg, given, 0), jnp.int32(0)
    if tools.pages is not None:
        args, cursor = pages.without_cursor(tools.pages, tool, args)
    unheard = jnp.bool_(False)
    if task.facts is not None:
        unheard = tools.result_low[tool, 0] == types.RECORDED
        unheard &= ~jnp.any(recorded(task, task.facts, tool, args))
    wanted = task.goal.tool
    same_tool = (wanted >= 0) & (tools.relation[wanted] == tools.relation[tool])
    useful = same_tool & jnp.all(state.args == args[None], axis=1)
    # What no step has still to use need not be read again.
    pending = (wanted >= 0) & ~oracle.settled(task, state)
    is_used = _sources_among(task, jnp.broadcast_to(pending[:, None], state.args.shape))
    is_first = useful & is_used & faults.stale & (state.read_by < 0)
    values = results(task, tool, args, changes=jnp.any(is_first))
    touch = page = bare = None
    # A call that uses what has been read before it changed.
    differs = state.args != args[None]
    is_old = jnp.all(~differs | (state.first_args == args[None]), axis=1)
    is_old = (same_tool & is_old)[:, None] & differs
    outdated = _sources_among(task, is_old) & faults.stale & (state.read_by >= 0)
    b = jnp.argmax(outdated)
    num_answers = jnp.maximum(state.attempts[tool] - faults.failures[tool], 0)
    blank = (num_answers < faults.blanks[tool]) & ~tools.effect[tool]
    if task.facts is not None:
        here = recorded(task, task.facts, tool, args)
        bare = jnp.any(task.facts.bare & here[:, None], axis=0)
    if tools.pages is not None:
        call_of = pages.call_hash(task.world, tools.relation[tool], args)
        ends = tools.arg_low, tools.arg_high
        every = pages.cursors(tools.pages, call_of, tool, *ends)
        page = pages.turn(tools.pages, tool, values, every, cursor)
        unheard |= page.number < 0
    # Later entries take precedence over earlier ones.
    status, target = jnp.int32(style.OK), jnp.int32(-1)
    if tools.access is not None:
        cells = state.cells
        assert cells is not None
        touch = records.touch(tools.access, task.world, cells, tool, args, values)
        status, values = touch.status, touch.values
    cycle = jnp.maximum(faults.quota + faults.pause, 1)
    left = cycle - state.limited % cycle  # calls of this round, with this one
    is_limited = (faults.pause > 0) & (left <= faults.pause)
    for trouble, code, about in (
        (jnp.any(outdated), style.STALE, state.read_by[b]),
        (failing, jnp.where(forever, style.PERMANENT, style.TRANSIENT), -1),
        ((code_from >= 0) & ~right_code, style.WRONG_CODE, code_from),
        ((code_from >= 0) & expires, style.EXPIRED_CODE, code_from),
        ((call_after >= 0) & ~jnp.any(after), style.OUT_OF_ORDER, call_after),
        (jnp.any(has_arg & ~fits) | unheard, style.BAD_ARGUMENT, -1),
        ((code_from < 0) & (call.code != -1), style.BAD_ARGUMENT, -1),
        ((moved >= 0) & is_gone, moved_status, successor),
        (is_unknown, unknown, -1),
        (call.tool < 0, style.UNKNOWN_TOOL, -1),
        (is_limited, style.RATE_LIMITED, -1),
        (action.kind == reply_scan.ASK, style.USER_REPLY, -1),
        (action.kind == reply_scan.MALFORMED, style.BAD_FORMAT, -1),
        (action.kind == reply_scan.ANSWER, style.NO_RESULT, -1),
        (action.kind == reply_scan.REFUSE, style.NO_RESULT, -1),
    ):
        status = jnp.where(trouble, code, status)
        target = jnp.where(trouble, about, target)
    ok = status == style.OK
    # A result without values has no notice.
    target = jnp.where(ok & deprecated & ~blank, successor, target)
    valid_code = jnp.where(state.renewed, faults.new_code, tools.code)[tool]
    code = jnp.where(ok & reveals_code(task)[tool], valid_code, -1)
    new = dynamic.new_tool(task, state.clock)
    new = jnp.where(new >= 0, tools.name[new], -1)
    code = jnp.where(ok & (tool == faults.lister), new, code)
    if touch is not None:  # a read before a change, or after it
        same = jnp.all(state.values == values[None], axis=1)
        useful &= same | is_first | ~oracle.shows(task)
    # Values that are derived from lists are not shown.
    shown = values[: tools.result_low.shape[1]] if page is None else page.fields
    # An error that no tool has is worded in one way only.
    is_own = (call.tool >= 0) & callable_tools(task)[tool]
    is_own &= status != style.BAD_FORMAT
    result = ToolResult(
        status=status,
        tool=jnp.where(ok, tool, -1),
        values=jnp.where(ok & ~blank, shown, -1),
        code=code,
        target=target,
        wording=jnp.where(is_own, faults.wording[tool], 0),
        wait=jnp.where(status == style.RATE_LIMITED, left - 1, 0),
        blank=ok & blank,
        bare=bare,
    )
    trace = leaves_trace(task, tool, args)
    return Response(result, useful, is_first, outdated, touch, page, trace)


def _sources_among(task: Task, some: Bool[Array, "C A"]) -> Bool[Array, "C"]:
    """Return the steps whose results some arguments of steps are."""
    return jnp.any(task.from_step(task.goal.source) & some[:, :, None], axis=(0, 1))


def reveals_code(task: Task) -> Bool[Array, "N"]:
    """Return the rows whose results hold a code, because some tool needs it."""
    relation, source = task.tools.relation, task.tools.code_from
    asked = (relation[:, None] == relation[source][None]) & (source >= 0)[None]
    return jnp.any(asked, axis=1)


def callable_tools(task: Task) -> Bool[Array, "N"]:
    """Return the rows that can be called: documented tools and their replacements."""
    return task.tools.visible | dynamic.successors(task, task.tools.visible)
