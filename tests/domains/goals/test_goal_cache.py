"""Sampled goals in files: the same goals, and never those of another domain."""

import dataclasses
import os
from typing import Any

import pytest

from openagent_jax.domains.goals import goal_cache, goal_sampling
from tests.domains import aquarium

SPEC = aquarium.spec()
LIMITS = dataclasses.replace(aquarium.LIMITS, conditions=True)
NUM = 60


def refuse(*arguments):
    raise AssertionError(f"sampled again: {arguments[2:]}")


@pytest.fixture(scope="module")
def goals():
    found = goal_sampling.sample_goals(SPEC, LIMITS, NUM)
    assert any(goal.conditions for goal in found)
    return found


def get(folder, sample, spec=SPEC, limits=LIMITS, num=NUM, seed=0):
    return goal_cache.remembered(str(folder), sample, spec, limits, num, seed)


def test_goals_are_sampled_once(tmp_path, goals):
    assert get(tmp_path, lambda *_: goals) == goals
    assert get(tmp_path, refuse) == goals
    cached = goal_sampling.with_goals(SPEC, LIMITS, NUM, cache=str(tmp_path))
    assert cached.goals == SPEC.goals + goals
    assert len(list(tmp_path.rglob("*"))) == 2  # a folder and a file


def test_everything_that_goals_depend_on_counts(tmp_path, goals, monkeypatch):
    assert get(tmp_path, lambda *_: goals) == goals
    tools = dataclasses.replace(SPEC.tools[0], description="another one")
    others: tuple[dict[str, Any], ...] = (
        {"spec": dataclasses.replace(SPEC, tools=(tools, *SPEC.tools[1:]))},
        {"limits": dataclasses.replace(LIMITS, num_steps=4)},
        {"num": NUM + 1},
        {"seed": 1},
    )
    for other in others:
        with pytest.raises(AssertionError, match="sampled again"):
            get(tmp_path, refuse, **other)
    monkeypatch.setattr(goal_cache, "_sources", lambda: b"another version")
    with pytest.raises(AssertionError, match="sampled again"):
        get(tmp_path, refuse)


def test_a_damaged_file_is_replaced(tmp_path, goals):
    get(tmp_path, lambda *_: goals)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    whole = file.read_bytes()
    for damaged in (whole[:-20], b"", whole[:30] + b"\0" + whole[31:]):
        file.write_bytes(damaged)
        assert get(tmp_path, lambda *_: goals) == goals
        assert file.read_bytes() == whole


def test_without_a_folder(tmp_path, goals, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the folder of "" if it were taken for a path
    for num, folder in ((NUM, None), (NUM, ""), (0, str(tmp_path))):
        made = goal_cache.remembered(folder, lambda *_: goals, SPEC, LIMITS, num, 0)
        assert made == goals
    assert not list(tmp_path.iterdir())
    file = tmp_path / "file"
    file.write_text("no folder")
    assert get(file, lambda *_: goals) == goals


def test_a_full_disk(tmp_path, goals, monkeypatch):
    def full(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert get(tmp_path, lambda *_: goals) == goals
    assert [path.name for path in tmp_path.rglob("*")] == ["goals"]


def test_a_folder_in_cloud_storage(tmp_path, goals, monkeypatch):
    """It is no folder here."""
    monkeypatch.chdir(tmp_path)
    assert get("gs://bucket/cache", lambda *_: goals) == goals
    assert not list(tmp_path.iterdir())
