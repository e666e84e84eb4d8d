"""A long run that is killed again and again ends as if nothing had happened.

    OPENAGENT_SOAK_STEPS=16000 python -m pytest -m hours tests/launch/test_soak.py

This trains with `configs/paft.py` for two hours on 2 CPU cores, and then once more with
interruptions. The disk is a `tmpfs`, which only root can mount.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

NUM_STEPS = int(os.environ.get("OPENAGENT_SOAK_STEPS", 1_000))
NUM_KILLS, FULL, TRUNCATED = 20, 7, 13  # and after which of them the disk breaks
DISK = "256m"


@pytest.mark.hours
def test_a_run_that_is_killed_twenty_times(tmp_path):
    whole, disk = tmp_path / "whole", tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", disk]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("only root can mount a disk")
    process = None
    try:
        begin = time.monotonic()
        process = start(whole, tmp_path)
        assert process.wait() == 0
        seconds = time.monotonic() - begin
        workdir, draw = disk / "run", random.Random(0)
        for i in range(NUM_KILLS):
            process = start(workdir, tmp_path)
            # A start takes 20 s, so that a kill may come before its end.
            longest = 40 + 1.5 * seconds / NUM_KILLS
            near = last_step(workdir) > 0.9 * NUM_STEPS
            time.sleep(draw.uniform(1, 15 if near else longest))
            assert process.poll() is None, "it has ended too early"
            process.kill()
            process.wait()
            if i == FULL:
                fill_the_disk(disk, workdir, tmp_path)
            if i == TRUNCATED:
                truncate(workdir)
        assert start(workdir, tmp_path).wait() == 0
        assert losses(workdir) == losses(whole)
        assert digests(workdir) == digests(whole)
    finally:
        if process:
            process.kill()
            process.wait()
        subprocess.run(["umount", disk], check=True)


def start(workdir, tmp_path, **how):
    command = [sys.executable, "-m", "launch.train", "--config=configs/paft.py"]
    command += [f"--workdir={workdir}", f"--config.train.num_steps={NUM_STEPS}"]
    command += ["--config.train.log_every=1", "--config.checkpoint.every=25"]
    command += ["--config.eval.scenarios=()", "--config.eval.num_tasks=1"]
    command += ["--config.eval.keep=0", f"--config.compile_cache={tmp_path}/cache"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True, **how)


def fill_the_disk(disk, workdir, tmp_path):
    """The run ends with one line, and loses nothing that was saved."""
    before, filler = last_step(workdir), disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(bytes(2**16)):
                pass
        except OSError:
            pass
    process = start(workdir, tmp_path, stderr=subprocess.PIPE)
    try:
        _, err = process.communicate(timeout=600)
    finally:
        process.kill()
    lines = [x for x in err.splitlines() if x.startswith("train.py: ")]
    assert process.returncode == 1 and len(lines) == 1, err
    assert "No space left" in lines[0]
    filler.unlink()
    assert last_step(workdir) == before


def truncate(workdir):
    """Cut the largest file of the last checkpoint in half."""
    folder = workdir / "checkpoints" / str(last_step(workdir))
    files = [x for x in folder.rglob("*") if x.is_file()]
    largest = max(files, key=lambda file: file.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


def last_step(workdir: Path) -> int:
    names = [x.name for x in workdir.glob("checkpoints/*")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def losses(workdir):
    """The metrics of each step, without those of time."""
    rows = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [
        {key: value for key, value in row.items() if not key.startswith("perf/")}
        for row in rows
    ]


def digests(workdir):
    """The SHA-256 of every array of the last state."""
    folder = workdir / "checkpoints" / str(NUM_STEPS)
    (record,) = folder.glob("record/*")
    return json.loads(record.read_text())["sha256s"]
