"""Read a list of tools: OpenAI's array, or the result of MCP's `tools/list`.

The result is plain: names, descriptions, and the JSON schema of each value with
references and unions resolved. The environment supports required arguments only, whose
values are texts, choices (enums) or whole numbers. A tool that needs anything else is
rejected with an error that names the tool and the argument. A name that agents could
not call is replaced by a valid one (`tool_names`).
"""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from openagent_jax.drafting import list_checks, tool_names
from openagent_jax.environments.tools.worlds import value_schema
from openagent_jax.environments.tools.worlds.domain_schema import LETTERS, NAME, TWICE
from openagent_jax.environments.tools.worlds.domain_spec import DomainError, require
from openagent_jax.text import wording

MAX_ARGS = 5  # a request has no room for more
MAX_SCHEMAS = 1000  # of a result that are looked at
_MAX_DEPTH = 8  # of nested references and nested results
_UNIONS = ("anyOf", "oneOf", "allOf")
_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")  # OpenAI, MCP, Anthropic
_SCALAR_TYPES = ("string", "integer", "number", "boolean")
# A JSON "number" whose name has one of these words is taken for a whole number.
_COUNT_WORDS = set("id number no count num index page limit quantity rank year".split())
Schema = dict[str, Any]


@dataclass(frozen=True)
class ListedTool:
    """One tool of the list.

    Attributes:
      place: where the tool is in the list, for error messages: `tools[3]`.
      name: its name, in letters that are allowed; the list has it in `function`.
      description: its description; "" if it has none.
      arguments: the plain schema of each required argument, by name.
      returns: the plain schema of each scalar in the result, at any depth, by name;
        empty if the list has no schema for the result.
      effect: whether the tool changes something; None if the list does not say.
      dropped: optional arguments, which no goal needs.
      function: its function object, word for word.
    """

    place: str
    name: str
    description: str
    arguments: dict[str, Schema]
    returns: dict[str, Schema]
    effect: bool | None
    dropped: tuple[str, ...]
    function: dict[str, Any]


class _Unsupported(ValueError):
    """The environment cannot represent a tool; each argument says why."""


def read(document: Any, skip: Collection[str] = ()) -> list[ListedTool]:
    """Return the tools of a list, in its order.

    >>> schema = {"properties": {"city": {"type": "string"}}, "required": ["city"]}
    >>> tool = {"name": "get_weather", "parameters": schema}
    >>> (listed,) = read([{"type": "function", "function": tool}])
    >>> listed.name, listed.arguments
    ('get_weather', {'city': {'type': 'string'}})

    Args:
      document: the list as parsed from JSON: an array of tools, an object with the key
        `tools`, or a JSON-RPC reply with the key `result`.
      skip: names of tools to leave out.

    Raises:
      DomainError: the document is not a list of tools, or it has a tool that the
        environment cannot represent.
    """
    list_place, items = _items(document)
    faults = [
        f"{place}: duplicate key; remove or rename one"
        for place, value in _walk(items, list_place)
        if value is TWICE
    ]
    found: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
    places: dict[str, str] = {}
    for index, item in enumerate(items) if not faults else ():
        place = f"{list_place}[{index}]"
        try:
            name, function = _function(item, place)
            first = places.setdefault(name, place)
            problem = f"{name!r} is also {first}; keep one of the two"
            require(first == place, place, problem)
        except DomainError as error:
            faults += error.faults
        else:
            found.append((place, name, function, item))
    if faults:
        raise DomainError(*faults)
    valid = tool_names.valid([name for _, name, _, _ in found])
    tools, rejected, known = [], {}, {*places, *valid}
    for (place, listed, function, item), name in zip(found, valid, strict=True):
        if not {name, listed}.isdisjoint(skip):
            continue
        try:
            tools.append(_tool(place, name, function, item))
        except _Unsupported as error:
            rejected[name] = [_line(place, name, problem) for problem in error.args]
    unknown = sorted(set(skip) - known)
    problem = f"no tool is called {', '.join(unknown)}; known: {', '.join(places)}"
    require(not unknown, "skip", problem)
    if rejected:
        first, *others = itertools.chain(*rejected.values())
        names = ",".join([*skip, *rejected])
        raise DomainError(
            f"{first}, or leave the tool out: --skip={names}",
            *(f"{line}, or leave the tool out" for line in others),
        )
    require(tools, list_place, "no tools are left; list at least one")
    return tools


def _line(place: str, name: str, problem: str) -> str:
    """Return one line that names a problem of a tool, and what to do about it."""
    line = " ".join(problem.split())
    is_whole = line.startswith(place)
    return line if is_whole else f"{place}: {name!r}, {line}; change the schema"


def _items(document: Any) -> tuple[str, list[Any]]:
    """Unwrap the list; return its place in the document and its items."""
    place = ""
    for key in ("result", "tools"):
        if isinstance(document, dict) and key in document:
            is_domain = "goals" in document
            problem = "this is a domain file already; run `check` on it"
            require(not is_domain, place, problem)
            more = document.get("nextCursor")
            problem = "the list continues at its nextCursor; fetch all pages"
            require(not more, place, problem)
            place, document = f"{place}.{key}".strip("."), document[key]
    remedy = "write OpenAI's array of tools, or the result of MCP's tools/list"
    require(isinstance(document, list), place, f"not a list of tools; {remedy}")
    require(document, place, f"no tools; {remedy}")
    return place or "tools", list(document)


def _walk(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield every nested value with its place."""
    yield place, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{place}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, f"{place}[{index}]")


def _function(item: Any, place: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a tool, and the object that holds its schema."""
    require(isinstance(item, dict), place, "not a tool; write an object with a name")
    if isinstance(item, dict) and isinstance(item.get("function"), dict):
        item, place = item["function"], f"{place}.function"
    kind = item.get("type", "function")
    problem = f"a tool of type {kind!r} is not supported; list only functions"
    require(kind == "function", place, problem)
    name = item.get("name")
    require(isinstance(name, str), place, "the tool has no name; add one")
    return str(name), item


def _tool(place: str, name: str, function: dict[str, Any], item: dict) -> ListedTool:
    schema_key = next((key for key in _SCHEMA_KEYS if function.get(key)), "")
    root = function.get(schema_key, {})
    parameters = _resolve(root, root, "its parameters")
    properties = parameters.get("properties") or {}
    if not isinstance(properties, dict):
        raise _Unsupported("`properties` is not an object")
    at = (
        f"{place}.{schema_key}"
        if function is item
        else f"{place}.function.{schema_key}"
    )
    wrong = {
        key: list(list_checks.problems(value, f"{at}.properties.{key}", root))
        for key, value in properties.items()
    }
    rest = {key: value for key, value in parameters.items() if key != "properties"}
    problems = [
        *itertools.chain(*wrong.values()),
        *list_checks.problems(rest, at, root),
    ]
    arguments = {}
    for key in _required(parameters, properties):
        if wrong[key] or _may_be_null(properties[key]):
            continue
        try:
            arguments[key] = _argument(key, properties[key], root)
        except _Unsupported as error:
            problems += error.args
    if len(arguments) > MAX_ARGS:
        problem = f"{len(arguments)} required arguments; the maximum is {MAX_ARGS}"
        problems.append(problem)
    if problems:
        raise _Unsupported(*problems)
    output = function.get("outputSchema")
    scalars = _scalars(output, output, "", _MAX_DEPTH, iter(range(MAX_SCHEMAS)))
    return ListedTool(
        place,
        name,
        str(function.get("description") or item.get("title") or ""),
        arguments,
        dict(scalars) if output else {},
        _effect(item.get("annotations")),
        tuple(key for key in properties if key not in arguments),
        _as_openai(function, item),
    )


def _argument(key: str, schema: Any, root: Any) -> Schema:
    """Return the plain schema of a required argument."""
    what = f"argument {key!r}"
    schema = _resolve(schema, root, what)
    if "const" in schema:
        schema = {**schema, "enum": [schema["const"]]}
    if not NAME.fullmatch(key):
        raise _Unsupported(f"{what} is not a valid name; {LETTERS}")
    _check_type(key, schema)
    return schema


def _as_openai(function: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """Return the function object that an agent gets for a tool of a list.

    Of MCP's and Anthropic's tools these are name, description and schema.
    """
    if function is not item:
        return function
    key = next((key for key in _SCHEMA_KEYS if function.get(key)), "")
    made = {k: function[k] for k in ("name", "description") if k in function}
    schema = {"parameters": function[key]} if key else {}
    return made | schema | {k: function[k] for k in ("strict",) if k in function}


def _required(parameters: Schema, properties: dict[str, Any]) -> Iterable[str]:
    """Return the required properties in their order."""
    # A schema without `required` comes from a signature: defaults make it optional.
    without_default = [key for key in properties if not _has_default(properties[key])]
    required = parameters.get("required", without_default)
    if not isinstance(required, list):
        raise _Unsupported("`required` is not a list of names")
    if unknown := [str(key) for key in required if str(key) not in properties]:
        raise _Unsupported(f"`required` names {unknown[0]!r}, which is not a property")
    return (key for key in properties if key in required)


def _effect(annotations: Any) -> bool | None:
    """Return what MCP's hints say of changes; None if they say nothing."""
    if not isinstance(annotations, dict):
        return None
    read_only = annotations.get("readOnlyHint")
    if annotations.get("destructiveHint") and not read_only:
        return True
    return None if read_only is None else not read_only


def _resolve(schema: Any, root: Any, what: str) -> Schema:
    """Replace references and unions with null by what they stand for."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            raise _Unsupported(f"{what}: {schema!r:.40} is not a schema")
        schema = {key: value for key, value in schema.items() if value is not None}
        options = next((schema[key] for key in _UNIONS if schema.get(key)), None)
        rest = {key: value for key, value in schema.items() if key not in _UNIONS}
        if "$ref" in schema:
            reference = str(schema["$ref"])
            target = value_schema.referenced(root, reference)
            if target is None:
                raise _Unsupported(f"{what}: the reference {reference!r} leads nowhere")
            rest.pop("$ref")
        elif isinstance(options, list):
            not_null = [x for x in options if x != {"type": "null"}]
            if len(not_null) != 1:
                raise _Unsupported(f"{what}: a union of types is not supported")
            target = not_null[0]
        else:
            break
        schema = {**target, **rest} if isinstance(target, dict) else target
    else:
        raise _Unsupported(f"{what}: its references never end")
    if isinstance(kind := schema.get("type"), list):
        not_null = [x for x in kind if x != "null"]
        if len(not_null) != 1:
            raise _Unsupported(f"{what}: a union of types is not supported")
        schema = {**schema, "type": not_null[0]}
    for key, python_type in (("type", str), ("enum", list)):
        if not isinstance(value := schema.get(key, python_type()), python_type):
            raise _Unsupported(f"{what}: {value!r:.40} is not a valid {key}")
    return schema


def _may_be_null(schema: Any) -> bool:
    """Tell whether null is allowed: strict schemas write optional arguments so."""
    if not isinstance(schema, dict):
        return False
    options, kinds = schema.get("anyOf") or schema.get("oneOf"), schema.get("type")
    in_union = isinstance(options, list) and {"type": "null"} in options
    return in_union or isinstance(kinds, list) and "null" in kinds


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _check_type(name: str, schema: Schema) -> None:
    kind, what = schema.get("type", "string"), f"argument {name!r}"
    if kind == "number" and not _is_integral(name, schema):
        raise _Unsupported(f"{what}: fractional numbers are not supported")
    if kind == "array" and "items" not in schema:
        raise _Unsupported(f"{what}: an array without `items`, which say what it holds")
    if kind not in _SCALAR_TYPES:
        raise _Unsupported(f"{what}: the type {kind!r} is not supported")


def _is_integral(name: str, schema: Schema) -> bool:
    """Tell whether a "number" only takes whole values, as far as one can tell."""
    if choices := schema.get("enum", ()):
        return all(isinstance(value, int) for value in choices)
    if isinstance(schema.get("multipleOf"), int):
        return True
    return not _COUNT_WORDS.isdisjoint(wording.words(name))


def _scalars(
    schema: Any, root: Any, name: str, depth: int, room: Iterator[int]
) -> Iterator[tuple[str, Schema]]:
    """Yield the scalars of a result with their names; of a list, those of an item.

    `room` ends after the most schemas that are looked at: one that refers to itself has
    no end.
    """
    if next(room, None) is None:
        return
    try:
        schema = _resolve(schema, root, name)
    except _Unsupported:
        return
    if depth and isinstance(schema.get("properties"), dict):
        for key, value in schema["properties"].items():
            key = re.sub(r"[^A-Za-z0-9_]|^(?=[0-9]|$)", "_", key)[:60]
            if key == "id" and name:  # the id of the object around it
                key = f"{name.removesuffix('s')}_id"
            yield from _scalars(value, root, key, depth - 1, room)
    elif depth and schema.get("type") == "array":
        yield from _scalars(schema.get("items", {}), root, name, depth - 1, room)
    elif schema.get("type") in _SCALAR_TYPES or "enum" in schema:
        yield name or "result", schema
