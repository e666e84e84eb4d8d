"""The oracle: which tasks can be solved, in how few calls, and what to do next.

Planning is a least fixed point over tools and steps. A tool can be used if it is on
offer, its arguments can be obtained and its prerequisites can be met; a step can be
done if some tool of its relation can be used. Cycles never enter a least fixed point,
so tools that need each other are certified as unusable.

`expert` knows only what an agent can know (the documents, and what feedback has shown);
`certificate` knows all planned faults.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.domains.limits import MAX_PREREQUISITES
from openagent_jax.environments.tools import cells as records
from openagent_jax.environments.tools import conditions, dynamic, pages, repair, types
from openagent_jax.environments.tools.cells import Steps
from openagent_jax.environments.tools.pages import Reading
from openagent_jax.environments.tools.types import Action, State, Task, ToolCall
from openagent_jax.text import reply_scan
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.types import Certificate


class Plan(NamedTuple):
    step_ok: Bool[Array, "C"]  # the step is done or can be done
    tool: Int[Array, "C"]  # cheapest tool of each step
    # Tools that are needed but are not steps: 2 * (index of the first step that needs
    # the tool); `UNNEEDED` for all others.
    extra: Int[Array, "N"]
    ready: Bool[Array, "N"]  # usable, and its prerequisites are met
    # The cheapest of the rows that would put a record right; -1: there is none.
    repair: Int[Array, ""]


class Order(NamedTuple):
    """What records ask of a plan."""

    before: Bool[Array, "C C"]  # step b has to wait for step a, at [a, b]
    repairs: Bool[Array, "N"]  # rows whose call would put a record right
    last: Bool[Array, "N"]  # those of them that are used if no other one can be


UNNEEDED = 1 << 20
BEFORE_STEPS = -2  # the place of what puts a record right, among `Plan.extra`
# Why a task cannot be solved; the first stands for those that can.
REASONS = ("", "missing_tool", "out_of_service", "unmet_prerequisite")


def settled(task: Task, state: State) -> Bool[Array, "C"]:
    """Return the steps that need no call, as things are.

    A step that changes a record is settled while the change is there, whichever calls
    have made it. A call of its own is needed only where its results are.
    """
    if task.tools.access is None:
        return state.done
    needs_call = _needs_call(task, state.steps) & ~state.done
    return jnp.where(_writes(task), _in_place(task, state) & ~needs_call, state.done)


def changed(task: Task, state: State) -> Bool[Array, "C"]:
    """Return the steps whose only purpose is a change of a record that is there."""
    own_call = _needs_call(task, state.steps)
    return _writes(task) & _in_place(task, state) & ~own_call


def may_repeat(task: Task, state: State) -> Bool[Array, "C"]:
    """Return the steps whose call is asked for, as things are.

    A step is called again if what it has set is there no more. One that adds is not:
    what it was given for would happen twice.
    """
    access = task.tools.access
    if access is None:
        return ~state.done
    return ~settled(task, state) & ~(state.done & access.adds[task.goal.tool])


def shows(task: Task) -> Bool[Array, "C"]:
    """Return the steps whose results the goal needs: all but mere changes."""
    return _is_used(task) | ~_writes(task)


def _needs_call(task: Task, steps: Steps | None) -> Bool[Array, "C"]:
    """Return the steps that need a call of their own, whatever the records are."""
    assert steps is not None
    return _is_used(task) | steps.own_call


def _in_place(task: Task, state: State) -> Bool[Array, "C"]:
    access, goal = task.tools.access, task.goal
    assert access is not None and state.cells is not None and state.steps is not None
    now = records.now(access, task.world, goal.tool, state.steps, state.cells)
    return records.in_place(access, goal.tool, state.steps, now)


def as_wanted(task: Task, state: State) -> Bool[Array, ""]:
    """Return whether no record differs from what the goal makes of the world."""
    access, goal = task.tools.access, task.goal
    assert access is not None and state.cells is not None and state.steps is not None
    return records.as_wanted(access, goal.tool, state.steps, state.cells)


def _writes(task: Task) -> Bool[Array, "C"]:
    """Return the steps that change a record."""
    access = task.tools.access
    assert access is not None
    return access.writes[task.goal.tool] & (task.goal.tool >= 0)


def _is_used(task: Task) -> Bool[Array, "C"]:
    """Return the steps whose results are used, or are the answer."""
    return jnp.any(task.from_step(sources(task)), axis=0)


def sources(task: Task) -> Int[Array, "_"]:
    """Return all sources that a goal uses; -1 where there is none."""
    goal = task.goal
    found = jnp.append(goal.source.reshape(-1), goal.answer)
    if goal.when is None:
        return found
    return jnp.append(found, goal.when[:, 0])


def certificate(
    task: Task,
    steps: Steps | None = None,
    reading: Reading | None = None,
    again: Bool[Array, "C"] | None = None,
) -> Certificate:
    """Certify whether a task can be solved, in how few calls, or why not.

    Calls that fail count too, and so does the call of a tool that was replaced, which
    names the new one. The number is 0 if the task cannot be solved.

    The reason is an index into `REASONS`. If several apply, a step for which no tool is
    on offer takes precedence over a tool that is out of service, and that over
    prerequisites that cannot be met.

    Args:
      task: the task, with the steps that its goal needs (see `conditions.with_needed`).
      steps: the records that its steps touch; see `solution.solution`. None if its
        tools touch none.
      reading: how far their results have to be read; None if these are whole.
      again: the steps to do once more, after the user has changed the request; None if
        the user does not.
    """
    done, order = _at_start(task, steps)
    plan = _full_plan(task, done, order)
    ok = jnp.all(plan.step_ok)
    tools, faults = task.tools, task.faults
    offered = dynamic.offered(task)
    works = offered & _lasts(task)
    serves = tools.relation[task.goal.tool][:, None] == tools.relation[None, :]
    wanted = (task.goal.tool >= 0) & ~done
    lacks_tool = jnp.any(wanted & ~jnp.any(serves & offered[None], axis=1))
    lacks_working = jnp.any(wanted & ~jnp.any(serves & works[None], axis=1))
    reason = jnp.where(lacks_tool, 1, jnp.where(lacks_working, 2, 3))
    settled = done if order is None else done | _is_repeated(task, order)
    num_calls = _num_calls(task, plan, settled) + jnp.sum(faults.stale & wanted)
    again = jnp.zeros_like(done) if again is None else again & wanted
    num_calls += jnp.sum(again) - dynamic.saved(task, wanted, again, plan.tool)
    if reading is not None:
        num_calls += pages.num_further(reading, wanted)
    # A quota is used up before each pause but the last.
    num_calls += jnp.maximum(num_calls - 1, 0) // faults.quota * faults.pause
    return Certificate(ok, jnp.where(ok, num_calls, 0), jnp.where(ok, 0, reason))


def _is_repeated(task: Task, order: Order) -> Bool[Array, "C"]:
    """Return the steps whose call is that of an earlier step, with the same results.

    Two readings of a record are one if the change between them is not needed.
    """
    goal, valid = task.goal, task.goal.tool >= 0
    relation = task.tools.relation[goal.tool]
    same = (relation[:, None] == relation[None]) & valid[:, None] & valid[None]
    same &= jnp.all(goal.source[:, None] == goal.source[None], axis=2)
    between = jnp.any(order.before[:, :, None] & order.before[None], axis=1)
    earlier = jnp.triu(jnp.ones(same.shape, bool), 1)
    return jnp.any(same & ~between & earlier, axis=0)


def expert(lexicon: Lexicon, task: Task, state: State) -> Action:
    """Return the next action of an agent that reads documents and feedback correctly.

    It asks for constants that the request leaves out, refuses as soon as it knows of no
    solution, and meets a prerequisite just before the call that needs it. It puts wrong
    changes right, and refuses after one that no call can undo.
    """
    state = _as_seen(task, state)
    task = dynamic.as_changed(task, state.changed)
    task, needed = conditions.with_possible(task, state.values, state.done)
    tools, goal = task.tools, task.goal
    known = (tools.visible | state.known_from) & ~state.known_dead
    none, done = jnp.zeros_like(known), settled(task, state)
    order = fixes = None
    may_call = jnp.ones_like(done)
    if tools.access is not None:
        fixes = repair.fixes(task, state, done, _is_used(task))
        order = Order(fixes.before, fixes.rows & known, fixes.last)
        may_call = fixes.may_call
    needs = _needs(task, ~task.faults.untold[:, None] | state.known_needs)
    obtained = jnp.stack([state.has_code, state.succeeded])
    plan = _plan(task, needed, known, done, needs, obtained, none, none, order)
    source_step = task.source_step(goal.source)
    have = (source_step < 0) | state.done[source_step]
    has_sources = jnp.all(have, axis=1) & may_call
    open_step = needed & ~done & has_sources & plan.ready[plan.tool]
    step_rank = jnp.where(open_step, 2 * jnp.arange(goal.tool.shape[0]) + 1, UNNEEDED)
    extra_rank = jnp.where(plan.ready, plan.extra, UNNEEDED)
    c, n = jnp.argmin(step_rank), jnp.argmin(extra_rank)
    by_step = step_rank[c] < extra_rank[n]
    tool = jnp.where(by_step, plan.tool[c], n)
    has_arg = (tools.arg_high[tool] > tools.arg_low[tool]) & (goal.source[c] >= 0)
    args = jnp.where(has_arg, state.args[c], types.MISSING)
    # What is called again, or before another tool, may be that of another step.
    serves = (tools.relation[goal.tool] == tools.relation[tool]) & (goal.tool >= 0)
    s = jnp.argmax(serves)
    has_arg = (tools.arg_high[tool] > tools.arg_low[tool]) & (goal.source[s] >= 0)
    served = jnp.where(has_arg & jnp.any(serves), state.args[s], types.MISSING)
    args = jnp.where(by_step, args, served)
    ends, lost = jnp.all(done | ~needed), state.spoiled
    if fixes is not None:
        row = plan.repair
        now = (row >= 0) & plan.ready[row]
        tool, args = jnp.where(now, row, tool), jnp.where(now, fixes.args[row], args)
        nothing = jnp.minimum(step_rank[c], extra_rank[n]) == UNNEEDED
        nothing &= ~((plan.repair >= 0) & plan.ready[plan.repair])
        ends &= plan.repair < 0
        # Where no plan is left, a list of new tools may still help.
        nothing &= jnp.all(plan.step_ok)
        lost |= nothing & ~ends | ends & ~as_wanted(task, state)
    if tools.pages is not None and state.reading is not None:
        call = pages.call_hash(task.world, tools.relation[tool], state.args[c])
        every = pages.cursors(tools.pages, call, tool, tools.arg_low, tools.arg_high)
        following = every[jnp.minimum(state.reading.read[c], pages.ALL)]
        is_cursor = tools.pages.is_cursor(args.shape[0])[tool]
        args = jnp.where(is_cursor & by_step & (following > 0), following, args)
    code_from = needs[tool, 0]
    codes = jnp.where(state.renewed, task.faults.new_code, tools.code)
    code = jnp.where(code_from >= 0, codes[code_from], -1)

    # What has replaced a tool without a word may be on a list of new tools.
    lister, solved = task.faults.lister, jnp.all(plan.step_ok)
    looks = ~solved & ~lost & (lister >= 0) & jnp.any(state.missed)
    tool, code = jnp.where(looks, lister, tool), jnp.where(looks, -1, code)
    args = jnp.where(looks, types.MISSING, args)
    solved |= looks
    missing = jnp.any(~task.shown & ~state.told)
    kind = jnp.where(ends, reply_scan.ANSWER, reply_scan.CALL)
    kind = jnp.where(solved & ~lost, kind, reply_scan.REFUSE)
    kind = jnp.where(missing & (kind == reply_scan.CALL), reply_scan.ASK, kind)
    called = kind == reply_scan.CALL
    table = jnp.concatenate([task.constants, state.values.reshape(-1)])
    return Action(
        kind=kind.astype(jnp.int32),
        call=ToolCall(
            tool=jnp.where(called, tool, -1).astype(jnp.int32),
            args=jnp.where(called, args, -1),
            code=jnp.where(called, code, -1),
        ),
        # A goal without an answer value is closed by the word "done".
        value=jnp.where(
            kind == reply_scan.ANSWER,
            jnp.where(goal.answer < 0, lexicon.style.done, table[goal.answer]),
            -1,
        ),
    )


def _as_seen(task: Task, state: State) -> State:
    """Return the state as seen by an agent, which knows only what feedback has shown.

    Results that have changed since they were read are as they were read, until feedback
    has shown that they have changed.
    """
    unread, goal = task.faults.stale & ~state.done, task.goal
    step = task.source_step(goal.source)
    from_unread = (step >= 0) & unread[step]
    return replace(
        state,
        done=state.done | (unread & (state.read_by >= 0) & ~state.known_stale),
        args=jnp.where(from_unread, state.first_args, state.args),
    )


def _needs(task: Task, told: Bool[Array, "N 2"] | bool) -> Int[Array, "N 2"]:
    """Return the rows whose code each row needs, or that must be called before it; -1
    for none.

    Args:
      task: the task.
      told: which of them are known.
    """
    needs = jnp.stack([task.tools.code_from, task.tools.call_after], axis=1)
    return jnp.where(told, needs, -1)


def _at_start(task: Task, steps: Steps | None) -> tuple[Array, Order | None]:
    """Return the steps that need no call from the start, and what records ask for."""
    access, goal = task.tools.access, task.goal
    if access is None or steps is None:
        return jnp.zeros(goal.tool.shape, bool), None
    cells = records.start(goal.tool.shape[0], access.source.shape[1])
    now = records.now(access, task.world, goal.tool, steps, cells)
    there = records.in_place(access, goal.tool, steps, now)
    before = records.step_order(access, goal.tool, steps)
    no_repair = jnp.zeros(access.table.shape, bool)
    needs_call = _needs_call(task, steps)
    return there & _writes(task) & ~needs_call, Order(before, no_repair, no_repair)


def _num_calls(task: Task, plan: Plan, done: Bool[Array, "C"]) -> Int[Array, ""]:
    """Return the calls of a plan, failing ones included; 0 if it fails."""
    valid, faults = (task.goal.tool >= 0) & ~done, task.faults
    extra = plan.extra < UNNEEDED
    by_step = jnp.zeros_like(extra).at[plan.tool].max(valid)
    used = by_step | extra
    failures = jnp.where(used, _detours(task), 0)
    failures += jnp.where(by_step, _blanks(task), 0)
    # A code that expires costs the call that it was meant for, and one for the new one.
    code_from = task.tools.code_from
    codes = jnp.zeros_like(used).at[code_from].max(used & (code_from >= 0))
    calls = jnp.sum(valid) + jnp.sum(extra) + jnp.sum(failures)
    calls += 2 * jnp.sum(codes & (faults.new_code > 0))
    return jnp.where(jnp.all(plan.step_ok), calls, 0)


def _lasts(task: Task) -> Bool[Array, "N"]:
    """Return the rows that work to the end, once they do."""
    faults = task.faults
    return (faults.failures < types.FOREVER) & (faults.gone_at >= types.FOREVER)


def _detours(task: Task) -> Int[Array, "N"]:
    """Return how many calls come before the first working call of each row: its failing
    calls, and the one that reveals its name."""
    return task.faults.failures + dynamic.detours(task)


def _blanks(task: Task) -> Int[Array, "N"]:
    """Return how many calls of each row succeed before one returns its values."""
    return jnp.where(task.tools.effect, 0, task.faults.blanks)


def _full_plan(task: Task, done: Bool[Array, "C"], order: Order | None) -> Plan:
    there = dynamic.offered(task) & _lasts(task)
    return _plan(
        task,
        task.goal.tool >= 0,
        there,
        done,
        _needs(task, True),
        jnp.zeros((2, *there.shape), bool),
        _detours(task),
        _blanks(task),
        order,
    )


def _plan(
    task: Task,
    valid: Bool[Array, "C"],
    there: Bool[Array, "N"],
    done: Bool[Array, "C"],
    before: Int[Array, "N 2"],
    obtained: Bool[Array, "2 N"],
    failures: Array,
    blanks: Array,
    order: Order | None,
) -> Plan:
    tools, goal = task.tools, task.goal
    num_steps, num_tools = goal.tool.shape[0], tools.relation.shape[0]
    same = tools.relation[:, None] == tools.relation[None, :]
    # A step that may be needed, but is not known to be, is not planned. A tool that
    # needs its tool can be used all the same: if not, that will be seen in time.
    serves = same[goal.tool] & (goal.tool >= 0)[:, None]  # [C, N]
    no_arg = tools.arg_high <= tools.arg_low
    if tools.pages is not None:  # a call for the first page needs no cursor
        no_arg |= tools.pages.is_cursor(no_arg.shape[1])
    no_args = jnp.all(no_arg, axis=1)
    provides = same[before]  # [N, 2, N]
    met = (before < 0) | jnp.any(provides & obtained[None], axis=2)
    source_step = task.source_step(goal.source)
    if order is not None:
        no_args |= order.repairs  # their arguments are known

    def wider(_, known):
        """Return the costs of tools, and steps, that one more round finds."""
        cost, step_ok, _ = known
        sources = jnp.all((source_step < 0) | step_ok[source_step], axis=1)
        if order is not None:
            sources &= jnp.all(~order.before | step_ok[:, None], axis=0)
        args_ok = no_args | jnp.any(serves & sources[:, None], axis=0)
        cheapest = jnp.min(jnp.where(same, cost[:, None], jnp.inf), axis=0)
        extra_cost = jnp.sum(jnp.where(met, 0.0, cheapest[before]), axis=1)
        cost = jnp.where(there & args_ok, 1.0 + failures + extra_cost, jnp.inf)
        step_cost = jnp.where(serves, cost + blanks, jnp.inf)
        step_ok = done | ~valid | (sources & (jnp.min(step_cost, axis=1) < jnp.inf))
        return cost, step_ok, step_cost

    # A chain of steps, and of tools before tools. A loop compiles once.
    start = jnp.full(num_tools, jnp.inf), done | ~valid, jnp.full(serves.shape, jnp.inf)
    cost, step_ok, step_cost = jax.lax.fori_loop(
        0, num_steps + MAX_PREREQUISITES, wider, start
    )
    tool = jnp.argmin(step_cost, axis=1)

    # Which needed tools are not steps, and before which step they are called.
    todo = valid & ~done
    need = jnp.full(num_tools, UNNEEDED)
    need = need.at[tool].min(jnp.where(todo, 2 * jnp.arange(num_steps), UNNEEDED))
    by_step = jnp.any(serves & ~done[:, None], axis=0)
    choice = jnp.argmin(jnp.where(same, cost[:, None], jnp.inf), axis=0)[before]
    best = jnp.int32(-1)
    if order is not None:
        price = cost + jnp.where(order.last, UNNEEDED, 0)
        price = jnp.where(order.repairs, price, jnp.inf)
        best = jnp.argmin(price)
        best = jnp.where(price[best] < jnp.inf, best, -1)
        need = jnp.where(jnp.arange(num_tools) == best, BEFORE_STEPS, need)
    for _ in range(MAX_PREREQUISITES):
        wanted = jnp.where(met, UNNEEDED, need[:, None])
        need = need.at[choice].min(wanted)
    return Plan(
        step_ok=step_ok,
        tool=tool,
        extra=jnp.where(by_step, UNNEEDED, need),
        ready=jnp.all(met, axis=1) & (cost < jnp.inf),
        repair=best,
    )
