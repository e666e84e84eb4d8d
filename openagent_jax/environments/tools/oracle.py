"""The oracle: which tasks can be solved, in how few calls, and what to do next.

Planning is a least fixed point over tools and steps. A tool can be used if it is on
offer, its arguments can be obtained and its prerequisites can be met; a step can be
done if some tool of its relation can be used. Cycles never enter a least fixed point,
so tools that need each other are certified as unusable.

`expert` knows only what an agent can know (the documents, and what feedback has shown);
`certificate` knows all planned faults.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from openagent_jax.environments.tools import types
from openagent_jax.environments.tools.types import Action, State, Task, ToolCall
from openagent_jax.text import reply_scan
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.types import Certificate


class Plan(NamedTuple):
    step_ok: Bool[Array, "C"]  # the step is done or can be done
    tool: Int[Array, "C"]  # cheapest tool of each step
    # Tools that are needed but are no steps: 2 * (index of the first step that needs
    # the tool); `UNNEEDED` for all others.
    extra: Int[Array, "N"]
    ready: Bool[Array, "N"]  # usable, and its prerequisites are met
    cost: Float[Array, "N"]  # calls, including prerequisites; inf: cannot be used


UNNEEDED = 1 << 20
# Why a task cannot be solved; the first stands for those that can.
REASONS = ("", "missing_tool", "out_of_service", "unmet_prerequisite")


def certificate(task: Task) -> Certificate:
    """Certify whether a task can be solved, in how few calls, or why not.

    Calls that fail count too, and so does the call of a tool that was replaced, which
    names the new one. The number is 0 if the task cannot be solved.

    The reason is an index into `REASONS`. If several apply, a step for which no tool is
    on offer takes precedence over a tool that is out of service, and that over
    prerequisites that cannot be met.
    """
    plan = _full_plan(task)
    ok = jnp.all(plan.step_ok)
    tools, faults = task.tools, task.faults
    offered = _offered(task)
    works = offered & (faults.failures < types.FOREVER) & (faults.moved_to < 0)
    serves = tools.relation[task.goal.tool][:, None] == tools.relation[None, :]
    wanted = task.goal.tool >= 0
    lacks_tool = jnp.any(wanted & ~jnp.any(serves & offered[None], axis=1))
    lacks_working = jnp.any(wanted & ~jnp.any(serves & works[None], axis=1))
    reason = jnp.where(lacks_tool, 1, jnp.where(lacks_working, 2, 3))
    return Certificate(ok, _num_calls(task, plan), jnp.where(ok, 0, reason))


def expert(lexicon: Lexicon, task: Task, state: State) -> Action:
    """Return the next action of an agent that reads documents and feedback correctly.

    It asks for constants that the request leaves out, refuses as soon as it knows of no
    solution, and meets a prerequisite just before the call that needs it.
    """
    tools, goal = task.tools, task.goal
    known = (tools.visible | state.known_from) & ~state.known_dead
    plan = _plan(task, known, state.done, state.succeeded, jnp.zeros_like(known))
    valid = goal.tool >= 0
    num_constants, num_fields = task.constants.shape[0], state.values.shape[1]
    source_step = (goal.source - num_constants) // num_fields
    have = (goal.source < num_constants) | state.done[source_step]
    open_step = valid & ~state.done & jnp.all(have, axis=1) & plan.ready[plan.tool]
    step_rank = jnp.where(open_step, 2 * jnp.arange(goal.tool.shape[0]) + 1, UNNEEDED)
    extra_rank = jnp.where(plan.ready, plan.extra, UNNEEDED)
    c, n = jnp.argmin(step_rank), jnp.argmin(extra_rank)
    by_step = step_rank[c] < extra_rank[n]
    tool = jnp.where(by_step, plan.tool[c], n)
    has_arg = (tools.arg_high[tool] > tools.arg_low[tool]) & (goal.source[c] >= 0)
    args = jnp.where(has_arg & by_step, state.args[c], types.MISSING)
    code_from = tools.code_from[tool]
    code = jnp.where(code_from >= 0, tools.code[code_from], -1)

    missing = jnp.any(~task.shown & ~state.told)
    done = jnp.all(state.done | ~valid)
    kind = jnp.where(done, reply_scan.ANSWER, reply_scan.CALL)
    kind = jnp.where(jnp.all(plan.step_ok), kind, reply_scan.REFUSE)
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


def _num_calls(task: Task, plan: Plan) -> Int[Array, ""]:
    """Return the calls of a plan, failing ones included; 0 if it fails."""
    valid = task.goal.tool >= 0
    failures = _detours(task)
    extra = plan.extra < UNNEEDED
    used = jnp.zeros_like(extra).at[plan.tool].max(valid) | extra
    calls = jnp.sum(valid) + jnp.sum(extra) + jnp.sum(jnp.where(used, failures, 0))
    return jnp.where(jnp.all(plan.step_ok), calls, 0)


def _offered(task: Task) -> Bool[Array, "N"]:
    """Return the rows that are documented, or that a redirection names."""
    tools, faults = task.tools, task.faults
    row = jnp.arange(tools.relation.shape[0])
    named = (faults.guided & tools.visible)[:, None]
    pointed = (faults.moved_to[:, None] == row[None]) & named
    return tools.visible | jnp.any(pointed, axis=0)


def _detours(task: Task) -> Int[Array, "N"]:
    """Return how many calls fail before a call of each row works.

    A row that no document mentions is only known from a call of the tool that it
    replaces.
    """
    return task.faults.failures + (_offered(task) & ~task.tools.visible)


def _full_plan(task: Task) -> Plan:
    faults = task.faults
    there = _offered(task)
    there &= (faults.failures < types.FOREVER) & (faults.moved_to < 0)
    return _plan(
        task,
        there,
        jnp.zeros(task.goal.tool.shape, bool),
        jnp.zeros(there.shape, bool),
        _detours(task),
    )


def _plan(
    task: Task,
    there: Bool[Array, "N"],
    done: Bool[Array, "C"],
    succeeded: Bool[Array, "N"],
    failures: Array,
) -> Plan:
    tools, goal = task.tools, task.goal
    num_steps, num_tools = goal.tool.shape[0], tools.relation.shape[0]
    valid = goal.tool >= 0
    same = tools.relation[:, None] == tools.relation[None, :]
    serves = same[goal.tool] & valid[:, None]  # [C, N]
    no_args = jnp.all(tools.arg_high <= tools.arg_low, axis=1)
    before = jnp.stack([tools.code_from, tools.call_after], axis=1)  # [N, 2]
    provides = same[before]  # [N, 2, N]
    met = (before < 0) | jnp.any(provides & succeeded[None, None], axis=2)
    num_constants, num_fields = task.constants.shape[0], tools.result_low.shape[1]
    source_step = (goal.source - num_constants) // num_fields
    given = goal.source < num_constants

    def wider(_, known):
        """Return the costs of tools, and steps, that one more round finds."""
        cost, step_ok, _ = known
        sources = jnp.all(given | step_ok[source_step], axis=1)
        args_ok = no_args | jnp.any(serves & sources[:, None], axis=0)
        provider = jnp.where(provides, cost, jnp.inf)
        extra_cost = jnp.sum(jnp.where(met, 0.0, jnp.min(provider, axis=2)), axis=1)
        cost = jnp.where(there & args_ok, 1.0 + failures + extra_cost, jnp.inf)
        step_cost = jnp.where(serves, cost, jnp.inf)
        step_ok = done | ~valid | (sources & (jnp.min(step_cost, axis=1) < jnp.inf))
        return cost, step_ok, step_cost

    # A chain of steps, and of tools before tools. A loop compiles once.
    start = jnp.full(num_tools, jnp.inf), done | ~valid, jnp.full(serves.shape, jnp.inf)
    cost, step_ok, step_cost = jax.lax.fori_loop(0, num_steps + 3, wider, start)
    tool = jnp.argmin(step_cost, axis=1)

    # Which tools are needed that are no steps, and before which step.
    todo = valid & ~done
    need = jnp.full(num_tools, UNNEEDED)
    need = need.at[tool].min(jnp.where(todo, 2 * jnp.arange(num_steps), UNNEEDED))
    by_step = jnp.any(serves & todo[:, None], axis=0)
    choice = jnp.argmin(jnp.where(provides, cost, jnp.inf), axis=2)  # [N, 2]
    for _ in range(3):
        wanted = jnp.where(met, UNNEEDED, need[:, None])
        need = need.at[choice].min(wanted)
    return Plan(
        step_ok=step_ok,
        tool=tool,
        extra=jnp.where(by_step, UNNEEDED, need),
        ready=jnp.all(met, axis=1) & (cost < jnp.inf),
        cost=cost,
    )
