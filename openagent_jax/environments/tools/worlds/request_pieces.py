"""Put the pieces of a request together."""

import random
import re
from collections.abc import Iterable

from openagent_jax.environments.tools.worlds import phrase_syntax
from openagent_jax.environments.tools.worlds.phrase_syntax import Choice, Piece, Slot


def framed(frame: str, phrase: list[Piece]) -> list[Piece]:
    """Return a frame with a phrase in the place of its `@`."""
    before, _, after = frame.partition("@")
    return [*phrase_syntax.parse(before), *phrase, *phrase_syntax.parse(after)]


def either(texts: Iterable[str], link: str) -> Piece:
    """Return a choice between texts; the text if all are the same."""
    texts = tuple(texts)
    return texts[0] if len(set(texts)) == 1 else Choice(texts, link)


def polished(pieces: list[Piece], is_terse: bool, rng: random.Random) -> list[Piece]:
    """Return the pieces with capital letters at the beginning of sentences, and links
    only where several choices have the same one."""
    links = [piece.link for piece in pieces if isinstance(piece, Choice)]
    order = {link: str(n) for n, link in enumerate(
        dict.fromkeys(x for x in links if x and links.count(x) > 1), 1)}  # fmt: skip
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
            starts = bool(re.search("[.?] $", piece)) and not is_terse
        if piece != "":
            done.append(piece)
    return done


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
