"""Training beside torch: both sides do the same, and the work is counted right."""

from types import SimpleNamespace

import numpy as np
import pytest

from launch.benchmarks import torch_training, training, utilisation
from launch.common import backbones, build, compiled_step
from tests import tiny

CHANGES = {
    "all": {"optim__train_embedding": True, "optim__weight_decay": 0.1},
    "micro-batches": {
        "train__batch_size": 16,  # half of them for 8 devices
        "train__num_micro_batches": 2,
        "model__tied": False,
    },
    "adapters": {"model__lora__rank": 2, "model__num_layers": 2},
}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            changes,
            marks=pytest.mark.slow if name == "all" else pytest.mark.hours,
            id=name,
        )
        for name, changes in CHANGES.items()
    ],
)
def test_losses_agree(changes):
    """In the first steps: AdamW moves a weight whose gradient is all rounding."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    c = tiny.config("sft", optim__learning_rate=5e-3, **changes)
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    batches = utilisation.first_batches(c, model, source)
    step, state, rival = torch_training.sides(c, model, source, batches)
    start, ours, theirs = tiny.copy(state), [], []
    for i in range(2 * len(batches)):
        state, metrics = step(state)
        ours.append(float(metrics["train/loss"]))
        cut = i % 2 == 0  # columns of padding do not matter
        batch = batches[i % len(batches)]
        theirs.append(rival(*torch_training.arguments(batch, cut)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    # Both learn: they would also agree if neither updated its model.
    assert ours[len(batches)] < ours[0] * (1 - 1e-3)
    if changes == CHANGES["all"]:  # and they are given what a run trains on
        made_by_step, _ = compiled_step.trainer(c, model, source)
        _, first = made_by_step(start)
        np.testing.assert_allclose(ours[0], first["train/loss"], rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "per_token", "per_loss_token"),
    [
        # A layer has 4 matrices [16 16] and 3 of [16 16]; the vocabulary has 12575.
        ({}, 6 * 7 * 256, 4 * 12575 * 16),
        ({"optim__train_embedding": True}, 6 * 7 * 256, 6 * 12575 * 16),
        # An adapter of rank 2 adds [16 2] and [2 16] to each matrix.
        ({"model__lora__rank": 2}, (4 * 256 + 6 * 64) * 7, 4 * 12575 * 16),
    ],
)
def test_flops_by_hand(changes, per_token, per_loss_token):
    c = tiny.config("sft", **changes)
    valid = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
    batch = SimpleNamespace(
        valid=valid,
        segments=valid.astype(int),
        loss_mask=valid & (np.arange(4) > 0),
    )
    config = backbones.backbone(c).config
    expected = 5 * per_token + 3 * per_loss_token + 6 * 16 * (9 + 4)
    assert utilisation.num_flops(c, config, [batch]) == expected
    # Of two texts in a row, each attends to itself alone.
    batch.segments = np.array([[1, 1, 2, 0], [1, 1, 0, 0]])
    expected += 6 * 16 * (4 + 1 - 9)
    assert utilisation.num_flops(c, config, [batch]) == expected


def test_without_torch(monkeypatch, capsys):
    """The speed of our side is measured alone."""

    def missing(*args):
        raise ImportError("No module named 'torch'")

    alone = {"utilisation": 0.5}
    monkeypatch.setattr(utilisation, "measure", lambda *args: alone)
    monkeypatch.setattr(torch_training, "compare", missing)
    assert training.fed(tiny.config("sft"), None, None, None) == alone
    line = "No module named 'torch': pip install -e \".[hf,torch]\""
    assert capsys.readouterr().out == f"train  not compared with torch: {line}\n"
    monkeypatch.setattr(torch_training, "compare", lambda *args: {"ratio": 1.0})
    assert training.fed(tiny.config("sft"), None, None, None) == {"ratio": 1.0}
    c = tiny.config("sft", model__dtype="bfloat16")
    assert training.fed(c, None, None, None) == alone
    assert 'model.dtype="bfloat16" is not "float32"' in capsys.readouterr().out


def test_what_cannot_be_compared():
    assert torch_training.unlike(tiny.config("sft")) == ""
    reason = torch_training.unlike(tiny.config("grpo"))
    assert reason == 'algorithm.name="grpo" is not "sft"'
