"""The expert plays: demonstrations, and whole episodes as tokens."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.text import lexicon as lexicons
from openagent_jax.types import Environment, Tables, Task, Trajectory


def demonstrate(environment: Environment, tables: Tables, task: Task) -> Trajectory:
    """The trajectory of the environment's expert on one task, one scan over turns."""

    def turn(carry, _):
        state, finished = carry
        action = environment.expert(tables, task, state)
        state, timestep = environment.step(tables, task, state, action)
        over = finished | timestep.terminated | timestep.truncated
        return (state, over), (action, timestep, ~finished)

    start = environment.reset(tables, task), jnp.bool_(False)
    (state, _), (action, timestep, valid) = jax.lax.scan(
        turn, start, length=environment.sizes.max_turns
    )
    return Trajectory(task, action, timestep, valid, state)


def write(
    environment: Environment, tables: Tables, episode: Trajectory, num_tokens: int
) -> tuple[Int[Array, "S"], Bool[Array, "S"], Bool[Array, "S"], Int[Array, ""]]:
    """One episode as a row of tokens: `(tokens, valid, loss_mask, true length)`.

    The loss mask covers exactly the tokens of the agent's actions. An episode that is
    longer than `num_tokens` is cut, and its true length tells so.
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


def num_tokens(tables: Tables, pieces: Int[Array, "P"]) -> Int[Array, ""]:
    """Tokens of a text."""
    return lexicons.write(tables.lexicon, pieces, 1)[2]
