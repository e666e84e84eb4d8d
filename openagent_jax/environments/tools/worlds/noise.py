"""Other forms of the texts of a world that perturbations with noise put in their place.

They are compiled on the host, after all texts of the world: misspelt pieces of
requests, noisy names, and misspelt or shortened descriptions. Only the pieces that
occur most often are misspelt, so that the memory that this takes is bounded.
"""

# Arrays are built with NumPy and become JAX arrays at the end.
# pyright: reportArgumentType=false

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from openagent_jax.environments.tools.types import Reworded, Split, Tasks, Wording
from openagent_jax.environments.tools.worlds import asides
from openagent_jax.environments.tools.worlds.asides import Asides
from openagent_jax.environments.tools.worlds.documents import Documents
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import noisy_names
from openagent_jax.text.misspelling import Speller

SPLITS = ("train", "test")
NUM_MISSPELT = 8192  # pieces of requests that are misspelt, of each split
NUM_VARIANTS = 2  # misspelt forms of a text
BLOCK = 1024  # the number of texts with other forms is a multiple of it
NO_TEXT = np.iinfo(np.int32).max  # fills a table; no symbol is as large
MIN_STEM = 3  # letters that stay of a word that is cut


class Forms(NamedTuple):
    """Other forms of X texts, by split, V of each."""

    text: Int[Array, "2 X"]  # symbols, sorted
    forms: Int[Array, "2 X V"]  # symbols

    def of(self, split: Split, texts: Int[Array, "*_"]) -> Reworded:
        """Return the forms of some texts in a split; 0 for those without any."""
        known = self.text[split]
        at = jnp.searchsorted(known, texts, method="scan_unrolled")
        at = jnp.minimum(at, known.shape[0] - 1)
        forms = jnp.where((known[at] == texts)[..., None], self.forms[split, at], 0)
        return Reworded(texts, forms)


class Noise(NamedTuple):
    """What perturbations with noise draw from."""

    requests: Forms  # misspelt; 0 is the empty text and has no forms
    # By level and variant, both in one axis; see `noisy_names.noisy`.
    names: Forms
    descriptions: Forms  # misspelt, and shortened; only in the test
    asides: Asides  # by split


# What follows runs on the host, once.


def compile(
    parts: Sequence[Tasks],
    symbols: ToolSymbols,
    documents: Documents,
    name_bytes: int,
) -> Noise:
    """Return what perturbations with noise draw from.

    Args:
      parts: what tasks of the world are sampled from.
      symbols: the texts of the world; other forms are added to them.
      documents: the documents of its tools; other descriptions are added to them.
      name_bytes: the most bytes of a name that can be read.
    """
    texts, one = symbols.texts, symbols.one
    speller = Speller(texts)
    by_split = [[part.wording(split) for part in parts] for split in range(len(SPLITS))]
    requests, names, descriptions = [], [], []
    for split, wordings in zip(SPLITS, by_split, strict=True):
        frequent = _most_frequent(wordings, texts)
        requests.append(dict(_misspelt(frequent, texts, speller, split, one)))
        names.append(
            dict(_noisy(_union(wordings, "names"), split, symbols, name_bytes))
        )
        described = _union(wordings, "descriptions") if split == "test" else ()
        descriptions.append(dict(_worsened(described, symbols, documents, speller)))
    noise = Noise(
        requests=_table(requests, NUM_VARIANTS),
        names=_table(names, noisy_names.NUM_LEVELS * noisy_names.NUM_VARIANTS),
        descriptions=_table(descriptions, NUM_VARIANTS),
        asides=asides.compile(one, lambda text: documents.text(symbols, text)),
    )
    return jax.tree.map(jnp.asarray, noise)


def _union(wordings: Sequence[Wording], field: str) -> list[int]:
    found = np.concatenate([np.ravel(getattr(x, field)) for x in wordings])
    return np.unique(found[found > 0]).tolist()


def _most_frequent(wordings: Sequence[Wording], texts: Sequence[str]) -> list[int]:
    """Return the pieces of requests that hold words, the most frequent ones first."""
    pieces = np.concatenate([x.pieces for x in wordings])
    which, inverse = np.unique(pieces, return_inverse=True)
    weight = np.concatenate([x.frequency for x in wordings])
    total = np.bincount(inverse, weight, len(which))
    order: list[int] = which[np.argsort(-total, kind="stable")].tolist()
    return [x for x in order if re.search(r"[a-z]", texts[x])]


def _misspelt(pieces, texts, speller, split, one) -> Iterator[tuple[int, list[int]]]:
    num = 0
    for piece in pieces:
        text = texts[piece]
        made = [speller.misspelt(text, split, str(i)) for i in range(NUM_VARIANTS)]
        if made[0] != text:
            yield piece, [*map(one, made)]
            num += 1
        if num == NUM_MISSPELT:
            return


def _noisy(
    names: Sequence[int], split: str, symbols: ToolSymbols, most: int
) -> Iterator[tuple[int, list[int]]]:
    variants = range(noisy_names.NUM_VARIANTS)
    for name in names:
        text = symbols.texts[name]
        made = [noisy_names.noisy(text, split, v) for v in variants]
        levels = [form for level in zip(*made, strict=True) for form in level]
        fits = [form != text and len(form.encode()) <= most for form in levels]
        yield (
            name,
            [
                symbols.one(form) if fit else 0
                for form, fit in zip(levels, fits, strict=True)
            ],
        )


def _worsened(
    descriptions: Sequence[int],
    symbols: ToolSymbols,
    documents: Documents,
    speller: Speller,
) -> Iterator[tuple[int, list[int]]]:
    """Yield descriptions, each with a misspelt and a shortened form."""
    originals = {x: documents.original(x, symbols.texts) for x in descriptions}
    ordered = sorted({*originals.values()})
    for symbol, text in originals.items():
        wrong = speller.misspelt(text, "test", "")
        made = [x for x in (wrong, _cut(text, ordered)) if x != text]
        if made:
            forms = [documents.text(symbols, x) for x in made]
            yield symbol, [forms[0], forms[-1]]


def _cut(text: str, ordered: Sequence[str]) -> str:
    """Return a text without the end of its last word, unless another begins alike.

    Args:
      text: the text.
      ordered: all texts, sorted.
    """
    if not (last := re.search(r"[a-z]{6,}[.]?$", text)):
        return text
    stem = text[: last.start() + MIN_STEM]
    at = bisect_left(ordered, stem)
    alike = ordered[at : at + 2]
    is_only = sum(x.startswith(stem) for x in alike) == 1
    return f"{stem}..." if is_only else text


def _table(by_split: Sequence[Mapping[int, Sequence[int]]], num: int) -> Forms:
    size = -(-max(1, *map(len, by_split)) // BLOCK) * BLOCK
    text = np.full((len(by_split), size), NO_TEXT, np.int32)
    forms = np.zeros((len(by_split), size, num), np.int32)
    for split, rows in enumerate(by_split):
        for at, symbol in enumerate(sorted(rows)):
            text[split, at], forms[split, at] = symbol, rows[symbol]
    return Forms(text, forms)
