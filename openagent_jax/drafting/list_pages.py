"""Find tools of a list that return their results in pages.

Such a tool has an optional argument for a cursor, and the schema of its result has a
list of objects and the next cursor.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openagent_jax.domains import result_pages, value_schema
from openagent_jax.domains.domain_schema import ARGUMENT, may_be_null
from openagent_jax.drafting.list_schemas import (
    SCALAR_TYPES,
    Schema,
    Unsupported,
    resolve,
)
from openagent_jax.text import nesting

# In lower case, without the marks between words.
_ARGUMENTS = (
    "cursor",
    "nextcursor",
    "startcursor",
    "pagecursor",
    "pagetoken",
    "nextpagetoken",
    "nexttoken",
    "continuationtoken",
    "after",
    "startingafter",
)
_FIELDS = (
    "nextcursor",
    "nextpagetoken",
    "nexttoken",
    "continuationtoken",
    "endcursor",
    "nextpage",
    "cursor",
)
_LEVELS = 2  # of objects around a list, or a cursor
SIZE, MOST = 2, 5  # records of a page, and of a list


@dataclass(frozen=True)
class ListedPages:
    """How a listed tool divides its result.

    Attributes:
      path: where the list is in the result.
      columns: the plain schema of each scalar of its records, by name.
      cursor: the argument that takes a cursor.
      next: the path of the field with the next one.
    """

    path: str
    columns: Mapping[str, Schema]
    cursor: str
    next: str


def found(parameters: Schema, root: Any, output: Any) -> ListedPages | None:
    """Return how a tool divides its result; None if its schemas do not tell.

    >>> text = {"type": "string"}
    >>> order = {"type": "object", "properties": {"id": text}}
    >>> fields = {"orders": {"type": "array", "items": order}, "next_cursor": text}
    >>> parameters = {"properties": {"cursor": text}}
    >>> found(parameters, parameters, {"type": "object", "properties": fields})
    ListedPages(path='orders', columns={'id': {'type': 'string'}}, cursor='cursor', \
next='next_cursor')

    Args:
      parameters: the schema of the arguments.
      root: what its references begin at.
      output: the schema of the result; None if the list has none.
    """
    properties = parameters.get("properties") or {}
    required = parameters.get("required") or ()
    takes = [
        name
        for name, schema in properties.items()
        if _plain(name) in _ARGUMENTS
        and ARGUMENT.fullmatch(name)
        and "." not in name
        and (name not in required or may_be_null(schema))
        and _is_text(schema, root)
        and not value_schema.misfit(schema, result_pages.EXAMPLE, root=root)
    ]
    takes.sort(key=lambda name: _ARGUMENTS.index(_plain(name)))
    parts = list(_parts(output, output, (), _LEVELS))
    gives = [
        path
        for path, schema in parts
        if _plain(path[-1]) in _FIELDS and _is_text(schema, output)
    ]
    gives.sort(key=lambda path: _FIELDS.index(_plain(path[-1])))
    lists = {path: _columns(schema, output) for path, schema in parts}
    lists = {path: columns for path, columns in lists.items() if columns}
    if not takes or not gives or len(lists) != 1:
        return None
    ((path, columns),) = lists.items()
    return ListedPages(
        nesting.written(path), columns, takes[0], nesting.written(gives[0])
    )


def _plain(name: str) -> str:
    """Return a name in lower case, without the marks between its words.

    >>> _plain("nextPage_token")
    'nextpagetoken'
    """
    return re.sub("[^a-z0-9]", "", name.lower())


def _is_text(schema: Any, root: Any) -> bool:
    return _resolved(schema, root).get("type") == "string"


def _resolved(schema: Any, root: Any) -> Schema:
    """Return a schema without references and unions; an empty one if that fails."""
    try:
        return resolve(schema, root, "a result")
    except Unsupported:
        return {}


def _parts(
    schema: Any, root: Any, path: tuple[str, ...], depth: int
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all properties of an object, and of those in it, with their paths."""
    properties = _resolved(schema, root).get("properties")
    for key, value in properties.items() if isinstance(properties, dict) else ():
        if not nesting.PATH.fullmatch(key) or "." in key:
            continue
        yield (*path, key), value
        if depth > 1:
            yield from _parts(value, root, (*path, key), depth - 1)


def _columns(schema: Any, root: Any) -> dict[str, Schema]:
    """Return the scalars of the records of a list; none if it is no list of objects."""
    plain = _resolved(schema, root)
    if plain.get("type") != "array":
        return {}
    properties = _resolved(plain.get("items"), root).get("properties")
    columns = properties.items() if isinstance(properties, dict) else ()
    made = {key: _resolved(value, root) for key, value in columns}
    return {
        key: value
        for key, value in made.items()
        if nesting.PATH.fullmatch(key) and "." not in key
        and (value.get("type") in SCALAR_TYPES or "enum" in value)
        and not _is_narrow(value)
    }  # fmt: skip


def _is_narrow(schema: Schema) -> bool:
    """Tell whether a number has too few values for the records of a list to differ."""
    ends = schema.get("minimum"), schema.get("maximum")
    low, high = (x if isinstance(x, int | float) else None for x in ends)
    return low is not None and high is not None and high - low < MOST
