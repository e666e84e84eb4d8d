"""Make up texts that match the regular expression of a JSON schema.

A pattern may have literals, classes, groups, alternatives, counts and anchors.
Look-around, back-references and Unicode properties are named as unsupported. Every text
is matched with Python's `re` before it is used, so that what is only approximated here
(such as a word boundary) can lose texts, but cannot give wrong ones.
"""

import contextlib
import itertools
import math
import random
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from openagent_jax.domains import value_schema
from openagent_jax.text.lexicon import MAX_TEXT

MAX_ALL = 512  # languages with at most this many texts are enumerated
NUM_TRIES = 60  # for each text that is wanted
MAX_STEPS = 2000  # of writing one text
MAX_DEPTH = 40  # of nested groups
SPREADS = (3, 8, 24)  # most repetitions beyond the fewest
# Characters of a text, beyond the fewest, if its pattern repeats repetitions: the time
# that `re` needs can grow exponentially with the length of such a text.
NESTED_SPREAD = 8
# Values have no quotes and no backslashes; see `domain_schema`.
PRINTABLE = "".join(chr(x) for x in range(32, 127) if chr(x) not in '"\\')
_CLASSES = {
    "d": string.digits,
    "w": string.ascii_letters + string.digits + "_",
    "s": " ",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_BOUNDS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}")


class Unsupported(ValueError):
    """No texts can be made up; the message says what the pattern has."""


@dataclass(frozen=True)
class Chars:
    """One of some characters."""

    marks: str


@dataclass(frozen=True)
class Sequence:
    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Choice:
    options: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    part: "Node"
    low: int
    high: int | None  # None if there is no bound


Node = Chars | Sequence | Choice | Repeat


def values(pattern: str, num: int, accept: Callable[[str], bool]) -> list[str]:
    """Return different texts that a pattern matches as a whole.

    They depend on nothing but the arguments. If there are fewer than `num`, these are
    all that exist, or all that were found.

    >>> values("^[AB]-[12]$", 10, lambda text: text != "A-2")
    ['A-1', 'B-1', 'B-2']

    Args:
      pattern: the regular expression.
      num: how many texts are wanted.
      accept: tells whether a text can be used.

    Raises:
      Unsupported: no texts can be made up for this pattern.
    """
    matcher = value_schema.compiled(pattern)
    if matcher is None:
        raise Unsupported("a part that Python's re cannot read")
    tree = parse(pattern)
    every = _all(tree)
    texts = every if every is not None else _sampled(tree, pattern, num)
    found = (x for x in texts if matcher.fullmatch(x) and accept(x))
    return list(itertools.islice(dict.fromkeys(found), num))


def size(pattern: str) -> int | None:
    """Return how many texts a pattern matches; None for more than `MAX_ALL`.

    >>> size("^(asc|desc)$"), size("x+")
    (2, None)
    """
    every = _all(parse(pattern))
    return None if every is None else len(set(every))


def parse(pattern: str) -> Node:
    """Return the tree of a pattern.

    Raises:
      Unsupported: it has a part that is not understood.
    """
    parser = _Parser(pattern)
    tree = parser.choice(0)
    if parser.rest:
        raise Unsupported("a parenthesis that nothing opens")
    return tree


class _Parser:
    def __init__(self, pattern: str):
        self._pattern, self._at = pattern, 0

    @property
    def rest(self) -> str:
        return self._pattern[self._at :]

    def _take(self, text: str) -> bool:
        """Go on behind a text if it comes next; return whether it does."""
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise Unsupported("an end in the middle of a class or an escape")
        self._at += 1
        return self._pattern[self._at - 1]

    def choice(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise Unsupported(f"more than {MAX_DEPTH} groups inside one another")
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        parts = []
        while self.rest and self.rest[0] not in "|)":
            part = self._atom(depth)
            while (count := self._count()) is not None:
                part = Repeat(part, *count)
            parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _count(self) -> tuple[int, int | None] | None:
        """Read a quantifier; None if there is none."""
        if found := _COUNT.match(self._pattern, self._at):
            self._at = found.end()
            low, high = int(found[1]), found[3]
            bounds = low, low if found[2] is None else int(high) if high else None
        elif (mark := self.rest[:1]) in _BOUNDS:
            self._next()
            bounds = _BOUNDS[mark]
        else:
            return None
        self._take("?")  # a lazy quantifier matches the same texts
        return bounds

    def _atom(self, depth: int) -> Node:
        if self._take("("):
            return self._group(depth)
        if self._take("["):
            return self._class()
        if self._take("."):
            return Chars(PRINTABLE)
        if self._take("^") or self._take("$"):
            return Sequence(())
        if not self._take("\\"):
            return _chars(self._next())
        if self.rest[:1] in ("b", "B", "A", "Z", "z"):
            self._next()
            return Sequence(())
        return _chars(self._escaped())

    def _group(self, depth: int) -> Node:
        if self._take("?"):
            named = re.compile(r"P?<[A-Za-z_]\w*>").match(self._pattern, self._at)
            if named:
                self._at = named.end()
            elif not self._take(":"):
                is_look = re.match(r"<?[=!]", self.rest)
                raise Unsupported(
                    "look-around, as in (?=...)" if is_look else "a group with flags"
                )
        inner = self.choice(depth + 1)
        if not self._take(")"):
            raise Unsupported("a parenthesis that nothing closes")
        return inner

    def _class(self) -> Chars:
        negated, marks = self._take("^"), set()
        if self.rest[:1] == "]":
            raise Unsupported("an empty class")
        while not self._take("]"):
            low = self._one_of_class()
            if len(low) == 1 and re.match(r"-[^\]]", self.rest):
                self._next()
                high = self._one_of_class()
                if len(high) == 1:
                    marks |= {chr(x) for x in range(ord(*low), ord(*high) + 1)}
                    continue
                low |= high | {"-"}  # as in [\w-\d]
            marks |= low
        allowed = set(PRINTABLE) - marks if negated else marks
        return _chars(allowed)

    def _one_of_class(self) -> set[str]:
        if self._take("\\"):
            if self._take("b"):
                return {"\b"}
            return self._escaped()
        return {self._next()}

    def _escaped(self) -> set[str]:
        """Read what follows a backslash; return the characters that it stands for."""
        mark = self._next()
        if mark.lower() in _CLASSES:
            found = set(_CLASSES[mark.lower()])
            return found if mark.islower() else set(PRINTABLE) - found
        if mark in "123456789k":
            raise Unsupported("a back-reference")
        if mark in "pP":
            raise Unsupported("a Unicode property, as in \\p{L}")
        if mark in "xu":
            num = 2 if mark == "x" else 4
            digits = self.rest[:num]
            if not re.fullmatch(f"[0-9A-Fa-f]{{{num}}}", digits):
                raise Unsupported(f"an escape \\{mark} without {num} digits")
            self._at += num
            return {chr(int(digits, 16))}
        return {_CONTROLS.get(mark, mark)}


def _chars(marks: str | set[str]) -> Chars:
    """Return a node of those characters that a value can have."""
    usable = sorted(x for x in marks if x.isprintable() and x not in '"\\')
    usable = [x for x in usable if not 0xD800 <= ord(x) < 0xE000]
    if not usable:
        raise Unsupported("a character that a value cannot have")
    return Chars("".join(usable))


def _all(node: Node) -> list[str] | None:
    """Return all texts of a node; None if there may be more than `MAX_ALL`."""
    return _texts(node) if _bound(node) <= MAX_ALL else None


def _bound(node: Node) -> float:
    """Return a number that the texts of a node do not exceed."""
    if isinstance(node, Chars):
        return len(node.marks)
    if isinstance(node, Choice):
        return sum(map(_bound, node.options))
    if isinstance(node, Sequence):
        return math.prod(map(_bound, node.parts))
    if node.high is None or node.high > MAX_TEXT:
        return math.inf
    one = _bound(node.part)
    if one > MAX_ALL:
        return math.inf if node.high else 1
    return sum(one**n for n in range(node.low, node.high + 1))


def _texts(node: Node) -> list[str]:
    if isinstance(node, Chars):
        return list(node.marks)
    if isinstance(node, Choice):
        return [x for option in node.options for x in _texts(option)]
    if isinstance(node, Sequence):
        return ["".join(x) for x in itertools.product(*map(_texts, node.parts))]
    part = _texts(node.part)
    counts = range(node.low, (node.high or 0) + 1)
    return ["".join(x) for n in counts for x in itertools.product(part, repeat=n)]


def _sampled(tree: Node, pattern: str, num: int) -> Iterator[str]:
    """Yield random texts of a tree, the same ones in every run."""
    shortest = _shortest(tree)
    if shortest > MAX_TEXT:
        raise Unsupported(
            f"no text of at most {MAX_TEXT} characters: the shortest has {shortest}"
        )
    source = random.Random(pattern)
    longest = min(shortest + NESTED_SPREAD, MAX_TEXT) if _is_nested(tree) else MAX_TEXT
    for i in range(NUM_TRIES * num):
        writer = _Writer(source, SPREADS[i % len(SPREADS)], longest)
        with contextlib.suppress(_TooLong):
            writer.write(tree)
            yield "".join(writer.text)


def _is_nested(node: Node, in_repeat: bool = False) -> bool:
    """Return whether a repetition has alternatives or repetitions in it that vary."""
    if isinstance(node, Chars):
        return False
    if isinstance(node, Choice):
        return in_repeat or any(_is_nested(x) for x in node.options)
    if isinstance(node, Sequence):
        return any(_is_nested(x, in_repeat) for x in node.parts)
    varies = node.high is None or node.high > max(node.low, 1)
    return (in_repeat and varies) or _is_nested(node.part, in_repeat or varies)


def _shortest(node: Node) -> int:
    if isinstance(node, Chars):
        return 1
    if isinstance(node, Choice):
        return min(map(_shortest, node.options))
    if isinstance(node, Sequence):
        return sum(map(_shortest, node.parts))
    return node.low * _shortest(node.part)


class _TooLong(Exception):
    pass


class _Writer:
    """Writes one random text; a text that becomes too long is given up."""

    def __init__(self, source: random.Random, spread: int, longest: int):
        self.text: list[str] = []
        self._source, self._spread, self._longest = source, spread, longest
        self._num_steps = 0

    def write(self, node: Node) -> None:
        self._num_steps += 1
        if len(self.text) > self._longest or self._num_steps > MAX_STEPS:
            raise _TooLong
        if isinstance(node, Chars):
            plain = [x for x in node.marks if x.isascii() and x.isalnum()]
            self.text.append(self._source.choice(plain or node.marks))
        elif isinstance(node, Choice):
            self.write(self._source.choice(node.options))
        elif isinstance(node, Sequence):
            for part in node.parts:
                self.write(part)
        else:
            most = node.low + self._spread
            high = most if node.high is None else min(node.high, most)
            for _ in range(self._source.randint(node.low, max(node.low, high))):
                self.write(node.part)
