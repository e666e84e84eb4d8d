"""Play an episode by exchanging messages with an agent.

The world is the same as in a rollout, and the same functions parse and grade replies.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8

from openagent_jax import expert
from openagent_jax.environments import transcript
from openagent_jax.environments.world import World
from openagent_jax.text import messages
from openagent_jax.types import (
    Action,
    Environment,
    Outcome,
    State,
    Tables,
    Task,
    TimeStep,
)

MAX_BYTES = 2048  # of a call or an answer; a longer one cannot be parsed


@partial(jax.jit, static_argnums=0)
def reset(
    environment: Environment, tables: Tables, task: Task
) -> tuple[State, Outcome]:
    """Return the first state of an episode, and its outcome so far."""
    state = environment.reset(tables, task)
    return state, environment.outcome(tables, task, state)


@partial(jax.jit, static_argnums=0)
def step(
    environment: Environment,
    tables: Tables,
    task: Task,
    state: State,
    text: UInt8[Array, "Z"],
    num_bytes: Int[Array, ""] | int,
) -> tuple[State, tuple[Action, TimeStep, Int[Array, "P"], Outcome]]:
    """Take the action that a text describes.

    Returns:
      The new state, and the results of the step: the action, the timestep, the pieces
      of text that the agent is shown, and the outcome so far.
    """
    action = environment.parse(tables, task, text, jnp.int32(num_bytes))
    state, timestep = environment.step(tables, task, state, action)
    pieces = environment.observe(tables, task, timestep.observation)
    outcome = environment.outcome(tables, task, state)
    return state, (action, timestep, pieces, outcome)


@partial(jax.jit, static_argnums=0)
def plan(
    environment: Environment, tables: Tables, task: Task, state: State
) -> tuple[Action, Bool[Array, "T"]]:
    """Return what the expert would do from a state, and which turns it takes."""
    episode = expert.demonstrate(environment, tables, task, state)
    return episode.action, episode.valid


class Player:
    """Begins episodes of one world."""

    def __init__(self, world: World):
        """
        Args:
          world: the world; its lexicon must have the compact style, in which replies
            are parsed.

        Raises:
          ValueError: the lexicon has the style of a chat template.
        """
        style = world.tables.lexicon.style
        if style.marks.call_open or style.code_is_parameter:
            raise ValueError(
                "agents: the lexicon of the world is not of the compact "
                "style, in which replies are parsed"
            )
        self.world = world

    def begin(self, task: Task) -> "Dialogue":
        """Return a new episode of a task, which is given in NumPy."""
        return Dialogue(self, task)


class Dialogue:
    """One episode; `messages` is the conversation that the agent has to continue.

    `tools` are those that it can call now: a tool that an error has named joins them.
    """

    def __init__(self, player: Player, task: Task):
        transcriber = player.world.transcriber
        self.tools = transcriber.tools(task)
        self.messages = transcriber.opening(task)
        self.finished = self.terminated = False
        # For each action: how it was understood, what was shown, and the rewards.
        self.actions: list[dict[str, Any]] = []
        self.results: list[str | None] = []
        self.rewards: dict[str, list[float]] = {}
        self._player, self._host_task = player, task
        self._task = jax.device_put(task)
        self._state, outcome = reset(
            player.world.environment, player.world.tables, self._task
        )
        self.outcome: Outcome = jax.device_get(outcome)

    def receive(self, reply: messages.Message, cut: bool = False) -> None:
        """Continue the episode with a reply of the agent.

        Each call in the reply is an action, and they are answered one by one; other
        text is then ignored. Without a call, the last line is an answer, a refusal or a
        question (see `text.reply_scan`). A reply that was cut off counts as malformed.

        Args:
          reply: a message in OpenAI's format.
          cut: whether the reply was cut off by a limit of tokens.
        """
        calls, content = messages.calls(reply), messages.content(reply)
        self.messages.append(messages.as_history(reply))
        if not calls:
            self._act("" if cut else messages.last_line(content), content)
        for call in calls:
            if not self.finished:
                self._act("" if cut else call.text, call.name, call.id)

    def plan(self) -> list[dict[str, Any]]:
        """Return what the expert would do from here; see `transcript.plan`."""
        if self.finished:
            return []
        world = self._player.world
        found = plan(world.environment, world.tables, self._task, self._state)
        actions = jax.device_get(found)
        return transcript.plan(world.transcriber, self._host_task, *actions)

    def close(self) -> None:
        """End the episode because the agent's context has no room for more."""
        self.finished = True

    def _act(self, text: str, written: str, call_id: str = "") -> None:
        """Take the action that a text describes, and append the answer.

        Args:
          text: the action; "" is malformed.
          written: what to record if `text` is "".
          call_id: the id of the call that is answered; "" if the reply has no call.
        """
        data = text.encode(errors="replace")
        row = np.zeros(MAX_BYTES, np.uint8)
        row[: len(data)] = np.frombuffer(data[:MAX_BYTES], np.uint8)
        player = self._player
        world = player.world
        self._state, found = step(
            world.environment, world.tables, self._task, self._state, row, len(data)
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
        if shown is None or self.finished:  # the agent reads nothing more
            self.results.append(None)
            return
        self.tools = world.transcriber.tools(self._host_task, self._state)
        role, content = shown
        self.results.append(content)
        answer = {"role": role, "content": content}
        if call_id:  # answers a call, even one that cannot be parsed
            answer = {"role": "tool", "tool_call_id": call_id, "content": content}
        self.messages.append(answer)
