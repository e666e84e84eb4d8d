"""The data types of the tool worlds: tasks, actions, results and states.

Letters used in shapes, besides those of `openagent_jax.types`:

    N tool rows of a task       C steps of a goal
    A arguments of a tool       Q constants of a query
    F result fields             P pieces of a text
    W pieces of a description   R recorded calls of a world
    K documents                 D pieces of a document
    E columns of a table        M records that calls have touched
    L outer keys of an argument or a result field
    Z further types of an argument

Shapes in annotations are of ONE element; `jax.vmap` adds leading axes.

A *symbol* is an index into the `Lexicon`: a surface form (a word, a name, a piece of
syntax) under the tokenizer in use. A *value* of an argument or a result is a symbol or
an exact decimal number (see `text.scalars`). A *source* is the number of the place that
the value of an argument comes from: -1 if there is none, `0..Q-1` for a constant of the
query, `Q + c * V + f` for value `f` of the result of step `c`. The V values of a result
are its F fields, and those that are derived from its lists (see `result_lists`).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from openagent_jax.domains.limits import Limits
from openagent_jax.environments.grading import Record
from openagent_jax.environments.tools.cells import Access, Cells, Steps
from openagent_jax.environments.tools.choices import Choices
from openagent_jax.environments.tools.pages import Pages, Reading

# The first pieces of a description say what the tool is for.
NUM_TEXT_PIECES = Limits.num_pieces
# The last ones are free for remarks that perturbations add: one that
# names two values, with a text before, between and after them, and then an idle one.
NUM_REMARKS = 6
FOREVER = 1 << 20  # `Faults.failures` of a tool that never works
MISSING, UNACCEPTABLE = -1, -2  # in place of the value of an argument of a call
RECORDED = -1  # `Tools.result_low` of a tool that only returns recorded results


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lists:
    """The lists in the results of the tools; see `result_lists`."""

    # By field: the first field of its list and of its column, the number of its record,
    # the least and most records of its list, and the keys of the path of the list. A
    # field of no list is its own column and has 0 for the others.
    first: Int[Array, "N F"]
    column: Int[Array, "N F"]
    record: Int[Array, "N F"]
    least: Int[Array, "N F"]
    most: Int[Array, "N F"]
    level: Int[Array, "N F"]
    # Y derived values: operation, column that is compared, column that is taken.
    derived: Int[Array, "N Y 3"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tools:
    """The tools of one task, one row each: their meaning and their presentation.

    A tool is identified by its row. Its `relation` determines its results: two rows
    with the same relation return equal results for equal arguments.
    """

    # Meaning.
    relation: Int[Array, "N"]
    # The range of accepted values; see `scalars.within`.
    arg_low: Int[Array, "N A"]
    arg_high: Int[Array, "N A"]  # high == low: there is no such argument
    # The ranges of further types that an argument may be of: low and high.
    arg_also: Int[Array, "N A Z 2"]
    # What an argument is if a call leaves it out: a value, 0 for nothing. -1: it is
    # required.
    arg_default: Int[Array, "N A"]
    # The range of values of each result field; low == high if there is no such field.
    # Low is `RECORDED` if the world only answers recorded calls.
    result_low: Int[Array, "N F"]
    result_high: Int[Array, "N F"]
    code: Int[Array, "N"]  # symbol of the nonce that a successful call reveals
    code_from: Int[Array, "N"]  # row of the tool whose code must be passed, or -1
    call_after: Int[Array, "N"]  # row of a tool that must have succeeded before, or -1
    effect: Bool[Array, "N"]  # whether a successful call changes the world
    # Presentation.
    name: Int[Array, "N"]
    description: Int[Array, "N W"]  # pieces; symbol 0 is the empty text
    # The own key of each argument, and the keys that it is under; see `text.nesting`.
    arg_name: Int[Array, "N A"]
    arg_path: Int[Array, "N A L"]
    result_name: Int[Array, "N F"]
    place: Int[Array, "N"]  # order in the documents
    visible: Bool[Array, "N"]  # documented in the prompt
    # The document of the tool's file, whose words are replaced by those above; an index
    # into `worlds.documents.Documents`. -1 if it has none and is written generically.
    document: Int[Array, "N"]
    # The outer keys of each result field, outermost first, as in `text.nesting`.
    result_path: Int[Array, "N F L"]
    lists: Lists | None = None  # None if no domain of the world has any
    access: Access | None = None  # how tools read and change records; None if none does
    pages: Pages | None = None  # how results are divided; None if all are whole

    @property
    def num_values(self) -> int:
        """V, the values of a result of one task."""
        derived = 0 if self.lists is None else self.lists.derived.shape[1]
        return self.result_low.shape[1] + derived


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Goal:
    """A small directed acyclic graph of calls, with its steps in topological order."""

    tool: Int[Array, "C"]  # row of a tool with the wanted relation; -1: no such step
    source: Int[Array, "C A"]  # source of each argument; -1: it is left out
    answer: Int[Array, ""]  # source of the final answer; -1: the word "done"
    # Index of the goal in its domain; -1 - index if another domain has replaced the
    # task, or has a part in it.
    kind: Int[Array, ""]
    # The condition of each step: the source of a value, a comparison (see
    # `conditions`), and the source that the value is compared with; -1: no condition.
    when: Int[Array, "C 3"] | None = None  # None if no goal of the world has any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Change:
    """What the user changes about the request, after its first right answer."""

    constant: Int[Array, ""]  # the constant that changes; -1: nothing does
    value: Int[Array, ""]  # its new value
    # Symbols of the texts before the new value, between it and the old one, and after.
    text: Int[Array, "3"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Faults:
    """The faults that will occur at run time, planned before the episode."""

    failures: Int[Array, "N"]  # calls that fail before it works; FOREVER: all
    moved_to: Int[Array, "N"]  # row of the tool that replaces this one, or -1
    # The number of steps that have been done when the tool ceases to work; FOREVER: it
    # does not. The tool that replaces it begins to work then, or is there already if
    # this one is deprecated. Only a tool that does not fail, returns its values at
    # once, and neither touches records nor reads what changes, may cease after the
    # first step.
    gone_at: Int[Array, "N"]
    lister: Int[Array, ""]  # row of the tool that names new tools, or -1
    guided: Bool[Array, "N"]  # whether the error message names the new tool
    # Whether it still works, and its results name the tool that will replace it.
    deprecated: Bool[Array, "N"]
    form: Int[Array, "N"]  # of results (see `text.result_forms`); 0 is the normal one
    wording: Int[Array, "N"]  # of errors (see `text.error_texts`); 0 is the normal one
    # Calls without an effect that return no values, although they succeed, before the
    # tool returns them.
    blanks: Int[Array, "N"]
    # Symbol of a second code of the tool, which replaces the first one as soon as that
    # is used; 0 if the first one lasts.
    new_code: Int[Array, "N"]
    untold: Bool[Array, "N"]  # the document does not say what has to be called before
    # Whether the result of a step changes after it has been read, before it is used.
    stale: Bool[Array, "C"]
    # After each `quota` calls, `pause` calls are refused, whichever they are.
    quota: Int[Array, ""]
    pause: Int[Array, ""]  # 0: calls are not limited
    change: Change


def no_faults(num_tools: int, num_steps: int) -> Faults:
    """Return the faults of a world whose tools all work and answer in normal form."""
    none, no = jnp.zeros(num_tools, jnp.int32), jnp.zeros(num_tools, bool)
    return Faults(
        failures=none,
        moved_to=none - 1,
        gone_at=none + FOREVER,
        lister=jnp.int32(-1),
        guided=no,
        deprecated=no,
        form=none,
        wording=none,
        blanks=none,
        new_code=none,
        untold=no,
        stale=jnp.zeros(num_steps, bool),
        quota=jnp.int32(FOREVER),
        pause=jnp.int32(0),
        change=Change(jnp.int32(-1), jnp.int32(0), jnp.zeros(3, jnp.int32)),
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Facts:
    """The recorded calls of a logged world, and their results."""

    relation: Int[Array, "R"]  # -1: no such call
    args: Int[Array, "R A"]  # values; 0 where the tool has no such argument
    values: Int[Array, "R F"]  # -1: no such field
    bare: Bool[Array, "R F"]  # which values JSON writes without quotes


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Task:
    """One problem as arrays: the world, the request, the faults."""

    world: UInt[Array, ""]  # seed of all generated results
    tools: Tools
    goal: Goal
    faults: Faults
    # Symbols, and values that are said besides; -1 - q stands for constant q, and
    # -1 - Q - q for constant q even if the request does not show it.
    phrase: Int[Array, "P"]
    constants: Int[Array, "Q"]  # values that calls need; 0 where unused
    # What the user says for them: the same, unless a document says that another value
    # has to be given.
    said: Int[Array, "Q"]
    shown: Bool[Array, "Q"]  # False: the request leaves it out, the agent must ask
    facts: Facts | None = None  # None if results are generated

    def source_step(self, source: Int[Array, "*S"]) -> Int[Array, "*S"]:
        """Return the step whose result a source is; below 0 for a constant or none."""
        return (source - self.constants.shape[0]) // self.tools.num_values

    def from_step(self, source: Int[Array, "*S"]) -> Bool[Array, "*S C"]:
        """Tell of each step whether a source is one of its results."""
        return jax.nn.one_hot(self.source_step(source), len(self.goal.tool), dtype=bool)


@dataclass(frozen=True)
class TaskPools:
    """What perturbations of a task draw from, as its domain or log has it.

    They belong to the task's own goal, so that none is larger if there are more goals.
    Y is the number of synonyms, R that of gates or phrases, and U that of sets of tools
    that requests need. A gate is a tool without arguments that must be called before
    another tool.
    """

    names: Int[Array, "N Y"]  # synonyms of each tool
    descriptions: Int[Array, "N Y"]
    arg_names: Int[Array, "N A Y"]  # 0: none
    arg_paths: Int[Array, "N A L Y"]  # of its outer keys
    gates: Int[Array, "R 2"]  # name and description of each gate
    phrases: Int[Array, "R P"]  # rewritten requests, which may have choices
    num_phrases: Int[Array, ""]
    choices: Choices  # the texts of these choices
    shifted: Int[Array, "N F 2"]  # result ranges with unfamiliar entities
    constant_range: Int[Array, "Q 2"]  # constant ranges with unfamiliar entities
    # What the constants are drawn from; at most one value where no others are known.
    own_range: Int[Array, "Q 2"]
    # Other requests that could be made of the same tools: the probability of each set
    # of rows that one needs, these rows, and those of them that it needs whatever its
    # conditions. The probabilities may sum to less than 1: then there may be no other
    # request.
    other_rate: Float[Array, "U"]
    other_needs: Bool[Array, "U N"]
    other_sure: Bool[Array, "U N"]
    # Ranges of initial values of columns with unfamiliar entities; None if there are no
    # records.
    shifted_columns: Int[Array, "N E 2"] | None


class Wording(NamedTuple):
    """The texts of tasks, of one split, that noise is added to; on the host."""

    names: Int[np.ndarray, "_"]  # of tools, their synonyms included
    descriptions: Int[np.ndarray, "_"]  # first pieces of them, synonyms included
    pieces: Int[np.ndarray, "_"]  # the texts that requests are made of
    frequency: Float[np.ndarray, "_"]  # how often each of these pieces occurs


class Reworded(NamedTuple):
    """Some texts, and V other forms of each.

    A perturbation checks that a task still has the text before it uses a form, since
    another one may have changed the task.
    """

    text: Int[Array, "*_"]
    forms: Int[Array, "*_ V"]  # 0 for none


# The index of a split: 0 for training and 1 for the test. It is an array where one
# program serves both.
Split = int | Int[Array, ""]


class Tasks(Protocol):
    """What tasks are sampled from, as a pytree of arrays: a domain or a log."""

    def sample(self, key: jax.Array, split: Split, num_visible: int) -> Task:
        """Sample a task that documents `num_visible` tools, or more if needed."""
        ...

    def pools(self, task: Task, split: Split, gates: Int[Array, "R 2"]) -> TaskPools:
        """Return what perturbations of one of its tasks draw from.

        Args:
          task: the task.
          split: the split whose synonyms are used.
          gates: name and description of each gate that a perturbation can add.
        """
        ...

    def wording(self, split: int) -> Wording:
        """Return the texts of a split that noise is added to; this runs on the host."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ToolCall:
    tool: Int[Array, ""]  # row, or -1 for a name that no tool has
    args: Int[Array, "A"]  # values, in the tool's order; `MISSING` or `UNACCEPTABLE`
    code: Int[Array, ""]  # symbol, or -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Action:
    kind: Int[Array, ""]  # CALL, ANSWER, REFUSE, ASK or MALFORMED of `text.reply_scan`
    call: ToolCall
    value: Int[Array, ""]  # the value of an ANSWER; else -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ToolResult:
    status: Int[Array, ""]  # see `text.style`
    tool: Int[Array, ""]  # row of the tool that succeeded, or -1
    values: Int[Array, "F"]  # -1: no such field
    code: Int[Array, ""]  # symbol, or -1
    target: Int[Array, ""]  # row of the tool that an error or notice names, or -1
    wait: Int[Array, ""]  # calls that will be refused after this one
    blank: Bool[Array, ""]  # the values are missing
    wording: Int[Array, ""]  # of an error; see `Faults`
    # Which values JSON writes without quotes; None if results are generated: then all
    # have quotes.
    bare: Bool[Array, "F"] | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State(Record):
    """The hidden state of an episode."""

    done: Bool[Array, "C"]  # steps whose result has been obtained
    attempts: Int[Array, "N"]  # calls that reached the tool, whether they failed or not
    succeeded: Bool[Array, "N"]
    known_dead: Bool[Array, "N"]  # feedback has shown that the tool never works
    known_from: Bool[Array, "N"]  # feedback has named the tool as a replacement
    told: Bool[Array, "Q"]  # constants that the user has given when asked
    limited: Int[Array, ""]  # calls that have counted for the quota
    has_code: Bool[Array, "N"]  # the tool has told the code that is valid now
    renewed: Bool[Array, "N"]  # the first code of the tool has expired
    # Feedback has shown that the code of another tool is needed, or a call of it.
    known_needs: Bool[Array, "N 2"]
    read_by: Int[Array, "C"]  # row that has shown a result that changes since; or -1
    known_stale: Bool[Array, "C"]  # feedback has shown that it has changed
    # Steps that have been done, where those that a change of the request asks for again
    # count again.
    clock: Int[Array, ""]
    # Documented tools that feedback has shown to be gone, since new tools were listed.
    missed: Bool[Array, "N"]
    changed: Bool[Array, ""]  # the user has changed the request
    values: Int[Array, "C V"]  # true results of the steps
    args: Int[Array, "C A"]  # true arguments of the steps; 0 where there is none
    # The arguments as they are before results that change are read again.
    first_args: Int[Array, "C A"]
    # Results and arguments of the steps after the request has changed.
    new_values: Int[Array, "C V"]
    new_args: Int[Array, "C A"]
    again: Bool[Array, "C"]  # the steps that have to be done once more then
    spoiled: Bool[Array, ""]  # an effect that no call can undo was wrong
    cells: Cells | None = None  # the records that were touched
    steps: Steps | None = None  # the records of the steps, as the goal leaves them
    reading: Reading | None = None  # how far results in pages have been read
