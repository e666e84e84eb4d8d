"""The values that domain files need for limits that only some domains use.

Limits decide the sizes of arrays, so that they have to be known before a file is read
and checked. A file that cannot be read needs nothing; reading it will name its faults.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from openagent_jax.domains import domain_schema as schema
from openagent_jax.text import nesting

_MOST = 64  # more than that is a fault, which is named with the limit in use


class Needs(NamedTuple):
    """What a domain needs; see `Limits`."""

    depth: int = 1
    num_fields: int = 0  # of the tools that return lists
    num_derived: int = 0
    paging: bool = False


def of(document: Any) -> Needs:
    """Return what a domain needs, given what its file holds.

    >>> of({"tools": [{"x-openagent": {"arguments": {"to.city": "city"}}}]})
    Needs(depth=2, num_fields=0, num_derived=0, paging=False)
    """
    return most(map(_of_tool, _meanings(document)))


def most(needs: Iterable[Needs]) -> Needs:
    """Return what several domains need together."""
    return Needs(*map(max, zip(Needs(), *needs, strict=True)))


def _meanings(document: Any) -> Iterator[dict[str, Any]]:
    tools = document.get("tools") if isinstance(document, dict) else None
    for tool in tools if isinstance(tools, list) else ():
        meaning = tool.get("x-openagent") if isinstance(tool, dict) else None
        if isinstance(meaning, dict):
            yield meaning


def _of_tool(meaning: dict[str, Any]) -> Needs:
    arguments, returns = (_part(meaning, key) for key in ("arguments", "returns"))
    lists = {path: x for path, x in returns.items() if isinstance(x, dict)}
    sizes = {path: (_records(x), len(_part(x, "list"))) for path, x in lists.items()}
    # Under a list come the number of the record and its column.
    depths = [_parts(path) for path in (*arguments, *returns)]
    depths += [_parts(path) + 2 for path in lists]
    named = _part(_part(meaning, "requests"), "fields")
    # The number of records of each list is derived, whether requests name it or not.
    derived = len(lists) + sum("(" in x and not x.startswith("count(") for x in named)
    fields = len(returns) - len(lists) + sum(num * size for num, size in sizes.values())
    pages = _part(meaning, "pages")
    if isinstance(following := pages.get("next"), str):
        fields += 1
        depths.append(_parts(following))
    return Needs(
        min(max(depths, default=1), schema.MAX_DEPTH),
        fields if lists else 0,
        min(derived, _MOST),
        bool(pages),
    )


def _part(item: dict[str, Any], key: str) -> dict[str, Any]:
    part = item.get(key)
    return part if isinstance(part, dict) else {}


def _parts(path: str) -> int:
    return len(nesting.parse(path)) if nesting.PATH.fullmatch(path) else 1


def _records(made: dict[str, Any]) -> int:
    most = made.get("at_most")
    return most if type(most) is int and 0 < most <= _MOST else 1
