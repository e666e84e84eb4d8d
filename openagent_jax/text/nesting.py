"""Nested JSON as a list of leaves, each with a path.

An object such as `{"to": {"city": "Rome"}, "tags": ["a", "b"]}` has the leaves

    to.city   tags.0   tags.1

A path has the keys of objects and the indices of arrays, divided by dots. On the
device, a key is a symbol, and an index is a number (see `scalars`). The own key of each
leaf is in an array [A], its outer keys are in an array [A, L], outermost first, with 0
where a leaf is not so deep. Leaves of the same container must be neighbours, and the
elements of an array must be in order.

`pieces` writes such leaves, some of which may be left out; `nested` and `flat` convert
values of Python.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.text import scalars

T = TypeVar("T")  # str, or int: a symbol
U = TypeVar("U")

OBJECT, ARRAY = range(2)  # kinds of containers
DOT = "~."  # a dot in a key, as paths have it
Pair = tuple[T, T]
Path = tuple[str | int, ...]  # keys of objects and indices of arrays
# `$filter` and `@type` occur in real lists; a dot in a key is written `~.`.
_KEY = r"[A-Za-z_$@](?:[A-Za-z0-9_$@-]|~\.)*"
PATH = re.compile(rf"{_KEY}(?:\.(?:{_KEY}|0|[1-9][0-9]*))*")


class Syntax(NamedTuple, Generic[T]):
    """The texts around keys and values. Where a text depends on what it stands for, the
    last index is that of a pair: with quotes, or without.

    Attributes:
      enter: opens a container, after its key if it has one; [kind of the container
        that it is in, kind of its own].
      value: what is before a value; [kind of its container, is it without quotes].
      comma: what is between two items; [kind of their container, is there no quote to
        close, because the first one ends without quotes or with a bracket].
      close: closes a container; [its kind, is there no quote to close].
      end: closes the outermost object; [is there no quote to close].
    """

    enter: tuple[Pair[T], Pair[T]]
    value: tuple[Pair[T], Pair[T]]
    comma: tuple[Pair[T], Pair[T]]
    close: tuple[Pair[T], Pair[T]]
    end: Pair[T]

    def mapped(self, function: Callable[[T], U]) -> "Syntax[U]":
        """Return the syntax with a function applied to each of its texts."""

        def walk(x: Any) -> Any:
            return tuple(map(walk, x)) if isinstance(x, tuple) else function(x)

        return Syntax(*map(walk, self))


def json_syntax(equals: Pair[str], comma: Pair[str], end: Pair[str]) -> Syntax[str]:
    """Return the syntax of JSON, given what is written around flat pairs.

    Args:
      equals: what is between a key and a value with quotes, or one without. If they
        are equal, all values have quotes.
      comma: what is between a value with quotes, or one without, and the next key.
      end: what follows the last value with quotes, or a closing bracket.

    >>> made = json_syntax(('": "', '": '), ('", "', ', "'), ('"}', "}"))
    >>> made.enter[OBJECT], made.comma[ARRAY]
    (('": {"', '": ['), ('", ', ', '))
    """
    colon, blank = equals[0][:-1], comma[1].removesuffix('"')
    bare = "" if equals[0] != equals[1] else '"'
    return Syntax(
        enter=((f'{colon}{{"', f"{colon}["), ('{"', "[")),
        value=(equals, ('"', bare)),
        comma=(comma, (f'"{blank}', blank)),
        close=(('"}', "}"), ('"]', "]")),
        end=end,
    )


def pieces(
    syntax: Syntax[int],
    path: Int[Array, "A L"],
    name: Int[Array, "A"],
    given: Bool[Array, "A"],
    bare: Bool[Array, "A"],
    value: Int[Array, "A V"],
) -> Int[Array, "P"]:
    """Write leaves as nested JSON, from the first key to `Syntax.end`.

    The quote that opens the first key is not included, since it belongs to the text
    that opens the outermost object. Without any leaf only `Syntax.end` is written.

    Args:
      syntax: the texts around keys and values, as symbols.
      path: the outer keys of each leaf.
      name: the own key of each leaf.
      given: which leaves are written.
      bare: which values are written without quotes, unless all have quotes.
      value: the symbols of each value.

    Returns:
      Symbols, in which 0 is the empty text.
    """
    (num, levels), row = path.shape, jnp.arange(path.shape[0])
    if syntax.value[OBJECT][0] == syntax.value[OBJECT][1]:
        bare = jnp.zeros_like(bare)
    deep = jnp.sum(path != 0, axis=1)  # the number of containers in the outermost one
    keys = jnp.pad(path, ((0, 0), (0, 1)))
    keys = jnp.where(jnp.arange(levels + 1)[None] == deep[:, None], name[:, None], keys)
    kind = (keys >= scalars.NUMBER).astype(jnp.int32)  # of the container of each key
    enter, between, comma, close, end = (jnp.array(table) for table in syntax)

    # The leaf that was written before each leaf, and before the end.
    before = jnp.append(-1, jax.lax.cummax(jnp.where(given, row, -1)))
    is_first, before = before < 0, jnp.maximum(before, 0)
    same = (path == path[before[:-1]]) & (path != 0) & ~is_first[:-1, None]
    shared = jnp.sum(jnp.cumprod(same, axis=1), axis=1)  # containers that stay open
    closed = jnp.where(is_first, 0, deep[before] - jnp.append(shared, 0))
    no_quote = (bare[before] | is_first).astype(jnp.int32)
    after = jnp.where(closed > 0, 1, no_quote)  # whether there is none after brackets
    written = jnp.append(given, True)
    closing = []
    for k in range(levels):
        inner = kind[before, jnp.maximum(deep[before] - k, 0)]
        text = close[inner, no_quote if k == 0 else 1]
        closing.append(jnp.where(written & (k < closed), text, 0))

    text = comma[kind[row, shared], after[:-1]]
    opening = [jnp.where(is_first[:-1], 0, text)]
    for k in range(levels):
        opens = (k >= shared) & (k < deep)
        has_key = opens & (kind[:, k] == OBJECT)
        opening.append(jnp.where(has_key, keys[:, k], 0))
        opening.append(jnp.where(opens, enter[kind[:, k], kind[:, k + 1]], 0))
    own = kind[row, deep]
    opening.append(jnp.where(own == OBJECT, name, 0))
    opening.append(between[own, bare.astype(jnp.int32)])
    items = jnp.concatenate([jnp.stack(opening, axis=1), value], axis=1)
    items = jnp.where(given[:, None], items, 0)
    brackets = jnp.stack(closing, axis=1) if levels else jnp.zeros((num + 1, 0), int)
    body = jnp.concatenate([brackets[:-1], items], axis=1).reshape(-1)
    tail = jnp.append(brackets[-1], end[after[-1]])
    return jnp.concatenate([body, tail]).astype(jnp.int32)


# What follows runs on the host.


def parse(path: str) -> Path:
    """Return the keys and indices of a path.

    >>> parse("guests.1.name"), parse("repo~.owner")
    (('guests', 1, 'name'), ('repo.owner',))
    """
    keys = (key.replace(DOT, ".") for key in re.split(r"(?<!~)\.", path))
    return tuple(int(key) if key.isdecimal() else key for key in keys)


def written(path: Sequence[str | int]) -> str:
    """Return a path as it is written; the inverse of `parse`."""
    return ".".join(str(key).replace(".", DOT) for key in path)


def encoded(
    path: Sequence[str | int], levels: int, one: Callable[[str], int]
) -> tuple[list[int], int]:
    """Return the outer keys of a path, padded to `levels`, and its own key.

    Args:
      path: keys and indices, at most one more than `levels`.
      levels: L, the room for outer keys.
      one: returns the symbol of a key.
    """
    keys = [scalars.code(key) if isinstance(key, int) else one(key) for key in path]
    return keys[:-1] + [0] * (levels + 1 - len(keys)), keys[-1]


def decoded(outer: Sequence[int], name: int, texts: Sequence[str]) -> Path:
    """Return the path of a leaf; the inverse of `encoded`.

    Args:
      outer: its outer keys, of which 0 stands for none.
      name: its own key.
      texts: the text of each symbol.
    """
    keys = [int(key) for key in (*outer, name) if key]
    return tuple(
        int(scalars.decimal_of(key)) if key >= scalars.NUMBER else texts[key]
        for key in keys
    )


def in_order(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return paths in their order, but with leaves of the same container together.

    >>> in_order([("to", "city"), ("day",), ("to", "zip"), ("tags", 1), ("tags", 0)])
    (('to', 'city'), ('to', 'zip'), ('day',), ('tags', 0), ('tags', 1))
    """
    paths = list(dict.fromkeys(paths))
    first: dict[Path, int] = {}
    for number, path in enumerate(paths):
        for level in range(len(path)):
            first.setdefault(path[: level + 1], number)

    def place(path: Path) -> list[tuple[int, int]]:
        return [
            (key, 0) if isinstance(key, int) else (0, first[path[: level + 1]])
            for level, key in enumerate(path)
        ]

    return tuple(sorted(paths, key=place))


def nested(leaves: Mapping[Path, Any]) -> dict[str, Any]:
    """Return the object that has these leaves.

    The indices of an array only say in which order its elements are.

    >>> nested({("to", "city"): "Rome", ("tags", 0): "a", ("tags", 2): "b"})
    {'to': {'city': 'Rome'}, 'tags': ['a', 'b']}
    """

    def build(items: dict[Path, Any]) -> Any:
        if list(items) == [()]:
            return items[()]
        groups: dict[str | int, dict[Path, Any]] = {}
        for (key, *rest), value in items.items():
            groups.setdefault(key, {})[tuple(rest)] = value
        if any(isinstance(key, int) for key in groups):
            return [build(groups[key]) for key in sorted(groups, key=int)]
        return {key: build(group) for key, group in groups.items()}

    return build(dict(leaves)) if leaves else {}


def flat(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the leaves of a value; empty containers have none.

    >>> dict(flat({"to": {"city": "Rome"}, "tags": ["a"], "by": {}}))
    {('to', 'city'): 'Rome', ('tags', 0): 'a'}
    """
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from flat(item, (*path, index))
    else:
        yield path, value
