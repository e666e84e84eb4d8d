"""From messages and tools to tokens, and what was said stays as it was said.

The text of a conversation does not tell in which tokens the policy has spoken, nor all
that it has said: a call in OpenAI's form has no purpose. So the tokens of conversations
are kept, and one that goes on is read from its own.
"""

import collections
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from openagent_jax.sandbox.chat import Messages
from openagent_jax.serving.spell import Speller

MEMORY = 4096  # conversations whose tokens are kept
Tools = list[dict[str, Any]]
# (messages, tools, whether the agent is to speak next) -> texts, in pieces
Render = Callable[[Messages, Tools, bool], Sequence[str]]


class Conversations:
    """Tokens of conversations under one form.

    Args:
      render: the form.
      end: the mark that ends what the agent says, as a text.
      end_token: the same as a token.
      spell: tokens of texts.
    """

    def __init__(self, render: Render, end: str, end_token: int, spell: Speller):
        self._render, self._spell = render, spell
        self._end, self._end_token = end, end_token
        self._kept: collections.OrderedDict[bytes, np.ndarray] = (
            collections.OrderedDict()
        )

    def tokens(self, messages: Messages, tools: Tools) -> list[int]:
        """Of a conversation, up to where the agent speaks.

        Raises:
          ValueError: the form cannot write it.
        """
        keys = _keys(messages, tools)
        for num in range(len(messages), 0, -1):
            kept = self._kept.get(keys[num])
            if kept is not None:
                rest = self._behind(messages, num, tools)
                if rest is not None:
                    return kept.tolist() + self._spell(rest)
        return self._spell(self._render(_written(messages), tools, True))

    def keep(
        self, messages: Messages, tools: Tools, tokens: list[int], said: list[int]
    ) -> None:
        """Remember a conversation.

        Args:
          messages: with the reply, the last one.
          tools: that it has.
          tokens: up to where the agent speaks.
          said: the tokens of the reply; one that was cut has no end mark.
        """
        key = _keys(messages, tools)[-1]
        end = [] if said[-1:] == [self._end_token] else [self._end_token]
        self._kept[key] = np.array([*tokens, *said, *end], np.int32)
        self._kept.move_to_end(key)
        if len(self._kept) > MEMORY:
            self._kept.popitem(last=False)

    def _behind(self, messages: Messages, num: int, tools: Tools) -> list[str] | None:
        """What is written behind the first messages; None if that cannot be told."""
        written = _written(messages)
        before = "".join(self._render(written[:num], tools, False))
        before = before[: before.rfind(self._end) + len(self._end)]
        pieces = self._render(written, tools, True)
        if not before.endswith(self._end) or not "".join(pieces).startswith(before):
            return None
        rest, skip = [], len(before)
        for piece in pieces:
            if skip < len(piece):
                rest.append(piece[skip:])
            skip = max(skip - len(piece), 0)
        return rest


def _keys(messages: Messages, tools: Tools) -> list[bytes]:
    """Of each beginning of a conversation, that of the tools alone first."""
    keys = [_digest(b"", tools)]
    for message in messages:
        about = [message["role"], message.get("content") or "", _calls(message)]
        keys.append(_digest(keys[-1], about))
    return keys


def _calls(message: dict[str, Any]) -> list[list[str]]:
    """With their identities: those tell apart what reads the same."""
    calls = message.get("tool_calls") or []
    return [[x["id"], x["function"]["name"], x["function"]["arguments"]] for x in calls]


def _digest(before: bytes, data: Any) -> bytes:
    text = json.dumps(data, ensure_ascii=True).encode()
    return hashlib.blake2b(before + text, digest_size=16).digest()


def _written(messages: Messages) -> Messages:
    """As templates want them: arguments are objects, and a result has a name."""
    names, written = {}, []
    for message in messages:
        made = {"role": message["role"], "content": message.get("content") or ""}
        if calls := message.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in calls}
            made["tool_calls"] = [
                {
                    "type": "function",
                    "id": call["id"],
                    "function": {
                        "name": call["function"]["name"],
                        "arguments": _object(call["function"]["arguments"]),
                    },
                }
                for call in calls
            ]
        if message["role"] == "tool":
            found = message.get("tool_call_id", "")
            made |= {"tool_call_id": found, "name": names.get(found, "")}
        written.append(made)
    return written


def _object(arguments: str) -> Any:
    """What the text of arguments says; itself where that is no object."""
    try:
        found = json.loads(arguments)
    except ValueError:
        return arguments
    return found if isinstance(found, dict) else arguments
