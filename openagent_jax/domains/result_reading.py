"""Read what a tool returns (`x-openagent.returns`): fields with paths, and lists.

    "returns": {
        "total": "amount",
        "owner.name": "person",
        "items": {"list": {"id": "booking", "price": "amount"},
                  "at_least": 1, "at_most": 3}
    }

A list has the fields `items.0.id`, `items.0.price`, `items.1.id`, ... How many records
a call returns differs by call; goals may use those that every call has. Goals may also
use what is derived from a list: `count(items)`, the number of its records, and, if it
is never empty, `max(items.price).id` and `min(items.price).id`.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from openagent_jax.domains import domain_schema as schema
from openagent_jax.domains.domain_checks import Checker
from openagent_jax.domains.domain_spec import (
    COUNT,
    CURSOR,
    Fields,
    ListSpec,
    TypeSpec,
)
from openagent_jax.text import nesting, style

MOST = 64  # records of a list


def fields(
    returns: Mapping[str, Any], place: str, check: Checker, cursor: str = ""
) -> tuple[Fields, tuple[ListSpec, ...]]:
    """Return the fields of a result, in the order in which they are written, and its
    lists.

    Args:
      returns: the types of its parts, as `domain_schema.Meaning` has them.
      place: where they are in the file.
      check: collects the faults.
      cursor: the path of the field with the next cursor; "" if there is none.
    """
    found: dict[str, str] = {}
    lists = []
    for name, kind in returns.items():
        at = f"{place}.{name}"
        if isinstance(kind, str):
            _known(kind, at, check)
            found[name] = kind
        elif _list(kind, at, check):
            made = ListSpec(
                name, tuple(kind.columns.items()), kind.at_least, kind.at_most
            )
            lists.append(made)
            found |= dict(leaves(made))
    if cursor:
        found[cursor] = CURSOR
    if lists:
        message = f"{COUNT!r} is the type of the number of records of a list; rename it"
        check.require(COUNT not in check.types, f"types.{COUNT}", message)
    paths = {nesting.parse(name): kind for name, kind in found.items()}
    heads = {path[:size] for path in paths for size in range(1, len(path))}
    heads |= {nesting.parse(made.path) for made in lists}
    for path in paths:
        name = nesting.written(path)
        message = "it has fields of its own, so it cannot be a field itself; rename one"
        if not check.require(path not in heads, f"{place}.{name}", message):
            return (), ()
        limit = check.limits.depth
        message = f"its path has {len(path)} parts, but the limit is {limit}; write it "
        message += f"flatter or raise sandbox.depth to {len(path)}"
        check.require(len(path) <= limit, f"{place}.{name}", message)
    message = f"{style.CODE!r} is already used as the name of every code; write "
    message += "something else"
    check.require((style.CODE,) not in {*paths, *heads}, place, message)
    num, limit = len(paths), check.limits.num_fields
    message = f"{num} fields, but the limit is {limit}; remove some or raise "
    check.require(num <= limit, place, f"{message}sandbox.num_fields to {num}")
    # What is in the same container is written together.
    in_order = nesting.flat(nesting.nested(paths)) if paths else ()
    return tuple((nesting.written(path), kind) for path, kind in in_order), tuple(lists)


def leaves(made: ListSpec) -> Iterator[tuple[str, str]]:
    """Yield the fields of a list, with their types."""
    for record in range(made.at_most):
        for column, kind in made.columns:
            yield made.leaf(record, column), kind


def optional(lists: tuple[ListSpec, ...]) -> Iterator[str]:
    """Yield the fields that not every call returns."""
    for made in lists:
        for record in range(made.at_least, made.at_most):
            yield from (made.leaf(record, column) for column, _ in made.columns)


def derivable(
    lists: tuple[ListSpec, ...], types: Mapping[str, TypeSpec | None]
) -> dict[str, tuple[str, ListSpec]]:
    """Return what can be derived from lists: name -> (type, list)."""
    found = {}
    for made in lists:
        found[f"count({made.path})"] = COUNT, made
        for compared, kind in made.columns:
            known = types.get(kind)
            if known is None or known.kind != "number":
                continue
            for operation in ("max", "min"):
                for taken, taken_kind in made.columns:
                    name = f"{operation}({made.path}.{compared}).{taken}"
                    found[name] = taken_kind, made
    return found


def list_of(name: str, lists: tuple[ListSpec, ...]) -> ListSpec:
    """Return the list that a value is derived from, such as `min(items.price).id`."""
    inner = name[name.index("(") + 1 : name.index(")")]
    fits = [x for x in lists if inner == x.path or inner.startswith(f"{x.path}.")]
    return max(fits, key=lambda x: len(x.path))


def derived(
    lists: tuple[ListSpec, ...],
    named: Mapping[str, Any],
    place: str,
    check: Checker,
) -> Fields:
    """Return what goals can use of lists besides their fields.

    Args:
      lists: the lists of a tool.
      named: the results that requests have words for.
      place: where the block of the tool is.
      check: collects the faults.
    """
    known = derivable(lists, check.types)
    used = [f"count({made.path})" for made in lists]
    used += [name for name in named if name in known and name not in used]
    for name in used:
        made = known[name][1]
        message = f"{made.path} may be empty, and then has no best record; raise its "
        message += "at_least to 1"
        is_count = name.startswith("count")
        at = f"{place}.requests.fields.{name}"
        check.require(is_count or made.at_least > 0, at, message)
    num, limit = len(used), check.limits.num_derived
    message = f"{num} values are derived from lists ({', '.join(used)}), but the limit "
    message += f"is {limit}; remove some or raise sandbox.num_derived to {num}"
    check.require(num <= limit, f"{place}.returns", message)
    return tuple((name, known[name][0]) for name in used)


def _known(kind: str, place: str, check: Checker) -> None:
    if "types" not in check.unreadable:
        check.known(kind, check.types, place, "unknown type")


def _list(made: schema.Records, place: str, check: Checker) -> bool:
    """Check a list; return whether it can be used."""
    least, most = made.at_least, made.at_most
    message = f"at_least {least}, at_most {most}; keep 0 <= at_least <= at_most, and "
    message += f"at_most in 1 to {MOST}"
    fits = check.require(0 <= least <= most and 1 <= most <= MOST, place, message)
    for column, kind in made.columns.items():
        at = f"{place}.list.{column}"
        _known(kind, at, check)
        if fits and (known := check.types.get(kind)) is not None:
            size = _size(known)
            message = f"{most} records need as many values, but {kind!r} has {size} in "
            message += "a split; add values or lower at_most"
            check.require(size >= most, at, message)
    return fits


def _size(kind: TypeSpec) -> float:
    """Return how many different values a type has at least; enums may repeat theirs."""
    if kind.kind == "number":
        return int((kind.maximum - kind.minimum).scaleb(kind.decimals)) + 1
    pools = (kind.train, kind.test, kind.shift)
    return math.inf if kind.kind == "enum" else min(map(len, pools))
