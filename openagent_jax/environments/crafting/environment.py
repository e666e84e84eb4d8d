"""The dynamics of crafting worlds: `reset(task)` and `step(lexicon, task, ...)`.

They are pure functions of one task; `jax.vmap` batches them. They need no PRNG key:
faults are planned in the task, so every agent meets the same faults.
"""

from dataclasses import replace

import jax.numpy as jnp

from openagent_jax.environments import grading
from openagent_jax.environments.crafting import oracle, types
from openagent_jax.environments.crafting.types import Action, Call, Result, State, Task
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, style
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.types import TimeStep


def reset(task: Task) -> State:
    """Return the state before the first action."""
    proof = oracle.certificate(task)
    needed = jnp.sum(oracle.true_plan(task, task.held).todo)
    return State(
        **vars(grading.start(proof)),
        held=task.held,
        attempts=jnp.zeros_like(task.held),
        known_sold_out=jnp.zeros_like(task.items.raw),
        told=jnp.bool_(False),
        num_needed=needed,
        fewest_left=needed,
    )


def step(
    lexicon: Lexicon, task: Task, state: State, action: Action, max_turns: int
) -> tuple[State, TimeStep]:
    """Apply one action of the agent. A finished episode does not change any more.

    An episode succeeds with the answer "done" if the goal item is held and nothing was
    crafted that the goal did not need (that would use up the user's items). It also
    succeeds with a refusal if the oracle certifies the task as unsolvable. See
    `grading.REWARDS` for the rewards.

    Args:
      lexicon: the lexicon of which the value of an answer is a symbol.
      task: one task.
      state: the state before the action.
      action: the action of the agent.
      max_turns: number of actions after which an episode is truncated.

    Returns:
      The new state, and the timestep whose observation is a `Result`.
    """
    result = _respond(task, state, action)
    live = ~state.finished
    called = action.kind == reply_scan.CALL
    rows = jnp.arange(len(task.held))
    here = (rows == action.call.item) & called & live
    here &= action.call.tool != types.INVENTORY
    ok = result.status == style.OK
    got = here & ok & (action.call.tool == types.GET)
    crafted = here & ok & (action.call.tool == types.CRAFT)
    before = oracle.true_plan(task, state.held).todo
    held = state.held + got + crafted - crafted @ oracle.uses(task.items)
    left = jnp.sum(oracle.true_plan(task, held).todo)
    wrong = state.wrong_effects + jnp.sum(crafted & (before == 0))
    error = ~jnp.isin(result.status, jnp.array(style.NOT_ERRORS))

    right = lexicons.same_value(lexicon, action.value, jnp.int32(lexicon.style.done))
    right &= (state.held[task.goal] > 0) & (state.wrong_effects == 0)
    asked = (action.kind == reply_scan.ASK) & live
    graded = grading.advance(
        state,
        action.kind,
        right=right,
        error=error,
        withheld=~task.shown & ~state.told,
        wrong_effects=wrong,
        max_turns=max_turns,
    )
    new = replace(
        graded,
        held=held,
        attempts=state.attempts + (here & (ok | (result.status == style.TRANSIENT))),
        known_sold_out=state.known_sold_out
        | (here & (result.status == types.SOLD_OUT)),
        told=state.told | (asked & ~task.shown),
        fewest_left=jnp.minimum(state.fewest_left, left),
    )
    progress = state.fewest_left - new.fewest_left
    progress /= jnp.maximum(state.num_needed, 1)
    status = jnp.where(live, result.status, style.NO_RESULT)
    return new, grading.timestep(
        state,
        new,
        action.kind,
        replace(result, status=status, held=new.held),
        progress=jnp.where(state.solvable, progress, 0),
        max_turns=max_turns,
    )


def no_action() -> Action:
    """Return the action that stands for a reply that could not be parsed."""
    none = jnp.int32(-1)
    call = Call(tool=none, item=jnp.int32(types.NO_ITEM))
    return Action(jnp.int32(reply_scan.MALFORMED), call, none)


def _respond(task: Task, state: State, action: Action) -> Result:
    """Return the result of an action; it holds the inventory before the action."""
    items, tool, given = task.items, action.call.tool, action.call.item
    item = jnp.maximum(given, 0)
    ingredients = items.ingredients[item]
    short = (oracle.uses(items)[item] > state.held)[ingredients] & (ingredients >= 0)
    gets, crafts = tool == types.GET, tool == types.CRAFT
    lists = tool == types.INVENTORY
    misfit = (given == types.NO_ITEM) | (given == types.WRONG_ARGUMENTS)
    misfit = jnp.where(lists, given != types.NO_ITEM, misfit)
    failing = state.attempts[item] < task.faults.failures[item]
    # Later entries take precedence over earlier ones.
    status, about = jnp.int32(style.OK), jnp.int32(-1)
    for trouble, code, row in (
        (failing & ~lists, style.TRANSIENT, -1),
        (gets & task.faults.sold_out[item], types.SOLD_OUT, -1),
        (crafts & jnp.any(short), types.LACKING, ingredients[jnp.argmax(short)]),
        (gets & ~items.raw[item], types.NOT_RAW, -1),
        (crafts & ~oracle.has_recipe(items)[item], types.NO_RECIPE, -1),
        (given == types.UNKNOWN_ITEM, types.NO_SUCH_ITEM, -1),
        (misfit, style.BAD_ARGUMENT, -1),
        (tool < 0, style.UNKNOWN_TOOL, -1),
        (action.kind == reply_scan.ASK, style.USER_REPLY, -1),
        (action.kind == reply_scan.MALFORMED, style.BAD_FORMAT, -1),
        (action.kind == reply_scan.ANSWER, style.NO_RESULT, -1),
        (action.kind == reply_scan.REFUSE, style.NO_RESULT, -1),
    ):
        status = jnp.where(trouble, code, status)
        about = jnp.where(trouble, row, about)
    answered = jnp.where(status == style.OK, tool, -1)
    return Result(status, answered, about, state.held)
