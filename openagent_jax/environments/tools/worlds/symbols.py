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
