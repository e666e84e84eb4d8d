"""An episode that goes on by messages: the same world, read and graded by the same
compiled functions as in a rollout."""

import jax
import numpy as np
from jaxtyping import Array, Int, UInt

from openagent_jax.sandbox import conversation, environment, parse, render
from openagent_jax.sandbox.lexicon import Lexicon
from openagent_jax.types import REFUSE, State, Task

MAX_BYTES = 2048  # of a call; a longer one cannot be read


class Dialogue:
    """One episode. `messages` is what the agent has to reply to."""

    def __init__(
        self,
        writer: conversation.Writer,
        lexicon: Lexicon,
        task: Task,
        max_turns: int,
    ):
        """
        Args:
          writer: of the lexicon.
          lexicon: in the compact style.
          task: one, in NumPy.
          max_turns: actions, after which an episode is over.
        """
        self.tools = writer.tools(task)
        self.messages = writer.opening(task)
        self.finished = self.success = self.refused = False
        self.num_calls = self.num_errors = 0
        self._writer, self._lexicon, self._max_turns = writer, lexicon, max_turns
        self._task = jax.device_put(task)
        self._state = _reset(lexicon, self._task)

    def hear(self, reply: conversation.Message, cut: bool = False) -> None:
        """Go on by a reply of the agent.

        Its calls are answered one by one, each as an action of its own; what stands
        beside them is talk. Without a call it is an answer, a refusal or a question by
        its last line (see `parse`). What was cut off by a limit cannot be read.

        Args:
          reply: a message in OpenAI's form.
          cut: it had come to a limit of tokens.
        """
        calls, said = conversation.calls(reply), conversation.content(reply)
        self.messages.append(conversation.repeated(reply))
        if not calls:
            self._act("" if cut else conversation.last_line(said))
        for call in calls:
            if not self.finished:
                self._act("" if cut else call.text, call.id)

    def close(self) -> None:
        """End it without success: the agent has no room for more."""
        self.finished = True

    def _act(self, text: str, call_id: str = "") -> None:
        data = text.encode(errors="replace")
        row = np.zeros(MAX_BYTES, np.uint8)
        row[: len(data)] = np.frombuffer(data[:MAX_BYTES], np.uint8)
        self._state, *seen = _step(
            self._lexicon, self._task, self._state, row, len(data), self._max_turns
        )
        kind, pieces, state = jax.device_get((*seen, self._state))
        self.finished, self.success = bool(state.finished), bool(state.success)
        self.num_calls, self.num_errors = int(state.num_calls), int(state.num_errors)
        self.refused |= bool(kind == REFUSE)
        shown = self._writer.shown(pieces)
        if shown is None or self.finished:
            return
        role, content = shown
        answer = {"role": role, "content": content}
        if call_id:  # an answer to a call, even to one that cannot be read
            answer = {"role": "tool", "tool_call_id": call_id, "content": content}
        self.messages.append(answer)


@jax.jit
def _reset(lexicon: Lexicon, task: Task) -> State:
    return environment.reset(lexicon, task)


@jax.jit
def _step(
    lexicon: Lexicon,
    task: Task,
    state: State,
    text: UInt[Array, "Z"],
    num_bytes: Int[Array, ""],
    max_turns: int,
) -> tuple[State, Int[Array, ""], Int[Array, "P"]]:
    """The state after a text, the kind of the action, and the pieces shown then."""
    action = parse.parse_bytes(lexicon, task, text, num_bytes)
    state, timestep = environment.step(lexicon, task, state, action, max_turns)
    pieces = render.observation(lexicon.style, task, timestep.observation)
    return state, action.kind, pieces
