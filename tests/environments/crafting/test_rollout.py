"""A random policy plays: whatever it writes, every episode ends."""

import functools

import jax
import numpy as np
import pytest

from openagent_jax import rollout
from openagent_jax.text import reply_scan
from tests import helpers
from tests.environments.crafting import crafts

NUM = 8
LIKELY = {"<|end|>": 10.5, "Refuse": 10, "Ask": 10, "Answer: ": 9.5}


@pytest.mark.slow
def test_rollout():
    world = crafts.world()
    sizes = world.environment.sizes._replace(
        max_turns=3,
        prompt_tokens=416,
        action_tokens=6,
        result_tokens=12,
        context_tokens=480,
    )
    environment = world.environment._replace(sizes=sizes)
    policy, params = helpers.biased_policy(LIKELY)
    play = functools.partial(rollout.rollout, policy, environment)
    tasks = jax.tree.map(lambda x: x[:NUM], crafts.tasks())
    run = jax.jit(functools.partial(play, temperature=1.0))
    episodes = helpers.host(run(world.tables, params, helpers.keys(num=NUM), tasks))
    assert not episodes.overflow.any()
    trajectory = episodes.trajectory
    kinds = trajectory.action.kind[trajectory.valid]
    assert {reply_scan.REFUSE, reply_scan.ASK, reply_scan.MALFORMED} & {*kinds}
    step = trajectory.timestep
    ended = (step.terminated | step.truncated) & trajectory.valid
    assert np.all((ended.sum(axis=1) == 1) | trajectory.valid.all(axis=1))
    assert ended.any()
    # The sampled tokens are stored unchanged, and the prompt is the environment's.
    assert np.all(episodes.sampled.sum(axis=1) > 0)
    for i in range(NUM):
        text = helpers.spell(episodes.tokens[i][episodes.valid[i]])
        request = world.transcriber.opening(helpers.row(tasks, i))[1]["content"]
        assert request in text
    assert np.all(np.isfinite(episodes.log_prob))
