"""Read a domain, the types, tools and goals of a world, from a JSON file.

A tool is an OpenAI function with an `x-openagent` block that says what it means:

    arguments, returns   name -> type; results are a random function of the world
    code_from            tool whose successful call reveals the `code` to pass here
    call_after           tool that must have succeeded before
    effect               a successful call changes the world

Values of a type are an enum, a number, or entities: three pools, or one list `values`
that is divided.

A goal is a list of steps. The value of an argument, and the answer, is a source:
`$slot` is a constant of the request, `#0.place` a field of the result of step 0;
the answer may also be `done`. A tool that another one needs is a step of the same
goal, or takes no arguments: then it need not be a step (see `extra_calls`).

Choices that the test half must not decide are made on a part of the training half that
is kept back: `:dev` after a name divides that half again (see `development.py`).
"""

import collections
import graphlib
import itertools
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from reprlib import repr as short
from typing import Any

from openagent_jax.sandbox import development, style
from openagent_jax.sandbox.domain_schema import (
    DOMAIN,
    GOAL,
    KINDS,
    SPLITS,
    TOOL,
    TWICE,
    UNDIVIDED,
    check,
    fits,
    known,
    match,
    sound,
)
from openagent_jax.sandbox.domain_spec import (
    DONE,
    DomainError,
    DomainSpec,
    Fields,
    GoalSpec,
    Pools,
    ToolSpec,
    TypeSpec,
    collected,
    must,
    needs_before,
)
from openagent_jax.sandbox.lexicon import MAX_TEXT
from openagent_jax.types import Limits

DOMAINS = Path(__file__).parent / "domains"
POOL_LIMIT = 100_000  # values of one pool


def load(path_or_name: str | Path, limits: Limits | None = None) -> DomainSpec:
    """Read and check a file (`path/to/mine.json`) or a builtin domain (`poi`); with
    `:dev` behind it, its training half alone, divided again."""
    name = str(path_or_name).removesuffix(development.SUFFIX)
    file = Path(name)
    try:
        file = _find(name)
        domain = read(read_json(file), limits or Limits())
        return domain if name == str(path_or_name) else development.divide(domain)
    except DomainError as error:
        raise DomainError(" ".join(f"{file}: {error}".splitlines())) from None


def faults(path_or_name: str | Path, limits: Limits | None = None) -> list[str]:
    """All that is wrong with a file, each fault with its place and remedy; the first
    is the one that `load` raises. What hangs on a fault is not looked at."""
    try:
        document = read_json(_find(str(path_or_name).removesuffix(development.SUFFIX)))
    except DomainError as error:
        return [str(error)]
    with collected() as found:
        read(document, limits or Limits())
    return [" ".join(fault.splitlines()) for fault in dict.fromkeys(found)]


def _find(name: str) -> Path:
    file = Path(name)
    if file.suffix != ".json" and file.name == name:
        builtins = sorted(path.stem for path in DOMAINS.glob("*.json"))
        known(file.name, builtins, "name", "unknown builtin domain")
        file = DOMAINS / f"{file.name}.json"
    return file


def read_json(file: Path) -> Any:
    try:
        text = file.read_bytes().decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_object)
    except OSError as error:
        problem = f"file: {error.strerror}; check the path"
    except UnicodeDecodeError as error:
        problem = f"byte {error.start}: not UTF-8; save the file as UTF-8"
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        problem = f"{place}: invalid JSON, {error.msg}; correct it there"
    except (RecursionError, ValueError) as error:  # absurdly deep, or a huge number
        problem = f"top level: {error}; follow the schema"
    raise DomainError(problem)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = {}
    for key, value in pairs:
        found[key] = TWICE if key in found else value
    return found


def read(value: Any, limits: Limits) -> DomainSpec:
    """What a document says; of no use where faults are collected and met."""
    fine = check(value, DOMAIN, "", limits)
    parts = value if fine else _readable(value)
    said = collections.defaultdict(dict)  # what must differ: text -> its place
    said["value"] = dict.fromkeys(map(str, range(1000)), "the numbers")
    types: dict[str, TypeSpec] = {}
    tools: dict[str, ToolSpec | None] = {}  # None: wrong, but what names it is not
    goals = []
    for name, item in parts["types"].items():
        types[name] = _type(name, item, f"types.{name}", limits, said)
    for index, item in enumerate(parts["tools"]):
        if fine or sound(item, TOOL, limits):
            tool = _tool(item, f"tools[{index}]", types, said)
            tools.setdefault(tool.name, tool)
        else:
            tools[_name(item)] = None
    in_order = _check_needs(tools, parts["tools"])
    for index, item in enumerate(parts["goals"]):
        if fine or sound(item, GOAL, limits):
            at = f"goals[{index}]"
            goals.append(_goal(item, at, types, tools, said, in_order))
    return DomainSpec(
        parts.get("name", ""),
        parts.get("description", ""),
        tuple(types.values()),
        tuple(tool for tool in tools.values() if tool),
        tuple(goals),
        tuple(parts.get("review", ())),
    )


def _readable(value: Any) -> dict[str, Any]:
    """As much of a bad file as can be looked into: none of a part without those that it
    speaks of."""
    value, parts = value if isinstance(value, dict) else {}, {}
    for key, kind in {"types": dict, "tools": list, "goals": list}.items():
        if not isinstance(value.get(key), kind):
            break
        parts[key] = value[key]
    return {"types": {}, "tools": [], "goals": [], **parts}


def _type(name: str, value: Any, place: str, limits: Limits, said: dict) -> TypeSpec:
    nothing = TypeSpec(name, "")  # told of
    if not isinstance(value, dict):
        return nothing
    kind = str(value.get("kind"))
    if not known(kind, KINDS, f"{place}.kind", "unknown kind"):
        return nothing
    schema = UNDIVIDED if kind == "entity" and "values" in value else KINDS[kind]
    if not check(value, {"kind": str, **schema}, place, limits):
        return nothing
    if kind == "number":
        low, high = value["minimum"], value["maximum"]
        problem = f"minimum {low}, maximum {high}; keep 0 <= minimum <= maximum <= 999"
        must(0 <= low <= high <= 999, place, problem)
        return TypeSpec(name, kind, minimum=low, maximum=high)
    pools: Pools = {}
    first: dict[str, str] = {}
    for split in schema:
        at, pool = f"{place}.{split}", value[split]
        lists = pool["compose"] if isinstance(pool, dict) else [pool]
        size = math.prod(map(len, lists))
        problem = f"{size} values; have {POOL_LIMIT} at most"
        if not must(size <= POOL_LIMIT, at, problem):
            return nothing
        _claim(first, lists[0], at)
        values = map(" ".join, itertools.product(*lists))
        pools[split] = _claim(said["value"], values, at)
        fits(pools[split], at, MAX_TEXT)
    if "values" in pools:
        values, least = pools["values"], 2 if kind == "enum" else 3
        few = len(values) < least
        must(not few, f"{place}.values", f"fewer than {least} values; add some")
        parts = [values] * 3 if kind == "enum" else [values[i::3] for i in range(3)]
        pools = dict(zip(SPLITS, parts, strict=True))
    return TypeSpec(name, kind, pools["train"], pools["test"], pools["shift"])


def _tool(value: Any, place: str, types: dict, said: dict) -> ToolSpec:
    at, place = f"{place}.function", f"{place}.x-openagent"
    function, meaning = value["function"], value["x-openagent"]
    name, text, parameters = map(function.get, ("name", "description", "parameters"))
    _claim(said["tool"], [name], f"{at}.name")
    _claim(said["description"], [text], f"{at}.description")
    fits([text], f"{at}.description", 4 * MAX_TEXT)
    arguments = _fields(meaning["arguments"], f"{place}.arguments", types)
    returns = _fields(meaning["returns"], f"{place}.returns", types)
    must(returns, f"{place}.returns", "nothing to return; add a field")
    spoken = {style.CODE: "the name of every code"}
    _claim(dict(spoken), dict(returns), f"{place}.returns")
    slots, at = dict(arguments), f"{at}.parameters"
    match(parameters["properties"], slots, slots, f"{at}.properties", "argument")
    same = sorted(map(str, parameters["required"])) == sorted(slots)
    must(same, f"{at}.required", f"wrong; all are required, write {list(slots)}")
    at = f"{place}.argument_names"
    match(meaning["argument_names"], slots, slots, at, "argument")
    _claim(spoken, slots, f"{place}.arguments")
    names = {
        slot: _pools(pools, f"{at}.{slot}", spoken)
        for slot, pools in meaning["argument_names"].items()
    }
    for pools in (meaning["names"], *meaning["argument_names"].values()):
        fits(itertools.chain(*pools.values()), place, MAX_TEXT)
    return ToolSpec(
        name,
        text,
        arguments,
        returns,
        meaning.get("code_from"),
        meaning.get("call_after"),
        meaning.get("effect", False),
        _pools(meaning["names"], f"{place}.names", said["tool"]),
        _pools(meaning["descriptions"], f"{place}.descriptions", said["description"]),
        names,
    )


def _name(tool: Any) -> str:
    """Of a tool that is wrong."""
    function = tool.get("function") if isinstance(tool, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else ""


def _check_needs(tools: dict[str, ToolSpec | None], items: list[Any]) -> bool:
    """Every tool that is needed exists, and no tool needs itself."""
    names = list(map(_name, items))
    places = {name: f"tools[{names.index(name)}].x-openagent" for name in tools}
    sound_ones, fine = {name: tool for name, tool in tools.items() if tool}, True
    for name, key in itertools.product(sound_ones, ("code_from", "call_after")):
        need = getattr(sound_ones[name], key) or name
        fine &= known(need, tools, f"{places[name]}.{key}", "unknown tool")
    needs = {tool.name: tool.needs for tool in sound_ones.values()}
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1][::-1]
        problem = f"cycle {' -> '.join(cycle)}; remove one code_from or call_after"
        fine = must(False, places[cycle[0]], problem)
    return fine and len(sound_ones) == len(tools)


def _goal(
    value: Any, place: str, types: dict, tools: dict, said: dict, in_order: bool
) -> GoalSpec:
    _claim(said["goal"], [value["name"]], f"{place}.name")
    constants = _fields(value["constants"], f"{place}.constants", types)
    read = _check_sources(value, place, dict(constants), tools)
    for slot, _ in constants if read else ():
        at = f"{place}.constants.{slot}"
        must(f"${slot}" in read, at, "used by no step; use it or remove it")
    steps = tuple((step["tool"], dict(step["arguments"])) for step in value["steps"])
    if read and in_order:
        _check_steps([name for name, _ in steps], place, tools, read)
    phrases = _pools(value["phrases"], f"{place}.phrases", said["phrase"])
    slots = [f"{{{slot}}}" for slot, _ in constants]
    for pool, texts in phrases.items():
        for index, text in enumerate(texts):
            written = re.findall(r"[{}][^{}]*}?", text)
            match(written, slots, slots, f"{place}.phrases.{pool}[{index}]", "slot")
    return GoalSpec(value["name"], constants, steps, value["answer"], phrases)


def _check_sources(
    value: Any, place: str, constants: dict[str, str], tools: dict
) -> list[str]:
    """What the steps and the answer read; nothing if a tool is not known well."""
    sources = {f"${slot}": type_name for slot, type_name in constants.items()}
    read = []
    for index, step in enumerate(value["steps"]):
        at = f"{place}.steps[{index}]"
        there = known(step["tool"], tools, f"{at}.tool", "unknown tool")
        if not there or tools[step["tool"]] is None:
            return []
        wanted = dict(tools[step["tool"]].arguments)
        match(step["arguments"], wanted, wanted, f"{at}.arguments", "argument")
        for name, source in step["arguments"].items():
            spot = f"{at}.arguments.{name}"
            if known(source, sources, spot, "unknown source") and name in wanted:
                given, kind = sources[source], wanted[name]
                problem = f"{source} is of type {given!r}; give a {kind!r}"
                must(given == kind, spot, problem)
            read.append(source)
        returns = tools[step["tool"]].returns
        sources |= {f"#{index}.{field}": type_name for field, type_name in returns}
    results = [DONE, *(source for source in sources if source[0] == "#")]
    known(value["answer"], results, f"{place}.answer", "unknown source")
    return [*read, value["answer"]]


def _check_steps(steps: list[str], place: str, tools: dict, read: list[str]) -> None:
    """What a step needs comes before it, and every step serves."""
    needed = {need for name in steps for need in needs_before(tools, steps, name)}
    for index, name in enumerate(steps):
        at = f"{place}.steps[{index}]"
        for need in needs_before(tools, steps, name):
            late, found = need in steps[index:], need in steps
            must(not late, at, f"{name!r} needs {need!r}, a later step; move it")
            problem = f"{name!r} needs {need!r}, which takes arguments; make it a step"
            must(found or not tools[need].arguments, at, problem)
        serves = any(source.startswith(f"#{index}.") for source in read)
        serves = serves or tools[name].effect or name in needed
        must(serves, at, f"{name!r} serves nothing; use its result or remove it")


def _fields(value: dict[str, str], place: str, types: dict[str, TypeSpec]) -> Fields:
    for name, type_name in value.items():
        known(type_name, types, f"{place}.{name}", "missing type")
    return tuple(value.items())


def _pools(value: dict[str, list[str]], place: str, said: dict[str, str]) -> Pools:
    return {split: _claim(said, value[split], f"{place}.{split}") for split in value}


def _claim(said: dict[str, str], texts: Iterable[str], place: str) -> tuple[str, ...]:
    """Refuse what was said before, and remember the place of the rest."""
    texts = tuple(texts)
    for text in texts:
        if text in said:
            problem = f"duplicate {short(text)}, also in {said[text]}"
            must(False, place, f"{problem}; keep one of the two")
        said[text] = place
    return texts
