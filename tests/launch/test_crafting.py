"""`sandbox.domain` selects another environment: every command plays crafting."""

import json
import os
import signal

import pytest

from openagent_jax import report
from tests.launch import test_serve_command as serving

pytestmark = pytest.mark.slow

CRAFTING = "--config.sandbox.domain=crafting"
TINY = serving.SMALL[1:]
FEW = ("--config.eval.num_tasks=8", "--config.eval.batch_size=8")
INTERNALIZATION = ["clean", "entity_shift", "impossible_goal", "missing_spare"]


def refuse(messages, tools):
    """An agent that refuses, and checks that it is offered what crafting has."""
    assert [x["function"]["name"] for x in tools] == ["get", "craft", "inventory"]
    return "Refuse"


def rows(workdir):
    return {row["scenario"]: row for row in report.load(workdir)["rows"]}


@pytest.mark.parametrize(
    "name", [pytest.param("sft", marks=pytest.mark.hours), "paft", "grpo"]
)
def test_train(commands, tmp_path, name):
    done = commands(
        "train",
        f"--config=configs/{name}.py:smoke",
        CRAFTING,
        *TINY,
        *FEW,
        f"--workdir={tmp_path}",
    )
    assert done.code == 0, done.err
    assert list(rows(tmp_path)) == INTERNALIZATION
    made = report.load(tmp_path)
    assert list(made["bounds"]) == ["oracle", "counting", "refuser", "asker"]
    for found in made["bounds"].values():
        assert list(found) == [r["scenario"] for r in made["rows"] if r["n"]]
    assert set(made["bounds"]["oracle"].values()) == {1.0}
    assert made["train_seed"] == 0 and made["scenario_set"] == "chosen"
    assert {len(r["outcomes"]) for r in made["rows"]} == {made["num_tasks"]}
    (kept,) = tmp_path.glob("eval/*/trajectories/impossible_goal.jsonl")
    for line in map(json.loads, kept.read_text("utf-8").splitlines()):
        assert not line["solvable"] and line["unsolvable"] and not line["plan"][:-1]


def test_agent(commands, tmp_path):
    done = commands(
        "evaluate",
        "--agent=python:tests.launch.test_crafting:refuse",
        "--suite=crafting",
        "--config=configs/base.py",
        "--config.eval.scenarios=internalization",
        *FEW,
        f"--workdir={tmp_path}",
    )
    assert done.code == 0, done.err
    found = {name: row["success"]["mean"] for name, row in rows(tmp_path).items()}
    assert found == {name: float(name == "impossible_goal") for name in INTERNALIZATION}


def test_serve(commands):
    pid = commands.start("serve", *serving.SMALL, CRAFTING, "--port=0", "--name=tiny")
    address = serving.wait_for_address(commands)
    tool = {"type": "function", "function": {"name": "get", "parameters": {}}}
    answer = serving.post(address, serving.ASKED | {"tools": [tool], "max_tokens": 20})
    assert answer["choices"][0]["message"]["role"] == "assistant"
    os.kill(pid, signal.SIGTERM)
    assert commands.wait().code == 0
