"""Tokens whose embeddings could be exchanged, because they mean the same in no world.

See `models.embedding_shuffle`, which permutes them.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax.domains import domain_file, library
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.text.lexicon import Lexicon

# A word is general if it occurs in this share of the training domains of the library.
GENERAL_SHARE = 1 / 4
# What may follow a word in a text, as far as it changes the tokens of the word.
ENDS = ("", " ", ", ", ". ", "s", "s ")

Free: TypeAlias = tuple[Int[Array, "K"], Int[Array, "K"]]


def free(lexicon: Lexicon, used: Iterable[int]) -> Free:
    """Return the tokens that are not used by texts that are the same in all worlds.

    Args:
      lexicon: the spelling of all symbols.
      used: the tokens of these texts.

    Returns:
      The free tokens, and for each the number of its shape: the class of its first and
      of its last character.
    """
    table = jax.device_get(lexicon.token_bytes)
    tokens = np.setdiff1d(np.arange(lexicon.vocab_size), np.fromiter(used, int))

    def shape(token: int) -> str:
        start, length = table.start[token], table.length[token]
        text = bytes(table.flat[start : start + length]).decode("latin-1")
        marks = [("A" if c.isupper() else "a") if c.isalpha() else c for c in text]
        return marks[0] + marks[-1]

    _, shapes = np.unique([shape(token) for token in tokens], return_inverse=True)
    return jnp.asarray(tokens), jnp.asarray(shapes)


def of_symbols(lexicon: Lexicon, which: Bool[np.ndarray, "N"]) -> set[int]:
    """Return the tokens of the texts of some symbols."""
    spans = jax.device_get(lexicon.spans)
    ends = zip(spans.start[: len(which)], spans.length[: len(which)], strict=True)
    chosen = (end for end, is_chosen in zip(ends, which, strict=True) if is_chosen)
    return {int(t) for start, size in chosen for t in spans.flat[start : start + size]}


def of_general_words(tokenizer) -> set[int]:
    """Return the tokens of general words, as they stand in a text.

    Args:
      tokenizer: a `tokenizers.Tokenizer`.
    """
    forms = [
        form + end
        for word in general_words()
        for form in (word, word.capitalize())
        for end in ENDS
    ]
    return {token for made in tokenizer.encode_batch(forms) for token in made.ids}


def general_words() -> list[str]:
    """Return the words that many training domains share, in lower case.

    >>> words = general_words()
    >>> "the" in words, "find" in words, "invoice_id" in words
    (True, True, False)
    """
    counts = Counter[str]()
    for name in library.TRAIN:
        counts.update(domain.words(domain_file.load(name)))
    least = GENERAL_SHARE * len(library.TRAIN)
    return sorted(word for word, count in counts.items() if count >= least)
