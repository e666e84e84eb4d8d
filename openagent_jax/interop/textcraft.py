"""Convert the gold trajectories of TextCraft to conversations.

In TextCraft (Prasad et al., arXiv:2311.05772) the agent crafts items from those that it
has, by recipes of Minecraft. The tasks and their solutions are data files of the
package `platoon-textcraft` (MIT). Nothing else of the package is used, so the folder
with these files is enough, and pip may ignore that the package requires Python 3.12.
In the files, a target is a pair of item and count, and the ingredients are an object.
Here the arguments of a call must be scalars, so they become two texts and a number.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openagent_jax.environments.logs import log_file
from openagent_jax.interop import packages
from openagent_jax.text.messages import INTEGER, STRING, call, opening, tool

PACKAGE, MODULE = "platoon-textcraft", "platoon_textcraft"
FILES = {"train": "textcraft_train.jsonl", "test": "textcraft_val.jsonl"}
TOOL = tool(
    "craft",
    "Craft an item from ingredients that you have, such as 4 cobblestone, 4 quartz",
    {"item": STRING, "count": INTEGER, "ingredients": STRING},
)


def folder() -> Path:
    """Return the folder of the installed data files.

    Raises:
      ValueError: the package is not installed.
    """
    remedy = (
        " (before Python 3.12 also --ignore-requires-python), or name the folder of "
        "its data files with --source"
    )
    return packages.data(MODULE, PACKAGE, remedy)


def conversations(source: Path, split: str) -> Iterator[dict[str, Any]]:
    """Yield the solved tasks of a split as lines of a log.

    Args:
      source: the folder of the data files.
      split: "train" or "test".

    Raises:
      ValueError: there is no such file, or a line has an unexpected format.
    """
    file = source / FILES[split]
    if not file.is_file():
        raise ValueError(
            f"{source} has no {file.name}; use the folder {MODULE}/data of the package"
        )
    for number, task in log_file.lines(file):
        try:
            yield _conversation(task)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"line {number} has an unexpected format: {error!r}"
            raise ValueError(f"{file}: {problem}") from None


def _conversation(task: Mapping[str, Any]) -> dict[str, Any]:
    misc = task["misc"]
    request = f"{task['goal']}. I have {_amounts(misc['initial_inventory'])}."
    messages = opening(request)
    for turn, step in enumerate(misc["gold_trajectory"]):
        item, count = step["target"]
        arguments = {"item": item, "count": int(count)}
        arguments["ingredients"] = _amounts(step["ingredients"])
        call_id = f"call{turn:05d}"
        message = call(TOOL["function"]["name"], arguments)
        message["tool_calls"][0]["id"] = call_id
        result = json.dumps({"crafted": f"{step['result_count']} {item}"})
        messages.append(message)
        messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
    messages.append({"role": "assistant", "content": "Answer: done"})
    return {"messages": messages, "tools": [TOOL], "task_id": task["id"]}


def _amounts(items: Mapping[str, int]) -> str:
    """Format amounts of items as in `2 oak_log, 1 coal`."""
    return ", ".join(f"{count} {item}" for item, count in items.items())
