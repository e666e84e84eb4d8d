"""Tasks before and after a perturbation, and agents that act without looking."""

import functools

import jax

from openagent_jax.environments.tools import environment, oracle
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


@jax.jit
def guess(lexicon, tasks, beliefs):
    """Whether the expert of a belief solves the task."""

    def one(task, belief):
        def turn(_, states):
            action = oracle.expert(lexicon, belief, states[1])
            step = functools.partial(environment.step, lexicon)
            return tuple(
                step(x, state, action, helpers.MAX_TURNS)[0]
                for x, state in zip((task, belief), states, strict=True)
            )

        start = tuple(environment.reset(lexicon, x) for x in (task, belief))
        return jax.lax.fori_loop(0, helpers.MAX_TURNS, turn, start)[0].success

    return jax.vmap(one)(tasks, beliefs)
