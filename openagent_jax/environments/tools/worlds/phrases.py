"""The requests of all goals, as rows of pieces of different lengths.

A request is written with slots and choices, as `phrase_syntax.py` describes.
"""

# Arrays are built with NumPy and become JAX arrays at the end.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from openagent_jax.domains.domain_spec import GoalSpec
from openagent_jax.domains.goals import phrase_syntax
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import choices
from openagent_jax.environments.tools.choices import Choices
from openagent_jax.environments.tools.types import Split
from openagent_jax.text.symbols import Symbols

PHRASE_POOLS = ("train", "test", "rewrite_train", "rewrite_test")
PLAIN, REWRITE = 0, 2  # indices into PHRASE_POOLS: PLAIN + split, REWRITE + split
# Array sizes are multiples of these.
ROW_BLOCK, PIECE_BLOCK = 1024, 4096  # requests, and their pieces
REWRITE_BLOCK = 16  # rewritten requests of one goal
CHOICE_BLOCK, TEXT_BLOCK = 16, 4  # choices, and texts of one


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Phrases:
    """The requests of G goals: M rows with L pieces in all, goal by goal."""

    pieces: Int[Array, "L"]  # symbols, slots and choices; see `tools.choices`
    start: Int[Array, "M"]  # the first piece of each row
    length: Int[Array, "M"]
    first: Int[Array, "4 G"]  # the first row of each pool and goal
    num: Int[Array, "4 G"]  # how many rows follow it
    choices: Choices
    # P, the most pieces of a request.
    num_pieces: int = field(metadata=dict(static=True))
    # R, the most rewritten requests of a goal and split, rounded up.
    num_rewrites: int = field(metadata=dict(static=True))

    def row(self, row: Int[Array, ""]) -> Int[Array, "P"]:
        """Return the pieces of a row, with 0 after the last."""
        place = jnp.arange(self.num_pieces)
        at, inside = self.start[row] + place, place < self.length[row]
        return jnp.where(inside, self.pieces[jnp.where(inside, at, 0)], 0)

    def rewrites(
        self, split: Split, goal: Int[Array, ""]
    ) -> tuple[Int[Array, "R P"], Int[Array, ""]]:
        """Return the rewritten requests of a goal, and how many rows are in use."""
        pool = REWRITE + split
        num = self.num[pool, goal]
        place = jnp.minimum(jnp.arange(self.num_rewrites), jnp.maximum(num - 1, 0))
        return jax.vmap(self.row)(self.first[pool, goal] + place), num

    def frequency(
        self, split: int
    ) -> tuple[Int[np.ndarray, "_"], Float[np.ndarray, "_"]]:
        """Return the texts of the requests of a split, and how often each occurs.

        This runs on the host.
        """
        pools = np.array([PLAIN + split, REWRITE + split])
        first = np.asarray(self.first)[pools].ravel()
        num = np.asarray(self.num)[pools].ravel()
        start, length = np.asarray(self.start), np.asarray(self.length)
        pieces, size = np.asarray(self.pieces), np.asarray(self.choices.size)
        # The rows of a goal follow each other, and so do their pieces.
        first, last = first[num > 0], (first + num)[num > 0] - 1
        change = np.zeros(len(pieces) + 1, np.int64)
        np.add.at(change, start[first], 1)
        np.add.at(change, start[last] + length[last], -1)
        found = pieces[np.cumsum(change)[:-1] > 0]
        which, count = np.unique(found, return_counts=True)
        is_text, is_choice = which > 0, which <= choices.FIRST
        chosen, times = choices.FIRST - which[is_choice], count[is_choice]
        inside = np.arange(self.choices.texts.shape[1]) < size[chosen, None]
        texts = np.asarray(self.choices.texts)[chosen]
        each = np.broadcast_to((times / size[chosen])[:, None], texts.shape)
        return (
            np.concatenate([which[is_text], texts[inside]]),
            np.concatenate([count[is_text].astype(float), each[inside]]),
        )


# What follows runs on the host, once.


def compile(
    goals: Sequence[GoalSpec], symbols: Symbols, limits: Limits, num_goals: int
) -> Phrases:
    """Return the requests of goals as arrays, with room for `num_goals` goals."""
    found = _Choices(symbols)
    rows: list[list[int]] = []
    first, num = (np.zeros((len(PHRASE_POOLS), num_goals), np.int32) for _ in range(2))
    for g, goal in enumerate(goals):
        slots = {name: q for q, (name, _) in enumerate(goal.constants)}
        for p, pool in enumerate(PHRASE_POOLS):
            first[p, g], num[p, g] = len(rows), len(goal.phrases[pool])
            rows += [found.pieces(phrase, slots) for phrase in goal.phrases[pool]]
    length = np.array([len(row) for row in rows], np.int32)
    start = np.cumsum(length, dtype=np.int32) - length
    return Phrases(
        pieces=_padded(np.array([x for row in rows for x in row]), PIECE_BLOCK),
        start=_padded(start, ROW_BLOCK),
        length=_padded(length, ROW_BLOCK),
        first=first,
        num=num,
        choices=_table(list(found.rows)),
        num_pieces=limits.num_phrase_pieces,
        num_rewrites=round_up(int(num[REWRITE:].max()), REWRITE_BLOCK),
    )


def join(parts: Sequence[Phrases], num_goals: Sequence[int], size: int) -> Phrases:
    """Return the requests of several domains, one after another.

    Args:
      parts: those of each domain, in NumPy.
      num_goals: the number of goals of each domain.
      size: the number of goals that there is room for.
    """
    pieces, start, length, first, num = [], [], [], [], []
    found: dict[_Choice, int] = {}
    num_rows = num_pieces = 0
    for part, G in zip(parts, num_goals, strict=True):
        M = int((part.first + part.num)[:, :G].max(initial=0))
        L = int((part.start + part.length)[:M].max(initial=0))
        moved = [found.setdefault(x, len(found)) for x in _listed(part.choices)]
        own = part.pieces[:L]
        which = np.array(moved)[np.maximum(choices.FIRST - own, 0)]
        pieces.append(np.where(own <= choices.FIRST, choices.FIRST - which, own))
        start.append(part.start[:M] + num_pieces)
        length.append(part.length[:M])
        first.append(part.first[:, :G] + num_rows)
        num.append(part.num[:, :G])
        num_rows, num_pieces = num_rows + M, num_pieces + L
    goals = [(0, 0), (0, size - sum(num_goals))]
    return Phrases(
        pieces=_padded(np.concatenate(pieces), PIECE_BLOCK),
        start=_padded(np.concatenate(start), ROW_BLOCK),
        length=_padded(np.concatenate(length), ROW_BLOCK),
        first=np.pad(np.concatenate(first, axis=1), goals),
        num=np.pad(np.concatenate(num, axis=1), goals),
        choices=_table(list(found)),
        num_pieces=max(part.num_pieces for part in parts),
        num_rewrites=max(part.num_rewrites for part in parts),
    )


_Choice = tuple[int, tuple[int, ...]]  # its number, and the symbols of its texts


class _Choices:
    """Collects the choices of requests; equal ones are stored once."""

    def __init__(self, symbols: Symbols):
        self._symbols = symbols
        self.rows: dict[_Choice, int] = {}

    def pieces(self, phrase: str, slots: dict[str, int]) -> list[int]:
        """Return `{Find|Get} {place}.` as pieces, with -1 - q for constant q."""
        found = []
        for piece in phrase_syntax.parse(phrase):
            if isinstance(piece, phrase_syntax.Slot):
                found.append(-1 - slots[piece.name])
            elif isinstance(piece, phrase_syntax.Choice):
                found.append(self._choice(piece))
            else:
                found.append(self._symbols.one(piece))
        return found

    def _choice(self, choice: phrase_syntax.Choice) -> int:
        symbols = tuple(map(self._symbols.one, choice.texts))
        number = int(choice.link) if choice.link else choices.INDEPENDENT
        return choices.FIRST - self.rows.setdefault((number, symbols), len(self.rows))


def _table(rows: Sequence[_Choice]) -> Choices:
    K = round_up(len(rows), CHOICE_BLOCK)
    V = round_up(max((len(texts) for _, texts in rows), default=1), TEXT_BLOCK)
    made = choices.empty(K, V)
    for k, (number, texts) in enumerate(rows):
        made.texts[k, : len(texts)] = texts
        made.size[k], made.number[k] = len(texts), number
    return made


def _listed(table: Choices) -> list[_Choice]:
    """Return the rows of a table, those that pad it included."""
    return [
        (int(number), tuple(texts[:size].tolist()))
        for texts, size, number in zip(*table, strict=True)
    ]


def round_up(num: int, block: int) -> int:
    """Return a size, at least 1, rounded up to a multiple of `block`."""
    return -(-max(1, num) // block) * block


def _padded(values: np.ndarray, block: int) -> np.ndarray:
    size = round_up(len(values), block)
    return np.pad(values.astype(np.int32), (0, size - len(values)))
