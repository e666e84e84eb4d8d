"""Tasks before and after a perturbation, and agents that act without looking."""

import jax

from openagent_jax.environments.tools import environment
from tests import differences, helpers


def pair(name, entry, split="test", strength=1.0):
    """Tasks before and after, and which of them have changed."""
    old = helpers.host(helpers.tasks(name, split))
    new = helpers.host(helpers.edited(name, split, entry, strength))
    return old, new, differences.changed_tasks(old, new)


@jax.jit
def replay(lexicon, tasks, actions):
    """The last states of episodes in which agents act as recorded, whatever happens."""

    def one(task, actions):
        def step(state, action):
            turn = environment.step(lexicon, task, state, action, helpers.MAX_TURNS)
            return turn[0], None

        return jax.lax.scan(step, environment.reset(lexicon, task), actions)[0]

    return jax.vmap(one)(tasks, actions)
