"""Endless random tool worlds: what the backbone learns to read on.

Names, descriptions, arguments, values, requests and the graph of calls are drawn
anew for every task from random words, so nothing but reading helps. The words share
no content word with any domain (a test checks it), and no task here holds a fault, a
refusal, a redirection or an inversion.

A description holds two key words, which the request repeats; an argument that takes
a result has the name of that result's field; prerequisites stand in the documents.
A request tells the steps in their order, the last one first, or backwards, and its
small words say which. Other words in it mean nothing, above all its first and last.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw as draws
from openagent_jax import types
from openagent_jax.sandbox.random_words import FAMILY_SIZE, GAPS, NUM_FAMILIES, Words
from openagent_jax.sandbox.symbols import Range
from openagent_jax.types import Faults, Goal, Task, Tools

WORD, TITLE, PAIR, NUMBER, CODE = range(5)  # kinds of values
KINDS = np.array([5, 7, 1, 5, 2])  # how common they are
NUM_ENDING = 6  # pieces at the end of a request, after its steps


@dataclass(frozen=True)
class RandomWorlds:
    """What to draw from, and how many tools are shown."""

    words: Words
    min_tools: int
    max_tools: int


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
    words = worlds.words
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
    common = lots.of(words.slots, 2 * num_args)
    turn = lots.below(2 * num_args, num_tools)
    shared = common[(turn[:, None] + jnp.arange(num_args)[None]) % (2 * num_args)]
    rare = lots.of(words.slots, num_tools, num_args)
    arg_name = jnp.where(lots.chance(0.6, num_tools)[:, None], shared, rare)
    result_name = lots.of(words.slots, num_tools, num_fields)

    # An argument that takes a result has its name, and so its kind.
    source = _wire(lots, limits, steps, has_arg, has_field)
    wired = jnp.pad(source, ((0, num_tools - num_steps), (0, 0)), constant_values=-1)
    has_arg = jnp.where(is_step[:, None], wired >= 0, has_arg)
    from_result = wired >= limits.num_constants
    fed = jnp.maximum(wired - limits.num_constants, 0)
    fed = fed // num_fields, fed % num_fields
    arg_name = jnp.where(from_result, result_name[fed], arg_name)
    arg_low, arg_high = _ranges(words, arg_name)
    result_low, result_high = _ranges(words, result_name)

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

    # In half of the worlds names begin alike, with one word or another.
    family = lots.below(NUM_FAMILIES, 2)[lots.below(2, num_tools)]
    stride = 1 + 2 * lots.below(FAMILY_SIZE // 2)
    member = (lots.below(FAMILY_SIZE) + row * stride) % FAMILY_SIZE
    alike = words.kin.low + family * FAMILY_SIZE + member
    name = lots.spread(words.names, num_tools)
    name = jnp.where(lots.chance(0.5), alike, name)

    description, keys = _describe(words, lots, limits, steps)
    tools = Tools(
        relation=row,
        arg_low=jnp.where(has_arg, arg_low, 0),
        arg_high=jnp.where(has_arg, arg_high, 0),
        result_low=jnp.where(has_field, result_low, 0),
        result_high=jnp.where(has_field, result_high, 0),
        code=lots.spread(words.codes, num_tools),
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
        words, lots, limits, steps, says, source, keys[:num_steps], names
    )
    # After a comma there may be some words that mean nothing.
    tail, long, told = lots.chance(0.2), lots.chance(0.4), result_name[last, answer]
    random = lots.below(len(words.plain), 2)
    ending = [
        jnp.where(says, lots.of(words.tell), 0),
        jnp.where(says, told, 0),
        jnp.where(tail, words.gaps.low + GAPS.index(", "), 0),
        jnp.where(tail & long, words.spaced.low + random[0], 0),
        jnp.where(tail, words.plain.low + random[1], 0),
        jnp.where(lots.chance(0.8), lots.of(words.ends), 0),
    ]
    assert len(ending) == NUM_ENDING

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
        phrase=jnp.concatenate([request, jnp.stack(ending)]),
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
    words: Words,
    lots: _Lots,
    limits: types.Limits,
    steps: Int[Array, ""],
) -> tuple[Int[Array, "N E"], Int[Array, "N 2"]]:
    """The pieces of the descriptions, and their two key words, counted from 0.

    After these there is mostly another word, which many tools share: what tells them
    apart is then further back. Some share a key word with a step before them. In
    half of the worlds all words are common ones. Blanks end a piece, as they end a
    token: what is put together here reads as one text does.
    """
    num_tools = limits.num_tools
    size = jnp.where(lots.chance(0.5), len(words.common), len(words.plain))
    # No word twice, so that no two descriptions are the same.
    ends = jnp.zeros(3 * num_tools, jnp.int32), jnp.full(3 * num_tools, size)
    word = draws.spread(lots(2), *ends).reshape(num_tools, 3)
    earlier = lots.below(jnp.minimum(jnp.arange(num_tools), steps), num_tools)
    lure = jnp.searchsorted(jnp.array([0.2, 0.4]), lots(num_tools))
    lured = lure[:, None] == jnp.arange(2)[None]
    keys = jnp.where(lured, word[earlier, :2], word[:, :2])
    after = lots.chance(0.8, num_tools)
    third = jnp.where(lots.chance(0.85, num_tools), word[earlier % 2, 2], word[:, 2])
    link = lots.of(words.links, num_tools)
    link = jnp.where(lots.chance(0.85, num_tools), link[0], link)
    linked = after & lots.chance(0.85, num_tools)
    pieces = [
        words.spaced.low + keys[:, 0],
        jnp.where(after, words.spaced.low, words.plain.low) + keys[:, 1],
        jnp.where(linked, link, 0),
        jnp.where(after, words.plain.low + third, 0),
    ]
    room = ((0, 0), (0, limits.num_pieces - len(pieces)))
    return jnp.pad(jnp.stack(pieces, axis=1), room), keys


def _request(
    words: Words,
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
      words: symbols to draw from.
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
    spaced, plain = words.spaced.low, words.plain.low
    constant = (source >= 0) & (source < limits.num_constants)

    # Constants are told in the order of the arguments, or, where their kinds tell them
    # apart, in some steps the last one first.
    kind = _kind(words, arg_name)
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
    of, gaps = (lots.of(pool, *source.shape) for pool in (words.of, words.gaps))
    linked, named = (lots.chance(rate, *source.shape) for rate in (0.8, 0.5))
    spot = jnp.searchsorted(jnp.array([0.4, 0.55]), lots(*source.shape))
    spot = lax.cummax(spot, axis=1)
    before, between, behind = (constant & (spot == i) for i in range(3))
    # A comma may end what is said of a step, or come before a constant without a link.
    first = behind & (jnp.cumsum(behind, axis=1) == 1)
    bare = jnp.any(first & ~linked & ~named, axis=1)
    closes = ~says & (step == mention[last])  # nothing but the ending comes after it
    comma = lots.chance(0.4, num_steps) & ~behind.any(axis=1) & ~closes
    listed = bare & lots.chance(0.6, num_steps)
    at_end = closes & ~behind.any(axis=1)

    def plainly(there, gap):
        for a in range(num_args):
            yield jnp.where(there[:, a], -1 - source[:, a], 0)
            yield jnp.where(there[:, a], gap[:, a], 0)

    # What comes after constants may be joined to them.
    joins = before.any(axis=1) & lots.chance(0.35, num_steps)
    spaces = jnp.full(source.shape, words.space)
    pieces = [
        *plainly(before, jnp.where(lots.chance(0.3, *source.shape), gaps, spaces)),
        jnp.where(joins, lots.of(words.joins, num_steps), 0),
        spaced + front,
        jnp.where(turned & joined, lots.of(words.of, num_steps), 0),
        *plainly(between, spaces),
        jnp.where(comma | listed | at_end, plain, spaced) + back,
        jnp.where(listed, words.gaps.low + GAPS.index(", "), 0),
    ]
    ends = closes[:, None] & (jnp.cumsum(behind[:, ::-1], axis=1)[:, ::-1] == 1)
    for a in range(num_args):
        pieces += [
            jnp.where(behind[:, a] & linked[:, a], of[:, a], 0),
            jnp.where(behind[:, a] & named[:, a], arg_name[:, a], 0),
            jnp.where(behind[:, a] & named[:, a], words.space, 0),
            jnp.where(behind[:, a], -1 - source[:, a], 0),
            jnp.where(behind[:, a] & ~ends[:, a], gaps[:, a], 0),
        ]
    pieces.append(jnp.where(comma, words.gaps.low + GAPS.index(", "), 0))
    pieces = jnp.stack(pieces, axis=1)[mention]

    # Between them small words that are always the same, or some that mean nothing.
    noise = lots.chance(jnp.where(step == 0, 0.5, 0.15), num_steps) & ~backwards
    glue = jnp.where(step == 0, lots.of(words.openings), lots.of(words.glue, num_steps))
    after_comma = jnp.roll(comma[mention], 1) & (step > 0)
    glue = jnp.where(after_comma & lots.chance(0.5, num_steps), 0, glue)
    glue = jnp.where(backwards, lots.of(words.back, num_steps), glue)
    random = lots.below(len(words.plain), num_steps, 2)
    hails = noise & (step == 0) & lots.chance(0.2, num_steps)  # as "hey, " does
    title = words.titles.high - len(words.plain)
    begin = jnp.where(step == 0, jnp.where(hails, title, words.capitals.low), spaced)
    then = noise & lots.chance(0.4, num_steps)
    article = noise & lots.chance(0.4, num_steps)
    start = [
        jnp.where(noise, begin + random[:, 0], glue),
        jnp.where(hails, words.gaps.low + GAPS.index(", "), 0),
        jnp.where(then, spaced + random[:, 1], 0),
        jnp.where(article, lots.of(words.articles, num_steps), 0),
    ]
    pieces = jnp.concatenate([jnp.stack(start, axis=1), pieces], axis=1)
    return jnp.where((step < steps)[:, None], pieces, 0).reshape(-1)


def _kind(words: Words, name: Int[Array, "..."]) -> Int[Array, "..."]:
    """The kind of what an argument or result of a name holds.

    It is the same in all worlds, and so can be known, as it can of `city` or `hour`.
    """
    place = (name - words.slots.low) % np.sum(KINDS)
    return jnp.searchsorted(np.cumsum(KINDS), place, side="right")


def _ranges(words: Words, name: Int[Array, "..."]):
    """The values that an argument or result of a name can have.

    Most names of things have capitals: where two values stand side by side, it can be
    seen where one ends.
    """
    w = words
    pools = (w.plain, w.titles, w.pairs, w.numbers, w.codes)  # as the kinds
    kind = _kind(words, name)
    low = jnp.array([pool.low for pool in pools])
    high = jnp.array([pool.high for pool in pools])
    return low[kind], high[kind]
