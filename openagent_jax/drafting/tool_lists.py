"""Read a list of tools: OpenAI's array, or the result of MCP's `tools/list`.

The result is plain: names, descriptions, and the JSON schema of each value with
references and unions resolved. The environment supports arguments whose values are
texts, choices (enums), numbers and booleans, and these within arrays and objects. A
tool that requires anything else is rejected with an error that names the tool and the
argument; an optional argument that is not a scalar is left out. A name that agents
could not call is replaced by a valid one (`tool_names`).
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from openagent_jax.domains import schema_checks, tool_names
from openagent_jax.domains.domain_checks import suggest
from openagent_jax.domains.domain_schema import HOLE
from openagent_jax.domains.domain_spec import DomainError, require
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import (
    list_documents,
    list_leaves,
    list_pages,
    list_results,
    value_pools,
)
from openagent_jax.drafting.list_documents import Entry
from openagent_jax.drafting.list_pages import ListedPages
from openagent_jax.drafting.list_schemas import (
    Schema,
    Unsupported,
    resolve,
    with_json_types,
)
from openagent_jax.text import nesting
from openagent_jax.text.schema_paths import may_be_null

_OUTPUT_KEYS = ("outputSchema", "response")  # MCP, the Berkeley leaderboard


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
    list_place, entries, faults = list_documents.entries(document)
    names = dict.fromkeys(entry.name for entry in entries if entry.name)
    valid = tool_names.valid([entry.name or "tool" for entry in entries])
    known = [*dict.fromkeys([*names, *valid])]
    for name in sorted(set(skip) - set(known)):
        faults.append(f"skip: no tool is called {name}; {suggest(name, known)}")
    tools, rejected, lines = [], [], []
    for entry, name in zip(entries, valid, strict=True):
        if not {name, entry.name}.isdisjoint(skip):
            continue
        try:
            tools.append(_tool(entry, name))
        except Unsupported as error:
            rejected += [name] if entry.name else []
            lines += [_line(entry, problem) for problem in error.args]
    for index, line in enumerate(lines):
        without = ",".join(x for x in dict.fromkeys([*skip, *rejected]) if x in known)
        names = f": --skip={without}" if without and not index else ""
        faults.append(f"{line}, or leave the tool out{names}")
    if faults:  # then what would be a hole in the draft, or a note, is named with them
        for tool in tools:
            holes = _holes(tool.required)
            faults += [f"{tool.place}: {tool.name!r}, {hole}" for hole in holes]
        if (num := len(entries)) > (limit := Limits().num_tools):
            remedy = f"leave some out, or set --config.sandbox.num_tools={num} later"
            faults.append(
                f"{list_place}: {num} tools, but the limit is {limit}; {remedy}"
            )
        raise DomainError(*faults)
    require(tools, list_place, "no tools are left; list at least one")
    return tools


def _line(entry: Entry, problem: str) -> str:
    """Return one line that names a problem of a tool, and what to do about it."""
    line = " ".join(problem.split())
    if line.startswith(entry.place):
        return line
    named = f"{entry.place}: {entry.name!r}, " if entry.name else f"{entry.place}: "
    return f"{named}{line}" + ("" if ";" in line else "; change the schema")


def _holes(arguments: dict[str, Schema]) -> Iterator[str]:
    """Yield the arguments whose values no rule can make up, and the remedy."""
    for path, schema in arguments.items():
        kind, _ = value_pools.of_schema(path, schema, set(), path)
        for text in kind.get("values", ()):
            if isinstance(text, str) and text.startswith(HOLE):
                wanted = text.removeprefix(HOLE).strip()
                yield (
                    f"argument {path!r} needs {wanted}; add these to its schema as "
                    "`examples`, or fill them in once there is a draft"
                )


def _tool(entry: Entry, name: str) -> ListedTool:
    function, schema_key = entry.function, entry.schema_key
    root = function.get(schema_key, {})
    parameters = resolve(root, root, "its parameters")
    properties = parameters.get("properties", {})
    if not isinstance(properties, dict):
        raise Unsupported("`properties` is not an object, such as {}")
    at = f"{entry.function_place}.{schema_key}"
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
        raise Unsupported(*problems, *_holes(arguments))
    outputs = (entry.item.get(key) or function.get(key) for key in _OUTPUT_KEYS)
    returns = list_results.fields(next(filter(None, outputs), None))
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
    listed = _as_openai(entry)
    made = with_json_types(listed)
    return ListedTool(
        entry.place,
        name,
        str(function.get("description") or entry.item.get("title") or ""),
        arguments,
        tuple(optional),
        returns,
        _effect(entry.item.get("annotations")),
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


def _as_openai(entry: Entry) -> dict[str, Any]:
    """Return the function object that an agent gets for a tool of a list.

    Of MCP's and Anthropic's tools these are name, description and schema.
    """
    function, key = entry.function, entry.schema_key
    if function is not entry.item:
        return function
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
