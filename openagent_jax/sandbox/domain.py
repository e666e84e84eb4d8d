"""A domain as arrays, and tasks drawn from it.

`compile` turns a checked file (`domain_spec.DomainSpec`) into a `Domain`: a pytree
of arrays whose shapes depend on the limits only (and on the numbers of goals, phrases
and synonyms, in blocks), so that domains of the same limits share compiled programs.

Splits are apart by construction: entities and phrases come from pools of their own,
and worlds of `TRAIN` have even seeds, those of other splits odd ones.
"""

# Arrays are built in NumPy, and become JAX arrays at the end.
# pyright: reportArgumentType=false

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax import draw
from openagent_jax.sandbox import domain_spec
from openagent_jax.sandbox.symbols import Range, Symbols
from openagent_jax.types import Facts, Faults, Goal, Limits, Task, Tools

TRAIN, TEST, SHIFT = range(3)  # splits of entities
SPLITS = {"train": TRAIN, "test": TEST}
PLAIN, REWRITE = 0, 2  # pools of phrases: PLAIN + split, REWRITE + split
PHRASE_POOLS = ("train", "test", "rewrite_train", "rewrite_test")
# Room comes in blocks.
GOAL_BLOCK = 16
PHRASE_BLOCK = 64  # of a goal and pool
SYNONYM_BLOCK = 4  # of a name and split


class Variants(NamedTuple):
    """Other ways to present the tools, by split; pools are filled by repetition."""

    name: Int[Array, "2 N Y"]
    description: Int[Array, "2 N Y"]
    arg_name: Int[Array, "2 N A Y"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Domain:
    """Everything that tasks of a domain are drawn from. G goals, P phrase pieces."""

    tools: Tools  # result ranges are those of the whole type
    num_tools: Int[Array, ""]
    num_goals: Int[Array, ""]
    result_range: Int[Array, "3 N F 2"]  # by split
    goal_tool: Int[Array, "G C"]
    goal_source: Int[Array, "G C A"]
    goal_answer: Int[Array, "G"]
    goal_needs: Bool[Array, "G N"]  # tools used, prerequisites too
    constant_range: Int[Array, "3 G Q 2"]  # by split; low == high: unused
    phrases: Int[Array, "4 G R P"]  # by pool
    num_phrases: Int[Array, "4 G"]
    codes: Int[Array, "2"]  # range
    variants: Variants
    facts: Facts | None  # those of no world, where its tasks stand beside recorded ones


def sample_task(domain: Domain, key: jax.Array, split: int, num_visible: int) -> Task:
    """One task: goal, request, constants, world, and the tools on offer.

    Args:
      domain: where from.
      key: all of its randomness.
      split: `TRAIN` or `TEST`.
      num_visible: tools in the documents, if the goal does not need more.
    """
    # One draw for everything: each draw costs time to compile.
    tools = domain.tools
    num_tools = tools.relation.shape[0]
    lots = jax.random.uniform(key, (num_tools + 6,))
    goal_lot, phrase_lot = lots[num_tools], lots[num_tools + 1]

    g = draw.below(goal_lot, domain.num_goals)
    pool = PLAIN + split
    r = draw.below(phrase_lot, domain.num_phrases[pool, g])

    real = jnp.arange(num_tools) < domain.num_tools
    needs = domain.goal_needs[g]
    lot = jnp.where(needs, -1.0, lots[:num_tools])
    rank = jnp.argsort(jnp.argsort(jnp.where(real, lot, 2.0)))
    visible = real & (needs | (rank < num_visible))

    low, high = domain.result_range[split, ..., 0], domain.result_range[split, ..., 1]
    none = jnp.zeros(num_tools, jnp.int32)
    world = jax.random.key_data(key)[-1].astype(jnp.uint32)
    ranges = domain.constant_range[split, g]
    constants = draw.spread(lots[-4:-2], ranges[:, 0], ranges[:, 1])
    code_range = (jnp.full(num_tools, end) for end in domain.codes)
    return Task(
        world=(world & ~jnp.uint32(1)) | jnp.uint32(split != TRAIN),
        tools=Tools(
            **{
                **vars(tools),
                "result_low": low,
                "result_high": high,
                "code": draw.spread(lots[-2:], *code_range),
                "visible": visible,
            }
        ),
        goal=Goal(
            tool=domain.goal_tool[g],
            source=domain.goal_source[g],
            answer=domain.goal_answer[g],
            family=g,
        ),
        faults=Faults(none, none - 1, none.astype(bool), none),
        phrase=domain.phrases[pool, g, r],
        constants=constants,
        shown=jnp.ones(domain.constant_range.shape[2], bool),
        facts=domain.facts,
    )


# Host side.


def words(spec: domain_spec.DomainSpec) -> set[str]:
    """All words of a domain in lower case: what pretraining must not show."""
    texts = [spec.name, spec.description]
    for kind in spec.types:
        texts += [kind.name, *kind.train, *kind.test, *kind.shift]
    for tool in spec.tools:
        texts += [tool.name, tool.description, *(name for name, _ in tool.arguments)]
        texts += [name for name, _ in tool.returns]
        pools = [tool.names, tool.descriptions, *tool.argument_names.values()]
        texts += itertools.chain(*(pool for p in pools for pool in p.values()))
    for goal in spec.goals:
        texts += itertools.chain(*goal.phrases.values())
    return set(re.findall(r"[a-z]+", " ".join(texts).lower()))


def compile(spec: domain_spec.DomainSpec, symbols: Symbols, limits: Limits) -> Domain:
    """Arrays of a domain; its surface forms are added to `symbols`."""
    N, A, F = limits.num_tools, limits.num_args, limits.num_fields
    C, Q, P = limits.num_steps, limits.num_constants, limits.num_phrase_pieces
    G = _room([spec.goals], GOAL_BLOCK)
    R = _room(
        (g.phrases[pool] for g in spec.goals for pool in PHRASE_POOLS), PHRASE_BLOCK
    )
    synonyms = (
        pool
        for tool in spec.tools
        for pools in (tool.names, tool.descriptions, *tool.argument_names.values())
        for pool in pools.values()
    )
    Y = _room(synonyms, SYNONYM_BLOCK)
    ranges = {kind.name: _type_ranges(kind, symbols) for kind in spec.types}
    index = {tool.name: n for n, tool in enumerate(spec.tools)}

    def row(values, size, fill=0):
        values = list(values)
        return values + [fill] * (size - len(values))

    arg_types = [[kind for _, kind in tool.arguments] for tool in spec.tools]
    arg_range = np.zeros((N, A, 2), np.int32)
    result_range = np.zeros((3, N, F, 2), np.int32)
    numbers = {name: np.zeros(N, np.int32) for name in ("name", "code", "after")}
    arg_name, result_name = np.zeros((N, A), np.int32), np.zeros((N, F), np.int32)
    description = np.zeros((N, limits.num_pieces), np.int32)
    variants = Variants(
        np.zeros((2, N, Y), np.int32),
        np.zeros((2, N, Y), np.int32),
        np.zeros((2, N, A, Y), np.int32),
    )
    numbers["code"][:] = numbers["after"][:] = -1
    for n, tool in enumerate(spec.tools):
        numbers["name"][n] = symbols.one(tool.name)
        numbers["code"][n] = index[tool.code_from] if tool.code_from else -1
        numbers["after"][n] = index[tool.call_after] if tool.call_after else -1
        description[n, 0] = symbols.one(tool.description)
        for a, (name, kind) in enumerate(tool.arguments):
            arg_name[n, a] = symbols.one(name)
            arg_range[n, a] = ranges[kind].whole
        for f, (name, kind) in enumerate(tool.returns):
            result_name[n, f] = symbols.one(name)
            result_range[:, n, f] = ranges[kind].splits
        for s, split in enumerate(SPLITS):
            for pool, table in (
                (tool.names, variants.name),
                (tool.descriptions, variants.description),
            ):
                table[s, n] = _fill(pool.get(split) or (), Y, symbols)
            for a, (name, _) in enumerate(tool.arguments):
                pool = tool.argument_names.get(name, {}).get(split) or (name,)
                variants.arg_name[s, n, a] = _fill(pool, Y, symbols)

    goal_tool = np.full((G, C), -1, np.int32)
    goal_source = np.full((G, C, A), -1, np.int32)
    goal_answer = np.full(G, -1, np.int32)
    goal_needs = np.zeros((G, N), bool)
    constant_range = np.zeros((3, G, Q, 2), np.int32)
    phrases = np.zeros((4, G, R, P), np.int32)
    num_phrases = np.zeros((4, G), np.int32)
    for g, goal in enumerate(spec.goals):
        slots = {name: q for q, (name, _) in enumerate(goal.constants)}

        def source(text, goal=goal, slots=slots):
            c, name = domain_spec.parse_source(text)
            if c < 0:
                return slots[name]
            fields = [f for f, _ in spec.tools[index[goal.steps[c][0]]].returns]
            return Q + c * F + fields.index(name)

        for q, (_, kind) in enumerate(goal.constants):
            constant_range[:, g, q] = ranges[kind].splits
        for c, (name, arguments) in enumerate(goal.steps):
            goal_tool[g, c] = index[name]
            goal_needs[g, index[name]] = True
            for a, (arg, _) in enumerate(spec.tools[index[name]].arguments):
                goal_source[g, c, a] = source(arguments[arg])
        for name in domain_spec.extra_calls(spec, goal):
            goal_needs[g, index[name]] = True
        if goal.answer != domain_spec.DONE:
            goal_answer[g] = source(goal.answer)
        for p, pool in enumerate(PHRASE_POOLS):
            num_phrases[p, g] = len(goal.phrases[pool])
            for r, phrase in enumerate(goal.phrases[pool]):
                phrases[p, g, r] = row(_pieces(phrase, slots, symbols), P)

    zero = np.zeros(N, np.int32)
    tools = Tools(
        relation=np.arange(N, dtype=np.int32),
        arg_low=arg_range[..., 0],
        arg_high=arg_range[..., 1],
        result_low=result_range[TRAIN, ..., 0],
        result_high=result_range[TRAIN, ..., 1],
        code=zero,
        code_from=numbers["code"],
        call_after=numbers["after"],
        effect=np.array(row([tool.effect for tool in spec.tools], N, False)),
        name=numbers["name"],
        description=description,
        arg_name=arg_name,
        result_name=result_name,
        place=np.arange(N, dtype=np.int32),
        visible=zero.astype(bool),
    )
    del arg_types
    domain = Domain(
        tools=tools,
        num_tools=np.int32(len(spec.tools)),
        num_goals=np.int32(len(spec.goals)),
        result_range=result_range,
        goal_tool=goal_tool,
        goal_source=goal_source,
        goal_answer=goal_answer,
        goal_needs=goal_needs,
        constant_range=constant_range,
        phrases=phrases,
        num_phrases=num_phrases,
        codes=np.array([symbols.codes.low, symbols.codes.high], np.int32),
        variants=variants,
        facts=_no_facts(limits) if limits.num_facts else None,
    )
    return jax.tree.map(jnp.asarray, domain)


def _no_facts(limits: Limits) -> Facts:
    """In as many rows as recorded worlds have."""
    num = limits.num_facts
    return Facts(
        relation=np.full(num, -1, np.int32),
        args=np.zeros((num, limits.num_args), np.int32),
        values=np.full((num, limits.num_fields), -1, np.int32),
    )


class _TypeRanges(NamedTuple):
    whole: tuple[int, int]  # accepted as an argument
    splits: list[tuple[int, int]]  # drawn from


def _type_ranges(kind: domain_spec.TypeSpec, symbols: Symbols) -> _TypeRanges:
    if kind.kind == "number":
        low = symbols.numbers.low + kind.minimum
        both = (low, low + kind.maximum - kind.minimum + 1)
        return _TypeRanges(both, [both] * 3)
    if kind.kind == "enum":
        values = symbols.add(kind.train)
        both = (values.low, values.high)
        return _TypeRanges(both, [both] * 3)
    pools: list[Range] = [symbols.add(p) for p in (kind.train, kind.test, kind.shift)]
    return _TypeRanges(
        (pools[0].low, pools[-1].high), [(pool.low, pool.high) for pool in pools]
    )


def _pieces(phrase: str, slots: dict[str, int], symbols: Symbols) -> list[int]:
    """`Find {place}.` as symbols, with -1 - q for constant q."""
    parts = re.split(r"\{([\w-]+)\}", phrase)
    return [
        -1 - slots[part] if i % 2 else symbols.one(part)
        for i, part in enumerate(parts)
        if i % 2 or part
    ]


def _room(pools: Iterable[Sequence], block: int) -> int:
    """Whole blocks for the largest pool."""
    return -(-max(1, *(len(pool) for pool in pools)) // block) * block


def _fill(pool, size: int, symbols: Symbols) -> list[int]:
    """The texts of a pool, repeated to `size`."""
    texts = list(itertools.islice(itertools.cycle(pool), size)) if pool else [""] * size
    return [symbols.one(text) for text in texts]
