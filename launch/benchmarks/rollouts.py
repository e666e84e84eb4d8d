"""Rollouts, compared with the bare model and with a loop in Python."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from launch.benchmarks import python_loop
from launch.benchmarks.timing import Medians
from launch.common.model_loading import Backbone
from openagent_jax import rollout
from openagent_jax.environments.world import World
from openagent_jax.models import decoding, sampling
from openagent_jax.rollout import Rollout
from openagent_jax.types import Policy, Sizes


def tokens(
    seed: int,
    model: Backbone,
    source: World,
    num_rows: int,
    medians: Medians,
) -> dict[str, float]:
    """Compare a rollout with the same model over as many tokens, without environment.

    Args:
      seed: seed of the parameters.
      model: the model that plays.
      source: the world that tasks are drawn from.
      num_rows: episodes that are played together.
      medians: measures the times.

    Returns:
      Tokens per second of both, and their ratio.
    """
    policy, environment, tables = model.policy, source.environment, source.tables
    params = model.init(jax.random.key(seed))
    keys = jax.random.split(jax.random.key(1), num_rows)
    draw = jax.vmap(lambda key: environment.sample(tables, key, "test"))
    tasks = jax.jit(draw)(keys)

    @jax.jit
    def play(params, tasks):
        return rollout.rollout(policy, environment, tables, params, keys, tasks)

    bare = _bare(policy, environment.sizes, num_rows, tables.lexicon.vocab_size)
    played = play(params, tasks)
    steps = _prefill_steps(played), played.decode_steps[0]
    num_tokens = float(jnp.sum(played.valid))
    ours, rival = medians(lambda: play(params, tasks), lambda: bare(params, *steps))
    return {
        "tokens_per_s": num_tokens / ours,
        "bare_tokens_per_s": num_tokens / rival,
        "ratio": rival / ours,
        "episodes_per_s": num_rows / ours,
    }


def episodes(
    seed: int,
    model: Backbone,
    source: World,
    temperature: float,
    num_rows: int,
    group: int,
    medians: Medians,
) -> dict[str, float]:
    """Compare a rollout with the same policy in a loop in Python (python_loop.py).

    Args:
      seed: seed of the parameters.
      model: the model that plays.
      source: the world that tasks are drawn from.
      temperature: sampling temperature.
      num_rows: episodes that are played together.
      group: episodes of each task, as GRPO samples them.
      medians: measures the times.

    Returns:
      Episodes per second of both, their ratio, and the success rate of both.
    """
    policy, environment, tables = model.policy, source.environment, source.tables
    params = jax.tree.map(jnp.asarray, model.init(jax.random.key(seed)))
    key = jax.random.key(1)
    keys = jax.random.split(key, num_rows)
    draw = jax.jit(jax.vmap(lambda key: environment.sample(tables, key, "train")))
    tasks = draw(keys[: num_rows // group])
    how = decoding.Sampling(temperature)

    @jax.jit
    def compiled(params):
        return rollout.rollout(policy, environment, tables, params, keys, tasks, how)

    on_host = jax.device_put(tasks, jax.devices("cpu")[0])
    each = [
        jax.tree.map(lambda x, i=i: x[i // group], on_host) for i in range(num_rows)
    ]
    functions = python_loop.environment_functions(environment, tables)
    sizes = environment.sizes
    agent = python_loop.Agent(policy, params, num_rows, sizes)
    success = {"python": 0.0}

    def loop():
        agent.reset()
        games = [python_loop.Game(functions, task) for task in each]
        python_loop.play(agent, games, sizes, tables.lexicon.end_token, key)
        success["python"] = sum(game.success for game in games) / num_rows

    ours, rival = medians(lambda: compiled(params), loop)
    return {
        "per_s": num_rows / ours,
        "python_loop_per_s": num_rows / rival,
        "ratio": rival / ours,
        "success": float(jnp.mean(compiled(params).trajectory.state.success)),
        "python_loop_success": success["python"],
    }


def _bare(policy: Policy, sizes: Sizes, num_rows: int, vocab_size: int) -> Any:
    """Return `(params, prefill_steps, decode_steps) -> ...`.

    It passes as many tokens through the same model and cache as a rollout does, and
    does nothing else.
    """

    def prefill(params, cache, logits, num, chunk):
        def piece(loop):
            cache, (i, logits) = loop
            likely = sampling.greedy(logits)[0]
            tokens = jnp.broadcast_to(likely[:, None], (num_rows, chunk))
            new = jnp.full(num_rows, jnp.clip(num - i, 0, chunk))
            hidden, cache = policy.extend(params, cache, tokens, new)
            return cache, (i + chunk, policy.head(params, hidden[:, -1]))

        def goes_on(loop):
            cache, (i, _) = loop
            room = sum(cache.block_sizes) - cache.num_used[0]
            return (i < num) & (jnp.minimum(num - i, chunk) <= room)

        def loop(*carry):
            return jax.lax.while_loop(goes_on, piece, carry)

        start = jnp.int32(0), logits
        cache, (_, logits) = decoding.loop_in_blocks(loop, cache, start)
        return cache, logits

    def decode(params, cache, logits, num):
        one = jnp.ones(num_rows, jnp.int32)

        def in_block(cache, carry):
            num_slots = sum(cache.block_sizes)

            def token(loop):
                i, cache, logits = loop
                tokens = sampling.greedy(logits)[0][:, None]
                hidden, cache = policy.extend(params, cache, tokens, one)
                return i + 1, cache, policy.head(params, hidden[:, 0])

            def goes_on(loop):
                return (loop[0] < num) & (loop[1].num_used[0] < num_slots)

            i, logits = carry
            i, cache, logits = jax.lax.while_loop(goes_on, token, (i, cache, logits))
            return cache, (i, logits)

        start = jnp.int32(0), logits
        cache, (_, logits) = decoding.loop_in_blocks(in_block, cache, start)
        return cache, logits

    @jax.jit
    def bare(params, prefill_steps, decode_steps):
        def turn(carry):
            t, cache, logits = carry
            cache, logits = decode(params, cache, logits, decode_steps[t])
            num = prefill_steps[t + 1]
            return t + 1, *prefill(params, cache, logits, num, rollout.RESULT_CHUNK)

        cache = policy.init_cache(num_rows, [sizes.prompt_tokens])
        logits = jnp.zeros((num_rows, vocab_size))
        cache, logits = prefill(
            params, cache, logits, prefill_steps[0], rollout.PROMPT_CHUNK
        )
        cache = decoding.broadcast_prefix(policy, cache, num_rows, sizes.context_tokens)
        start = cache, logits
        num_turns = jnp.sum(decode_steps > 0)
        return jax.lax.while_loop(
            lambda x: x[0] < num_turns, turn, (jnp.int32(0), *start)
        )

    return bare


def _prefill_steps(played: Rollout) -> np.ndarray:
    """Return the length of the longest text before each action, and after the last.

    The longest is taken over all rows.
    """
    longest = np.zeros(played.decode_steps.shape[1] + 1, np.int32)
    for valid, sampled in zip(
        *map(np.asarray, (played.valid, played.sampled)), strict=True
    ):
        is_action = sampled[valid]
        starts = np.flatnonzero(is_action & ~np.roll(is_action, 1))
        ends = np.flatnonzero(is_action & ~np.roll(is_action, -1)) + 1
        gaps = np.append(starts, len(is_action)) - np.insert(ends, 0, 0)
        longest[: len(gaps)] = np.maximum(longest[: len(gaps)], gaps)
    return longest
