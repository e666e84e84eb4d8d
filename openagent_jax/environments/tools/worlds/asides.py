"""Sentences that perturbations add to requests and descriptions, by split.

The splits have different families of forms. In training, most asides are about an
earlier occasion, and users know from memory; in the test, most are about other people,
and users know from a record. What comes after a request stands in parentheses or is a
postscript, so that it follows any request, whether that ends with a period or not;
remarks on tools are in brackets.
"""

# Arrays are built with NumPy, and become JAX arrays in `noise`.
# pyright: reportArgumentType=false

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Int

# Small talk: before and after a request.
TALK = {
    "train": (
        ("Good day to you. ", " (Many thanks.)"),
        ("I hope you are well. ", " (Good work so far.)"),
        ("Nice to talk again. ", " (Greetings to all.)"),
        ("Sorry to ask again. ", " (You are great.)"),
    ),
    "test": (
        ("It rains here. ", " PS: it is late."),
        ("My tea is cold. ", " PS: the line is bad."),
        ("I am on a train. ", " PS: it is loud here."),
        ("My desk is a mess. ", " PS: I am new here."),
    ),
}
# A value that is not to be used, before a request and after it.
LURES = {
    "train": (
        (
            ("I asked about ", " before, it is settled. "),
            (" (Not ", ", that is settled.)"),
        ),
        (("Last week it was ", ", not now. "), (" (Last week it was ", ", not now.)")),
        (("We dealt with ", " already. "), (" (We dealt with ", " already.)")),
        (
            ("My question on ", " is answered. "),
            (" (My question on ", " is answered.)"),
        ),
    ),
    "test": (
        (("Forget ", ", others do that. "), (" PS: forget ", ".")),
        (("Leave ", " aside. "), (" PS: leave ", " aside.")),
        (("My neighbor wants ", ", not I. "), (" PS: my neighbor wants ", ", not I.")),
        (("Somebody else is on ", ". "), (" PS: somebody else is on ", ".")),
    ),
}
# Two values in place of one: what is before them and between them.
EITHER = {
    "train": (("", " or "), ("either ", " or "), ("", " or else "), ("", " or maybe ")),
    "test": (
        ("one of ", " and "),
        ("", " / "),
        ("", " versus "),
        ("the right one of ", " and "),
    ),
}
# Nothing tells which of the two is right.
UNSURE = {
    "train": (
        " (I forget which one.)",
        " (I do not recall which.)",
        " (One of the two, I forgot which.)",
        " (My memory fails me there.)",
    ),
    "test": (
        " PS: my note has both, one is wrong.",
        " PS: the page is torn just there.",
        " PS: my list leaves open which.",
        " PS: the mail names both, one is meant.",
    ),
}
# One value tells which is right, because it is named as the right or as the wrong one.
RESOLVED = {
    "train": (
        ((" (Now I remember: it is ", ".)"), (" (Now I remember: it is not ", ".)")),
        (
            (" (I recall it now: ", " is right.)"),
            (" (I recall it now: ", " is wrong.)"),
        ),
    ),
    "test": (
        ((" PS: take ", ", my note says so."), (" PS: drop ", ", my note says so.")),
        (
            (" PS: by the mail, ", " is meant."),
            (" PS: by the mail, ", " is not meant."),
        ),
    ),
}
# Praise before the description of a tool, and sentences after it that do not matter.
PRAISE = {
    "train": ("Superb: ", "Famous: ", "Best in class: ", "New: "),
    "test": ("",),  # descriptions are misspelt or cut instead
}
REMARKS = {
    "train": (
        " (well tested)",
        " (on green power)",
        " (popular)",
        " (made with love)",
    ),
    "test": (
        " [see note 4]",
        " [old text]",
        " [as of May]",
        " [internal]",
    ),
}

# What the description of a tool says of a value: that another one stands for it. Each
# row has texts around the two: first those that name this other value last, then those
# that name it first. Training says where entries are kept; the test says what to write.
FILINGS = {
    "train": (
        ((" (", " is filed under ", ")"), (" (", " also holds all of ", ")")),
        (
            (" (entries of ", " are kept under ", ")"),
            (" (under ", " we keep ", " too)"),
        ),
    ),
    "test": (
        ((" [for ", " pass ", "]"), (" [write ", " when ", " is meant]")),
        ((" [instead of ", " send ", "]"), (" [", " stands in for ", "]")),
    ),
}


class Asides(NamedTuple):
    """The symbols of these sentences; R of each kind."""

    talk: Int[Array, "R 2"]  # before a request, after it
    lures: Int[Array, "R 2 2"]  # before a request or after it; around the value
    either: Int[Array, "R 2"]  # before the values, between them
    unsure: Int[Array, "R"]
    resolved: Int[Array, "R 2 2"]  # the value is right, or wrong; around the value
    praise: Int[Array, "R"]
    remarks: Int[Array, "R"]
    # Which value is named last: the one to give, or the other; around the values.
    filings: Int[Array, "R 2 3"]


def compile(one: Callable[[str], int], described: Callable[[str], int]) -> Asides:
    """Return the sentences as symbols in NumPy, with a leading axis for the split.

    Args:
      one: returns the symbol of a text of a request.
      described: returns that of a text of a description.
    """
    requests = (TALK, LURES, EITHER, UNSURE, RESOLVED)
    made = [_symbols(table, one) for table in requests]
    made += [_symbols(table, described) for table in (PRAISE, REMARKS, FILINGS)]
    return Asides(*made)


def _symbols(table: dict[str, tuple], one: Callable[[str], int]) -> np.ndarray:
    """Return the symbols of a table; the shorter of two splits is repeated."""
    texts = [np.array(rows) for rows in table.values()]
    size = max(map(len, texts))
    texts = np.stack([x[np.arange(size) % len(x)] for x in texts])
    return np.vectorize(lambda text: one(str(text)), otypes=[np.int32])(texts)
