"""All surface forms that are not of a domain: syntax, numbers, codes, odd names.

`Symbols` is the host-side list from which the `Lexicon` is built: whoever adds
texts gets back their range of symbols.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from openagent_jax import types

# How calls, documents and results are written. A document has its description before
# its name, and a call says what it is for in the words of the document: a causal model
# then finds the name by looking where it has seen those words before.
SYNTAX = {
    "system": "<|system|>",
    "user": "<|user|>",
    "assistant": "<|assistant|>",
    "tool": "<|tool|>",
    "end": "<|end|>",
    "doc_open": '{"description":"',
    "doc_name": '","name":"',
    "doc_params": '","parameters":["',
    "doc_params_close": '"]',
    "doc_no_params": '","parameters":[]',
    "doc_code_from": ',"code_from":"',
    "doc_call_after": ',"call_after":"',
    "quote": '"',
    "doc_close": "}",
    "call_open": '{"purpose":"',
    "call_name": '","name":"',
    "call_args": '","arguments":{"',
    "is_": '":"',
    "comma": '","',
    "call_close": '"}}',
    "call_no_args": '","arguments":{}}',
    "code": "code",
    "answer": "Answer: ",
    "refuse": "Refuse",
    "ask": "Ask",
    "done": "done",
    "error_open": '{"error":"',
    "result_open": '{"',
    "result_close": '"}',
    "comma_blank": ", ",
    "unknown": "something",
    "result": "result",
    "nothing": "I said all",
    "key_name": "name",
    "key_arguments": "arguments",
    "key_purpose": "purpose",
}

ERRORS = {
    types.BAD_FORMAT: "cannot read this",
    types.UNKNOWN_TOOL: "no such tool",
    types.BAD_ARGUMENT: "wrong arguments",
    types.WRONG_CODE: "needs the code from ",
    types.OUT_OF_ORDER: "call first ",
    types.TRANSIENT: "failed, try again",
    types.PERMANENT: "out of service for good",
    types.MOVED: "replaced",
}
MOVED_GUIDED = "replaced by "

# (open, between name and value, between fields, close); the first is the norm.
# The last of them are held out: no training ever shows them.
RESULT_STYLES = (
    ('{"', '":"', '","', '"}'),
    ("[", "=", "; ", "]"),
    ("(", ": ", " / ", ")"),
    ("<", ">", "><", "</>"),
    ("ok ", " -> ", " & ", "!"),
)
NUM_TRAIN_STYLES = 3

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
class Style:
    """The symbol of every piece of syntax (static: part of the program)."""

    system: int
    user: int
    assistant: int
    tool: int
    end: int
    doc_open: int
    doc_name: int
    doc_params: int
    doc_params_close: int
    doc_no_params: int
    doc_code_from: int
    doc_call_after: int
    quote: int
    doc_close: int
    call_open: int
    call_name: int
    call_args: int
    is_: int
    comma: int
    call_close: int
    call_no_args: int
    code: int
    answer: int
    refuse: int
    ask: int
    done: int
    error_open: int
    result_open: int
    result_close: int
    comma_blank: int
    unknown: int
    result: int
    nothing: int
    key_name: int
    key_arguments: int
    key_purpose: int
    moved_guided: int
    errors: tuple[int, ...]  # by status
    results: tuple[tuple[int, ...], ...]  # by result style


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
        pieces = {name: self.one(text) for name, text in SYNTAX.items()}
        self.style = Style(
            **pieces,
            moved_guided=self.one(MOVED_GUIDED),
            errors=tuple(
                self.one(ERRORS[status]) if status in ERRORS else 0
                for status in range(types.NO_RESULT + 1)
            ),
            results=tuple(tuple(map(self.one, style)) for style in RESULT_STYLES),
        )
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


def syntax_tokens() -> list[str]:
    """The pieces of syntax that a tokenizer of our own spells as one token."""
    words = (
        "code",
        "done",
        "unknown",
        "result",
        "nothing",
        "key_name",
        "key_arguments",
        "key_purpose",
    )
    marks = ("system", "user", "assistant", "tool", "end")
    return [text for name, text in SYNTAX.items() if name not in words + marks]


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
