"""The compilation of a step for devices that are not here."""

import importlib.util
import itertools
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from launch.common import backbones, build, compiled_step
from launch.common.errors import UsageError
from launch.compilation import analytic, chips, flops, programs, report, topology
from launch.pages import compilation_table
from tests import pages, tiny

present = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"), reason="needs pip install -e '.[tpu]'"
)
# Still so large that parameters are most of what is sent.
SMALL = ("--config=configs/sft.py:smoke", "--config.init_from=random")
SMALL += ("--config.model.width=64", "--config.model.num_layers=1")


def test_operations_of_loops_count_in_full():
    weights, x = jnp.ones((8, 16, 16)), jnp.ones((32, 16))

    def loss(weights, x):
        x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)
        return jnp.sum(x**2)

    forward = 2 * 32 * 16 * 16 * 8
    assert flops.count(jax.make_jaxpr(loss)(weights, x)) == (forward, 0)
    gradient = jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(weights, x)
    assert flops.count(gradient) == (3 * forward, 0)


def test_loops_of_unknown_length_are_apart():
    def squared(x):
        return jax.lax.while_loop(lambda x: x[0, 0] < 3, lambda x: x @ x, x @ x)

    assert flops.count(jax.make_jaxpr(squared)(jnp.ones((4, 4)))) == (128, 128)


def test_of_branches_the_most_expensive_counts():
    def either(x):
        return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x)

    assert flops.count(jax.make_jaxpr(either)(jnp.ones((4, 4)))) == (256, 0)


@pytest.mark.parametrize("name", ["v5e", "v5e:", "v5e:4x", "v9:2x2", "v5e:0x4", ""])
def test_a_topology_that_is_none(name):
    with pytest.raises(
        UsageError, match=r'there is no ".*"; "local", or a chip \(v4, '
    ):
        chips.parse(name)


def test_a_shape_that_is_none(tmp_path):
    c = tiny.config("sft")
    model = backbones.backbone(c)
    with pytest.raises(
        UsageError, match='no file "nope", nor a shape; llama_8b, qwen_7b'
    ):
        topology.reshaped(c, model, "nope")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="--shape: .*model_type"):
        topology.reshaped(c, model, str(tmp_path / "config.json"))


def test_a_shape_has_no_weights_and_fits_nowhere_small():
    c = tiny.config("sft", mesh__data=1, mesh__fsdp=8)
    model = topology.reshaped(c, backbones.backbone(c), "llama_8b")
    source = build.world(c, model, "poi")
    arrays = compiled_step.abstract(c, model, source)
    held = programs.resident(arrays) | programs.transient(arrays)
    # Each device has the whole model while it is gathered, beside an eighth of it.
    num = sum(x.size for x in jax.tree.leaves(arrays.state.params))
    assert num == 8_030_261_248
    assert held["parameters"] == pytest.approx(4 * num / 8, rel=1e-3)
    assert held["gathered"] == held["gradients"] == pytest.approx(4 * num, rel=1e-3)
    target = topology.Target("x", jax.devices(), 16e9, None)
    lines = report.lacking(c, model, source, target, sum(held.values())).splitlines()
    assert lines[0].startswith("does not fit: it needs 7")
    assert any("--config.mesh.tensor=8: at least 15.5" in line for line in lines)
    with pytest.raises(UsageError, match="has no weights"):
        model.init(jax.random.key(0))


def test_the_step_of_a_small_config():
    """On the devices here, whose figures are those of `memory_analysis`."""
    c = tiny.config("sft", mesh__data=4, mesh__fsdp=2)
    model = backbones.backbone(c)
    source = build.world(c, model, "poi")
    arrays = compiled_step.abstract(c, model, source)
    target = topology.find("local")
    held = programs.resident(arrays)
    traced = programs.trace(c, model, source, arrays)
    made = programs.compile(traced, arrays)
    assert made[1].arguments > held["parameters"] + held["optimizer"]
    # Here, the compiler reduces the gradient and then slices it.
    axes = {x.kind: {*x.axes} for x in made[1].collectives if x.kind != "all-reduce"}
    assert axes == {"all-gather": {"fsdp"}}
    reduced = sum(x.sent for x in made[1].collectives if x.kind == "all-reduce")
    trained = {k: x for k, x in arrays.state.params.items() if k != "embed"}
    gradient = 4 * sum(x.size for x in jax.tree.leaves(trained))
    assert reduced == pytest.approx(7 / 4 * gradient, rel=0.02)  # a ring of 8
    gathered = sum(x.sent for x in made[1].collectives if x.kind == "all-gather")
    # All parameters but the norms, half of which the other device has.
    assert gathered == pytest.approx(held["parameters"], rel=0.01)
    expected = analytic.sent(c, model, arrays)
    assert expected - gathered == pytest.approx(5 / 4 * gradient, rel=0.05)
    assert made[1].flops > 0
    # A rollout does not read the state of the optimizer, and a batch of SFT not even
    # the parameters, but all of them share the memory.
    batch, update, played = made
    assert played.name == "evaluation" and played.open_flops > 0
    everything = sum(held.values())
    for program in batch, played:
        assert program.beside > 0.9 * held["optimizer"] > 0
        assert program.beside + program.arguments >= everything
    assert batch.beside > held["optimizer"] + 0.9 * held["parameters"]
    assert update.beside <= held["worlds"]  # which it does not read
    assert {*itertools.chain(*(x.axes for x in played.collectives))} <= {"data", "fsdp"}
    text = report.text(c, model, target, arrays, made)
    assert "parameters" in text and "left" in text and "collectives" in text
    figures = report.figures(c, model, target, arrays, made)
    assert figures["peak"] == programs.peak(made)


@present
def test_two_processes_compile_at_once():
    """A process keeps the compiler of TPUs, once loaded, until it ends."""
    topology.find("v5e:4x4")
    code = 'from launch.compilation import topology; topology.find("v5e:2x2")'
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.hours
@present
def test_the_command_for_a_pod(commands, tmp_path):
    """Of 16 chips, each sends its part of the gradients around a ring and back."""
    file = tmp_path / "figures.json"
    config = *SMALL, "--config.train.batch_size=16"
    done = commands("compile", *config, "--topology=v5e:4x4", f"--json={file}")
    assert done.code == 0, done.err
    assert done.out.startswith("sft_smoke on v5e:4x4: 16 chips (data 16, fsdp 1,")
    figures = json.loads(file.read_text())
    assert 0 < figures["peak"] < figures["limit"] == 16e9
    update = next(x for x in figures["programs"] if x["name"] == "update")
    sent = sum(x["sent"] for x in update["collectives"])
    moments = figures["memory"]["optimizer"]  # two for each parameter that is trained
    assert sent == pytest.approx(2 * 15 / 16 * moments / 2, rel=0.01)
    assert sent == pytest.approx(figures["sent_analytic"], rel=0.01)
    done = commands("compile", f"--table={tmp_path}")
    assert done.code == 0, done.err
    assert "| SFT, full fine-tuning | v5e:4x4 | data 16 | 16 x " in done.out


@pytest.mark.slow
def test_the_command_for_the_devices_here(commands, tmp_path):
    file = tmp_path / "figures.json"
    config = *SMALL, "--config.train.batch_size=2"
    done = commands("compile", *config, "--topology=local", f"--json={file}")
    assert done.code == 0, done.err
    assert " left\n" in done.out and "matmul, TFLOP" in done.out
    figures = json.loads(file.read_text())
    assert 0 < figures["peak"] < figures["limit"]
    done = commands("compile", *config, "--topology=v5e:nope")
    assert done.code == 2 and len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "name, kl, scored, parts",
    [("sft", 0.0, 0, 1), ("grpo", 0.0, 1 / 8, 1), ("grpo", 0.1, 1 + 1 / 8, 2)],
)
def test_what_an_update_sends(name, kl, scored, parts):
    changes = dict(mesh__data=2, mesh__fsdp=2, mesh__tensor=2, model__remat="full")
    changes |= dict(surrogate__kl=kl, train__num_minibatches=parts)
    c = tiny.config(name, **changes)
    model = topology.reshaped(c, backbones.backbone(c), "llama_8b")
    arrays = compiled_step.abstract(c, model, build.world(c, model, "poi"))
    num = 8_030_261_248
    trained = num - 128_256 * 4096  # without the embedding
    # Half of the numbers are on the other side of "tensor", in four bytes each.
    gathered, reduced, summed = num * 2 / 2, trained * 2 / 2, trained * 2 / 2
    activation = 4 * 4096 * c.num_rows / 4 * c.num_columns
    sums = 1 + 32 * 5 + scored * (1 + 32 * 2)  # the 1 is of embeddings
    reference = gathered if kl else 0
    expected = parts * (gathered + reduced + summed) + reference + sums * activation
    assert analytic.sent(c, model, arrays) == pytest.approx(expected, rel=1e-3)


def test_the_page_of_pods_has_the_stored_figures(monkeypatch):
    monkeypatch.chdir(pages.ROOT)
    table = "\n".join(compilation_table.lines(Path("docs/results/pods")))
    page = pages.page("pods.md")
    assert f"<!-- pods -->\n{table}\n<!-- end -->" in page
    assert "bound by matrix multiplications in every row" in page
    for path in Path("docs/results/pods").glob("*.json"):
        assert json.loads(path.read_text())["bound"] == "matmul"


def test_a_table_is_not_compiled(commands):
    done = commands("compile", "--table=docs/results/pods", "--topology=v5e:4x4")
    assert done.code == 2
    assert done.err.endswith("--topology is for compiling, not for --table\n")


@pytest.mark.parametrize("text", ["[]", "{}", "no", '{"parameters": 1, "mesh": {}}'])
def test_a_table_of_something_else(tmp_path, text):
    with pytest.raises(ValueError, match="no file of launch.compile --json"):
        [*compilation_table.lines(tmp_path)]
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match="a.json: not a file of launch.compile"):
        [*compilation_table.lines(tmp_path)]
