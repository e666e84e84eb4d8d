"""The gold trajectories of TextCraft as conversations: `messages` and `tools`.

TextCraft (Prasad et al., arXiv:2311.05772) is to craft items from what one has, by
recipes of Minecraft. Its tasks and their solutions are data files of the package
`platoon-textcraft` (MIT); nothing else of it is used, so that its folder of them will
do, and pip may ignore that it asks for Python 3.12. Amounts and ingredients, a tuple
and an object there, are a number and a text here: arguments of the sandbox are plain.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openagent_jax.interop import packages
from openagent_jax.sandbox import chat, log_file

PACKAGE, MODULE = "platoon-textcraft", "platoon_textcraft"
FILES = {"train": "textcraft_train.jsonl", "test": "textcraft_val.jsonl"}
TOOL = chat.tool(
    "craft",
    "Craft an item from ingredients that you have, such as 4 cobblestone, 4 quartz",
    {"item": chat.STRING, "count": chat.INTEGER, "ingredients": chat.STRING},
)


def folder() -> Path:
    """Of the data files.

    Raises:
      ValueError: the package is not there.
    """
    remedy = (
        " (before Python 3.12 also --ignore-requires-python), or name the folder of "
        "its data files by --source"
    )
    return packages.data(MODULE, PACKAGE, remedy)


def conversations(source: Path, split: str) -> Iterator[dict[str, Any]]:
    """The tasks of a split, solved.

    Args:
      source: folder of the data files.
      split: "train" or "test".

    Raises:
      ValueError: there is no such file, or a line of it is not as it was.
    """
    file = source / FILES[split]
    if not file.is_file():
        raise ValueError(
            f"{source} has no {file.name}; the folder is {MODULE}/data of the package"
        )
    for number, task in log_file.lines(file):
        try:
            yield _conversation(task)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{file}: line {number} is not as it was: {error!r}"
            ) from None


def _conversation(task: Mapping[str, Any]) -> dict[str, Any]:
    about = task["misc"]
    request = f"{task['goal']}. I have {_amounts(about['initial_inventory'])}."
    messages = chat.opening(request)
    for turn, step in enumerate(about["gold_trajectory"]):
        item, count = step["target"]
        given = {"item": item, "count": int(count)}
        given["ingredients"] = _amounts(step["ingredients"])
        call_id = f"call{turn:05d}"
        said = chat.call(TOOL["function"]["name"], given)
        said["tool_calls"][0]["id"] = call_id
        made = json.dumps({"crafted": f"{step['result_count']} {item}"})
        messages.append(said)
        messages.append({"role": "tool", "tool_call_id": call_id, "content": made})
    messages.append({"role": "assistant", "content": "Answer: done"})
    return {"messages": messages, "tools": [TOOL], "task_id": task["id"]}


def _amounts(items: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {item}" for item, count in items.items())
