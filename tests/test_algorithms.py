"""PAFT by exact counts, SFT by what it shows the loss, and both by golden numbers.

After a change that is meant to change them: python -m tests.test_algorithms
"""

import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.algorithms import paft, sft
from openagent_jax.types import Algorithm, TrainState
from tests import helpers, tiny

GOLDEN = Path(__file__).parent / "golden" / "one_step.json"


class Toy(NamedTuple):
    """Stands for tasks: which one, and how it was perturbed."""

    world: jax.Array
    mark: jax.Array


STATE = TrainState(jnp.int32(0), {}, (), jax.random.key(0))
INNER = Algorithm(
    make_batch=lambda state, key, tasks: (tasks, jax.random.key_data(key)),
    loss_fn=lambda params, batch, divisor: (jnp.float32(0), {}),
)


def perturb(key, task, strength):
    return task._replace(mark=strength * jax.random.uniform(key, minval=1, maxval=2))


def make_batch(alpha, num_tasks, key, strength=1.0):
    tasks = Toy(jnp.arange(num_tasks), jnp.zeros(num_tasks))
    algorithm = paft.paft(INNER, perturb, alpha, lambda step: strength)
    return jax.device_get(jax.jit(algorithm.make_batch)(STATE, key, tasks))


@pytest.mark.parametrize(
    ("alpha", "num_tasks", "expected"),
    [(0.3, 10, 3), (0.7, 10, 7), (0.5, 8, 4), (0.25, 4, 1), (0, 8, 0), (1, 8, 8)],
)
def test_exact_share_is_perturbed(getkey, alpha, num_tasks, expected):
    (tasks, _), key = make_batch(alpha, num_tasks, getkey()), getkey()
    assert np.count_nonzero(tasks.mark) == expected
    np.testing.assert_array_equal(tasks.world, np.arange(num_tasks))
    # Each by a key of its own, and another one in each step.
    others = make_batch(alpha, num_tasks, key)[0].mark
    marks = [*tasks.mark[:expected], *others[:expected]]
    assert len(np.unique(marks)) == 2 * expected


def test_share_between_two_numbers_of_tasks(getkey):
    """0.3 of 8 tasks: 2 or 3 of them, 2.4 in the mean."""
    tasks = Toy(jnp.arange(8), jnp.zeros(8))
    make = paft.paft(INNER, perturb, 0.3, lambda step: 1.0).make_batch
    many = jax.vmap(lambda key: make(STATE, key, tasks)[0].mark)
    num = np.count_nonzero(jax.jit(many)(jax.random.split(getkey(), 4000)), axis=1)
    assert set(num) == {2, 3}
    assert abs(num.mean() - 2.4) < 0.04  # five standard errors


def test_nothing_perturbed_is_the_inner_algorithm(getkey):
    key = getkey()
    tasks = Toy(jnp.arange(8), jnp.zeros(8))
    got = make_batch(0.0, 8, key)
    # The same key as well: for reinforcement learning the same samples.
    jax.tree.map(
        np.testing.assert_array_equal, got, INNER.make_batch(STATE, key, tasks)
    )


def test_strength_is_passed_on(getkey):
    key = getkey()
    full, half, none = (make_batch(1, 8, key, s)[0].mark for s in (1.0, 0.5, 0.0))
    np.testing.assert_allclose(half, full / 2)
    assert not none.any()


def test_strength_may_grow(getkey):
    """As its schedule says, by the step."""
    tasks, key = Toy(jnp.arange(8), jnp.zeros(8)), getkey()
    algorithm = paft.paft(INNER, perturb, 1.0, paft.ramp(0.8, 4))

    @jax.jit
    def marks(step):
        state = TrainState(step, {}, (), key)
        return algorithm.make_batch(state, key, tasks)[0].mark

    none, half, full, later = (marks(jnp.int32(step)) for step in (0, 2, 4, 9))
    assert not none.any() and full.any()
    np.testing.assert_allclose(half, full / 2, rtol=1e-6)
    np.testing.assert_array_equal(later, full)


def test_twins_stand_beside_each_other(getkey):
    tasks, key = Toy(jnp.arange(8), jnp.zeros(8)), getkey()
    algorithm = paft.paft(INNER, perturb, 0.5, lambda step: 1.0, twins=True)
    got, _ = algorithm.make_batch(STATE, key, tasks)
    assert got.world.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert not got.mark[::2].any() and got.mark[1::2].all()
    with pytest.raises(ValueError, match=r"paft.alpha=0.3, but of twins"):
        paft.paft(INNER, perturb, 0.3, lambda step: 1.0, twins=True)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_no_share(alpha):
    with pytest.raises(ValueError, match=f"paft.alpha={alpha}"):
        paft.paft(INNER, perturb, alpha, lambda step: 1.0)


def test_sft_shows_the_demonstrations(getkey):
    """Tokens and mask are the renderer's, cut; neither key nor parameters matter."""
    lexicon, tasks = helpers.world("poi").lexicon, helpers.tasks("poi")
    episodes, _ = helpers.demonstrate(lexicon, tasks)
    tokens, valid, mask, length = helpers.write(lexicon, episodes)
    num_tokens = 200
    assert np.any(length > num_tokens) and np.any(length < num_tokens)
    algorithm = sft.sft(None, lexicon, helpers.MAX_TURNS, num_tokens)
    batch, _ = jax.jit(algorithm.make_batch)(None, None, tasks)
    for got, expected in (
        (batch.tokens, tokens),
        (batch.valid, valid),
        (batch.loss_mask, mask),
    ):
        np.testing.assert_array_equal(got, expected[:, :num_tokens])
    np.testing.assert_array_equal(batch.positions, [np.arange(num_tokens)] * len(mask))
    assert not np.any(batch.loss_mask & ~batch.valid)
    np.testing.assert_array_equal(batch.divisor, np.sum(batch.loss_mask, axis=1))


def one_step(name: str) -> dict[str, float]:
    step, state = tiny.trainer(tiny.config(name))
    _, metrics = step(state)
    return {key: float(value) for key, value in metrics.items()}


@pytest.mark.parametrize("name", ["sft", "paft"])
def test_golden_step(name):
    got, expected = one_step(name), json.loads(GOLDEN.read_text())[name]
    message = (
        "The first step is not what it was. If the tasks, their wording, the "
        "perturbations or the start of the model were meant to change, write the "
        "numbers anew (python -m tests.test_algorithms) and say so in the commit; "
        "otherwise something is broken."
    )
    assert got == pytest.approx(expected, rel=1e-4), message


def write_golden() -> None:
    numbers = {name: one_step(name) for name in ("sft", "paft")}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(numbers, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_golden()
