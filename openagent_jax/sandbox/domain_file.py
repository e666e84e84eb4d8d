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
is kept back: `:dev` after a name divides that half again (see `development`).
"""

import collections
import difflib
import graphlib
import itertools
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

from openagent_jax.types import Limits

DOMAINS = Path(__file__).parent / "domains"
DEVELOPMENT = ":dev"  # after the name of a domain
DONE = "done"  # the answer of a goal that is an effect only
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

Pools = dict[str, tuple[str, ...]]  # by split
Fields = tuple[tuple[str, str], ...]  # (name, type)


class DomainError(ValueError):
    """A domain file is wrong: `file: place: problem; remedy`, on one line."""


@dataclass(frozen=True)
class TypeSpec:
    """Values: three pools of names (the same one for an enum), or a range."""

    name: str
    kind: str  # entity, enum or number
    train: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    shift: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 0  # inclusive


@dataclass(frozen=True)
class ToolSpec:
    """A tool: what it means, and the words that may present it."""

    name: str
    description: str
    arguments: Fields
    returns: Fields
    code_from: str | None
    call_after: str | None
    effect: bool
    names: Pools
    descriptions: Pools
    argument_names: dict[str, Pools]  # by argument

    @property
    def needs(self) -> list[str]:
        """Tools that must have succeeded before."""
        return [name for name in (self.code_from, self.call_after) if name]


@dataclass(frozen=True)
class GoalSpec:
    """A family of requests: the calls that serve it, and how it is put in words."""

    name: str
    constants: Fields
    steps: tuple[tuple[str, dict[str, str]], ...]  # (tool, argument -> source)
    answer: str  # a source, or `DONE`
    phrases: Pools  # train, test, rewrite_train, rewrite_test


@dataclass(frozen=True)
class DomainSpec:
    """All of a domain file, checked."""

    name: str
    description: str
    types: tuple[TypeSpec, ...]
    tools: tuple[ToolSpec, ...]
    goals: tuple[GoalSpec, ...]


def load(path_or_name: str | Path, limits: Limits | None = None) -> DomainSpec:
    """Read and check a file (`path/to/mine.json`) or a builtin domain (`poi`); with
    `:dev` behind it, its training half alone, divided again."""
    name = str(path_or_name).removesuffix(DEVELOPMENT)
    file = Path(name)
    try:
        if file.suffix != ".json" and file.name == name:
            builtins = sorted(path.stem for path in DOMAINS.glob("*.json"))
            _known(file.name, builtins, "name", "unknown builtin domain")
            file = DOMAINS / f"{file.name}.json"
        domain = _domain(_read(file), limits or Limits())
        return domain if name == str(path_or_name) else development(domain)
    except DomainError as error:
        raise DomainError(" ".join(f"{file}: {error}".splitlines())) from None


def development(domain: DomainSpec) -> DomainSpec:
    """The training half of a domain, divided again; nothing of its test half is left.

    Kept back for the test are every fourth of the words that names of things begin
    with, every fourth of those that requests begin with, and the last of the synonyms
    and of the rewritten requests.

    What is of no half stays what a test uses: the entities of `entity_shift`, the
    domain of `domain_transfer`, and names, gates and styles that are of no domain.
    """
    phrases = [text for goal in domain.goals for text in goal.phrases["train"]]
    openings = _fourth(phrases)

    def of_type(kind: TypeSpec) -> TypeSpec:
        if kind.train == kind.test:  # an enum, or a range
            return kind
        train, test = _part(kind.train, _fourth(kind.train), kind.name)
        return replace(kind, train=train, test=test)

    def last(pools: Pools, name: str, of: str = "") -> Pools:
        texts = pools[f"{of}train"]
        train, test = _part(texts, {texts[-1]}, name)
        return {**pools, f"{of}train": train, f"{of}test": test}

    def of_tool(tool: ToolSpec) -> ToolSpec:
        spoken = tool.argument_names.items()
        return replace(
            tool,
            names=last(tool.names, tool.name),
            descriptions=last(tool.descriptions, tool.name),
            argument_names={slot: last(pools, slot) for slot, pools in spoken},
        )

    def of_goal(goal: GoalSpec) -> GoalSpec:
        train, test = _part(goal.phrases["train"], openings, goal.name)
        phrases = last(goal.phrases, goal.name, "rewrite_")
        return replace(goal, phrases={**phrases, "train": train, "test": test})

    return replace(
        domain,
        types=tuple(map(of_type, domain.types)),
        tools=tuple(map(of_tool, domain.tools)),
        goals=tuple(map(of_goal, domain.goals)),
    )


def _fourth(texts: Iterable[str]) -> set[str]:
    """Every fourth of the words that some text begins with."""
    return set(list(dict.fromkeys(text.split()[0] for text in texts))[3::4])


def _part(
    texts: tuple[str, ...], held: set[str], place: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts without those that are kept back, or begin so; and these. If all are
    of one side, the last is kept back."""
    _must(len(texts) > 1, place, f"one text for training; {DEVELOPMENT} needs another")
    test = tuple(text for text in texts if {text, text.split()[0]} & held)
    test = test if 0 < len(test) < len(texts) else texts[-1:]
    rest = set(test)
    return tuple(text for text in texts if text not in rest), test


def parse_source(source: str) -> tuple[int, str]:
    """`$slot` is (-1, slot), `#2.field` is (2, field)."""
    step, _, name = source.rpartition(".")
    return (int(step[1:]), name) if step else (-1, name[1:])


def extra_calls(domain: DomainSpec, goal: GoalSpec) -> tuple[str, ...]:
    """Tools to be called besides the steps, each after those that it needs."""
    tools = {tool.name: tool for tool in domain.tools}
    steps = [name for name, _ in goal.steps]
    needs = itertools.chain(*(_needs(tools, steps, name) for name in steps))
    return tuple(dict.fromkeys(need for need in needs if need not in steps))


def _needs(tools: dict[str, ToolSpec], steps: list[str], name: str) -> list[str]:
    """What must come before a tool, as far back as the nearest steps."""
    needs = []
    for need in tools[name].needs:
        needs += [need] if need in steps else [*_needs(tools, steps, need), need]
    return needs


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
    _must(value is not _TWICE, place, "duplicate key; remove or rename one")
    if isinstance(schema, tuple):
        schema = schema[isinstance(value, dict)]
    kind = schema if isinstance(schema, type) else type(schema)
    kind, word = (kind, _WORDS[kind]) if kind in _WORDS else (str, "a text")
    _must(type(value) is kind, place, f"{short(value)} is not {word}; write {word}")
    if limit and len(value) > (room := getattr(limits, limit)):
        remedy = f"remove some or raise sandbox.{limit}"
        _must(False, place, f"{len(value)} entries, the limit is {room}; {remedy}")
    if isinstance(schema, dict):
        rules = {re.split("[?:]", rule)[0]: rule for rule in schema}
        names = value if "*" in rules else rules
        needed = [name for name in names if not rules.get(name, "").endswith("?")]
        _match(value, names, needed, place, "key")
        for name, item in value.items():
            at, rule = _join(place, name), rules.get(name, "*")
            _must(NAME.fullmatch(name), place, f"{short(name)} is no name; {_LETTERS}")
            _check(item, schema[rule], at, limits, rule.partition(":")[2])
    elif isinstance(schema, list):
        _must(value, place, "empty list; write one entry or more")
        for index, item in enumerate(value):
            _check(item, schema[0], f"{place}[{index}]", limits)
    elif isinstance(schema, set):
        _known(value, schema, place, "unknown word")
    elif isinstance(schema, re.Pattern):
        _must(NAME.fullmatch(value), place, f"{short(value)} is no name; {_LETTERS}")
    elif kind is str:
        odd = [mark for mark in value if mark in '"\\' or not mark.isprintable()]
        trim = value == value.strip() != ""
        _must(trim, place, f"{short(value)} is empty or has outer blanks; trim it")
        _must(not odd, place, f"{short(value)} has {odd[:1]} in it; leave that out")


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
        _must(0 <= low <= high <= 999, place, problem)
        return TypeSpec(name, kind, minimum=low, maximum=high)
    pools: Pools = {}
    first: dict[str, str] = {}
    for split in _KINDS[kind]:
        at, pool = f"{place}.{split}", value[split]
        lists = pool["compose"] if isinstance(pool, dict) else [pool]
        size = math.prod(map(len, lists))
        _must(size <= POOL_LIMIT, at, f"{size} values; have {POOL_LIMIT} at most")
        _claim(first, lists[0], at)
        values = map(" ".join, itertools.product(*lists))
        pools[split] = _claim(said["value"], values, at)
    if kind == "enum":
        few = len(pools["values"]) < 2
        _must(not few, f"{place}.values", "fewer than 2 values; add some")
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
    _must(returns, f"{place}.returns", "nothing to return; add a field")
    slots, at = dict(arguments), f"{at}.parameters"
    _match(parameters["properties"], slots, slots, f"{at}.properties", "argument")
    same = sorted(map(str, parameters["required"])) == sorted(slots)
    _must(same, f"{at}.required", f"wrong; all are required, write {list(slots)}")
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
        _must(False, places[cycle[0]], problem)


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
            _must(known[source] == wanted[name], spot, problem)
            read.append(source)
        returns = tools[step["tool"]].returns
        known |= {f"#{index}.{field}": type_name for field, type_name in returns}
    results = [DONE, *(source for source in known if source[0] == "#")]
    _known(value["answer"], results, f"{place}.answer", "unknown source")
    for slot, _ in constants:
        at = f"{place}.constants.{slot}"
        _must(f"${slot}" in read, at, "used by no step; use it or remove it")
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
    needed = {need for name in steps for need in _needs(tools, steps, name)}
    for index, name in enumerate(steps):
        at = f"{place}.steps[{index}]"
        for need in _needs(tools, steps, name):
            late, found = need in steps[index:], need in steps
            _must(not late, at, f"{name!r} needs {need!r}, a later step; move it")
            problem = f"{name!r} needs {need!r}, which takes arguments; make it a step"
            _must(found or not tools[need].arguments, at, problem)
        serves = any(source.startswith(f"#{index}.") for source in read)
        serves = serves or tools[name].effect or name in needed
        _must(serves, at, f"{name!r} serves nothing; use its result or remove it")


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
            _must(False, place, f"{problem}; keep one of the two")
        said[text] = place
    return texts


def _match(given: Any, known: Any, needed: Any, place: str, what: str) -> None:
    for name in given:
        _known(name, known, _join(place, name), f"unknown {what}")
    for name in needed:
        _must(name in given, place, f"missing {what} {short(name)}; add it")


def _known(name: Any, known: Iterable[str], place: str, what: str) -> None:
    if name not in (names := list(known)):
        close = difflib.get_close_matches(str(name), names, 1)
        remedy = (
            f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
        )
        _must(False, place, f"{what} {short(name)}; {remedy}")


def _join(place: str, name: str) -> str:
    return f"{place}.{name}".strip(".")


def _must(fine: Any, place: str, message: str) -> None:
    if not fine:
        raise DomainError(f"{place or 'top level'}: {message}")
