"""Nested arguments of a domain file: paths to the scalars of a tool's JSON schema.

`x-openagent.arguments` has a type for each leaf, such as `to.city` or `tags.0`. A leaf
is required if each object on its path requires the next key, and each array has the
element: the first one, and as many as `minItems` says.

Parts that may be left out are known by their path, the *gate*: an optional key, or a
later element of an array. A leaf is given if all of its gates are open; an element of
an array also has the gates of those before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openagent_jax.domains import domain_schema as schema
from openagent_jax.domains.domain_checks import Checker
from openagent_jax.text import nesting, schema_paths
from openagent_jax.text.nesting import Path
from openagent_jax.text.schema_paths import may_be_null

Gates = Mapping[str, tuple[str, ...]]


def in_order(paths: Iterable[str]) -> list[str]:
    """Return paths in their order, but with leaves of the same container together.

    >>> in_order(["to.city", "day", "to.zip", "tags.1", "tags.0"])
    ['to.city', 'to.zip', 'day', 'tags.0', 'tags.1']
    """
    return list(map(nesting.written, nesting.in_order(map(nesting.parse, paths))))


def keys(paths: Iterable[str]) -> list[str]:
    """Return the keys of some paths without indices, each once.

    >>> keys(["to.city", "from.city", "tags.0"])
    ['to', 'city', 'from', 'tags']
    """
    parts = [key for path in paths for key in nesting.parse(path)]
    return list(dict.fromkeys(key for key in parts if isinstance(key, str)))


def gates(parameters: Mapping[str, Any], paths: Iterable[str]) -> Gates:
    """Return the gates of each leaf, outermost first; those without any are required.

    Args:
      parameters: the JSON schema of the arguments of a tool.
      paths: the leaves; the schema has a place for each.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in paths:
        path, opened = nesting.parse(text), []
        for level, place in enumerate(schema_paths.places(parameters, path)):
            if place.required:
                continue
            first = place.key
            if isinstance(first, int):  # an element comes after all before it
                least = place.holder.get("minItems")
                first = least if type(least) is int and least > 0 else 1
                steps = range(first, int(place.key) + 1)
                opened += [(*path[:level], index) for index in steps]
            else:
                opened.append(path[: level + 1])
        found[text] = tuple(map(nesting.written, opened))
    return found


def missing(given: Iterable[str], all_gates: Gates) -> list[str]:
    """Return the leaves that have to be given too if some leaves are given.

    >>> optional = {"to.city": ("to",), "to.zip": ("to",), "day": ("day",)}
    >>> missing(["to.zip"], optional)
    ['to.city']
    """
    given = [x for x in given if x in all_gates]
    opened = {gate for leaf in given for gate in all_gates[leaf]}
    return [x for x in all_gates if x not in given and opened.issuperset(all_gates[x])]


def check(
    function: schema.Function, paths: Sequence[str], place: str, check: Checker
) -> bool:
    """Check that a schema has the arguments of a tool, and requires no others.

    Args:
      function: the function object of the tool.
      paths: the leaves that have a type.
      place: where the schema is in the file.
      check: collects the faults.

    Returns:
      Whether all leaves have a place.
    """
    before, root = len(check.faults), function.parameters.model_dump()
    leaves = {nesting.parse(path): path for path in paths}
    holders: dict[Path, Mapping[str, Any]] = {(): root}
    for path, text in leaves.items():
        _check_leaf(root, path, text, place, check)
        found = schema_paths.places(root, path)
        for level, part in enumerate(found):
            holders.setdefault(path[:level], part.holder)
    _check_siblings(leaves, place, check)
    sound = len(check.faults) == before
    known = {path[:n] for path in leaves for n in range(1, len(path) + 1)}
    for outer, holder in holders.items():
        _check_required(outer, holder, known, place, check)
    return sound


def _check_leaf(
    root: Mapping[str, Any], path: Path, text: str, place: str, check: Checker
) -> None:
    """Check that a leaf has a place in a schema, and is not too deep."""
    depth, limit = len(path), check.limits.depth
    message = (
        f"{text!r} is nested {depth} deep, but the limit is {limit}; leave it out "
    )
    message += f"or raise sandbox.depth to {depth}"
    check.require(depth <= limit, _meaning(place), message)
    found = schema_paths.places(root, path)
    if len(found) == depth:
        _check_scalar(text, found[-1].schema, place, check)
        return
    at, key = len(found), path[len(found)]
    where = f"{place}.properties" if at == 0 else place
    message = f"missing argument {text!r}; add it"
    dotted = ".".join(map(str, path))
    if at == 0 and dotted in (root.get("properties") or {}):
        name = nesting.written([dotted])
        message = f"{dotted!r} is one name here; write {name!r} in place of {text!r}"
        where = _meaning(place)
    if at:
        outer, what = nesting.written(path[:at]), found[-1].schema
        if isinstance(key, int):
            message = f"{text!r}: {outer!r} is not an array with `items`"
            remedy = "; add these, or write the path of a scalar"
            is_array = isinstance(what, dict) and what.get("type") == "array"
            message = (
                f"{text!r}: {outer!r} is an array without `items`, which say what it "
                "holds; add these"
                if is_array
                else message + remedy
            )
        else:
            message = f"{text!r}: {outer!r} has no property {key!r}; add it there"
    check.require(False, where, message)


def _check_scalar(text: str, found: Any, place: str, check: Checker) -> None:
    """Check that the schema of a leaf is not that of a container."""
    kind = found.get("type") if isinstance(found, dict) else None
    remedy = f"write the path of a scalar, such as {f'{text}.0'!r}"
    message = f"{text!r} is an array in the schema; {remedy}"
    if kind == "array" and "items" not in found and "prefixItems" not in found:
        message = f"{text!r} is an array without `items`, which say what it holds; add "
        message += f"these, and {remedy}"
    if kind == "object":
        message = (
            f"{text!r} is an object in the schema; write the path of a scalar in it"
        )
    check.require(kind not in ("array", "object"), _meaning(place), message)


def _check_siblings(leaves: Mapping[Path, str], place: str, check: Checker) -> None:
    """Check that no leaf is in another one, and that no element is left out."""
    place = _meaning(place)
    for path, text in leaves.items():
        inner = next((x for x in leaves if x != path and x[: len(path)] == path), None)
        message = f"{text!r} is a scalar here and a container in "
        message += f"{leaves[inner]!r}; keep one" if inner else ""
        check.require(inner is None, place, message)
        for level, key in enumerate(path):
            before = (*path[:level], key - 1) if isinstance(key, int) else ()
            known = any(x[: level + 1] == before for x in leaves)
            message = f"{text!r} without {nesting.written(before)!r}; add that"
            check.require(not before or key == 0 or known, place, message)


def _check_required(
    outer: Path,
    holder: Mapping[str, Any],
    known: set[Path],
    place: str,
    check: Checker,
) -> None:
    """Check that what an object requires is known, or may be null."""
    properties, required = holder.get("properties") or {}, holder.get("required") or ()
    for name in required if isinstance(required, list) else ():
        text = nesting.written((*outer, name))
        if name not in properties:
            what = "unknown argument"
            check.known(text, properties, f"{place}.required", what)
        elif (*outer, name) not in known and not may_be_null(properties[name]):
            message = f"{text!r} is required, but x-openagent.arguments has no type "
            message += "for it; add it there"
            check.require(False, f"{place}.required", message)


def _meaning(place: str) -> str:
    """Return where the types of arguments are, given where their schema is."""
    return place.replace(".function.parameters", ".x-openagent.arguments")
