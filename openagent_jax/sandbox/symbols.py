"""All surface forms that are not of a domain: syntax, numbers, codes, odd names.

`Symbols` is the host-side list from which the `Lexicon` is built: whoever adds
texts gets back their range of symbols.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from openagent_jax.sandbox import style

# Tools that guard others: name, description.
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

NUM_NUMBERS, NUM_CODES, NUM_OPAQUE = 1000, 4096, 256


@dataclass(frozen=True)
class Range:
    """Symbols `low <= s < high`."""

    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low


class Symbols:
    """The growing list of surface forms; symbol 0 is the empty text."""

    def __init__(self):
        self.texts: list[str] = [""]
        self._index = {"": 0}
        # Whatever the style, the same: a world does not depend on how it is written.
        style.mapped(style.compact(max_args=2), self.one)
        self.numbers = self.add([str(i) for i in range(NUM_NUMBERS)])
        self.codes = self.add(_codes())
        self.opaque = {
            "train": self.add(_opaque(("tool", "func", "api"), "abcdefghij")),
            "test": self.add(_opaque(("op", "cmd", "m"), "klmnopqrst")),
        }
        self.gates = {
            split: np.array([[self.one(text) for text in gate] for gate in gates])
            for split, gates in GATES.items()
        }

    def one(self, text: str) -> int:
        """The symbol of a text, added where it is new."""
        if text not in self._index:
            self._index[text] = len(self.texts)
            self.texts.append(text)
        return self._index[text]

    def add(self, texts: Sequence[str]) -> Range:
        """A new contiguous range of symbols."""
        low = len(self.texts)
        self.texts.extend(texts)
        for symbol, text in enumerate(texts, low):
            self._index.setdefault(text, symbol)
        return Range(low, len(self.texts))


def _shuffled(texts: Sequence[str], num: int, seed: int) -> list[str]:
    order = np.random.default_rng(seed).permutation(len(texts))[:num]
    return [texts[int(i)] for i in order]


def _codes() -> list[str]:
    """Nonces such as `zuk4`: too many to guess, three or four tokens long."""
    letters = "bcdfghjklmnpqrstvwxz"
    forms = map("".join, product(letters, "aeiou", letters, "23456789"))
    return _shuffled(list(forms), NUM_CODES, seed=0)


def _opaque(prefixes: Sequence[str], letters: str) -> list[str]:
    """Names that say nothing, such as `tool_c41`."""
    forms = [
        f"{prefix}_{letter}{number}"
        for prefix in prefixes
        for letter in letters
        for number in range(10, 100)
    ]
    return _shuffled(forms, NUM_OPAQUE, seed=1)
