"""Sentences that perturbations add to requests and descriptions, by split.

Each kind has another family of forms in the test than in training: who speaks of an
earlier occasion, or of somebody else; who knows from memory, or from a record. What
comes after a request stands in parentheses or is a postscript, so that it follows any
request, whether that ends with a period or not; remarks on tools are in brackets.
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
        ("I hope your day goes well. ", " (Many thanks for your patience.)"),
        ("Good to talk to you again. ", " (You do good work, by the way.)"),
        ("Sorry to trouble you once more. ", " (I owe you a coffee for this.)"),
        ("You were of great help last time. ", " (Greetings to the whole team.)"),
    ),
    "test": (
        ("My tea went cold as I typed this. ", " PS: my keyboard has lost a key."),
        ("It rains here and the train is late. ", " PS: lunch is in a minute or two."),
        ("I write this in a crowded tram. ", " PS: it is loud here today."),
        ("My other phone keeps ringing. ", " PS: this is my first day back."),
    ),
}
# A value that is not to be used, before a request and after it.
LURES = {
    "train": (
        (
            ("I asked about ", " yesterday, that is settled. "),
            (" (I asked about ", " yesterday, that is settled.)"),
        ),
        (
            ("Last week it was ", ", which is done. "),
            (" (Last week it was ", ", which is done.)"),
        ),
        (
            ("My question on ", " was answered before. "),
            (" (My question on ", " was answered before.)"),
        ),
        (
            ("We have dealt with ", " already. "),
            (" (We have dealt with ", " already.)"),
        ),
    ),
    "test": (
        (
            ("Forget ", ", a colleague looks after it. "),
            (" PS: forget ", ", a colleague looks after it."),
        ),
        (
            ("Leave ", " aside, others do that. "),
            (" PS: leave ", " aside, others do that."),
        ),
        (
            ("What you heard of ", " was for my neighbor. "),
            (" PS: what you heard of ", " was for my neighbor."),
        ),
        (
            ("Somebody else is on ", ", so pass over it. "),
            (" PS: somebody else is on ", ", so pass over it."),
        ),
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
        " (I do not remember which of the two.)",
        " (I forget which one it was.)",
        " (One of the two, I cannot recall which.)",
        " (My memory fails me there.)",
    ),
    "test": (
        " PS: my note has both, and one is wrong.",
        " PS: the page is torn just where it says which.",
        " PS: my list does not say which of them.",
        " PS: only one is meant, the mail leaves it open.",
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
    "train": ("Award-winning: ", "Loved by all teams: ", "Best in class: ", "New: "),
    "test": ("",),  # descriptions are misspelt or cut instead
}
REMARKS = {
    "train": (
        " (built by the core team)",
        " (runs on green power)",
        " (has a nice logo)",
        " (made with love)",
    ),
    "test": (
        " [see ticket 4411]",
        " [subject to section 9]",
        " [unchanged since May]",
        " [license: see NOTICE]",
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


def compile(one: Callable[[str], int], described: Callable[[str], int]) -> Asides:
    """Return the sentences as symbols in NumPy, with a leading axis for the split.

    Args:
      one: returns the symbol of a text of a request.
      described: returns that of a text of a description.
    """
    requests = (TALK, LURES, EITHER, UNSURE, RESOLVED)
    made = [_symbols(table, one) for table in requests]
    made += [_symbols(table, described) for table in (PRAISE, REMARKS)]
    return Asides(*made)


def _symbols(table: dict[str, tuple], one: Callable[[str], int]) -> np.ndarray:
    """Return the symbols of a table; the shorter of two splits is repeated."""
    texts = [np.array(rows) for rows in table.values()]
    size = max(map(len, texts))
    texts = np.stack([x[np.arange(size) % len(x)] for x in texts])
    return np.vectorize(lambda text: one(str(text)), otypes=[np.int32])(texts)
