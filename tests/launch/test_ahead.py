"""Runs that train on several kinds of worlds in turn, or make batches ahead."""

import dataclasses

import jax
import numpy as np
import pytest

from launch.common import backbones, batching, build, compiled_step, lineage
from launch.common.errors import UsageError
from openagent_jax.domains import domain_file
from tests import tiny

OTHERS = dict(train__other_domains=("random",), train__other_share=0.5)


def make(**changes):
    c = tiny.config("sft", train__shuffle_vectors=True, **(OTHERS | changes))
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    return c, model, source, *batching.of_run(c, model, source)


@pytest.fixture(scope="module")
def made():
    return make()


def test_batches_of_both_worlds(made):
    """Each is the batch that a run of that world alone has in this step."""
    c, model, source, _, fed = made
    other = build.world(c, model, "random")
    alone = [batching.maker(c, model, one) for one in (source, other)]
    batches = [next(fed) for _ in range(8)]

    def origin(step, batch):
        expected = [make(step).tokens for make in alone]
        same = [np.array_equal(batch.tokens, tokens) for tokens in expected]
        assert sum(same) == 1
        return same.index(True)

    assert {origin(*each) for each in enumerate(batches)} == {0, 1}
    position = fed.state()
    later = [next(fed) for _ in range(3)]
    fed.restore(position)
    jax.tree.map(np.testing.assert_array_equal, later, [next(fed) for _ in later])


def test_words_that_either_world_needs_keep_their_vectors(made):
    c, model, source, joined, _ = made
    other = build.world(c, model, "random")
    both = source.fixed_tokens() | other.fixed_tokens()
    assert joined.fixed_tokens() == both > source.fixed_tokens()


def test_batches_made_ahead_are_the_same(made):
    """By threads, on one device of the CPU, for steps on several devices."""
    *_, fed = made
    fed.restore({"step": 0})
    plain = [next(fed) for _ in range(6)]
    *_, fed = make(train__num_ahead=3)
    threaded = [next(fed) for _ in range(6)]
    jax.tree.map(np.testing.assert_array_equal, plain, threaded)
    for one in (*plain, *threaded):
        assert one.tokens.sharding == fed.abstract.tokens.sharding
    fed.restore({"step": 2})
    jax.tree.map(np.testing.assert_array_equal, plain[2:4], [next(fed), next(fed)])


def test_a_step(made):
    c, model, _, source, fed = made
    step, state = compiled_step.trainer(c, model, source, fed=fed)
    for _ in range(2):
        state, metrics = step(state)
        assert metrics["train/num_loss_tokens"] > 0


def test_what_a_model_was_trained_on():
    c = tiny.config("sft", train__other_domains=("random", "mail,chat"))
    assert lineage.stage(c)["domains"] == ["poi", "random", "mail", "chat"]
    c = tiny.config("paft", train__lookup_share=1.0)
    stage = lineage.stage(c)
    assert stage["domains"] == stage["perturbations"] == []


def test_exercises():
    """They take turns with tasks, get harder, and have no word of the evaluation."""
    c, model, source, joined, fed = make(
        train__other_domains=(),
        train__lookup_share=0.5,
        train__lookup_steps=100,
    )
    alone = batching.maker(c, model, source)
    batches = [next(fed) for _ in range(8)]
    are_tasks = [
        np.array_equal(batch.tokens, alone(step).tokens)
        for step, batch in enumerate(batches)
    ]
    assert {*are_tasks} == {True, False}
    step = are_tasks.index(False)
    made = batching.exercises(c, model)
    expected = made.batch(step, *batches[0].tokens.shape, (step + 1) / 100)
    jax.tree.map(np.testing.assert_array_equal, batches[step], expected)
    assert joined.fixed_tokens() >= source.fixed_tokens() | made.fixed_tokens()
    assert not {*made.pools.words} & domain_file.evaluated_words()


def test_exercises_are_in_the_compact_style(made):
    c, model, *_ = made
    with pytest.raises(UsageError, match="chat template; set it to 0.0"):
        batching.exercises(c, dataclasses.replace(model, template="{{ x }}"))
