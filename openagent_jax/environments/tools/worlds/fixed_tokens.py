"""Tokens of texts that all worlds share, whose embeddings cannot be exchanged.

See `models.embedding_shuffle`, which permutes those of the others.
"""

from collections import Counter

import jax
import numpy as np
from jaxtyping import Bool

from openagent_jax.domains import domain_file, domain_words, library
from openagent_jax.text.lexicon import Lexicon

# A word is general if it occurs in this share of the training domains of the library.
GENERAL_SHARE = 1 / 4
# What may follow a word in a text, as far as it changes the tokens of the word.
ENDS = ("", " ", ", ", ". ", "s", "s ")


def of_symbols(lexicon: Lexicon, which: Bool[np.ndarray, "N"]) -> set[int]:
    """Return the tokens of the texts of some symbols.

    Args:
      lexicon: the spelling of all symbols.
      which: which of them, by their number.
    """
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
    >>> "the" in words, "find" in words, "museum" in words
    (True, True, False)
    """
    counts = Counter[str]()
    for name in library.TRAIN:
        counts.update(domain_words.of(domain_file.load(name)))
    least = GENERAL_SHARE * len(library.TRAIN)
    return sorted(word for word, count in counts.items() if count >= least)
