"""Requests as template strings: texts, slots, and choices between texts.

`{city}` is a slot, which is filled by a constant of the goal. `{Find|Look up}` is a
choice: one of its texts is drawn with the task. Choices with the same number, as in
`{1:the |}tide {1:at|in} {harbor}`, have equally many texts and draw the same one.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

_PART = re.compile(r"\{([^{}]*)\}")
_NUMBER = re.compile(r"(\d+):")


class Slot(NamedTuple):
    """A place for a constant."""

    name: str


class Choice(NamedTuple):
    """One of some texts; choices of one phrase with the same link agree."""

    texts: tuple[str, ...]
    link: str = ""  # a number, or empty for a choice of its own


Piece = str | Slot | Choice


@lru_cache(4096)  # frames and phrases are parsed over and over
def parse(phrase: str) -> tuple[Piece, ...]:
    """Return the pieces of a phrase.

    >>> parse("{1:Find|Get} the inn of {city}{1:| now}.")[2:]
    (Slot(name='city'), Choice(texts=('', ' now'), link='1'), '.')
    """
    pieces: list[Piece] = []
    for index, part in enumerate(_PART.split(phrase)):
        if index % 2 == 0:
            pieces += [part] if part else []
        elif "|" not in part:
            pieces.append(Slot(part))
        else:
            number = _NUMBER.match(part)
            texts = tuple(part[number.end() if number else 0 :].split("|"))
            pieces.append(Choice(texts, number[1] if number else ""))
    return tuple(pieces)


def write(pieces: Iterable[Piece]) -> str:
    """Return the phrase that has these pieces; the inverse of `parse`."""
    return "".join([x if isinstance(x, str) else _written(x) for x in pieces])


def _written(piece: Piece) -> str:
    if isinstance(piece, Slot):
        return f"{{{piece.name}}}"
    if isinstance(piece, Choice):
        number = piece.link and f"{piece.link}:"
        return f"{{{number}{'|'.join(piece.texts)}}}"
    return piece


def faults(phrase: str) -> Iterator[str]:
    """Yield what is wrong with the braces of a phrase, each with its remedy.

    >>> list(faults("{1:a|b} inn {1:c|d|e}"))
    ['choices with the number 1 have 2 and 3 texts; write equally many']
    """
    if re.search("[{}]", _PART.sub("", phrase)):
        yield "a brace without its partner; close each { with }"
    sizes: dict[str, int] = {}
    for piece in parse(phrase):
        if isinstance(piece, Choice) and not piece.link:
            if len(set(piece.texts)) < len(piece.texts):
                yield f"{_written(piece)!r} has a text twice; remove one"
        elif isinstance(piece, Choice):
            size = sizes.setdefault(piece.link, len(piece.texts))
            if size != (other := len(piece.texts)):
                yield (
                    f"choices with the number {piece.link} have {size} and {other} "
                    "texts; write equally many"
                )


def fill(phrase: str, constants: Mapping[str, str], rng: random.Random) -> str:
    """Return a phrase with its slots filled and its choices drawn.

    Args:
      phrase: a template string.
      constants: the text of each slot.
      rng: draws the choices.

    >>> fill("{Find|Find} {x}.", {"x": "Ur"}, random.Random(0))
    'Find Ur.'
    """
    drawn: dict[str, int] = {}
    text = ""
    for piece in parse(phrase):
        if isinstance(piece, Choice):
            index = rng.randrange(len(piece.texts))
            if piece.link:
                index = drawn.setdefault(piece.link, index)
            text += piece.texts[index]
        else:
            text += constants[piece.name] if isinstance(piece, Slot) else piece
    return text


def num_words(phrase: str, slot_words: int = 2) -> int:
    """Return the most words that a phrase can have.

    Args:
      phrase: a template string.
      slot_words: words that a constant counts for.
    """
    count = 0
    for piece in parse(phrase):
        if isinstance(piece, Choice):
            count += max(len(text.split()) for text in piece.texts)
        else:
            count += slot_words if isinstance(piece, Slot) else len(piece.split())
    return count
