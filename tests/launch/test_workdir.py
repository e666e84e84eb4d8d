"""One run at a time trains in a workdir."""

import os

import pytest

from launch.common import runs
from launch.common.errors import UsageError


def test_a_workdir_is_locked(tmp_path):
    folder = tmp_path / "run"
    mine = rf"in use by process {os.getpid()} on .*; wait for it, or use another --work"
    with runs.lock(folder):
        with pytest.raises(UsageError, match=mine), runs.lock(folder):
            pass
    with runs.lock(folder):
        pass


def test_a_second_run_is_refused(commands, tmp_path):
    """Before it has made anything."""
    folder = tmp_path / "run"
    with runs.lock(folder):
        done = commands("train", "--config=configs/sft.py:smoke", f"--workdir={folder}")
    assert done.code == 2 and done.err.startswith(f"train.py: {folder} is in use by ")
    assert len(done.err.splitlines()) == 1 and [*folder.iterdir()] == [folder / "lock"]
