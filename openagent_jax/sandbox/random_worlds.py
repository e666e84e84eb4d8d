"""Endless random tool worlds: what the backbone learns to read on.

Names, descriptions, arguments, values, requests and the graph of calls are drawn
anew for every task from random words, so nothing but reading helps. The words share
no content word with any domain (a test checks it), and no task here holds a fault, a
refusal, a redirection or an inversion.

A description holds two key words, which the request repeats; an argument that takes
a result has the name of that result's field; prerequisites stand in the documents.
"""

import math
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from openagent_jax import draw as draws
from openagent_jax import types
from openagent_jax.sandbox.symbols import Range, Symbols
from openagent_jax.types import Faults, Goal, Task, Tools

NUM_WORDS = 8192
_GLUE = (
    "find the ", "get the ", "then the ", "and the ", "with the ", "now the ",
    "then find the ", "first the ", "please give the ", "give me the ", "also the ",
    "I need the ", "after that the ", "then use the ", "look for the ", "a ",
)  # fmt: skip
_OF = ("of ", "for ", "with ", "from ", "at ", "in ", "on ", "to ", "by ")
_TELL = ("tell me the ", "what is the ", "then say the ", "report the ", "show the ")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RandomWorlds:
    """Ranges of the symbols to draw from (static), and the sizes of a task."""

    words: Range = field(metadata=dict(static=True))
    spaced: Range = field(metadata=dict(static=True))  # same words, blank after
    names: Range = field(metadata=dict(static=True))
    pairs: Range = field(metadata=dict(static=True))
    glue: Range = field(metadata=dict(static=True))
    of: Range = field(metadata=dict(static=True))
    tell: Range = field(metadata=dict(static=True))
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

    def joined(mark: str) -> list[str]:
        pairs = rng.choice(words, (NUM_WORDS, 2))
        return list(dict.fromkeys(mark.join(pair) for pair in pairs))

    return RandomWorlds(
        words=symbols.add(words),
        spaced=symbols.add([word + " " for word in words]),
        names=symbols.add(joined("_")),
        pairs=symbols.add(joined(" ")),
        glue=symbols.add(_GLUE),
        of=symbols.add(_OF),
        tell=symbols.add(_TELL),
        space=symbols.one(" "),
        numbers=symbols.numbers,
        codes=symbols.codes,
        min_tools=min_tools,
        max_tools=max_tools,
    )


def random_words(tokenizer, avoid: set[str]) -> list[str]:
    """Words of one to three random letter tokens, so that every token is met."""
    tokens = [tokenizer.decode([i]) for i in range(tokenizer.get_vocab_size())]
    tokens = [t for t in tokens if t.isascii() and t.isalpha()]
    rng = np.random.default_rng(0)
    words: dict[str, None] = {}
    while len(words) < NUM_WORDS:
        word = "".join(rng.choice(tokens, rng.choice([1, 2, 3], p=[0.45, 0.45, 0.1])))
        if 3 <= len(word) <= 16 and word.lower() not in avoid:
            words[word] = None
    return list(words)


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
    arg_name = draw(worlds.words, num_tools, num_args)
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

    # Descriptions: two key words, and others before and after them.
    word = draws.below(lot(num_tools, 4), jnp.int32(len(worlds.words)))
    before, after = chance(0.4, num_tools), chance(0.6, num_tools)
    spaced, plain = worlds.spaced.low + word, worlds.words.low + word
    description = jnp.stack(
        [
            jnp.where(before, spaced[:, 0], 0),
            spaced[:, 1],
            jnp.where(after, spaced[:, 2], plain[:, 2]),
            jnp.where(after, plain[:, 3], 0),
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

    glue, of = draw(worlds.glue, num_steps), draw(worlds.of, num_steps)
    constant = (source >= 0) & (source < num_constants)
    pieces = [glue, spaced[:num_steps, 1], spaced[:num_steps, 2]]
    for a in range(num_args):
        has = constant[:, a]
        pieces += [
            jnp.where(has, of, 0),
            jnp.where(has, -1 - source[:, a], 0),
            jnp.where(has, worlds.space, 0),
        ]
    request = jnp.where(valid[:, None], jnp.stack(pieces, axis=1), 0).reshape(-1)
    last = jnp.maximum(steps - 1, 0)
    answer_field = (chance(0.5) & has_field[last, 1]).astype(jnp.int32)
    says = chance(0.5) | has_field[last, 1]
    ending = jnp.stack([draw(worlds.tell), result_name[last, answer_field]])
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
