"""Endless random tool worlds, on which the backbone is pretrained.

Names, descriptions, arguments, values, requests and the graph of calls are sampled
from random words for every task, so that only reading helps. No content word is also
a word of a domain (a test checks it), and no task has a fault, a refusal, a
redirection or an inversion.

A description holds two key words, which the request repeats. An argument that takes a
result has the name of that result's field. Prerequisites are stated in the documents.
A request lists the steps in their order, the last one first, or in reverse order, and
its function words tell which. It also has other words, mostly at its beginning and its
end, which mean nothing.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools.types import Goal, Task, Tools, no_faults
from openagent_jax.environments.tools.worlds.random_words import (
    GAPS,
    NAMES_PER_HEAD,
    NUM_HEADS,
    Words,
)
from openagent_jax.text.symbols import Range

WORD, TITLE, PAIR, NUMBER, CODE, FORMATTED = range(6)  # kinds of values
KINDS = np.array([5, 7, 1, 4, 2, 4])  # their relative frequencies
NUM_ENDING = 6  # number of pieces of a request after those of its steps


@dataclass(frozen=True)
class RandomWorlds:
    """The words to draw from, and the least and largest number of tools shown."""

    words: Words
    min_tools: int
    max_tools: int


class _Uniforms:
    """Uniform numbers for a whole task, drawn at once and handed out in order."""

    def __init__(self, key: jax.Array, num: int):
        self._values, self._used = jax.random.uniform(key, (num,)), 0

    def __call__(self, *shape: int) -> Float[Array, "*shape"]:
        """Return the next numbers, in [0, 1)."""
        begin, self._used = self._used, self._used + math.prod(shape)
        assert self._used <= len(self._values), "draw more in sample_task"
        return self._values[begin : self._used].reshape(shape)

    def below(self, num, *shape: int) -> Int[Array, "*shape"]:
        """Return integers in [0, num)."""
        return draw.below(self(*shape), jnp.int32(num))

    def choice(self, pool: Range, *shape: int) -> Int[Array, "*shape"]:
        """Return symbols of a range."""
        return pool.low + self.below(len(pool), *shape)

    def bernoulli(self, rate, *shape: int) -> Bool[Array, "*shape"]:
        """Return booleans that are true with probability `rate`."""
        return self(*shape) < rate

    def distinct(self, pool: Range, num: int) -> Int[Array, "num"]:
        """Return symbols of a range, no two of which are equal."""
        ends = jnp.full(num, pool.low), jnp.full(num, pool.high)
        return draw.distinct_symbols(self(2), *ends)


def sample_task(worlds: RandomWorlds, key: jax.Array, limits: Limits) -> Task:
    """Sample a task with a world of its own.

    Args:
      worlds: the words to draw from, and how many tools are shown.
      key: PRNG key; the task is a function of it.
      limits: sizes of the arrays of the task.

    Returns:
      One task, without a batch axis. The first rows of its tools are the steps.
    """
    words = worlds.words
    num_tools, num_steps = limits.num_tools, limits.num_steps
    num_args, num_fields = limits.num_args, limits.num_fields
    # As many numbers as the code below takes under any limits, and some more.
    of_tools = num_tools * (20 + 2 * num_args + 2 * num_fields)
    of_steps = num_steps * (20 + 10 * num_args)
    u = _Uniforms(key, of_tools + of_steps + 4 * limits.num_constants + 40)

    # How many tools are shown, and how many of them, the first rows, are steps.
    steps = 1 + u.below(min(num_steps, worlds.max_tools))
    low = jnp.maximum(worlds.min_tools, jnp.minimum(steps + 1, worlds.max_tools))
    shown = low + u.below(worlds.max_tools + 1 - low)
    row = jnp.arange(num_tools)
    is_step = row < steps

    # Arguments and result fields of every tool.
    arity = jnp.searchsorted(jnp.array([0.1, 0.6, 0.9]), u(num_tools))
    has_arg = jnp.arange(num_args)[None] < jnp.minimum(arity, num_args)[:, None]
    has_second = u.bernoulli(0.2, num_tools)
    has_field = jnp.arange(num_fields)[None] < (1 + has_second)[:, None]
    # Tools share argument names, but the arguments of one tool have different names.
    common = u.choice(words.slots, 2 * num_args)
    offset = u.below(2 * num_args, num_tools)
    shared = common[(offset[:, None] + jnp.arange(num_args)[None]) % (2 * num_args)]
    rare = u.choice(words.slots, num_tools, num_args)
    arg_name = jnp.where(u.bernoulli(0.6, num_tools)[:, None], shared, rare)
    result_name = u.choice(words.slots, num_tools, num_fields)

    # An argument that takes a result has the name of its field, and so its kind.
    source = _wire(u, limits, steps, has_arg, has_field)
    wired = jnp.pad(source, ((0, num_tools - num_steps), (0, 0)), constant_values=-1)
    has_arg = jnp.where(is_step[:, None], wired >= 0, has_arg)
    from_result = wired >= limits.num_constants
    origin = jnp.maximum(wired - limits.num_constants, 0)
    origin = origin // num_fields, origin % num_fields
    arg_name = jnp.where(from_result, result_name[origin], arg_name)
    arg_low, arg_high = _ranges(words, arg_name)
    result_low, result_high = _ranges(words, result_name)

    # One step may need a prerequisite: an earlier step, or an additional tool that
    # takes no arguments.
    later = u.below(steps)
    room = shown > steps
    gate = jnp.where(room & (u.bernoulli(0.5) | (later == 0)), shown - 1, later - 1)
    gated = u.bernoulli(0.4) & (gate >= 0)
    by_code = u.bernoulli(0.7)
    is_gate = gated & (gate >= steps) & (row == gate)
    has_arg &= ~is_gate[:, None]
    has_field &= ~is_gate[:, None]
    needs_gate = gated & (row == later)

    # In half of the worlds all names begin with one of two words.
    head = u.below(NUM_HEADS, 2)[u.below(2, num_tools)]
    stride = 1 + 2 * u.below(NAMES_PER_HEAD // 2)
    member = (u.below(NAMES_PER_HEAD) + row * stride) % NAMES_PER_HEAD
    alike = words.same_head.low + head * NAMES_PER_HEAD + member
    name = u.distinct(words.names, num_tools)
    name = jnp.where(u.bernoulli(0.5), alike, name)

    description, keys = _describe(words, u, limits, steps)
    tools = Tools(
        relation=row,
        arg_low=jnp.where(has_arg, arg_low, 0),
        arg_high=jnp.where(has_arg, arg_high, 0),
        arg_also=jnp.zeros((*arg_high.shape, limits.num_unions, 2), jnp.int32),
        arg_default=jnp.full_like(arg_high, -1),
        result_low=jnp.where(has_field, result_low, 0),
        result_high=jnp.where(has_field, result_high, 0),
        result_path=jnp.zeros((*result_name.shape, 0), jnp.int32),
        code=u.distinct(words.codes, num_tools),
        code_from=jnp.where(needs_gate & by_code, gate, -1),
        call_after=jnp.where(needs_gate & ~by_code, gate, -1),
        effect=jnp.zeros(num_tools, bool),
        name=name,
        description=description,
        arg_name=arg_name,
        arg_path=jnp.zeros((*arg_name.shape, limits.depth - 1), jnp.int32),
        result_name=result_name,
        place=jnp.argsort(u(num_tools)),
        visible=row < shown,
        document=jnp.full(num_tools, -1, jnp.int32),
    )

    # Each constant has the kind of the argument that takes it.
    slot = jnp.arange(limits.num_constants)[None, None]
    takes = source[:, :, None] == slot
    low, high = (
        jnp.sum(jnp.where(takes, ends[:num_steps, :, None], 0), (0, 1))
        for ends in (tools.arg_low, tools.arg_high)
    )
    size = jnp.maximum(high - low, 1)
    constants = low + u.below(size, limits.num_constants)

    last = steps - 1
    answer = (u.bernoulli(0.5) & has_field[last, 1]).astype(jnp.int32)
    # Where the result has two fields, the request has to name the one it asks for.
    asks_by_name = u.bernoulli(0.5) | has_field[last, 1]
    names = arg_name[:num_steps]
    request = _request(
        words, u, limits, steps, asks_by_name, source, keys[:num_steps], names
    )
    # Some requests end in a comma and one or two words that mean nothing.
    tail, long = u.bernoulli(0.2), u.bernoulli(0.4)
    random = u.below(len(words.plain), 2)
    ending = [
        jnp.where(asks_by_name, u.choice(words.tell), 0),
        jnp.where(asks_by_name, result_name[last, answer], 0),
        jnp.where(tail, words.gaps.low + GAPS.index(", "), 0),
        jnp.where(tail & long, words.spaced.low + random[0], 0),
        jnp.where(tail, words.plain.low + random[1], 0),
        jnp.where(u.bernoulli(0.8), u.choice(words.ends), 0),
    ]
    assert len(ending) == NUM_ENDING

    return Task(
        world=jax.random.key_data(key)[-1].astype(jnp.uint32),
        tools=tools,
        goal=Goal(
            tool=jnp.where(is_step, row, -1)[:num_steps],
            source=source,
            answer=limits.num_constants + last * num_fields + answer,
            kind=steps - 1,
        ),
        faults=no_faults(num_tools, limits.num_steps),
        phrase=jnp.concatenate([request, jnp.stack(ending)]),
        constants=constants,
        said=constants,
        shown=jnp.ones(limits.num_constants, bool),
    )


def _wire(
    u: _Uniforms,
    limits: Limits,
    steps: Int[Array, ""],
    has_arg: Bool[Array, "N A"],
    has_field: Bool[Array, "N F"],
) -> Int[Array, "C A"]:
    """Sample the graph of calls: the source of each argument of a step.

    A source is an earlier result or a constant of the request, or -1 if there is no
    such argument; see `Goal.source`.
    """
    num_steps, num_args = limits.num_steps, limits.num_args
    num_fields, num_constants = limits.num_fields, limits.num_constants
    takes_result = u.bernoulli(0.6, num_steps, num_args)
    pick = u(num_steps, num_args)
    takes_second = u.bernoulli(0.5, num_steps, num_args)
    num_used = jnp.int32(0)
    sources = []
    for c in range(num_steps):
        row = []
        for a in range(num_args):
            # Mostly the result of the step before, so that chains are common.
            earlier = jnp.where(
                pick[c, a] < 0.6, c - 1, (pick[c, a] * 7919 % 1 * c).astype(jnp.int32)
            )
            earlier = jnp.clip(earlier - (a > 0), 0, max(c - 1, 0))
            from_step = (c > 0) & (takes_result[c, a] | (num_used >= num_constants))
            exists = has_arg[c, a] & (c < steps)
            exists &= from_step | (num_used < num_constants)
            f = (takes_second[c, a] & has_field[earlier, 1]).astype(jnp.int32)
            result = num_constants + earlier * num_fields + f
            source = jnp.where(from_step, result, num_used)
            for other in row:  # arguments need different names
                exists &= source != other
            row.append(jnp.where(exists, source, -1))
            num_used = num_used + (exists & ~from_step)
        sources.append(jnp.stack(row))
    return jnp.stack(sources)


def _describe(
    words: Words,
    u: _Uniforms,
    limits: Limits,
    steps: Int[Array, ""],
) -> tuple[Int[Array, "N E"], Int[Array, "N 2"]]:
    """Sample the descriptions.

    A description is two key words and mostly a third word, which many tools share, so
    that what distinguishes tools is not always at the end. Some tools share a key word
    with an earlier step. In half of the worlds all words are common ones. A blank is
    always at the end of a piece, so that the tokens of the pieces are those of the text
    as a whole.

    Returns:
      The pieces of each description (E of them), as symbols, and its two key words, by
      their index among the plain words.
    """
    num_tools = limits.num_tools
    size = jnp.where(u.bernoulli(0.5), len(words.common), len(words.plain))
    # No word occurs twice, so that no two descriptions are equal.
    ends = jnp.zeros(3 * num_tools, jnp.int32), jnp.full(3 * num_tools, size)
    word = draw.distinct_symbols(u(2), *ends).reshape(num_tools, 3)
    earlier = u.below(jnp.minimum(jnp.arange(num_tools), steps), num_tools)
    # Which key word is that of an earlier step: the first, the second, or neither.
    shared = jnp.searchsorted(jnp.array([0.2, 0.4]), u(num_tools))
    shared = shared[:, None] == jnp.arange(2)[None]
    keys = jnp.where(shared, word[earlier, :2], word[:, :2])
    has_third = u.bernoulli(0.8, num_tools)
    third = jnp.where(u.bernoulli(0.85, num_tools), word[earlier % 2, 2], word[:, 2])
    link = u.choice(words.links, num_tools)
    link = jnp.where(u.bernoulli(0.85, num_tools), link[0], link)
    linked = has_third & u.bernoulli(0.85, num_tools)
    pieces = [
        words.spaced.low + keys[:, 0],
        jnp.where(has_third, words.spaced.low, words.plain.low) + keys[:, 1],
        jnp.where(linked, link, 0),
        jnp.where(has_third, words.plain.low + third, 0),
    ]
    room = ((0, 0), (0, limits.num_pieces - len(pieces)))
    return jnp.pad(jnp.stack(pieces, axis=1), room), keys


def _request(
    words: Words,
    u: _Uniforms,
    limits: Limits,
    steps: Int[Array, ""],
    asks_by_name: Bool[Array, ""],
    source: Int[Array, "C A"],
    keys: Int[Array, "C 2"],
    arg_name: Int[Array, "C A"],
) -> Int[Array, "P"]:
    """Sample the request without its ending: key words and constants of each step.

    Args:
      words: symbols to draw from.
      u: uniform numbers.
      limits: sizes of the arrays of a task.
      steps: how many steps there are.
      asks_by_name: whether the ending names what is asked for.
      source: see `Goal.source`.
      keys: the key words of each step, by their index among the plain words.
      arg_name: symbols of the names of arguments.

    Returns:
      The pieces: symbols, and -1 - q for constant q. Each step has the same number.
    """
    num_steps, num_args = source.shape
    step, last = jnp.arange(num_steps), steps - 1
    spaced, plain = words.spaced.low, words.plain.low
    constant = (source >= 0) & (source < limits.num_constants)

    # The constants of a step come in the order of its arguments. In some of the steps
    # whose constants differ in kind they come in reverse order.
    kind = _kind(words, arg_name)
    kind = jnp.where(kind == PAIR, WORD, kind)
    alike = (kind[:, :, None] == kind[:, None]) & ~jnp.eye(num_args, dtype=bool)[None]
    alike &= constant[:, :, None] & constant[:, None]
    reverse = u.bernoulli(0.5, num_steps) & ~alike.any(axis=(1, 2))
    source, constant, arg_name = (
        jnp.where(reverse[:, None], x[:, ::-1], x) for x in (source, constant, arg_name)
    )

    # Steps are listed in their order, with the last one first, or in reverse order.
    listing = jnp.searchsorted(jnp.array([0.55, 0.7]), u())
    order = jnp.stack([step, (step - 1) % steps, steps - 1 - step])[listing]
    order = jnp.maximum(order, 0)
    backwards = (step > 0) & ((listing == 2) | ((listing == 1) & (step == 1)))

    # The key words come in either order. A constant follows them, often after a word
    # that links it, or it stands alone before or between them.
    swapped, joined = u.bernoulli(0.2, num_steps), u.bernoulli(0.5, num_steps)
    front, back = jnp.where(swapped, keys[:, ::-1].T, keys.T)
    of, gaps = (u.choice(pool, *source.shape) for pool in (words.of, words.gaps))
    linked, named = (u.bernoulli(rate, *source.shape) for rate in (0.8, 0.5))
    spot = jnp.searchsorted(jnp.array([0.4, 0.55]), u(*source.shape))
    spot = lax.cummax(spot, axis=1)
    before, between, behind = (constant & (spot == i) for i in range(3))
    # A comma may end the text of a step, or precede a constant that has no link.
    first = behind & (jnp.cumsum(behind, axis=1) == 1)
    bare = jnp.any(first & ~linked & ~named, axis=1)
    closes = ~asks_by_name & (step == order[last])  # only the ending follows
    comma = u.bernoulli(0.4, num_steps) & ~behind.any(axis=1) & ~closes
    listed = bare & u.bernoulli(0.6, num_steps)
    at_end = closes & ~behind.any(axis=1)

    def alone(there, gap):
        for a in range(num_args):
            yield jnp.where(there[:, a], -1 - source[:, a], 0)
            yield jnp.where(there[:, a], gap[:, a], 0)

    # Key words may be joined to the constants before them, as in "Oslo and its".
    joins = before.any(axis=1) & u.bernoulli(0.35, num_steps)
    spaces = jnp.full(source.shape, words.space)
    pieces = [
        *alone(before, jnp.where(u.bernoulli(0.3, *source.shape), gaps, spaces)),
        jnp.where(joins, u.choice(words.joins, num_steps), 0),
        spaced + front,
        jnp.where(swapped & joined, u.choice(words.of, num_steps), 0),
        *alone(between, spaces),
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
    pieces = jnp.stack(pieces, axis=1)[order]

    # A step begins with function words, which are the same in all worlds, or with
    # words that mean nothing.
    noise = u.bernoulli(jnp.where(step == 0, 0.5, 0.15), num_steps) & ~backwards
    glue = jnp.where(
        step == 0, u.choice(words.openings), u.choice(words.glue, num_steps)
    )
    after_comma = jnp.roll(comma[order], 1) & (step > 0)
    glue = jnp.where(after_comma & u.bernoulli(0.5, num_steps), 0, glue)
    glue = jnp.where(backwards, u.choice(words.back, num_steps), glue)
    random = u.below(len(words.plain), num_steps, 2)
    greets = noise & (step == 0) & u.bernoulli(0.2, num_steps)  # like "Hey, "
    title = words.titles.high - len(words.plain)
    begin = jnp.where(step == 0, jnp.where(greets, title, words.capitals.low), spaced)
    then = noise & u.bernoulli(0.4, num_steps)
    article = noise & u.bernoulli(0.4, num_steps)
    start = [
        jnp.where(noise, begin + random[:, 0], glue),
        jnp.where(greets, words.gaps.low + GAPS.index(", "), 0),
        jnp.where(then, spaced + random[:, 1], 0),
        jnp.where(article, u.choice(words.articles, num_steps), 0),
    ]
    pieces = jnp.concatenate([jnp.stack(start, axis=1), pieces], axis=1)
    return jnp.where((step < steps)[:, None], pieces, 0).reshape(-1)


def _kind(words: Words, name: Int[Array, "..."]) -> Int[Array, "..."]:
    """Return the kind of value of arguments and results, given their names.

    It is the same in all worlds and can be learned, just as that of `city` or `hour`.
    """
    place = (name - words.slots.low) % np.sum(KINDS)
    return jnp.searchsorted(np.cumsum(KINDS), place, side="right")


def _ranges(
    words: Words, name: Int[Array, "..."]
) -> tuple[Int[Array, "..."], Int[Array, "..."]]:
    """Return the range of values, low and high, of arguments and results.

    Most values are in title case, so that a reader sees where one of two adjacent
    values ends.
    """
    # In the order of the kinds.
    pools = (words.plain, words.titles, words.pairs, words.numbers, words.codes,
             words.formatted)  # fmt: skip
    kind = _kind(words, name)
    low = jnp.array([pool.low for pool in pools])
    high = jnp.array([pool.high for pool in pools])
    return low[kind], high[kind]
