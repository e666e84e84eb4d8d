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
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from openagent_jax import draw as draws
from openagent_jax import types
from openagent_jax.sandbox import tokenizer as tokenizers
from openagent_jax.sandbox.symbols import Range, Symbols
from openagent_jax.types import Faults, Goal, Task, Tools

NUM_WORDS = 4096
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
    spaced: Range = field(metadata=dict(static=True))  # same words, blank after
    names: Range = field(metadata=dict(static=True))
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

    # Some names end in a letter and a number.
    labels = [f"{letter}{n}" for letter in string.ascii_lowercase for n in range(100)]
    numbered = joined("_", labels)[: NUM_WORDS // 6]

    return RandomWorlds(
        words=symbols.add(words),
        spaced=symbols.add([word + " " for word in words]),
        names=symbols.add(joined("_") + numbered),
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
    """Words of the list that none of `avoid` is among, and invented ones.

    The invented are put together from tokens. Some are of short tokens, which many
    words share: to go on with such a word takes more than its last token.
    """
    known = sorted(word for word in tokenizers.words() if word.lower() not in avoid)
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
            words[word] = None
    return list(words)[:NUM_WORDS]


def sample_task(worlds: RandomWorlds, key: jax.Array, limits: types.Limits) -> Task:
    """One task of a world of its own."""
    num_tools, num_args, num_fields = (
        limits.num_tools,
        limits.num_args,
        limits.num_fields,
    )
    num_steps, num_constants = limits.num_steps, limits.num_constants
    # One draw for everything, handed out piece by piece.
    lots, used = jax.random.uniform(key, (40 * num_tools,)), 0

    def lot(*shape):
        nonlocal used
        begin, used = used, used + math.prod(shape)
        return lots[begin:used].reshape(shape)

    def draw(pool: Range, *shape):
        return pool.low + draws.below(lot(*shape), jnp.int32(len(pool)))

    def chance(rate, *shape):
        return lot(*shape) < rate

    def spread(pool: Range):
        ends = jnp.full(num_tools, pool.low), jnp.full(num_tools, pool.high)
        return draws.spread(lot(2), *ends)

    # Sizes: how many tools, how many of them are wanted.
    top = min(num_steps, worlds.max_tools)
    steps = 1 + draws.below(lot(), jnp.int32(top))
    low = jnp.maximum(worlds.min_tools, jnp.minimum(steps + 1, worlds.max_tools))
    shown = low + draws.below(lot(), worlds.max_tools + 1 - low)
    row = jnp.arange(num_tools)
    step = jnp.arange(num_steps)
    valid = step < steps

    # Any tool: arguments, fields, values; the first rows are the wanted ones.
    arity = jnp.searchsorted(jnp.array([0.1, 0.6, 0.9]), lot(num_tools))
    has_arg = jnp.arange(num_args)[None] < jnp.minimum(arity, num_args)[:, None]
    two = chance(0.2, num_tools)
    has_field = jnp.arange(num_fields)[None] < (1 + two)[:, None]
    result_low, result_high = _ranges(worlds, lot(num_tools, num_fields))
    arg_low, arg_high = _ranges(worlds, lot(num_tools, num_args))
    # Tools share names of arguments, but no tool has one twice.
    common = draw(worlds.words, 2 * num_args)
    turn = draws.below(lot(num_tools), jnp.int32(2 * num_args))
    shared = common[(turn[:, None] + jnp.arange(num_args)[None]) % (2 * num_args)]
    rare = draw(worlds.words, num_tools, num_args)
    arg_name = jnp.where(chance(0.6, num_tools)[:, None], shared, rare)
    result_name = draw(worlds.words, num_tools, num_fields)

    # The graph: an argument takes an earlier result, or a constant of the request.
    takes = chance(0.6, num_steps, num_args)
    pick = lot(num_steps, num_args)
    which = chance(0.5, num_steps, num_args)
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
            there = has_arg[c, a] & valid[c] & (from_step | (num_used < num_constants))
            f = (which[c, a] & has_field[earlier, 1]).astype(jnp.int32)
            result = num_constants + earlier * num_fields + f
            source = jnp.where(from_step, result, num_used)
            for other in line:  # no two arguments of one name
                there &= source != other
            line.append(jnp.where(there, source, -1))
            num_used = num_used + (there & ~from_step)
        sources.append(jnp.stack(line))
    source = jnp.stack(sources)
    wired = jnp.pad(source, ((0, num_tools - num_steps), (0, 0)), constant_values=-1)
    is_step = row < steps
    has_arg = jnp.where(is_step[:, None], wired >= 0, has_arg)
    from_result = wired >= num_constants
    flat = jnp.maximum(wired - num_constants, 0)
    fed_row, fed_field = flat // num_fields, flat % num_fields
    arg_name = jnp.where(from_result, result_name[fed_row, fed_field], arg_name)
    arg_low = jnp.where(from_result, result_low[fed_row, fed_field], arg_low)
    arg_high = jnp.where(from_result, result_high[fed_row, fed_field], arg_high)

    # A prerequisite: an earlier step, or a tool without arguments besides the steps.
    later = draws.below(lot(), steps)
    room = shown > steps
    gate = jnp.where(room & (chance(0.5) | (later == 0)), shown - 1, later - 1)
    gated = chance(0.4) & (gate >= 0)
    by_code = chance(0.7)
    own = gated & (gate >= steps)
    is_gate = own & (row == gate)
    has_arg &= ~is_gate[:, None]
    has_field &= ~is_gate[:, None]
    asks = gated & (row == later)

    tools = Tools(
        relation=row,
        arg_low=jnp.where(has_arg, arg_low, 0),
        arg_high=jnp.where(has_arg, arg_high, 0),
        result_low=jnp.where(has_field, result_low, 0),
        result_high=jnp.where(has_field, result_high, 0),
        code=spread(worlds.codes),
        code_from=jnp.where(asks & by_code, gate, -1),
        call_after=jnp.where(asks & ~by_code, gate, -1),
        effect=jnp.zeros(num_tools, bool),
        name=spread(worlds.names),
        description=jnp.zeros((num_tools, limits.num_pieces), jnp.int32),
        arg_name=arg_name,
        result_name=result_name,
        place=jnp.argsort(lot(num_tools)),
        visible=row < shown,
    )

    # Descriptions: two key words, and mostly another one after them, which several
    # tools share. Some tools that are not wanted share a key word with one that is.
    word = draws.below(lot(num_tools, 3), jnp.int32(len(worlds.words)))
    wanted = draws.below(lot(num_tools), steps)
    lure = jnp.searchsorted(jnp.array([0.15, 0.3]), lot(num_tools))
    lure = jnp.where(is_step, 2, lure)
    first, second = word[:, 0], word[:, 1]
    first = jnp.where(lure == 0, first[wanted], first)
    second = jnp.where(lure == 1, second[wanted], second)
    after = chance(0.7, num_tools)
    third = jnp.where(chance(0.7, num_tools), word[wanted % 2, 2], word[:, 2])
    link = draw(worlds.links, num_tools)
    link = jnp.where(chance(0.7, num_tools), link[0], link)
    description = jnp.stack(
        [
            worlds.spaced.low + first,
            worlds.words.low + second,
            jnp.where(after, link, 0),
            jnp.where(after, worlds.words.low + third, 0),
        ],
        axis=1,
    )
    description = jnp.pad(description, ((0, 0), (0, limits.num_pieces - 4)))

    # The constants, and the request: for each step its key words and constants.
    slot = jnp.arange(num_constants)[None, None]
    owner = (wired[:num_steps, :, None] == slot) & (wired[:num_steps, :, None] >= 0)
    low = jnp.sum(jnp.where(owner, tools.arg_low[:num_steps, :, None], 0), (0, 1))
    high = jnp.sum(jnp.where(owner, tools.arg_high[:num_steps, :, None], 0), (0, 1))
    constants = low + draws.below(lot(num_constants), jnp.maximum(high - low, 1))

    last = steps - 1
    # The order in which steps are told: as done, the last one first, or backwards.
    manner = jnp.searchsorted(jnp.array([0.55, 0.7]), lot())
    mention = jnp.stack([step, (step - 1) % steps, steps - 1 - step])[manner]
    mention = jnp.maximum(mention, 0)
    backwards = (step > 0) & ((manner == 2) | ((manner == 1) & (step == 1)))
    answer_field = (chance(0.5) & has_field[last, 1]).astype(jnp.int32)
    says = chance(0.5) | has_field[last, 1]

    # The key words come in either order; a constant stands after them, with a link,
    # or plainly before or between them, all in the order of the arguments: which is
    # which could not be told otherwise. A comma may end what is said of a step.
    constant = (source >= 0) & (source < num_constants)
    turned, joined = chance(0.2, num_steps), chance(0.5, num_steps)
    front = jnp.where(turned, second[:num_steps], first[:num_steps])
    back = jnp.where(turned, first[:num_steps], second[:num_steps])
    of, gaps = draw(worlds.of, *source.shape), draw(worlds.gaps, *source.shape)
    linked, named = chance(0.8, *source.shape), chance(0.5, *source.shape)
    spot = jnp.searchsorted(jnp.array([0.25, 0.4]), lot(*source.shape))
    spot = lax.cummax(spot, axis=1)
    comma = chance(0.4, num_steps) & ~(constant & (spot == 2)).any(axis=1)
    comma &= says | (step != mention[last])
    spaced, plain = worlds.spaced.low, worlds.words.low

    def plainly(spots):
        for a in range(num_args):
            there = constant[:, a] & (spot[:, a] == spots)
            yield jnp.where(there, -1 - source[:, a], 0)
            yield jnp.where(there, worlds.space, 0)

    pieces = [
        *plainly(0),
        spaced + front,
        jnp.where(turned & joined, draw(worlds.of, num_steps), 0),
        *plainly(1),
        jnp.where(comma, plain, spaced) + back,
    ]
    constant &= spot == 2
    for a in range(num_args):
        pieces += [
            jnp.where(constant[:, a] & linked[:, a], of[:, a], 0),
            jnp.where(constant[:, a] & named[:, a], arg_name[:num_steps, a], 0),
            jnp.where(constant[:, a] & named[:, a], worlds.space, 0),
            jnp.where(constant[:, a], -1 - source[:, a], 0),
            jnp.where(constant[:, a], gaps[:, a], 0),
        ]

    pieces.append(jnp.where(comma, worlds.gaps.low + _GAPS.index(", "), 0))
    pieces = jnp.stack(pieces, axis=1)[mention]

    # Between them small words that are always the same, or some that mean nothing.
    noise = chance(jnp.where(step == 0, 0.5, 0.15), num_steps) & ~backwards
    forth = jnp.where(step == 0, draw(worlds.openings), draw(worlds.glue, num_steps))
    after_comma = jnp.roll(comma[mention], 1) & (step > 0)
    forth = jnp.where(after_comma & chance(0.5, num_steps), 0, forth)
    random = draws.below(lot(num_steps, 2), jnp.int32(len(worlds.words)))
    begin = jnp.where(step == 0, worlds.capitals.low, spaced)
    article = draw(worlds.articles, num_steps)
    glue = [
        jnp.where(noise, begin + random[:, 0], forth),
        jnp.where(noise & chance(0.3, num_steps), spaced + random[:, 1], 0),
        jnp.where(noise & chance(0.8, num_steps), article, 0),
    ]
    glue[0] = jnp.where(backwards, draw(worlds.back, num_steps), glue[0])
    request = jnp.concatenate([jnp.stack(glue, axis=1), pieces], axis=1)
    request = jnp.where(valid[:, None], request, 0).reshape(-1)
    told = result_name[last, answer_field]
    ending = jnp.stack([draw(worlds.tell), told, draw(worlds.ends)])
    phrase = jnp.concatenate([request, jnp.where(says, ending, 0)])

    none = jnp.zeros(num_tools, jnp.int32)
    return Task(
        world=jax.random.key_data(key)[-1].astype(jnp.uint32),
        tools=replace(tools, description=description),
        goal=Goal(
            tool=jnp.where(valid, step, -1),
            source=source,
            answer=num_constants + last * num_fields + answer_field,
            family=steps - 1,
        ),
        faults=Faults(none, none - 1, none.astype(bool), none),
        phrase=phrase,
        constants=constants,
        shown=jnp.ones(num_constants, bool),
    )


def _ranges(worlds: RandomWorlds, lots: Float[Array, "..."]):
    """What values there are: words, pairs of words, numbers or codes."""
    pools = (worlds.words, worlds.pairs, worlds.numbers, worlds.codes)
    kind = jnp.searchsorted(jnp.array([0.35, 0.65, 0.9]), lots)
    low = jnp.array([pool.low for pool in pools])
    high = jnp.array([pool.high for pool in pools])
    return low[kind], high[kind]
