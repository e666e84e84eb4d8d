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
            "messages": messages(writer, episode, shown),
            "tools": writer.tools(episode.task),
            "task_id": f"{recipe.domain}/{split}/{recipe.seed}/{index}",
            "perturbation": recipe.perturbations[name] if name >= 0 else CLEAN,
            "solvable": bool(episode.state.solvable),
        }


def messages(
    writer: conversation.Writer, episode: Trajectory, shown: np.ndarray
) -> list[conversation.Message]:
    """What is said in an episode; calls have ids of their own.

    Args:
      writer: of the lexicon.
      episode: one, in NumPy.
      shown: what the agent is shown after each turn, as `render.observation` makes it.
    """
    said = writer.opening(episode.task)
    for turn in np.flatnonzero(episode.valid):
        action: Any = jax.tree.map(lambda x, turn=turn: x[turn], episode.action)
        message, answer = writer.message(episode.task, action), {}
        for call in message.get("tool_calls", ()):
            call["id"] = answer["tool_call_id"] = f"call{turn:05d}"
        said.append(message)
        if (told := writer.shown(shown[turn])) is not None:
            said.append({"role": told[0], **answer, "content": told[1]})
    return said
