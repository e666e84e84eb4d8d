"""The batches of SFT; the first step of SFT and PAFT compared with golden numbers.

To rewrite the numbers after an intended change:
python -m tests.algorithms.test_algorithms
"""

import json

import jax
import numpy as np
import pytest

from openagent_jax import train_step
from openagent_jax.algorithms import sft
from tests import helpers, tiny

GOLDEN = helpers.GOLDEN / "one_step.json"


def test_sft_batch_holds_the_demonstrations(getkey):
    """Tokens and mask are the renderer's; the key does not matter. A demonstration that
    is longer than the row is counted, and not trained on."""
    tables, tasks = helpers.world("poi").tables, helpers.tasks("poi")
    episodes, _ = helpers.demonstrate(tables, tasks)
    tokens, valid, mask, length = helpers.write(tables, episodes)
    num_tokens = 200
    assert np.any(length > num_tokens) and np.any(length < num_tokens)
    algorithm = sft.sft(None, helpers.ENVIRONMENT, num_tokens)
    batch, metrics = jax.jit(algorithm.make_batch)(None, tables, None, tasks)
    fits = np.asarray(length <= num_tokens)
    assert metrics["train/num_cut"] == np.sum(~fits)
    for got, expected in (
        (batch.tokens, tokens),
        (batch.valid, valid),
        (batch.loss_mask, mask),
    ):
        np.testing.assert_array_equal(got[fits], expected[fits, :num_tokens])
    assert not np.any(batch.valid[~fits]) and not np.any(batch.loss_mask[~fits])
    np.testing.assert_array_equal(batch.positions, [np.arange(num_tokens)] * len(mask))
    assert not np.any(batch.loss_mask & ~batch.valid)
    np.testing.assert_array_equal(batch.divisor, np.sum(batch.loss_mask, axis=1))


@pytest.mark.parametrize("num_rows", [0, 64])
def test_a_cut_demonstration_has_no_loss(num_rows):
    """Packed or not. The policy would learn to stop in the middle of an episode."""
    tables, tasks = helpers.world("poi").tables, helpers.tasks("poi")
    tasks = jax.tree.map(lambda x: x[:64], tasks)
    algorithm = sft.sft(None, helpers.ENVIRONMENT, 200, num_rows)
    make = jax.jit(algorithm.make_batch)
    batch, metrics = make(None, tables, None, tasks)
    length = np.asarray(helpers.write(tables, helpers.demonstrate(tables, tasks)[0])[3])
    fits = length <= 200
    assert 0 < metrics["train/num_cut"] == np.sum(~fits) < 64
    assert metrics.get("train/num_dropped", 0) == 0
    # Each row that is trained on ends where its episode ends.
    end = helpers.lexicon("poi").end_token
    assert np.sum(batch.valid) == np.sum(length[fits])
    assert not np.any(batch.loss_mask & ~batch.valid)
    last = np.asarray(batch.valid) & ~np.pad(batch.valid[:, 1:], ((0, 0), (0, 1)))
    assert np.all(np.asarray(batch.tokens)[last] == end)


def one_step(name: str) -> dict[str, float]:
    step, state = tiny.trainer(tiny.config(name))
    assert state.key == train_step.root_key(0, "sft", stage=0)
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


def test_the_schedule_ends_with_the_last_update():
    """A step of two epochs makes two updates, and the last step still learns."""
    c = tiny.config(
        "sft", train__num_epochs=2, train__num_steps=2, optim__schedule="linear"
    )
    c = c.replace({"optim.end_factor": 0.0, "optim.warmup_steps": 0})
    assert c.num_updates == 4
    step, state = tiny.trainer(c)
    for _ in range(2):
        before = helpers.leaves(state.params["layers"])
        state, _ = step(state)
        after = helpers.leaves(state.params["layers"])
        assert any(np.any(x != y) for x, y in zip(before, after, strict=True))


def write_golden() -> None:
    numbers = {name: one_step(name) for name in ("sft", "paft")}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(numbers, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_golden()
