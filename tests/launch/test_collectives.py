"""What devices tell each other in a training step, read from the compiled program.

Each makes its own rows, so that loops hold no collective over the axes of a batch: a
shard does not wait for the episodes of another one.
"""

import collections
import importlib.util
import math
import re

import jax
import pytest

from launch.common import backbones, build, compiled_step, placement, progress, scoring
from launch.common.errors import UsageError
from launch.compilation import collectives, topology
from tests import tiny

present = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"), reason="needs pip install -e '.[tpu]'"
)
NUM_PARAMS = 8  # arrays that are split over "fsdp" in a model of `tiny`


def lowered(name, devices, data, fsdp, tensor, **changes):
    """The programs of a small config on a mesh, before they are compiled."""
    mesh = dict(mesh__data=data, mesh__fsdp=fsdp, mesh__tensor=tensor)
    c = tiny.config(name, **mesh, **changes)
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    traced = compiled_step.traced(
        c, model, source, compiled_step.abstract(c, model, source, devices)
    )
    return compiled_step.TracedStep(*(program.lower() for program in traced))


def counted(text, num):
    """Count the collectives of a program: `{(kind, whether in a loop): number}`."""
    found = collections.Counter()
    for x in collectives.read(text, {"data": num}):
        found[x.kind, x.in_loop] += x.number
    return found


def of_step(made, num=8):
    """Count the collectives of both programs; the first one only sums metrics."""
    first, update = (counted(x.compile().as_text(), num) for x in made)
    assert {kind for kind, _ in first} <= {"all-reduce"}
    return first + update


def check(found, num_models=1):
    """One gather and one reduction of each parameter, and sums of metrics."""
    most = num_models * NUM_PARAMS
    assert {kind for kind, _ in found} <= {"all-gather", "all-reduce", "reduce-scatter"}
    assert not any(in_loop for _, in_loop in found)
    assert 0 < found["all-gather", False] <= most
    # A compiler may reduce and then slice, or do several at once.
    assert found["reduce-scatter", False] <= most
    assert found["all-reduce", False] <= most + 10


def test_collectives_are_counted():
    """In loops, in what loops call, and elsewhere; with their axes and sizes."""
    text = """
%body (x: f32[2]) -> f32[2] {
  ROOT %a = f32[2] conditional(%p, %x, %x), branch_computations={%yes, %no}
}
%less (x: f32[2]) -> pred[] {
  %f = s32[]{:T(128)} constant(3)
  ROOT %g = pred[] compare(%i, %f), direction=LT
}
%yes (x: f32[2]) -> f32[2] {
  ROOT %b = (f32[2], /*index=1*/f32[4]) all-gather-start(%x), replica_groups=[2,2]<=[4]
}
%no (x: f32[2]) -> f32[2] {
  ROOT %c = f32[2] add(%x, %x), metadata={op_name="all-gather"}
}
%all-reduce-scatter.1 (x: f32[2]) -> f32[1] {
  %h = f32[2] all-reduce(%x), to_apply=%sum, replica_groups={{0,1},{2,3}}
  ROOT %i = f32[1] dynamic-slice(%h, %j), dynamic_slice_sizes={1}
}
ENTRY %main (x: f32[2]) -> f32[2] {
  %d = f32[2] all-reduce(%x), to_apply=%sum, replica_groups={{0,2},{1,3}}
  %k = f32[1] fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1
  ROOT %e = f32[2] while(%d), condition=%less, body=%body
}
"""
    found = collectives.read(text, {"data": 2, "fsdp": 2, "tensor": 1})
    gather, reduce, scatter = found
    assert gather == ("all-gather", ("fsdp",), True, 3, 1, 8.0)
    assert reduce == ("all-reduce", ("data",), False, 1, 1, 8.0)
    assert scatter == ("reduce-scatter", ("fsdp",), False, 1, 1, 4.0)


def test_loops_in_loops_and_branches():
    """Repeats of nested loops are multiplied, and one branch of several counts."""
    text = """
%less (x: f32[2]) -> pred[] {
  %f = s32[] constant(3)
  ROOT %g = pred[] compare(%i, %f), direction=LT
}
%until (x: f32[2]) -> pred[] {
  ROOT %g = pred[] compare(%i, %n), direction=LT
}
%inner (x: f32[2]) -> f32[2] {
  ROOT %a = f32[2] conditional(%p, %x, %x), branch_computations={%small, %large}
}
%outer (x: f32[2]) -> f32[2] {
  ROOT %b = f32[2] while(%x), condition=%less, body=%inner
}
%open (x: f32[2]) -> f32[2] {
  %c = f32[4] all-reduce(%x), to_apply=%sum, channel_id=1, replica_groups={{0,1}}
  ROOT %d = f32[2] while(%x), condition=%less, body=%within
}
%within (x: f32[2]) -> f32[2] {
  ROOT %e = f32[6] all-reduce(%x), to_apply=%sum, channel_id=2, replica_groups={{0,1}}
}
%small (x: f32[2]) -> f32[2] {
  ROOT %h = f32[8] all-gather(%x), replica_groups={{0,1}}
}
%large (x: f32[2]) -> f32[2] {
  ROOT %j = f32[16] all-gather(%x), replica_groups={{0,1}}
}
ENTRY %main (x: f32[2]) -> f32[2] {
  %k = f32[2] while(%x), condition=%less, body=%outer
  ROOT %l = f32[2] while(%k), condition=%until, body=%open
}
"""
    gather, reduce = collectives.read(text, {"data": 2})
    assert gather == ("all-gather", ("data",), True, 9, 1, 32.0)
    # Of one loop whose data decide how often it runs, and of a loop within it.
    assert reduce == ("all-reduce", ("data",), True, 0, 2, 40.0)


@pytest.mark.parametrize("changes", [{}, {"algorithm__num_rows": 8}])
def test_sft(changes):
    made = lowered("sft", jax.devices(), 4, 2, 1, **changes)
    check(of_step(made))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, num_models, changes",
    [
        ("paft", 1, {}),
        pytest.param("grpo", 1, {"grpo__oversample": 2}, marks=pytest.mark.hours),
        ("paft_grpo", 2, {"train__batch_size": 16, "surrogate__kl": 0.1}),
        pytest.param("ppo", 1, {}, marks=pytest.mark.hours),
    ],
)
def test_other_algorithms(name, num_models, changes):
    if name.startswith("paft"):
        changes = {"paft__perturbations": tiny.FEW, **changes}
    made = lowered(name, jax.devices(), 4, 2, 1, **changes)
    check(of_step(made), num_models)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sft", "grpo"])
def test_a_tensor_axis_waits_for_its_own_rows(name):
    """Its collectives are in the loops, and none of them joins different shards."""
    text = lowered(name, jax.devices(), 2, 2, 2).update.compile().as_text()
    found = counted(text, 8)
    assert {kind for kind, _ in found} <= {"all-gather", "all-reduce", "reduce-scatter"}
    assert found["all-gather", False] <= 2 * NUM_PARAMS
    assert found["all-reduce", True] > 0
    # What is split over "tensor" is never gathered: neither parameters nor gradients.
    sizes = {"data": 2, "fsdp": 2, "tensor": 2}
    gathers = [x for x in collectives.read(text, sizes) if x.kind == "all-gather"]
    assert {x.axes for x in gathers} == {("fsdp",)}
    bodies, num_sums = text.split("\n\n"), 0
    outside = [body for body in bodies if "ENTRY" in body]
    assert len(outside) == 1
    for body in bodies:
        for line in body.splitlines():
            if re.search(r" (all-gather|all-reduce)\(", line) and "while" in line:
                num_sums += 1
                groups = re.search(r"replica_groups=(\S+)", line)
                assert groups and groups[1].startswith(
                    ("{{0,1},{2,3},{4,5},{6,7}}", "[4,2]<=[8]")
                ), line
    assert num_sums > 0


def test_an_evaluation_uses_all_devices():
    """Also those that the run did not have, unless its parameters are split."""
    c = tiny.config("sft", mesh__data=2)
    assert placement.evaluation_mesh(c).devices.size == len(jax.devices()) == 8
    split = tiny.config("sft", mesh__data=1, mesh__fsdp=2)
    with pytest.raises(UsageError, match="does not fit 8 devices"):
        placement.evaluation_mesh(split)


@pytest.mark.slow
def test_devices_share_an_evaluation(tmp_path, monkeypatch, capsys):
    """Each plays some of the episodes, and all have the report of all of them."""
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    found = []
    for mesh in ((1, 1, 1), (2, 2, 2)):
        names = "mesh__data", "mesh__fsdp", "mesh__tensor"
        sizes = dict(zip(names, mesh, strict=True))
        c = tiny.config("sft", eval__temperature=1.0, eval__num_tasks=6, **sizes)
        devices = placement.mesh(c, jax.devices()[: math.prod(mesh)])
        model = backbones.backbone(c)
        placed = placement.shardings(model.config, devices)
        scorer = scoring.Scorer(c, model, c.seed, mesh=devices)
        found.append(scorer(backbones.first_params(c, model, placed), 0, tmp_path))
    assert found[0]["cost"]["completion_tokens"] > 100
    assert found[0] == found[1]
    assert capsys.readouterr().err.count("100%") == 2


@pytest.mark.slow
@present
@pytest.mark.parametrize("name", ["sft", pytest.param("grpo", marks=pytest.mark.hours)])
def test_a_tpu_pod(name):
    pod = topology.find("v5e:4x4")
    made = lowered(name, pod.devices, 8, 2, 1, train__batch_size=16)
    check(of_step(made, num=16))
