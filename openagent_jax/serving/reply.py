"""From tokens to a reply: text, and calls of tools, as they come.

A call counts if it is written as the style has it, and the text ends with it; what
stands before its first mark is content. Whatever else is content, as it is.
"""

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from openagent_jax.sandbox import spelling
from openagent_jax.sandbox.style import Style

BLANKS = " \t\n\r"  # of JSON


@dataclass(frozen=True)
class Form:
    """What calls look like."""

    open: str  # before the JSON of a call; may be empty
    close: str
    name: str  # keys of the JSON
    arguments: str
    purpose: str
    flat: bool = False  # values of arguments are texts or whole numbers


def form_of(style: Style[str], flat: bool) -> Form:
    return Form(
        style.marks.call_open.decode(),
        style.marks.call_close.decode(),
        style.key_name,
        style.key_arguments,
        style.key_purpose,
        flat,
    )


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str  # the text of the object, as it was said


def read(form: Form, text: str, several: bool = True) -> tuple[str, list[Call]]:
    """The content of a text, and its calls: whatever is no call is content.

    Args:
      form: of calls.
      text: all that was said.
      several: more than one call may be.
    """
    none = text, []
    talk, opened, rest = text.partition(form.open) if form.open else ("", "", text)
    if form.open and not opened:
        return none
    one = _call(form, rest)
    if one or not form.open or not several:
        calls = [one]
    else:
        calls = [_call(form, block) for block in rest.split(form.open)]
    if None in calls:
        return none
    return talk.rstrip(BLANKS), [call for call in calls if call]


def _call(form: Form, text: str) -> Call | None:
    """What a JSON object up to the mark of its end says, if that is a call."""
    text = text.rstrip(BLANKS)
    if not text.endswith(form.close):
        return None
    text = text.removesuffix(form.close).strip(BLANKS)
    fields: list[tuple[str, Any]] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        fields[:] = found  # the outermost object comes last
        return dict(found)

    def refuse(word: str) -> None:
        raise ValueError(word)  # NaN and the like are no JSON

    try:
        whole = json.loads(text, object_pairs_hook=pairs, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(whole, dict) or len(whole) != len(fields):
        return None
    kinds = {form.name: str, form.arguments: dict, form.purpose: str}
    if not {form.name, form.arguments} <= whole.keys() <= kinds.keys():
        return None
    if any(not isinstance(value, kinds[key]) for key, value in whole.items()):
        return None
    arguments = _raw(text, form.arguments)
    if form.flat and not _flat(arguments):
        return None
    name = whole[form.name].encode(errors="replace").decode()  # half a surrogate pair
    return Call(name, arguments)


def _flat(arguments: str) -> bool:
    pairs = json.loads(arguments, object_pairs_hook=list)
    return all(
        isinstance(value, str) or (type(value) is int and value >= 0)
        for _, value in pairs
    )


def _raw(text: str, key: str) -> str:
    """The text of a field of an object that is known to be sound."""
    decode, at = json.JSONDecoder().raw_decode, text.index("{") + 1
    while True:
        name, at = decode(text, _solid(text, at))
        start = _solid(text, _solid(text, at) + 1)  # behind the colon
        _, at = decode(text, start)
        if name == key:
            return text[start:at]
        at = _solid(text, at) + 1  # behind the comma


def _solid(text: str, at: int) -> int:
    """Where the next character is that is no blank."""
    while text[at] in BLANKS:
        at += 1
    return at


class Alphabet:
    """What tokens read, in bytes and as they are shown."""

    def __init__(self, tokenizer: Tokenizer, style: Style[str], end_token: int):
        self._end = end_token
        marks = b"".join(style.marks)
        tokenizer = spelling.as_it_is(tokenizer)
        self._bytes = [bytes(x) for x in spelling.token_bytes(tokenizer, marks)]
        added = tokenizer.get_added_tokens_decoder()
        names = {token: x.content.encode() for token, x in added.items()}
        # A special token has no meaning, but it is not hidden.
        self._shown = [names.get(i, x) for i, x in enumerate(self._bytes)]
        self._shown[self._end] = b""

    def shown(self, tokens: Sequence[int]) -> bytes:
        return b"".join(map(self._shown.__getitem__, tokens))

    def meant(self, tokens: Sequence[int]) -> str | None:
        """The text in which calls are looked for; None where there is none."""
        said = [token for token in tokens if token != self._end]
        data = b"".join(map(self._bytes.__getitem__, said))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None


class Reply:
    """What has been said so far, and what of it can be shown.

    Args:
      alphabet: of the tokens.
      form: of calls; None if they do not count.
      stop: texts before which the reply ends.
      several: more than one call may be.
    """

    def __init__(
        self,
        alphabet: Alphabet,
        form: Form | None,
        stop: Sequence[str] = (),
        several: bool = True,
    ):
        self._alphabet, self._form, self._several = alphabet, form, several
        self._stop = [text for text in stop if text]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self._given = "", 0
        self.tokens: list[int] = []
        self.calls: list[Call] = []
        self.stopped = False  # by a text of `stop`

    def add(self, tokens: Sequence[int]) -> str:
        """More tokens; returns the content that is sure by now."""
        self.tokens += tokens
        self._text += self._decoder.decode(self._alphabet.shown(tokens))
        self._cut()
        return self._give(self._text if self.stopped else self._sure())

    def end(self, cut: bool) -> str:
        """Nothing follows; returns the rest of the content.

        Args:
          cut: there was no room for more.
        """
        if not self.stopped:
            self._text += self._decoder.decode(b"", final=True)
            self._cut()
        meant = self._alphabet.meant(self.tokens)
        if not self._form or meant is None or cut or self.stopped:
            return self._give(self._text)
        _, self.calls = read(self._form, meant, self._several)
        return self._give(self._sure() if self.calls else self._text)

    def _give(self, content: str) -> str:
        new = content[self._given :]
        self._given += len(new)
        return new

    def _cut(self) -> None:
        """Leave out the first text of `stop` and what is behind it."""
        places = [self._text.find(text) for text in self._stop]
        if places := [place for place in places if place >= 0]:
            self._text, self.stopped = self._text[: min(places)], True

    def _sure(self) -> str:
        """The text without what may turn out to be a stop, or a call."""
        sure = len(self._text)
        for mark in self._stop:
            sure = min(sure, _before(self._text, mark))
        if self._form and self._form.open:
            sure = min(sure, _before(self._text, self._form.open))
            # Blanks between what is said and a call belong to neither.
            sure = len(self._text[:sure].rstrip(BLANKS))
        elif self._form and self._text.lstrip(BLANKS)[:1] in ("", "{"):
            sure = 0
        return self._text[:sure]


def _before(text: str, mark: str) -> int:
    """Where a mark, or the beginning of one at the end of a text, begins."""
    place = text.find(mark)
    if place >= 0:
        return place
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:size]):
            return len(text) - size
    return len(text)
