"""The arguments that a task documents, given the schema and the calls of a log."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from openagent_jax.environments.logs import logged_task
from openagent_jax.environments.logs.log_conversation import CannotMap, LoggedCall
from openagent_jax.environments.logs.log_values import Value
from openagent_jax.environments.logs.logged_task import (
    BARE,
    NUMBER,
    TEXT,
    Argument,
)
from openagent_jax.text import nesting, schema_paths
from openagent_jax.text.nesting import Path

MAX_DEPTH = 16  # of a schema
_KINDS = {"integer": NUMBER, "number": NUMBER, "boolean": BARE}


def arguments(
    schema: Mapping[str, Any], used: Sequence[LoggedCall], tool: str, skip: str
) -> tuple[Argument, ...]:
    """Return the leaves of the arguments of a tool.

    Of a tool that is called they are those of its calls; a leaf is optional if a call
    lacks it. Of any other tool they are those that its schema requires.

    Args:
      schema: the JSON schema of its arguments.
      used: its calls.
      tool: its name.
      skip: an argument that is left out; "" for none.

    Raises:
      CannotMap: a key cannot be part of a path, or a leaf is a container elsewhere.
    """
    if not used:
        found = {path: {kind} for path, kind in _required(schema, schema, ()).items()}
        lacking = set[Path]()
    else:
        found, lacking = _given(schema, used)
    paths = [path for path in nesting.in_order(found) if path != (skip,)]
    heads = {path[:size] for path in paths for size in range(1, len(path))}
    for path in paths:
        where = f"{tool}: {nesting.written(path)}"
        for key in path:
            if isinstance(key, str):
                logged_task.checked_name(key, where)
                if nesting.parse(nesting.written([key])) != (key,):
                    raise CannotMap("an argument whose name is a number", where)
        if path in heads:
            reason = "an argument that is a container in one call only"
            raise CannotMap(reason, where)
    order = (TEXT, NUMBER, BARE)
    return tuple(
        Argument(path, tuple(x for x in order if x in found[path]), path in lacking)
        for path in paths
    )


def _given(
    schema: Mapping[str, Any], used: Sequence[LoggedCall]
) -> tuple[dict[Path, set[str]], set[Path]]:
    """Return the kinds of each leaf of some calls, and the leaves that some lack."""
    found: dict[Path, set[str]] = {}
    for call in used:
        for path, value in call.arguments.items():
            found.setdefault(path, set()).add(_kind(value))
    lacking = {path for path in found for call in used if path not in call.arguments}
    # A container that is always empty still is an argument: it gets a leaf.
    for outer in {path for call in used for path in call.empty}:
        if not any(path[: len(outer)] == outer for path in found):
            path = (*outer, _first_key(schema, outer))
            found[path] = {TEXT}
            lacking.add(path)
    # The arguments are in the order of the schema.
    places = {key: i for i, key in enumerate(schema["properties"])}
    ordered = sorted(found, key=lambda path: places.get(str(path[0]), len(places)))
    return {path: found[path] for path in ordered}, lacking


def _kind(value: Value) -> str:
    if isinstance(value, Decimal):
        return NUMBER
    return TEXT if isinstance(value, str) else BARE


def _first_key(schema: Mapping[str, Any], outer: Path) -> str | int:
    """Return a key of a container, as far as its schema has one."""
    places = schema_paths.places(schema, outer)
    inner = places[-1].schema if len(places) == len(outer) else None
    for option in schema_paths.alternatives(schema, inner):
        if isinstance(properties := option.get("properties"), dict) and properties:
            return next(iter(properties))
        if option.get("type") == "object":
            return "key"
    return 0


def _required(root: Mapping[str, Any], schema: Any, path: Path) -> dict[Path, str]:
    """Return the kind of each leaf that a schema requires."""
    if len(path) > MAX_DEPTH:
        return {}
    for option in schema_paths.alternatives(root, schema):
        properties, items = option.get("properties"), option.get("items")
        if isinstance(properties, dict):
            required = option.get("required")
            names = [
                x for x in properties if isinstance(required, list) and x in required
            ]
            found: dict[Path, str] = {}
            for name in names:
                found |= _required(root, properties[name], (*path, name))
            return found
        if isinstance(items, dict):
            return _required(root, items, (*path, 0))
    kind = schema.get("type") if isinstance(schema, dict) else None
    names = [x for x in kind if x != "null"] if isinstance(kind, list) else [kind]
    first = names[0] if len(names) == 1 and isinstance(names[0], str) else ""
    return {path: _KINDS.get(first, TEXT)} if path else {}


def documented(
    schema: Mapping[str, Any],
    paths: Sequence[Path],
    used: bool,
    tool: str,
    skip: str,
) -> str:
    """Return the schema of a tool without the optional arguments that no call has.

    Args:
      schema: the JSON schema of its arguments.
      paths: the leaves of its arguments.
      used: whether it is called; if not, what is required stays.
      tool: its name.
      skip: an argument that is left out; "" for none.

    Raises:
      CannotMap: the schema is nested too deeply, or has a number that is too large.
    """
    # The elements of an array share a schema: what one of them has stays.
    alike = [tuple(0 if isinstance(x, int) else x for x in path) for path in paths]
    known = {path[:size] for path in alike for size in range(1, len(path) + 1)}

    def pruned(part: Any, path: Path) -> Any:
        if not isinstance(part, dict):
            return part
        made = dict(part)
        properties, required = part.get("properties"), part.get("required")
        required = required if isinstance(required, list) else []
        if isinstance(properties, dict):
            kept = [
                key
                for key in properties
                if (*path, key) in known or (not used and key in required)
            ]
            kept = [key for key in kept if (*path, key) != (skip,)]
            made["properties"] = {
                key: pruned(properties[key], (*path, key)) for key in kept
            }
            if "required" in part:
                made["required"] = [key for key in required if key in kept]
        if isinstance(part.get("items"), dict):
            made["items"] = pruned(part["items"], (*path, 0))
        return made

    try:
        text = json.dumps(pruned(schema, ()), ensure_ascii=False, allow_nan=False)
    except RecursionError:
        text = ""
    except ValueError:
        reason = "a tool whose schema has a number that is too large"
        raise CannotMap(reason, tool) from None
    if not text or _is_too_deep(json.loads(text)):
        raise CannotMap("a tool whose schema is nested too deeply", tool)
    return text


def _is_too_deep(value: Any, depth: int = 0) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return False
    return depth > 2 * MAX_DEPTH - 4 or any(_is_too_deep(x, depth + 1) for x in inner)
