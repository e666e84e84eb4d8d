"""The data types of the crafting worlds: tasks, actions, results and states.

Letters used in shapes, besides those of `openagent_jax.types`:

    I items of a task    K ingredients of a recipe    P pieces of a text

Shapes in annotations are of ONE element; `jax.vmap` adds leading axes.

An item is identified by its row, which is the same in all arrays of a task. Its name is
a symbol of the lexicon, so a renamed item is still the same item.
"""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax.environments.grading import Record
from openagent_jax.text.style import NO_RESULT

NUM_ITEMS = 16  # I
NUM_INGREDIENTS = 3  # K
MAX_HELD = 12  # most units in the inventory at the start

GET, CRAFT, INVENTORY = range(3)  # the tools, in the order of their documents
NUM_TOOLS = 3

# Values of `Call.item` that are not rows.
NO_ITEM = -1  # no item was given
UNKNOWN_ITEM = -2  # the text that was given names no item of the task
WRONG_ARGUMENTS = -3  # the arguments are not exactly one `item`

# Slots of a request, as values in `Task.phrase`.
BOOK, RAW, HELD, GOAL = -1, -2, -3, -4

# Statuses of a result, besides those of `text.style`.
NO_SUCH_ITEM, NOT_RAW, NO_RECIPE, LACKING, SOLD_OUT = range(
    NO_RESULT + 1, NO_RESULT + 6
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Items:
    """The items of one task, one row each: their sources and their presentation."""

    # Rows, in the order of the recipe, padded with -1. If the first row of an item
    # is -1, it has no recipe. An ingredient that is listed twice is used up twice.
    ingredients: Int[Array, "I K"]
    raw: Bool[Array, "I"]  # whether `get` gives it
    name: Int[Array, "I"]  # symbols, all different
    place: Int[Array, "I"]  # order in the book and in lists


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Faults:
    """The faults that will occur at run time, planned before the episode."""

    failures: Int[Array, "I"]  # calls for the item that fail before one works
    sold_out: Bool[Array, "I"]  # `get` never gives it, although it is listed as raw
    form: Int[Array, "3"]  # of the results of each tool; 0 is the normal one


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Task:
    """One problem as arrays: the recipes, the inventory, the goal, the faults."""

    world: UInt[Array, ""]  # seed of the world: even in training, odd in the test split
    items: Items
    held: Int[Array, "I"]  # units in the inventory at the start
    goal: Int[Array, ""]  # row of the wanted item
    # Row of the item that the user might as well have asked for. No agent sees it; it
    # serves perturbations, to change what the goal does not need. See `worlds`.
    other_goal: Int[Array, ""]
    faults: Faults
    phrase: Int[Array, "P"]  # the request: symbols, and slots such as `BOOK`
    shown: Bool[Array, ""]  # False: the request does not name the goal


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Call:
    tool: Int[Array, ""]  # GET, CRAFT or INVENTORY; -1 for a name that no tool has
    item: Int[Array, ""]  # row, or NO_ITEM, UNKNOWN_ITEM, WRONG_ARGUMENTS


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Action:
    kind: Int[Array, ""]  # CALL, ANSWER, REFUSE, ASK or MALFORMED
    call: Call
    value: Int[Array, ""]  # ANSWER: a symbol; else -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Result:
    """The observation after an action."""

    status: Int[Array, ""]
    tool: Int[Array, ""]  # the tool that succeeded, or -1
    item: Int[Array, ""]  # row of the item that an error names, or -1
    held: Int[Array, "I"]  # units in the inventory, for the listing


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State(Record):
    """The hidden state of an episode.

    A wrong effect is the crafting of an item that the goal does not need.
    """

    held: Int[Array, "I"]  # units in the inventory
    attempts: Int[Array, "I"]  # valid calls for each item, failing ones included
    known_sold_out: Bool[Array, "I"]  # feedback has shown that it is sold out
    told: Bool[Array, ""]  # the user has named the goal when asked
    num_needed: Int[Array, ""]  # successful calls that the goal needed at the start
    fewest_left: Int[Array, ""]  # the fewest such calls that were left at any time
