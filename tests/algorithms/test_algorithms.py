"""The batches of SFT; the first step of SFT and PAFT compared with golden numbers.

To rewrite the numbers after an intended change:
python -m tests.algorithms.test_algorithms
"""

import json

import jax
import numpy as np
import pytest

from openagent_jax.algorithms import sft
from tests import helpers, tiny

GOLDEN = helpers.GOLDEN / "one_step.json"


def test_sft_batch_holds_the_demonstrations(getkey):
    """Tokens and mask are the renderer's, cut to the row; the key does not matter."""
    tables, tasks = helpers.world("poi").tables, helpers.tasks("poi")
    episodes, _ = helpers.demonstrate(tables, tasks)
    tokens, valid, mask, length = helpers.write(tables, episodes)
    num_tokens = 200
    assert np.any(length > num_tokens) and np.any(length < num_tokens)
    algorithm = sft.sft(None, helpers.ENVIRONMENT, num_tokens)
    batch, _ = jax.jit(algorithm.make_batch)(None, tables, None, tasks)
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
        "numbers anew (python -m tests.algorithms.test_algorithms) and say so in the "
        "commit; otherwise something is broken."
    )
    assert got == pytest.approx(expected, rel=1e-4), message


def write_golden() -> None:
    numbers = {name: one_step(name) for name in ("sft", "paft")}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(numbers, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_golden()
