"""What launch.bench measures and writes."""

import itertools
import json

import jax
import pytest

from launch.benchmarks import pretrained, timing, utilisation
from launch.common import backbones, build
from openagent_jax.models import transformer
from tests import tiny


def test_a_timer_keeps_the_first_calls_and_the_spread_apart(monkeypatch):
    clock = iter(itertools.accumulate([0, 20, 0, 1, 0, 3, 0, 2]))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    timer = timing.Timer(repeats=3)
    assert timer(lambda: None) == [2]
    assert timer.first_s == 20 and timer.spread == (3 - 1) / 2


def test_decoding_without_weights_of_transformers(capsys, monkeypatch):
    monkeypatch.setattr(pretrained, "ROWS", (1,))
    c = tiny.config("sft", init_from="nano", model__dtype="bfloat16")
    figures = pretrained.decode(c, backbones.backbone(c), timing.Timer(1))
    assert 'model.dtype="bfloat16" is not "float32"' in capsys.readouterr().out
    # As many bytes of weights and of keys and values for a token as on paper.
    config = backbones.backbone(c).config
    num = sum(x.size for x in jax.tree.leaves(transformer.shapes(config)))
    slots = pretrained.PROMPT_TOKENS + pretrained.NEW_TOKENS
    kv_size = config.num_layers * 2 * config.num_kv_heads * config.head_size
    read = 2 * (num + slots * kv_size) * figures["tokens_per_s_1"] / 1e9
    assert figures["read_share_1"] == pytest.approx(read / figures["read_gb_per_s"])


@pytest.mark.hours
def test_decoding_beside_transformers(monkeypatch):
    monkeypatch.setattr(pretrained, "ROWS", (1, 16))
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    c = tiny.config("sft", init_from="nano")
    figures = pretrained.decode(c, backbones.backbone(c), timing.Timer(1))
    assert figures["same_tokens_1"] == figures["same_tokens_16"] == 1
    # Which is faster depends on what else the machine does.
    assert min(figures["generate_tokens_per_s_1"], figures["tokens_per_s_1"]) > 0


def test_training_states_are_saved_and_restored():
    c = tiny.config("sft")
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    figures = pretrained.checkpoint(c, model, source, timing.Timer(2))
    num = sum(x.size for x in jax.tree.leaves(backbones.first_params(c, model)))
    # With the moments of all but the embedding, which is not trained.
    assert 4 * num < 1e9 * figures["gb"] < 3 * 4 * num
    assert figures["save_s"] > 0 and figures["restore_s"] > 0


@pytest.mark.slow
def test_utilisation_without_a_rival():
    c = tiny.config("sft")
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    figures = utilisation.measure(c, model, source, timing.Timer(2))
    assert 0 < figures["utilisation"] < 1
    assert "mfu" not in figures  # no vendor states it for a CPU


def test_the_file_says_where_the_figures_are_from(commands, tmp_path):
    file = tmp_path / "bench.json"
    done = commands(
        "bench", "--parts=load", "--repeats=2", "--config=configs/base.py",
        f"--json={file}",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(file.read_text())
    assert len(found["git_commit"]) == 40 and found["device_kind"] == "cpu"
    assert found["versions"]["jax"] == jax.__version__ and found["repeats"] == 2
    part = found["parts"]["load"]
    assert part["figures"]["seconds"] > 0 and part["first_calls_s"] > 0
    assert part["spread"] >= 0 and f"{part['figures']['peak_gb']:,.4g}" in done.out


def test_rows_that_do_not_make_up_groups(commands):
    done = commands("bench", "--parts=episodes", "--rows=12", "--group=8")
    assert done.code == 2
    assert done.err.endswith("--rows=12 is not a multiple of --group=8\n")
