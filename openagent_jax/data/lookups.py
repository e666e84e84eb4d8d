"""Short exercises for the pretraining of a backbone: a request about a few tools.

A task of the sandbox has a prompt of some hundred tokens and a handful of decisions:
which tool to call, and which words of the request are its arguments. A small decoder
needs many thousands of such decisions before it compares a request with documents at
all (docs/backbone.md). An exercise has the same decisions in about half as many tokens,
and several fill a row.

The comparison begins soon if easier ones lead to it. So an easy request mostly repeats
the description of a tool. As `difficulty` rises, requests have only some of its words,
others that mean nothing, and ask for several calls.

All content words are random, and differ from one exercise to the next. There are no
faults, refusals or inversions.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from openagent_jax.text import style
from openagent_jax.types import Batch

LEAST_TOKENS = 256  # a row has at least this many; few exercises are longer
NUM_TOOLS = (2, 7)  # fewest and most tools; easy exercises have at most `FEW_TOOLS`
FEW_TOOLS = 3
MAX_KEYS = 6  # most words of a description that no other tool has
MAX_SHARED = 4  # most words of a description that other tools may have too
# Share of exercises whose tools have no arguments, and which end with the first call:
# of easy exercises, and of hard ones.
BRIEF = 0.9, 0.2
MEANINGLESS = 0.7  # share of names that say nothing about their tool
MANY_STEPS = 0.6  # share of requests that take several calls
LINKED = 0.7  # share of tools whose description names their arguments
NEEDS = 0.4  # share of tools that require another tool to be called first
CODE_LETTERS = "bdfghjkmnprstvz"
PLURAL = 0.2  # share of the words of documents that have an `s` there
MAX_NOISE = 12  # most words of a request that mean nothing
NESTED = 0.5  # share of calls that are named after the call that uses their result
GLUE = ("the ", "of ", "a ", "that ", "with ", "by ", "for ", "in ", "and ", "from ",
        "an ", "to ", "at ", "on ", "that is ", "which ", "who ", "has ", "will ",
        "be ", "its ", "one ", "some ", "is ", "are ", "under ", "of a ", "of the ",
        "for a ", "in the ", "by the ", "that a ")  # fmt: skip
OPENINGS = ("find the ", "please ", "give me the ", "the ", "what is the ", "get the ",
            "I need the ", "look for the ", "tell me the ")  # fmt: skip
JOINS = (", then ", " and ", ", and ", ". After that ", "; ", ". Then ", ", also ")
ARTICLES = ("a ", "the ", "some ", "one ", "")
TAKES = ("for ", "with ", "of ", "to ", "from ", "at ", "in ", "on ", "by ")
ASKS = (", and tell me the ", ". What is the ", ", then report the ", "; show the ")
OF_RESULT = ("of the ", "for the ", "by the ", "with the ", "that has the ", "in the ",
             "which belongs to the ")  # fmt: skip
THAT = ("that ", "the ", "this ", "its ")

Message = tuple[str, bool]  # a text, and whether the agent writes it


class Pools(NamedTuple):
    """What rows are made of."""

    words: Sequence[str]
    common: Sequence[str]  # those of one token
    formatted: Sequence[str]  # values like dates, amounts and identifiers


class _Argument(NamedTuple):
    name: str
    optional: bool
    choices: Sequence[str]  # none if it takes any value
    number: bool
    link: str = ""  # what is before it in the description and before its value


class _Tool(NamedTuple):
    description: str
    core: str  # the description, without its arguments
    keys: Sequence[str]  # words of the description that no other tool has
    shared: Sequence[str]  # its other words
    name: str
    arguments: Sequence[_Argument]
    field: str  # of its result
    before: str = ""  # the name of a tool without arguments that must be called before
    code: bool = False  # whether it takes a code that the other one returns


class Lookups:
    """Rows of exercises, each a function of the seed and of its number."""

    def __init__(self, tokenizer: Any, pools: Pools, seed: Sequence[int]):
        """
        Args:
          tokenizer: a `tokenizers.Tokenizer` with the tokens of the compact style.
          pools: words and values.
          seed: integers that no other run of a chain has together: its seed and its
            place in the chain.
        """
        self._tokenizer, self.pools, self._seed = tokenizer, pools, seed

    def fixed_tokens(self) -> set[int]:
        """Return the tokens of the texts that all exercises have in common."""
        texts = (*GLUE, *OPENINGS, *JOINS, *TAKES, *ASKS, *THAT, *OF_RESULT)
        texts += tuple(text[0].upper() + text[1:] for text in OPENINGS)
        return {i for x in self._tokenizer.encode_batch([*texts]) for i in x.ids}

    def batch(
        self, step: int, num_rows: int, num_columns: int, difficulty: float
    ) -> Batch:
        """Return the batch of a step, as NumPy arrays.

        Args:
          step: the number of the step.
          num_rows: number of rows.
          num_columns: number of columns; at least `LEAST_TOKENS`. Each row has as many
            exercises as fit into it, each in a segment of its own.
          difficulty: of the hardest exercises, from 0 to 1. That of each is this times
            a random factor with a mean of two thirds.
        """
        tokens = np.zeros((num_rows, num_columns), np.int32)
        loss_mask = np.zeros_like(tokens, bool)
        positions, segments = np.zeros_like(tokens), np.zeros_like(tokens)
        for row in range(num_rows):
            rng, end = random.Random(f"{self._seed} {step} {row}"), 0
            for ids, own in self._written(rng, difficulty, num_columns):
                if end + len(ids) > num_columns:
                    break
                here = slice(end, end + len(ids))
                tokens[row, here], loss_mask[row, here] = ids, own
                positions[row, here] = np.arange(len(ids))
                segments[row, here] = segments[row].max() + 1
                end = here.stop
        divisor = loss_mask.sum(axis=1).astype(np.float32)
        return Batch(tokens, positions, segments, loss_mask, divisor)  # type: ignore

    def _written(
        self, rng: random.Random, difficulty: float, most: int
    ) -> Iterator[tuple[list[int], list[bool]]]:
        """Yield exercises as tokens, and which of them the agent writes."""
        while True:
            level = difficulty * rng.random() ** 0.5
            messages = exercise(rng, self.pools, level)
            parts = self._tokenizer.encode_batch([text for text, _ in messages])
            ids = [i for part in parts for i in part.ids]
            owned = zip(parts, messages, strict=True)
            # Those that fit into no row are rare.
            if len(ids) <= most:
                yield ids, [own for part, (_, own) in owned for _ in part.ids]


def exercise(rng: random.Random, pools: Pools, difficulty: float) -> list[Message]:
    """Return a conversation about a few tools, with one request.

    Args:
      rng: the source of all choices.
      pools: words and values.
      difficulty: from 0 (a request repeats a description) to 1.
    """
    is_common = rng.random() > 0.5 * difficulty
    words = iter(rng.sample(pools.common if is_common else pools.words, 200))
    brief = rng.random() < np.interp(difficulty, (0, 1), BRIEF)
    tools = _with_needs(rng, _tools(rng, words, difficulty, brief), difficulty)
    noise = [next(words) for _ in range(40)]
    if brief:  # where tools have arguments, a value more could be taken for theirs
        noise += [_value(rng, pools) for _ in range(20)]
    num = 1
    if not brief and rng.random() < MANY_STEPS * difficulty:
        num = min(rng.choice([2, 2, 3]), len(tools))
    system, user, assistant, _ = style.SPEAKERS
    texts, messages, known, found = [], list[Message](), dict[str, str](), ""
    chosen = rng.sample(tools, num)
    codes = {x.before: _code(rng) for x in tools if x.before}
    # What others need is asked for first, so that it is called once.
    chosen.sort(key=lambda tool: tool.name not in codes)
    called = set[str]()

    def call(tool, given, found):
        code = {style.CODE: codes[tool.before]} if tool.code else {}
        result = {tool.field: found}
        if tool.name in codes:
            result |= {style.CODE: codes[tool.name]}
        called.add(tool.name)
        messages.extend(_turn(tool, given | code, result))

    for tool in chosen:
        if tool.before and tool.before not in called:
            other = next(x for x in tools if x.name == tool.before)
            call(other, {}, _value(rng, pools))
        given = {
            x.name: known.get(x.name) or _value(rng, pools, x)
            for x in tool.arguments
            if not x.optional or x.name in known or rng.random() < 0.5
        }
        nested = not known.keys().isdisjoint(given) and rng.random() < NESTED
        said = {} if nested else known
        text = _clause(rng, tool, given, known, said, noise, difficulty)
        if nested:
            text += " " + rng.choice(OF_RESULT) + texts.pop()
        texts.append(text)
        found = _value(rng, pools)
        call(tool, given, found)
        known = {tool.field: found}
    messages.append((f"{style.ANSWER}{found}{style.END}", True))
    if brief:
        messages = messages[:1]

    request = texts[0] + "".join(rng.choice(JOINS) + text for text in texts[1:])
    if not brief and rng.random() < 0.5:
        request += rng.choice(ASKS) + chosen[-1].field
    if rng.random() < 0.8 * difficulty:
        request = request[0].upper() + request[1:] + rng.choice(".?")
    documents = system + "".join(map(_document, tools))
    prompt = [user, request, documents, user, request, assistant]
    return [*((text, False) for text in prompt), *messages]


def _tools(
    rng: random.Random, words: Iterator[str], difficulty: float, brief: bool
) -> list[_Tool]:
    common = [next(words) for _ in range(MAX_SHARED + 1)]
    heads = [next(words) for _ in range(2)]
    fields = [next(words) for _ in range(5)]
    most = max(round(MAX_KEYS * difficulty), rng.choice([1, 2, 3]))
    rare = 0.6 * difficulty
    tools = []
    least, limit = NUM_TOOLS
    limit = FEW_TOOLS + round((limit - FEW_TOOLS) * difficulty)
    for _ in range(rng.randint(least, limit)):
        keys = [next(words) for _ in range(rng.randint(1, most))]
        shared = rng.sample(common, rng.randint(0, round(MAX_SHARED * difficulty)))
        described = [*keys, *shared]
        rng.shuffle(described)
        text = "".join(
            (rng.choice(GLUE) if rng.random() < rare else "")
            + (word + "s " if rng.random() < PLURAL * difficulty else word + " ")
            for word in described
        )
        text = (rng.choice(GLUE) if rng.random() < rare else "") + text.strip()
        parts = [next(words) for _ in range(rng.choice([1, 2, 2, 3]))]
        if rng.random() > MEANINGLESS:
            parts = [*keys[:2], parts[0]][: len(parts)]
        if len(parts) > 1 and rng.random() < 0.5 * difficulty:
            parts[0] = rng.choice(heads)
        num = 0 if brief else rng.choice([0, 1, 1, 1, 2, 2, 3])
        *names, field = rng.sample(fields, num + 1)
        arguments = [_argument(rng, x, words, difficulty) for x in names]
        core, name = text, "_".join(parts)
        if rng.random() < LINKED * difficulty:
            links = rng.sample(TAKES, num)
            arguments = [
                x._replace(link=link) for x, link in zip(arguments, links, strict=True)
            ]
            for x in rng.sample(arguments, num):
                text += f" {x.link}{rng.choice(ARTICLES)}{x.name}"
        tools.append(_Tool(text, core, keys, shared, name, arguments, field))
    return tools


def _with_needs(
    rng: random.Random, tools: Sequence[_Tool], difficulty: float
) -> list[_Tool]:
    """Return the tools, some of which need another one to be called before."""
    plain = [tool for tool in tools if not tool.arguments]
    others = rng.sample(plain, min(1, len(plain)))
    made = []
    for tool in tools:
        if others and tool not in others and rng.random() < NEEDS * difficulty:
            tool = tool._replace(before=others[0].name, code=rng.random() < 0.6)
        made.append(tool)
    return made


def _code(rng: random.Random) -> str:
    return "".join(rng.sample(CODE_LETTERS, 3)) + rng.choice("23456789")


def _argument(
    rng: random.Random, name: str, words: Iterator[str], difficulty: float
) -> _Argument:
    plain = rng.random() > 0.5 * difficulty
    if plain:
        return _Argument(name, False, (), False)
    choices = [next(words) for _ in range(rng.choice([0, 2, 3]))]
    number = not choices and rng.random() < 0.5
    return _Argument(name, rng.random() < 0.6, choices, number)


def _document(tool: _Tool) -> str:
    first, comma, last, none = style.DOC_PARAMS
    text = style.DOC_OPEN + tool.description + style.DOC_NAME + tool.name
    code_from, call_after, end = style.DOC_NEEDS
    needs = (code_from if tool.code else call_after) + tool.before + end
    close = (needs if tool.before else "") + style.DOC_CLOSE
    if not tool.arguments:
        return text + none + close
    arguments = []
    for x in tool.arguments:
        kind = "number" if x.number else ""
        kind = "one of " + ", ".join(x.choices) if x.choices else kind
        says = (" (optional)" if x.optional else "") + (f": {kind}" if kind else "")
        arguments.append(x.name + says)
    return text + first + comma.join(arguments) + last + close


def _turn(tool: _Tool, given: dict[str, str], result: dict[str, str]) -> list[Message]:
    """Return a call of a tool, and its result."""
    *_, assistant, tool_speaks = style.SPEAKERS
    written = ",".join(f'"{name}":"{value}"' for name, value in result.items())
    return [
        (_call(tool, given) + style.END, True),
        (f"{tool_speaks}{{{written}}}{assistant}", False),
    ]


def _call(tool: _Tool, given: dict[str, str]) -> str:
    first, equals, comma, last, none = style.CALL_ARGS
    text = style.CALL_OPEN + tool.name
    if not given:
        return text + none
    return text + first + comma.join(k + equals + v for k, v in given.items()) + last


def _clause(
    rng: random.Random,
    tool: _Tool,
    given: dict[str, str],
    known: dict[str, str],
    said: dict[str, str],
    noise: Sequence[str],
    difficulty: float,
) -> str:
    """Return the part of a request that asks for a call, as text.

    Args:
      rng: the source of all choices.
      tool: the tool to call.
      given: its arguments.
      known: the result of the call before, whose value is not said.
      said: the same, or empty if the request has named it already.
      noise: words that mean nothing; requests may contain some of them.
      difficulty: see `exercise`.
    """
    rare = 0.6 * difficulty
    # Often a single one, which may stand anywhere in the description.
    keys = rng.sample(tool.keys, 1 + int(len(tool.keys) * rng.random() ** 2))
    keys += [word for word in tool.shared if rng.random() < 0.5]
    most = round(MAX_NOISE * difficulty)
    keys += rng.sample(noise, int((most + 1) * rng.random() ** 2))
    rng.shuffle(keys)
    parts = [(rng.choice(GLUE) if rng.random() < rare else "") + word for word in keys]
    if rng.random() > difficulty:
        parts = [tool.core]
    # Values stand in the order of the arguments, if nothing else tells them apart.
    links = {x.name: x.link for x in tool.arguments}
    named = len(given) > 1 and rng.random() < 0.5
    in_order = not named and not all(links[name] for name in given)
    order = [*given] if in_order else rng.sample([*given], len(given))
    values = []
    for name in order:
        if name in said:
            link = links[name] or rng.choice(TAKES)
            values.append(link + rng.choice(THAT) + name)
        elif name not in known:
            link = rng.choice(TAKES) if rng.random() < 0.7 else ""
            link = links[name] or link
            # A word in lower case could be one that means nothing.
            labelled = named or given[name].islower() or rng.random() < 0.2
            label = name + " " if labelled else ""
            values.append(link + label + given[name])
    if values and rng.random() < 0.2 * difficulty:
        parts = [values[0], *parts, *values[1:]]
    else:
        parts += values
    opening = rng.choice(OPENINGS) if rng.random() < 0.7 * difficulty else ""
    return opening + " ".join(parts)


def _value(rng: random.Random, pools: Pools, of: _Argument | None = None) -> str:
    if of and of.choices:
        return rng.choice(of.choices)
    kind = 0.6 if of and of.number else rng.random()
    if kind < 0.3:
        return rng.choice(pools.words).title()
    if kind < 0.55:
        return " ".join(rng.choice(pools.words).title() for _ in "12")
    if kind < 0.7:
        return str(rng.randint(0, 999))
    if kind < 0.8:
        return rng.choice(pools.words)
    return rng.choice(pools.formatted)
