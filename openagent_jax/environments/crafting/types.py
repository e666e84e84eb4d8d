"""Nouns of the crafting worlds: what a task, an action and a result are made of.

Letters used in shapes, besides those of `openagent_jax.types`:

    I items of a task    K ingredients of a recipe    P pieces of a text

Shapes in annotations are of ONE element; `jax.vmap` adds leading axes.

An item is a row, the same in all arrays of a task. Its name is a symbol of the lexicon,
so a renamed item is still the same item.
"""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax.environments.grading import Record
from openagent_jax.text.style import NO_RESULT

NUM_ITEMS = 16  # I
NUM_INGREDIENTS = 3  # K
MAX_HELD = 12  # units that an inventory may hold at the start

GET, CRAFT, INVENTORY = range(3)  # the tools, in the order of their documents
NUM_TOOLS = 3

# `Call.item` where no row can stand.
NO_ITEM = -1  # no item was given
UNKNOWN_ITEM = -2  # a text was given that names no item of the task
WRONG_ARGUMENTS = -3  # other arguments than one `item`

# Slots of a request, as they stand in `Task.phrase`.
BOOK, RAW, HELD, GOAL = -1, -2, -3, -4

# Statuses of a result, besides those of `text.style`.
NO_SUCH_ITEM, NOT_RAW, NO_RECIPE, LACKING, SOLD_OUT = range(
    NO_RESULT + 1, NO_RESULT + 6
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Items:
    """The items of one task, a row each: where they come from, and how they look."""

    # Rows, in the order of the recipe; -1 behind the last one. An item whose first
    # ingredient is -1 has no recipe. An ingredient that stands twice is used up twice.
    ingredients: Int[Array, "I K"]
    raw: Bool[Array, "I"]  # `get` gives it
    name: Int[Array, "I"]  # symbols, all different
    place: Int[Array, "I"]  # order in the book and in lists


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Faults:
    """What will go wrong at run time, planned before the episode."""

    failures: Int[Array, "I"]  # the first so many calls for the item fail
    sold_out: Bool[Array, "I"]  # `get` never gives it, although it is listed as raw
    style: Int[Array, "3"]  # how the results of a tool are written; 0 is normal


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Task:
    """Arrays that define one problem: the recipes, the inventory, the goal."""

    world: UInt[Array, ""]  # the seed of the world; even in training, odd in tests
    items: Items
    held: Int[Array, "I"]  # units in the inventory at the start
    goal: Int[Array, ""]  # the row of the item that is asked for
    faults: Faults
    phrase: Int[Array, "P"]  # symbols and slots (`BOOK` and so on) of the request
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
    """What the agent is told after an action."""

    status: Int[Array, ""]
    tool: Int[Array, ""]  # that answered, or -1
    item: Int[Array, ""]  # row that an error speaks of, or -1
    held: Int[Array, "I"]  # units in the inventory, for the listing


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State(Record):
    """Hidden state of an episode. A wrong effect is an item that was crafted although
    the goal did not need it."""

    held: Int[Array, "I"]  # units in the inventory
    attempts: Int[Array, "I"]  # valid calls for each item, failing ones included
    known_sold_out: Bool[Array, "I"]  # feedback has shown it
    told: Bool[Array, ""]  # the user has named the goal on request
    num_needed: Int[Array, ""]  # items that had to be had at the start
    fewest_left: Int[Array, ""]  # least number of items that was still to be had
