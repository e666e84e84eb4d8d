"""Sandbox and policy in one program: `rollout` plays whole episodes.

Each row has its own place in the cache, so a row's tokens are dense from slot 0 on.
The loop over tokens stops when every row has ended its action, and the loop over
turns when every episode is over. An episode without room for another turn is over
too, and has failed.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import types
from openagent_jax.sampling import categorical, draw_lots, greedy, nucleus
from openagent_jax.sandbox import demonstrate, environment, parse, render
from openagent_jax.sandbox import lexicon as lexicons
from openagent_jax.types import Action, Params, Policy, Task, ToolResult, Trajectory

# Of the context, in eighths: where blocks of the cache end. Each is a program of its
# own, which for many layers takes long to compile.
EIGHTHS, FEW_EIGHTHS = (1, 2, 3, 8), (2, 8)
MANY_LAYERS = 12
# Columns that are read at once.
PROMPT_CHUNK = 32
RESULT_CHUNK = 12


class Sizes(NamedTuple):
    """Room of an episode (static)."""

    max_turns: int
    prompt_tokens: int
    action_tokens: int
    result_tokens: int
    context_tokens: int  # the whole episode


class Sampling(NamedTuple):
    """How tokens are chosen (static). Temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0


class Rollout(NamedTuple):
    """Episodes as they were played, token for token."""

    trajectory: Trajectory  # structured, leading axis B
    tokens: Int[Array, "B M"]
    valid: Bool[Array, "B M"]
    sampled: Bool[Array, "B M"]  # the policy's own tokens
    log_prob: Float[Array, "B M"]  # of the sampled tokens, as they were sampled
    overflow: Bool[Array, "B"]  # a prompt or a result did not fit
    cut: Bool[Array, "B"]  # there was no room for another turn
    decode_steps: Int[Array, "T"]  # tokens of the longest action of each turn


class _Context(NamedTuple):
    """What the policy has read, and what it expects next."""

    cache: types.Cache
    logits: Array  # [B, V] for the next token
    tokens: Array  # [B, M]
    overflow: Array


class _Carry(NamedTuple):
    turn: Array
    context: _Context
    sampled: Array
    log_prob: Array
    cut: Array
    state: types.State
    action: Action  # [T, B]
    result: ToolResult  # [T, B]
    valid: Array  # [T, B]
    decode_steps: Array  # [T]


def rollout(
    policy: Policy,
    lexicon: lexicons.Lexicon,
    params: Params,
    keys: jax.Array,
    tasks: Task,
    sizes: Sizes,
    sampling: Sampling = Sampling(),
) -> Rollout:
    """Play B episodes of P tasks, B / P of each in a row; prompts are read once a task.

    Args:
      policy: what acts.
      lexicon: of the tasks.
      params: of the policy.
      keys: one for each of the B episodes; B is a multiple of P.
      tasks: leading axis P.
      sizes: room of an episode.
      sampling: how tokens are chosen.
    """
    num_rows, num_tasks = keys.shape[0], tasks.world.shape[0]
    rows = jnp.arange(num_rows)

    def of_each(x):
        return jnp.repeat(x, num_rows // num_tasks, axis=0)

    def write(pieces, num_tokens):
        return jax.vmap(lambda p: lexicons.write(lexicon, p, num_tokens))(pieces)

    def feed(context: _Context, tokens, length, chunk: int) -> _Context:
        """Append tokens of the environment, right-padded rows of `length`, as many
        columns at a time."""
        size, at = tokens.shape[1], context.cache.length
        overflow = context.overflow | (length > size)
        length = jnp.minimum(length, size)
        # An index out of range is dropped: nothing is written behind a row's length.
        column, rows = jnp.arange(size)[None], jnp.arange(length.shape[0])
        slots = at[:, None] + column
        slots = jnp.where(column < length[:, None], slots, sizes.context_tokens)
        written = context.tokens.at[rows[:, None], slots].set(tokens, mode="drop")
        cache, logits = read(
            policy, params, context.cache, context.logits, tokens, length, chunk
        )
        return _Context(cache, logits, written, overflow)

    def speak(carry: _Carry) -> tuple[_Carry, Array, Array, Array]:
        """Sample an action for each live row: tokens, their number, ended."""

        def token(loop):
            i, carry, said, active = loop
            context = carry.context
            at = context.cache.length
            chosen, log_prob = _choose(context.logits, keys, at, sampling)
            chosen = jnp.where(active, chosen, 0)
            hidden, cache = policy.extend(
                params, context.cache, chosen[:, None], active.astype(jnp.int32)
            )
            here = rows, jnp.where(active, at, sizes.context_tokens)
            context = context._replace(
                cache=cache,
                logits=policy.head(params, hidden[:, 0]),
                tokens=context.tokens.at[here].set(chosen, mode="drop"),
            )
            carry = carry._replace(
                context=context,
                sampled=carry.sampled.at[here].set(True, mode="drop"),
                log_prob=carry.log_prob.at[here].set(log_prob, mode="drop"),
            )
            said = lax.dynamic_update_slice(said, chosen[:, None], (0, i))
            return i + 1, carry, said, active & (chosen != lexicon.end_token)

        def goes_on(loop, num_slots):
            i, carry, _, active = loop
            num_used = jnp.max(jnp.where(active, carry.context.cache.num_used, 0))
            go = (i < sizes.action_tokens) & jnp.any(active)
            return go & (num_used < num_slots)

        def loop(cache, rest):
            i, carry, said, active = rest
            num_slots = sum(cache.block_sizes)
            i, carry, said, active = lax.while_loop(
                partial(goes_on, num_slots=num_slots),
                token,
                (i, _with_cache(carry, cache), said, active),
            )
            return carry.context.cache, (i, _with_cache(carry, None), said, active)

        said = jnp.zeros((num_rows, sizes.action_tokens), jnp.int32)
        active, start = ~carry.state.finished, carry.context.cache.length
        rest = jnp.int32(0), _with_cache(carry, None), said, active
        cache, (steps, carry, said, active) = in_blocks(loop, carry.context.cache, rest)
        carry = _with_cache(carry, cache)
        carry = carry._replace(
            decode_steps=carry.decode_steps.at[carry.turn].set(steps)
        )
        return carry, said, carry.context.cache.length - start, ~active

    def turn(carry: _Carry) -> _Carry:
        live = ~carry.state.finished
        carry, said, length, ended = speak(carry)
        answer = partial(respond, lexicon, max_turns=sizes.max_turns)
        state, action, result, pieces = jax.vmap(answer)(
            tasks, carry.state, said, length, ended
        )
        pieces = jnp.where((live & ~state.finished)[:, None], pieces, 0)
        tokens, _, length = write(pieces, sizes.result_tokens)
        # No room for what comes next: the episode ends here, without success.
        needed = carry.context.cache.length + length
        needed += sizes.action_tokens + sizes.result_tokens
        cut = live & ~state.finished & (needed > sizes.context_tokens)
        state = dataclasses.replace(state, finished=state.finished | cut)
        length = jnp.where(cut, 0, length)
        put = lambda all_, new: all_.at[carry.turn].set(new)  # noqa: E731
        carry = carry._replace(
            turn=carry.turn + 1,
            state=state,
            action=jax.tree.map(put, carry.action, action),
            result=jax.tree.map(put, carry.result, result),
            valid=carry.valid.at[carry.turn].set(live),
            cut=carry.cut | cut,
        )
        context = feed(carry.context, tokens, length, RESULT_CHUNK)
        return carry._replace(context=context)

    pieces = jax.vmap(lambda task: render.prompt(lexicon.style, task))(tasks)
    tokens, _, length = write(pieces, sizes.prompt_tokens)
    shape = (num_tasks, sizes.context_tokens)
    context = _Context(
        policy.init_cache(num_tasks, [sizes.prompt_tokens]),
        jnp.zeros((num_tasks, lexicon.vocab_size)),
        jnp.zeros(shape, jnp.int32),
        jnp.zeros(num_tasks, bool),
    )
    context = feed(context, tokens, length, PROMPT_CHUNK)
    cache = share(policy, context.cache, num_rows, sizes)
    context = context._replace(cache=None)
    context, tasks = jax.tree.map(of_each, (context, tasks))
    context = context._replace(cache=cache)
    shape = (num_rows, sizes.context_tokens)
    state = jax.vmap(lambda task: environment.reset(lexicon, task))(tasks)
    num_args, num_fields = tasks.tools.arg_name.shape[-1], state.values.shape[-1]
    empty = (demonstrate.no_action(num_args), demonstrate.no_result(num_fields))
    action, result = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (sizes.max_turns, num_rows, *x.shape)), empty
    )
    carry = _Carry(
        turn=jnp.int32(0),
        context=context,
        sampled=jnp.zeros(shape, bool),
        log_prob=jnp.zeros(shape),
        cut=jnp.zeros(num_rows, bool),
        state=state,
        action=action,
        result=result,
        valid=jnp.zeros((sizes.max_turns, num_rows), bool),
        decode_steps=jnp.zeros(sizes.max_turns, jnp.int32),
    )
    carry = lax.while_loop(
        lambda c: (c.turn < sizes.max_turns) & ~jnp.all(c.state.finished), turn, carry
    )
    action, result = jax.tree.map(
        lambda x: jnp.swapaxes(x, 0, 1), (carry.action, carry.result)
    )
    trajectory = Trajectory(tasks, action, result, carry.valid.T, carry.state)

    context = carry.context
    valid = jnp.arange(sizes.context_tokens)[None] < context.cache.length[:, None]
    return Rollout(
        trajectory,
        context.tokens,
        valid,
        carry.sampled,
        carry.log_prob,
        context.overflow,
        carry.cut,
        carry.decode_steps,
    )


def respond(
    lexicon: lexicons.Lexicon,
    task: Task,
    state: types.State,
    said: Int[Array, "L"],
    length: Int[Array, ""],
    ended: Bool[Array, ""],
    max_turns: int,
) -> tuple[types.State, Action, ToolResult, Int[Array, "P"]]:
    """One turn of the environment, from tokens to what is written next.

    Args:
      lexicon: of the task.
      task: one.
      state: before.
      said: by the policy.
      length: tokens of it that count.
      ended: the last of them is the end mark.
      max_turns: after which an episode is over.

    Returns:
      The state, the action as it was read, its result, and the pieces of text that
      follow: none is the symbol 0.
    """
    # The end mark is no part of the action; one that did not end is malformed.
    read = parse.parse(lexicon, task, said, length - ended)
    none = demonstrate.no_action(task.tools.arg_name.shape[-1])
    action = jax.tree.map(lambda a, b: jnp.where(ended, a, b), read, none)
    state, timestep = environment.step(lexicon, task, state, action, max_turns)
    pieces = render.observation(lexicon.style, task, timestep.observation)
    # What the policy left open is closed for it, as no word of its own.
    close = jnp.where(ended | (pieces[0] == 0), 0, lexicon.style.end)
    return state, action, timestep.observation, jnp.concatenate([close[None], pieces])


def read(
    policy: Policy,
    params: Params,
    cache: types.Cache,
    logits: Float[Array, "B V"],
    tokens: Int[Array, "B S"],
    length: Int[Array, "B"],
    chunk: int,
) -> tuple[types.Cache, Float[Array, "B V"]]:
    """Append tokens to a cache, some columns at a time.

    Args:
      policy: that reads.
      params: of the policy.
      cache: of B rows.
      logits: for the next token of each; they stay where nothing is read.
      tokens: right-padded rows.
      length: tokens of each row that count.
      chunk: columns that are read at once.
    """
    rows = jnp.arange(length.shape[0])
    tokens = jnp.pad(tokens, ((0, 0), (0, -tokens.shape[1] % chunk)))

    def num_new(start):
        return jnp.clip(length - start, 0, chunk)

    def piece(loop):
        cache, (start, last) = loop
        columns = lax.dynamic_slice_in_dim(tokens, start, chunk, axis=1)
        num = num_new(start)
        hidden, cache = policy.extend(params, cache, columns, num)
        newest = hidden[rows, jnp.maximum(num - 1, 0)]
        return cache, (start + chunk, jnp.where((num > 0)[:, None], newest, last))

    def goes_on(loop):
        cache, (start, _) = loop
        num = num_new(start)
        num_used = jnp.max(jnp.where(num > 0, cache.num_used + num, 0))
        return jnp.any(num > 0) & (num_used <= sum(cache.block_sizes))

    hidden = jax.eval_shape(policy.extend, params, cache, tokens[:, :1], length)[0]
    cache, (start, last) = in_blocks(
        lambda *loop: lax.while_loop(goes_on, piece, loop),
        cache,
        (jnp.int32(0), jnp.zeros((len(rows), hidden.shape[-1]), hidden.dtype)),
    )
    # Once, for the last token of each: the head of a large vocabulary takes its time.
    is_new = (length > 0) & (start > 0)
    logits = jnp.where(is_new[:, None], policy.head(params, last), logits)
    return cache, logits


def share(
    policy: Policy, read: types.Cache, num_rows: int, sizes: Sizes
) -> types.Cache:
    """Room for B rows, group by group, behind what each of P groups has read.

    Args:
      policy: that has read it.
      read: of P rows, in one block.
      num_rows: B, a multiple of P.
      sizes: room of an episode.
    """
    length = jnp.repeat(read.length, num_rows // len(read.length))
    (keys,), (values,) = read.keys, read.values
    cache = policy.init_cache(num_rows, blocks(sizes.context_tokens, len(keys)))
    prefix = types.Prefix(keys, values, length)
    return dataclasses.replace(cache, length=length, prefix=prefix)


def blocks(context_tokens: int, num_layers: int) -> list[int]:
    """Slots of each block of a cache. Decoding is compiled for each number of them."""
    eighths = EIGHTHS if num_layers < MANY_LAYERS else FEW_EIGHTHS
    ends = sorted({-(-context_tokens * eighth // 8) for eighth in eighths})
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def in_blocks(
    loop: Callable, cache: types.Cache, carry: Any
) -> tuple[types.Cache, Any]:
    """A loop with the first block of a cache, then with two, and so on.

    To attend to a slot takes time, used or not. The loop has to leave off where rows
    that matter come to the end of what it is given; the rest of the cache lies still.

    Args:
      loop: `(cache, carry) -> (cache, carry)`.
      cache: the whole.
      carry: what else the loop changes.
    """
    for num in range(1, len(cache.keys) + 1):
        first, carry = loop(cache.first(num), carry)
        cache = dataclasses.replace(
            first,
            keys=first.keys + cache.keys[num:],
            values=first.values + cache.values[num:],
        )
    return cache, carry


def _with_cache(carry: _Carry, cache: types.Cache | None) -> _Carry:
    return carry._replace(context=carry.context._replace(cache=cache))


def _choose(logits, keys, positions, sampling: Sampling):
    """Next tokens and their log-probabilities, each row with its own key."""
    if sampling.temperature == 0:
        return greedy(logits)
    logits = logits / sampling.temperature
    if sampling.top_p < 1:
        logits = nucleus(logits, sampling.top_p)
    return categorical(logits, draw_lots(keys, positions))
