"""Tokenize the texts of a conversation as the episodes of training are tokenized."""

from collections.abc import Iterable
from functools import lru_cache

from tokenizers import Tokenizer

from openagent_jax.text import lexicon as lexicons
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.text.token_bytes import without_prefix_space

MAX_SPLIT = 1 << 14  # characters of a text that is split into surface forms
MAX_CACHED = 256  # characters of a text whose tokens are cached
CACHE_SIZE = 1 << 14  # texts


class SurfaceTokenizer:
    """Tokenize texts so that surface forms keep the tokens that they have in training.

    An environment tokenizes each of its surface forms separately. If a tokenizer puts a
    space in front of a word, tokenizing the whole text gives the same tokens. If it
    puts the space behind the word, as ours does, "Oak Bay" and " please" have other
    tokens than "Oak Bay please". A text that consists of surface forms is therefore
    split into them first.
    """

    def __init__(self, tokenizer: Tokenizer, lexicon: Lexicon):
        """
        Args:
          tokenizer: of the model.
          lexicon: that was built with it, with the surface forms.
        """
        self._tokenizer = without_prefix_space(tokenizer)
        self._surface_forms = (
            set() if lexicon.any_trailing_space else {*lexicons.texts(lexicon)} - {""}
        )
        self._sizes: dict[str, set[int]] = {}  # of surface forms, by first letter
        for text in self._surface_forms:
            self._sizes.setdefault(text[0], set()).add(len(text))
        self._cached = lru_cache(CACHE_SIZE)(self._tokens)

    def __call__(self, texts: Iterable[str]) -> list[int]:
        """Return the tokens of all texts, each of them tokenized separately."""
        if not self._surface_forms:
            return self._encode("".join(texts))
        spans = (
            self._cached(text) if len(text) <= MAX_CACHED else self._tokens(text)
            for text in texts
        )
        return [token for span in spans for token in span]

    def _tokens(self, text: str) -> list[int]:
        if text in self._surface_forms or len(text) > MAX_SPLIT:
            return self._encode(text)
        return [x for part in self._split(text) for x in self._encode(part)]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _split(self, text: str) -> list[str]:
        """Split a text into as few surface forms as possible.

        A text that does not consist of surface forms is returned as one part.
        """
        # Sizes of the surface forms at each position that can be reached.
        sizes: dict[int, list[int]] = {}
        positions = [0]
        for start in positions:
            if start not in sizes and start < len(text):
                candidates = self._sizes.get(text[start], ())
                sizes[start] = [
                    size
                    for size in candidates
                    if text[start : start + size] in self._surface_forms
                ]
                positions += [start + size for size in sizes[start]]
        # From each position to the end: number of surface forms, -size of the first.
        best = {len(text): (0, 0)}
        for start in sorted(sizes, reverse=True):
            options = [
                (1 + best[start + size][0], -size)
                for size in sizes[start]
                if start + size in best
            ]
            if options:
                best[start] = min(options)
        if 0 not in best:
            return [text]
        parts, start = [], 0
        while start < len(text):
            end = start - best[start][1]
            parts.append(text[start:end])
            start = end
        return parts
