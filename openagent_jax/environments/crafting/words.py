"""The texts of crafting worlds: names of items, tools, requests and errors.

Names and requests have a pool for training and one for tests, which share no text.
"""

import re
from itertools import product
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from openagent_jax.environments.crafting.types import (
    BOOK,
    GOAL,
    HELD,
    LACKING,
    NO_RECIPE,
    NO_SUCH_ITEM,
    NOT_RAW,
    RAW,
    SOLD_OUT,
)
from openagent_jax.environments.world import SPLITS
from openagent_jax.text.symbols import Range, Symbols

# Tools: name, description, whether they take an item, in the order of
# `types.GET`, `types.CRAFT` and `types.INVENTORY`.
TOOLS = (
    ("get", "take an item", True),
    ("craft", "make an item", True),
    ("inventory", "show items", False),
)
ITEM = "item"  # the name of the argument
ERRORS = {
    NO_SUCH_ITEM: "no such item",
    NOT_RAW: "not a raw item",
    NO_RECIPE: "it has no recipe",
    LACKING: "you need ",
    SOLD_OUT: "sold out",
}

# A name is a material and a thing: `copper plate`. Most words are one token of our own
# tokenizer.
MATERIALS = {
    "train": "amber ash gold salt sugar ink sun oil fire wind red black round old iron "
    "oak copper glass linen clay",
    "test": "ice rice bone soap tea rock milk lead coffee rain blue white square new "
    "stone silver wool wax tin steel",
}
THINGS = {
    "train": "plate sheet box bell arrow bag book chair cup key pipe hat log gate net "
    "shelf",
    "test": "ring bar ball arch nest bed card clock dish lock pot table tube flag nut "
    "door",
}
# Unfamiliar forms, such as `Fern-7`.
FOREIGN = {
    "train": "Ash Brook Delta Fabric Fern Icon Leaf Mill River Sand Tin Wood Bay Gold",
    "test": "Bell Engine Falcon Hill Jar Log Ray Robin Spring Trail Tulip Port Sun Map",
}
# Names without meaning, such as `k41`.
LETTERS = {"train": "abcdefghij", "test": "klmnopqrst"}
# The number of names of each pool that are used. These are primes, so that steps of any
# stride visit all names; see `worlds.draw_names`.
NUM_NAMES, NUM_OPAQUE, NUM_FOREIGN = 317, 397, 139

PHRASES = {
    "train": (
        "recipes:\n{book}\nraw items: {raw}\nyou have: {held}\nplease make: {goal}",
        "can you make this: {goal}? you have: {held}\nyou can get: {raw}\n"
        "recipes:\n{book}",
        "I want: {goal}\nmake it by these recipes:\n{book}\nI have: {held}\n"
        "raw items are: {raw}",
        "you can take: {raw}\nhere is my stock: {held}\nthe recipe book:\n{book}\n"
        "now make: {goal}",
    ),
    "test": (
        "the book says:\n{book}\nto take: {raw}\nin stock: {held}\ngoal: {goal}",
        "get me one of these: {goal}. My items: {held}\nraw ones: {raw}\n"
        "how to make items:\n{book}",
        "I need: {goal}\nin my bag: {held}\nto be had raw: {raw}\nuse this book:\n"
        "{book}",
        "raw: {raw}\nwe own: {held}\nour rules:\n{book}\nthe order is: {goal}",
    ),
}
# The same requests in other words.
REWRITES = {
    "train": (
        "so, about this one: {goal}. Know how?\n{book}\nfree to take: {raw}\n"
        "got: {held}",
        "all I got is: {held}\nlook out for: {raw}\nread this:\n{book}\n"
        "let me see one: {goal}",
    ),
    "test": (
        "hi, what about: {goal}? My notes:\n{book}\nlots of: {raw}\nleft over: {held}",
        "found in the house: {held}\nat the shop: {raw}\nwork by this list:\n{book}\n"
        "finish with: {goal}",
    ),
}
_SLOTS = {"book": BOOK, "raw": RAW, "held": HELD, "goal": GOAL}
MAX_PIECES = 9  # of a request: four slots, and the texts around them


class Words(NamedTuple):
    """The symbols of the words that are the same in all tasks."""

    tools: tuple[int, ...]
    descriptions: tuple[int, ...]
    item: int  # the argument of `get` and `craft`
    items: int  # the field of an inventory
    errors: tuple[int, ...]  # in the order of their statuses, from `NO_SUCH_ITEM` on
    colon: int  # between an item and its ingredients
    comma: int
    line: int  # between two recipes
    nothing: int  # in place of an empty list
    more: int  # where a list is cut


class Pools(NamedTuple):
    """The ranges of names and the requests of one split."""

    names: Int[Array, "2"]
    opaque: Int[Array, "2"]
    foreign: Int[Array, "2"]
    phrases: Int[Array, "R P"]
    rewrites: Int[Array, "R P"]


def words(table: Symbols) -> Words:
    """Add all words to the table, and return their symbols."""
    return Words(
        tools=tuple(table.one(name) for name, _, _ in TOOLS),
        descriptions=tuple(table.one(text) for _, text, _ in TOOLS),
        item=table.one(ITEM),
        items=table.one("items"),
        errors=tuple(table.one(ERRORS[status]) for status in sorted(ERRORS)),
        colon=table.one(": "),
        comma=table.one(", "),
        line=table.one("\n"),
        nothing=table.one("nothing"),
        more=table.one(" and more"),
    )


def pools(table: Symbols) -> dict[str, Pools]:
    """Add the texts of all pools to the table, and return the pools by split."""

    def bounds(added: Range) -> Int[Array, "2"]:
        return jnp.array([added.low, added.high])

    def requests(texts: tuple[str, ...]) -> Int[Array, "R P"]:
        return jnp.array([_pieces(text, table) for text in texts])

    return {
        split: Pools(
            names=bounds(table.add(names(split))),
            opaque=bounds(table.add(opaque(split))),
            foreign=bounds(table.add(foreign(split))),
            phrases=requests(PHRASES[split]),
            rewrites=requests(REWRITES[split]),
        )
        for split in SPLITS
    }


def names(split: str) -> list[str]:
    """Return the names of items of a split.

    >>> names("train")[:2]
    ['amber plate', 'amber sheet']
    """
    pairs = product(MATERIALS[split].split(), THINGS[split].split())
    return [f"{material} {thing}" for material, thing in pairs][:NUM_NAMES]


def opaque(split: str) -> list[str]:
    """Return the names of a split that have no meaning.

    >>> opaque("test")[0]
    'k10'
    """
    pairs = product(LETTERS[split], range(10, 50))
    return [f"{letter}{number}" for letter, number in pairs][:NUM_OPAQUE]


def foreign(split: str) -> list[str]:
    """Return the names of a split that have an unfamiliar form.

    >>> foreign("train")[0]
    'Ash-0'
    """
    pairs = product(FOREIGN[split].split(), range(10))
    return [f"{word}-{digit}" for word, digit in pairs][:NUM_FOREIGN]


def _pieces(phrase: str, table: Symbols) -> list[int]:
    """Return the symbols and slots of a request, padded with 0 to `MAX_PIECES`."""
    parts = re.split(r"{(\w+)}", phrase)
    pieces = [
        _SLOTS[part] if i % 2 else table.one(part) for i, part in enumerate(parts)
    ]
    return pieces + [0] * (MAX_PIECES - len(pieces))
