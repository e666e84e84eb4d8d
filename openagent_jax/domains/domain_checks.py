"""Collect everything that is wrong with a domain file, one line for each fault."""

import collections
import difflib
from collections.abc import Collection, Iterable, Mapping
from reprlib import repr as brief
from typing import Any

from openagent_jax.domains.domain_spec import (
    Fields,
    Synonyms,
    TableSpec,
    ToolSpec,
    TypeSpec,
)
from openagent_jax.domains.limits import Limits


class Checker:
    """Collects faults and goes on, so that one pass over a document finds all of them.

    Attributes:
      limits: sizes that the domain has to fit.
      types: the types of the document by name; None for a type with faults.
      tools: the tools of the document by name; None for a tool with faults.
      tables: the tables of the document by name; None for a table with faults.
      used: texts that must differ, by category: text -> where it is used.
      faults: the faults, each as one line, `place: problem; remedy`.
      places: the places of the faults.
      unreadable: parts of the document that could not be read; references to them are
        not checked.
    """

    def __init__(self, limits: Limits):
        self.limits = limits
        self.types: dict[str, TypeSpec | None] = {}
        self.tools: dict[str, ToolSpec | None] = {}
        self.tables: dict[str, TableSpec | None] = {}
        self.used: dict[str, dict[str, str]] = collections.defaultdict(dict)
        self.faults: list[str] = []
        self.places: set[str] = set()
        self.unreadable: set[str] = set()

    def require(self, condition: Any, place: str, message: str) -> bool:
        """Note a fault unless the condition holds; return whether it does."""
        if not condition:
            self.faults.append(f"{place or 'top level'}: {message}")
            self.places.add(place)
        return bool(condition)

    def known(self, name: Any, known: Iterable[str], place: str, what: str) -> bool:
        """Require that a name is one of the known ones."""
        if name in (known := list(known)):
            return True
        return self.require(
            False, place, f"{what} {brief(name)}; {suggest(name, known)}"
        )

    def names(
        self,
        given: Iterable[str],
        expected: Iterable[str],
        place: str,
        what: str,
        optional: Collection[str] = (),
    ) -> None:
        """Require the expected names, all but optional ones, and no others."""
        given, expected = list(given), list(expected)
        for name in given:
            self.known(name, expected, f"{place}.{name}", f"unknown {what}")
        for name in expected:
            message = f"missing {what} {brief(name)}; add it"
            self.require(name in given or name in optional, place, message)

    def unused(
        self, texts: Iterable[str], used: dict[str, str], place: str
    ) -> tuple[str, ...]:
        """Require that texts are not in use elsewhere, and mark them as used here."""
        texts = tuple(texts)
        for text in texts:
            if text in used:
                message = f"{brief(text)} is already used {used[text]}"
                self.require(False, place, f"{message}; write something else")
            used[text] = f"in {place}"
        return texts

    def fields(self, types: Mapping[str, str], place: str) -> Fields:
        """Return names with their types, which have to be known."""
        for name, kind in types.items() if "types" not in self.unreadable else ():
            self.known(kind, self.types, f"{place}.{name}", "unknown type")
        return tuple(types.items())

    def texts(
        self,
        pools: Iterable[tuple[str, list[str]]],
        used: dict[str, str],
        place: str,
    ) -> Synonyms:
        """Return the texts of each pool, none of which may be in use elsewhere."""
        return {
            pool: self.unused(texts, used, f"{place}.{pool}") for pool, texts in pools
        }

    def short(self, texts: Iterable[str], place: str) -> None:
        """Require that no text is longer than the sandbox can look up."""
        texts = {text: len(text.encode(errors="replace")) for text in texts}
        text = max(texts, key=lambda text: texts[text], default="")
        size, room = texts.get(text, 0), self.limits.value_bytes
        message = (
            f"{brief(text)} has {size} bytes, but the limit is {room}; shorten it "
        )
        message += f"or raise sandbox.value_bytes to {size}"
        self.require(size <= room, place, message)


def suggest(name: Any, known: Collection[str]) -> str:
    """Return the remedy for an unknown name: the nearest known one, or all of them.

    >>> suggest("hours", ["hour", "city"])
    "did you mean 'hour'?"
    >>> suggest("zzz", ["hour", "city"])
    'known: hour, city'
    """
    close = difflib.get_close_matches(str(name), known, 1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
