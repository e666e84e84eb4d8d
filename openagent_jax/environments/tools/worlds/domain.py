"""A domain, or a mixture of domains, as arrays, and tasks sampled from it.

`compile` turns a checked file (`domain_spec.DomainSpec`) into a `Domain`: a pytree
of arrays whose shapes depend on the limits only (and on the numbers of goals, phrases
and synonyms, rounded up to blocks), so that domains of the same limits share compiled
programs. `mixture.join` makes one `Domain` of several.

Splits are disjoint by construction: each has its own entities and phrases, and the
worlds of `TRAIN` have even seeds, those of other splits odd ones.
"""

# Arrays are built with NumPy and become JAX arrays at the end.
# pyright: reportArgumentType=false

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw, hashing
from openagent_jax.domains import domain_spec, domain_words
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import choices
from openagent_jax.environments.tools.cells import Access
from openagent_jax.environments.tools.types import (
    Facts,
    Goal,
    Split,
    Task,
    TaskPools,
    Tools,
    Wording,
    no_faults,
)
from openagent_jax.environments.tools.worlds import (
    goal_tables,
    phrases,
    result_arrays,
    seeds,
    table_arrays,
)
from openagent_jax.environments.tools.worlds.documents import Documents
from openagent_jax.environments.tools.worlds.phrases import PLAIN, Phrases
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import nesting, scalars
from openagent_jax.text.symbols import Range

TRAIN, TEST, SHIFT = range(3)  # splits of entities
SPLITS = {"train": TRAIN, "test": TEST}
SYNONYM_BLOCK = 4  # the number of synonyms of one name and split is a multiple of it
DOMAIN_SALT, CHOICE_SALT = 1, 2  # of `hashing.hashed_key`


def index(split: str | Split) -> Split:
    """Return the index of a split, which is given by its name or by its index."""
    return SPLITS[split] if isinstance(split, str) else split


class Variants(NamedTuple):
    """Synonyms that may present the tools, by split. Shorter pools are repeated.

    Y is the number of synonyms; values are symbols.
    """

    name: Int[Array, "D 2 N Y"]
    description: Int[Array, "D 2 N Y"]
    arg_name: Int[Array, "D 2 N A Y"]
    arg_path: Int[Array, "D 2 N A L Y"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Domain:
    """The data that tasks of D domains are sampled from; D is 1 unless they are mixed.

    G goals of all domains, one domain after another; U sets of tools that goals of one
    domain need; the other letters are those of `environments.tools.types`. A range is
    `low <= symbol < high`.
    """

    tools: Tools  # leading axis D
    num_tools: Int[Array, "D"]
    num_goals: Int[Array, "D"]
    first_goal: Int[Array, "D"]
    # By split: where the interval ends from which a uniform number chooses a domain.
    ends: Float[Array, "2 D"]
    result_range: Int[Array, "D 3 N F 2"]  # by split
    # What initial values of columns are drawn from, by split; None without tables.
    initial_range: Int[Array, "D 3 N V 2"] | None
    goal_domain: Int[Array, "G"]
    goal_tool: Int[Array, "G C"]
    goal_source: Int[Array, "G C A"]
    goal_answer: Int[Array, "G"]
    goal_when: Int[Array, "G C 3"] | None  # None if goals have no conditions
    goal_set: Int[Array, "G"]  # which set of its domain's tools a goal needs
    constant_range: Int[Array, "3 G Q 2"]  # by split; low == high: unused
    set_needs: Bool[Array, "D U N"]  # tools to call, prerequisites included
    set_sure: Bool[Array, "D U N"]  # those to call whatever the conditions of a goal
    # How likely a goal of each set is paired with a goal; see `goal_tables.pairing`.
    pairing: Float[Array, "D U U"]
    phrases: Phrases
    codes: Int[Array, "2"]  # range
    variants: Variants
    facts: Facts | None  # empty rows, if tasks share a batch with logged tasks

    def sample(self, key: jax.Array, split: Split, num_visible: int) -> Task:
        """Sample a task: its goal, request, constants, world, and the tools on offer.

        Args:
          key: a PRNG key; the task is a function of it.
          split: `TRAIN` or `TEST`.
          num_visible: how many tools are documented, unless the goal needs more.
        """
        which = draw.uniform(hashing.hashed_key(key, DOMAIN_SALT))
        domain = jnp.sum(which >= self.ends[split, :-1])
        return self._sample(key, domain, split, num_visible)

    def nth(self, key: jax.Array, index: Array, split: Split, num_visible: int) -> Task:
        """Sample a task whose domain is given by its number.

        Consecutive numbers take turns among the domains of the split, so that an
        evaluation plays each of them equally often.

        Args:
          key: a PRNG key.
          index: the number of the task.
          split: `TRAIN` or `TEST`.
          num_visible: as for `sample`.
        """
        count = jnp.cumsum(jnp.diff(self.ends[split], prepend=0) > 0)
        domain = jnp.argmax(count > index % count[-1])
        return self._sample(key, domain, split, num_visible)

    def _sample(
        self, key: jax.Array, d: Int[Array, ""], split: Split, num_visible: int
    ) -> Task:
        # A single call of the generator, because each one takes long to compile.
        num_tools = self.tools.relation.shape[1]
        uniforms = jax.random.uniform(key, (num_tools + 6,))
        tools = jax.tree.map(lambda x: x[d], self.tools)
        g = self.first_goal[d] + draw.below(uniforms[num_tools], self.num_goals[d])
        pool = PLAIN + split
        r = draw.below(uniforms[num_tools + 1], self.phrases.num[pool, g])
        phrase = self.phrases.row(self.phrases.first[pool, g] + r)

        # What the goal needs is visible, and a random choice of the others.
        real = jnp.arange(num_tools) < self.num_tools[d]
        needs = self.set_needs[d, self.goal_set[g]]
        order = jnp.where(needs, -1.0, uniforms[:num_tools])
        rank = jnp.argsort(jnp.argsort(jnp.where(real, order, 2.0)))
        visible = real & (needs | (rank < num_visible))

        result_low, result_high = jnp.moveaxis(self.result_range[d, split], -1, 0)
        world = jax.random.key_data(key)[-1].astype(jnp.uint32)
        ranges = self.constant_range[split, g]
        constants = draw.distinct_symbols(uniforms[-4:-2], ranges[:, 0], ranges[:, 1])
        constants = scalars.canonical(constants)
        code_range = (jnp.full(num_tools, end) for end in self.codes)
        task = Task(
            world=(world & ~jnp.uint32(1)) | jnp.asarray(split != TRAIN, jnp.uint32),
            tools=replace(
                tools,
                result_low=result_low,
                result_high=result_high,
                code=draw.distinct_symbols(uniforms[-2:], *code_range),
                visible=visible,
                access=self._access(d, split, tools.access),
            ),
            goal=Goal(
                tool=self.goal_tool[g],
                source=self.goal_source[g],
                answer=self.goal_answer[g],
                kind=g,
                when=None if self.goal_when is None else self.goal_when[g],
            ),
            faults=no_faults(num_tools, self.goal_tool.shape[1]),
            phrase=choices.spoken(
                self.phrases.choices, phrase, hashing.hashed_key(key, CHOICE_SALT)
            ),
            constants=constants,
            said=constants,
            shown=jnp.ones(self.constant_range.shape[2], bool),
            facts=self.facts,
        )
        return seeds.with_changes(task)

    def _access(
        self, d: Int[Array, ""], split: Split, access: Access | None
    ) -> Access | None:
        """Return what tools do to records, whose initial values are of a split."""
        if access is None or self.initial_range is None:
            return None
        low, high = jnp.moveaxis(self.initial_range[d, split], -1, 0)
        return replace(access, initial_low=low, initial_high=high)

    def pools(self, task: Task, split: Split, gates: Int[Array, "R 2"]) -> TaskPools:
        """Return what perturbations of a split draw from.

        Args:
          task: the task. One that has replaced another (`goal.kind` is negative) gets
            the pools of the first goal, and no other request of the same tools.
          split: the split whose synonyms are used.
          gates: name and description of each gate that a perturbation can add.
        """
        goal = jnp.maximum(task.goal.kind, 0)
        d = self.goal_domain[goal]
        rewrites, num_rewrites = self.phrases.rewrites(split, goal)
        rate = self.pairing[d, self.goal_set[goal]]
        columns = self.initial_range
        return TaskPools(
            names=self.variants.name[d, split],
            descriptions=self.variants.description[d, split],
            arg_names=self.variants.arg_name[d, split],
            arg_paths=self.variants.arg_path[d, split],
            gates=gates,
            phrases=rewrites,
            num_phrases=num_rewrites,
            choices=self.phrases.choices,
            shifted=self.result_range[d, SHIFT],
            constant_range=self.constant_range[SHIFT, goal],
            own_range=self.constant_range[split, goal],
            other_rate=jnp.where(task.goal.kind >= 0, rate, 0),
            other_needs=self.set_needs[d],
            other_sure=self.set_sure[d],
            shifted_columns=None if columns is None else columns[d, SHIFT],
        )

    def wording(self, split: int) -> Wording:
        """Return the texts of a split that noise is added to; this runs on the host."""
        tools, variants = self.tools, self.variants
        described = tools.description[..., 0], variants.description[:, split]
        return Wording(
            np.union1d(tools.name, variants.name[:, split]),
            np.union1d(*described),
            *self.phrases.frequency(split),
        )


# What follows runs on the host, once.


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

    Raises:
      DomainError: its goals need too many different sets of tools.
    """
    ranges = {kind.name: _type_ranges(kind, symbols) for kind in spec.types}
    codes = symbols.codes.low, symbols.codes.high
    ranges[domain_spec.CURSOR] = _TypeRanges(codes, [(0, 0)] * 3)
    arrays = _tool_arrays(spec, ranges, symbols, limits, documents)
    tools, variants, result_range = arrays
    splits = {name: kind.splits for name, kind in ranges.items()}
    tables = table_arrays.compile(spec, splits, limits)
    tools = replace(tools, access=tables and tables.access)
    goals = goal_tables.compile(spec, ranges, limits)
    num_goals = len(goals.goal_answer)
    tools, variants, result_range = jax.tree.map(
        lambda x: x[None], (tools, variants, result_range)
    )
    domain = Domain(
        tools=tools,
        num_tools=np.array([len(spec.tools)], np.int32),
        num_goals=np.array([len(spec.goals)], np.int32),
        first_goal=np.zeros(1, np.int32),
        ends=np.ones((2, 1), np.float32),
        result_range=result_range,
        initial_range=tables and tables.initial[None],
        goal_domain=np.zeros(num_goals, np.int32),
        goal_tool=goals.goal_tool,
        goal_source=goals.goal_source,
        goal_answer=goals.goal_answer,
        goal_when=goals.goal_when,
        goal_set=goals.goal_set,
        constant_range=goals.constant_range,
        set_needs=goals.set_needs[None],
        set_sure=goals.set_sure[None],
        pairing=goals.pairing[None],
        phrases=phrases.compile(spec.goals, symbols, limits, num_goals),
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
        both = scalars.number_range(kind.minimum, kind.maximum, kind.decimals)
        return _TypeRanges(both, [both] * 3)
    if kind.kind == "enum":
        values = symbols.add(kind.train)
        both = (values.low, values.high)
        shift = scalars.UNQUOTED if kind.unquoted else 0
        accepted = (values.low + shift, values.high + shift)
        return _TypeRanges(accepted, [both] * 3)
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
    levels = limits.depth - 1
    arg_path = np.zeros((N, A, levels), np.int32)
    result_path = np.zeros((N, F, levels), np.int32)
    arg_range = np.zeros((N, A, 2), np.int32)
    arg_also = np.zeros((N, A, limits.num_unions, 2), np.int32)
    arg_default = np.full((N, A), -1, np.int32)
    result_range = np.zeros((3, N, F, 2), np.int32)
    variants = _no_variants(spec, limits)
    for n, tool in enumerate(spec.tools):
        name[n] = symbols.one(tool.name)
        effect[n] = tool.effect
        code_from[n] = index[tool.code_from] if tool.code_from else -1
        call_after[n] = index[tool.call_after] if tool.call_after else -1
        text = tool.description
        description[n] = documents.description(symbols, text, limits.num_pieces)
        document[n] = documents.add(tool.function, [x for x, _ in tool.inputs])
        for a, (argument, kind) in enumerate(tool.inputs):
            keys = nesting.parse(argument)
            encoded = nesting.encoded(keys, limits.depth - 1, symbols.one)
            arg_path[n, a], arg_name[n, a] = encoded
            arg_range[n, a] = ranges[kind].accepted
            for u, other in enumerate(tool.also.get(argument, ())):
                arg_also[n, a, u] = ranges[other].accepted
            if argument in tool.optional or kind == domain_spec.CURSOR:
                default = tool.optional.get(argument)
                arg_default[n, a] = _default(default, ranges[kind], symbols)
        for f, (field, kind) in enumerate(tool.returns):
            keys = nesting.encoded(nesting.parse(field), levels, symbols.one)
            result_path[n, f], result_name[n, f] = keys
            result_range[:, n, f] = ranges[kind].splits
        _fill_variants(variants, n, tool, symbols, documents)
    rows = np.arange(N, dtype=np.int32)
    tools = Tools(
        relation=rows,
        arg_low=arg_range[..., 0],
        arg_high=arg_range[..., 1],
        arg_also=arg_also,
        arg_default=arg_default,
        result_low=result_range[TRAIN, ..., 0],
        result_high=result_range[TRAIN, ..., 1],
        code=np.zeros(N, np.int32),
        code_from=code_from,
        call_after=call_after,
        effect=effect,
        name=name,
        description=description,
        arg_name=arg_name,
        arg_path=arg_path,
        result_name=result_name,
        place=rows,
        visible=np.zeros(N, bool),
        document=document,
        result_path=result_path,
        lists=result_arrays.lists(spec, limits) if limits.num_derived else None,
        pages=result_arrays.pages(spec, limits) if limits.paging else None,
    )
    return tools, variants, result_range


def _default(default: Any, kind: _TypeRanges, symbols: ToolSymbols) -> int:
    """Return the value of a default in JSON, or 0 if there is none."""
    if default is None:
        return 0
    low, high = kind.accepted
    if low >= scalars.NUMBER:
        fits = isinstance(default, int | float) and scalars.spells(json.dumps(default))
        return scalars.shortest(default) if fits else 0
    text = default if isinstance(default, str) else json.dumps(default)
    shift = scalars.UNQUOTED if low >= scalars.UNQUOTED else 0
    values = symbols.texts[low - shift : high - shift]
    return low - shift + values.index(text) if text in values else symbols.one(text)


def _no_variants(spec: domain_spec.DomainSpec, limits: Limits) -> Variants:
    """Return empty arrays with room for all synonyms."""
    N, A = limits.num_tools, limits.num_args
    pools = itertools.chain.from_iterable(map(domain_words.synonyms, spec.tools))
    Y = phrases.round_up(max(map(len, pools)), SYNONYM_BLOCK)
    return Variants(
        name=np.zeros((2, N, Y), np.int32),
        description=np.zeros((2, N, Y), np.int32),
        arg_name=np.zeros((2, N, A, Y), np.int32),
        arg_path=np.zeros((2, N, A, limits.depth - 1, Y), np.int32),
    )


def _fill_variants(
    variants: Variants,
    n: int,
    tool: domain_spec.ToolSpec,
    symbols: ToolSymbols,
    documents: Documents,
) -> None:
    """Write the synonyms of tool `n`; a key of an argument without any has itself."""
    size = variants.name.shape[-1]
    for s, split in enumerate(SPLITS):
        variants.name[s, n] = _repeated(tool.names.get(split), size, symbols.one)
        texts = tool.descriptions.get(split)
        one = partial(documents.text, symbols)
        variants.description[s, n] = _repeated(texts, size, one)
        for a, (path, _) in enumerate(tool.inputs):
            *outer, own = nesting.parse(path)
            for key, row in (
                (own, variants.arg_name[s, n, a]),
                *zip(outer, variants.arg_path[s, n, a], strict=False),
            ):
                if isinstance(key, str):  # an index is never renamed
                    texts = tool.argument_names.get(key, {}).get(split) or (key,)
                    row[:] = _repeated(texts, size, symbols.one)


def _no_facts(limits: Limits) -> Facts:
    """Return empty rows, as many as logged worlds have recorded calls."""
    num = limits.num_facts
    return Facts(
        relation=np.full(num, -1, np.int32),
        args=np.zeros((num, limits.num_args), np.int32),
        values=np.full((num, limits.num_fields), -1, np.int32),
        bare=np.zeros((num, limits.num_fields), bool),
    )


def _repeated(
    texts: Sequence[str] | None, size: int, one: Callable[[str], int]
) -> Int[np.ndarray, "size"]:
    """Return the symbols of some texts, repeated until there are `size`."""
    ones = [one(text) for text in texts or [""]]
    return np.resize(np.array(ones, np.int32), size)
