"""Rollouts: policy and environment play whole episodes in one compiled program.

A cache of W rows plays B episodes. In each step every row reads one token: the next one
of its text, or, where the text ends, one that the policy samples. A row whose action is
complete waits for the environment, which answers a few rows at once by appending to
their texts. A row whose episode is over starts the next one. So no row waits for the
longest action of a turn, and rows wait for the longest episode only at the very end.
Except for rounding, an episode does not depend on the other rows.

An episode whose context has no room for another turn is truncated, and counts as
failed. Before each turn, the context has room for the longest action and the longest
result, so what follows the last action of a truncated episode always fits. An agent
never reads it, but it leads to where the next turn would have begun.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import fast_compile, perturb
from openagent_jax.models import decoding
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan
from openagent_jax.types import (
    Action,
    Cache,
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

# Number of columns of a prompt that are prefilled at once.
PROMPT_CHUNK = 32
# On a CPU, the time of a step is nearly proportional to the number of rows, and few
# rows are idle less often.
CPU_ROWS = 8
# The environment answers once one playing row in this many waits.
ROWS_PER_ANSWER = 16
ALL = 2**31 - 1  # more rows than there are episodes


class Rollout(NamedTuple):
    """Episodes, both structured and token by token."""

    trajectory: Trajectory  # leading axis B
    tokens: Int[Array, "B M"]
    valid: Bool[Array, "B M"]  # tokens that are not padding
    sampled: Bool[Array, "B M"]  # tokens that the policy sampled
    log_prob: Float[Array, "B M"]  # log-prob at sampling time; 0 for other tokens
    overflow: Bool[Array, "B"]  # a prompt or a result was too long and was truncated
    cut: Bool[Array, "B"]  # truncated: the context had no room for another turn
    # The same two numbers for all episodes that were played together.
    num_steps: Int[Array, "B"]  # steps in which each row could read one token
    idle: Float[Array, "B"]  # share of rows and steps in which none was read


class Prompts(NamedTuple):
    """The prompts of P tasks."""

    tokens: Int[Array, "P S"]
    overflow: Bool[Array, "P"]  # it was too long and was truncated
    cache: Cache  # with a single block
    logits: Float[Array, "P V"]  # of the token that follows

    @property
    def length(self) -> Int[Array, "P"]:
        """The number of tokens of each prompt."""
        return self.cache.length


class Scene(NamedTuple):
    """What does not change during a rollout of B episodes of P tasks.

    Episodes are numbered, and B / P consecutive ones are of the same task.
    """

    policy: Policy
    environment: Environment
    tables: Tables
    params: Params
    keys: jax.Array  # one for each episode
    tasks: Task  # leading axis P
    prompts: Prompts
    temperature: float
    show_end: bool

    @property
    def num_episodes(self) -> int:
        """B, the number of episodes."""
        return len(self.keys)

    @property
    def group_size(self) -> int:
        """The number of episodes of each task."""
        return self.num_episodes // batch_size(self.tasks)

    def task_index(self, episode: Int[Array, "*any"]) -> Int[Array, "*any"]:
        """Return the index of the task of each episode."""
        return jnp.minimum(episode, self.num_episodes - 1) // self.group_size

    def each_episode(self, tree: Any) -> Any:
        """Repeat what there is for each task for its episodes."""
        return jax.tree.map(lambda x: jnp.repeat(x, self.group_size, axis=0), tree)


class Rows(NamedTuple):
    """The W rows of the cache: what each of them plays."""

    episode: Int[Array, "W"]  # the number of its episode; B if none is left
    turn: Int[Array, "W"]
    start: Int[Array, "W"]  # position at which its action starts
    length: Int[Array, "W"]  # tokens of its text, of which the cache may hold fewer
    waiting: Bool[Array, "W"]  # its action is complete, and has not been answered
    logits: Float[Array, "W V"]  # of the token that follows those in the cache

    def reading(self, num_episodes: int) -> Bool[Array, "W"]:
        """Return which rows read a token in the next step."""
        return (self.episode < num_episodes) & ~self.waiting


class Texts(NamedTuple):
    """The tokens of B episodes; see `Rollout`."""

    tokens: Int[Array, "B M"]
    sampled: Bool[Array, "B M"]
    log_prob: Float[Array, "B M"]


class Game(NamedTuple):
    """The loop state of `rollout`."""

    cache: Cache
    rows: Rows
    texts: Texts
    length: Int[Array, "B"]  # of each text, up to the last answer
    overflow: Bool[Array, "B"]
    cut: Bool[Array, "B"]
    state: State  # leading axis B
    action: Action  # leading axes B, T
    timestep: TimeStep  # leading axes B, T
    valid: Bool[Array, "B T"]
    num_started: Int[Array, ""]  # episodes that have been given a row
    num_steps: Int[Array, ""]
    num_read: Int[Array, ""]  # tokens that all rows have read, besides prompts


def rollout(
    policy: Policy,
    environment: Environment,
    tables: Tables,
    params: Params,
    keys: jax.Array,
    tasks: Task,
    temperature: float = 0.0,
    show_end: bool = False,
    num_rows: int = 0,
) -> Rollout:
    """Play B episodes of P tasks: B / P consecutive episodes of each task.

    The prompt of a task is prefilled once for all its episodes.

    Args:
      policy: the model that acts.
      environment: the environment that it acts in.
      tables: the arrays of the environment.
      params: the parameters of the policy.
      keys: one PRNG key for each of the B episodes; B is a multiple of P. The
        randomness of a token depends on the key of its episode and on its position.
      tasks: leading axis P.
      temperature: the temperature at which tokens are sampled; 0 is greedy. A static
        value.
      show_end: whether the text that follows the last action of a truncated episode is
        part of its tokens.
      num_rows: the number of episodes that are played at once; see `at_once`.
    """
    prompts = _prefill(policy, environment, tables, params, tasks)
    scene = Scene(
        policy,
        environment,
        tables,
        params,
        keys,
        tasks,
        prompts,
        temperature,
        show_end,
    )
    num_episodes, num_rows = len(keys), at_once(num_rows, len(keys))
    game = lax.while_loop(
        lambda game: jnp.any(game.rows.episode < num_episodes),
        lambda game: _answer(scene, _read(scene, game)),
        _start(scene, num_rows),
    )
    idle = 1 - game.num_read / (game.num_steps * num_rows)
    return Rollout(
        Trajectory(
            scene.each_episode(tasks),
            game.action,
            game.timestep,
            game.valid,
            game.state,
        ),
        game.texts.tokens,
        jnp.arange(game.texts.tokens.shape[1])[None] < game.length[:, None],
        game.texts.sampled,
        game.texts.log_prob,
        game.overflow,
        game.cut,
        jnp.broadcast_to(game.num_steps, num_episodes),
        jnp.broadcast_to(idle, num_episodes),
    )


def at_once(num_rows: int, num_episodes: int) -> int:
    """Return W, the number of episodes that are played at once.

    Args:
      num_rows: the most that are wanted; 0 means `usual_rows` of JAX's platform.
      num_episodes: B, the number of episodes.

    >>> at_once(16, num_episodes=64), at_once(16, num_episodes=4)
    (16, 4)
    """
    return min(num_rows or usual_rows(jax.default_backend()), num_episodes)


def usual_rows(platform: str) -> int:
    """Return how many episodes are played at once on a platform, unless told.

    >>> usual_rows("cpu")
    8
    """
    return CPU_ROWS if platform == "cpu" else ALL


def _blocks(policy: Policy, environment: Environment) -> list[int]:
    """Return the number of slots of each block of a row; a prompt fills the first."""
    sizes = environment.sizes
    num_layers = len(policy.init_cache(1, [1]).keys[0])
    rest = sizes.context_tokens - sizes.prompt_tokens
    first, *others = decoding.block_sizes(rest, num_layers)
    return [sizes.prompt_tokens + first, *others]


def _prefill(
    policy: Policy,
    environment: Environment,
    tables: Tables,
    params: Params,
    tasks: Task,
) -> Prompts:
    """Write and prefill the prompts of tasks (leading axis P)."""
    size, num_tasks = environment.sizes.prompt_tokens, batch_size(tasks)
    pieces = jax.vmap(environment.prompt, (None, 0))(tables, tasks)
    tokens, length = _write(tables, pieces, size)
    first, *_ = _blocks(policy, environment)
    cache, logits = decoding.prefill(
        policy,
        params,
        policy.init_cache(num_tasks, [first]),
        jnp.zeros((num_tasks, tables.lexicon.vocab_size)),
        tokens,
        jnp.minimum(length, size),
        PROMPT_CHUNK,
    )
    unused = jnp.arange(size)[None] >= length[:, None]
    return Prompts(jnp.where(unused, 0, tokens), length > size, cache, logits)


def _start(scene: Scene, num_rows: int) -> Game:
    """Return the loop state in which each row has its first episode."""
    environment, prompts = scene.environment, scene.prompts
    sizes, num_episodes = environment.sizes, scene.num_episodes

    def of_tasks(function, *args):
        return jax.vmap(partial(function, scene.tables))(scene.tasks, *args)

    state, blank = of_tasks(environment.reset), of_tasks(environment.blank)
    _, empty = jax.eval_shape(partial(of_tasks, environment.step), state, blank)
    each_turn = num_episodes, sizes.max_turns
    num_slots = sizes.context_tokens - sizes.prompt_tokens
    tokens = scene.each_episode(jnp.pad(prompts.tokens, ((0, 0), (0, num_slots))))
    zeros = jnp.zeros(num_rows, jnp.int32)
    game = Game(
        cache=scene.policy.init_cache(num_rows, _blocks(scene.policy, environment)),
        rows=Rows(
            episode=zeros,
            turn=zeros,
            start=zeros,
            length=zeros,
            waiting=jnp.zeros(num_rows, bool),
            logits=jnp.zeros((num_rows, prompts.logits.shape[1])),
        ),
        texts=Texts(tokens, jnp.zeros(tokens.shape, bool), jnp.zeros(tokens.shape)),
        length=scene.each_episode(prompts.length),
        overflow=scene.each_episode(prompts.overflow),
        cut=jnp.zeros(num_episodes, bool),
        state=scene.each_episode(state),
        action=jax.tree.map(
            lambda x: jnp.broadcast_to(x[:, None], (*each_turn, *x.shape[1:])),
            scene.each_episode(blank),
        ),
        timestep=jax.tree.map(
            lambda x: jnp.zeros((*each_turn, *x.shape[1:]), x.dtype), empty
        ),
        valid=jnp.zeros(each_turn, bool),
        num_started=jnp.int32(0),
        num_steps=jnp.int32(0),
        num_read=jnp.int32(0),
    )
    every = jnp.arange(num_rows)
    return _next_episodes(scene, game, every, jnp.ones(num_rows, bool))


def _next_episodes(
    scene: Scene, game: Game, which: Int[Array, "K"], ready: Bool[Array, "K"]
) -> Game:
    """Give the next episodes to those of K rows that are ready for one."""
    which = jnp.where(ready, which, len(game.rows.turn))

    def put(x, new):
        return x.at[which].set(new, mode="drop")

    episode = game.num_started + jnp.cumsum(ready) - 1
    episode = jnp.minimum(episode, scene.num_episodes)
    task = scene.task_index(episode)
    length = scene.prompts.length[task]
    cache, prompts = game.cache, scene.prompts.cache

    def put_prompt(blocks, new):
        first = tuple(put(x, y[task]) for x, y in zip(blocks[0], new[0], strict=True))
        return (first, *blocks[1:])

    return game._replace(
        cache=Cache(
            keys=put_prompt(cache.keys, prompts.keys),
            values=put_prompt(cache.values, prompts.values),
            length=put(cache.length, length),
        ),
        rows=Rows(
            episode=put(game.rows.episode, episode),
            turn=put(game.rows.turn, 0),
            start=put(game.rows.start, length),
            length=put(game.rows.length, length),
            waiting=put(game.rows.waiting, False),
            logits=put(game.rows.logits, scene.prompts.logits[task]),
        ),
        num_started=jnp.minimum(game.num_started + jnp.sum(ready), scene.num_episodes),
    )


def _read(scene: Scene, game: Game) -> Game:
    """Let all rows read tokens until some wait for the environment."""
    num_episodes, sizes = scene.num_episodes, scene.environment.sizes
    end_token = scene.tables.lexicon.end_token

    def read_token(loop):
        cache, (rows, texts, num_steps, num_read) = loop
        reading, position = rows.reading(num_episodes), cache.length
        episode = jnp.minimum(rows.episode, num_episodes - 1)
        chosen, log_prob = decoding.choose(
            rows.logits, scene.keys[episode], position, scene.temperature
        )
        sampled = reading & (position == rows.length)
        token = jnp.where(sampled, chosen, texts.tokens[episode, position])
        # Rows that sample nothing get an out-of-range index, so that it is dropped.
        here = jnp.where(sampled, episode, num_episodes), position
        texts = Texts(
            texts.tokens.at[here].set(token, mode="drop"),
            texts.sampled.at[here].set(True, mode="drop"),
            texts.log_prob.at[here].set(log_prob, mode="drop"),
        )
        hidden, cache = scene.policy.extend(
            scene.params, cache, token[:, None], reading.astype(jnp.int32)
        )
        logits = scene.policy.head(scene.params, hidden[:, 0])
        length = rows.length + sampled
        full = length - rows.start >= sizes.action_tokens
        rows = rows._replace(
            logits=jnp.where(reading[:, None], logits, rows.logits),
            length=length,
            waiting=rows.waiting | (sampled & ((token == end_token) | full)),
        )
        num_read += jnp.sum(reading)
        return cache, (rows, texts, num_steps + 1, num_read)

    def goes_on(loop):
        cache, (rows, *_) = loop
        reading = rows.reading(num_episodes)
        num_used = jnp.max(jnp.where(reading, cache.length, 0))
        num_playing = jnp.sum(rows.episode < num_episodes)
        num_waiting = jnp.sum(rows.waiting)
        enough = (num_waiting > 0) & (num_waiting >= num_playing // ROWS_PER_ANSWER)
        return jnp.any(reading) & ~enough & (num_used < sum(cache.block_sizes))

    carry = game.rows, game.texts, game.num_steps, game.num_read
    cache, (rows, texts, num_steps, num_read) = decoding.loop_in_blocks(
        lambda *loop: lax.while_loop(goes_on, read_token, loop), game.cache, carry
    )
    return game._replace(
        cache=cache, rows=rows, texts=texts, num_steps=num_steps, num_read=num_read
    )


def _answer(scene: Scene, game: Game) -> Game:
    """Let the environment answer all rows that wait."""
    return lax.while_loop(
        lambda game: jnp.any(game.rows.waiting), partial(_answer_some, scene), game
    )


def _answer_some(scene: Scene, game: Game) -> Game:
    """Step the environments of rows that wait, and append what the agents read next."""
    environment, tables, rows = scene.environment, scene.tables, game.rows
    sizes, num_episodes = environment.sizes, scene.num_episodes
    num_rows = len(rows.turn)
    num_answered = max(num_rows // ROWS_PER_ANSWER, 1)
    which = jnp.nonzero(rows.waiting, size=num_answered, fill_value=num_rows)[0]
    waits, row = which < num_rows, jnp.minimum(which, num_rows - 1)
    episode = jnp.minimum(rows.episode[row], num_episodes - 1)
    turn, start, length = rows.turn[row], rows.start[row], rows.length[row]

    column = start[:, None] + jnp.arange(sizes.action_tokens)[None]
    said = game.texts.tokens.at[episode[:, None], column].get(mode="clip")
    said = jnp.where(column < length[:, None], said, 0)
    last = game.texts.tokens[episode, length - 1]
    task = jax.tree.map(lambda x: x[scene.task_index(episode)], scene.tasks)
    before = jax.tree.map(lambda x: x[episode], game.state)
    answer = fast_compile.noinline(jax.vmap(partial(respond, environment, tables)))
    state, action, timestep, pieces = answer(
        task, before, said, length - start, last == tables.lexicon.end_token
    )

    over = timestep.terminated | timestep.truncated
    ends = timestep.terminated if scene.show_end else over
    pieces = jnp.where(ends[:, None], 0, pieces)
    tokens, num_new = _write(tables, pieces, sizes.result_tokens)
    overflow = game.overflow[episode] | (num_new > sizes.result_tokens)
    num_new = jnp.minimum(num_new, sizes.result_tokens)
    # The context has no room for another turn: the episode is truncated here.
    needed = length + num_new + sizes.action_tokens + sizes.result_tokens
    cut = ~over & (needed > sizes.context_tokens)
    if not scene.show_end:
        num_new = jnp.where(cut, 0, num_new)
    timestep = dataclasses.replace(timestep, truncated=timestep.truncated | cut)

    # What has no place gets an out-of-range index, so that it is dropped.
    to = jnp.where(waits, episode, num_episodes)
    column = jnp.arange(sizes.result_tokens)[None]
    slot = jnp.where(
        column < num_new[:, None], length[:, None] + column, sizes.context_tokens
    )
    length += num_new

    def put(x, new):
        return x.at[to].set(new, mode="drop")

    def put_turn(x, new):
        return x.at[to, turn].set(new, mode="drop")

    def put_row(x, new):
        return x.at[which].set(new, mode="drop")

    game = game._replace(
        rows=rows._replace(
            turn=put_row(rows.turn, turn + 1),
            start=put_row(rows.start, length),
            length=put_row(rows.length, length),
            waiting=put_row(rows.waiting, False),
        ),
        texts=game.texts._replace(
            tokens=game.texts.tokens.at[to[:, None], slot].set(tokens, mode="drop")
        ),
        length=put(game.length, length),
        overflow=put(game.overflow, overflow),
        cut=put(game.cut, cut),
        state=jax.tree.map(put, game.state, state),
        action=jax.tree.map(put_turn, game.action, action),
        timestep=jax.tree.map(put_turn, game.timestep, timestep),
        valid=put_turn(game.valid, True),
    )
    return _next_episodes(scene, game, which, waits & (over | cut))


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
