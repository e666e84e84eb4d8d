"""The phrases of the tools of a domain, found by what a place in a request asks for.

Requests of thousands of goals ask for the same few things over and over, so that each
answer is worked out once.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from openagent_jax.domains.domain_spec import ToolSpec
from openagent_jax.domains.goals import request_pieces, tool_phrases
from openagent_jax.domains.goals.request_reading import content_words
from openagent_jax.domains.goals.tool_phrases import Phrase

NEAR = 3  # words before a slot in which its noun is found
_CLAUSE = re.compile("[,;:()]")


class Place(NamedTuple):
    """What the phrase at a place of a request has to be like."""

    tool: str
    field: str  # that the phrase names; "" for the call itself
    pool: str
    given: tuple[str, ...]  # arguments of the call
    kinds: tuple[str, ...]  # that fit
    is_inner: bool  # whether the phrase is nested in another one
    may_trail: bool  # whether there may be words after the last slot
    may_tell: bool  # whether it may say that the user wants to be told something
    naming: tuple[str, ...]  # a noun and a field, one of which it must name, or empty
    before: str  # the word after the phrase, which must not be its last one
    host: tuple[tuple[str, int], ...]  # arguments that are phrases -> their depth
    referred: tuple[str, ...]  # arguments that are references
    reference: str  # the word that references begin with
    nouns: tuple[tuple[str, str], ...]  # arguments from results -> the nouns of these


@dataclass(frozen=True)
class Alternatives:
    """Phrases of which any may stand at a place, with the same slots."""

    slots: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]  # before each slot and after the last
    ends_with_of: tuple[bool, ...]  # whether "of" may be the word before each slot
    trails: tuple[bool, ...]  # whether words follow each slot
    next_words: tuple[str, ...]  # the word after each slot; "" for none
    named: tuple[bool, ...]  # whether the words before each slot have its noun


class Phrasebook:
    """Looks up phrases of tools."""

    def __init__(self, tools: Mapping[str, ToolSpec]):
        self._tools = tools
        self._phrases: dict[tuple, tuple[Phrase, ...]] = {}
        self._kinds: dict[tuple, frozenset[str]] = {}
        self._fitting: dict[Place, tuple[Alternatives, ...]] = {}

    def phrases(
        self, name: str, field: str, pool: str, given: tuple[str, ...]
    ) -> tuple[Phrase, ...]:
        """Return the phrases of a tool; see `tool_phrases.phrases`."""
        key = name, field, pool, given
        if (found := self._phrases.get(key)) is None:
            found = tool_phrases.phrases(self._tools[name], field, pool, given)
            self._phrases[key] = found
        return found

    def kinds(self, name: str, pool: str, given: tuple[str, ...]) -> frozenset[str]:
        """Return the kinds of the phrases that ask for the call of a tool."""
        key = name, pool, given
        if (found := self._kinds.get(key)) is None:
            found = frozenset(x.kind for x in self.phrases(name, "", pool, given))
            self._kinds[key] = found
        return found

    def fitting(self, place: Place) -> tuple[Alternatives, ...]:
        """Return, for each phrase that fits a place, those that could replace it."""
        if (found := self._fitting.get(place)) is None:
            phrases = self.phrases(place.tool, place.field, place.pool, place.given)
            fitting = [phrase for phrase in phrases if self._fits(phrase, place)]
            groups: dict[tuple, list[Phrase]] = {}
            for phrase in fitting:
                groups.setdefault(_alike(phrase, place), []).append(phrase)
            made = {
                alike: _alternatives(group, alike[1]) for alike, group in groups.items()
            }
            found = tuple(made[_alike(phrase, place)] for phrase in fitting)
            self._fitting[place] = found
        return found

    def _fits(self, phrase: Phrase, place: Place) -> bool:
        return (
            phrase.kind in place.kinds
            and (phrase.is_simple or not place.is_inner)
            and (place.may_trail or not phrase.texts[-1])
            and (place.may_tell or not phrase.tells)
            and (not place.naming or self._names(phrase, place))
            and not _doubles(phrase, place)
            and (not place.before or phrase.last_word != place.before)
            and all(phrase.can_host(name, depth) for name, depth in place.host)
            and not any(
                _has_noun(phrase, name, noun, NEAR if name in dict(place.host) else 1)
                for name, noun in place.nouns
            )
        )

    def _names(self, phrase: Phrase, place: Place) -> bool:
        """Tell whether the words of a phrase ask for this result and for no other."""
        words = content_words(" ".join(phrase.texts))
        only = len(self._tools[place.tool].returns) == 1
        return only and any(x and x <= words for x in map(content_words, place.naming))


def _doubles(phrase: Phrase, place: Place) -> bool:
    """Tell whether the word before a reference would be written twice."""
    return any(
        f" {phrase.texts[phrase.slots.index(name)]}".endswith(f" {place.reference} ")
        for name in place.referred
    )


def _has_noun(phrase: Phrase, name: str, noun: str, num_words: int) -> bool:
    """Tell whether a noun is among the last words before a slot, as in "a fee of {x}".
    Then "that fee" would say it twice, and so would "the fee of the inn"."""
    words = _CLAUSE.split(phrase.texts[phrase.slots.index(name)])[-1].split()
    return bool(content_words(noun) & content_words(" ".join(words[-num_words:])))


def _alike(phrase: Phrase, place: Place) -> tuple[tuple, tuple[bool, ...]]:
    """Return what phrases must have in common to be alternatives at a place."""
    nouns = dict(place.nouns)
    named = [x in nouns and _has_noun(phrase, x, nouns[x], NEAR) for x in phrase.slots]
    return phrase.alike, tuple(named)


def _alternatives(phrases: list[Phrase], named: tuple[bool, ...]) -> Alternatives:
    texts = tuple(zip(*(phrase.texts for phrase in phrases), strict=True))
    return Alternatives(
        slots=phrases[0].slots,
        texts=tuple(map(request_pieces.distinct, texts)),
        ends_with_of=tuple(
            any(x.endswith(" of ") for x in some) for some in texts[:-1]
        ),
        trails=tuple(any(some) for some in texts[1:]),
        next_words=tuple((some[0].split() or [""])[0] for some in texts[1:]),
        named=named,
    )
