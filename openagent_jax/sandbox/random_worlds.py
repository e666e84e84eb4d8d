"""Endless random tool worlds: what the backbone learns to read on.

Names, descriptions, arguments, values, requests and the graph of calls are drawn
anew for every task from random words, so nothing but reading helps. The words share
no content word with any domain (a test checks it), and no task here holds a fault, a
refusal, a redirection or an inversion.

A description holds two key words, which the request repeats; an argument that takes
a result has the name of that result's field; prerequisites stand in the documents.
A request tells the steps in their order, the last one first, or backwards, and its
small words say which. Other words in it mean nothing, above all its first.
"""

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw as draws
from openagent_jax import types
from openagent_jax.sandbox import tokenizer as tokenizers
from openagent_jax.sandbox.symbols import Range, Symbols
from openagent_jax.types import Faults, Goal, Task, Tools

WORD, TITLE, PAIR, NUMBER, CODE = range(5)  # kinds of values
KINDS = np.array([5, 7, 1, 5, 2])  # how common they are
NUM_WORDS = 4096
NUM_SLOTS = 1000  # words that name arguments and results
NUM_FAMILIES, FAMILY_SIZE = 256, 32  # of names that begin alike
_GLUE = (
    "find the ", "get the ", "then the ", "and the ", "with the ", "now the ",
    "then find the ", "first the ", "please give the ", "give me the ", "also the ",
    "I need the ", "after that the ", "then use the ", "look for the ", "a ",
)  # fmt: skip
# What comes after one of these is to be done before.
_BACK = (
    "of the ", "after the ", "given the ", "from the ", "by the ", "near the ",
    "that needs the ", "once you have the ", "which follows the ",
)  # fmt: skip
_OF = ("of ", "for ", "with ", "from ", "at ", "in ", "on ", "to ", "by ")
_LINKS = (" of a ", " for the ", " in a ", " at the ", " near a ", " with ", " ")
_GAPS = (" ", ", ")
_ARTICLES = ("the ", "a ", "me the ", "its ")
_TELL = ("tell me the ", "what is the ", "then say the ", "report the ", "show the ")
_ENDS = (".", "?")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RandomWorlds:
    """Ranges of the symbols to draw from (static), and the sizes of a task."""

    words: Range = field(metadata=dict(static=True))
    slots: Range = field(metadata=dict(static=True))  # some of the words
    spaced: Range = field(metadata=dict(static=True))  # same words, blank after
    names: Range = field(metadata=dict(static=True))
    kin: Range = field(metadata=dict(static=True))  # names, family by family
    titles: Range = field(metadata=dict(static=True))  # as people and places have
    pairs: Range = field(metadata=dict(static=True))
    capitals: Range = field(metadata=dict(static=True))  # same words as `spaced`
    openings: Range = field(metadata=dict(static=True))  # of a request
    glue: Range = field(metadata=dict(static=True))
    back: Range = field(metadata=dict(static=True))  # what follows comes before
    of: Range = field(metadata=dict(static=True))
    links: Range = field(metadata=dict(static=True))
    gaps: Range = field(metadata=dict(static=True))
    articles: Range = field(metadata=dict(static=True))
    tell: Range = field(metadata=dict(static=True))
    ends: Range = field(metadata=dict(static=True))
    space: int = field(metadata=dict(static=True))
    numbers: Range = field(metadata=dict(static=True))
    codes: Range = field(metadata=dict(static=True))
    min_tools: int = field(metadata=dict(static=True))
    max_tools: int = field(metadata=dict(static=True))


def compile(
    symbols: Symbols, tokenizer, avoid: set[str], min_tools: int, max_tools: int
) -> RandomWorlds:
    """Add random words (none of `avoid`) to the symbols."""
    words = random_words(tokenizer, avoid)
    rng = np.random.default_rng(1)

    def joined(mark: str, seconds: Sequence[str] = words) -> list[str]:
        pairs = zip(
            rng.choice(words, NUM_WORDS), rng.choice(seconds, NUM_WORDS), strict=True
        )
        return list(dict.fromkeys(mark.join(pair) for pair in pairs))

    # Some names end in a letter and a number; so do those of half of the families.
    labels = [f"{letter}{n}" for letter in string.ascii_lowercase for n in range(100)]
    numbered = joined("_", labels)[: NUM_WORDS // 6]
    kin = []
    for i, head in enumerate(rng.choice(words, NUM_FAMILIES, replace=False)):
        tails = rng.choice([words, labels][i % 2], FAMILY_SIZE, replace=False)
        kin += [f"{head}_{tail}" for tail in tails]

    rng.shuffle(words)
    plain = symbols.add(words)
    return RandomWorlds(
        words=plain,
        slots=Range(plain.low, plain.low + NUM_SLOTS),
        spaced=symbols.add([word + " " for word in words]),
        names=symbols.add(joined("_") + numbered),
        kin=symbols.add(kin),
        titles=symbols.add([*map(str.title, joined(" ")), *map(str.title, words)]),
        pairs=symbols.add(joined(" ")),
        capitals=symbols.add([word.capitalize() + " " for word in words]),
        openings=symbols.add([text.capitalize() for text in _GLUE]),
        glue=symbols.add(_GLUE),
        back=symbols.add(_BACK),
        of=symbols.add(_OF),
        links=symbols.add(_LINKS),
        gaps=symbols.add(_GAPS),
        articles=symbols.add(_ARTICLES),
        tell=symbols.add(_TELL),
        ends=symbols.add(_ENDS),
        space=symbols.one(" "),
        numbers=symbols.numbers,
        codes=symbols.codes,
        min_tools=min_tools,
        max_tools=max_tools,
    )


def random_words(tokenizer, avoid: set[str]) -> list[str]:
    """Words of the list without those of `avoid`, and invented ones; in lower case.

    The invented are put together from tokens. Some are of short tokens, which many
    words share: to go on with such a word takes more than its last token.
    """
    known = sorted({word.lower() for word in tokenizers.words()} - avoid)
    tokens = [tokenizer.decode([i]) for i in range(tokenizer.get_vocab_size())]
    tokens = [t for t in tokens if t.isascii() and t.isalpha()]
    short = [t for t in tokens if len(t) <= 2]
    long = [t for t in tokens if len(t) > 2]
    rng = np.random.default_rng(0)
    words = dict.fromkeys(word for word in known if len(word) > 2)
    while len(words) < NUM_WORDS:
        if rng.random() < 0.3:
            word = "".join(rng.choice(short, rng.choice([2, 3])))
        else:
            word = "".join(rng.choice(long, rng.choice([1, 2])))
        if 3 <= len(word) <= 16 and word.lower() not in avoid:
            words[word.lower()] = None
    return list(words)[:NUM_WORDS]


class _Lots:
    """One draw for a whole task, handed out piece by piece."""

    def __init__(self, key: jax.Array, num: int):
        self._lots, self._used = jax.random.uniform(key, (num,)), 0

    def __call__(self, *shape: int) -> Float[Array, "*shape"]:
        begin, self._used = self._used, self._used + math.prod(shape)
        assert self._used <= len(self._lots), "draw more in sample_task"
        return self._lots[begin : self._used].reshape(shape)

    def below(self, num, *shape: int) -> Int[Array, "*shape"]:
        return draws.below(self(*shape), jnp.int32(num))

    def of(self, pool: Range, *shape: int) -> Int[Array, "*shape"]:
        return pool.low + self.below(len(pool), *shape)

    def chance(self, rate, *shape: int) -> Bool[Array, "*shape"]:
        return self(*shape) < rate

    def spread(self, pool: Range, num: int) -> Int[Array, "num"]:
        ends = jnp.full(num, pool.low), jnp.full(num, pool.high)
        return draws.spread(self(2), *ends)


def sample_task(worlds: RandomWorlds, key: jax.Array, limits: types.Limits) -> Task:
    """One task of a world of its own."""
    num_tools, num_steps = limits.num_tools, limits.num_steps
    num_args, num_fields = limits.num_args, limits.num_fields
    # Enough for any limits: as many as the lines below take, and some.
    of_tools = num_tools * (20 + 2 * num_args + 2 * num_fields)
    of_steps = num_steps * (20 + 10 * num_args)
    lots = _Lots(key, of_tools + of_steps + 4 * limits.num_constants + 40)

    # Sizes: how many tools, how many of them are wanted: the first rows.
    steps = 1 + lots.below(min(num_steps, worlds.max_tools))
    low = jnp.maximum(worlds.min_tools, jnp.minimum(steps + 1, worlds.max_tools))
    shown = low + lots.below(worlds.max_tools + 1 - low)
    row = jnp.arange(num_tools)
    is_step = row < steps

    # Any tool: arguments, fields, values.
    arity = jnp.searchsorted(jnp.array([0.1, 0.6, 0.9]), lots(num_tools))
    has_arg = jnp.arange(num_args)[None] < jnp.minimum(arity, num_args)[:, None]
    two = lots.chance(0.2, num_tools)
    has_field = jnp.arange(num_fields)[None] < (1 + two)[:, None]
    # Tools share names of arguments, but no tool has one twice.
    common = lots.of(worlds.slots, 2 * num_args)
    turn = lots.below(2 * num_args, num_tools)
    shared = common[(turn[:, None] + jnp.arange(num_args)[None]) % (2 * num_args)]
    rare = lots.of(worlds.slots, num_tools, num_args)
    arg_name = jnp.where(lots.chance(0.6, num_tools)[:, None], shared, rare)
    result_name = lots.of(worlds.slots, num_tools, num_fields)

    # An argument that takes a result has its name, and so its kind.
    source = _wire(lots, limits, steps, has_arg, has_field)
    wired = jnp.pad(source, ((0, num_tools - num_steps), (0, 0)), constant_values=-1)
    has_arg = jnp.where(is_step[:, None], wired >= 0, has_arg)
    from_result = wired >= limits.num_constants
    fed = jnp.maximum(wired - limits.num_constants, 0)
    fed = fed // num_fields, fed % num_fields
    arg_name = jnp.where(from_result, result_name[fed], arg_name)
    arg_low, arg_high = _ranges(worlds, arg_name)
    result_low, result_high = _ranges(worlds, result_name)

    # A prerequisite: an earlier step, or a tool without arguments besides the steps.
    later = lots.below(steps)
    room = shown > steps
    gate = jnp.where(room & (lots.chance(0.5) | (later == 0)), shown - 1, later - 1)
    gated = lots.chance(0.4) & (gate >= 0)
    by_code = lots.chance(0.7)
    is_gate = gated & (gate >= steps) & (row == gate)
    has_arg &= ~is_gate[:, None]
    has_field &= ~is_gate[:, None]
    asks = gated & (row == later)

    # In some worlds names begin alike, with one word or another.
    family = lots.below(NUM_FAMILIES, 2)[lots.below(2, num_tools)]
    stride = 1 + 2 * lots.below(FAMILY_SIZE // 2)
    member = (lots.below(FAMILY_SIZE) + row * stride) % FAMILY_SIZE
    alike = worlds.kin.low + family * FAMILY_SIZE + member
    name = lots.spread(worlds.names, num_tools)
    name = jnp.where(lots.chance(0.4), alike, name)

    description, keys = _describe(worlds, lots, limits, steps, is_step)
    tools = Tools(
        relation=row,
        arg_low=jnp.where(has_arg, arg_low, 0),
        arg_high=jnp.where(has_arg, arg_high, 0),
        result_low=jnp.where(has_field, result_low, 0),
        result_high=jnp.where(has_field, result_high, 0),
        code=lots.spread(worlds.codes, num_tools),
        code_from=jnp.where(asks & by_code, gate, -1),
        call_after=jnp.where(asks & ~by_code, gate, -1),
        effect=jnp.zeros(num_tools, bool),
        name=name,
        description=description,
        arg_name=arg_name,
        result_name=result_name,
        place=jnp.argsort(lots(num_tools)),
        visible=row < shown,
    )

    # Each constant has the kind of the argument that takes it.
    slot = jnp.arange(limits.num_constants)[None, None]
    takes = source[:, :, None] == slot
    low, high = (
        jnp.sum(jnp.where(takes, ends[:num_steps, :, None], 0), (0, 1))
        for ends in (tools.arg_low, tools.arg_high)
    )
    size = jnp.maximum(high - low, 1)
    constants = low + lots.below(size, limits.num_constants)

    last = steps - 1
    answer = (lots.chance(0.5) & has_field[last, 1]).astype(jnp.int32)
    says = lots.chance(0.5) | has_field[last, 1]
    names = arg_name[:num_steps]
    request = _request(
        worlds, lots, limits, steps, says, source, keys[:num_steps], names
    )
    told = result_name[last, answer]
    ending = jnp.stack([lots.of(worlds.tell), told, lots.of(worlds.ends)])

    none = jnp.zeros(num_tools, jnp.int32)
    return Task(
        world=jax.random.key_data(key)[-1].astype(jnp.uint32),
        tools=tools,
        goal=Goal(
            tool=jnp.where(is_step, row, -1)[:num_steps],
            source=source,
            answer=limits.num_constants + last * num_fields + answer,
            family=steps - 1,
        ),
        faults=Faults(none, none - 1, none.astype(bool), none),
        phrase=jnp.concatenate([request, jnp.where(says, ending, 0)]),
        constants=constants,
        shown=jnp.ones(limits.num_constants, bool),
    )


def _wire(
    lots: _Lots,
    limits: types.Limits,
    steps: Int[Array, ""],
    has_arg: Bool[Array, "N A"],
    has_field: Bool[Array, "N F"],
) -> Int[Array, "C A"]:
    """The graph: what fills each argument of a step, as in `Goal.source`: an earlier
    result, or a constant of the request."""
    num_steps, num_args = limits.num_steps, limits.num_args
    num_fields, num_constants = limits.num_fields, limits.num_constants
    takes = lots.chance(0.6, num_steps, num_args)
    pick = lots(num_steps, num_args)
    which = lots.chance(0.5, num_steps, num_args)
    num_used = jnp.int32(0)
    sources = []
    for c in range(num_steps):
        line = []
        for a in range(num_args):
            # Mostly the result just before, so that chains are common.
            earlier = jnp.where(
                pick[c, a] < 0.6, c - 1, (pick[c, a] * 7919 % 1 * c).astype(jnp.int32)
            )
            earlier = jnp.clip(earlier - (a > 0), 0, max(c - 1, 0))
            from_step = (c > 0) & (takes[c, a] | (num_used >= num_constants))
            there = has_arg[c, a] & (c < steps)
            there &= from_step | (num_used < num_constants)
            f = (which[c, a] & has_field[earlier, 1]).astype(jnp.int32)
            result = num_constants + earlier * num_fields + f
            source = jnp.where(from_step, result, num_used)
            for other in line:  # no two arguments of one name
                there &= source != other
            line.append(jnp.where(there, source, -1))
            num_used = num_used + (there & ~from_step)
        sources.append(jnp.stack(line))
    return jnp.stack(sources)


def _describe(
    worlds: RandomWorlds,
    lots: _Lots,
    limits: types.Limits,
    steps: Int[Array, ""],
    is_step: Bool[Array, "N"],
) -> tuple[Int[Array, "N E"], Int[Array, "N 2"]]:
    """The pieces of the descriptions, and their two key words, counted from 0.

    After these there is mostly another word, which several tools share. Some tools that
    are not wanted share a key word with one that is.
    """
    num_tools = limits.num_tools
    word = lots.below(len(worlds.words), num_tools, 3)
    wanted = lots.below(steps, num_tools)
    lure = jnp.searchsorted(jnp.array([0.15, 0.3]), lots(num_tools))
    lured = (lure[:, None] == jnp.arange(2)[None]) & ~is_step[:, None]
    keys = jnp.where(lured, word[wanted, :2], word[:, :2])
    after = lots.chance(0.7, num_tools)
    third = jnp.where(lots.chance(0.7, num_tools), word[wanted % 2, 2], word[:, 2])
    link = lots.of(worlds.links, num_tools)
    link = jnp.where(lots.chance(0.7, num_tools), link[0], link)
    pieces = [
        worlds.spaced.low + keys[:, 0],
        worlds.words.low + keys[:, 1],
        jnp.where(after, link, 0),
        jnp.where(after, worlds.words.low + third, 0),
    ]
    room = ((0, 0), (0, limits.num_pieces - len(pieces)))
    return jnp.pad(jnp.stack(pieces, axis=1), room), keys


def _request(
    worlds: RandomWorlds,
    lots: _Lots,
    limits: types.Limits,
    steps: Int[Array, ""],
    says: Bool[Array, ""],
    source: Int[Array, "C A"],
    keys: Int[Array, "C 2"],
    arg_name: Int[Array, "C A"],
) -> Int[Array, "P"]:
    """The pieces of a request: of each step its key words and its constants.

    Args:
      worlds: symbols to draw from.
      lots: randomness.
      limits: sizes.
      steps: how many there are.
      says: whether the name of what is asked for comes after this.
      source: as in `Goal.source`.
      keys: words of the descriptions, counted from 0.
      arg_name: symbols.
    """
    num_steps, num_args = source.shape
    step, last = jnp.arange(num_steps), steps - 1
    spaced, plain = worlds.spaced.low, worlds.words.low
    constant = (source >= 0) & (source < limits.num_constants)

    # Constants are told in the order of the arguments, or, where their kinds tell them
    # apart, in some steps the last one first.
    kind = _kind(worlds, arg_name)
    kind = jnp.where(kind == PAIR, WORD, kind)
    alike = (kind[:, :, None] == kind[:, None]) & ~jnp.eye(num_args, dtype=bool)[None]
    alike &= constant[:, :, None] & constant[:, None]
    turn = lots.chance(0.5, num_steps) & ~alike.any(axis=(1, 2))
    source, constant, arg_name = (
        jnp.where(turn[:, None], x[:, ::-1], x) for x in (source, constant, arg_name)
    )

    # The order in which steps are told: as done, the last one first, or backwards.
    manner = jnp.searchsorted(jnp.array([0.55, 0.7]), lots())
    mention = jnp.stack([step, (step - 1) % steps, steps - 1 - step])[manner]
    mention = jnp.maximum(mention, 0)
    backwards = (step > 0) & ((manner == 2) | ((manner == 1) & (step == 1)))

    # The key words come in either order; a constant stands after them, with a link,
    # or plainly before or between them.
    turned, joined = lots.chance(0.2, num_steps), lots.chance(0.5, num_steps)
    front, back = jnp.where(turned, keys[:, ::-1].T, keys.T)
    of, gaps = (lots.of(pool, *source.shape) for pool in (worlds.of, worlds.gaps))
    linked, named = (lots.chance(rate, *source.shape) for rate in (0.8, 0.5))
    spot = jnp.searchsorted(jnp.array([0.3, 0.45]), lots(*source.shape))
    spot = lax.cummax(spot, axis=1)
    before, between, behind = (constant & (spot == i) for i in range(3))
    # A comma may end what is said of a step, or come before a constant without a link.
    first = behind & (jnp.cumsum(behind, axis=1) == 1)
    bare = jnp.any(first & ~linked & ~named, axis=1)
    comma = lots.chance(0.4, num_steps) & ~behind.any(axis=1)
    comma &= says | (step != mention[last])
    listed = bare & lots.chance(0.6, num_steps)

    def plainly(there):
        for a in range(num_args):
            yield jnp.where(there[:, a], -1 - source[:, a], 0)
            yield jnp.where(there[:, a], worlds.space, 0)

    pieces = [
        *plainly(before),
        spaced + front,
        jnp.where(turned & joined, lots.of(worlds.of, num_steps), 0),
        *plainly(between),
        jnp.where(comma | listed, plain, spaced) + back,
        jnp.where(listed, worlds.gaps.low + _GAPS.index(", "), 0),
    ]
    for a in range(num_args):
        pieces += [
            jnp.where(behind[:, a] & linked[:, a], of[:, a], 0),
            jnp.where(behind[:, a] & named[:, a], arg_name[:, a], 0),
            jnp.where(behind[:, a] & named[:, a], worlds.space, 0),
            jnp.where(behind[:, a], -1 - source[:, a], 0),
            jnp.where(behind[:, a], gaps[:, a], 0),
        ]
    pieces.append(jnp.where(comma, worlds.gaps.low + _GAPS.index(", "), 0))
    pieces = jnp.stack(pieces, axis=1)[mention]

    # Between them small words that are always the same, or some that mean nothing.
    noise = lots.chance(jnp.where(step == 0, 0.5, 0.15), num_steps) & ~backwards
    glue = jnp.where(
        step == 0, lots.of(worlds.openings), lots.of(worlds.glue, num_steps)
    )
    after_comma = jnp.roll(comma[mention], 1) & (step > 0)
    glue = jnp.where(after_comma & lots.chance(0.5, num_steps), 0, glue)
    glue = jnp.where(backwards, lots.of(worlds.back, num_steps), glue)
    random = lots.below(len(worlds.words), num_steps, 2)
    begin = jnp.where(step == 0, worlds.capitals.low, spaced) + random[:, 0]
    then = noise & lots.chance(0.3, num_steps)
    article = noise & lots.chance(0.6, num_steps)
    words = [
        jnp.where(noise, begin, glue),
        jnp.where(then, spaced + random[:, 1], 0),
        jnp.where(article, lots.of(worlds.articles, num_steps), 0),
    ]
    pieces = jnp.concatenate([jnp.stack(words, axis=1), pieces], axis=1)
    return jnp.where((step < steps)[:, None], pieces, 0).reshape(-1)


def _kind(worlds: RandomWorlds, name: Int[Array, "..."]) -> Int[Array, "..."]:
    """The kind of what an argument or result of a name holds.

    It is the same in all worlds, and so can be known, as it can of `city` or `hour`.
    """
    place = (name - worlds.slots.low) % np.sum(KINDS)
    return jnp.searchsorted(np.cumsum(KINDS), place, side="right")


def _ranges(worlds: RandomWorlds, name: Int[Array, "..."]):
    """The values that an argument or result of a name can have.

    Most names of things have capitals: where two values stand side by side, it can be
    seen where one ends.
    """
    titles = worlds.titles
    pools = (worlds.words, titles, worlds.pairs, worlds.numbers, worlds.codes)
    kind = _kind(worlds, name)
    low = jnp.array([pool.low for pool in pools])
    high = jnp.array([pool.high for pool in pools])
    return low[kind], high[kind]
