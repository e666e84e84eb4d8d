"""A domain as arrays, and tasks sampled from it.

`compile` turns a checked file (`domain_spec.DomainSpec`) into a `Domain`: a pytree
of arrays whose shapes depend on the limits only (and on the numbers of goals, phrases
and synonyms, rounded up to blocks), so that domains of the same limits share compiled
programs.

Splits are disjoint by construction: each has its own entities and phrases, and the
worlds of `TRAIN` have even seeds, those of other splits odd ones.
"""

# Arrays are built with NumPy and become JAX arrays at the end.
# pyright: reportArgumentType=false

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw
from openagent_jax.environments.tools.types import (
    Facts,
    Faults,
    Goal,
    Limits,
    Task,
    TaskPools,
    Tools,
)
from openagent_jax.environments.tools.worlds import domain_spec
from openagent_jax.environments.tools.worlds.documents import Documents
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text.symbols import Range

TRAIN, TEST, SHIFT = range(3)  # splits of entities
SPLITS = {"train": TRAIN, "test": TEST}
PLAIN, REWRITE = 0, 2  # indices into PHRASE_POOLS: PLAIN + split, REWRITE + split
PHRASE_POOLS = ("train", "test", "rewrite_train", "rewrite_test")
# Array sizes are multiples of these.
GOAL_BLOCK = 16
PHRASE_BLOCK = 64  # phrases of one goal and pool
SYNONYM_BLOCK = 4  # synonyms of one name and split


class Variants(NamedTuple):
    """Synonyms that may present the tools, by split. Shorter pools are repeated.

    Y is the number of synonyms; values are symbols.
    """

    name: Int[Array, "2 N Y"]
    description: Int[Array, "2 N Y"]
    arg_name: Int[Array, "2 N A Y"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Domain:
    """The data that tasks of a domain are sampled from.

    G goals, R phrases of a goal and pool, P pieces of a phrase; the other letters are
    those of `environments.tools.types`. A range is `low <= symbol < high`.
    """

    tools: Tools
    num_tools: Int[Array, ""]
    num_goals: Int[Array, ""]
    result_range: Int[Array, "3 N F 2"]  # by split
    goal_tool: Int[Array, "G C"]
    goal_source: Int[Array, "G C A"]
    goal_answer: Int[Array, "G"]
    goal_needs: Bool[Array, "G N"]  # tools to call, prerequisites included
    # How likely each other goal is to be paired with a goal; see `_pairing`.
    pairing: Float[Array, "G G"]
    constant_range: Int[Array, "3 G Q 2"]  # by split; low == high: unused
    phrases: Int[Array, "4 G R P"]  # by pool
    num_phrases: Int[Array, "4 G"]
    codes: Int[Array, "2"]  # range
    variants: Variants
    facts: Facts | None  # empty rows, if tasks share a batch with logged tasks

    def sample(self, key: jax.Array, split: int, num_visible: int) -> Task:
        """Sample a task: its goal, request, constants, world, and the tools on offer.

        Args:
          key: a PRNG key; the task is a function of it.
          split: `TRAIN` or `TEST`.
          num_visible: how many tools are documented, unless the goal needs more.
        """
        # A single call of the generator, because each one takes long to compile.
        tools = self.tools
        num_tools = tools.relation.shape[0]
        uniforms = jax.random.uniform(key, (num_tools + 6,))

        g = draw.below(uniforms[num_tools], self.num_goals)
        pool = PLAIN + split
        r = draw.below(uniforms[num_tools + 1], self.num_phrases[pool, g])

        # What the goal needs is visible, and a random choice of the others.
        real = jnp.arange(num_tools) < self.num_tools
        needs = self.goal_needs[g]
        order = jnp.where(needs, -1.0, uniforms[:num_tools])
        rank = jnp.argsort(jnp.argsort(jnp.where(real, order, 2.0)))
        visible = real & (needs | (rank < num_visible))

        result_low, result_high = jnp.moveaxis(self.result_range[split], -1, 0)
        none = jnp.zeros(num_tools, jnp.int32)
        world = jax.random.key_data(key)[-1].astype(jnp.uint32)
        ranges = self.constant_range[split, g]
        constants = draw.distinct_symbols(uniforms[-4:-2], ranges[:, 0], ranges[:, 1])
        code_range = (jnp.full(num_tools, end) for end in self.codes)
        return Task(
            world=(world & ~jnp.uint32(1)) | jnp.uint32(split != TRAIN),
            tools=replace(
                tools,
                result_low=result_low,
                result_high=result_high,
                code=draw.distinct_symbols(uniforms[-2:], *code_range),
                visible=visible,
            ),
            goal=Goal(
                tool=self.goal_tool[g],
                source=self.goal_source[g],
                answer=self.goal_answer[g],
                kind=g,
            ),
            faults=Faults(none, none - 1, none.astype(bool), none),
            phrase=self.phrases[pool, g, r],
            constants=constants,
            shown=jnp.ones(self.constant_range.shape[2], bool),
            facts=self.facts,
        )

    def pools(self, task: Task, split: int, gates: Int[Array, "R 2"]) -> TaskPools:
        """Return what perturbations of a split draw from."""
        rewrite, goal = REWRITE + split, task.goal.kind
        return TaskPools(
            names=self.variants.name[split],
            descriptions=self.variants.description[split],
            arg_names=self.variants.arg_name[split],
            gates=gates,
            phrases=self.phrases[rewrite],
            num_phrases=self.num_phrases[rewrite],
            shifted=self.result_range[SHIFT],
            constant_range=self.constant_range[SHIFT],
            other_rate=jnp.where(goal >= 0, self.pairing[goal], 0),
            other_needs=self.goal_needs,
        )


# What follows runs on the host, once.


def words(spec: domain_spec.DomainSpec) -> set[str]:
    """Return all words of a domain in lower case, which pretraining must not show."""
    texts = [spec.name, spec.description]
    for kind in spec.types:
        texts += [kind.name, *kind.train, *kind.test, *kind.shift]
    for tool in spec.tools:
        texts += [tool.name, tool.description, *(name for name, _ in tool.arguments)]
        texts += [name for name, _ in tool.returns]
        texts += itertools.chain(*_synonyms(tool))
        if tool.requests:
            pools = (tool.requests.do, *tool.requests.fields.values())
            texts += (text for pool in pools for x in pool.values() for text in x)
    for goal in spec.goals:
        texts += itertools.chain(*goal.phrases.values())
    return set(re.findall(r"[a-z]+", " ".join(texts).lower()))


def compile(
    spec: domain_spec.DomainSpec,
    symbols: ToolSymbols,
    limits: Limits,
    documents: Documents,
) -> Domain:
    """Turn a domain into arrays.

    Args:
      spec: the domain, which fits the limits.
      symbols: the surface forms of the domain are added to these.
      limits: sizes of the arrays, `fitted` to its descriptions.
      documents: the documents of its tools are added to these.
    """
    ranges = {kind.name: _type_ranges(kind, symbols) for kind in spec.types}
    arrays = _tool_arrays(spec, ranges, symbols, limits, documents)
    tools, variants, result_range = arrays
    domain = Domain(
        tools=tools,
        num_tools=np.int32(len(spec.tools)),
        num_goals=np.int32(len(spec.goals)),
        result_range=result_range,
        **_goal_arrays(spec, ranges, limits),
        **_phrase_arrays(spec, symbols, limits),
        codes=np.array([symbols.codes.low, symbols.codes.high], np.int32),
        variants=variants,
        facts=_no_facts(limits) if limits.num_facts else None,
    )
    return jax.tree.map(jnp.asarray, domain)


class _TypeRanges(NamedTuple):
    accepted: tuple[int, int]  # as an argument
    splits: list[tuple[int, int]]  # what values are drawn from


def _type_ranges(kind: domain_spec.TypeSpec, symbols: ToolSymbols) -> _TypeRanges:
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


def _tool_arrays(
    spec: domain_spec.DomainSpec,
    ranges: dict[str, _TypeRanges],
    symbols: ToolSymbols,
    limits: Limits,
    documents: Documents,
) -> tuple[Tools, Variants, Int[np.ndarray, "3 N F 2"]]:
    """Return the tools, their synonyms, and the result ranges by split."""
    N, A, F = limits.num_tools, limits.num_args, limits.num_fields
    index = {tool.name: n for n, tool in enumerate(spec.tools)}
    name, effect = np.zeros(N, np.int32), np.zeros(N, bool)
    document = np.full(N, -1, np.int32)
    code_from, call_after = np.full(N, -1, np.int32), np.full(N, -1, np.int32)
    description = np.zeros((N, limits.num_pieces), np.int32)
    arg_name, result_name = np.zeros((N, A), np.int32), np.zeros((N, F), np.int32)
    arg_range = np.zeros((N, A, 2), np.int32)
    result_range = np.zeros((3, N, F, 2), np.int32)
    variants = _no_variants(spec, limits)
    for n, tool in enumerate(spec.tools):
        name[n] = symbols.one(tool.name)
        effect[n] = tool.effect
        code_from[n] = index[tool.code_from] if tool.code_from else -1
        call_after[n] = index[tool.call_after] if tool.call_after else -1
        text = tool.description
        description[n] = documents.description(symbols, text, limits.num_pieces)
        document[n] = documents.add(tool.function, [x for x, _ in tool.arguments])
        for a, (argument, kind) in enumerate(tool.arguments):
            arg_name[n, a] = symbols.one(argument)
            arg_range[n, a] = ranges[kind].accepted
        for f, (field, kind) in enumerate(tool.returns):
            result_name[n, f] = symbols.one(field)
            result_range[:, n, f] = ranges[kind].splits
        _fill_variants(variants, n, tool, symbols, documents)
    rows = np.arange(N, dtype=np.int32)
    tools = Tools(
        relation=rows,
        arg_low=arg_range[..., 0],
        arg_high=arg_range[..., 1],
        result_low=result_range[TRAIN, ..., 0],
        result_high=result_range[TRAIN, ..., 1],
        code=np.zeros(N, np.int32),
        code_from=code_from,
        call_after=call_after,
        effect=effect,
        name=name,
        description=description,
        arg_name=arg_name,
        result_name=result_name,
        place=rows,
        visible=np.zeros(N, bool),
        document=document,
    )
    return tools, variants, result_range


def _no_variants(spec: domain_spec.DomainSpec, limits: Limits) -> Variants:
    """Return empty arrays with room for all synonyms."""
    N, A = limits.num_tools, limits.num_args
    pools = itertools.chain.from_iterable(map(_synonyms, spec.tools))
    Y = _room(pools, SYNONYM_BLOCK)
    return Variants(
        name=np.zeros((2, N, Y), np.int32),
        description=np.zeros((2, N, Y), np.int32),
        arg_name=np.zeros((2, N, A, Y), np.int32),
    )


def _fill_variants(
    variants: Variants,
    n: int,
    tool: domain_spec.ToolSpec,
    symbols: ToolSymbols,
    documents: Documents,
) -> None:
    """Write the synonyms of tool `n`; an argument without any has its own name."""
    size = variants.name.shape[-1]
    for s, split in enumerate(SPLITS):
        variants.name[s, n] = _repeated(tool.names.get(split), size, symbols.one)
        texts = tool.descriptions.get(split)
        one = partial(documents.text, symbols)
        variants.description[s, n] = _repeated(texts, size, one)
        for a, (name, _) in enumerate(tool.arguments):
            texts = tool.argument_names.get(name, {}).get(split) or (name,)
            variants.arg_name[s, n, a] = _repeated(texts, size, symbols.one)


def _synonyms(tool: domain_spec.ToolSpec) -> Iterator[tuple[str, ...]]:
    """Yield the pools of synonyms of a tool and its arguments."""
    for by_split in (tool.names, tool.descriptions, *tool.argument_names.values()):
        yield from by_split.values()


def _goal_arrays(
    spec: domain_spec.DomainSpec, ranges: dict[str, _TypeRanges], limits: Limits
) -> dict[str, np.ndarray]:
    """Return the fields of `Domain` that say which calls each goal needs."""
    N, A, C = limits.num_tools, limits.num_args, limits.num_steps
    G = _room([spec.goals], GOAL_BLOCK)
    index = {tool.name: n for n, tool in enumerate(spec.tools)}
    goal_tool = np.full((G, C), -1, np.int32)
    goal_source = np.full((G, C, A), -1, np.int32)
    goal_answer = np.full(G, -1, np.int32)
    goal_needs = np.zeros((G, N), bool)
    constant_range = np.zeros((3, G, limits.num_constants, 2), np.int32)
    for g, goal in enumerate(spec.goals):
        for q, (_, kind) in enumerate(goal.constants):
            constant_range[:, g, q] = ranges[kind].splits
        for c, (name, arguments) in enumerate(goal.steps):
            goal_tool[g, c] = index[name]
            for a, (argument, _) in enumerate(spec.tools[index[name]].arguments):
                goal_source[g, c, a] = _source(arguments[argument], goal, spec, limits)
        if goal.answer != domain_spec.DONE:
            goal_answer[g] = _source(goal.answer, goal, spec, limits)
        steps = [name for name, _ in goal.steps]
        for name in (*steps, *domain_spec.extra_calls(spec, goal)):
            goal_needs[g, index[name]] = True
    return dict(
        goal_tool=goal_tool,
        goal_source=goal_source,
        goal_answer=goal_answer,
        goal_needs=goal_needs,
        pairing=_pairing(goal_needs),
        constant_range=constant_range,
    )


def _pairing(needs: Bool[np.ndarray, "G N"]) -> Float[np.ndarray, "G G"]:
    """Return the probability with which goal j is paired with goal i, at [i, j].

    Goals are paired if each needs a tool that the other does not. The matrix is
    symmetric and its rows sum to 1 where that is possible (Sinkhorn's scaling): for a
    goal that is drawn uniformly, the pair (i, j) is then as likely as (j, i). So
    documents that suit one goal of a pair, but not the other, do not tell which of the
    two was asked for. A goal without any partner has a row of zeros.
    """
    only = (needs[:, None] & ~needs[None]).any(axis=2)
    match = (only & only.T).astype(float)
    scale = np.ones(len(needs))
    for _ in range(500):  # damped, so that it does not oscillate
        total = match @ scale
        scale = np.sqrt(scale / np.where(total > 0, total, 1))
    rate = scale[:, None] * match * scale[None]
    return (rate / max(1, rate.sum(axis=1).max())).astype(np.float32)


def _source(
    text: str, goal: domain_spec.GoalSpec, spec: domain_spec.DomainSpec, limits: Limits
) -> int:
    """Return the number of a source (`$slot` or `#step.field`), as in `Goal.source`."""
    c, name = domain_spec.parse_source(text)
    if c < 0:
        return [slot for slot, _ in goal.constants].index(name)
    (tool,) = (tool for tool in spec.tools if tool.name == goal.steps[c][0])
    field = [field for field, _ in tool.returns].index(name)
    return limits.num_constants + c * limits.num_fields + field


def _phrase_arrays(
    spec: domain_spec.DomainSpec, symbols: ToolSymbols, limits: Limits
) -> dict[str, np.ndarray]:
    """Return the fields of `Domain` that hold the requests."""
    pools = (goal.phrases[pool] for goal in spec.goals for pool in PHRASE_POOLS)
    G, R = _room([spec.goals], GOAL_BLOCK), _room(pools, PHRASE_BLOCK)
    phrases = np.zeros((4, G, R, limits.num_phrase_pieces), np.int32)
    num_phrases = np.zeros((4, G), np.int32)
    for g, goal in enumerate(spec.goals):
        slots = {name: q for q, (name, _) in enumerate(goal.constants)}
        for p, pool in enumerate(PHRASE_POOLS):
            num_phrases[p, g] = len(goal.phrases[pool])
            for r, phrase in enumerate(goal.phrases[pool]):
                pieces = _pieces(phrase, slots, symbols)
                phrases[p, g, r, : len(pieces)] = pieces
    return dict(phrases=phrases, num_phrases=num_phrases)


def _pieces(phrase: str, slots: dict[str, int], symbols: ToolSymbols) -> list[int]:
    """Return `Find {place}.` as symbols, with -1 - q for constant q."""
    parts = re.split(r"\{([\w-]+)\}", phrase)
    return [
        -1 - slots[part] if i % 2 else symbols.one(part)
        for i, part in enumerate(parts)
        if i % 2 or part
    ]


def _no_facts(limits: Limits) -> Facts:
    """Return empty rows, as many as logged worlds have recorded calls."""
    num = limits.num_facts
    return Facts(
        relation=np.full(num, -1, np.int32),
        args=np.zeros((num, limits.num_args), np.int32),
        values=np.full((num, limits.num_fields), -1, np.int32),
    )


def _room(pools: Iterable[Sequence], block: int) -> int:
    """Return the size of the largest pool, rounded up to a multiple of `block`."""
    return -(-max(1, *(len(pool) for pool in pools)) // block) * block


def _repeated(
    texts: Sequence[str] | None, size: int, one: Callable[[str], int]
) -> Int[np.ndarray, "size"]:
    """Return the symbols of some texts, repeated until there are `size`."""
    ones = [one(text) for text in texts or [""]]
    return np.resize(np.array(ones, np.int32), size)
