"""Demonstrations: the expert acts in the world, one scan over turns."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from openagent_jax import types
from openagent_jax.sandbox import environment, lexicon, oracle
from openagent_jax.types import Action, Task, Trajectory


def demonstrate(lexicon: lexicon.Lexicon, task: Task, max_turns: int) -> Trajectory:
    """The trajectory of the oracle's expert on one task."""

    def turn(state, _):
        action = oracle.expert(task, state)
        # A goal without an answer value is closed by the word "done".
        silent = (action.kind == types.ANSWER) & (task.goal.answer < 0)
        action = replace(
            action, value=jnp.where(silent, lexicon.style.done, action.value)
        )
        new, timestep = environment.step(lexicon, task, state, action, max_turns)
        return new, (action, timestep.observation, ~state.finished)

    state = environment.reset(lexicon, task)
    state, (action, result, valid) = jax.lax.scan(turn, state, length=max_turns)
    return Trajectory(task, action, result, valid, state)


def no_action(num_args: int) -> Action:
    """An action that says nothing (malformed)."""
    none = jnp.int32(-1)
    call = types.ToolCall(none, jnp.full(num_args, -1, jnp.int32), none)
    return Action(jnp.int32(types.MALFORMED), call, none)


def no_result(num_fields: int) -> types.ToolResult:
    """A result that shows nothing."""
    none = jnp.int32(-1)
    fields = jnp.full(num_fields, -1, jnp.int32)
    return types.ToolResult(jnp.int32(types.NO_RESULT), none, fields, none, none)
