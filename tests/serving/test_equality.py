"""An agent behind our endpoint generates, token for token, what a rollout generates."""

import asyncio
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch.common import backbones
from openagent_jax import rollout
from openagent_jax.agents import agents, play
from openagent_jax.curriculum import draw
from openagent_jax.environments.tools import make
from openagent_jax.suites import tasks
from openagent_jax.text import reply_scan
from openagent_jax.types import Sizes
from tests import helpers, tiny
from tests.serving import host

NUM, TURNS = 12, 6
# Longer calls are cut off, and long episodes run out of room.
SIZES = Sizes(TURNS, 210, 18, 48, 264)
SCENARIOS = ("query_underspecified", "nonstandard_feedback")
SEED = 5
LIKELY = {"<|end|>": 7.5, "Refuse": 7.2, "Ask": 7.2, "Answer: ": 7.2}


@functools.cache
def world():
    """A world whose episodes have these sizes."""
    environment = make.functions(SIZES, helpers.NUM_VISIBLE)
    return helpers.world("poi")._replace(environment=environment)


def biased():
    return helpers.biased_policy(LIKELY)


def nano():
    """The shipped backbone: it calls tools, right or wrong."""
    c = tiny.full_config()
    model = backbones.backbone(c)
    return model.policy, backbones.first_params(c, model)


@functools.cache
def compiled(agent):
    """Episodes of the compiled evaluation: `(tokens, own) of each row, scores`."""
    policy, params = agent()
    environment, tables = world().environment, world().tables
    one = draw.make_draw(environment, SCENARIOS, "test")

    @jax.jit
    def run(params, scenario):
        keys = draw.task_keys(jax.random.key(SEED), 0, NUM)
        edited = jax.vmap(one, (None, 0, 0, None, None))(
            tables, keys, draw.edit_keys(keys), jnp.float32(1), scenario
        )
        played = rollout.rollout(policy, environment, tables, params, keys, edited.task)
        final = played.trajectory.state
        outcome = jax.vmap(environment.outcome, (None, 0, 0))(
            tables, edited.task, final
        )
        return played, outcome

    return [helpers.host(run(params, jnp.int32(i))) for i in range(1 + len(SCENARIOS))]


def served(agent):
    policy, params = agent()
    room = SIZES.context_tokens
    return host.serve(
        host.decode(policy, params, 4, room),
        max_context=room - SIZES.result_tokens,
        max_tokens=SIZES.action_tokens,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "does", "num_full"),
    [
        (nano, {reply_scan.CALL, reply_scan.ANSWER, reply_scan.MALFORMED}, 1),
        (biased, {reply_scan.ANSWER, reply_scan.REFUSE, reply_scan.MALFORMED}, 0),
    ],
)
def test_episodes_over_http_equal_the_rollout(agent, does, num_full):
    suite = tasks.Suite(world(), SCENARIOS, SEED, NUM, 1.0, "test")
    ours, said = served(agent), []
    keep = ours.conversations.keep

    def heard(messages, tools, tokens, new):
        said.append([*tokens, *new])
        keep(messages, tools, tokens, new)

    ours.conversations.keep = heard

    async def run(address):
        where = agents.Endpoint(f"{address}/v1", host.NAME)
        async with agents.endpoint(where) as asked:
            playing = play.play(suite.episodes(), asked, 6, play.Budget())
            return [outcome async for outcome in playing]

    with host.address(ours) as address:
        outcomes = asyncio.run(run(address))
    by_place = {(x["scenario"], x["index"]): x for x in outcomes}
    assert len(by_place) == len(outcomes) == NUM * len(suite.names)
    spoken, wanted, full, kinds = set(map(tuple, said)), 0, 0, set()
    for scenario, (played, scores) in zip(suite.names, compiled(agent), strict=True):
        assert not played.overflow.any()
        for i in range(NUM):
            outcome = by_place[scenario, i]
            assert outcome["answered"], outcome
            for name in ("success", "refused", "num_calls", "num_errors", "solvable"):
                score = getattr(scores, name)[i]
                assert outcome[name] == score, (scenario, i, name)
            turns = np.flatnonzero(played.trajectory.valid[i])
            assert outcome["num_replies"] == len(turns)
            kinds |= {*played.trajectory.action.kind[i][turns].tolist()}
            # Each reply, together with everything before it, is in the rollout.
            tokens = played.tokens[i][played.valid[i]]
            own = played.sampled[i][played.valid[i]]
            ends = np.flatnonzero(own & ~np.append(own[1:], False)) + 1
            for end in ends:
                assert tuple(tokens[:end].tolist()) in spoken
            wanted += len(ends)
            full += bool(played.cut[i])
            assert outcome.get("reason", "").startswith("no room") == played.cut[i]
    assert len(said) == wanted
    assert kinds >= does and full >= num_full
