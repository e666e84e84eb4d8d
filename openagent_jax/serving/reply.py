"""Convert sampled tokens to a reply, its content and its tool calls, as they come.

Calls count if they are written in the model's style and nothing follows them; the text
before the first call is then the content. Otherwise, the whole text is the content.
"""

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from openagent_jax.text import scalars
from openagent_jax.text.messages import STRICT, Call, valid_text
from openagent_jax.text.style import Style
from openagent_jax.text.token_bytes import vocab_bytes, without_prefix_space

SPACES = " \t\n\r"  # white space of JSON


@dataclass(frozen=True)
class CallStyle:
    """How a model writes tool calls."""

    open: str  # the mark before the JSON of a call; may be empty
    close: str  # the mark after it; may be empty
    name: str  # the keys of the JSON object
    arguments: str
    flat: bool = False  # whether arguments must be scalars; see `_is_flat`


def call_style(style: Style[str], flat: bool) -> CallStyle:
    """Return how calls are written in a style.

    Args:
      style: the style of episodes.
      flat: whether arguments must be scalars, not lists or objects.
    """
    return CallStyle(
        style.marks.call_open.decode(),
        style.marks.call_close.decode(),
        style.key_name,
        style.key_arguments,
        flat,
    )


def read(
    style: CallStyle, text: str, parallel_calls: bool = True
) -> tuple[str, list[Call]]:
    """Split a finished reply into its content and its calls.

    Args:
      style: how the model writes calls.
      text: the whole reply.
      parallel_calls: whether a reply may have more than one call.

    Returns:
      The content and the calls, which have no ids yet. If the text is not a valid
      sequence of calls, all of it is content.

    >>> hermes = CallStyle("<tool_call>", "</tool_call>", "name", "arguments")
    >>> call = '<tool_call>{"name": "look", "arguments": {"place": "Bay"}}</tool_call>'
    >>> read(hermes, "Let me see. " + call)
    ('Let me see.', [Call(id='', name='look', arguments='{"place": "Bay"}')])
    >>> read(hermes, call + " Done.")[1]
    []
    """
    content, opened, rest = text.partition(style.open) if style.open else ("", "", text)
    if style.open and not opened:
        return text, []
    one = _call(style, rest)
    if one or not style.open or not parallel_calls:
        calls = [one]
    else:
        calls = [_call(style, block) for block in rest.split(style.open)]
    if None in calls:
        return text, []
    return content.rstrip(SPACES), [call for call in calls if call]


def _call(style: CallStyle, text: str) -> Call | None:
    """Parse a JSON object and the closing mark as a call; None if they are not one."""
    text = text.rstrip(SPACES)
    if not text.endswith(style.close):
        return None
    text = text.removesuffix(style.close).strip(SPACES)
    fields: list[tuple[str, Any]] = []

    def keep_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields[:] = pairs  # the outermost object comes last
        return dict(pairs)

    try:
        call = json.loads(text, object_pairs_hook=keep_pairs, **STRICT)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or len(call) != len(fields):  # a key occurs twice
        return None
    kinds = {style.name: str, style.arguments: dict}
    if call.keys() != kinds.keys():
        return None
    if any(not isinstance(value, kinds[key]) for key, value in call.items()):
        return None
    arguments = _source(text, style.arguments)
    if style.flat and not _is_flat(arguments):
        return None
    return Call("", valid_text(call[style.name]), arguments)


def _is_flat(arguments: str) -> bool:
    """Tell whether all values are scalars that the sandbox reads."""
    pairs = json.loads(
        arguments, object_pairs_hook=list, parse_int=len, parse_float=len
    )
    return all(
        value is None
        or isinstance(value, str | bool)
        or (isinstance(value, int) and value <= scalars.MAX_BYTES)
        for _, value in pairs
    )


def _source(text: str, key: str) -> str:
    """Return the source text of a field's value in a valid JSON object."""
    decode, at = json.JSONDecoder().raw_decode, text.index("{") + 1
    while True:
        name, at = decode(text, _skip_spaces(text, at))
        start = _skip_spaces(text, _skip_spaces(text, at) + 1)  # after the colon
        _, at = decode(text, start)
        if name == key:
            return text[start:at]
        at = _skip_spaces(text, at) + 1  # after the comma


def _skip_spaces(text: str, at: int) -> int:
    while text[at] in SPACES:
        at += 1
    return at


class Detokenizer:
    """Converts tokens to the bytes to show, and to the text that may have calls."""

    def __init__(self, tokenizer: Tokenizer, style: Style[str], end_token: int):
        """
        Args:
          tokenizer: the tokenizer of the model.
          style: the style of the model, whose marks of calls may be special tokens.
          end_token: the token that ends a reply; it is not shown.
        """
        self._end = end_token
        marks = b"".join(style.marks)
        tokenizer = without_prefix_space(tokenizer)
        self._bytes = [bytes(x) for x in vocab_bytes(tokenizer, marks)]
        added = tokenizer.get_added_tokens_decoder()
        names = {token: x.content.encode() for token, x in added.items()}
        # Special tokens have no meaning in a reply, but users may see them.
        self._shown = [names.get(i, x) for i, x in enumerate(self._bytes)]
        self._shown[self._end] = b""

    def shown(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of tokens, with the names of special tokens."""
        return b"".join(map(self._shown.__getitem__, tokens))

    def text(self, tokens: Sequence[int]) -> str | None:
        """Return the text to parse calls from; None if it is not valid UTF-8."""
        reply = [token for token in tokens if token != self._end]
        data = b"".join(map(self._bytes.__getitem__, reply))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None


class Reply:
    """A reply that grows token by token, and the part of it that can be shown."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        style: CallStyle | None,
        stop: Sequence[str] = (),
        parallel_calls: bool = True,
    ):
        """
        Args:
          detokenizer: the detokenizer of the model.
          style: how the model writes calls; None if there are no tools.
          stop: stop texts; the reply ends before the first of them.
          parallel_calls: whether a reply may have more than one call.
        """
        self._detokenizer, self._style = detokenizer, style
        self._parallel_calls = parallel_calls
        self._stop = [text for text in stop if text]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self._num_shown = "", 0
        self.tokens: list[int] = []
        self.calls: list[Call] = []
        self.stopped = False  # whether a stop text ended the reply

    def add(self, tokens: Sequence[int]) -> str:
        """Add tokens; return new content, up to where the rest is certain."""
        self.tokens += tokens
        self._text += self._decoder.decode(self._detokenizer.shown(tokens))
        self._apply_stop()
        return self._show(self._text if self.stopped else self._certain())

    def end(self, cut: bool) -> str:
        """Finish the reply, set `calls`, and return the rest of the content.

        Args:
          cut: whether a limit cut the reply off; then it has no calls.
        """
        if not self.stopped:
            self._text += self._decoder.decode(b"", final=True)
            self._apply_stop()
        text = self._detokenizer.text(self.tokens)
        if not self._style or text is None or cut or self.stopped:
            return self._show(self._text)
        _, self.calls = read(self._style, text, self._parallel_calls)
        return self._show(self._certain() if self.calls else self._text)

    def _show(self, content: str) -> str:
        new = content[self._num_shown :]
        self._num_shown += len(new)
        return new

    def _apply_stop(self) -> None:
        """Cut the text before the first stop text."""
        places = [self._text.find(text) for text in self._stop]
        if places := [place for place in places if place >= 0]:
            self._text, self.stopped = self._text[: min(places)], True

    def _certain(self) -> str:
        """Return the text without an end that may become a stop text or a call."""
        size = len(self._text)
        for mark in self._stop:
            size = min(size, _find_start(self._text, mark))
        if self._style and self._style.open:
            size = min(size, _find_start(self._text, self._style.open))
            # White space between the content and a call belongs to neither.
            size = len(self._text[:size].rstrip(SPACES))
        elif self._style and self._text.lstrip(SPACES)[:1] in ("", "{"):
            size = 0
        return self._text[:size]


def _find_start(text: str, mark: str) -> int:
    """Return where a mark begins, which may be cut off at the end of the text.

    If there is none, this is the length of the text.

    >>> _find_start("So <call>{", "<call>"), _find_start("So <ca", "<call>")
    (3, 3)
    """
    place = text.find(mark)
    if place >= 0:
        return place
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:size]):
            return len(text) - size
    return len(text)
