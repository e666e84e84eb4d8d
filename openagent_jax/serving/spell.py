"""From texts to tokens, as the episodes of training are spelled."""

from collections.abc import Iterable
from functools import lru_cache

from tokenizers import Tokenizer

from openagent_jax.sandbox import conversation, spelling
from openagent_jax.sandbox.lexicon import Lexicon

LONGEST = 1 << 14  # characters of a text that may be one of the sandbox
SHORT = 256  # characters of a text whose tokens are kept
MEMORY = 1 << 14  # how many of them are


class Speller:
    """Tokens of texts.

    The sandbox spells each of its surface forms by itself. Where a tokenizer puts a
    blank in front of a word, that comes to the same; where it puts it behind, as ours
    does, "Oak Bay" and " please" have other tokens than "Oak Bay please". There a text
    that can be put together from surface forms is.
    """

    def __init__(self, tokenizer: Tokenizer, lexicon: Lexicon):
        self._tokenizer = spelling.as_it_is(tokenizer)
        self._forms = (
            set() if lexicon.any_lends else {*conversation.texts(lexicon)} - {""}
        )
        self._sizes: dict[str, set[int]] = {}  # of forms, by their first letter
        for form in self._forms:
            self._sizes.setdefault(form[0], set()).add(len(form))
        self._one = lru_cache(MEMORY)(self._spell)

    def __call__(self, texts: Iterable[str]) -> list[int]:
        """The tokens of all texts, each of them spelled by itself."""
        if not self._forms:
            return self._plain("".join(texts))
        spelled = (
            self._one(text) if len(text) <= SHORT else self._spell(text)
            for text in texts
        )
        return [token for tokens in spelled for token in tokens]

    def _spell(self, text: str) -> list[int]:
        if text in self._forms or len(text) > LONGEST:
            return self._plain(text)
        return [x for part in self._parts(text) for x in self._plain(part)]

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _parts(self, text: str) -> list[str]:
        """As few surface forms as it takes; the text itself if they cannot make it."""
        sizes: dict[int, list[int]] = {}  # of the forms at each place that is reached
        places = [0]
        for start in places:
            if start not in sizes and start < len(text):
                likely = self._sizes.get(text[start], ())
                sizes[start] = [
                    size for size in likely if text[start : start + size] in self._forms
                ]
                places += [start + size for size in sizes[start]]
        fewest = {len(text): (0, 0)}  # from here to the end: forms, size of the first
        for start in sorted(sizes, reverse=True):
            found = [
                (1 + fewest[start + size][0], -size)
                for size in sizes[start]
                if start + size in fewest
            ]
            if found:
                fewest[start] = min(found)
        if 0 not in fewest:
            return [text]
        parts, start = [], 0
        while start < len(text):
            end = start - fewest[start][1]
            parts.append(text[start:end])
            start = end
        return parts
