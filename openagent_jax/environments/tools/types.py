"""Nouns of the tool worlds: what a task, an action and a result are made of.

Letters used in shapes, besides those of `openagent_jax.types`:

    N tool rows of a task       C steps of a goal
    A arguments of a tool       Q constants of a query
    F result fields             P pieces of a text
    W pieces of a description   R recorded calls of a world

Shapes in annotations are of ONE element; `jax.vmap` adds leading axes.

A *symbol* is an index into the `Lexicon`: a surface form (a word, a name, a
number, a piece of syntax) under the tokenizer in use. A *source* says where the
value of an argument comes from: -1 nowhere, `0..Q-1` a constant of the query,
`Q + c * F + f` field `f` of the result of step `c`.
"""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax.environments.grading import Record


@dataclass(frozen=True)
class Limits:
    """Room in the arrays of a task."""

    num_tools: int = 16
    num_args: int = 3  # of a tool, the code not counted
    num_fields: int = 2  # of a result, the code not counted
    num_steps: int = 5  # of a goal, prerequisites without arguments not counted
    num_constants: int = 4  # of a request
    num_pieces: int = 4  # of a description
    num_phrase_pieces: int = 12  # of a request
    num_facts: int = 0  # recorded calls of a world; a generated one has none


FOREVER = 1 << 20  # `Faults.failures` of a tool that never works
RECORDED = -1  # `Tools.result_low` of a tool whose results are not drawn


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tools:
    """The tools of one task, a row each: what they mean, and how they look.

    A tool maps arguments to results by `relation` (two rows may share one: then
    they give the same results). Identity is the row; all else is data.
    """

    # Meaning.
    relation: Int[Array, "N"]
    arg_low: Int[Array, "N A"]  # symbols accepted: low <= symbol < high
    arg_high: Int[Array, "N A"]  # high == low: there is no such argument
    # Symbols drawn from; none if low == high. Low is `RECORDED` where the world answers
    # recorded calls alone.
    result_low: Int[Array, "N F"]
    result_high: Int[Array, "N F"]
    code: Int[Array, "N"]  # symbol of the nonce that a successful call reveals
    code_from: Int[Array, "N"]  # row whose code must be passed, or -1
    call_after: Int[Array, "N"]  # row that must have succeeded before, or -1
    effect: Bool[Array, "N"]  # a successful call changes the world
    # Presentation.
    name: Int[Array, "N"]
    description: Int[Array, "N W"]  # pieces, symbol 0 is empty
    arg_name: Int[Array, "N A"]
    result_name: Int[Array, "N F"]
    place: Int[Array, "N"]  # order in the documents
    visible: Bool[Array, "N"]  # documented in the prompt


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Goal:
    """A small DAG of calls; steps stand in an order in which they can be done."""

    tool: Int[Array, "C"]  # row whose relation is wanted, or -1: no such step
    source: Int[Array, "C A"]
    answer: Int[Array, ""]  # source of the final answer; -1: the word "done"
    kind: Int[Array, ""]  # which goal of the domain


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Faults:
    """What will go wrong at run time, planned before the episode."""

    failures: Int[Array, "N"]  # the first so many calls fail; FOREVER: all
    moved_to: Int[Array, "N"]  # row that replaces this one, or -1
    guided: Bool[Array, "N"]  # the redirection names the new tool
    style: Int[Array, "N"]  # how the result is written; 0 is the normal style


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Facts:
    """Recorded calls of a world, and what they returned."""

    relation: Int[Array, "R"]  # -1: no such call
    args: Int[Array, "R A"]  # symbols; 0 where the tool has no such argument
    values: Int[Array, "R F"]  # symbols; -1: no such field


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Task:
    """Arrays that define one problem: the world, the request, the faults."""

    world: UInt[Array, ""]  # the seed of all results
    tools: Tools
    goal: Goal
    faults: Faults
    phrase: Int[Array, "P"]  # symbols; -1 - q stands for constant q
    constants: Int[Array, "Q"]  # symbols; 0 where unused
    shown: Bool[Array, "Q"]  # False: left out of the request, must be asked for
    facts: Facts | None = None  # None where results are drawn


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ToolCall:
    tool: Int[Array, ""]  # row, or -1 for a name that no tool has
    args: Int[Array, "A"]  # symbols in the order of the tool; -1 missing or unknown
    code: Int[Array, ""]  # symbol, or -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Action:
    kind: Int[Array, ""]
    call: ToolCall
    value: Int[Array, ""]  # ANSWER: a symbol; ASK: index of a constant; else -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ToolResult:
    status: Int[Array, ""]
    tool: Int[Array, ""]  # row that answered, or -1
    values: Int[Array, "F"]  # symbols; -1: no such field
    code: Int[Array, ""]  # symbol, or -1
    target: Int[Array, ""]  # row that an error speaks of, or -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State(Record):
    """Hidden state of an episode."""

    done: Bool[Array, "C"]  # steps whose result has been obtained
    attempts: Int[Array, "N"]
    succeeded: Bool[Array, "N"]
    known_dead: Bool[Array, "N"]  # feedback has shown: never works
    known_from: Bool[Array, "N"]  # feedback has named this row
    told: Bool[Array, "Q"]  # constants that the user has told on request
    values: Int[Array, "C F"]  # true results of the steps
    args: Int[Array, "C A"]  # true arguments of the steps; 0 where none
