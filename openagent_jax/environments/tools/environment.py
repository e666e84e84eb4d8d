"""The dynamics of tool worlds: `reset(lexicon, task)` and `step(lexicon, task, ...)`.

They are pure functions of one task; `jax.vmap` batches them. They need no PRNG key:
results are a hash of the call and of the task's world seed (or recorded), and faults
are planned in the task, so every agent meets the same results and faults.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments import grading
from openagent_jax.environments.tools import cells as records
from openagent_jax.environments.tools import conditions, dynamic, oracle, pages, types
from openagent_jax.environments.tools.cells import Cells
from openagent_jax.environments.tools.pages import Reading
from openagent_jax.environments.tools.response import Response, respond
from openagent_jax.environments.tools.solution import solutions, source
from openagent_jax.environments.tools.types import Action, State, Task
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, style
from openagent_jax.types import Certificate, TimeStep


def reset(lexicon: lexicons.Lexicon, task: Task) -> State:
    """Return the state before the first action."""
    del lexicon
    first, later = solutions(task)
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
        again=again,
        spoiled=jnp.bool_(False),
        cells=cells,
        steps=steps,
        reading=reading,
    )
    return state if cells is None else replace(state, done=oracle.changed(task, state))


def certificate(task: Task) -> Certificate:
    """Certify whether a task can be solved; see `oracle.certificate`."""
    first, later = solutions(task)
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
    the right answer to that. Wrong changes of records count, but fail an episode only
    if they are still there. It also succeeds with a refusal if the oracle certifies the
    task as unsolvable. See `grading.REWARDS` for the rewards.

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
    response = respond(lexicon, task, state, action)
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
    error = ~jnp.isin(result.status, jnp.array(style.NOT_ERRORS))

    valid = goal.tool >= 0
    wanted = jnp.where(
        goal.answer < 0, lexicon.style.done, source(task, state.values, goal.answer)
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
    num_wanted = jnp.sum(valid) + jnp.sum(valid & state.again)
    new = replace(
        graded,
        done=graded.done & ~(changes & state.again),
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
    said = task.said  # no document says that another value has to be given
    return replace(clean, tools=tools, constants=said, said=said, shown=task.shown)


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
    response: Response,
    tool: Int[Array, ""],
    ok: Bool[Array, ""],
    wrong: Bool[Array, ""],
) -> tuple[State, Bool[Array, ""]]:
    """Note what a call has done to a record.

    Args:
      task: the task.
      old: the state before the call.
      new: the state after it, except for records.
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
