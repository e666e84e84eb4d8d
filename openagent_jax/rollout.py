"""Sandbox and policy in one program: `rollout` plays whole episodes.

Each row has its own place in the cache, so a row's tokens are dense from slot 0 on.
The loop over tokens stops when every row has ended its action, and the loop over
turns when every episode is over. An episode without room for another turn is over
too, and has failed.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import types
from openagent_jax.sandbox import demonstrate, environment, parse, render
from openagent_jax.sandbox import lexicon as lexicons
from openagent_jax.types import Action, Params, Policy, Task, ToolResult, Trajectory


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


class _Carry(NamedTuple):
    turn: Array
    cache: types.Cache
    logits: Array  # [B, V] for the next token
    tokens: Array  # [B, M]
    sampled: Array
    log_prob: Array
    overflow: Array
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
    """Play one episode for each of B tasks; `keys` holds one key for each."""
    num_rows = keys.shape[0]
    rows = jnp.arange(num_rows)

    def write(pieces, num_tokens):
        return jax.vmap(lambda p: lexicons.write(lexicon, p, num_tokens))(pieces)

    def feed(carry: _Carry, tokens, length, size: int) -> _Carry:
        """Append tokens of the environment, right-padded rows of `length`."""
        overflow = carry.overflow | (length > size)
        length = jnp.minimum(length, size)
        at = carry.cache.length
        hidden, cache = policy.extend(params, carry.cache, tokens, length)
        last = hidden[rows, jnp.maximum(length - 1, 0)]
        logits = policy.head(params, last)
        # An index out of range is dropped: nothing is written behind a row's length.
        new = jnp.arange(size)[None] < length[:, None]
        slots = jnp.where(
            new, at[:, None] + jnp.arange(size)[None], sizes.context_tokens
        )
        return carry._replace(
            cache=cache,
            logits=jnp.where((length > 0)[:, None], logits, carry.logits),
            tokens=carry.tokens.at[rows[:, None], slots].set(tokens, mode="drop"),
            overflow=overflow,
        )

    def speak(carry: _Carry) -> tuple[_Carry, Array, Array, Array]:
        """Sample an action for each live row: tokens, their number, ended."""

        def token(loop):
            i, carry, said, active = loop
            at = carry.cache.length
            chosen, log_prob = _choose(carry.logits, keys, at, sampling)
            chosen = jnp.where(active, chosen, 0)
            hidden, cache = policy.extend(
                params, carry.cache, chosen[:, None], active.astype(jnp.int32)
            )
            here = rows, jnp.where(active, at, sizes.context_tokens)
            carry = carry._replace(
                cache=cache,
                logits=policy.head(params, hidden[:, 0]),
                tokens=carry.tokens.at[here].set(chosen, mode="drop"),
                sampled=carry.sampled.at[here].set(True, mode="drop"),
                log_prob=carry.log_prob.at[here].set(log_prob, mode="drop"),
            )
            said = lax.dynamic_update_slice(said, chosen[:, None], (0, i))
            return i + 1, carry, said, active & (chosen != lexicon.end_token)

        def goes_on(loop):
            i, _, _, active = loop
            return (i < sizes.action_tokens) & jnp.any(active)

        said = jnp.zeros((num_rows, sizes.action_tokens), jnp.int32)
        active = ~carry.state.finished
        start = carry.cache.length
        steps, carry, said, active = lax.while_loop(
            goes_on, token, (jnp.int32(0), carry, said, active)
        )
        carry = carry._replace(
            decode_steps=carry.decode_steps.at[carry.turn].set(steps)
        )
        return carry, said, carry.cache.length - start, ~active

    def turn(carry: _Carry) -> _Carry:
        live = ~carry.state.finished
        carry, said, length, ended = speak(carry)
        # The end mark is no part of the action; one that did not end is malformed.
        action = jax.vmap(parse.parse, in_axes=(None, 0, 0, 0))(
            lexicon, tasks, said, length - ended
        )
        kind = jnp.where(ended, action.kind, types.MALFORMED)
        none = demonstrate.no_action(tasks.tools.arg_name.shape[-1])
        action = jax.tree.map(
            lambda a, b: jnp.where(ended.reshape(-1, *[1] * (a.ndim - 1)), a, b),
            Action(kind, action.call, action.value),
            jax.tree.map(lambda x: jnp.broadcast_to(x, (num_rows, *x.shape)), none),
        )

        def act(task, state, action, ended):
            state, timestep = environment.step(
                lexicon, task, state, action, sizes.max_turns
            )
            seen = timestep.observation
            pieces = render.observation(lexicon.style, task, seen)
            # What the policy left open is closed for it, as no word of its own.
            close = jnp.where(ended | (pieces[0] == 0), 0, lexicon.style.end)
            return state, seen, jnp.concatenate([close[None], pieces])

        state, result, pieces = jax.vmap(act)(tasks, carry.state, action, ended)
        pieces = jnp.where((live & ~state.finished)[:, None], pieces, 0)
        tokens, _, length = write(pieces, sizes.result_tokens)
        # No room for what comes next: the episode ends here, without success.
        needed = carry.cache.length + length + sizes.action_tokens + sizes.result_tokens
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
        return lax.cond(
            jnp.all(state.finished),
            lambda c: c,
            lambda c: feed(c, tokens, length, sizes.result_tokens),
            carry,
        )

    shape = (num_rows, sizes.context_tokens)
    state = jax.vmap(lambda task: environment.reset(lexicon, task))(tasks)
    num_args, num_fields = tasks.tools.arg_name.shape[-1], state.values.shape[-1]
    empty = (demonstrate.no_action(num_args), demonstrate.no_result(num_fields))
    action, result = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (sizes.max_turns, num_rows, *x.shape)), empty
    )
    carry = _Carry(
        turn=jnp.int32(0),
        cache=policy.init_cache(*shape),
        logits=jnp.zeros((num_rows, lexicon.vocab_size)),
        tokens=jnp.zeros(shape, jnp.int32),
        sampled=jnp.zeros(shape, bool),
        log_prob=jnp.zeros(shape),
        overflow=jnp.zeros(num_rows, bool),
        cut=jnp.zeros(num_rows, bool),
        state=state,
        action=action,
        result=result,
        valid=jnp.zeros((sizes.max_turns, num_rows), bool),
        decode_steps=jnp.zeros(sizes.max_turns, jnp.int32),
    )
    pieces = jax.vmap(lambda task: render.prompt(lexicon.style, task))(tasks)
    tokens, _, length = write(pieces, sizes.prompt_tokens)
    carry = feed(carry, tokens, length, sizes.prompt_tokens)
    carry = lax.while_loop(
        lambda c: (c.turn < sizes.max_turns) & ~jnp.all(c.state.finished), turn, carry
    )
    action, result = jax.tree.map(
        lambda x: jnp.swapaxes(x, 0, 1), (carry.action, carry.result)
    )
    trajectory = Trajectory(tasks, action, result, carry.valid.T, carry.state)

    valid = jnp.arange(sizes.context_tokens)[None] < carry.cache.length[:, None]
    return Rollout(
        trajectory,
        carry.tokens,
        valid,
        carry.sampled,
        carry.log_prob,
        carry.overflow,
        carry.cut,
        carry.decode_steps,
    )


def _choose(logits, keys, positions, sampling: Sampling):
    """Next tokens and their log-probabilities, each row with its own key."""
    if sampling.temperature == 0:
        log_probs = jax.nn.log_softmax(logits)
        chosen = jnp.argmax(logits, axis=-1)
    else:
        logits = logits / sampling.temperature
        if sampling.top_p < 1:
            ranked = jnp.sort(logits, axis=-1)[:, ::-1]
            mass = jnp.cumsum(jax.nn.softmax(ranked), axis=-1)
            keep = jnp.sum(mass < sampling.top_p, axis=-1, keepdims=True)
            least = jnp.take_along_axis(ranked, keep, axis=-1)
            logits = jnp.where(logits >= least, logits, -jnp.inf)
        log_probs = jax.nn.log_softmax(logits)
        draw = jax.vmap(lambda k, row: jax.random.categorical(k, row))
        chosen = draw(jax.vmap(jax.random.fold_in)(keys, positions), logits)
    chosen = chosen.astype(jnp.int32)
    return chosen, jnp.take_along_axis(log_probs, chosen[:, None], axis=-1)[:, 0]
