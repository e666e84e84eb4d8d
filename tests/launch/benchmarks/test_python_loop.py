"""The baseline of the compiled rollout plays the same episodes."""

import jax
import numpy as np
import pytest

from launch.benchmarks import python_loop
from openagent_jax import rollout
from openagent_jax.environments.tools import make
from openagent_jax.models import decoding
from openagent_jax.types import Sizes
from tests import helpers

NUM = 8
SIZES = Sizes(4, 160, 6, 32, 205)  # some episodes are cut off
TEMPERATURE = 1.0
LIKELY = {"<|end|>": 7.5, "Refuse": 7.2, "Ask": 7.2, "Answer: ": 7.2}


@pytest.mark.slow
def test_same_episodes():
    policy, params = helpers.biased_policy(LIKELY)
    tables, keys = helpers.world("poi").tables, helpers.keys(0, num=NUM)
    environment = make.functions(SIZES, helpers.NUM_VISIBLE)
    tasks = jax.tree.map(lambda x: x[:NUM], helpers.tasks("poi"))
    play = jax.jit(
        lambda tables, tasks: rollout.rollout(
            policy, environment, tables, params, keys, tasks, TEMPERATURE
        )
    )
    expected = helpers.host(play(tables, tasks))

    def draw(key, logits, length):
        return decoding.choose(logits, keys, length, TEMPERATURE)[0]

    functions = python_loop.environment_functions(environment, tables)
    games = [python_loop.Game(functions, helpers.row(tasks, i)) for i in range(NUM)]
    agent = python_loop.Agent(policy, params, NUM, SIZES, draw)
    agent.reset()
    end_token = tables.lexicon.end_token
    python_loop.play(agent, games, SIZES, end_token, jax.random.key(0))
    assert len(set(expected.trajectory.valid.sum(1).tolist())) > 1
    assert expected.cut.any() and not expected.cut.all()
    for i, game in enumerate(games):
        want = helpers.row(expected.trajectory.state, i)
        for name in ("turn", "num_calls", "num_errors", "success", "told"):
            got = np.asarray(getattr(game.state, name))
            np.testing.assert_array_equal(got, getattr(want, name), err_msg=name)
