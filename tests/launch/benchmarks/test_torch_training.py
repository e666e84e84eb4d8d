"""Training beside torch: both sides do the same, and the work is counted right."""

from types import SimpleNamespace

import numpy as np
import pytest

from launch.benchmarks import torch_training, training
from launch.common import backbones, build
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


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_losses_agree(changes):
    """In the first steps: AdamW moves a weight whose gradient is all rounding."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    c = tiny.config("sft", optim__learning_rate=5e-3, **changes)
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    batches = torch_training.first_batches(c, model, source)
    step, state, rival = torch_training.sides(c, model, source, batches)
    made_by_step, _ = build.trainer(c, model, source)
    _, first = made_by_step(tiny.copy(state))
    ours, theirs = [], []
    for i in range(2 * len(batches)):
        state, metrics = step(state)
        ours.append(float(metrics["train/loss"]))
        cut = i % 2 == 0  # columns of padding do not matter
        batch = batches[i % len(batches)]
        theirs.append(rival(*torch_training.arguments(batch, cut)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    np.testing.assert_allclose(ours[0], first["train/loss"], rtol=1e-6)
    # Both learn: they would also agree if neither updated its model.
    assert ours[len(batches)] < ours[0] * (1 - 1e-3)


@pytest.mark.parametrize(
    ("changes", "per_token", "per_loss_token"),
    [
        # A layer has 4 matrices [16 16] and 3 of [16 16]; the vocabulary has 6144.
        ({}, 6 * 7 * 256, 4 * 6144 * 16),
        ({"optim__train_embedding": True}, 6 * 7 * 256, 6 * 6144 * 16),
        # An adapter of rank 2 adds [16 2] and [2 16] to each matrix.
        ({"model__lora__rank": 2}, (4 * 256 + 6 * 64) * 7, 4 * 6144 * 16),
    ],
)
def test_flops_by_hand(changes, per_token, per_loss_token):
    c = tiny.config("sft", **changes)
    valid = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
    batch = SimpleNamespace(valid=valid, loss_mask=valid & (np.arange(4) > 0))
    config = backbones.backbone(c).config
    expected = 5 * per_token + 3 * per_loss_token + 6 * 16 * (9 + 4)
    assert torch_training.num_flops(c, config, [batch]) == expected


def test_without_torch(monkeypatch, capsys):
    def missing(*args):
        raise ImportError("No module named 'torch'")

    monkeypatch.setattr(torch_training, "compare", missing)
    made = tiny.config("sft"), None, None, None
    assert training.beside_torch(*made) == {}
    line = "No module named 'torch': pip install -e \".[hf,torch]\""
    assert capsys.readouterr().out == f"train  not compared with torch: {line}\n"
    monkeypatch.setattr(torch_training, "compare", lambda *args: {"ratio": 1.0})
    assert training.beside_torch(*made) == {"ratio": 1.0}
    assert not training.beside_torch(tiny.config("grpo"), None, None, None)
    assert 'algorithm.name="grpo" is not "sft"' in capsys.readouterr().out


def test_what_cannot_be_compared():
    assert torch_training.unlike(tiny.config("sft")) == ""
    reason = torch_training.unlike(tiny.config("grpo"))
    assert reason == 'algorithm.name="grpo" is not "sft"'
