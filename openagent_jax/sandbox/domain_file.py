"""Read a domain, the types, tools and goals of a world, from a JSON file.

A tool is an OpenAI function with an `x-openagent` block that says what it means:

    arguments, returns   name -> type; results are a random function of the world
    code_from            tool whose successful call reveals the `code` to pass here
    call_after           tool that must have succeeded before
    effect               a successful call changes the world

A goal is a list of steps. The value of an argument, and the answer, is a source:
`$slot` is a constant of the request, `#0.place` a field of the result of step 0;
the answer may also be `done`. A tool that another one needs is a step of the same
goal, or takes no arguments: then it need not be a step (see `extra_calls`).

Choices that the test half must not decide are made on a part of the training half that
is kept back: `:dev` after a name divides that half again (see `development.py`).
"""

import collections
import difflib
import graphlib
import itertools
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from reprlib import repr as short
from typing import Any

from openagent_jax.sandbox import development
from openagent_jax.sandbox.domain_spec import (
    DONE,
    DomainError,
    DomainSpec,
    Fields,
    GoalSpec,
    Pools,
    ToolSpec,
    TypeSpec,
    must,
    needs_before,
)
from openagent_jax.types import Limits

DOMAINS = Path(__file__).parent / "domains"
POOL_LIMIT = 100_000  # values of one pool
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_LETTERS = "use letters, digits, _ and -, 64 at most"

# What a file looks like, for `_check`: `key?` may be left out, `key:limit` is bounded
# by that field of `Limits`, `*` is any name; a pair is a list or an object; lists are
# not empty; a set holds the words allowed; a bare type says nothing of what is inside.
_POOLS = {"train": [str], "test": [str]}
_REWRITES = {"rewrite_train": [str], "rewrite_test": [str]}
_VALUES = ([str], {"compose": [[str]]})  # composed: all combinations, with blanks
_KINDS = {
    "entity": {"train": _VALUES, "test": _VALUES, "shift": _VALUES},
    "enum": {"values": [str]},
    "number": {"minimum": int, "maximum": int},
}
_PARAMETERS = {"type": {"object"}, "properties": {"*": dict}, "required": list}
_FUNCTION = {
    "name": NAME,
    "description": str,
    "strict?": bool,
    "parameters": {**_PARAMETERS, "additionalProperties?": bool},
}
_MEANING = {
    "arguments:num_args": {"*": str},
    "returns:num_fields": {"*": str},
    "code_from?": str,
    "call_after?": str,
    "effect?": bool,
    "names": _POOLS,
    "descriptions": _POOLS,
    "argument_names": {"*": _POOLS},
}
_GOAL = {
    "name": NAME,
    "constants:num_constants": {"*": str},
    "steps:num_steps": [{"tool": str, "arguments": {"*": str}}],
    "answer": str,
    "phrases": {**_POOLS, **_REWRITES},
}
_TOOL = {"type": {"function"}, "function": _FUNCTION, "x-openagent": _MEANING}
_HEAD = {"name": NAME, "description": str, "types": {"*": dict}}
_DOMAIN = {**_HEAD, "tools:num_tools": [_TOOL], "goals": [_GOAL]}
_WORDS = {dict: "an object", list: "a list", int: "a number", bool: "true or false"}


def load(path_or_name: str | Path, limits: Limits | None = None) -> DomainSpec:
    """Read and check a file (`path/to/mine.json`) or a builtin domain (`poi`); with
    `:dev` behind it, its training half alone, divided again."""
    name = str(path_or_name).removesuffix(development.SUFFIX)
    file = Path(name)
    try:
        if file.suffix != ".json" and file.name == name:
            builtins = sorted(path.stem for path in DOMAINS.glob("*.json"))
            _known(file.name, builtins, "name", "unknown builtin domain")
            file = DOMAINS / f"{file.name}.json"
        domain = _domain(_read(file), limits or Limits())
        return domain if name == str(path_or_name) else development.divide(domain)
    except DomainError as error:
        raise DomainError(" ".join(f"{file}: {error}".splitlines())) from None


def _read(file: Path) -> Any:
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


_TWICE = object()  # stands for the value of a key that is written twice


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = {}
    for key, value in pairs:
        found[key] = _TWICE if key in found else value
    return found


def _check(value: Any, schema: Any, place: str, limits: Limits, limit: str = ""):
    """Compare with the schema from the top down, and look at every text."""
    must(value is not _TWICE, place, "duplicate key; remove or rename one")
    if isinstance(schema, tuple):
        schema = schema[isinstance(value, dict)]
    kind = schema if isinstance(schema, type) else type(schema)
    kind, word = (kind, _WORDS[kind]) if kind in _WORDS else (str, "a text")
    must(type(value) is kind, place, f"{short(value)} is not {word}; write {word}")
    if limit and len(value) > (room := getattr(limits, limit)):
        remedy = f"remove some or raise sandbox.{limit}"
        must(False, place, f"{len(value)} entries, the limit is {room}; {remedy}")
    if isinstance(schema, dict):
        rules = {re.split("[?:]", rule)[0]: rule for rule in schema}
        names = value if "*" in rules else rules
        needed = [name for name in names if not rules.get(name, "").endswith("?")]
        _match(value, names, needed, place, "key")
        for name, item in value.items():
            at, rule = _join(place, name), rules.get(name, "*")
            must(NAME.fullmatch(name), place, f"{short(name)} is no name; {_LETTERS}")
            _check(item, schema[rule], at, limits, rule.partition(":")[2])
    elif isinstance(schema, list):
        must(value, place, "empty list; write one entry or more")
        for index, item in enumerate(value):
            _check(item, schema[0], f"{place}[{index}]", limits)
    elif isinstance(schema, set):
        _known(value, schema, place, "unknown word")
    elif isinstance(schema, re.Pattern):
        must(NAME.fullmatch(value), place, f"{short(value)} is no name; {_LETTERS}")
    elif kind is str:
        odd = [mark for mark in value if mark in '"\\' or not mark.isprintable()]
        trim = value == value.strip() != ""
        must(trim, place, f"{short(value)} is empty or has outer blanks; trim it")
        must(not odd, place, f"{short(value)} has {odd[:1]} in it; leave that out")


def _domain(value: Any, limits: Limits) -> DomainSpec:
    _check(value, _DOMAIN, "", limits)
    said = collections.defaultdict(dict)  # what must differ: text -> its place
    said["value"] = dict.fromkeys(map(str, range(1000)), "the numbers")
    types, tools, goals = {}, {}, []
    for name, item in value["types"].items():
        types[name] = _type(name, item, f"types.{name}", limits, said)
    for index, item in enumerate(value["tools"]):
        tool = _tool(item, f"tools[{index}]", types, said)
        tools[tool.name] = tool
    _check_needs(tools)
    for index, item in enumerate(value["goals"]):
        goals.append(_goal(item, f"goals[{index}]", types, tools, said))
    lists = (tuple(part) for part in (types.values(), tools.values(), goals))
    return DomainSpec(value["name"], value["description"], *lists)


def _type(name: str, value: Any, place: str, limits: Limits, said: dict) -> TypeSpec:
    kind = value.get("kind")
    _known(kind, _KINDS, f"{place}.kind", "unknown kind")
    _check(value, {"kind": str, **_KINDS[kind]}, place, limits)
    if kind == "number":
        low, high = value["minimum"], value["maximum"]
        problem = f"minimum {low}, maximum {high}; keep 0 <= minimum <= maximum <= 999"
        must(0 <= low <= high <= 999, place, problem)
        return TypeSpec(name, kind, minimum=low, maximum=high)
    pools: Pools = {}
    first: dict[str, str] = {}
    for split in _KINDS[kind]:
        at, pool = f"{place}.{split}", value[split]
        lists = pool["compose"] if isinstance(pool, dict) else [pool]
        size = math.prod(map(len, lists))
        must(size <= POOL_LIMIT, at, f"{size} values; have {POOL_LIMIT} at most")
        _claim(first, lists[0], at)
        values = map(" ".join, itertools.product(*lists))
        pools[split] = _claim(said["value"], values, at)
    if kind == "enum":
        few = len(pools["values"]) < 2
        must(not few, f"{place}.values", "fewer than 2 values; add some")
        pools = dict.fromkeys(_KINDS["entity"], pools["values"])
    return TypeSpec(name, kind, pools["train"], pools["test"], pools["shift"])


def _tool(value: Any, place: str, types: dict, said: dict) -> ToolSpec:
    at, place = f"{place}.function", f"{place}.x-openagent"
    function, meaning = value["function"], value["x-openagent"]
    name, text, parameters = map(function.get, ("name", "description", "parameters"))
    _claim(said["tool"], [name], f"{at}.name")
    _claim(said["description"], [text], f"{at}.description")
    arguments = _fields(meaning["arguments"], f"{place}.arguments", types)
    returns = _fields(meaning["returns"], f"{place}.returns", types)
    must(returns, f"{place}.returns", "nothing to return; add a field")
    slots, at = dict(arguments), f"{at}.parameters"
    _match(parameters["properties"], slots, slots, f"{at}.properties", "argument")
    same = sorted(map(str, parameters["required"])) == sorted(slots)
    must(same, f"{at}.required", f"wrong; all are required, write {list(slots)}")
    at, spoken = f"{place}.argument_names", {"code": "the name of every code"}
    _match(meaning["argument_names"], slots, slots, at, "argument")
    _claim(spoken, slots, f"{place}.arguments")
    names = {
        slot: _pools(pools, f"{at}.{slot}", spoken)
        for slot, pools in meaning["argument_names"].items()
    }
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


def _check_needs(tools: dict[str, ToolSpec]) -> None:
    """Every tool that is needed exists, and no tool needs itself."""
    places = {name: f"tools[{i}].x-openagent" for i, name in enumerate(tools)}
    for name, key in itertools.product(tools, ("code_from", "call_after")):
        need = getattr(tools[name], key) or name
        _known(need, tools, f"{places[name]}.{key}", "unknown tool")
    try:
        graphlib.TopologicalSorter({t.name: t.needs for t in tools.values()}).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1][::-1]
        problem = f"cycle {' -> '.join(cycle)}; remove one code_from or call_after"
        must(False, places[cycle[0]], problem)


def _goal(value: Any, place: str, types: dict, tools: dict, said: dict) -> GoalSpec:
    _claim(said["goal"], [value["name"]], f"{place}.name")
    constants = _fields(value["constants"], f"{place}.constants", types)
    known = {f"${slot}": type_name for slot, type_name in constants}
    read = []
    for index, step in enumerate(value["steps"]):
        at = f"{place}.steps[{index}]"
        _known(step["tool"], tools, f"{at}.tool", "unknown tool")
        wanted = dict(tools[step["tool"]].arguments)
        _match(step["arguments"], wanted, wanted, f"{at}.arguments", "argument")
        for name, source in step["arguments"].items():
            spot = f"{at}.arguments.{name}"
            _known(source, known, spot, "unknown source")
            problem = f"{source} is of type {known[source]!r}; give a {wanted[name]!r}"
            must(known[source] == wanted[name], spot, problem)
            read.append(source)
        returns = tools[step["tool"]].returns
        known |= {f"#{index}.{field}": type_name for field, type_name in returns}
    results = [DONE, *(source for source in known if source[0] == "#")]
    _known(value["answer"], results, f"{place}.answer", "unknown source")
    for slot, _ in constants:
        at = f"{place}.constants.{slot}"
        must(f"${slot}" in read, at, "used by no step; use it or remove it")
    steps = tuple((step["tool"], dict(step["arguments"])) for step in value["steps"])
    _check_steps([name for name, _ in steps], place, tools, [*read, value["answer"]])
    phrases = _pools(value["phrases"], f"{place}.phrases", said["phrase"])
    slots = [f"{{{slot}}}" for slot, _ in constants]
    for pool, texts in phrases.items():
        for index, text in enumerate(texts):
            written = re.findall(r"[{}][^{}]*}?", text)
            _match(written, slots, slots, f"{place}.phrases.{pool}[{index}]", "slot")
    return GoalSpec(value["name"], constants, steps, value["answer"], phrases)


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
        _known(type_name, types, f"{place}.{name}", "missing type")
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


def _match(given: Any, known: Any, needed: Any, place: str, what: str) -> None:
    for name in given:
        _known(name, known, _join(place, name), f"unknown {what}")
    for name in needed:
        must(name in given, place, f"missing {what} {short(name)}; add it")


def _known(name: Any, known: Iterable[str], place: str, what: str) -> None:
    if name not in (names := list(known)):
        close = difflib.get_close_matches(str(name), names, 1)
        remedy = (
            f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
        )
        must(False, place, f"{what} {short(name)}; {remedy}")


def _join(place: str, name: str) -> str:
    return f"{place}.{name}".strip(".")
