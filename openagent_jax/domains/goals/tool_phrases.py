"""The phrases of a tool, sorted by what they can be used for.

Phrases of the same kind with the same slots in the same order are alternatives: they
become one phrase with linked choices (see `phrase_syntax.py`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from openagent_jax.domains.domain_spec import ToolSpec
from openagent_jax.domains.goals.request_reading import without_optional

# Of a `do`: an imperative ("book a room"), a statement, which stands alone ("a room
# should be booked", "for Ann, book a room"), or a question. Of a field: a noun phrase,
# or an indirect question ("what the room costs"). Everything else is a fragment.
Kind = Literal[
    "imperative", "statement", "question", "noun", "indirect", "fragment"
]  # fmt: skip
_ASKING = frozenset(
    "what which who whom whose when where why how whichever whoever whatever wherever "
    "whether whenever".split()
)
_PREPOSITIONS = frozenset(
    "about after against among at before between by during for from in into of on onto "
    "once out over through to toward under upon via when with within without if since "
    "as until off next".split()
)
_AUXILIARIES = frozenset(
    "am are can could did do does has have had is may might must shall should was were "
    "will would".split()
)
_SUBJECTS = frozenset(
    "a all an any each every i it my no one our please some that the there these this "
    "those we you your".split()
)
_TELLING = re.compile(
    r"\b(tell|show|give|read|let|say|report|inform|name|know|hear)\b.* (me|us|its?)\b"
    r"|^(report|say|name|state) |\bread out\b|\band (report|name|say|state|note) "
)


@dataclass(frozen=True)
class Phrase:
    """One phrase: the texts around its slots, of which there is one more than slots."""

    texts: tuple[str, ...]
    slots: tuple[str, ...]
    kind: Kind

    @cached_property
    def is_simple(self) -> bool:
        """Whether it has no punctuation, so that it can be part of another phrase."""
        return not re.search("[,;:()/=]", " ".join(self.texts))

    @cached_property
    def last_word(self) -> str:
        """The word before the last slot, as in "in {hall}"; "" if words come after."""
        words = self.texts[-2].split() if self.slots and not self.texts[-1] else []
        return words[-1] if words else ""

    def can_host(self, argument: str) -> bool:
        """Tell whether a noun phrase can stand at a slot: only at the end, since words
        that follow would seem to belong to it, and not at the beginning."""
        is_last = self.slots[-1] == argument and not self.texts[-1]
        is_first = self.slots[0] == argument and not self.texts[0]
        return self.is_simple and is_last and not is_first

    @cached_property
    def tells(self) -> bool:
        """Whether it says that the user wants to be told something."""
        return bool(_TELLING.search(" ".join(self.texts)))

    @cached_property
    def alike(self) -> tuple:
        """What alternatives have in common."""
        return self.slots, bool(self.texts[0]), bool(self.texts[-1])


def phrases(
    tool: ToolSpec, field: str, pool: str, given: Iterable[str]
) -> tuple[Phrase, ...]:
    """Return the phrases of a tool.

    Args:
      tool: a tool with `requests`.
      field: what they name; "" for those that ask for the call.
      pool: the pool that they are from.
      given: arguments that the call has.
    """
    requests, given = tool.requests, set(given)
    if requests is None:
        return ()
    texts = (requests.fields[field] if field else requests.do)[pool]
    is_terse = pool.startswith("rewrite")
    found = []
    for text in texts:
        text = without_optional(text, given)
        parts = re.split(r"\{([^{}]*)\}", text)
        kind = _field_kind(text, is_terse) if field else _do_kind(text)
        found.append(Phrase(tuple(parts[::2]), tuple(parts[1::2]), kind))
    return tuple(found)


def _do_kind(text: str) -> Kind:
    """Return the kind of a verb phrase.

    >>> [_do_kind(x) for x in ("book {a}", "for {a}, book", "by what is {a} led")]
    ['imperative', 'statement', 'question']
    """
    if re.search("[;:()]", text) or text[0] == "{":
        return "fragment"
    first, second = (re.findall("[a-z]+", text.lower()) + ["", ""])[:2]
    if first in _ASKING or (first in _PREPOSITIONS and second in _ASKING):
        return "question"
    if first in _AUXILIARIES and first not in ("have", "do"):
        return "question"
    return "statement" if first in _PREPOSITIONS | _SUBJECTS else "imperative"


def _field_kind(text: str, is_terse: bool) -> Kind:
    """Return the kind of a noun phrase.

    >>> [_field_kind(x, False) for x in ("the fee of {a}", "what {a} costs", "{a} fee")]
    ['noun', 'indirect', 'fragment']
    """
    if text[0] == "{":
        return "fragment"
    first, second = (re.findall("[a-z]+", text.lower()) + ["", ""])[:2]
    if first in _ASKING or (first in _PREPOSITIONS and second in _ASKING):
        return "indirect"
    if is_terse:
        return "fragment" if first in _PREPOSITIONS else "noun"
    return "noun" if first in _SUBJECTS else "fragment"
