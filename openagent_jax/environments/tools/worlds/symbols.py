"""Surface forms that all tool worlds share: codes, opaque names, and gates."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from openagent_jax.text import symbols

# Tools that must be called before others: name, description.
GATES = {
    "train": (
        ("get_pass", "pass for other tools"),
        ("fetch_token", "access token"),
        ("open_gate", "gate to other tools"),
        ("start_lock", "lock before use"),
    ),
    "test": (
        ("issue_permit", "permit before other calls"),
        ("mint_voucher", "voucher of entry"),
        ("claim_slot", "slot in the queue"),
        ("raise_flag", "flag of intent"),
    ),
}

# Notes in the descriptions of two tools that answer the same question: of the one to
# follow, and of the other. Those for training say where the data come from, those
# for the test how far they are to be trusted. Neither is mostly the longer one.
NOTES = {
    "train": (
        (
            " (system of record)",
            " (master data)",
            " (primary source of data)",
            " (original register)",
        ),
        (
            " (cached copy)",
            " (mirror, may be out of date)",
            " (replica that lags behind)",
            " (export)",
        ),
    ),
    "test": (
        (
            " (official, in force)",
            " (audited)",
            " (certified figures)",
            " (approved, rely on this one)",
        ),
        (
            " (draft)",
            " (estimate)",
            " (legacy, for reference only)",
            " (abandoned years ago)",
        ),
    ),
}
# What is between two requests that become one: sentences that lead from one to the
# other, and for the test marks of the parts of a list.
JOINTS = {
    "train": (
        " After that, answer only this: ",
        " When this is done, I ask you: ",
        " Do so first. What I want to know then: ",
        " Once you have it, the question to answer is: ",
    ),
    "test": (
        " [part 2 of 2, the one to report] ",
        " + as well, with its result as the reply: ",
        " -- second item (reply to this one): ",
        " // 2nd of two; final output: ",
    ),
}

# Tools that name new tools: name, description.
LISTERS = {
    "train": (
        ("list_tools", "names of new tools"),
        ("show_added", "tools that were added"),
        ("get_tool_list", "current list of tools"),
        ("find_new_tool", "new tool in place of another"),
    ),
    "test": (
        ("release_notes", "latest releases"),
        ("whats_new", "overview of additions"),
        ("api_index", "index of what is in service"),
        ("announcements", "news of the interface"),
    ),
}
# What the user says to change a value of the request: before the new value, between it
# and the old one, and after both. For training it was meant so from the start; for the
# test something has come up.
CHANGES = {
    "train": (
        ("Sorry, I meant ", ", not ", "."),
        ("I was wrong, make it ", " instead of ", "."),
        ("That was for the wrong one: I need ", " in place of ", "."),
        ("I should have said ", " where I said ", "."),
    ),
    "test": (
        ("Our plans changed, redo it with ", " for ", " please."),
        ("New wish: ", " replaces ", "!"),
        ("Once more, now using ", " rather than ", " please."),
        ("We switch to ", ", so forget ", "!"),
    ),
}

# What stands in a request in place of a value that it leaves out.
VAGUE = {
    "train": (
        "something",
        "whatever it was",
        "that thing",
        "any of those",
        "(to be added)",
        "what I told my friend",
    ),
    "test": (
        "the usual",
        "you know which",
        "(see above)",
        "same as last time",
        "the obvious choice",
        "xxx",
    ),
}

NUM_CODES, NUM_OPAQUE = 4096, 256


class ToolSymbols(symbols.Symbols):
    """The surface forms with which every tool world begins.

    Results are drawn by hashing symbol numbers, so the order in which forms are added
    here must not change.

    >>> table = ToolSymbols()
    >>> len(table.codes), len(table.opaque["train"]), table.gates["test"].shape
    (4096, 256, (4, 2))
    """

    def __init__(self):
        super().__init__()
        self.codes = self.add(_codes())
        self.opaque = {
            "train": self.add(_opaque(("tool", "func", "api"), "abcdefghij")),
            "test": self.add(_opaque(("op", "cmd", "m"), "klmnopqrst")),
        }
        self.gates = {
            split: np.array([[self.one(text) for text in gate] for gate in gates])
            for split, gates in GATES.items()
        }
        # Here, so that domains share the style with them, and so compiled programs.
        self.digits()


def _shuffled(texts: Sequence[str], num: int, seed: int) -> list[str]:
    order = np.random.default_rng(seed).permutation(len(texts))[:num]
    return [texts[int(i)] for i in order]


def _codes() -> list[str]:
    """Return nonces such as `zuk4`, too many to guess, of three or four tokens each."""
    letters = "bcdfghjklmnpqrstvwxz"
    codes = map("".join, product(letters, "aeiou", letters, "23456789"))
    return _shuffled(list(codes), NUM_CODES, seed=0)


def _opaque(prefixes: Sequence[str], letters: str) -> list[str]:
    """Return names that do not tell what a tool does, such as `tool_c41`."""
    names = [
        f"{prefix}_{letter}{number}"
        for prefix in prefixes
        for letter in letters
        for number in range(10, 100)
    ]
    return _shuffled(names, NUM_OPAQUE, seed=1)
