"""Rollouts, compared with the bare model and with a loop in Python."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from launch.benchmarks import python_loop
from launch.benchmarks.timing import Timer
from launch.common.model_loading import Backbone
from openagent_jax import rollout
from openagent_jax.environments.world import World
from openagent_jax.models import decoding, sampling
from openagent_jax.types import Policy, Sizes


def tokens(
    seed: int,
    model: Backbone,
    source: World,
    num_rows: int,
    at_once: int,
    timer: Timer,
) -> dict[str, float]:
    """Compare a rollout with the same model over as many tokens, without environment.

    Args:
      seed: seed of the parameters.
      model: the model that plays.
      source: the world that tasks are drawn from.
      num_rows: episodes that are played together.
      at_once: how many of them at once; see `rollout.at_once`.
      timer: measures the times.

    Returns:
      Tokens per second of both, their ratio, and the share of idle rows.
    """
    policy, environment, tables = model.policy, source.environment, source.tables
    params = model.init(jax.random.key(seed))
    keys = jax.random.split(jax.random.key(1), num_rows)
    draw = jax.vmap(lambda key: environment.sample(tables, key, "test"))
    tasks = jax.jit(draw)(keys)

    @jax.jit
    def play(params, tasks):
        return rollout.rollout(
            policy, environment, tables, params, keys, tasks, num_rows=at_once
        )

    played = play(params, tasks)
    prompts = jnp.argmax(played.sampled, axis=1)  # the first sampled token comes next
    num_new = int(jnp.mean(jnp.sum(played.valid, axis=1) - prompts))
    rows = rollout.at_once(at_once, num_rows)
    vocab_size = tables.lexicon.vocab_size
    bare = _bare(policy, environment.sizes, rows, num_new, vocab_size)
    # As many steps as its rows need without being idle.
    num_steps = jnp.round(played.num_steps[0] * (1 - played.idle[0])).astype(int)
    inputs = played.tokens, prompts, num_steps
    num_tokens = float(jnp.sum(played.valid))
    ours, rival = timer(lambda: play(params, tasks), lambda: bare(params, *inputs))
    return {
        "tokens_per_s": num_tokens / ours,
        "bare_tokens_per_s": num_tokens / rival,
        "ratio": rival / ours,
        "episodes_per_s": num_rows / ours,
        "idle": float(played.idle[0]),
    }


def episodes(
    seed: int,
    model: Backbone,
    source: World,
    temperature: float,
    num_rows: int,
    group: int,
    at_once: int,
    timer: Timer,
) -> dict[str, float]:
    """Compare a rollout with the same policy in a loop in Python (python_loop.py).

    Args:
      seed: seed of the parameters.
      model: the model that plays.
      source: the world that tasks are drawn from.
      temperature: sampling temperature.
      num_rows: episodes that are played together.
      group: episodes of each task, as GRPO samples them.
      at_once: how many of them at once; see `rollout.at_once`.
      timer: measures the times.

    Returns:
      Episodes per second of both, their ratio, and the success rate of both.
    """
    policy, environment, tables = model.policy, source.environment, source.tables
    params = jax.tree.map(jnp.asarray, model.init(jax.random.key(seed)))
    key = jax.random.key(1)
    keys = jax.random.split(key, num_rows)
    draw = jax.jit(jax.vmap(lambda key: environment.sample(tables, key, "train")))
    tasks = draw(keys[: num_rows // group])

    @jax.jit
    def compiled(params):
        return rollout.rollout(
            policy,
            environment,
            tables,
            params,
            keys,
            tasks,
            temperature,
            num_rows=at_once,
        )

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

    ours, rival = timer(lambda: compiled(params), loop)
    return {
        "per_s": num_rows / ours,
        "python_loop_per_s": num_rows / rival,
        "ratio": rival / ours,
        "success": float(jnp.mean(compiled(params).trajectory.state.success)),
        "python_loop_success": success["python"],
    }


def _bare(
    policy: Policy, sizes: Sizes, num_rows: int, num_new: int, vocab_size: int
) -> Any:
    """Return `(params, tokens [B M], prompts [B], num_steps) -> ...`.

    It passes as many tokens through the same model as a rollout does, and does nothing
    else. The prompts are prefilled, and then `num_steps` tokens of each row are decoded
    greedily. Rows start over after `num_new` tokens, the mean of an episode, and not
    all at the same step.
    """

    @jax.jit
    def bare(params, tokens, prompts, num_steps):
        num_prompts, size = len(prompts), sizes.prompt_tokens
        cache = policy.init_cache(num_prompts, [size])
        logits = jnp.zeros((num_prompts, vocab_size))
        cache, logits = decoding.prefill(
            policy,
            params,
            cache,
            logits,
            tokens[:, :size],
            prompts,
            rollout.PROMPT_CHUNK,
        )
        first = jnp.mean(prompts).astype(jnp.int32)
        behind = jnp.arange(num_rows) * num_new // num_rows
        one = jnp.ones(num_rows, jnp.int32)

        def step(i, loop):
            cache, logits = loop
            length = first + (i + behind) % num_new
            cache = dataclasses.replace(cache, length=length)
            tokens = sampling.greedy(logits)[0][:, None]
            hidden, cache = policy.extend(params, cache, tokens, one)
            return cache, policy.head(params, hidden[:, 0])

        rows = policy.init_cache(num_rows, [size + num_new])
        start = rows, logits[jnp.arange(num_rows) % num_prompts]
        return jax.lax.fori_loop(0, num_steps, step, start)

    return bare
