"""The baseline for the compiled rollout: the same policy, driven by Python loops.

The model and the sampling of tokens are compiled, keys and values are cached, and all
rows decode together. The loops over tokens, turns and episodes are in Python, and each
episode has its own compiled environment on the host.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax.rollout import respond
from openagent_jax.text import lexicon
from openagent_jax.types import (
    Environment,
    Params,
    Policy,
    Sizes,
    State,
    Tables,
    Task,
)


def draw(key: jax.Array, logits: jax.Array, length: jax.Array) -> jax.Array:
    """Sample the next token of each row, [B]."""
    del length
    return jax.random.categorical(key, logits)


class Agent:
    """Prefills and decodes all rows.

    Args:
      policy: the model.
      params: its parameters.
      num_rows: episodes that are played together.
      sizes: limits of an episode.
      draw: `(key, logits [B V], tokens so far [B]) -> tokens [B]`.
    """

    def __init__(
        self,
        policy: Policy,
        params: Params,
        num_rows: int,
        sizes: Sizes,
        draw: Callable[..., jax.Array] = draw,
    ):
        @partial(jax.jit, donate_argnums=0)
        def prefill(context, tokens, length):
            cache, logits = context
            hidden, cache = policy.extend(params, cache, tokens, length)
            last = hidden[jnp.arange(num_rows), jnp.maximum(length - 1, 0)]
            new = policy.head(params, last)
            return cache, jnp.where((length > 0)[:, None], new, logits)

        @partial(jax.jit, donate_argnums=0)
        def decode(context, key, step, active):
            cache, logits = context
            tokens = draw(jax.random.fold_in(key, step), logits, cache.length)
            tokens = jnp.where(active, tokens, 0)
            hidden, cache = policy.extend(params, cache, tokens[:, None], active)
            return (cache, policy.head(params, hidden[:, 0])), tokens

        @jax.jit
        def empty():
            cache = policy.init_cache(num_rows, [sizes.context_tokens])
            vocab_size = policy.head(params, params["norm"]).shape[0]
            return cache, jnp.zeros((num_rows, vocab_size))

        self._prefill, self._decode, self._empty = prefill, decode, empty

    def reset(self) -> None:
        """Clear the cache."""
        self._context, self._step = self._empty(), 0

    def prefill(self, tokens: np.ndarray, length: np.ndarray) -> None:
        """Append right-padded tokens, `length` of each row."""
        self._context = self._prefill(self._context, tokens, length)

    def decode(self, key: jax.Array, active: np.ndarray) -> np.ndarray:
        """Sample one more token of each active row."""
        self._step += 1
        self._context, tokens = self._decode(
            self._context, key, self._step, active.astype(np.int32)
        )
        return np.asarray(tokens)


class Game:
    """One episode in an environment of its own."""

    def __init__(self, functions, task: Task):
        self._start, self._act = functions
        self._task = task
        self.state, *prompt = self._start(task)
        self.prompt = tuple(map(np.asarray, prompt))
        self.finished = self.success = False

    def act(self, action_tokens: np.ndarray, length: int, ended: bool):
        """Take an action; return the tokens of the result, and their number."""
        self.state, finished, success, *result = self._act(
            self._task, self.state, action_tokens, length, ended
        )
        self.finished, self.success = bool(finished), bool(success)
        return tuple(map(np.asarray, result))


def environment_functions(environment: Environment, tables: Tables):
    """Return the reset and the step of one episode, compiled for the host."""
    host, sizes = jax.devices("cpu")[0], environment.sizes
    tables = jax.device_put(tables, host)

    def start(tables: Tables, task: Task):
        pieces = environment.prompt(tables, task)
        tokens, _, length = lexicon.write(tables.lexicon, pieces, sizes.prompt_tokens)
        return environment.reset(tables, task), tokens, length

    def act(tables: Tables, task: Task, state: State, action_tokens, length, ended):
        state, _, timestep, pieces = respond(
            environment, tables, task, state, action_tokens, length, ended
        )
        over = timestep.terminated | timestep.truncated
        pieces = jnp.where(over, 0, pieces)
        tokens, _, length = lexicon.write(tables.lexicon, pieces, sizes.result_tokens)
        success = environment.outcome(tables, task, state).success
        return state, over, success, tokens, length

    return partial(jax.jit(start), tables), partial(jax.jit(act), tables)


def play(agent: Agent, games: list[Game], sizes: Sizes, end_token: int, key) -> None:
    """Play all episodes to their ends."""
    num_rows = len(games)
    tokens, length = map(np.stack, zip(*(game.prompt for game in games), strict=True))
    agent.prefill(tokens, length)
    used, live = length.copy(), np.ones(num_rows, bool)
    for _ in range(sizes.max_turns):
        actions = np.zeros((num_rows, sizes.action_tokens), np.int32)
        num, active = np.zeros(num_rows, np.int32), live.copy()
        for i in range(sizes.action_tokens):
            actions[:, i] = agent.decode(key, active)
            num += active
            active &= actions[:, i] != end_token
            if not active.any():
                break
        used += num
        tokens = np.zeros((num_rows, sizes.result_tokens), np.int32)
        length = np.zeros(num_rows, np.int32)
        for row in np.flatnonzero(live):
            game = games[row]
            tokens[row], length[row] = game.act(actions[row], num[row], not active[row])
            room = used[row] + length[row] + sizes.action_tokens + sizes.result_tokens
            live[row] = not game.finished and room <= sizes.context_tokens
        length *= live
        if not live.any():
            break
        agent.prefill(tokens, length)
        used += length
