"""What `launch.doctor` finds, and what it advises."""

import importlib.metadata
import os
import shutil

import jax
import pytest

from launch.checkup import disk, hardware, needs, software
from launch.compilation import topology
from openagent_jax import sharding
from tests import tiny


def advice(findings):
    return [line for line in findings if line.startswith("!")]


def test_a_sound_machine(tmp_path):
    c = tiny.config("sft", mesh__data=4, mesh__fsdp=2)
    for findings in (
        software.findings(),
        hardware.findings(),
        needs.findings(c),
        hardware.links(c),
    ):
        lines = list(findings)
        assert lines and not advice(lines), lines
    (line,) = disk.findings(tmp_path / "runs" / "new")  # it does not exist yet
    assert str(tmp_path) in line and "GB free" in line
    assert not [*tmp_path.iterdir()]


def test_packages_that_are_old_or_missing(monkeypatch):
    needed = ["jax>=999", "no-such-package>=1", 'absent>=1; extra == "test"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: needed)
    old, missing = advice(software.findings())
    assert old.startswith("! jax ") and old.endswith("pip install 'jax>=999'")
    assert missing == "! no-such-package is missing: pip install 'no-such-package>=1'"


def test_a_disk_that_is_full_or_slow(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**6))
    assert advice(disk.findings(tmp_path)) == [
        f"! disk: {tmp_path} has 0.0 GB free; make room"
    ]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**9))
    assert "keep fewer checkpoints" in advice(disk.findings(tmp_path))[0]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**12))
    monkeypatch.setattr(disk, "SLOW", 1e15)
    assert "save less often" in advice(disk.findings(tmp_path))[0]


def test_a_disk_that_cannot_be_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written to" in advice(disk.findings(tmp_path))[0]


def test_a_config_that_does_not_fit(monkeypatch):
    c = tiny.config("sft")
    target = topology.Target("local", jax.devices(), 1e5, None)
    monkeypatch.setattr(topology, "find", lambda _: target)
    (line,) = advice(needs.findings(c))
    assert "does not fit" in line and "mesh.fsdp" in line


@pytest.mark.parametrize(
    ("findings", "changes"),
    [(needs.findings, {"paft__alpha": 2.0}), (hardware.links, {"mesh__fsdp": 3})],
)
def test_a_config_that_is_wrong(findings, changes):
    (line,) = advice(findings(tiny.config("sft", **changes)))
    assert next(iter(changes)).replace("__", ".") in line


def test_devices_that_add_wrongly(monkeypatch):
    monkeypatch.setattr(sharding, "total", lambda mesh, axis: lambda x: x)
    (line,) = advice(hardware.links(tiny.config("sft", mesh__data=8)))
    assert "the sum is wrong" in line


def test_sums_over_an_axis():
    mesh = sharding.make_mesh(2, 2, 2)
    x = sharding.ones(mesh, 3)
    assert x.shape == (24,) and len(x.sharding.device_set) == 8
    for axis in sharding.MESH_AXES:
        assert (sharding.total(mesh, axis)(x) == 2).all()


@pytest.mark.slow
def test_the_command(commands, tmp_path):
    place = f"--workdir={tmp_path / 'run'}"
    done = commands("doctor", "--config=configs/sft.py", place)
    assert done.code == 0 and "memory: sft needs" in done.out, done.err
    done = commands("doctor", "--config=configs/sft.py", "--config.mesh.data=7", place)
    assert done.code == 1 and "! mesh: " in done.out
