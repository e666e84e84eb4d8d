"""The oracle's demonstrations as conversations: `messages` and `tools`, as trainers and
chat APIs write them. They are those of `demonstrations`, task for task."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from openagent_jax.data import demonstrations
from openagent_jax.data.demonstrations import CLEAN, Recipe, Record
from openagent_jax.sandbox import conversation, render
from openagent_jax.types import Trajectory


def conversations(recipe: Recipe, split: str, num: int) -> Iterator[Record]:
    """The tasks 0 to num - 1. All have the same keys, and plain JSON in them.

    Args:
      recipe: its lexicon is of the compact style.
      split: of the tasks.
      num: how many.

    Raises:
      ValueError: the lexicon is of another style.
    """
    writer = conversation.Writer(recipe.lexicon)
    play = demonstrations.player(recipe, split)

    def one(index, noisy):
        episode, name = play(index, noisy)
        show = partial(render.observation, recipe.lexicon.style, episode.task)
        return episode, jax.vmap(show)(episode.result), name

    make = jax.jit(jax.vmap(one))
    for index, played in enumerate(demonstrations.made(make, recipe.alpha, num)):
        episode, shown, name = played
        yield {
            "messages": _messages(writer, episode, shown),
            "tools": writer.tools(episode.task),
            "task_id": f"{recipe.domain}/{split}/{recipe.seed}/{index}",
            "perturbation": recipe.perturbations[name] if name >= 0 else CLEAN,
            "solvable": bool(episode.state.solvable),
        }


def _messages(
    writer: conversation.Writer, episode: Trajectory, shown: np.ndarray
) -> list[conversation.Message]:
    """Each has the keys that it needs, and its calls have ids of their own."""
    messages = writer.opening(episode.task)
    for turn in np.flatnonzero(episode.valid):
        action: Any = jax.tree.map(lambda x, turn=turn: x[turn], episode.action)
        said, call_id = writer.message(episode.task, action), f"call{turn:05d}"
        for call in said.get("tool_calls", ()):
            call["id"] = call_id
        messages.append(said)
        if (told := writer.shown(shown[turn])) is not None:
            answer = {"role": told[0], "content": told[1]}
            if said.get("tool_calls"):
                answer["tool_call_id"] = call_id
            messages.append(answer)
    return messages
