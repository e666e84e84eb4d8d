"""The speed of the environment without a model, under a random policy."""

import jax
import jax.numpy as jnp

from launch.benchmarks.timing import Medians
from openagent_jax.environments.tools import environment, types
from openagent_jax.environments.world import World
from openagent_jax.text import reply_scan


def measure(
    source: World, max_turns: int, num_envs: int, medians: Medians
) -> dict[str, float]:
    """Return environment steps per second: one jitted scan over `num_envs` worlds."""
    tables = source.tables

    @jax.jit
    def play(keys, tasks):
        def one(key, task):
            def turn(state, t):
                action = _random_call(jax.random.fold_in(key, t), task)
                state, timestep = environment.step(
                    tables.lexicon, task, state, action, max_turns
                )
                return state, timestep.reward

            state = environment.reset(tables.lexicon, task)
            return jax.lax.scan(turn, state, jnp.arange(max_turns))

        return jax.vmap(one)(keys, tasks)

    keys = jax.random.split(jax.random.key(0), num_envs)
    draw = jax.vmap(lambda key: source.environment.sample(tables, key, "test"))
    tasks = jax.jit(draw)(keys)
    (seconds,) = medians(lambda: play(keys, tasks))
    return {"env_steps_per_s": num_envs * max_turns / seconds}


def _random_call(key: jax.Array, task: types.Task) -> types.Action:
    """Return a call of a documented tool, with random arguments of the right types."""
    num_args = task.tools.arg_low.shape[1]
    uniforms = jax.random.uniform(key, (num_args + 1,))
    visible = task.tools.visible
    place = (uniforms[-1] * jnp.sum(visible)).astype(jnp.int32)
    tool = jnp.searchsorted(jnp.cumsum(visible), place + 1).astype(jnp.int32)
    low, high = task.tools.arg_low[tool], task.tools.arg_high[tool]
    args = low + (uniforms[:-1] * (high - low)).astype(jnp.int32)
    source_row = task.tools.code_from[tool]
    code = jnp.where(source_row >= 0, task.tools.code[source_row], -1)
    call = types.ToolCall(tool, jnp.where(high > low, args, -1), code)
    return types.Action(jnp.int32(reply_scan.CALL), call, jnp.int32(-1))
