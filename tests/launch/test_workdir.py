"""A workdir has one run, in one world, and one process at a time trains in it."""

import dataclasses
import json
import os

import pytest

from launch.common import runs
from launch.common.errors import UsageError
from tests import helpers


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


def test_a_run_is_not_continued_in_another_world(tmp_path):
    """The config may name the same file, and the file may have changed."""
    world = helpers.world("poi")
    made = runs.world_digest(world)
    assert made == runs.world_digest(world)
    tasks = world.tables.source.tasks
    edited = dataclasses.replace(tasks, goal_answer=tasks.goal_answer + 1)
    tables = world.tables._replace(source=world.tables.source._replace(tasks=edited))
    style = dataclasses.replace(world.tables.lexicon, style_digest="another")
    for other in (tables, world.tables._replace(lexicon=style)):
        assert runs.world_digest(world._replace(tables=other)) != made
    runs.check_world(tmp_path, made)  # a new run
    file = tmp_path / "manifest.json"
    file.write_text("{}")  # of an earlier version
    runs.check_world(tmp_path, made)
    file.write_text(json.dumps({runs.WORLD: made}))
    runs.check_world(tmp_path, made)
    with pytest.raises(UsageError, match="has changed since it began.*init_from"):
        runs.check_world(tmp_path, "another")


def test_the_earlier_parts_of_a_run_are_kept(tmp_path):
    assert runs.earlier(tmp_path, ["git_commit"]) == []
    file, found = tmp_path / "manifest.json", []
    for commit in ("a", "b", "c"):
        made = {"git_commit": commit, "seed": 0, runs.EARLIER: found}
        file.write_text(json.dumps(made))
        found = runs.earlier(tmp_path, ["git_commit", "platform"])
    assert found == [{"git_commit": x} for x in "abc"]
