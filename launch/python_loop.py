"""What the compiled rollout is compared with: the same policy, driven from Python.

The model and the drawing of tokens are compiled, keys and values are cached, and all
rows decode together; the loops over tokens, turns and episodes are Python's, and each
episode has an environment of its own on the host, compiled too.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax.rollout import Sizes, respond
from openagent_jax.sandbox import environment, lexicon, render
from openagent_jax.types import Params, Policy, State, Task


def draw(key: jax.Array, logits: jax.Array, length: jax.Array) -> jax.Array:
    """The next token of each row, as one would write it."""
    del length
    return jax.random.categorical(key, logits)


class Agent:
    """Reads and speaks for all rows.

    Args:
      policy: what acts.
      params: of the policy.
      num_rows: episodes that are played together.
      sizes: room of an episode.
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
        def read(context, tokens, length):
            cache, logits = context
            hidden, cache = policy.extend(params, cache, tokens, length)
            last = hidden[jnp.arange(num_rows), jnp.maximum(length - 1, 0)]
            new = policy.head(params, last)
            return cache, jnp.where((length > 0)[:, None], new, logits)

        @partial(jax.jit, donate_argnums=0)
        def speak(context, key, step, active):
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

        self._read, self._speak, self._empty = read, speak, empty

    def reset(self) -> None:
        """Forget all that was read."""
        self._context, self._step = self._empty(), 0

    def read(self, tokens: np.ndarray, length: np.ndarray) -> None:
        """Append right-padded rows."""
        self._context = self._read(self._context, tokens, length)

    def speak(self, key: jax.Array, active: np.ndarray) -> np.ndarray:
        """One more token of each active row."""
        self._step += 1
        self._context, tokens = self._speak(
            self._context, key, self._step, active.astype(np.int32)
        )
        return np.asarray(tokens)


class Game:
    """One episode."""

    def __init__(self, functions, task: Task):
        self._start, self._act = functions
        self._task = task
        self.state, *prompt = self._start(task)
        self.prompt = tuple(map(np.asarray, prompt))

    def act(self, said: np.ndarray, length: int, ended: bool):
        """The tokens that follow an action, and their number."""
        self.state, *seen = self._act(self._task, self.state, said, length, ended)
        return tuple(map(np.asarray, seen))


def environment_functions(lexicon_: lexicon.Lexicon, sizes: Sizes):
    """Compiled for one episode, on the host."""
    host = jax.devices("cpu")[0]
    lexicon_ = jax.device_put(lexicon_, host)

    def start(lexicon_, task: Task):
        pieces = render.prompt(lexicon_.style, task)
        tokens, _, length = lexicon.write(lexicon_, pieces, sizes.prompt_tokens)
        return environment.reset(lexicon_, task), tokens, length

    def act(lexicon_, task: Task, state: State, said, length, ended):
        state, _, _, pieces = respond(
            lexicon_, task, state, said, length, ended, sizes.max_turns
        )
        pieces = jnp.where(state.finished, 0, pieces)
        tokens, _, length = lexicon.write(lexicon_, pieces, sizes.result_tokens)
        return state, tokens, length

    return partial(jax.jit(start), lexicon_), partial(jax.jit(act), lexicon_)


def play(agent: Agent, games: list[Game], sizes: Sizes, end_token: int, key) -> None:
    """All episodes, to their ends."""
    num_rows = len(games)
    tokens, length = map(np.stack, zip(*(game.prompt for game in games), strict=True))
    agent.read(tokens, length)
    used, live = length.copy(), np.ones(num_rows, bool)
    for _ in range(sizes.max_turns):
        said = np.zeros((num_rows, sizes.action_tokens), np.int32)
        num, active = np.zeros(num_rows, np.int32), live.copy()
        for i in range(sizes.action_tokens):
            said[:, i] = agent.speak(key, active)
            num += active
            active &= said[:, i] != end_token
            if not active.any():
                break
        used += num
        tokens = np.zeros((num_rows, sizes.result_tokens), np.int32)
        length = np.zeros(num_rows, np.int32)
        for row in np.flatnonzero(live):
            game = games[row]
            tokens[row], length[row] = game.act(said[row], num[row], not active[row])
            room = used[row] + length[row] + sizes.action_tokens + sizes.result_tokens
            live[row] = not game.state.finished and room <= sizes.context_tokens
        length *= live
        if not live.any():
            break
        agent.read(tokens, length)
        used += length
