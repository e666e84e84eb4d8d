"""Find the scalars in the result of a listed tool.

Each has a path, as in a domain file: `owner.name` is a field of an object, `tags.0` the
first element of an array, and `orders.0.id` a field of the first record of a list.
Records have no lists of their own in a domain file, so that `orders.0.lines.0.item` is
one line for each order.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from openagent_jax.drafting import number_ranges
from openagent_jax.drafting.list_schemas import (
    SCALAR_TYPES,
    Schema,
    Unsupported,
    resolve,
)
from openagent_jax.text import nesting
from openagent_jax.text.nesting import Path

MAX_LEVELS = 6  # of objects and arrays inside one another
MAX_SCHEMAS = 1000  # that are looked at: one that refers to itself has no end
MAX_KEY = 40  # letters
MOST = 3  # records of a list, if it is returned at once
MOST_IN_PAGES = 5
_WHOLE = "result"  # the name of a result that is not an object


def fields(output: Any) -> dict[str, Schema]:
    """Return the plain schema of each scalar of a result, by its path.

    >>> text = {"type": "string"}
    >>> order = {"type": "object", "properties": {"id": text}}
    >>> parts = {"orders": {"type": "array", "items": order}, "by": text}
    >>> [*fields({"type": "object", "properties": parts})]
    ['orders.0.id', 'by']

    Args:
      output: the schema of the result; None if the list has none.
    """
    room = iter(range(MAX_SCHEMAS))
    found = _scalars(output, output, (), room) if output else ()
    return {
        nesting.written(path or (_WHOLE,)): schema
        for path, schema in found
        if not (list_of(path) and _is_narrow(schema))
    }


def list_of(path: Path) -> Path:
    """Return the path of the list of records that a field is in; () if it is in none.

    >>> list_of(("page", "orders", 0, "id")), list_of(("tags", 0))
    (('page', 'orders'), ())
    """
    is_index = [isinstance(key, int) for key in path]
    first = is_index.index(True) if any(is_index) else len(path)
    return path[:first] if False in is_index[first + 1 : first + 2] else ()


def lists(paths: Iterable[str]) -> list[str]:
    """Return the paths of the lists of records that some fields are in.

    >>> lists(["orders.0.id", "orders.0.total", "count"])
    ['orders']
    """
    found = (list_of(nesting.parse(path)) for path in paths)
    return [nesting.written(path) for path in dict.fromkeys(found) if path]


def _scalars(
    schema: Any, root: Any, path: Path, room: Iterator[int]
) -> Iterator[tuple[Path, Schema]]:
    if next(room, None) is None:
        return
    try:
        schema = resolve(schema, root, "a result")
    except Unsupported:
        return
    if isinstance(schema.get("properties"), dict):
        inner = [(_key(key), value) for key, value in schema["properties"].items()]
    elif schema.get("type") == "array":
        path = path or (_WHOLE,)
        inner = [(0, schema.get("items", {}))]
    else:
        inner = []
        if schema.get("type") in SCALAR_TYPES or "enum" in schema:
            yield path, _plain_number(path, schema)
    for key, value in inner if len(path) < MAX_LEVELS else ():
        yield from _scalars(value, root, (*path, key), room)


def _key(name: str) -> str:
    """Return the key of a field, in letters that are allowed."""
    name = name[:MAX_KEY]
    if nesting.PATH.fullmatch(nesting.written((name,))):
        return name
    return re.sub(r"[^A-Za-z0-9_]|^(?=[0-9]|$)", "_", name)


def _plain_number(path: Path, schema: Schema) -> Schema:
    """Make an integer of a "number" that only takes whole values."""
    name = next((key for key in reversed(path) if isinstance(key, str)), "")
    if schema.get("type") == "number" and number_ranges.is_whole(name, schema):
        return {**schema, "type": "integer"}
    return schema


def _is_narrow(schema: Schema) -> bool:
    """Tell whether a number has too few values for the records of a list to differ."""
    ends = schema.get("minimum"), schema.get("maximum")
    low, high = (x if isinstance(x, int | float) else None for x in ends)
    return low is not None and high is not None and high - low < MOST_IN_PAGES
