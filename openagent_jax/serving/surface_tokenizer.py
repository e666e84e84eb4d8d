"""Tokenize the texts of a conversation as in the episodes of training."""

from collections.abc import Iterable
from functools import lru_cache

from tokenizers import Tokenizer

from openagent_jax.text import lexicon as lexicons
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.text.token_bytes import without_prefix_space

MAX_SPLIT = 1 << 14  # characters; longer texts are not split into surface forms
MAX_CACHED = 256  # characters; the tokens of longer texts are not cached
CACHE_SIZE = 1 << 14  # texts


class SurfaceTokenizer:
    """Tokenizes texts so that surface forms have the same tokens as in training.

    An environment tokenizes each of its surface forms separately. If a tokenizer joins
    a space to the word after it, tokenizing the whole text gives the same tokens. If it
    joins a space to the word before it, as ours does, "Oak Bay" and " please" have
    other tokens than "Oak Bay please". A text that consists of surface forms is
    therefore split into them first.
    """

    def __init__(self, tokenizer: Tokenizer, lexicon: Lexicon):
        """
        Args:
          tokenizer: the tokenizer of the model.
          lexicon: a lexicon that was built with this tokenizer.
        """
        self._tokenizer = without_prefix_space(tokenizer)
        self._surface_forms = (
            set() if lexicon.any_trailing_space else {*lexicons.texts(lexicon)} - {""}
        )
        self._sizes: dict[str, set[int]] = {}  # by first character
        for text in self._surface_forms:
            self._sizes.setdefault(text[0], set()).add(len(text))
        self._cached = lru_cache(CACHE_SIZE)(self._tokens)

    def __call__(self, texts: Iterable[str]) -> list[int]:
        """Return the concatenated tokens of the texts.

        Texts are tokenized separately, or together if the tokenizer joins a space to
        the word after it.
        """
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
        # The sizes of the surface forms at each position that can be reached.
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
        # For each position: (fewest surface forms up to the end, -size of the first).
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
