"""Find the places of nested arguments in a JSON schema.

Of a schema, `properties` and `items` are followed, also behind references and in
unions. See `nesting` for paths.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from openagent_jax.text import nesting

MAX_DEPTH = 8  # of references and unions inside one another
UNIONS = ("anyOf", "oneOf", "allOf")


class Place(NamedTuple):
    """Where a key of a path is in a schema.

    Attributes:
      holder: the schema of the object or array that has the key.
      key: the key, or the index.
      schema: what the value of the key looks like.
      required: whether the holder requires it. Of an array, the first element is
        required, and as many as it has at least.
    """

    holder: dict[str, Any]
    key: str | int
    schema: Any
    required: bool


def places(root: Any, path: Sequence[str | int]) -> list[Place]:
    """Return the places of the keys of a path; fewer than it has if one has none.

    >>> schema = {"properties": {"tags": {"items": {"type": "string"}}}}
    >>> [place.required for place in places(schema, ("tags", 0))]
    [False, True]
    >>> len(places(schema, ("tags", "first")))
    1

    Args:
      root: the schema of the outermost object, where references begin.
      path: keys and indices.
    """
    found: list[Place] = []
    schema = root
    for key in path:
        options = (_place(option, key) for option in alternatives(root, schema))
        place = next((option for option in options if option), None)
        if place is None:
            break
        found.append(place)
        schema = place.schema
    return found


def alternatives(root: Any, schema: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a schema and all that it refers to or that it is a union of."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return
    yield schema
    if isinstance(reference := schema.get("$ref"), str):
        yield from alternatives(root, referenced(root, reference), depth + 1)
    for union in UNIONS:
        options = schema.get(union)
        for option in options if isinstance(options, list) else ():
            yield from alternatives(root, option, depth + 1)


def _place(schema: dict[str, Any], key: str | int) -> Place | None:
    if isinstance(key, int):
        if not isinstance(schema.get("items"), dict):
            return None
        least = schema.get("minItems")
        least = least if type(least) is int else 1
        return Place(schema, key, schema["items"], key < max(least, 1))
    properties = schema.get("properties")
    if not isinstance(properties, dict) or key not in properties:
        return None
    required = schema.get("required")
    is_required = isinstance(required, list) and key in required
    return Place(schema, key, properties[key], is_required)


def default(root: Any, path: Sequence[str | int]) -> Any:
    """Return the default of a leaf, also where a container has it; None if none has.

    >>> schema = {"properties": {"tags": {"items": {}, "default": ["a", "b"]}}}
    >>> default(schema, ("tags", 1)), default(schema, ("tags", 2))
    ('b', None)
    """
    for number, place in enumerate(places(root, path), 1):
        for option in alternatives(root, place.schema):
            value = option.get("default")
            for key in path[number:]:
                value = _item(value, key)
            if value is not None and not isinstance(value, list | dict):
                return value
    return None


def _item(value: Any, key: str | int) -> Any:
    if isinstance(key, int):
        is_there = isinstance(value, list) and key < len(value)
        return value[key] if is_there else None
    return value.get(key) if isinstance(value, dict) else None


def names(root: Mapping[str, Any], paths: Iterable[str]) -> list[str]:
    """Return the keys of all objects that some paths lead through.

    >>> schema = {"properties": {"to": {"properties": {"city": {}}}, "day": {}}}
    >>> names(schema, ["to.city"])
    ['to', 'day', 'city']
    """
    holders: list[Mapping[str, Any]] = [root]
    for path in paths:
        holders += [place.holder for place in places(root, nesting.parse(path))]
    found = (holder.get("properties") for holder in holders)
    keys = (key for x in found if isinstance(x, dict) for key in x)
    return list(dict.fromkeys(keys))


def renamed(root: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    """Return a schema with other keys of properties; all else is as it was.

    Where several paths lead through the same part of a schema, they have to agree.

    Args:
      root: the schema of the outermost object.
      paths: the new paths, by the old ones.

    >>> to = {"properties": {"city": {}}, "required": ["city"]}
    >>> renamed({"properties": {"to": to}}, {"to.city": "at.town"})
    {'properties': {'at': {'properties': {'town': {}}, 'required': ['town']}}}
    """
    made = copy.deepcopy(dict(root)) if any("." in x for x in paths) else dict(root)
    changes: dict[int, tuple[dict[str, Any], dict[str, str]]] = {id(made): (made, {})}
    for old, new in paths.items():
        keys = nesting.parse(new)
        for place, key in zip(places(made, nesting.parse(old)), keys, strict=False):
            if isinstance(place.key, str):
                change = changes.setdefault(id(place.holder), (place.holder, {}))
                change[1][place.key] = str(key)
    for holder, keys in changes.values():
        if isinstance(properties := holder.get("properties"), dict):
            new = {keys.get(key, key): value for key, value in properties.items()}
            holder["properties"] = new
        if isinstance(required := holder.get("required"), list):
            holder["required"] = [keys.get(key, key) for key in required]
    return made


def referenced(root: Any, reference: str) -> Any:
    """Return what a reference within a document leads to; None if it leads nowhere.

    >>> referenced({"$defs": {"a/b": [{"type": "string"}]}}, "#/$defs/a~1b/0")
    {'type': 'string'}
    """
    if not reference.startswith("#"):
        return None
    for key in filter(None, reference[1:].split("/")):
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and key.isdecimal() and int(key) < len(root):
            root = root[int(key)]
        else:
            root = root.get(key) if isinstance(root, dict) else None
    return root


def may_be_null(schema: Any) -> bool:
    """Tell whether a JSON schema allows null: strict ones write optional values so."""
    if not isinstance(schema, dict):
        return False
    unions = [schema.get(key) for key in ("anyOf", "oneOf")]
    options = [x for union in unions if isinstance(union, list) for x in union]
    kinds = [x.get("type") for x in [schema, *options] if isinstance(x, dict)]
    return "null" in kinds or any(isinstance(x, list) and "null" in x for x in kinds)
