"""Write the requests of a goal, from the words of its tools and a grammar.

A request is a list of clauses. A clause is for one call; the calls whose results it
uses are nested in it as noun phrases, or have clauses of their own, to which it refers
("that tank"). Whether a construction suits a goal is found by trying: it does not if a
reference would be ambiguous, or if no phrase of a tool fits its place.
"""

import contextlib
import itertools
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from openagent_jax.environments.tools.types import Limits
from openagent_jax.environments.tools.worlds import (
    phrase_syntax,
    request_grammar,
    tool_phrases,
)
from openagent_jax.environments.tools.worlds.domain_spec import (
    DONE,
    DomainSpec,
    GoalSpec,
    Synonyms,
    ToolSpec,
    needs_before,
    parse_source,
)
from openagent_jax.environments.tools.worlds.phrase_syntax import Choice, Piece, Slot
from openagent_jax.environments.tools.worlds.request_grammar import Construction
from openagent_jax.environments.tools.worlds.request_reading import content_words
from openagent_jax.environments.tools.worlds.tool_phrases import Phrase

MAX_WORDS = 90
MAX_PHRASES = 4  # of a goal and pool
WHOLE_DO = 0.4  # how often a verb phrase asks for a value, where it can
MAX_DEPTH = 2  # of noun phrases within a phrase


class _Unsuitable(Exception):
    """The construction does not suit the goal."""


class Writer:
    """Writes requests for the goals of a domain."""

    def __init__(self, spec: DomainSpec, limits: Limits):
        self.tools = {tool.name: tool for tool in spec.tools}
        self.limits = limits
        self.constructions = request_grammar.by_pool(spec.divided)
        self._phrases: dict[tuple, tuple[Phrase, ...]] = {}

    def phrases(self, goal: GoalSpec, rng: random.Random) -> Synonyms | None:
        """Return the phrases of a goal by pool, each by another construction.

        Args:
          goal: its own phrases are not looked at.
          rng: draws from the words of the tools.

        Returns:
          The phrases; None if no construction of one of the pools suits the goal.
        """
        plan = Plan(goal, self.tools)
        pools = {}
        for pool, constructions in self.constructions.items():
            tried = rng.sample(constructions, len(constructions))
            texts = (self.text(plan, form, pool, rng) for form in tried)
            some = itertools.islice(filter(None, texts), MAX_PHRASES)
            if not (texts := tuple(dict.fromkeys(some))):
                return None
            pools[pool] = texts
        return pools

    def text(
        self, plan: "Plan", form: Construction, pool: str, rng: random.Random
    ) -> str:
        """Return a request; "" if the construction does not suit the goal.

        Args:
          plan: the goal.
          form: the construction.
          pool: the pool whose words of the tools are used.
          rng: draws from these.
        """
        try:
            pieces = _Text(plan, form, pool, rng, self.options).pieces()
        except _Unsuitable:
            return ""
        text = phrase_syntax.write(pieces)
        fits = len(phrase_syntax.parse(text)) <= self.limits.num_phrase_pieces
        return text if fits and phrase_syntax.num_words(text) <= MAX_WORDS else ""

    def options(
        self, name: str, field: str, pool: str, given: tuple[str, ...]
    ) -> tuple[Phrase, ...]:
        """Return the phrases of a tool; see `tool_phrases.phrases`."""
        key = name, field, pool, given
        if key not in self._phrases:
            found = tool_phrases.phrases(self.tools[name], field, pool, given)
            self._phrases[key] = found
        return self._phrases[key]


class Plan:
    """What has to be known about a goal to write requests for it."""

    def __init__(self, goal: GoalSpec, tools: dict[str, ToolSpec]):
        self.goal = goal
        self.tools = [tools[name] for name, _ in goal.steps]
        self.arguments = [arguments for _, arguments in goal.steps]
        self.kinds = {f"${slot}": kind for slot, kind in goal.constants}
        for step, tool in enumerate(self.tools):
            for name, kind in tool.returns:
                self.kinds[f"#{step}.{name}"] = kind
        self.users: list[list[int]] = [[] for _ in goal.steps]
        for user, arguments in enumerate(self.arguments):
            for source in arguments.values():
                if (step := parse_source(source)[0]) >= 0:
                    self.users[step].append(user)
        names = [name for name, _ in goal.steps]
        self.needed_by = [
            {u for u, user in enumerate(names) if name in needs_before(tools, [], user)}
            for name in names
        ]
        self.asked = -1 if goal.answer == DONE else parse_source(goal.answer)[0]
        self.asks = self.asked >= 0 and not self.tools[self.asked].effect
        self.last = self.asked if self.asks else len(names) - 1
        # The results of each step that later ones use.
        self.fields = [
            sorted({s for arguments in self.arguments for s in arguments.values()
                    if parse_source(s)[0] == step})
            for step in range(len(names))
        ]  # fmt: skip

    def before(self, step: int) -> set[int]:
        """Return the steps whose results a step needs, or that have to come first."""
        found: set[int] = set()
        for other in reversed(range(step)):
            after = {*self.users[other], *self.needed_by[other]}
            if after & {step, *found}:
                found.add(other)
        return found

    def nested(
        self, nesting: str, can_nest: Callable[[int, int], bool]
    ) -> dict[int, int]:
        """Return the steps that become noun phrases, each with its depth.

        Args:
          nesting: see `Construction`.
          can_nest: tells of a step and its depth whether there are suitable phrases.
        """
        depth: dict[int, int] = {}
        hosts: set[int] = set()  # steps that have one already
        for step, tool in enumerate(self.tools):
            if nesting == "none" or tool.effect or step == self.asked:
                continue
            if len(self.users[step]) != 1 or self.needed_by[step] - {*self.users[step]}:
                continue
            inner = [depth.get(parse_source(s)[0], 0)
                     for s in self.arguments[step].values()]  # fmt: skip
            deep = 1 + max(inner, default=0)
            is_leaf = all(source[0] == "$" for source in self.arguments[step].values())
            host = self.users[step][0]
            allowed = deep <= MAX_DEPTH if nesting != "leaves" else is_leaf
            if nesting == "split" and host == self.last:
                allowed = False
            if allowed and host not in hosts and can_nest(step, deep):
                depth[step] = deep
                hosts.add(host)
        return depth


@dataclass
class _Text:
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
          _Unsuitable: the construction does not suit the goal.
        """
        plan, form = self.plan, self.form
        # A value that is asked for and used comes up where it is used, and at the end.
        self.recalls = plan.asks and bool(plan.users[plan.asked])
        self.nested = plan.nested(form.nesting, self._can_nest)
        steps = [s for s in range(len(plan.tools)) if s not in self.nested]
        if plan.asks and not self.recalls:
            _need(not plan.needed_by[plan.asked])
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
        return _polished(self._joined(clauses), form.terse, self.rng)

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
        asks = step == plan.asked and not self.recalls
        if self._is_do(step):
            frame = form.last_do if is_last and form.last_do else form.do
            kinds = [kind for kind in form.do_kinds if self._has(step, kind)]
            _need(kinds)
            kind = self.rng.choice(kinds)
            phrase = self._phrase(step, "", scope, (kind,), pronoun, tells=False)
            self._note_do(step, phrase)
            bare = kind == "statement" and not form.terse
            clause = phrase if bare else _framed(frame, phrase)
            if step == plan.asked:
                _need(kind != "statement" or form.terse)
                clause += self._result(step, scope, phrase)
        else:
            source = plan.goal.answer if asks else used[0]
            clause = self._named(step, source, asks, scope, is_last)
            self.just_found = "" if asks else source
        self.known.update(used)
        return clause

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
            with contextlib.suppress(_Unsuitable):
                frame = form.last_do if is_last and form.last_do else form.do
                phrase = self._phrase(
                    step, "", scope, ("imperative",), naming=source, tells=asks
                )
                return _framed(frame, phrase)
        frame = form.ask if asks else form.state
        _need(frame)
        return _framed(frame, self._phrase(step, name, scope, self._noun_kinds()))

    def _recalled(self) -> list[Piece]:
        """Return the last clause, which asks for a value of an earlier one."""
        plan, form, step = self.plan, self.form, self.plan.asked
        if plan.goal.answer in plan.fields[step]:
            answer = self._value(plan.goal.answer, self.known, False)
            return _framed(form.recall or form.ask, answer)
        within = self._within(step)  # another field of the same call
        _need(not any(parse_source(source)[0] in self.nested for source in within))
        name = parse_source(plan.goal.answer)[1]
        scope, kinds = self.known | within, self._noun_kinds()
        return _framed(form.ask, self._phrase(step, name, scope, kinds))

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
        found = set()
        for source in self.plan.arguments[step].values():
            found.add(source)
            if (inner := parse_source(source)[0]) in self.nested:
                found |= self._within(inner)
        return found

    def _is_used(self, source: str) -> bool:
        return any(source in arguments.values() for arguments in self.plan.arguments)

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
            and (not before or phrase.last_word != before)
            and all(phrase.can_host(a, self.nested[s]) for a, s in host.items())
        ]
        _need(fitting)
        fitting = [x for x in fitting if not self._doubles(x, step)] or fitting
        alike = self.rng.choice(fitting).alike
        fitting = [phrase for phrase in fitting if phrase.alike == alike]
        link = self._link()
        pieces: list[Piece] = [_either((x.texts[0] for x in fitting), link)]
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
            pieces.append(_either(after, link))
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
        head, step = self._head(source), parse_source(source)[0]
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
        raise _Unsuitable


def _noun(kind: str) -> str:
    return kind.replace("_", " ")


def _framed(frame: str, phrase: list[Piece]) -> list[Piece]:
    """Return a frame with a phrase in the place of its `@`."""
    before, _, after = frame.partition("@")
    return [*phrase_syntax.parse(before), *phrase, *phrase_syntax.parse(after)]


def _either(texts: Iterable[str], link: str) -> Piece:
    """Return a choice between texts; the text if all are the same."""
    texts = tuple(texts)
    return texts[0] if len(set(texts)) == 1 else Choice(texts, link)


def _polished(pieces: list[Piece], is_terse: bool, rng: random.Random) -> list[Piece]:
    """Return the pieces with capital letters at the beginning of sentences, and links
    only where several choices have the same one."""
    links = [piece.link for piece in pieces if isinstance(piece, Choice)]
    order = {link: str(n) for n, link in enumerate(
        dict.fromkeys(x for x in links if x and links.count(x) > 1), 1)}  # fmt: skip
    polished: list[Piece] = []
    starts = not is_terse
    for piece in pieces:
        if isinstance(piece, Slot):
            starts = False
        elif isinstance(piece, Choice):
            if starts and not all(piece.texts):  # what comes next depends on it
                piece = rng.choice(piece.texts)
            else:
                texts = [_capital(x) if starts else x for x in piece.texts]
                piece = Choice(tuple(texts), order.get(piece.link, ""))
                starts = False
        if isinstance(piece, str) and piece:
            piece = _capital(piece) if starts else piece
            starts = bool(re.search("[.?] $", piece)) and not is_terse
        if piece != "":
            polished.append(piece)
    return polished


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
