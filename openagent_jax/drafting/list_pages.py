"""Find tools of a list that return their results in pages.

Such a tool has an optional argument for a cursor, and the schema of its result has a
list of objects and the next cursor.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openagent_jax.domains import result_pages, value_schema
from openagent_jax.domains.domain_schema import ARGUMENT
from openagent_jax.drafting import list_results
from openagent_jax.drafting.list_schemas import Schema, Unsupported, resolve
from openagent_jax.text import nesting
from openagent_jax.text.schema_paths import may_be_null

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
SIZE = 2  # records of a page


@dataclass(frozen=True)
class ListedPages:
    """How a listed tool divides its result.

    Attributes:
      path: where the list is in the result.
      cursor: the argument that takes a cursor.
      next: the path of the field with the next one.
    """

    path: str
    cursor: str
    next: str


def found(
    parameters: Schema, root: Any, returns: Mapping[str, Schema]
) -> ListedPages | None:
    """Return how a tool divides its result; None if its schemas do not tell.

    >>> text = {"type": "string"}
    >>> parameters = {"properties": {"cursor": text}}
    >>> found(parameters, parameters, {"orders.0.id": text, "next_cursor": text})
    ListedPages(path='orders', cursor='cursor', next='next_cursor')

    Args:
      parameters: the schema of the arguments.
      root: what its references begin at.
      returns: the plain schema of each scalar of the result, by its path.
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
    paths = {path: nesting.parse(path) for path in returns}
    gives = {
        path: _FIELDS.index(_plain(str(keys[-1])))
        for path, keys in paths.items()
        if _plain(str(keys[-1])) in _FIELDS
        and returns[path].get("type") == "string"
        and not any(isinstance(key, int) for key in keys)
    }
    lists = list_results.lists(returns)
    if not takes or not gives or len(lists) != 1:
        return None
    return ListedPages(lists[0], takes[0], min(gives, key=lambda path: gives[path]))


def _plain(name: str) -> str:
    """Return a name in lower case, without the marks between its words.

    >>> _plain("nextPage_token")
    'nextpagetoken'
    """
    return re.sub("[^a-z0-9]", "", name.lower())


def _is_text(schema: Any, root: Any) -> bool:
    try:
        return resolve(schema, root, "an argument").get("type") == "string"
    except Unsupported:
        return False
