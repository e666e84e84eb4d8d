"""An episode that goes on by messages: the same world, parsed and graded by the same
compiled functions as in a rollout."""

from typing import Any

import jax
import numpy as np

from openagent_jax.environments import transcript
from openagent_jax.environments.world import World
from openagent_jax.text import messages
from openagent_jax.types import Outcome, Task

MAX_BYTES = 2048  # of a call; a longer one cannot be parsed


class Player:
    """Begins episodes of one world; its functions are compiled once."""

    def __init__(self, world: World):
        """
        Args:
          world: in the compact style, in which replies are parsed.

        Raises:
          ValueError: the world is in the style of a chat template.
        """
        style, environment = world.tables.lexicon.style, world.environment
        if style.marks.call_open or style.code_is_parameter:
            raise ValueError(
                "agents: the lexicon of the world is not of the compact "
                "style, in which replies are parsed"
            )
        self.world = world

        @jax.jit
        def reset(tables, task):
            state = environment.reset(tables, task)
            return state, environment.outcome(tables, task, state)

        @jax.jit
        def step(tables, task, state, text, num_bytes):
            action = environment.parse(tables, task, text, num_bytes)
            state, timestep = environment.step(tables, task, state, action)
            pieces = environment.observe(tables, task, timestep.observation)
            outcome = environment.outcome(tables, task, state)
            return state, (action, timestep, pieces, outcome)

        self.reset, self.step = reset, step

    def begin(self, task: Task) -> "Dialogue":
        """A new episode of a task, given in NumPy."""
        return Dialogue(self, task)


class Dialogue:
    """One episode. `messages` is what the agent has to reply to."""

    def __init__(self, player: Player, task: Task):
        transcriber = player.world.transcriber
        self.tools = transcriber.tools(task)
        self.messages = transcriber.opening(task)
        self.finished = self.terminated = False
        # Of each action: what was understood, what was shown, what was paid.
        self.actions: list[dict[str, Any]] = []
        self.results: list[str | None] = []
        self.rewards: dict[str, list[float]] = {}
        self._player, self._host_task = player, task
        self._task = jax.device_put(task)
        self._state, outcome = player.reset(player.world.tables, self._task)
        self.outcome: Outcome = jax.device_get(outcome)

    def hear(self, reply: messages.Message, cut: bool = False) -> None:
        """Go on by a reply of the agent.

        Its calls are answered one by one, each as an action of its own; text beside
        them is ignored. Without a call the last line is an answer, a refusal or a
        question (see `text.reply_scan`). A reply that a limit has cut off cannot be
        parsed.

        Args:
          reply: a message in OpenAI's format.
          cut: the reply had come to a limit of tokens.
        """
        calls, content = messages.calls(reply), messages.content(reply)
        self.messages.append(messages.as_history(reply))
        if not calls:
            self._act("" if cut else messages.last_line(content), content)
        for call in calls:
            if not self.finished:
                self._act("" if cut else call.text, call.name, call.id)

    def close(self) -> None:
        """End it without success: the agent has no room for more."""
        self.finished = True

    def _act(self, text: str, written: str, call_id: str = "") -> None:
        """Do what a text says; `written` is recorded where it says nothing."""
        data = text.encode(errors="replace")
        row = np.zeros(MAX_BYTES, np.uint8)
        row[: len(data)] = np.frombuffer(data[:MAX_BYTES], np.uint8)
        player = self._player
        world = player.world
        self._state, found = player.step(
            world.tables, self._task, self._state, row, len(data)
        )
        action, timestep, pieces, self.outcome = jax.device_get(found)
        self.terminated |= bool(timestep.terminated)
        self.finished = self.terminated or bool(timestep.truncated)
        message = world.transcriber.message(self._host_task, action)
        written = (text or written)[: messages.MAX_CHARS]
        message = transcript.as_written(message, written)
        self.actions.append(transcript.described(message))
        for name, paid in timestep.reward.items():
            self.rewards.setdefault(name, []).append(round(float(paid), 6))
        shown = world.transcriber.shown(pieces)
        if shown is None or self.finished:  # behind its end nothing is read
            self.results.append(None)
            return
        role, content = shown
        self.results.append(content)
        answer = {"role": role, "content": content}
        if call_id:  # an answer to a call, even to one that cannot be parsed
            answer = {"role": "tool", "tool_call_id": call_id, "content": content}
        self.messages.append(answer)
