"""Read a domain (the types, tools and goals of a world) from a JSON file.

A tool is an OpenAI function, which agents read word for word (see `documents.py`), with
an `x-openagent` block that says what it means:

    arguments, returns   name -> type; results are a random function, new in each world;
                         they may be nested and have lists (see `result_reading.py`)
    code_from            tool whose successful call reveals the `code` to pass here
    call_after           tool that must have succeeded before
    effect               a successful call changes the world
    state                what it does to a record of a table (see `domain_tables.py`)
    pages                how it divides a list (see `result_pages.py`)
    requests             words from which requests are put together; optional
    listed_as            its name in the list that it was drafted from, if agents could
                         not call a tool of that name

An argument inside an object or an array is named by its path, such as `to.city` or
`tags.0` (see `nested_arguments.py`); in `argument_names` each key has its own entry. An
argument that may be of several types has a list of them; each goal gives one of these.

Arguments that the schema does not require are optional: a step of a goal may leave them
out, and then a call has to leave them out too, or to give their default. The schema may
have other keys and other arguments. Those that are not in the block have to be
optional; no goal needs them. Values have to fit the `pattern`, `minLength` and
`maxLength` of their arguments.

The values of a type are an enum (of strings, or of numbers, booleans and null), a range
of numbers with so many `decimals`, or entities: a pool for each of three splits, or one
list `values` that is divided into three. Sampled requests write the `unit` of a number
after it, if it has one.

A goal is a list of steps. The value of an argument, and the answer, is a source:
`$slot` is a constant of the request, `#0.place` is the field `place` of the result of
step 0; the answer may also be `done`. A tool that another one needs must be a step of
the same goal, unless it takes no arguments (see `extra_calls`). A step with an effect
may have a condition (see `goal_conditions.py`). The phrases of a goal are template
strings (see `phrase_syntax.py`). Where tools have `requests`, more goals are sampled,
and `goals` may be empty (see `request_reading.py`, `goal_sampling.py`).

`:dev` after the name of a domain divides its training split again, so that choices can
be made without the test split (see `development.py`).

`domain_schema.py` holds the structure of a file; what its parts mean is checked here.
"""

import functools
import graphlib
import itertools
import json
import re
from pathlib import Path
from typing import Any

from openagent_jax.domains import (
    development,
    domain_needs,
    domain_tables,
    domain_types,
    domain_words,
    invented,
    library,
    nested_arguments,
    result_pages,
    result_reading,
    schema_checks,
    value_schema,
)
from openagent_jax.domains import domain_schema as schema
from openagent_jax.domains.domain_checks import Checker, suggest
from openagent_jax.domains.domain_needs import Needs
from openagent_jax.domains.domain_spec import (
    CURSOR,
    DomainError,
    DomainSpec,
    ToolSpec,
    require,
)
from openagent_jax.domains.goals import goal_reading, request_reading
from openagent_jax.domains.limits import Limits
from openagent_jax.text import nesting, schema_paths, style

DOMAINS = Path(__file__).parent / "files"


def load(path_or_name: str | Path, limits: Limits | None = None) -> DomainSpec:
    """Read and check a domain.

    Args:
      path_or_name: a file (`path/to/mine.json`) or a builtin domain (`poi`, or
        `invented_7`, see `invented.py`). `:dev` after it divides its training split
        again; see `development.py`.
      limits: sizes that the domain has to fit; the default ones if None.

    Raises:
      DomainError: the file has faults.

    >>> load("poi").name
    'poi'
    """
    name = str(path_or_name).removesuffix(development.SUFFIX)
    file = Path(name)
    try:
        file = _find(name)
        domain = read(_contents(file), limits or default_limits(needs(name)))
        return domain if name == str(path_or_name) else development.divide(domain)
    except DomainError as error:
        raise DomainError(*(f"{file}: {fault}" for fault in error.faults)) from None


def faults(path_or_name: str | Path, limits: Limits | None = None) -> list[str]:
    """Return all faults of a file, each with its place and remedy.

    The first is the one that `load` raises. What depends on a part with faults is not
    checked.

    >>> faults("poi")
    []
    """
    try:
        file = _find(str(path_or_name).removesuffix(development.SUFFIX))
        read(_contents(file), limits or default_limits(needs(path_or_name)))
    except DomainError as error:
        return list(error.faults)
    return []


def _find(name: str) -> Path:
    file = Path(name)
    if file.suffix != ".json" and file.name == name and not _seed(name):
        message = f"unknown builtin domain {name!r}; {suggest(name, builtins())}"
        require(name in builtins(), "name", message)
        file = DOMAINS / f"{name}.json"
    return file


def _seed(name: str) -> re.Match[str] | None:
    return re.fullmatch(r"invented_(0|[1-9]\d{0,8})", name)


def _contents(file: Path) -> Any:
    """Return what a file contains, or would contain if the domain is invented."""
    if seed := _seed(str(file)):
        return invented.invent(int(seed[1]), evaluated_words())
    return read_json(file)


@functools.cache
def evaluated_words() -> frozenset[str]:
    """Return the words of the domains that policies are evaluated in.

    What a backbone is pretrained on has none of them: neither random worlds nor
    invented domains.
    """
    names = ("poi", *library.DEV, *library.HELD_OUT)
    return frozenset().union(*(domain_words.of(load(name)) for name in names))


def is_builtin(name: str) -> bool:
    """Tell whether a domain comes with the package, or is invented.

    >>> is_builtin("poi"), is_builtin("invented_3"), is_builtin("invented_x")
    (True, True, False)
    """
    return name in builtins() or bool(_seed(name))


def builtins() -> list[str]:
    """Return the names of the domains that come with the package as files.

    >>> "poi" in builtins()
    True
    """
    return sorted(path.stem for path in DOMAINS.glob("*.json"))


def is_tool_list(path_or_name: str | Path) -> bool:
    """Tell whether a file is a list of tools, from which a domain can be drafted."""
    try:
        found = _contents(_find(str(path_or_name).removesuffix(development.SUFFIX)))
    except DomainError:
        return False
    if isinstance(found, dict) and isinstance(found.get("result"), dict):
        found = found["result"]  # of a JSON-RPC reply
    tools = found.get("tools") if isinstance(found, dict) else found
    if not isinstance(tools, list) or not all(isinstance(x, dict) for x in tools):
        return False
    is_domain = isinstance(found, dict) and "types" in found
    return bool(tools) and not is_domain and not any("x-openagent" in x for x in tools)


def needs(path_or_name: str | Path) -> Needs:
    """Return what a domain needs of the limits; nothing if it cannot be read.

    >>> needs("poi").depth, needs("no_such_file.json").depth
    (1, 1)
    """
    name = str(path_or_name).removesuffix(development.SUFFIX)
    try:
        return domain_needs.of(_contents(_find(name)))
    except DomainError:
        return Needs()


def default_limits(needs: Needs) -> Limits:
    """Return the default limits, with room for what some domains need."""
    fields = max(Limits().num_fields, needs.num_fields)
    return Limits(
        depth=needs.depth,
        num_fields=fields,
        num_derived=needs.num_derived,
        paging=needs.paging,
    )


def read_json(file: Path) -> Any:
    """Return what a JSON file holds; the value of a key that is written twice is
    `domain_schema.TWICE`.

    Raises:
      DomainError: the file cannot be read, or is not JSON.
    """
    try:
        text = file.read_bytes().decode("utf-8-sig")
        if text.strip():
            return json.loads(text, object_pairs_hook=_object)
        problem = "file: it is empty; write JSON"
    except OSError as error:
        problem = f"file: {error.strerror}; check the path"
    except UnicodeDecodeError as error:
        problem = f"byte {error.start}: not UTF-8; save the file as UTF-8"
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        problem = f"{place}: invalid JSON, {error.msg}; correct it there"
    except RecursionError:
        problem = "top level: nested too deeply; follow the schema"
    except ValueError:
        problem = "top level: a number has thousands of digits; write it shorter"
    raise DomainError(problem)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = {}
    for key, value in pairs:
        items[key] = schema.TWICE if key in items else value
    return items


def read(document: Any, limits: Limits) -> DomainSpec:
    """Turn a document into a domain.

    Args:
      document: what `read_json` returns.
      limits: sizes that the domain has to fit.

    Raises:
      DomainError: it has faults; all of them are in `DomainError.faults`.
    """
    check = Checker(limits)
    check.used["value"] = dict.fromkeys(map(str, range(1000)), "as a number")
    head = schema.parse(schema.DomainFile, document, "", check)
    for name, item in _entries(document, "types", dict, check).items():
        check.types[name] = domain_types.read(name, item, check)
    tools = _entries(document, "tools", list, check)
    for index, item in enumerate(tools):
        tool = _tool(item, f"tools[{index}]", check)
        if tool or _name(item) not in check.tools:
            check.tools[_name(item)] = tool
    tables = domain_tables.read(document, tools, check)
    in_order = _check_needs([_name(item) for item in tools], check)
    goals = [
        goal_reading.read(item, f"goals[{index}]", in_order, check)
        for index, item in enumerate(_entries(document, "goals", list, check))
    ]
    has_words = any(tool and tool.requests for tool in check.tools.values())
    message = "empty list; add at least one entry, or `requests` to a tool"
    if goals == [] and len(check.tools) == sum(map(bool, check.tools.values())):
        check.require(has_words or "goals" in check.unreadable, "goals", message)
    source = _source(head.source, check) if head else ""
    if head is None or check.faults:
        raise DomainError(*dict.fromkeys(check.faults))
    return DomainSpec(
        head.name,
        head.description,
        tuple(kind for kind in check.types.values() if kind),
        tuple(tool for tool in check.tools.values() if tool),
        tuple(goal for goal in goals if goal),
        tuple(head.review),
        source,
        tables,
    )


def _source(value: Any, check: Checker) -> str:
    """Return where the tools of a domain are from, in words; "" if it is not said."""
    if value is None or isinstance(value, str):
        return value or ""
    made = schema.parse(schema.Package, value, "source", check)
    if made is None:
        return ""
    text = f"{made.package} {made.version} ({made.registry}, {made.license})"
    return text + ", adapted" * made.adapted


def _entries(document: Any, name: str, kind: type, check: Checker) -> Any:
    """Return the entries of a part of the document; none if it cannot be read.

    Where there are too many of them, all are looked at nevertheless.
    """
    part = document.get(name) if isinstance(document, dict) else None
    if isinstance(part, kind) and (part or name not in check.places):
        return part
    check.unreadable.add(name)
    return kind()


def _tool(item: Any, place: str, check: Checker) -> ToolSpec | None:
    tool = schema.parse(schema.Tool, item, place, check)
    at, place = f"{place}.function", f"{place}.x-openagent"
    _check_function(item, at, check)
    if tool is None:
        return None
    function, meaning = tool.function, tool.meaning
    descriptions, text = check.used["description"], function.description
    num_faults = len(check.faults)
    check.unused([function.name], check.used["tool"], f"{at}.name")
    if function.name in check.tools and len(check.faults) > num_faults:
        return None  # a copy would repeat all texts of the first tool
    own = check.used["own description"]  # tools may share one, but no synonym
    if text not in own:
        check.unused([text], descriptions, f"{at}.description")
    own[text] = ""
    paths = nested_arguments.in_order(meaning.arguments)
    root, pages = function.parameters.model_dump(), meaning.pages
    cursor = [nesting.written((pages.cursor,))] if pages else []
    slots = nested_arguments.keys([*paths, *cursor])
    nested_arguments.check(function, paths, f"{at}.parameters", check)
    gates = nested_arguments.gates(root, paths)

    ordered = {path: meaning.arguments[path][0] for path in paths}
    also = {path: tuple(meaning.arguments[path][1:]) for path in paths}
    also = {path: kinds for path, kinds in also.items() if kinds}
    arguments = check.fields(ordered, f"{place}.arguments")
    for number in range(max(map(len, also.values()), default=0)):
        more = {path: x[number] for path, x in also.items() if number < len(x)}
        arguments += check.fields(more, f"{place}.arguments")
    value_schema.check(item["function"], arguments, at, check)
    arguments = arguments[: len(paths)]
    returns, lists = result_reading.fields(
        meaning.returns, f"{place}.returns", check, pages.next if pages else ""
    )
    made = result_pages.read(tool, lists, place, check) if pages else None
    stated = tuple(field for field in returns if field[1] != CURSOR)
    message = "nothing to return; add a field"
    check.require(meaning.returns, f"{place}.returns", message)
    named = meaning.requests.fields if meaning.requests else {}
    derived = result_reading.derived(lists, named, place, check)
    used = {style.CODE: "as the name of every code"}
    top = dict.fromkeys(str(nesting.parse(path)[0]) for path in paths)
    check.unused(top, used, f"{place}.arguments")
    for key in slots:
        used.setdefault(key, f"in {place}.arguments")
    at = f"{place}.argument_names"
    check.names(meaning.argument_names, slots, at, "argument")
    named = schema_paths.names(root, paths)
    for name in named:
        used.setdefault(name, f"in {place.removesuffix('.x-openagent')}.function")
    argument_names = {
        name: check.texts(synonyms, used, f"{at}.{name}")
        for name, synonyms in meaning.argument_names.items()
    }
    names = check.texts(meaning.names, check.used["tool"], f"{place}.names")
    for texts in (names, *argument_names.values()):
        check.short(itertools.chain(*texts.values()), place)
    return ToolSpec(
        function.name,
        function.description,
        arguments,
        returns,
        meaning.code_from,
        meaning.call_after,
        meaning.effect,
        _optional(root, gates),
        names,
        check.texts(meaning.descriptions, descriptions, f"{place}.descriptions"),
        argument_names,
        item["function"],
        request_reading.read(tool, stated, lists, place, check),
        meaning.listed_as,
        lists,
        derived,
        gates,
        also,
        pages=made,
    )


def _check_function(item: Any, place: str, check: Checker) -> None:
    """Check what agents are shown of a tool, whatever else is wrong with it."""
    function = item.get("function") if isinstance(item, dict) else None
    if not isinstance(function, dict):
        return
    schema.check_json(function, place, check)
    parameters, at = function.get("parameters"), f"{place}.parameters"
    for fault in schema_checks.problems(parameters, at, parameters):
        where, _, problem = fault.partition(": ")
        check.require(False, where, problem)


def _optional(root: dict[str, Any], gates: nested_arguments.Gates) -> dict[str, Any]:
    """Return the arguments that a call may leave out, and their defaults.

    A default that is a list or an object stands for those of its leaves.
    """
    return {
        path: schema_paths.default(root, nesting.parse(path))
        for path, open_if in gates.items()
        if open_if
    }


def _name(item: Any) -> str:
    """Return the name of an entry of `tools`, or an empty text if it has none."""
    function = item.get("function") if isinstance(item, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else ""


def _check_needs(names: list[str], check: Checker) -> bool:
    """Check that the tools that others need exist, and that none needs itself.

    Args:
      names: the name of each entry of `tools`.
      check: collects the faults.

    Returns:
      Whether it is known in which order tools can be called.
    """
    places = {name: f"tools[{names.index(name)}].x-openagent" for name in check.tools}
    needs = {tool.name: tool.needs for tool in check.tools.values() if tool}
    in_order = len(needs) == len(check.tools)
    for name in needs:
        for key in ("code_from", "call_after"):
            need = getattr(check.tools[name], key) or name
            at = f"{places[name]}.{key}"
            in_order &= check.known(need, check.tools, at, "unknown tool")
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1][::-1]
        message = f"cycle {' -> '.join(cycle)}; remove one code_from or call_after"
        return check.require(False, places[cycle[0]], message)
    return in_order
