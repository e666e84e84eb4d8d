"""Find the scalars in an argument that is an array or an object.

Goals of a draft give the first element of an array (and the second, if that is a scalar
and there is room), and of an object what it requires. An object that requires nothing
is given by its first part that can be given.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from openagent_jax.drafting import number_ranges
from openagent_jax.drafting.list_schemas import (
    SCALAR_TYPES,
    Schema,
    Unsupported,
    resolve,
)
from openagent_jax.text import nesting, schema_paths
from openagent_jax.text.nesting import Path

MAX_LEVELS = 5  # of arrays and objects inside one another


@dataclass(frozen=True)
class Leaf:
    """A scalar of an argument.

    Attributes:
      path: its path.
      schema: its plain schema.
      optional: whether a call may leave it out.
      notes: what was decided about unions on the way.
    """

    path: str
    schema: Schema
    optional: bool
    notes: tuple[str, ...]


def leaves(name: str, schema: Any, root: Any) -> list[Leaf]:
    """Return the scalars of an argument that goals give.

    >>> tags = {"type": "array", "items": {"type": "string"}}
    >>> [(leaf.path, leaf.optional) for leaf in leaves("tags", tags, {})]
    [('tags.0', False), ('tags.1', True)]

    Args:
      name: the name of the argument.
      schema: its schema.
      root: what references begin at.

    Raises:
      Unsupported: it is required to hold something that is not a scalar.
    """
    found = list(_leaves((name,), schema, root, (), ()))
    if not found:
        raise Unsupported(f"argument {name!r}: nothing in it is a scalar")
    return found


def scalar(path: Path, schema: Any, root: Any, notes: list[str]) -> Schema:
    """Return the plain schema of a scalar.

    Args:
      path: where it is among the arguments.
      schema: its schema.
      root: what references begin at.
      notes: gets what was decided about unions.

    Raises:
      Unsupported: it is no scalar.
    """
    what = _what(path)
    schema = resolve(schema, root, what, notes)
    if "const" in schema:
        schema = {**schema, "enum": [schema["const"]]}
    kind = _kind(schema)
    if kind == "array" and not isinstance(schema.get("items"), dict):
        has = "`items`, which say what it holds"
        if "items" in schema or "prefixItems" in schema:
            has = "one schema for its `items`"
        raise Unsupported(f"{what}: an array without {has}")
    if kind not in SCALAR_TYPES:
        raise Unsupported(f"{what}: the type {kind!r} is not supported")
    if schema.get("type") == "number" and number_ranges.is_whole(_own(path), schema):
        return {**schema, "type": "integer"}
    return schema


def _leaves(
    path: Path, schema: Any, root: Any, notes: tuple[str, ...], around: tuple[int, ...]
) -> Iterator[Leaf]:
    """Yield the scalars of a schema; `around` has the identities of those around it."""
    if id(schema) in around:
        raise Unsupported(
            f"{_what(path)} refers to itself, and requires that endlessly"
        )
    around = (*around, id(schema))
    if len(path) > MAX_LEVELS:
        raise Unsupported(f"{_what(path)}: nested more than {MAX_LEVELS} levels deep")
    schema, decided = _resolved(path, schema, root)
    notes = (*notes, *decided)
    if isinstance(schema.get("properties"), dict) and _kind(schema) == "object":
        yield from _of_object(path, schema, root, notes, around)
    elif _kind(schema) == "array" and isinstance(schema.get("items"), dict):
        items = list(_leaves((*path, 0), schema["items"], root, notes, around))
        yield from items
        least, most = schema.get("minItems"), schema.get("maxItems")
        is_scalar = len(items) == 1 and items[0].path == nesting.written((*path, 0))
        if is_scalar and not (type(most) is int and most < 2):
            another = nesting.written((*path, 1))
            needs = type(least) is int and least > 1
            yield Leaf(another, items[0].schema, not needs, ())
    else:
        more: list[str] = []
        if _kind(schema) == "object":
            raise Unsupported(
                f"{_what(path)}: an object without `properties`, which may hold "
                "anything; write these"
            )
        plain = scalar(path, schema, root, more)
        yield Leaf(nesting.written(path), plain, False, (*notes, *more))


def _of_object(
    path: Path,
    schema: Schema,
    root: Any,
    notes: tuple[str, ...],
    around: tuple[int, ...],
) -> Iterator[Leaf]:
    properties, required = schema["properties"], schema.get("required") or ()
    names = [name for name in properties if name in required]
    for name in names:
        yield from _leaves((*path, name), properties[name], root, notes, around)
    if names:
        return
    for name in properties:
        try:
            inner = properties[name]
            found = list(_leaves((*path, name), inner, root, notes, around))
        except Unsupported:
            continue
        if found:
            yield from found
            return


def _resolved(path: Path, schema: Any, root: Any) -> tuple[Schema, list[str]]:
    """Resolve a schema; of a union without scalars, take the first array or object."""
    notes: list[str] = []
    try:
        return resolve(schema, root, _what(path), notes), notes
    except Unsupported:
        for option in schema_paths.alternatives(root, schema):
            kind = option.get("type")
            if option is schema or kind not in ("array", "object"):
                continue
            if "items" in option or "properties" in option:
                what = f"{_what(path)} is the first {kind} of a union"
                return resolve(option, root, _what(path)), [what]
        raise


def _kind(schema: Schema) -> str:
    has_values = "enum" in schema or "properties" not in schema
    return str(schema.get("type", "string" if has_values else "object"))


def _what(path: Path) -> str:
    return f"argument {nesting.written(path)!r}"


def _own(path: Path) -> str:
    return next(str(key) for key in reversed(path) if isinstance(key, str))
