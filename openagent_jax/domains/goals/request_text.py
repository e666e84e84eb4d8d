"""Write one request by one construction.

A request is a list of clauses. A clause is for one call; the calls whose results it
uses are nested in it as noun phrases, or have clauses of their own, to which it refers
("that tank"). Whether a construction suits a goal is found by trying: it does not if a
reference would be ambiguous, or if no phrase of a tool fits its place.
"""

import contextlib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from openagent_jax.domains.domain_spec import (
    Condition,
    parse_source,
)
from openagent_jax.domains.goals import phrase_syntax, request_pieces
from openagent_jax.domains.goals.goal_plan import Plan
from openagent_jax.domains.goals.phrase_syntax import Choice, Piece, Slot
from openagent_jax.domains.goals.phrasebook import Phrasebook, Place
from openagent_jax.domains.goals.request_grammar import Construction
from openagent_jax.domains.goals.request_reading import content_words
from openagent_jax.domains.goals.tool_phrases import Phrase

WHOLE_DO = 0.4  # how often a verb phrase asks for a value, where it can


class Unsuitable(Exception):
    """The construction does not suit the goal."""


@dataclass
class RequestText:
    """A request in the making."""

    plan: Plan
    form: Construction
    pool: str  # of the words of the tools
    rng: random.Random
    book: Phrasebook
    # Type -> the words around its numbers, such as "ticket" or "kg"; "" for none.
    around: Mapping[str, tuple[str, str]]
    known: set[str] = field(default_factory=set)  # sources that the text has named
    num_links: int = 0
    ahead: bool = False  # whether results are referred to before they are named
    unnamed: set[str] = field(default_factory=set)  # results that no word names
    last_do: int = -1  # the effect before
    last_reference: str = ""  # the result that was referred to no more than a word ago
    just_found: str = ""  # what the clause before has found

    def pieces(self) -> list[Piece]:
        """Return the pieces of the request.

        Raises:
          Unsuitable: the construction does not suit the goal.
        """
        plan, form = self.plan, self.form
        # A value that is asked for and used comes up where it is used, and at the end.
        self.recalls = plan.asks and bool(
            plan.users[plan.asked] or plan.needed_by[plan.asked]
        )
        least, most = form.clauses
        # What needs no phrases is checked first, because most constructions fail here.
        _need(("ask" if plan.asks else "do") in form.last_kinds)
        _need(least <= len(plan.tools) + self.recalls)
        _need(not (form.goal_first and self.recalls))
        self.nested = self._nested()
        steps = [s for s in range(len(plan.tools)) if s not in self.nested]
        if plan.asks and not self.recalls:
            steps.remove(plan.asked)
            steps.append(plan.asked)
        _need(least <= len(steps) + self.recalls <= most)
        _need(plan.asks or plan.tools[steps[-1]].effect)
        _need(not form.finds_first or not self._is_do(steps[0]))
        if form.goal_first:
            _need(plan.before(steps[-1]) >= set(steps[:-1]))
            steps = [steps[-1], *steps[:-1]]
        place = self._places(steps)
        _need(all(place[a] < place[b] or place[a] == place[b] and a in self.nested
                  for a, b in plan.in_order))  # fmt: skip
        clauses: list[list[Piece]] = []
        for index, step in enumerate(steps):
            self.ahead = form.goal_first and index == 0 and len(steps) > 1
            is_last = index == (0 if form.goal_first else len(steps) - 1)
            clauses.append(self._clause(step, is_last and not self.recalls))
        if self.recalls:
            clauses.append(self._recalled())
        return request_pieces.polished(self._joined(clauses), form.terse, self.rng)

    def _places(self, steps: list[int]) -> dict[int, int]:
        """Return the number of the clause in which each step is mentioned first."""
        place = {step: index for index, step in enumerate(steps)}
        for step in reversed(range(len(self.plan.tools))):
            if step in self.nested:
                place[step] = place[self.plan.users[step][0]]
        return place

    def _nested(self) -> dict[int, int]:
        """Return the steps that become noun phrases, each with its depth."""
        form, found = self.form, self.plan.found_nested
        key = form.nesting, form.do_kinds, self.pool
        if key not in found:
            found[key] = self.plan.nested(form.nesting, self._can_nest)
        return found[key]

    def _joined(self, clauses: list[list[Piece]]) -> list[Piece]:
        form, count = self.form, len(clauses)
        pieces: list[Piece] = []
        for index, clause in enumerate(clauses):
            if index == 0:
                joint = form.first if count > 1 else form.only
            elif index == 1 and form.second:
                joint = form.second
            elif index == count - 1 and form.last:
                joint = form.last
            else:
                joint = form.middle
            pieces += [*phrase_syntax.parse(joint), *clause]
        return [*pieces, *phrase_syntax.parse(form.end)]

    def _clause(self, step: int, is_last: bool) -> list[Piece]:
        plan, form = self.plan, self.form
        used = plan.fields[step]
        within = self._within(step)
        if self.ahead:
            within |= {s for s in plan.kinds if self._is_used(s)} - {plan.goal.answer}
        scope = self.known | within
        self.known |= within
        pronoun, self.just_found = self.just_found, ""
        when = plan.goal.conditions.get(step)
        if when is not None:
            pronoun = ""  # it might be what is compared
        asks = step == plan.asked and not self.recalls
        if self._is_do(step):
            frame = form.last_do if is_last and form.last_do else form.do
            kinds = [kind for kind in form.do_kinds if self._has(step, kind)]
            _need(kinds)
            kind = self.rng.choice(kinds)
            phrase = self._phrase(step, "", scope, (kind,), pronoun, tells=False)
            self._note_do(step, phrase)
            bare = kind == "statement" and not form.terse
            clause = phrase if bare else request_pieces.framed(frame, phrase)
            if step == plan.asked and not self.recalls:
                _need(kind != "statement" or form.terse)
                clause += self._result(step, phrase)
            if when is not None:
                clause = self._conditional(when, clause, scope)
                self.known.add(when.limit)
        else:
            source = plan.goal.answer if asks else used[0]
            clause = self._named(step, source, asks, scope, is_last)
            self.just_found = "" if asks else source
        self.known.update(used)
        return clause

    def _conditional(
        self, when: Condition, clause: list[Piece], scope: set[str]
    ) -> list[Piece]:
        """Return a clause with the condition under which it is wanted."""
        frame = getattr(self.form, when.comparison)
        _need(frame and when.limit[0] == "$")
        step, name = parse_source(when.value)
        if step in self.nested:
            value = self._phrase(step, name, scope, ("noun",), is_inner=True)
        else:
            value = self._value(when.value, scope, False)
        parts = {"@": value, "%": self._value(when.limit, scope, False), "&": clause}
        pieces: list[Piece] = []
        for text in re.split("([@%&])", frame):
            pieces += parts.get(text) or phrase_syntax.parse(text)
        return pieces

    def _note_do(self, step: int, phrase: list[Piece]) -> None:
        """Note whether the words for a call name its results that are used later."""
        self.last_do = step
        texts = [(x,) if isinstance(x, str) else x.texts
                 for x in phrase if not isinstance(x, Slot)]  # fmt: skip
        for index in range(max(map(len, texts), default=1)):
            words = content_words(" ".join(x[index % len(x)] for x in texts))
            self.unnamed |= {
                source
                for source in self.plan.fields[step]
                if not content_words(self.plan.head[source]) <= words
            }

    def _has(self, step: int, kind: str) -> bool:
        """Tell whether the tool of a step has a verb phrase of a kind."""
        name, given = self.plan.tools[step].name, self.plan.given[step]
        return kind in self.book.kinds(name, self.pool, given)

    def _can_nest(self, step: int, depth: int) -> bool:
        """Tell whether the result of a step can be a part of another phrase."""
        plan, (source,) = self.plan, self.plan.fields[step]
        user = plan.users[step][0]
        when = plan.goal.conditions.get(user)
        if when is not None and when.value == source:
            nouns = self._options(step, parse_source(source)[1])
            return any(x.kind == "noun" and x.is_simple for x in nouns)
        (argument,) = (a for a, s in plan.arguments[user].items() if s == source)
        asked = plan.goal.answer if user == plan.asked else ""
        used = asked or "".join(plan.fields[user])
        is_do = plan.tools[user].effect or len(plan.fields[user]) != 1 and not asked
        host = "" if is_do else parse_source(used)[1]
        kinds = self.form.do_kinds if is_do else ("noun", "indirect", "fragment")
        return any(
            phrase.kind == "noun" and phrase.is_simple
            for phrase in self._options(step, parse_source(source)[1])
        ) and any(
            phrase.kind in kinds and phrase.can_host(argument, depth)
            for phrase in self._options(user, host)
        )

    def _options(self, step: int, field: str) -> tuple[Phrase, ...]:
        name, given = self.plan.tools[step].name, self.plan.given[step]
        return self.book.phrases(name, field, self.pool, given)

    def _is_do(self, step: int) -> bool:
        """Tell whether a clause asks for the call itself, not for one of its fields."""
        if self.plan.tools[step].effect:
            return True
        asks = step == self.plan.asked and not self.recalls
        return not asks and len(self.plan.fields[step]) != 1

    def _named(
        self, step: int, source: str, asks: bool, scope: set[str], is_last: bool
    ) -> list[Piece]:
        """Return a clause that finds a value or asks for it."""
        form, name = self.form, parse_source(source)[1]
        if form.whole_do and self.rng.random() < WHOLE_DO:
            with contextlib.suppress(Unsuitable):
                frame = form.last_do if is_last and form.last_do else form.do
                phrase = self._phrase(
                    step, "", scope, ("imperative",), naming=source, tells=asks
                )
                return request_pieces.framed(frame, phrase)
        frame = form.ask if asks else form.state
        _need(frame)
        return request_pieces.framed(
            frame, self._phrase(step, name, scope, self._noun_kinds())
        )

    def _recalled(self) -> list[Piece]:
        """Return the last clause, which asks for a value of an earlier one."""
        plan, form, step = self.plan, self.form, self.plan.asked
        if plan.goal.answer in plan.fields[step]:
            answer = self._value(plan.goal.answer, self.known, False)
            return request_pieces.framed(form.recall or form.ask, answer)
        within = self._within(step)  # another field of the same call
        _need(not any(parse_source(source)[0] in self.nested for source in within))
        name = parse_source(plan.goal.answer)[1]
        scope, kinds = self.known | within, self._noun_kinds()
        return request_pieces.framed(form.ask, self._phrase(step, name, scope, kinds))

    def _noun_kinds(self) -> tuple[str, ...]:
        """Return the kinds of phrases of a field that a clause can have."""
        if self.form.terse:
            return "noun", "indirect", "fragment"
        return ("noun", "indirect") if self.form.indirect else ("noun",)

    def _result(self, step: int, phrase: list[Piece]) -> list[Piece]:
        """Return the words that ask for what an effect returns."""
        form, answer = self.form, self.plan.goal.answer
        kind = self.plan.kinds[answer]
        _need(form.result)
        _need(all(self.plan.kinds[source] != kind for source in self._within(step)))
        texts = [x for x in phrase if isinstance(x, str)]
        texts += [t for x in phrase if isinstance(x, Choice) for t in x.texts]
        comma = any("," in text for text in texts)
        joint = ", " if form.terse else ", and " if comma else " and "
        noun = _noun(kind)
        return [joint, *phrase_syntax.parse(form.result.replace("@", noun))]

    def _within(self, step: int) -> set[str]:
        """Return the sources that the clause of a step names or refers to."""
        found, when = set(), self.plan.goal.conditions.get(step)
        compared = [] if when is None else [when.value]
        for source in (*self.plan.arguments[step].values(), *compared):
            found.add(source)
            if (inner := parse_source(source)[0]) in self.nested:
                found |= self._within(inner)
        return found

    def _is_used(self, source: str) -> bool:
        conditions = self.plan.goal.conditions.values()
        arguments = self.plan.arguments
        return any(source in used.values() for used in arguments) or any(
            source == when.value for when in conditions
        )

    def _phrase(
        self,
        step: int,
        name: str,
        scope: set[str],
        kinds: tuple[str, ...],
        pronoun: str = "",
        naming: str = "",
        tells: bool = True,
        is_inner: bool = False,
        may_trail: bool = True,
        before: str = "",
    ) -> list[Piece]:
        """Return a phrase for a step, with its arguments.

        Args:
          step: the step.
          name: the field to name; "" for the call itself.
          scope: sources that references can be confused with.
          kinds: kinds of phrases that fit.
          pronoun: a source that may be called "it"; "" for none.
          naming: a result that the phrase has to name; "" for none.
          tells: whether the phrase may say that the user wants to be told something.
          is_inner: whether the phrase is nested in another one.
          may_trail: whether there may be words after the last slot.
          before: the word after the phrase, which must not be the one before its last
            slot: "the lamp in the hall in the house" could be read in two ways.
        """
        plan, form, nested = self.plan, self.form, self.nested
        arguments, inner = plan.arguments[step], plan.inner[step]
        named = (_noun(plan.kinds[naming]), parse_source(naming)[1]) if naming else ()
        refers = [a for a, s in inner.items() if s >= 0 and s not in nested]
        fitting = self.book.fitting(Place(
            plan.tools[step].name, name, self.pool, plan.given[step],
            kinds, is_inner, may_trail, tells or form.terse, named, before,
            tuple([(a, nested[s]) for a, s in inner.items() if s in nested]),
            tuple(refers), self.that if refers else "",
            tuple([(a, plan.head[arguments[a]]) for a, s in inner.items() if s >= 0]),
        ))  # fmt: skip
        _need(fitting)
        chosen = self.rng.choice(fitting)
        link = self._link()
        pieces = [request_pieces.either(chosen.texts[0], link)]
        if not is_inner:
            self.last_reference = ""
        self._pass(chosen.texts[0])
        for index, slot in enumerate(chosen.slots):
            if inner[slot] in nested:
                is_last = index == len(chosen.slots) - 1 and not chosen.trails[index]
                pieces += self._phrase(
                    inner[slot], parse_source(arguments[slot])[1], scope, ("noun",),
                    is_inner=True, may_trail=is_last,
                    before="" if is_last else chosen.next_words[index],
                )  # fmt: skip
            else:
                it = pronoun == arguments[slot] and len(arguments) == 1
                it = it and not chosen.ends_with_of[index]
                it = it and form.pronoun
                one = chosen.named[index]
                # "The seat for that match at that match" says it twice.
                _need(arguments[slot] != self.last_reference)
                self.last_reference = arguments[slot]
                pieces += self._value(arguments[slot], scope, it, one)
            pieces.append(request_pieces.either(chosen.texts[index + 1], link))
            self._pass(chosen.texts[index + 1])
        return pieces

    def _value(
        self, source: str, scope: set[str], it: bool, one: bool = False
    ) -> list[Piece]:
        """Return a constant, or a reference to a result.

        Args:
          source: the value.
          scope: sources that a reference can be confused with.
          it: whether "it" may stand for the result.
          one: whether "that one" stands for it, because its noun comes right before.
        """
        if source[0] == "$":
            noun, unit = self.around.get(self.plan.kinds[source], ("", ""))
            before, after = f"{noun} " if noun else "", f" {unit}" if unit else ""
            return [x for x in (before, Slot(source[1:]), after) if x]
        form, noun = self.form, "one" if one else _noun(self.plan.kinds[source])
        heads, (step, name) = self.plan.head, parse_source(source)
        head = heads[source]
        # After "list the rooms", it would not be clear which room is meant.
        _need(name not in self.plan.tools[step].of_lists or not self._is_do(step))
        others = [x for x in scope if heads[x] == head and x != source]
        _need(all(other[0] == "$" for other in others))
        if self.ahead:
            _need(form.ahead and not others and not one)
            return [form.ahead.replace("@", noun)]
        if source in self.unnamed:
            _need(form.made and self.last_do == step)
            return [form.made.replace("@", noun)]
        frame = form.found if others else form.that
        _need(frame and not (others and self.plan.tools[step].effect))
        text = frame.replace("@", noun)
        return [Choice((text, "it")) if it and not others else text]

    def _pass(self, texts: tuple[str, ...]) -> None:
        """Forget what was referred to before a text of more than a word."""
        if any(len(text.split()) > 1 for text in texts):
            self.last_reference = ""

    def _link(self) -> str:
        self.num_links += 1
        return str(self.num_links)

    @cached_property
    def that(self) -> str:
        """The word that references begin with."""
        return self.form.that.split(" ")[0]


def _need(condition: object) -> None:
    if not condition:
        raise Unsuitable


def _noun(kind: str) -> str:
    return kind.replace("_", " ")
