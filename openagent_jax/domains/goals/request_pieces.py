"""Put the pieces of a request together."""

import random
from collections import Counter
from functools import lru_cache

from openagent_jax.domains.goals import phrase_syntax
from openagent_jax.domains.goals.phrase_syntax import Choice, Piece, Slot


def framed(frame: str, phrase: list[Piece]) -> list[Piece]:
    """Return a frame with a phrase in the place of its `@`."""
    before, after = _around(frame)
    return [*before, *phrase, *after]


@lru_cache(4096)
def _around(frame: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    before, _, after = frame.partition("@")
    return phrase_syntax.parse(before), phrase_syntax.parse(after)


def distinct(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts of a choice; only one if all are the same."""
    return texts if len(set(texts)) > 1 else texts[:1]


def either(texts: tuple[str, ...], link: str) -> Piece:
    """Return a choice between texts that are `distinct`."""
    first, *others = texts
    return Choice(texts, link) if others else first


def polished(pieces: list[Piece], is_terse: bool, rng: random.Random) -> list[Piece]:
    """Return the pieces with capital letters at the beginning of sentences, and links
    only where several choices have the same one."""
    links = [x.link for x in pieces if isinstance(x, Choice) and x.link]
    shared = [link for link, num in Counter(links).items() if num > 1]
    order = {link: str(n) for n, link in enumerate(shared, 1)}
    done: list[Piece] = []
    starts = not is_terse
    for piece in pieces:
        if isinstance(piece, Slot):
            starts = False
        elif isinstance(piece, Choice):
            if starts and not all(piece.texts):  # what comes next depends on it
                piece = rng.choice(piece.texts)
            else:
                texts = [_capital(x) if starts else x for x in piece.texts]
                piece = Choice(tuple(texts), order.get(piece.link, ""))
                starts = False
        if isinstance(piece, str) and piece:
            piece = _capital(piece) if starts else piece
            starts = piece.endswith((". ", "? ")) and not is_terse
        if piece != "":
            done.append(piece)
    return done


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
