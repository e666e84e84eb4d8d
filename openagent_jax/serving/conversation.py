"""Turn messages and tools into the tokens of a prompt.

The text of a conversation does not determine its tokens: the policy may have sampled
another segmentation, and it may have written more than OpenAI's messages show (a call
has no purpose there). So the tokens of conversations are kept, and a request that
continues one of them starts with exactly the tokens that it had.
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
          render: writes messages and tools as texts, which are tokenized one by one.
          end: the text that ends what the agent writes.
          end_token: the same as a token.
          tokenize: from texts to tokens.
        """
        self._render, self._tokenize = render, tokenize
        self._end, self._end_token = end, end_token
        self._kept: collections.OrderedDict[bytes, np.ndarray] = (
            collections.OrderedDict()
        )

    def tokens(self, messages: Messages, tools: Tools) -> list[int]:
        """Return the prompt: the tokens of a conversation, up to the next reply.

        Args:
          messages: as `protocol.parse_request` returns them.
          tools: that the agent may call.

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
          messages: of the conversation, with the reply as the last one.
          tools: of the conversation.
          prompt: tokens up to the reply.
          reply: tokens of the reply; the end token is added if it has been cut.
        """
        key = _keys(messages, tools)[-1]
        end = [] if reply[-1:] == [self._end_token] else [self._end_token]
        self._kept[key] = np.array([*prompt, *reply, *end], np.int32)
        self._kept.move_to_end(key)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def _rest(self, messages: Messages, num: int, tools: Tools) -> list[str] | None:
        """Return the texts behind the first `num` messages.

        It is None if a template writes the first messages differently when others
        follow, so that the rest cannot be told.
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
    """Return a hash of each prefix of a conversation; the first has the tools alone."""
    keys = [_digest(b"", tools)]
    for message in messages:
        parts = [message["role"], message.get("content") or "", _calls(message)]
        keys.append(_digest(keys[-1], parts))
    return keys


def _calls(message: Message) -> list[list[str]]:
    """Return the calls with their ids: they tell apart what has the same text."""
    calls = message.get("tool_calls") or []
    return [[x["id"], x["function"]["name"], x["function"]["arguments"]] for x in calls]


def _digest(before: bytes, data: Any) -> bytes:
    text = json.dumps(data, ensure_ascii=True).encode()
    return hashlib.blake2b(before + text, digest_size=16).digest()
