"""Convert messages and tools to the tokens of a prompt.

The messages of a conversation do not determine its tokens: the policy may have sampled
another segmentation, and it may have written more than OpenAI's messages show, such as
white space in a call. The tokens of conversations are therefore kept, and the prompt of
a request that continues a conversation starts with exactly the same tokens.
"""

import collections
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from openagent_jax.serving.surface_tokenizer import SurfaceTokenizer
from openagent_jax.text.messages import Message, Messages, Tools, for_template

MAX_KEPT = 4096  # conversations
# (messages, tools, whether the reply of the agent comes next) -> texts
Render = Callable[[Messages, Tools, bool], Sequence[str]]


class Conversations:
    """The tokens of recent conversations, all written in one style."""

    def __init__(
        self, render: Render, end: str, end_token: int, tokenize: SurfaceTokenizer
    ):
        """
        Args:
          render: writes messages and tools as texts.
          end: the text that ends a reply of the agent.
          end_token: the token of `end`.
          tokenize: converts the texts to tokens.
        """
        self._render, self._tokenize = render, tokenize
        self._end, self._end_token = end, end_token
        self._kept: collections.OrderedDict[bytes, np.ndarray] = (
            collections.OrderedDict()
        )

    def tokens(self, messages: Messages, tools: Tools) -> list[int]:
        """Return the prompt: the tokens of a conversation up to the next reply.

        Args:
          messages: the messages, as in a `protocol.ChatRequest`.
          tools: the tools that the agent may call.

        Raises:
          ValueError: the style cannot express the conversation.
        """
        keys = _keys(messages, tools)
        for num in range(len(messages), 0, -1):
            kept = self._kept.get(keys[num])
            if kept is not None:
                rest = self._rest(messages, num, tools)
                if rest is not None:
                    return kept.tolist() + self._tokenize(rest)
        return self._tokenize(self._render(for_template(messages), tools, True))

    def keep(
        self, messages: Messages, tools: Tools, prompt: list[int], reply: list[int]
    ) -> None:
        """Keep the tokens of a conversation for requests that continue it.

        Args:
          messages: the messages of the conversation; the last one is the reply.
          tools: the tools of the conversation.
          prompt: the tokens up to the reply.
          reply: the tokens of the reply; if it was cut, the end token is added.
        """
        key = _keys(messages, tools)[-1]
        end = [] if reply[-1:] == [self._end_token] else [self._end_token]
        self._kept[key] = np.array([*prompt, *reply, *end], np.int32)
        self._kept.move_to_end(key)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def _rest(self, messages: Messages, num: int, tools: Tools) -> list[str] | None:
        """Return the texts after the first `num` messages.

        The result is None if the template writes the first messages differently when
        others follow, so that the rest cannot be determined.
        """
        written = for_template(messages)
        before = "".join(self._render(written[:num], tools, False))
        before = before[: before.rfind(self._end) + len(self._end)]
        texts = self._render(written, tools, True)
        if not before.endswith(self._end) or not "".join(texts).startswith(before):
            return None
        rest, skip = [], len(before)
        for text in texts:
            if skip < len(text):
                rest.append(text[skip:])
            skip = max(skip - len(text), 0)
        return rest


def _keys(messages: Messages, tools: Tools) -> list[bytes]:
    """Return a hash of each prefix of a conversation, from that of the tools alone."""
    keys = [_digest(b"", tools)]
    for message in messages:
        parts = [message["role"], message.get("content") or "", _calls(message)]
        keys.append(_digest(keys[-1], parts))
    return keys


def _calls(message: Message) -> list[list[str]]:
    """Return the calls with their ids, which distinguish replies with equal text."""
    calls = message.get("tool_calls") or []
    return [[x["id"], x["function"]["name"], x["function"]["arguments"]] for x in calls]


def _digest(before: bytes, data: Any) -> bytes:
    text = json.dumps(data, ensure_ascii=True).encode()
    return hashlib.blake2b(before + text, digest_size=16).digest()
