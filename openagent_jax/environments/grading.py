"""Grading of episodes: counts, rewards and outcomes, shared by all environments.

An environment decides what an action does, whether an answer is right, which
effects are wrong, and how much progress an action makes. Everything else is here.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from openagent_jax.text import reply_scan
from openagent_jax.types import Certificate, Observation, Outcome, TimeStep

# The reward components: name, and what one step pays before weighting. They depend only
# on the actions of the policy and on the state of the world, neither on the wording of
# an observation nor on which perturbation was applied. Whether a task can be solved is
# certified by the oracle.
REWARDS = (
    ("outcome", "1 for the right answer to a task that can be solved"),
    ("refusal", "1 for refusing a task that cannot be solved"),
    ("abstain", "1 for refusing a task that can be solved"),
    ("wrong", "1 for a wrong answer"),
    ("effect", "1 for each change of the world that was not asked for"),
    ("format", "1 for each action that could not be read"),
    ("step", "1 for each action"),
    ("detour", "1 for each call more than the fewest that solve the task"),
    ("needless_question", "1 for each question whose answer was already known"),
    ("progress", "the share of what the goal needs that an action does"),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Record:
    """The part of the state of an episode that grading needs."""

    turn: Int[Array, ""]
    num_calls: Int[Array, ""]  # tool calls, and actions that could not be parsed
    num_errors: Int[Array, ""]  # calls that returned an error
    num_questions: Int[Array, ""]  # questions to the user
    num_needless_questions: Int[Array, ""]  # those that could tell nothing new
    wrong_effects: Int[Array, ""]  # effects that the goal did not ask for
    solvable: Bool[Array, ""]  # according to the oracle
    fewest_calls: Int[Array, ""]  # calls of the shortest solution; 0 if unsolvable
    finished: Bool[Array, ""]
    success: Bool[Array, ""]
    refused: Bool[Array, ""]


S = TypeVar("S", bound=Record)


def start(proof: Certificate) -> Record:
    """Return the record of an episode before its first action.

    Args:
      proof: the oracle's certificate of the task.
    """
    zero, no = jnp.int32(0), jnp.bool_(False)
    return Record(
        turn=zero,
        num_calls=zero,
        num_errors=zero,
        num_questions=zero,
        num_needless_questions=zero,
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
    withheld: Bool[Array, ""],
    wrong_effects: Int[Array, ""],
    max_turns: int,
) -> S:
    """Return the state with its record updated by one action.

    The record of a finished episode keeps its counts and its result.

    Args:
      state: the state before the action.
      kind: the kind of the action; see `text.reply_scan`.
      right: whether the action, if it is an answer, is right.
      error: whether the action returned an error.
      withheld: whether the request leaves out a value that the agent has not yet been
        told, so that a question is of use.
      wrong_effects: the number of wrong effects after the action.
      max_turns: number of actions after which an episode is truncated.
    """
    live = ~state.finished
    answers, refuses = kind == reply_scan.ANSWER, kind == reply_scan.REFUSE
    ends = answers | refuses
    success = jnp.where(answers, right, ~state.solvable) & ends
    # An action that could not be parsed counts as a failed call.
    called = (kind == reply_scan.CALL) | (kind == reply_scan.MALFORMED)
    asked = (kind == reply_scan.ASK) & live
    return replace(
        state,
        turn=state.turn + live,
        num_calls=state.num_calls + (called & live),
        num_errors=state.num_errors + (error & live),
        num_questions=state.num_questions + asked,
        num_needless_questions=state.num_needless_questions + (asked & ~withheld),
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
    """Return the timestep of an action, with the rewards of `REWARDS`.

    Args:
      old: the record before the action.
      new: the record after it.
      kind: the kind of the action; see `text.reply_scan`.
      observation: what the agent is shown.
      progress: the share of the goal that this action has achieved.
      max_turns: number of actions after which an episode is truncated.
    """
    live = ~old.finished
    answers, refuses = kind == reply_scan.ANSWER, kind == reply_scan.REFUSE
    # An unsolvable task has no shortest solution, so no call is a detour.
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
        "needless_question": new.num_needless_questions - old.num_needless_questions,
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
    """Return the outcome of an episode."""
    return Outcome(**{name: getattr(state, name) for name in Outcome._fields})
