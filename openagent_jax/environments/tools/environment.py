"""The dynamics of tool worlds: `reset(lexicon, task)` and `step(lexicon, task, ...)`.

They are pure functions of one task; `jax.vmap` batches them. They need no PRNG key:
results are a hash of the call and of the task's world seed (or recorded), and faults
are planned in the task, so every agent meets the same results and faults.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax import draw
from openagent_jax.environments import grading
from openagent_jax.environments.tools import cells as records
from openagent_jax.environments.tools import (
    conditions,
    dynamic,
    oracle,
    pages,
    result_lists,
    types,
)
from openagent_jax.environments.tools.cells import Cells, Steps, Touch
from openagent_jax.environments.tools.pages import Page, Reading
from openagent_jax.environments.tools.types import (
    Action,
    Facts,
    State,
    Task,
    ToolResult,
)
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, scalars, style
from openagent_jax.types import Certificate, TimeStep


class Solution(NamedTuple):
    """What the steps of a goal do, in their order."""

    args: Int[Array, "C A"]  # true arguments; 0 where there is none
    first_args: Int[Array, "C A"]  # those before results that change are read again
    values: Int[Array, "C V"]  # true results
    steps: Steps | None  # the records that they touch, as all of them leave them


def reset(lexicon: lexicons.Lexicon, task: Task) -> State:
    """Return the state before the first action."""
    del lexicon
    first, later = _solutions(task)
    args, first_args, values, steps = first
    reading = _unread(task, values)
    task = conditions.with_needed(task, values)
    again = jnp.any(later.args != args, axis=1)
    proof = oracle.certificate(task, steps, reading, again)
    no_tool = jnp.zeros(task.tools.relation.shape, bool)
    access, cells = task.tools.access, None
    if access is not None:
        cells = records.start(task.goal.tool.shape[0], access.source.shape[1])
    state = State(
        **vars(grading.start(proof)),
        done=jnp.zeros(task.goal.tool.shape, bool),
        attempts=jnp.zeros(task.tools.relation.shape, jnp.int32),
        succeeded=no_tool,
        known_dead=no_tool,
        known_from=no_tool,
        told=jnp.zeros(task.shown.shape, bool),
        limited=jnp.int32(0),
        has_code=no_tool,
        renewed=no_tool,
        known_needs=jnp.stack([no_tool, no_tool], axis=1),
        read_by=jnp.full(task.goal.tool.shape, -1, jnp.int32),
        known_stale=jnp.zeros(task.goal.tool.shape, bool),
        clock=jnp.int32(0),
        missed=no_tool,
        changed=jnp.bool_(False),
        values=values,
        args=args,
        first_args=first_args,
        new_values=later.values,
        new_args=later.args,
        spoiled=jnp.bool_(False),
        cells=cells,
        steps=steps,
        reading=reading,
    )
    return state if cells is None else replace(state, done=oracle.changed(task, state))


def certificate(task: Task) -> Certificate:
    """Certify whether a task can be solved; see `oracle.certificate`."""
    first, later = _solutions(task)
    task, reading = (
        conditions.with_needed(task, first.values),
        _unread(task, first.values),
    )
    again = jnp.any(later.args != first.args, axis=1)
    return oracle.certificate(task, first.steps, reading, again)


def step(
    lexicon: lexicons.Lexicon,
    task: Task,
    state: State,
    action: Action,
    max_turns: int,
) -> tuple[State, TimeStep]:
    """Apply one action of the agent. A finished episode does not change any more.

    An episode succeeds with the right answer (or "done") if all steps of the goal have
    been done and nothing else has changed; if the user changes the request then, with
    the right answer to that. Wrong changes of records count, but fail an
    episode only if they are still there. It also succeeds with a refusal if the oracle
    certifies the task as unsolvable. See `grading.REWARDS` for the rewards.

    Args:
      lexicon: holds the surface forms of the task.
      task: one task.
      state: the state before the action.
      action: the action of the agent.
      max_turns: number of actions after which an episode is truncated.

    Returns:
      The new state, and the timestep, whose observation is a `ToolResult`.
    """
    task = dynamic.as_changed(task, state.changed)
    task = conditions.with_needed(task, state.values)
    goal = task.goal
    response = _respond(lexicon, task, state, action)
    result, touch = response.result, response.touch
    faults = task.faults
    live = ~state.finished
    called = action.kind == reply_scan.CALL
    ok = called & (result.status == style.OK) & live
    row = jnp.arange(task.tools.relation.shape[0])
    here = (row == action.call.tool) & called & live
    tried = here & (
        ok | (result.status == style.TRANSIENT) | (result.status == style.PERMANENT)
    )
    gone, names_new = (
        jnp.isin(result.status, jnp.array(some))
        for some in (
            (style.PERMANENT, style.MOVED, style.SCHEMA_CHANGED),
            (style.MOVED, style.SCHEMA_CHANGED, style.OK),
        )
    )
    # A tool is not used any more once a notice names the one that will replace it.
    gone |= (result.status == style.OK) & (result.target >= 0)
    missed = (result.status == style.UNKNOWN_TOOL) & task.tools.visible
    missed |= (result.status == style.MOVED) & (result.target < 0)
    lists = ok & (action.call.tool == faults.lister)
    listed = lists & (row == dynamic.new_tool(task, state.clock))
    pointed = (row == result.target) & names_new & live
    tool = jnp.maximum(action.call.tool, 0)
    first_reading = response.is_first & ok
    # A result that is missing, or that will change, does not settle a step.
    matches = response.useful & ok & ~result.blank & ~first_reading
    reading = state.reading
    if reading is not None and response.page is not None:
        reading = pages.noted(reading, matches, response.page.number)
        matches &= pages.complete(reading)
    asked = response.useful & ok & oracle.may_repeat(task, state)
    wrong = ok & task.tools.effect[tool] & ~jnp.any(asked)
    noted = replace(
        state,
        done=state.done | matches,
        spoiled=state.spoiled | wrong,
        reading=reading,
    )
    if touch is not None:
        noted, wrong = _note(task, state, noted, response, tool, ok, wrong)
    error = (result.status >= style.BAD_FORMAT) & (result.status <= style.MOVED)

    valid = goal.tool >= 0
    wanted = jnp.where(
        goal.answer < 0, lexicon.style.done, _source(task, state.values, goal.answer)
    )
    right = lexicons.same_value(lexicon, action.value, wanted)
    # A guessed answer does not count: all steps of the goal must be done.
    settled = oracle.settled(task, noted)
    answered = right & jnp.all(settled | ~valid) & ~noted.spoiled
    if task.tools.access is not None:
        answered &= oracle.as_wanted(task, noted)
    # The user changes the request as soon as the answer to it is right.
    changes = (action.kind == reply_scan.ANSWER) & answered & live
    changes &= (faults.change.constant >= 0) & ~state.changed
    kind = jnp.where(changes, _GOES_ON, action.kind)
    graded = grading.advance(
        noted,
        kind,
        right=answered,
        error=error,
        withheld=jnp.any(~task.shown & ~state.told),
        wrong_effects=state.wrong_effects + wrong,
        max_turns=max_turns,
    )
    needs = jnp.stack(
        [result.status == style.WRONG_CODE, result.status == style.OUT_OF_ORDER]
    )
    expired = task.tools.relation == task.tools.relation[result.target]
    expired &= live & (result.status == style.EXPIRED_CODE)
    changed = response.outdated & live & (result.status == style.STALE)
    num_done = jnp.sum(graded.done & ~state.done & valid)
    again = valid & jnp.any(state.new_args != state.args, axis=1)
    num_wanted = jnp.sum(valid) + jnp.sum(again & (faults.change.constant >= 0))
    new = replace(
        graded,
        done=graded.done & ~(changes & again),
        clock=state.clock + num_done,
        missed=(state.missed & ~lists) | (here & missed),
        changed=state.changed | changes,
        values=jnp.where(changes, state.new_values, state.values),
        args=jnp.where(changes, state.new_args, state.args),
        first_args=jnp.where(changes, state.new_args, state.first_args),
        limited=state.limited + (called & live & (faults.pause > 0)),
        has_code=(state.has_code & ~expired) | (here & ok),
        renewed=state.renewed | expired,
        known_needs=state.known_needs | (here[:, None] & needs[None]),
        read_by=jnp.where(first_reading, action.call.tool, state.read_by),
        known_stale=state.known_stale | changed,
        attempts=state.attempts + tried,
        succeeded=state.succeeded | (here & ok),
        known_dead=state.known_dead | (here & (gone | missed)),
        known_from=state.known_from | pointed | listed,
        told=state.told | ((action.kind == reply_scan.ASK) & live & ~task.shown),
    )
    status = jnp.where(changes, style.USER_CHANGE, result.status)
    status = jnp.where(live, status, style.NO_RESULT)
    return new, grading.timestep(
        state,
        new,
        kind,
        replace(result, status=status),
        progress=num_done / jnp.maximum(num_wanted, 1),
        max_turns=max_turns,
    )


_GOES_ON = -1  # the kind of an action that neither calls, asks nor ends the episode


def no_action(num_args: int) -> Action:
    """Return the action that stands for a reply that could not be parsed."""
    none = jnp.int32(-1)
    call = types.ToolCall(none, jnp.full(num_args, -1, jnp.int32), none)
    return Action(jnp.int32(reply_scan.MALFORMED), call, none)


def results(
    task: Task,
    tool: Int[Array, ""],
    args: Int[Array, "A"],
    changes: Bool[Array, ""] | bool = False,
) -> Int[Array, "V"]:
    """Return the values that a call returns; -1 where there is no such value.

    Args:
      task: the task.
      tool: the row of the tool.
      args: its arguments.
      changes: whether to return others, as they were before they changed.
    """
    drawn = _drawn(task, tool, args, changes)
    if task.facts is None:
        return drawn
    known = _recorded(task, task.facts, tool, args)
    # Nothing is derived from recorded results.
    room = (0, drawn.shape[0] - task.facts.values.shape[1])
    found = jnp.pad(task.facts.values[jnp.argmax(known)], room, constant_values=-1)
    return jnp.where(jnp.any(known), found, drawn)


def _drawn(task: Task, tool: Array, args: Array, changes: Array | bool) -> Array:
    low, high = task.tools.result_low[tool], task.tools.result_high[tool]
    value = pages.call_hash(task.world, task.tools.relation[tool], args)
    if task.tools.lists is not None:
        lists = jax.tree.map(lambda x: x[tool], task.tools.lists)
        return result_lists.drawn(lists, value, low, high, changes)
    value = draw.mix(value, jnp.arange(low.shape[0]))
    size = jnp.maximum(high - low, 1).astype(jnp.uint32)
    value = value % size + result_lists.shift(value, size, changes)
    drawn = scalars.canonical(low + (value % size).astype(jnp.int32))
    return jnp.where(high > low, drawn, -1)


def _recorded(
    task: Task, facts: Facts, tool: Int[Array, ""], args: Int[Array, "A"]
) -> Bool[Array, "R"]:
    """Return which of the recorded calls equal this one."""
    same = jnp.all(facts.args == args[None], axis=1)
    return same & (facts.relation == task.tools.relation[tool])


def _solutions(task: Task) -> tuple[Solution, Solution]:
    """Return what the steps do before and after the user changes the request."""
    both = jax.vmap(lambda x: solution(dynamic.as_changed(task, x)))(jnp.arange(2) > 0)
    first, later = (jax.tree.map(lambda x, i=i: x[i], both) for i in range(2))
    return first, later


def solution(task: Task) -> Solution:
    """Return what the steps of the goal do, each after those before it."""
    access, num_steps = task.tools.access, task.goal.tool.shape[0]
    values = jnp.full((num_steps, task.tools.num_values), -1, jnp.int32)
    is_stale = task.faults.stale
    cells = access and records.empty(num_steps, access.source.shape[1])

    def call(made, step):  # a loop compiles once
        values, first, cells = made
        c, wanted, sources = step
        tool = jnp.maximum(wanted, 0)
        default = task.tools.arg_default[tool]
        left_out = jnp.maximum(default, 0)
        args, first_args = (
            jnp.where(sources < 0, left_out, _source(task, known, sources))
            for known in (values, first)
        )
        found, key = results(task, tool, args), jnp.int32(0)
        if access is not None:
            touch = records.touch(access, task.world, cells, tool, args, found)
            found, key = touch.values, touch.key
            happens = conditions.hold(task, values)[c] & (touch.status == style.OK)
            table = jnp.where(happens, access.table[tool], 0)
            none = jnp.zeros(access.source.shape[1], bool)
            cells, _ = records.write(cells, table, key, touch.after, none)
        before = jnp.where(is_stale[c], results(task, tool, args, changes=True), found)
        values, first = (
            known.at[c].set(jnp.where(wanted >= 0, new, -1))
            for known, new in ((values, found), (first, before))
        )
        kept = args, first_args, key, leaves_trace(task, tool, args)
        return (values, first, cells), kept

    # In order: a source is always an earlier step.
    order = jnp.arange(num_steps), task.goal.tool, task.goal.source
    (values, _, cells), made = jax.lax.scan(call, (values, values, cells), order)
    args, first_args, keys, own_call = made
    steps = None
    if access is not None and cells is not None:
        left = jax.vmap(lambda n, key: records.find(access, task.world, cells, n, key))
        record = left(jnp.maximum(task.goal.tool, 0), keys)
        steps = Steps(keys, record, own_call & (task.goal.tool >= 0))
    return Solution(args, first_args, values, steps)


def leaves_trace(
    task: Task, tool: Int[Array, ""], args: Int[Array, "A"]
) -> Bool[Array, ""]:
    """Return whether a call changes a record, and is given what no record keeps.

    Args:
      task: the task.
      tool: the row of the tool.
      args: its arguments; one that is left out is its default, and 0 if it has none.
    """
    tools = task.tools
    if tools.access is None:
        return jnp.bool_(False)
    has_arg = tools.arg_high[tool] > tools.arg_low[tool]
    given = has_arg & (args != tools.arg_default[tool])
    lost = given & ~tools.access.kept(args.shape[0])[tool]
    return tools.access.writes[tool] & jnp.any(lost)


def documented(task: Task) -> Task:
    """Return a task in which all is as its documents say, and nothing fails."""
    tools, told = task.tools, ~task.faults.untold
    num_tools, num_steps = tools.relation.shape[0], task.goal.tool.shape[0]
    return replace(
        task,
        tools=replace(
            tools,
            code_from=jnp.where(told, tools.code_from, -1),
            call_after=jnp.where(told, tools.call_after, -1),
        ),
        faults=types.no_faults(num_tools, num_steps),
    )


def remembered(clean: Task, task: Task) -> Task:
    """Return a task with the tools and the goal that it had before it was perturbed.

    What the request says is as in the perturbed task, and so are the values that tools
    return, which may be of unfamiliar entities.
    """
    tools = replace(
        clean.tools,
        result_low=task.tools.result_low,
        result_high=task.tools.result_high,
        access=task.tools.access,
    )
    return replace(clean, tools=tools, constants=task.constants, shown=task.shown)


def callable_tools(task: Task) -> Bool[Array, "N"]:
    """Return the rows that can be called: documented tools and their replacements."""
    row = jnp.arange(task.tools.relation.shape[0])
    moved = task.faults.moved_to[:, None] == row[None]
    return task.tools.visible | jnp.any(moved & task.tools.visible[:, None], axis=0)


def reveals_code(task: Task) -> Bool[Array, "N"]:
    """Return the rows whose results hold a code, because some tool needs it."""
    relation, source = task.tools.relation, task.tools.code_from
    asked = (relation[:, None] == relation[source][None]) & (source >= 0)[None]
    return jnp.any(asked, axis=1)


class _Response(NamedTuple):
    result: ToolResult
    useful: Bool[Array, "C"]  # the steps of the goal that the action matches
    is_first: Bool[Array, "C"]  # of them those whose results will change
    outdated: Bool[Array, "C"]  # those whose results it uses as they were at first
    touch: Touch | None  # what it does to a record
    page: Page | None  # what it shows of a result in pages
    leaves_trace: Bool[Array, ""]


def _respond(lexicon, task, state, action) -> _Response:
    """Return what comes of an action."""
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
    is_old = tools.visible & (faults.moved_to == tool)
    is_drift = (successor >= 0) & (tools.name[moved] == tools.name[tool])
    moved_status = jnp.where(is_drift, style.SCHEMA_CHANGED, style.MOVED)
    # The arguments of a tool are not yet those that it will have.
    too_early = jnp.any(is_old & (tools.name == tools.name[tool]))
    unknown = jnp.where(too_early, style.BAD_ARGUMENT, style.UNKNOWN_TOOL)
    is_unknown = ~is_there & ~(is_gone & (moved >= 0) & tools.visible[tool])
    args, cursor = jnp.where(has_arg, given, 0), jnp.int32(0)
    if tools.pages is not None:
        args, cursor = pages.without_cursor(tools.pages, tool, args)
    unheard = jnp.bool_(False)
    if task.facts is not None:
        unheard = tools.result_low[tool, 0] == types.RECORDED
        unheard &= ~jnp.any(_recorded(task, task.facts, tool, args))
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
        here = _recorded(task, task.facts, tool, args)
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
    target = jnp.where(ok & deprecated, successor, target)
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
    return _Response(result, useful, is_first, outdated, touch, page, trace)


def _sources_among(task: Task, some: Bool[Array, "C A"]) -> Bool[Array, "C"]:
    """Return the steps whose results some arguments of steps are."""
    step = (task.goal.source - task.constants.shape[0]) // task.tools.num_values
    is_source = step[:, :, None] == jnp.arange(some.shape[0])[None, None]
    return jnp.any(is_source & some[:, :, None], axis=(0, 1))


def _unread(task: Task, values: Int[Array, "C V"]) -> Reading | None:
    """Return how far results have been read before the first call."""
    if task.tools.pages is None:
        return None
    sources = oracle.sources(task)
    if task.goal.when is not None:
        sources = jnp.append(sources, task.goal.when[:, 2])
    sources -= task.constants.shape[0]
    return pages.start(task.tools.pages, task.goal.tool, sources, values)


def _note(
    task: Task,
    old: State,
    new: State,
    response: _Response,
    tool: Int[Array, ""],
    ok: Bool[Array, ""],
    wrong: Bool[Array, ""],
) -> tuple[State, Bool[Array, ""]]:
    """Note what a call has done to a record.

    Args:
      task: the task.
      old: the state before the call.
      new: the state after it, but for records.
      response: what comes of the call.
      tool: the called tool.
      ok: whether it succeeded.
      wrong: whether it is wrong if no later call can undo it.

    Returns:
      The state after the call, and whether it has changed something wrongly.
    """
    access, goal, touch = task.tools.access, task.goal, response.touch
    assert access is not None and old.cells is not None and old.steps is not None
    assert touch is not None
    table = jnp.where(ok & ~response.result.blank, access.table[tool], 0)
    shown = records.shown(access, tool, touch)
    cells, fits = records.write(old.cells, table, touch.key, touch.after, shown)
    one = jax.tree.map(lambda x: x[None], touch.after)
    cell = Cells(table[None], touch.key[None], one, shown[None])
    wanted = records.targets(access, goal.tool, old.steps, cell)
    astray = records.is_astray(touch, jax.tree.map(lambda x: x[0], wanted))
    plain, lasts = ~access.writes[tool], response.leaves_trace
    # What is created wrongly can be deleted, with all that the call was given, unless
    # the record is one that was created rightly before: that is not told apart.
    again = old.done & old.steps.own_call & access.creates[goal.tool]
    again &= (access.table[goal.tool] == table) & (old.steps.key == touch.key)
    for_good = plain | (lasts & (~access.creates[tool] | jnp.any(again)))
    noted = replace(
        new,
        cells=cells,
        spoiled=old.spoiled | (wrong & for_good) | (ok & ~fits),
    )
    # A step that changes a record is done as soon as the change is there.
    done = noted.done | (ok & oracle.changed(task, noted))
    return replace(noted, done=done), jnp.where(
        plain, wrong, (ok & astray) | (lasts & wrong)
    )


def _source(task: Task, values: Int[Array, "C V"], source: Int[Array, "..."]) -> Array:
    table = jnp.concatenate([task.constants, values.reshape(-1)])
    return jnp.where(source < 0, 0, table[source])
