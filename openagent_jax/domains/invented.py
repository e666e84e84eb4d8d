"""Invented domains: tools of random words, for the pretraining of a backbone.

A policy that is trained on a few domains learns their tools by the shape of their
sentences, even if all words are exchanged in every step (docs/backbone.md). Invented
domains have the grammar of the library's requests, but there can be any number of
them, and the sentences of each tool are put together from random constructions, so
that only reading helps. Their nouns, verbs and values mean nothing.

`invent(seed)` returns what a domain file contains (see `domain_file.py`).
"""

import random
import string
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from openagent_jax.text import tokenizer

NUM_ENTITIES = (5, 8)  # types of things, from and to
NUM_LOOKUPS = (8, 10)  # tools that find something, from and to
POOLS = {"train": 3, "test": 2, "rewrite_train": 2, "rewrite_test": 2}  # texts of each

# Words.
LISTED = 0.6  # share of the words that are those of the tokenizer's word list
ONSETS = (*"bcdfglmnprtvw", "br", "cl", "dr", "fl", "gr", "pl", "st", "tr", "sk", "th")
VOWELS = (*"aeiou", "ai", "ea", "ou")
CODAS = (*"bdgklmnprt", "lt", "nd", "rk", "mp", "nt", "st", "")
VERB_ENDS = tuple("dkmnprt")  # verbs end in one of these, so that `ed` can follow
# Digits (d), letters (L, l) and words (w) of identifiers, dates and the like.
PARTS = ("dd", "ddd", "dddd", "L", "LL", "LLL", "w", "l", "ld")
MARKS = "-_/.:#+"
PATTERNS = ("20dd-dd-dd dd:dd", "20dd-dd-dd", "dd:dd:dd", "w@w.w", "w_dd.w",
            "dd/dd/dddd", "w/w.w", "dddd+w")  # fmt: skip

# Sentences. {x} is what is given, {y} what is found, {z} something found beside it;
# {v} is a verb, {e} a word of this tool alone, {p} a preposition; {r} is a receipt.
PREPOSITIONS = ("in", "on", "at", "near", "behind", "under", "above", "for", "with",
                "by", "inside", "beside", "from", "after", "before")  # fmt: skip
TAKES = ("to", "into", "with", "for", "from", "at", "onto", "under", "by", "near")
ASKS = ("find", "look up", "get", "tell me", "name", "report", "give me", "check",
        "fetch", "identify", "determine", "see", "say", "show me", "search for",
        "read out", "I want to know", "I need", "let me know", "establish")  # fmt: skip
TEST_ASKS = ("work out", "ascertain", "bring up", "pull up", "state", "inform me of",
             "disclose", "retrieve")  # fmt: skip
FILLERS = ("now", "again", "there", "here", "then", "also", "please", "still", "just",
           "today", "once more", "as usual", "if you can")  # fmt: skip
STARTS = ("", "", "", "the ", "finds the ", "gets the ", "returns the ", "which ",
          "looks up the ", "shows the ", "search for the ",
          "lookup of the ")  # fmt: skip
ARTICLES = ("a", "a", "the", "some", "a given")
TAILS = (" and its {z}", ", with its {z}", " and the {z}", " with {z}")
SECONDS = ("the {z} of {y}", "the {z} that goes with {y}", "the {z} for {y}",
           "the {z} at {x}")  # fmt: skip
OPTIONS = ("[ ({o}: {v})]", "[, {o} {v}]", "[ with {v} as {o}]", "[ at {o} {v}]",
           "[, {v} as its {o}]")  # fmt: skip
THINGS = ("list", "book", "desk", "register", "session", "file")


class Construction(NamedTuple):
    """Ways to say something in the description of a tool, and in a request."""

    described: tuple[str, ...]
    asked: tuple[str, ...]


LOOKUPS = (
    Construction(
        ("{y} of {x}", "{y} for {x}", "{y} that belongs to {x}"),
        ("the {y} of {x}", "the {y} for {x}", "the {y} that {x} has",
         "the {y} that belongs to {x}"),
    ),
    Construction(
        ("{e} {y} of {x}", "{y} of {x} by {e}", "{e} {y} for {x}"),
        ("the {e} {y} of {x}", "the {y} of {x} by {e}", "the {e} {y} that {x} has",
         "the {e} {y} for {x}"),
    ),
    Construction(
        ("{y} that {v}s {x}", "{y} {v}ing {x}", "{y} to {v} {x}"),
        ("the {y} that {v}s {x}", "the {y} {v}ing {x}", "the {y} which {v}s {x}",
         "the {y} by which {x} is {v}ed", "the {y} to {v} {x}"),
    ),
    Construction(
        ("{y} that {x} {v}s", "{y} {v}ed by {x}", "{y} {x} has {v}ed"),
        ("the {y} that {x} {v}s", "the {y} {v}ed by {x}", "the {y} {x} has {v}ed",
         "the {y} which {x} {v}s"),
    ),
    Construction(
        ("{e} {y} {p} {x}", "{y} {e} {p} {x}", "{y} {p} {x}, by {e}"),
        ("the {e} {y} {p} {x}", "the {y} that is {e} {p} {x}",
         "the {y} {p} {x} by {e}"),
    ),
    Construction(
        ("{y} {v}ed {p} {x}", "{y} that one {v}s {p} {x}", "{y} {v}ing {p} {x}"),
        ("the {y} {v}ed {p} {x}", "the {y} that is {v}ed {p} {x}",
         "the {y} {v}ing {p} {x}"),
    ),
    Construction(
        ("{e} that {x} has for its {y}", "{y} as the {e} of {x}", "{y}, {e} of {x}"),
        ("the {y} that is the {e} of {x}", "the {y} that {x} has as its {e}",
         "the {e} of {x}, that is, its {y}"),
    ),
    Construction(
        ("{y} with most {e} for {x}", "{y} of {x} with the most {e}",
         "{y} with the first {e} {p} {x}"),
        ("the {y} with most {e} for {x}", "the {y} that has the most {e} {p} {x}",
         "the {y} of {x} with the first {e}"),
    ),
    Construction(
        ("{y} that a {e} {v}s for {x}", "{y} {v}ed for {x} by a {e}"),
        ("the {y} that a {e} {v}s for {x}", "the {y} {v}ed for {x} by a {e}",
         "the {y} which the {e} has {v}ed for {x}"),
    ),
    Construction(
        ("{y} where {x} is {v}ed", "{y} in which {x} {v}s", "{y} to {v} {x} in"),
        ("the {y} where {x} is {v}ed", "the {y} in which {x} {v}s",
         "the {y} that {x} is {v}ed in"),
    ),
)  # fmt: skip
# {thing} is what is changed, and perhaps where to.
EFFECTS = (
    Construction(
        ("{v} {thing}", "to {v} {thing}"),
        ("{v} {thing}", "please {v} {thing}", "go and {v} {thing}",
         "it is time to {v} {thing}", "we should {v} {thing}"),
    ),
    Construction(
        ("{v} a {e} for {thing}", "{v}s a {e} for {thing}", "{e} to {v} for {thing}"),
        ("{v} a {e} for {thing}", "have a {e} {v}ed for {thing}",
         "please {v} the {e} for {thing}", "get a {e} {v}ed for {thing}"),
    ),
    Construction(
        ("{e} {v} of {thing}", "{v}, by {e}, of {thing}"),
        ("have a {e} {v} of {thing} done", "do the {e} {v} of {thing}",
         "arrange a {e} {v} of {thing}"),
    ),
)  # fmt: skip
RECEIPTS = ("the {r} when we {do}", "the {r} you get to {do}", "the {r} once we {do}",
            "the {r} that comes when we {do}")  # fmt: skip
OPENERS = Construction(
    ("{v} the {e} {thing}", "{v}s the {e} {thing}", "{v} the {e} {thing} for today"),
    ("{v} the {e} {thing}", "please {v} the {e} {thing}", "have the {e} {thing} {v}ed",
     "get the {e} {thing} {v}ed", "first {v} the {e} {thing}"),
)  # fmt: skip
OPENED = ("the {r} of the {e} {thing}", "the {r} that the {e} {thing} has",
          "the {r} when we {v} the {e} {thing}")  # fmt: skip

Texts = dict[str, list[str]]  # by pool


def invent(seed: int, avoid: Collection[str] = ()) -> dict[str, Any]:
    """Return a domain, as a file contains it.

    Args:
      seed: the domain is a function of it and of `avoid`.
      avoid: words in lower case that it does not contain.

    >>> domain = invent(0)
    >>> domain["name"], 13 <= len(domain["tools"]) <= 16
    ('invented_0', True)
    """
    return _Inventor(seed, avoid).domain()


class _Words:
    """Random words, none of which is given out twice."""

    def __init__(self, rng: random.Random, avoid: Collection[str]):
        self._rng, self._used = rng, {*avoid}
        listed = {word.lower() for word in tokenizer.words()}
        self._listed = sorted(x for x in listed if 3 < len(x) < 12)

    def __call__(self) -> str:
        while True:
            rng = self._rng
            if rng.random() < LISTED:
                word = rng.choice(self._listed)
            else:
                syllables = range(rng.choice([1, 1, 2, 2, 2, 3]))
                parts = [rng.choice(ONSETS) + rng.choice(VOWELS) for _ in syllables]
                word = "".join(parts) + rng.choice(CODAS)
            if 4 <= len(word) <= 11 and word not in self._used:
                self._used.add(word)
                return word

    def verb(self) -> str:
        """Return a word that `s`, `ed` and `ing` can be added to."""
        while True:
            word = self()
            forms = {word + end for end in ("s", "ed", "ing")}
            if word.endswith(VERB_ENDS) and not forms & self._used:
                self._used |= forms
                return word


class _Inventor:
    """Makes a domain; what its tools have in common."""

    def __init__(self, seed: int, avoid: Collection[str]):
        self._name = f"invented_{seed}"
        self._rng = random.Random(self._name)
        self._words = _Words(self._rng, avoid)
        self._types: dict[str, dict[str, Any]] = {}
        self._tools: list[dict[str, Any]] = []
        self._names = set[str]()  # of tools
        self._values = set[str]()  # that follow a pattern
        self._joint = self._rng.choice(["_", "_", "_", "", "-"])  # of names of tools

    def domain(self) -> dict[str, Any]:
        """Return the domain."""
        rng = self._rng
        entities = [self._entity() for _ in range(rng.randint(*NUM_ENTITIES))]
        enums = [self._enum() for _ in range(2)]
        numbers = [self._number() for _ in range(3)]
        receipt = self._identifier()

        # Each thing can be found, beginning from the first; some in several ways.
        ways = [(rng.choice(entities[:i]), x) for i, x in enumerate(entities) if i]
        num = rng.randint(*NUM_LOOKUPS)
        while len(ways) < num - 2:
            one, other = rng.sample(entities, 2)
            if (one, other) not in ways:
                ways.append((one, other))
        ways += [(rng.choice(entities), rng.choice(enums + numbers)) for _ in range(2)]
        for given, found in ways:
            others = [x for x in enums + numbers if x != found]
            optional = rng.choice(others) if rng.random() < 0.35 else None
            others = [x for x in numbers if x not in (found, optional)]
            second = rng.choice(others) if rng.random() < 0.3 else None
            self._lookup(given, found, second, optional)

        self._effect(rng.sample(entities, 2), receipt, call_after=self._opener(receipt))
        first = self._effect([rng.choice(entities)], receipt, rng.choice(enums))
        self._effect(rng.sample(entities, 2), receipt, code_from=first)
        self._effect([rng.choice(entities)], receipt, rng.choice(numbers))
        rng.shuffle(self._tools)
        return {
            "name": self._name,
            "description": "invented: " + ", ".join(entities),
            "types": self._types,
            "tools": self._tools,
            "goals": [],
        }

    def _entity(self) -> str:
        """Add a type of things: names of one or two words, or identifiers."""
        rng, name = self._rng, self._words()
        splits = ("train", "test", "shift")
        kind = rng.choice(["pair", "pair", "pair", "word", "written", "written"])
        if kind == "written":
            marks = rng.choice(MARKS).join(rng.choices(PARTS, k=rng.randint(1, 3)))
            pattern = rng.choice(PATTERNS) if rng.random() < 0.25 else marks + "ddd"
            made = self._written(pattern, 240)
            values: list[Any] = [made[i::3] for i in range(3)]
        elif kind == "word":
            values = [self._titles(40) for _ in splits]
        else:
            values = [{"compose": [self._titles(14), self._titles(10)]} for _ in splits]
        self._types[name] = {"kind": "entity", **dict(zip(splits, values, strict=True))}
        return name

    def _titles(self, num: int) -> list[str]:
        return [self._words().title() for _ in range(num)]

    def _written(self, pattern: str, num: int) -> list[str]:
        """Return values that follow a pattern, and that no other type has."""
        words = [self._words() for _ in range(20)]
        pools = {"d": string.digits, "w": words}
        pools |= {"L": string.ascii_uppercase, "l": string.ascii_lowercase}
        found = dict[str, None]()
        for _ in range(10 * num):
            text = "".join(self._rng.choice(pools.get(c, c)) for c in pattern)
            if text not in self._values and len(found) < num:
                found[text] = None
        self._values.update(found)
        return [*found]

    def _enum(self) -> str:
        name = self._words()
        values = [self._words() for _ in range(self._rng.randint(3, 6))]
        self._types[name] = {"kind": "enum", "values": values}
        return name

    def _number(self) -> str:
        rng, name = self._rng, self._words()
        low, high = rng.choice([0, 1, 2, 5]), rng.choice([12, 48, 100, 360, 950, 5000])
        self._types[name] = {"kind": "number", "minimum": low, "maximum": high}
        if rng.random() < 0.5:
            self._types[name]["decimals"] = rng.choice([1, 2])
        return name

    def _identifier(self) -> str:
        name, size = self._words(), 10 ** self._rng.randint(2, 4)
        bounds = {"minimum": size, "maximum": 10 * size - 1}
        self._types[name] = {"kind": "number", "identifier": True, **bounds}
        return name

    def _lookup(
        self, given: str, found: str, second: str | None, optional: str | None
    ) -> None:
        """Add a tool that finds something, and perhaps a second thing beside it."""
        rng, way = self._rng, self._rng.choice(LOOKUPS)
        fills = self._fills() | {"y": found, "z": second}
        slot = f"{{{given}}}"

        def describe() -> str:
            text = rng.choice(STARTS) + rng.choice(way.described)
            text += rng.choice(TAILS) if second else ""
            return text.format(x=f"{rng.choice(ARTICLES)} {given}", **fills)

        def ask() -> str:
            return rng.choice(way.asked).format(x=slot, **fills)

        def ask_second() -> str:
            return rng.choice(SECONDS).format(x=slot, y=ask(), z=second)

        do = self._texts(lambda: f"{rng.choice(ASKS)} {ask()}")
        test = self._texts(lambda: f"{rng.choice(TEST_ASKS)} {ask()}")
        do |= {pool: texts for pool, texts in test.items() if "test" in pool}
        fields = {found: self._texts(ask)}
        if second:
            fields[second] = self._texts(ask_second)
        self._add([given], optional, describe, do, fields, [found, given])

    def _opener(self, receipt: str) -> str:
        """Add a tool without arguments; return its name."""
        rng = self._rng
        fills = self._fills() | {"thing": rng.choice(THINGS), "r": receipt}

        def texts(ways: Sequence[str]) -> Callable[[], str]:
            return lambda: rng.choice(ways).format(**fills)

        describe, do = texts(OPENERS.described), self._texts(texts(OPENERS.asked))
        fields = {receipt: self._texts(texts(OPENED))}
        return self._add([], None, describe, do, fields, [fills["v"], fills["e"]])

    def _effect(
        self,
        inputs: Sequence[str],
        receipt: str,
        optional: str | None = None,
        **needs: str,
    ) -> str:
        """Add a tool that changes something; return its name."""
        rng, way, fills = self._rng, self._rng.choice(EFFECTS), self._fills()
        take = rng.choice(TAKES)

        def thing(texts: Sequence[str]) -> str:
            return f" {take} ".join(texts)

        def describe() -> str:
            given = thing([f"{rng.choice(ARTICLES)} {name}" for name in inputs])
            text = rng.choice(way.described).format(thing=given, **fills)
            return text + rng.choice(["", "", f", with a {receipt}"])

        def do(asked: Sequence[str] = way.asked) -> str:
            slots = thing([f"{{{name}}}" for name in inputs])
            return rng.choice(asked).format(thing=slots, **fills)

        def ask() -> str:
            return rng.choice(RECEIPTS).format(r=receipt, do=do(way.asked[:1]))

        fields, parts = {receipt: self._texts(ask)}, [fills["v"], inputs[0]]
        texts = self._texts(do)
        return self._add(
            inputs, optional, describe, texts, fields, parts, effect=True, **needs
        )

    def _fills(self) -> dict[str, Any]:
        """Return words of a tool alone."""
        p = self._rng.choice(PREPOSITIONS)
        return {"v": self._words.verb(), "e": self._words(), "p": p}

    def _texts(self, make: Callable[[], str]) -> Texts:
        """Return different texts for each pool.

        Where `make` has too few, words that mean nothing are added.
        """
        made = dict.fromkeys(make() for _ in range(40))
        while len(made) < sum(POOLS.values()):
            words = make().split(" ")
            words.insert(self._rng.randint(1, len(words)), self._rng.choice(FILLERS))
            made[" ".join(words)] = None
        texts = iter(made)
        return {pool: [next(texts) for _ in range(num)] for pool, num in POOLS.items()}

    def _tool_name(self, parts: Sequence[str]) -> str:
        rng = self._rng
        first = rng.choice(["find", "get", "look up", "read", "search", "", "", ""])
        between = rng.choice(["of", "for", "by", "", "", ""])
        parts = [parts[0], between, *parts[1:]] if between else rng.sample(parts, 2)
        words = [word for word in (*first.split(), *parts) if word]
        if rng.random() < 0.15:
            words = [self._words()]
        if not self._joint:
            words = [words[0], *map(str.title, words[1:])]
        name = self._joint.join(words)
        while name in self._names:
            name += (self._joint or "_") + self._words()
        self._names.add(name)
        return name

    def _add(
        self,
        inputs: Sequence[str],
        optional: str | None,
        describe: Callable[[], str],
        do: Texts,
        fields: dict[str, Texts],
        parts: Sequence[str],
        **more: Any,
    ) -> str:
        """Add a tool; return its name.

        Args:
          inputs: types of its required arguments.
          optional: type of an optional argument.
          describe: makes descriptions.
          do: texts that ask for a call.
          fields: texts that name each value that is returned, by its type.
          parts: two words for its names.
          **more: further keys of `x-openagent`.
        """
        arguments = [*inputs, optional] if optional else inputs
        mark = ""
        if optional:
            mark = self._rng.choice(OPTIONS).format(o=optional, v=f"{{{optional}}}")

        def marked(texts: Texts) -> Texts:
            return {pool: [text + mark for text in x] for pool, x in texts.items()}

        described = dict.fromkeys(describe() for _ in range(80))
        while len(described) < 5:
            described[f"{describe()}, {self._words()}"] = None
        descriptions, word = [*described], self._words
        names = {
            key: [self._tool_name(parts) for _ in "12"] for key in ("train", "test")
        }
        renamed = {x: {"train": [word()], "test": [word()]} for x in arguments}
        function = {
            "name": self._tool_name(parts),
            "description": descriptions[0],
            "parameters": {
                "type": "object",
                "properties": {name: self._schema(name) for name in arguments},
                "required": [*inputs],
            },
        }
        block = {
            "arguments": {name: name for name in arguments},
            "returns": {name: name for name in fields},
            "names": names,
            "descriptions": {"train": descriptions[1:3], "test": descriptions[3:5]},
            "argument_names": renamed,
            "requests": {
                "do": marked(do),
                "fields": {name: marked(texts) for name, texts in fields.items()},
            },
            **more,
        }
        tool = {"type": "function", "function": function, "x-openagent": block}
        self._tools.append(tool)
        return function["name"]

    def _schema(self, name: str) -> dict[str, Any]:
        known = self._types[name]
        if known["kind"] == "enum":
            return {"type": "string", "enum": known["values"]}
        if known["kind"] == "number":
            bounds = {key: known[key] for key in ("minimum", "maximum")}
            return {"type": "number" if "decimals" in known else "integer", **bounds}
        return {"type": "string"}
