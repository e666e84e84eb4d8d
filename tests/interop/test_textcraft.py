"""TextCraft's gold trajectories as conversations, and as tasks."""

import json

import pytest

from openagent_jax.domains.limits import Limits
from openagent_jax.environments.logs import logs
from openagent_jax.interop import textcraft

TASK = {
    "goal": "Craft the following items: 4x stick",
    "id": "textcraft.train.7",
    "max_steps": 50,
    "misc": {
        "target_items": {"stick": 4},
        "initial_inventory": {"oak_log": 2, "coal": 1},
        "gold_trajectory": [
            {
                "action": "craft",
                "target": ["oak_planks", 4],
                "ingredients": {"oak_log": 1},
                "result_count": 4,
            },
            {
                "action": "craft",
                "target": ["stick", 4],
                "ingredients": {"oak_planks": 2},
                "result_count": 4,
            },
        ],
    },
}


@pytest.fixture
def source(tmp_path):
    other = json.loads(json.dumps(TASK).replace("textcraft.train.7", "textcraft.8"))
    lines = [json.dumps(task) for task in (TASK, other)]
    (tmp_path / "textcraft_train.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_conversations(source):
    one, other = textcraft.conversations(source, "train")
    assert one["task_id"] == "textcraft.train.7" and other["task_id"] == "textcraft.8"
    _, user, *turns = one["messages"]
    assert user["content"] == f"{TASK['goal']}. I have 2 oak_log, 1 coal."
    calls = [m["tool_calls"][0] for m in turns if "tool_calls" in m]
    assert [call["function"]["arguments"] for call in calls] == [
        {"item": "oak_planks", "count": 4, "ingredients": "1 oak_log"},
        {"item": "stick", "count": 4, "ingredients": "2 oak_planks"},
    ]
    results = [m for m in turns if m["role"] == "tool"]
    assert [m["content"] for m in results] == [
        '{"crafted": "4 oak_planks"}',
        '{"crafted": "4 stick"}',
    ]
    ids = [call["id"] for call in calls]
    assert len({*ids}) == 2 and ids == [m["tool_call_id"] for m in results]
    assert turns[-1] == {"role": "assistant", "content": "Answer: done"}
    assert one["tools"] == [textcraft.TOOL]


def test_the_conversations_become_tasks(source):
    file = source / "gold.jsonl"
    rows = textcraft.conversations(source, "train")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    limits = Limits(num_constants=8)
    log = logs.load(str(file), logs.max_sizes(limits) | {"sandbox.max_turns": 10})
    assert len(log.tasks) == 2 and "mapped 2 of 2" in log.summary()


def test_bad_sources(tmp_path, monkeypatch):
    lacks = "has no textcraft_train.jsonl; use the folder platoon_textcraft/data"
    with pytest.raises(ValueError, match=lacks):
        list(textcraft.conversations(tmp_path, "train"))
    (tmp_path / "textcraft_val.jsonl").write_text('{"id": "x"}\n')
    with pytest.raises(ValueError, match="line 1 has an unexpected format: KeyError"):
        list(textcraft.conversations(tmp_path, "test"))
    odd = {**TASK, "misc": {**TASK["misc"], "initial_inventory": ["coal"]}}
    for data, problem in (
        (json.dumps(odd).encode(), "line 1 has an unexpected format: AttributeError"),
        (b"{}\xff", "line 1: byte 2 is not UTF-8"),
        (b'{"id', "line 1, column 2: invalid JSON"),
    ):
        (tmp_path / "textcraft_val.jsonl").write_bytes(data)
        with pytest.raises(ValueError, match=f"textcraft_val.jsonl: {problem}"):
            list(textcraft.conversations(tmp_path, "test"))
    monkeypatch.setattr(textcraft, "MODULE", "no_such_package")
    with pytest.raises(ValueError, match="platoon-textcraft .* --ignore-req"):
        textcraft.folder()
