"""Other forms of the keys of results: other cases, another language, and units.

A form is a function of a key. The forms of the two splits are disjoint.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from openagent_jax.text import style
from openagent_jax.text.symbols import Symbols

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SPLITTABLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def _words(key: str) -> list[str]:
    """Return the words of a key in lower case.

    >>> _words("labelId"), _words("utc_offset")
    (['label', 'id'], ['utc', 'offset'])
    """
    return [word.lower() for word in _WORD.findall(key)]


def camel_case(key: str) -> str:
    """
    >>> camel_case("utc_offset")
    'utcOffset'
    """
    first, *others = _words(key)
    return "".join([first, *map(str.capitalize, others)])


def pascal_case(key: str) -> str:
    """
    >>> pascal_case("utc_offset")
    'UtcOffset'
    """
    return "".join(map(str.capitalize, _words(key)))


def upper_case(key: str) -> str:
    """
    >>> upper_case("labelId")
    'LABEL_ID'
    """
    return "_".join(_words(key)).upper()


def header_case(key: str) -> str:
    """
    >>> header_case("utc_offset")
    'X-Utc-Offset'
    """
    return "-".join(["X", *map(str.capitalize, _words(key))])


def spanish(key: str) -> str:
    """
    >>> spanish("booking_id")
    'id_de_reserva'
    >>> spanish("xid")
    'xid'
    """
    found = _spanish()
    return "_de_".join(found.get(word, word) for word in reversed(_words(key)))


@cache
def _spanish() -> dict[str, str]:
    text = (Path(__file__).parent / "spanish.txt").read_text()
    return dict(line.split(" ") for line in text.splitlines())


def with_unit(key: str, unit: str) -> str:
    """
    >>> with_unit("mass", "g/mol")
    'mass_g_per_mol'
    """
    words = re.findall(r"\w+", unit.replace("/", " per "), re.ASCII)
    return "_".join([key, *words])


TRAIN = ("camel_case", "pascal_case", "upper_case", "with_unit")
TEST = ("header_case", "spanish")
_OF_KEY: tuple[Callable[[str], str], ...] = (
    *(camel_case, pascal_case, upper_case),
    *(header_case, spanish),
)
# The range of each split, without the normal form.
RANGES = (1, 1 + len(TRAIN)), (1 + len(TRAIN), 1 + len(TRAIN) + len(TEST))


class KeyForms(NamedTuple):
    """Tables of the forms of M keys, as symbols."""

    key: Int[Array, "M"]  # sorted
    form: Int[Array, "K M"]  # the first is the key itself

    def written(
        self, key: Int[Array, "..."], which: Int[Array, "..."]
    ) -> Int[Array, "..."]:
        """Return keys in some forms; other texts stay as they are."""
        at = jnp.searchsorted(self.key, key, method="scan_unrolled")
        at = jnp.minimum(at, len(self.key) - 1)
        return jnp.where(self.key[at] == key, self.form[which, at], key)


def tables(symbols: Symbols, keys: Iterable[int], units: Mapping[str, str]) -> KeyForms:
    """Return the tables of some keys, whose forms are added to the symbols.

    A key stays as it is in a form that another key has taken.

    Args:
      symbols: the symbols of the keys.
      keys: symbols of keys; others than names and 0 are left out.
      units: the unit of each key that has one, by its text.
    """
    known = sorted(
        key for key in {*keys} if _SPLITTABLE.fullmatch(symbols.texts[key])
    ) or [symbols.one(style.CODE)]
    texts = [symbols.texts[key] for key in known]
    rows = [known]
    for name in (*TRAIN, *TEST):
        taken = {*texts, style.CODE}
        row = []
        for text in texts:
            new = _form(name, text, units.get(text, ""))
            row.append(text if new in taken else new)
            taken.add(new)
        rows.append([symbols.one(text) for text in row])
    return KeyForms(*(jnp.asarray(np.array(x, np.int32)) for x in (known, rows)))


def _form(name: str, key: str, unit: str) -> str:
    if name == "with_unit":
        return with_unit(key, unit) if unit else key
    return {x.__name__: x for x in _OF_KEY}[name](key)
