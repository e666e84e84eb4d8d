"""What the compiled rollout is compared with plays the same episodes."""

import jax
import numpy as np

from launch import python_loop
from openagent_jax import rollout
from tests import helpers

NUM = 8
SIZES = rollout.Sizes(4, 224, 6, 32, 165)  # some are cut
SAMPLING = rollout.Sampling(temperature=1.0)
LIKELY = {"<|end|>": 7.5, "Refuse": 7.2, "Ask": 7.2, "Answer: ": 7.2}


def test_same_episodes():
    policy, params = helpers.talker(LIKELY)
    lexicon, keys = helpers.world("poi").lexicon, helpers.keys(0, num=NUM)
    tasks = jax.tree.map(lambda x: x[:NUM], helpers.tasks("poi"))
    play = jax.jit(
        lambda tasks: rollout.rollout(
            policy, lexicon, params, keys, tasks, SIZES, SAMPLING
        )
    )
    expected = helpers.host(play(tasks))

    def draw(key, logits, length):
        return rollout._choose(logits, keys, length, SAMPLING)[0]

    functions = python_loop.environment_functions(lexicon, SIZES)
    games = [python_loop.Game(functions, helpers.row(tasks, i)) for i in range(NUM)]
    agent = python_loop.Agent(policy, params, NUM, SIZES, draw)
    agent.reset()
    python_loop.play(agent, games, SIZES, lexicon.end_token, jax.random.key(0))
    assert len(set(expected.trajectory.valid.sum(1).tolist())) > 1
    assert expected.cut.any() and not expected.cut.all()
    for i, game in enumerate(games):
        want = helpers.row(expected.trajectory.state, i)
        for name in ("turn", "num_calls", "num_errors", "success", "told"):
            got = np.asarray(getattr(game.state, name))
            np.testing.assert_array_equal(got, getattr(want, name), err_msg=name)
