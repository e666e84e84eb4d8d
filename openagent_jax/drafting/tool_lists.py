"""Read a list of tools: OpenAI's array, or the result of MCP's `tools/list`.

The result is plain: names, descriptions, and the JSON schema of each value with
references and unions resolved. The environment supports arguments whose values are
texts, choices (enums), numbers and booleans, and these within arrays and objects. A
tool that requires anything else is rejected with an error that names the tool and the
argument; an optional argument that is no scalar is left out. A name that agents could
not call is replaced by a valid one (`tool_names`).
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

from openagent_jax.domains import schema_checks, tool_names
from openagent_jax.domains.domain_schema import json_fault
from openagent_jax.domains.domain_spec import DomainError, require
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import list_leaves, list_pages, list_results
from openagent_jax.drafting.list_pages import ListedPages
from openagent_jax.drafting.list_schemas import (
    Schema,
    Unsupported,
    may_be_null,
    resolve,
    with_json_types,
)
from openagent_jax.text import nesting

_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")  # OpenAI, MCP, Anthropic


@dataclass(frozen=True)
class ListedTool:
    """One tool of the list.

    Attributes:
      place: where the tool is in the list, for error messages: `tools[3]`.
      name: its name, in letters that are allowed; the list has it in `function`.
      description: its description; "" if it has none.
      arguments: the plain schema of each argument that can be given, by name: those
        that are required, then those that are optional. Of arrays and objects, these
        are scalars, by their paths (see `list_leaves`).
      optional: the names of the optional ones.
      returns: the plain schema of each scalar in the result, by its path (see
        `list_results`); empty if the list has no schema for the result.
      effect: whether the tool changes something; None if the list does not say.
      dropped: optional arguments that cannot be given.
      function: its function object, word for word but for the names of types.
      has_new_types: whether the names of some types were replaced.
      unions: what was decided about arguments that have a union of types, by name.
      pages: how it divides a list of its result; None if it does not.
    """

    place: str
    name: str
    description: str
    arguments: dict[str, Schema]
    optional: tuple[str, ...]
    returns: dict[str, Schema]
    effect: bool | None
    dropped: tuple[str, ...]
    function: dict[str, Any]
    has_new_types: bool
    unions: dict[str, str]
    pages: ListedPages | None = None

    @property
    def required(self) -> dict[str, Schema]:
        """The plain schema of each required argument, by name."""
        return {k: v for k, v in self.arguments.items() if k not in self.optional}


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
    walk = _walk(items, list_place)
    if faults := [f"{at}: {fault}" for at, x in walk if (fault := json_fault(x))]:
        raise DomainError(*faults)
    found: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
    places: dict[str, str] = {}
    for index, item in enumerate(items):
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
    valid = tool_names.valid([name for _, name, _, _ in found])
    tools, rejected, known = [], {}, {*places, *valid}
    for (place, listed, function, item), name in zip(found, valid, strict=True):
        if not {name, listed}.isdisjoint(skip):
            continue
        try:
            tools.append(_tool(place, name, function, item))
        except Unsupported as error:
            rejected[name] = [_line(place, name, problem) for problem in error.args]
    unknown = sorted(set(skip) - known)
    problem = f"no tool is called {', '.join(unknown)}; known: {', '.join(places)}"
    require(faults or not unknown, "skip", problem)
    lines = list(itertools.chain(*rejected.values()))
    for index, line in enumerate(lines):
        names = "" if index else f": --skip={','.join([*skip, *rejected])}"
        faults.append(f"{line}, or leave the tool out{names}")
    if faults:
        raise DomainError(*faults)
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
    is_name = isinstance(name, str) and name.strip()
    require(is_name, place, "the tool has no name; add one")
    described = item.get("description")
    is_text = described is None or isinstance(described, str)
    require(
        is_text, f"{place}.description", f"{short(described)} is no text; write one"
    )
    return str(name), item


def _tool(place: str, name: str, function: dict[str, Any], item: dict) -> ListedTool:
    schema_key = next((key for key in _SCHEMA_KEYS if function.get(key)), "")
    root = function.get(schema_key, {})
    parameters = resolve(root, root, "its parameters")
    properties = parameters.get("properties", {})
    if not isinstance(properties, dict):
        raise Unsupported("`properties` is not an object, such as {}")
    at = (
        f"{place}.{schema_key}"
        if function is item
        else f"{place}.function.{schema_key}"
    )
    wrong = {
        key: list(schema_checks.problems(value, f"{at}.properties.{key}", root))
        for key, value in properties.items()
    }
    rest = {key: value for key, value in parameters.items() if key != "properties"}
    problems = [
        *itertools.chain(*wrong.values()),
        *schema_checks.problems(rest, at, root),
    ]
    required, optional = list(_required(parameters, properties)), {}
    arguments, unions = {}, {}
    for key in [*required, *(x for x in properties if x not in required)]:
        is_required = key in required
        if wrong[key] or is_required and may_be_null(properties[key]):
            continue
        try:
            if is_required:
                found = list_leaves.leaves(key, properties[key], root)
            else:
                notes: list[str] = []
                plain = list_leaves.scalar((key,), properties[key], root, notes)
                path = nesting.written((key,))
                found = [list_leaves.Leaf(path, plain, True, tuple(notes))]
        except Unsupported as error:
            problems += error.args if is_required else ()
            continue
        for leaf in found:
            (optional if leaf.optional else arguments)[leaf.path] = leaf.schema
            if leaf.notes:
                unions[leaf.path] = "; ".join(dict.fromkeys(leaf.notes))
    if problems:
        raise Unsupported(*problems)
    output = function.get("outputSchema")
    returns = list_results.fields(output)
    pages = list_pages.found(parameters, root, returns)
    if pages is not None:
        # Without `required`, the cursor counts as a required argument.
        others = {x: y for x, y in arguments.items() if x != pages.cursor}
        # A cursor alone is no reason to raise a limit.
        if len(others) != Limits().num_args:
            arguments = others
            optional.pop(pages.cursor, None)
        else:
            pages = None
    arguments |= optional
    listed = _as_openai(function, item)
    made = with_json_types(listed)
    return ListedTool(
        place,
        name,
        str(function.get("description") or item.get("title") or ""),
        arguments,
        tuple(optional),
        returns,
        _effect(item.get("annotations")),
        left_out(properties, arguments, pages),
        made,
        made != listed,
        unions,
        pages,
    )


def left_out(
    properties: Iterable[str],
    arguments: Iterable[str],
    pages: ListedPages | None = None,
) -> tuple[str, ...]:
    """Return the properties of which no argument is a part, and which take no cursor.

    >>> left_out(["day", "to"], ["to.city"])
    ('day',)
    """
    kept = {nesting.parse(path)[0] for path in arguments}
    kept |= {pages.cursor} if pages else set()
    return tuple(name for name in properties if name not in kept)


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
        raise Unsupported("`required` is not a list of names")
    if unknown := [str(key) for key in required if str(key) not in properties]:
        raise Unsupported(f"`required` names {unknown[0]!r}, which is not a property")
    return (key for key in properties if key in required)


def _effect(annotations: Any) -> bool | None:
    """Return what MCP's hints say of changes; None if they say nothing."""
    if not isinstance(annotations, dict):
        return None
    read_only = annotations.get("readOnlyHint")
    if annotations.get("destructiveHint") and not read_only:
        return True
    return None if read_only is None else not read_only


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema
