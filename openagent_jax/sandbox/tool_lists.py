"""Read tools as others list them: OpenAI's array, or what MCP's `tools/list` returns.

What comes out is plain: names, descriptions, and the JSON schema of each value, without
references and unions. The sandbox knows required arguments alone, and texts, choices
and whole numbers; what it cannot hold is refused, tool and argument named.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from openagent_jax.sandbox import wording
from openagent_jax.sandbox.domain_schema import LETTERS, NAME, TWICE
from openagent_jax.sandbox.domain_spec import DomainError, must

MAX_ARGS = 5  # more find no room in a request
_DEPTH = 8  # of references to references
_UNIONS = ("anyOf", "oneOf", "allOf")
_SCHEMAS = ("parameters", "inputSchema", "input_schema")  # OpenAI, MCP, Anthropic
# What is counted is counted in whole numbers.
_COUNTED = set("id number no count num index page limit quantity rank year".split())
Schema = dict[str, Any]


@dataclass(frozen=True)
class Listed:
    """A tool of the list."""

    place: str
    name: str
    description: str
    arguments: dict[str, Schema]
    returns: dict[str, Schema]  # scalars anywhere in the result; empty: nobody says
    effect: bool | None  # None: nobody says
    dropped: tuple[str, ...]  # arguments that are optional, or always the same


class _Unsupported(ValueError):
    """Of an argument: why."""


def read(document: Any, skip: Collection[str] = ()) -> list[Listed]:
    """
    Raises:
      DomainError: it is no list of tools, or one that the sandbox cannot hold.
    """
    at, items = _items(document)
    for place, value in _walk(items, at):
        must(value is not TWICE, place, "duplicate key; remove or rename one")
    tools, refused, names = [], {}, {}
    for index, item in enumerate(items):
        place = f"{at}[{index}]"
        name, function = _function(item, place)
        first = names.setdefault(name, place)
        must(first == place, place, f"{name!r} is also {first}; keep one of the two")
        if name in skip:
            continue
        at_name = f"{place}.function.name" if function is not item else f"{place}.name"
        must(NAME.fullmatch(name), at_name, f"{name!r} is no name; {LETTERS}")
        try:
            tools.append(_tool(place, name, function, item))
        except _Unsupported as error:
            refused[name] = f"{place}: {name!r}, {error}"
    unknown = sorted(set(skip) - set(names))
    problem = f"no tool is called {', '.join(unknown)}; known: {', '.join(names)}"
    must(not unknown, "skip", problem)
    if refused:
        out = ",".join([*skip, *refused])
        remedy = "write a schema that it can hold, or leave out"
        problem = " ".join(next(iter(refused.values())).split())
        raise DomainError(f"{problem}; {remedy}: --skip={out}")
    must(tools, at, "no tools are left; list one or more")
    return tools


def _items(document: Any) -> tuple[str, list[Any]]:
    at = ""
    for key in ("result", "tools"):
        if isinstance(document, dict) and key in document:
            done = "goals" in document
            must(not done, at, "a domain file already; see what `check` says of it")
            more = document.get("nextCursor")
            must(not more, at, "the list goes on at its nextCursor; fetch all of it")
            at, document = f"{at}.{key}".strip("."), document[key]
    what = "write OpenAI's array of tools, or what MCP's tools/list returned"
    must(isinstance(document, list), at, f"not a list of tools; {what}")
    must(document, at, f"no tools; {what}")
    return at or "tools", list(document)


def _walk(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    yield place, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{place}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, f"{place}[{index}]")


def _function(item: Any, place: str) -> tuple[str, dict[str, Any]]:
    must(isinstance(item, dict), place, "not a tool; write an object with a name")
    if isinstance(item, dict) and isinstance(item.get("function"), dict):
        item, place = item["function"], f"{place}.function"
    kind = item.get("type", "function")
    must(kind == "function", place, f"a tool of type {kind!r}; list functions alone")
    name = item.get("name")
    must(isinstance(name, str), place, "it has no name; add one")
    return str(name), item


def _tool(place: str, name: str, function: dict[str, Any], item: dict) -> Listed:
    given = next((function[key] for key in _SCHEMAS if function.get(key)), {})
    whole = _plain(given, given, "its parameters")
    properties = whole.get("properties") or {}
    if not isinstance(properties, dict):
        raise _Unsupported("its properties are not an object")
    # Who writes no list of what is required means all that has no default.
    required = whole.get(
        "required", [x for x in properties if not _has_default(properties[x])]
    )
    if not isinstance(required, list):
        raise _Unsupported("`required` is not a list of names")
    if unknown := [str(x) for x in required if str(x) not in properties]:
        raise _Unsupported(f"`required` names {unknown[0]!r}, which is no property")
    arguments = {}
    for key, schema in properties.items():
        what = f"argument {key!r}"
        if key not in required or _may_be_null(schema):
            continue
        schema = _plain(schema, given, what)
        if "const" in schema or len(schema.get("enum", "any")) == 1:
            continue
        if not NAME.fullmatch(key):
            raise _Unsupported(f"{what} is no name; {LETTERS}")
        arguments[key] = _argument(key, schema)
    if len(arguments) > MAX_ARGS:
        problem = f"{len(arguments)} required arguments, {MAX_ARGS} are the most"
        raise _Unsupported(problem)
    hints = item.get("annotations") or {}
    effect = None
    if isinstance(hints, dict) and hints:
        reads = hints.get("readOnlyHint")
        effect = None if reads is None else not reads
        effect = True if hints.get("destructiveHint") and not reads else effect
    output = function.get("outputSchema")
    return Listed(
        place,
        name,
        str(function.get("description") or item.get("title") or ""),
        arguments,
        dict(_scalars(output, output, "", _DEPTH)) if output else {},
        effect,
        tuple(key for key in properties if key not in arguments),
    )


def _plain(schema: Any, root: Any, what: str) -> Schema:
    """Without references, unions of one, and what is null."""
    for _ in range(_DEPTH):
        if not isinstance(schema, dict):
            raise _Unsupported(f"{what}: {schema!r:.40} is no schema")
        schema = {key: value for key, value in schema.items() if value is not None}
        options = next((schema[key] for key in _UNIONS if schema.get(key)), None)
        rest = {key: value for key, value in schema.items() if key not in _UNIONS}
        if "$ref" in schema:
            found = _pointed(root, str(schema["$ref"]))
            rest.pop("$ref")
        elif isinstance(options, list):
            real = [x for x in options if x != {"type": "null"}]
            if len(real) != 1:
                raise _Unsupported(f"{what}: a choice of types is not supported")
            found = real[0]
        else:
            break
        schema = {**found, **rest} if isinstance(found, dict) else found
    else:
        raise _Unsupported(f"{what}: its references lead to themselves")
    if isinstance(kind := schema.get("type"), list):
        real = [x for x in kind if x != "null"]
        if len(real) != 1:
            raise _Unsupported(f"{what}: a choice of types is not supported")
        schema = {**schema, "type": real[0]}
    for key, form in (("type", str), ("enum", list)):
        if not isinstance(value := schema.get(key, form()), form):
            raise _Unsupported(f"{what}: {value!r:.40} is no {key}")
    return schema


def _pointed(root: Any, reference: str) -> Any:
    for key in reference.removeprefix("#/").split("/"):
        root = root.get(key) if isinstance(root, dict) else None
    if root is None:
        raise _Unsupported(f"the reference {reference!r} leads nowhere")
    return root


def _may_be_null(schema: Any) -> bool:
    """As those write what is optional whose lists must require all."""
    if not isinstance(schema, dict):
        return False
    options, kinds = schema.get("anyOf") or schema.get("oneOf"), schema.get("type")
    one = isinstance(options, list) and {"type": "null"} in options
    return one or isinstance(kinds, list) and "null" in kinds


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _argument(name: str, schema: Schema) -> Schema:
    kind, what = schema.get("type", "string"), f"argument {name!r}"
    if kind == "number" and not _is_whole(name, schema):
        raise _Unsupported(f"{what}: a number that is not whole is not supported")
    if kind not in ("string", "integer", "number", "boolean"):
        a = "an" if kind[:1] in "aeiou" else "a"
        raise _Unsupported(f"{what}: {a} {kind} is not supported")
    return schema


def _is_whole(name: str, schema: Schema) -> bool:
    """Whether what is called a number is a whole one, as far as can be told."""
    choices = schema.get("enum", ())
    if choices:
        return all(isinstance(value, int) for value in choices)
    whole = isinstance(schema.get("multipleOf"), int)
    return whole or not _COUNTED.isdisjoint(wording.words(name))


def _scalars(
    schema: Any, root: Any, name: str, depth: int
) -> Iterator[tuple[str, Schema]]:
    """Values in a result, wherever they stand, by name; of a list, those of an item."""
    try:
        schema = _plain(schema, root, name)
    except _Unsupported:
        return
    if depth and isinstance(schema.get("properties"), dict):
        for key, value in schema["properties"].items():
            key = re.sub(r"[^A-Za-z0-9_]|^(?=[0-9]|$)", "_", key)[:60]
            if key == "id" and name:  # that of whatever it stands in
                key = f"{name.removesuffix('s')}_id"
            yield from _scalars(value, root, key, depth - 1)
    elif depth and schema.get("type") == "array":
        yield from _scalars(schema.get("items", {}), root, name, depth - 1)
    elif schema.get("type") in ("string", "integer", "number", "boolean") or (
        "enum" in schema
    ):
        yield name or "result", schema
