"""Every noun of openagent_jax: frozen pytree dataclasses, one file.

Letters used in shapes, here and everywhere:

    B trajectories      N tool rows of a task     P pieces of a text
    G samples of a task A arguments of a tool     S tokens
    T turns             F result fields           V vocabulary
    C steps of a goal   Q constants of a query    D width, L layers
    W pieces of a description                     H heads, K head size, M cache slots
    R recorded calls of a world

Shapes in annotations are of ONE element; `jax.vmap` adds leading axes.

A *symbol* is an index into the `Lexicon`: a surface form (a word, a name, a
number, a piece of syntax) under the tokenizer in use. A *source* says where the
value of an argument comes from: -1 nowhere, `0..Q-1` a constant of the query,
`Q + c * F + f` field `f` of the result of step `c`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Bool, Float, Int, UInt

Params = Any  # a pytree of arrays
Metrics = dict[str, jax.Array]

# Kinds of action.
CALL, ANSWER, REFUSE, ASK, MALFORMED = range(5)

# Status of a result. Below `NO_RESULT` the tool answered, or said why not.
(
    OK,
    BAD_FORMAT,  # the action could not be parsed
    UNKNOWN_TOOL,
    BAD_ARGUMENT,  # missing, unknown, or of another type
    WRONG_CODE,  # the code that the tool needs is missing or wrong
    OUT_OF_ORDER,  # another tool must be called first
    TRANSIENT,  # runtime error, goes away when called again
    PERMANENT,  # runtime error that stays
    MOVED,  # replaced by another tool
    USER_REPLY,  # the user's answer to `ASK`
    NO_RESULT,  # the episode is over, nothing is shown
) = range(11)


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
    family: Int[Array, ""]  # which goal family of the domain


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
class State:
    """Hidden state of an episode."""

    turn: Int[Array, ""]
    num_calls: Int[Array, ""]
    num_errors: Int[Array, ""]  # calls that were answered by an error
    wrong_effects: Int[Array, ""]  # effects that the goal did not ask for
    done: Bool[Array, "C"]  # steps whose result has been obtained
    attempts: Int[Array, "N"]
    succeeded: Bool[Array, "N"]
    known_dead: Bool[Array, "N"]  # feedback has shown: never works
    known_from: Bool[Array, "N"]  # feedback has named this row
    told: Bool[Array, "Q"]  # constants that the user has told on request
    values: Int[Array, "C F"]  # true results of the steps
    args: Int[Array, "C A"]  # true arguments of the steps; 0 where none
    solvable: Bool[Array, ""]  # by the oracle
    finished: Bool[Array, ""]
    success: Bool[Array, ""]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TimeStep:
    observation: ToolResult
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trajectory:
    """One episode by turns. `valid[t]` is False after its end."""

    task: Task
    action: Action  # leading axis T
    result: ToolResult  # leading axis T
    valid: Bool[Array, "T"]
    state: State  # at the end


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """Tokens that a loss eats. Three masks stay apart (see `losses`)."""

    tokens: Int[Array, "B S"]
    positions: Int[Array, "B S"]
    # Attention: a token sees those before it of its own segment; 0 is padding. A row
    # may hold several texts, one behind the other, each from position 0 on.
    segments: Int[Array, "B S"]
    loss_mask: Bool[Array, "B S"]  # policy loss: tokens that the policy produces
    divisor: Float[Array, "B"]  # what each row adds to what the loss is divided by
    # What else the loss of the algorithm needs: leading axis B, of a second one S.
    extra: Any = ()

    @property
    def valid(self) -> Bool[Array, "B S"]:
        """Real tokens."""
        return self.segments > 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prefix:
    """What each of P groups of rows has read in common; B / P rows in a row are a
    group. It is read only: attention to it is one matrix product a group
    (arXiv 2402.05099)."""

    keys: tuple[Float[Array, "P H K _"], ...]  # [layer]
    values: tuple[Float[Array, "P H _ K"], ...]
    length: Int[Array, "B"]  # tokens, for each row


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far, those of each row from slot 0 on, in blocks
    of slots: the first blocks alone are a cache of fewer slots. One array per block and
    layer: a loop that carries the cache then updates it in place. H counts the heads of
    keys and values."""

    keys: tuple[tuple[Float[Array, "B H K _"], ...], ...]  # [block][layer]
    values: tuple[tuple[Float[Array, "B H _ K"], ...], ...]
    length: Int[Array, "B"]  # tokens of each row, with those of the prefix
    prefix: Prefix | None = None  # comes before slot 0

    @property
    def block_sizes(self) -> list[int]:
        """Slots of each block."""
        return [layer[0].shape[-1] for layer in self.keys]

    @property
    def num_used(self) -> Int[Array, "B"]:
        """Slots of each row that are in use."""
        return self.length - self.prefix.length if self.prefix else self.length

    def first(self, num_blocks: int) -> "Cache":
        """The first blocks alone."""
        return replace(
            self, keys=self.keys[:num_blocks], values=self.values[:num_blocks]
        )


class Policy(NamedTuple):
    """Pure functions over `params`; hides the model library."""

    init: Callable[..., Params]  # (key) -> params
    # (params, tokens, positions, segments) -> [B S D]
    hidden: Callable[..., jax.Array]
    init_cache: Callable[..., Cache]  # (num_rows, slots of each block) -> cache
    # (params, cache, tokens, num_new [B]) -> (hidden [B S D], cache); of each row the
    # first num_new tokens count, and what has no slot is not written
    extend: Callable[..., tuple[jax.Array, Cache]]
    head: Callable[..., jax.Array]  # (params, hidden [... D]) -> logits [... V]
    # params -> params for `extend` and `head` of which nothing must be cut out first: a
    # program of few steps that is called often has no time for that
    apart: Callable[[Params], Params] = lambda params: params


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    step: Int[Array, ""]
    params: Params
    opt_state: Any
    key: Any  # the root of all randomness of the run; never changes
    # More branches of the parameters: used, but neither trained nor saved.
    frozen: Params = field(default_factory=dict)


class Algorithm(NamedTuple):
    """A pair of pure functions."""

    # (state, key, tasks) -> (Batch, metrics of the making); the state is read only
    make_batch: Callable[..., tuple[Batch, Metrics]]
    # (params, part of a batch, sum of the divisors of the whole batch) ->
    # (loss, metrics); the losses of the parts add up to that of the batch, and metrics
    # are sums over loss tokens, to become means
    loss_fn: Callable[..., tuple[jax.Array, Metrics]]
