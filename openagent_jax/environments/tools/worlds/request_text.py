"""Write one request by one construction.

A request is a list of clauses. A clause is for one call; the calls whose results it
uses are nested in it as noun phrases, or have clauses of their own, to which it refers
("that tank"). Whether a construction suits a goal is found by trying: it does not if a
reference would be ambiguous, or if no phrase of a tool fits its place.
"""

import contextlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openagent_jax.environments.tools.worlds import phrase_syntax, request_pieces
from openagent_jax.environments.tools.worlds.domain_spec import (
    Condition,
    parse_source,
)
from openagent_jax.environments.tools.worlds.goal_plan import Plan
from openagent_jax.environments.tools.worlds.phrase_syntax import Choice, Piece, Slot
from openagent_jax.environments.tools.worlds.request_grammar import Construction
from openagent_jax.environments.tools.worlds.request_reading import content_words
from openagent_jax.environments.tools.worlds.tool_phrases import Phrase

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
    options: Callable[[str, str, str, tuple[str, ...]], tuple[Phrase, ...]]
    known: set[str] = field(default_factory=set)  # sources that the text has named
    num_links: int = 0
    ahead: bool = False  # whether results are referred to before they are named
    unnamed: set[int] = field(default_factory=set)  # effects that no word names
    last_do: int = -1  # the effect before
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
        self.nested = plan.nested(form.nesting, self._can_nest)
        steps = [s for s in range(len(plan.tools)) if s not in self.nested]
        if plan.asks and not self.recalls:
            steps.remove(plan.asked)
            steps.append(plan.asked)
        least, most = form.clauses
        _need(least <= len(steps) + self.recalls <= most)
        _need(("ask" if plan.asks else "do") in form.last_kinds)
        _need(plan.asks or plan.tools[steps[-1]].effect)
        _need(not form.finds_first or not self._is_do(steps[0]))
        if form.goal_first:
            _need(not self.recalls and plan.before(steps[-1]) >= set(steps[:-1]))
            steps = [steps[-1], *steps[:-1]]
        clauses: list[list[Piece]] = []
        for index, step in enumerate(steps):
            self.ahead = form.goal_first and index == 0 and len(steps) > 1
            is_last = index == (0 if form.goal_first else len(steps) - 1)
            clauses.append(self._clause(step, is_last and not self.recalls))
        if self.recalls:
            clauses.append(self._recalled())
        return request_pieces.polished(self._joined(clauses), form.terse, self.rng)

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
            if step == plan.asked:
                _need(kind != "statement" or form.terse)
                clause += self._result(step, scope, phrase)
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
        parts = {"@": value, "%": [Slot(when.limit[1:])], "&": clause}
        pieces: list[Piece] = []
        for text in re.split("([@%&])", frame):
            pieces += parts.get(text) or phrase_syntax.parse(text)
        return pieces

    def _note_do(self, step: int, phrase: list[Piece]) -> None:
        """Note whether the words for a call name its results that are used later."""
        heads = {self._head(source) for source in self.plan.fields[step]}
        texts = [(x,) if isinstance(x, str) else x.texts
                 for x in phrase if not isinstance(x, Slot)]  # fmt: skip
        for index in range(max(map(len, texts), default=1)):
            words = content_words(" ".join(x[index % len(x)] for x in texts))
            if not frozenset().union(*map(content_words, heads)) <= words:
                self.unnamed.add(step)
        self.last_do = step

    def _head(self, source: str) -> str:
        """Return the last word of the noun for a value."""
        return self.plan.kinds[source].split("_")[-1].lower()

    def _has(self, step: int, kind: str) -> bool:
        """Tell whether the tool of a step has a verb phrase of a kind."""
        return any(phrase.kind == kind for phrase in self._options(step, ""))

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
        name, given = self.plan.tools[step].name, tuple(self.plan.arguments[step])
        return self.options(name, field, self.pool, given)

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

    def _result(self, step: int, scope: set[str], phrase: list[Piece]) -> list[Piece]:
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
        kinds: Sequence[str],
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
        plan = self.plan
        arguments = plan.arguments[step]
        inner = {a: parse_source(s)[0] for a, s in arguments.items()}
        host = {a: s for a, s in inner.items() if s in self.nested}
        fitting = [
            phrase
            for phrase in self._options(step, name)
            if phrase.kind in kinds
            and (phrase.is_simple or not is_inner)
            and (may_trail or not phrase.texts[-1])
            and (tells or self.form.terse or not phrase.tells)
            and (not naming or self._names(phrase, naming))
            and not self._doubles(phrase, step)
            and (not before or phrase.last_word != before)
            and all(phrase.can_host(a, self.nested[s]) for a, s in host.items())
        ]
        _need(fitting)
        alike = self.rng.choice(fitting).alike
        fitting = [phrase for phrase in fitting if phrase.alike == alike]
        link = self._link()
        pieces: list[Piece] = [
            request_pieces.either((x.texts[0] for x in fitting), link)
        ]
        for index, slot in enumerate(fitting[0].slots):
            after = [phrase.texts[index + 1] for phrase in fitting]
            if slot in host:
                source = arguments[slot]
                is_last = not any(after) and index == len(fitting[0].slots) - 1
                pieces += self._phrase(
                    inner[slot], parse_source(source)[1], scope, ("noun",),
                    is_inner=True, may_trail=is_last,
                    before="" if is_last else (after[0].split() or [""])[0],
                )  # fmt: skip
            else:
                it = pronoun == arguments[slot] and len(arguments) == 1
                it = it and not any(p.texts[index].endswith(" of ") for p in fitting)
                pieces += self._value(arguments[slot], scope, it and self.form.pronoun)
            pieces.append(request_pieces.either(after, link))
        return pieces

    def _names(self, phrase: Phrase, source: str) -> bool:
        """Tell whether the words of a phrase ask for this result and for no other."""
        step, name = parse_source(source)
        tool, words = self.plan.tools[step], content_words(" ".join(phrase.texts))
        named = content_words(_noun(self.plan.kinds[source])), content_words(name)
        return len(tool.returns) == 1 and any(x and x <= words for x in named)

    def _doubles(self, phrase: Phrase, step: int) -> bool:
        """Tell whether the word before a reference would be written twice."""
        word = f"{self.form.that.split(' ')[0]} "
        return any(
            source[0] == "#"
            and parse_source(source)[0] not in self.nested
            and f" {phrase.texts[phrase.slots.index(argument)]}".endswith(f" {word}")
            for argument, source in self.plan.arguments[step].items()
        )

    def _value(self, source: str, scope: set[str], it: bool) -> list[Piece]:
        """Return a constant, or a reference to a result."""
        if source[0] == "$":
            return [Slot(source[1:])]
        form, noun = self.form, _noun(self.plan.kinds[source])
        head, (step, name) = self._head(source), parse_source(source)
        # After "list the rooms", it would not be clear which room is meant.
        _need(name not in self.plan.tools[step].of_lists or not self._is_do(step))
        others = [x for x in scope - {source} if self._head(x) == head]
        _need(all(other[0] == "$" for other in others))
        if self.ahead:
            _need(form.ahead and not others)
            return [form.ahead.replace("@", noun)]
        if step in self.unnamed:
            _need(form.made and self.last_do == step)
            return [form.made.replace("@", noun)]
        frame = form.found if others else form.that
        _need(frame and not (others and self.plan.tools[step].effect))
        text = frame.replace("@", noun)
        return [Choice((text, "it")) if it and not others else text]

    def _link(self) -> str:
        self.num_links += 1
        return str(self.num_links)


def _need(condition: object) -> None:
    if not condition:
        raise Unsuitable


def _noun(kind: str) -> str:
    return kind.replace("_", " ")
