"""Write the episodes of crafting worlds as messages and tools of OpenAI's protocol.

This runs on the host: tasks are in NumPy here, and texts are in the compact style.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Int

from openagent_jax.environments.crafting import render, types
from openagent_jax.environments.crafting.types import Action, Result, State, Task
from openagent_jax.environments.crafting.words import ITEM, TOOLS, Words
from openagent_jax.environments.world import Message
from openagent_jax.text import chat, reply_scan, style
from openagent_jax.text.symbols import Symbols


class Transcriber:
    """Writes the episodes of crafting worlds as messages and tools.

    See `environments.world.Transcriber`.
    """

    def __init__(self, symbols: Symbols, words: Words):
        """
        Args:
          symbols: the surface forms; the texts of the compact style are added to them.
          words: symbols of the words that are the same in all tasks.
        """
        compact = style.compact(max_args=1)
        self._style = style.mapped(compact, symbols.one)
        self._texts, self._words = symbols.texts, words

    def tools(self, task: Task, state: State | None = None) -> list[dict[str, Any]]:
        """Return the documents, in OpenAI's function format; they never change."""
        del task, state
        return [
            chat.tool(name, description, {ITEM: chat.STRING} if takes_item else {})
            for name, description, takes_item in TOOLS
        ]

    def opening(self, task: Task) -> list[Message]:
        """Return the messages before the first message of the agent."""
        request = render.request(self._style, self._words, task)
        return chat.opening(self._join(np.asarray(request)))

    def message(self, task: Task, action: Action) -> Message:
        """Return an action as a message; one without a known text has no content."""
        tool, item = int(action.call.tool), int(action.call.item)
        if action.kind == reply_scan.CALL:
            if (
                tool < 0 or item < types.NO_ITEM
            ):  # what was written is not in the action
                return {"role": "assistant", "content": ""}
            name, _, _ = TOOLS[tool]
            given = {ITEM: self._texts[task.items.name[item]]} if item >= 0 else {}
            return chat.call(name, given)
        content = {
            reply_scan.ANSWER: style.ANSWER + self._texts[max(int(action.value), 0)],
            reply_scan.REFUSE: style.REFUSE,
            reply_scan.ASK: style.ASK,
        }
        return {"role": "assistant", "content": content.get(int(action.kind), "")}

    def observe(self, task: Task, observation: Result) -> Int[Array, "P"]:
        """Return the pieces of the text shown after an action."""
        return render.observation(self._style, self._words, task, observation)

    def shown(self, pieces: Sequence[int]) -> tuple[str, str] | None:
        """Return role and content for the result of `observe`; None if it is empty."""
        if not pieces[0]:
            return None
        role = "user" if pieces[0] == self._style.reply_open else "tool"
        return role, self._join(pieces[1:-1])

    def goal(self, task: Task) -> str:
        """Return the depth of the goal: the longest chain of recipes to it."""
        depth = np.zeros(types.NUM_ITEMS, int)
        ingredients = np.asarray(task.items.ingredients)
        has_recipe = ingredients[:, 0] >= 0
        for _ in range(types.NUM_ITEMS):  # recipes may form a cycle
            below = np.where(ingredients >= 0, depth[ingredients], 0)
            depth = np.where(has_recipe, 1 + below.max(axis=1), 0)
        return f"depth {min(int(depth[task.goal]), types.NUM_ITEMS)}"

    def _join(self, pieces: Any) -> str:
        return "".join(self._texts[int(symbol)] for symbol in pieces)
