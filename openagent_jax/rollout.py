"""Rollouts: policy and environment play whole episodes in one compiled program.

The loop over tokens stops once every row has completed its action, the loop over turns
once every episode is over. An episode whose context has no room for another turn is
truncated, and counts as failed.

Before each turn, the context has room for the longest action and the longest result, so
what follows the last action of a truncated episode always fits. An agent never reads
it, but it leads to where the next turn would have begun.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import brief, perturb
from openagent_jax.models import decoding
from openagent_jax.models.decoding import Context, Sampling
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan
from openagent_jax.types import (
    Action,
    Environment,
    Params,
    Policy,
    State,
    Tables,
    Task,
    TimeStep,
    Trajectory,
    batch_size,
)

# Number of columns that are prefilled at once.
PROMPT_CHUNK = 32
RESULT_CHUNK = 12


class Rollout(NamedTuple):
    """Episodes, both structured and token by token."""

    trajectory: Trajectory  # leading axis B
    tokens: Int[Array, "B M"]
    valid: Bool[Array, "B M"]  # tokens that are not padding
    sampled: Bool[Array, "B M"]  # tokens that the policy sampled
    log_prob: Float[Array, "B M"]  # log-prob at sampling time; 0 for other tokens
    overflow: Bool[Array, "B"]  # a prompt or a result was too long and was truncated
    cut: Bool[Array, "B"]  # truncated: the context had no room for another turn
    # Tokens of the longest action of each turn, of all rows that were played together.
    decode_steps: Int[Array, "B T"]


class Game(NamedTuple):
    """The loop state of `rollout`: B episodes in progress."""

    turn: Int[Array, ""]
    context: Context
    state: State  # leading axis B
    finished: Bool[Array, "B"]
    cut: Bool[Array, "B"]
    action: Action  # leading axes T, B
    timestep: TimeStep  # leading axes T, B
    valid: Bool[Array, "T B"]
    decode_steps: Int[Array, "T"]


def rollout(
    policy: Policy,
    environment: Environment,
    tables: Tables,
    params: Params,
    keys: jax.Array,
    tasks: Task,
    sampling: Sampling = Sampling(),
    show_end: bool = False,
) -> Rollout:
    """Play B episodes of P tasks: B / P consecutive episodes of each task.

    The prompt of a task is prefilled once and shared by its episodes.

    Args:
      policy: the model that acts.
      environment: the environment that it acts in.
      tables: the arrays of the environment.
      params: the parameters of the policy.
      keys: one PRNG key for each of the B episodes; B is a multiple of P.
      tasks: leading axis P.
      sampling: how tokens are chosen.
      show_end: whether the text that follows the last action of a truncated episode is
        part of its tokens.
    """
    sizes = environment.sizes
    context, tasks = prefill_prompts(
        policy, environment, tables, params, tasks, keys.shape[0]
    )
    game = start(environment, tables, context, tasks)
    play = partial(
        turn,
        policy,
        environment,
        tables,
        params,
        keys,
        tasks,
        sampling=sampling,
        show_end=show_end,
    )
    game = lax.while_loop(
        lambda game: (game.turn < sizes.max_turns) & ~jnp.all(game.finished),
        play,
        game,
    )
    action, timestep = jax.tree.map(
        lambda x: jnp.swapaxes(x, 0, 1), (game.action, game.timestep)
    )
    context = game.context
    column = jnp.arange(context.tokens.shape[1])[None]
    return Rollout(
        Trajectory(tasks, action, timestep, game.valid.T, game.state),
        context.tokens,
        column < context.cache.length[:, None],
        context.sampled,
        context.log_prob,
        context.overflow,
        game.cut,
        jnp.broadcast_to(game.decode_steps, (keys.shape[0], sizes.max_turns)),
    )


def prefill_prompts(
    policy: Policy,
    environment: Environment,
    tables: Tables,
    params: Params,
    tasks: Task,
    num_rows: int,
) -> tuple[Context, Task]:
    """Prefill the prompts of P tasks, each as the shared prefix of B / P rows.

    Args:
      policy: the model.
      environment: the environment of the tasks.
      tables: the arrays of the environment.
      params: the parameters of the policy.
      tasks: leading axis P.
      num_rows: B, a multiple of P.

    Returns:
      The context of B rows, and the task of each row (leading axis B).
    """
    sizes, num_tasks = environment.sizes, batch_size(tasks)
    pieces = jax.vmap(environment.prompt, (None, 0))(tables, tasks)
    tokens, length = _write(tables, pieces, sizes.prompt_tokens)
    context = decoding.empty_context(
        policy,
        num_tasks,
        sizes.prompt_tokens,
        sizes.context_tokens,
        tables.lexicon.vocab_size,
    )
    context = decoding.append(policy, params, context, tokens, length, PROMPT_CHUNK)
    cache = decoding.broadcast_prefix(
        policy, context.cache, num_rows, sizes.context_tokens
    )
    context, tasks = jax.tree.map(
        lambda x: jnp.repeat(x, num_rows // num_tasks, axis=0),
        (context._replace(cache=None), tasks),
    )
    return context._replace(cache=cache), tasks


def start(
    environment: Environment, tables: Tables, context: Context, tasks: Task
) -> Game:
    """Return the loop state of B episodes before their first turn."""
    num_rows, max_turns = batch_size(tasks), environment.sizes.max_turns
    state = jax.vmap(environment.reset, (None, 0))(tables, tasks)
    blank = jax.vmap(environment.blank, (None, 0))(tables, tasks)
    step = jax.vmap(environment.step, (None, 0, 0, 0))
    _, empty = jax.eval_shape(step, tables, tasks, state, blank)
    return Game(
        turn=jnp.int32(0),
        context=context,
        state=state,
        finished=jnp.zeros(num_rows, bool),
        cut=jnp.zeros(num_rows, bool),
        action=jax.tree.map(
            lambda x: jnp.broadcast_to(x, (max_turns, *x.shape)), blank
        ),
        timestep=jax.tree.map(
            lambda x: jnp.zeros((max_turns, *x.shape), x.dtype), empty
        ),
        valid=jnp.zeros((max_turns, num_rows), bool),
        decode_steps=jnp.zeros(max_turns, jnp.int32),
    )


def turn(
    policy: Policy,
    environment: Environment,
    tables: Tables,
    params: Params,
    keys: jax.Array,
    tasks: Task,
    game: Game,
    sampling: Sampling,
    show_end: bool = False,
) -> Game:
    """Decode one action for each unfinished row, and step its environment.

    The arguments are those of `rollout`, and the loop state.
    """
    sizes, live = environment.sizes, ~game.finished
    before = game.context.cache.length
    context, action_tokens, ended, num_steps = decoding.decode(
        policy,
        params,
        game.context,
        keys,
        live,
        sizes.action_tokens,
        tables.lexicon.end_token,
        sampling,
    )
    answer = brief.apart(jax.vmap(partial(respond, environment, tables)))
    state, action, timestep, pieces = answer(
        tasks, game.state, action_tokens, context.cache.length - before, ended
    )
    state = jax.vmap(perturb.select)(live, state, game.state)
    over = timestep.terminated | timestep.truncated
    ends = timestep.terminated if show_end else over
    pieces = jnp.where((live & ~ends)[:, None], pieces, 0)
    tokens, length = _write(tables, pieces, sizes.result_tokens)
    # The context has no room for another turn: the episode is truncated here.
    needed = context.cache.length + length + sizes.action_tokens + sizes.result_tokens
    cut = live & ~over & (needed > sizes.context_tokens)
    if not show_end:
        length = jnp.where(cut, 0, length)
    timestep = _truncated(timestep, cut)

    def put(kept, new):
        return kept.at[game.turn].set(new)

    return Game(
        turn=game.turn + 1,
        context=decoding.append(policy, params, context, tokens, length, RESULT_CHUNK),
        state=state,
        finished=game.finished | over | cut,
        cut=game.cut | cut,
        action=jax.tree.map(put, game.action, action),
        timestep=jax.tree.map(put, game.timestep, timestep),
        valid=game.valid.at[game.turn].set(live),
        decode_steps=game.decode_steps.at[game.turn].set(num_steps),
    )


def respond(
    environment: Environment,
    tables: Tables,
    task: Task,
    state: State,
    action_tokens: Int[Array, "L"],
    length: Int[Array, ""],
    ended: Bool[Array, ""],
) -> tuple[State, Action, TimeStep, Int[Array, "P"]]:
    """Parse one action, step the environment, and return the text that follows.

    Args:
      environment: the environment.
      tables: the arrays of the environment.
      task: one task.
      state: the state before the action.
      action_tokens: the tokens that the policy sampled, padded on the right.
      length: the number of tokens before the padding.
      ended: whether the last of them is the end token.

    Returns:
      The new state, the parsed action, the timestep, and the pieces of the text to
      append (all 0 if there is none).
    """
    lexicon = tables.lexicon
    # The end token is not part of the action. An action without one is malformed.
    text, num_bytes = reply_scan.detokenize(lexicon, action_tokens, length - ended)
    parsed = environment.parse(tables, task, text, num_bytes)
    action = perturb.select(ended, parsed, environment.blank(tables, task))
    state, timestep = environment.step(tables, task, state, action)
    pieces = environment.observe(tables, task, timestep.observation)
    # If the policy has not written the end token, the text that follows begins with it.
    # It counts as text of the environment then, not as a sampled token.
    close = jnp.where(ended | (pieces[0] == 0), 0, lexicon.style.end)
    return state, action, timestep, jnp.concatenate([close[None], pieces])


def _write(
    tables: Tables, pieces: Int[Array, "B P"], num_tokens: int
) -> tuple[Int[Array, "B S"], Int[Array, "B"]]:
    """Return rows of tokens, and their lengths before truncation."""
    write = jax.vmap(lambda row: lexicons.write(tables.lexicon, row, num_tokens))
    tokens, _, length = write(pieces)
    return tokens, length


def _truncated(timestep: TimeStep, cut: Bool[Array, "B"]) -> TimeStep:
    return TimeStep(
        timestep.observation,
        timestep.reward,
        timestep.terminated,
        timestep.truncated | cut,
    )
