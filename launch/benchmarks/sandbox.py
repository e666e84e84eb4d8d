"""The speed of the environment without a model, under actions that are given."""

import jax

from launch.benchmarks.timing import Timer
from openagent_jax import expert
from openagent_jax.environments.world import World


def measure(source: World, num_envs: int, timer: Timer) -> dict[str, float]:
    """Return environment steps per second: one jitted scan over `num_envs` worlds.

    The actions are those of the expert, found beforehand. An episode that is over goes
    on without any change, which takes as long.
    """
    environment, tables = source.environment, source.tables

    @jax.jit
    def demonstrate(keys):
        def one(key):
            task = environment.sample(tables, key, "test")
            return task, expert.demonstrate(environment, tables, task).action

        return jax.vmap(one)(keys)

    @jax.jit
    def play(tasks, actions):
        def one(task, actions):
            def turn(state, action):
                state, timestep = environment.step(tables, task, state, action)
                return state, timestep.reward

            return jax.lax.scan(turn, environment.reset(tables, task), actions)

        return jax.vmap(one)(tasks, actions)

    played = demonstrate(jax.random.split(jax.random.key(0), num_envs))
    (seconds,) = timer(lambda: play(*played))
    num_steps = num_envs * environment.sizes.max_turns
    return {"env_steps_per_s": num_steps / seconds}
