"""What every family of worlds counts of an episode, pays for an action, and reports.

A family knows what an action does to its world; that an answer was right, what was
needed and what the action added. The rest is the same for all of them, and is here.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from openagent_jax.text import reply_scan
from openagent_jax.types import Certificate, Observation, Outcome, TimeStep

# What a step pays, by component, before any weight. Components see the policy's own
# actions and the state of the world, nothing else: not what a tool has answered, and
# not which perturbation was at work. That a task is unsolvable the oracle certifies.
REWARDS = (
    ("outcome", "1 for the right answer to a task that can be solved"),
    ("refusal", "1 for refusing a task that cannot be solved"),
    ("abstain", "1 for refusing a task that can be solved"),
    ("wrong", "1 for a wrong answer"),
    ("effect", "1 for each change of the world that was not asked for"),
    ("format", "1 for each action that could not be read"),
    ("step", "1 for each action"),
    ("detour", "1 for each call more than the fewest that solve the task"),
    ("progress", "the share of what the goal needs that an action does"),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Record:
    """What is counted of an episode: the part of its state that grading needs."""

    turn: Int[Array, ""]
    num_calls: Int[Array, ""]  # those that could not be read included
    num_errors: Int[Array, ""]  # calls that were answered by an error
    num_questions: Int[Array, ""]  # to the user
    wrong_effects: Int[Array, ""]  # effects that the goal did not ask for
    solvable: Bool[Array, ""]  # by the oracle
    fewest_calls: Int[Array, ""]  # of the shortest solution; 0 if there is none
    finished: Bool[Array, ""]
    success: Bool[Array, ""]
    refused: Bool[Array, ""]


S = TypeVar("S", bound=Record)


def start(proof: Certificate) -> Record:
    """The record of an episode before its first action.

    Args:
      proof: what the oracle knows of the task.
    """
    zero, no = jnp.int32(0), jnp.bool_(False)
    return Record(
        turn=zero,
        num_calls=zero,
        num_errors=zero,
        num_questions=zero,
        wrong_effects=zero,
        solvable=proof.solvable,
        fewest_calls=proof.fewest_calls,
        finished=no,
        success=no,
        refused=no,
    )


def advance(
    state: S,
    kind: Int[Array, ""],
    *,
    right: Bool[Array, ""],
    error: Bool[Array, ""],
    wrong_effects: Int[Array, ""],
    max_turns: int,
) -> S:
    """The state with its record after one action; a finished episode keeps it.

    Args:
      state: before the action.
      kind: of the action; see `text.reply_scan`.
      right: whether an answer at this point is right.
      error: whether the action was answered by an error.
      wrong_effects: after the action.
      max_turns: number of actions after which an episode is truncated.
    """
    live = ~state.finished
    answers, refuses = kind == reply_scan.ANSWER, kind == reply_scan.REFUSE
    ends = answers | refuses
    success = jnp.where(answers, right, ~state.solvable) & ends
    # What could not be read was a call that went wrong.
    called = (kind == reply_scan.CALL) | (kind == reply_scan.MALFORMED)
    return replace(
        state,
        turn=state.turn + live,
        num_calls=state.num_calls + (called & live),
        num_errors=state.num_errors + (error & live),
        num_questions=state.num_questions + ((kind == reply_scan.ASK) & live),
        wrong_effects=wrong_effects,
        finished=state.finished | ends | (state.turn + 1 >= max_turns),
        success=state.success | (success & live),
        refused=state.refused | (refuses & live),
    )


def timestep(
    old: Record,
    new: Record,
    kind: Int[Array, ""],
    observation: Observation,
    *,
    progress: Float[Array, ""],
    max_turns: int,
) -> TimeStep:
    """What an action returns and pays; see `REWARDS`.

    Args:
      old: before the action.
      new: after it.
      kind: of the action; see `text.reply_scan`.
      observation: what the agent is told.
      progress: the share of what the goal needs that the action has done.
      max_turns: number of actions after which an episode is truncated.
    """
    live = ~old.finished
    answers, refuses = kind == reply_scan.ANSWER, kind == reply_scan.REFUSE
    # Without a solution there is no fewest: no call is one too many.
    fewest = jnp.where(old.solvable, old.fewest_calls, max_turns)
    paid = {
        "outcome": answers & new.success & old.solvable,
        "refusal": refuses & ~old.solvable,
        "abstain": refuses & old.solvable,
        "wrong": answers & ~new.success,
        "effect": new.wrong_effects - old.wrong_effects,
        "format": kind == reply_scan.MALFORMED,
        "step": live,
        "detour": (new.num_calls > fewest) & (new.num_calls > old.num_calls),
        "progress": progress,
    }
    ends = answers | refuses
    return TimeStep(
        observation=observation,
        reward={
            name: jnp.where(live, paid[name], 0).astype(jnp.float32)
            for name, _ in REWARDS
        },
        terminated=live & ends,
        truncated=live & ~ends & new.finished,
    )


def outcome(state: Record) -> Outcome:
    """What reports need to know of an episode."""
    return Outcome(**{name: getattr(state, name) for name in Outcome._fields})
