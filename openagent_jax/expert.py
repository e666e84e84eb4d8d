"""Demonstrations: episodes that the expert plays, and how they become tokens."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.text import lexicon as lexicons
from openagent_jax.types import Environment, State, Tables, Task, Trajectory


def demonstrate(
    environment: Environment, tables: Tables, task: Task, begin: State | None = None
) -> Trajectory:
    """Return the trajectory of the environment's expert on one task.

    Args:
      environment: the environment.
      tables: its arrays.
      task: the task.
      begin: the state that the expert goes on from; by default that of a new episode.
    """

    def turn(carry, _):
        state, finished = carry
        action = environment.expert(tables, task, state)
        state, timestep = environment.step(tables, task, state, action)
        over = finished | timestep.terminated | timestep.truncated
        return (state, over), (action, timestep, ~finished)

    state = environment.reset(tables, task) if begin is None else begin
    start = state, jnp.bool_(False)
    (state, _), (action, timestep, valid) = jax.lax.scan(
        turn, start, length=environment.sizes.max_turns
    )
    return Trajectory(task, action, timestep, valid, state)


def write(
    environment: Environment, tables: Tables, episode: Trajectory, num_tokens: int
) -> tuple[Int[Array, "S"], Bool[Array, "S"], Bool[Array, "S"], Int[Array, ""]]:
    """Write one episode as a row of tokens.

    Args:
      environment: the environment of the episode.
      tables: the arrays of the environment.
      episode: one trajectory, without a batch axis.
      num_tokens: S; longer episodes are truncated.

    Returns:
      `(tokens, valid, loss_mask, length)`. `valid` marks the tokens that are not
      padding, `loss_mask` exactly the tokens of the agent's actions. `length` is the
      length before truncation, so it exceeds S if the episode was truncated.
    """
    task = episode.task

    def turn(action, observation, valid):
        own = environment.utterance(tables, task, action)
        answer = environment.observe(tables, task, observation)
        pieces = jnp.where(valid, jnp.concatenate([own, answer]), 0)
        return pieces, jnp.arange(pieces.shape[0]) < own.shape[0]

    turns, own = jax.vmap(turn)(
        episode.action, episode.timestep.observation, episode.valid
    )
    head = environment.prompt(tables, task)
    pieces = jnp.concatenate([head, turns.reshape(-1)])
    own = jnp.concatenate([jnp.zeros(head.shape, bool), own.reshape(-1)])
    tokens, index, length = lexicons.write(tables.lexicon, pieces, num_tokens)
    valid = jnp.arange(num_tokens) < length
    return tokens, valid, own[index] & valid, length


class Lengths(NamedTuple):
    """The numbers of tokens of an episode and of its longest parts."""

    prompt: Int[Array, ""]
    action: Int[Array, ""]
    result: Int[Array, ""]  # what the agent is shown after an action
    episode: Int[Array, ""]


def lengths(environment: Environment, tables: Tables, episode: Trajectory) -> Lengths:
    """Measure one trajectory, without a batch axis."""
    task = episode.task

    def longest(write, parts):
        sizes = jax.vmap(lambda part: num_tokens(tables, write(tables, task, part)))
        return jnp.max(jnp.where(episode.valid, sizes(parts), 0))

    return Lengths(
        prompt=num_tokens(tables, environment.prompt(tables, task)),
        action=longest(environment.utterance, episode.action),
        result=longest(environment.observe, episode.timestep.observation),
        episode=write(environment, tables, episode, 1)[3],
    )


def num_tokens(tables: Tables, pieces: Int[Array, "P"]) -> Int[Array, ""]:
    """Return the number of tokens of a text."""
    return lexicons.write(tables.lexicon, pieces, 1)[2]
