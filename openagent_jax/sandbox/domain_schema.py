"""What a domain file looks like: the keys and values that it may have, and whether it
has them.

A schema says it with plain values: `key?` may be left out, `key:limit` is bounded by
that field of `Limits`, `*` is any name; a pair is a list or an object; lists are not
empty; a set holds the words allowed; a bare type says nothing of what is inside.
"""

import difflib
import re
from collections.abc import Iterable
from reprlib import repr as short
from typing import Any

from openagent_jax.sandbox.domain_spec import collected, must
from openagent_jax.types import Limits

HOLE = "FILL IN:"  # a text that begins so is for a person to replace
TWICE = object()  # stands for the value of a key that is written twice
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
LETTERS = "use letters, digits, _ and -, 64 at most, no digit first"

_POOLS = {"train": [str], "test": [str]}
_REWRITES = {"rewrite_train": [str], "rewrite_test": [str]}
_VALUES = ([str], {"compose": [[str]]})  # composed: all combinations, with blanks
KINDS = {
    "entity": {"train": _VALUES, "test": _VALUES, "shift": _VALUES},
    "enum": {"values": [str]},
    "number": {"minimum": int, "maximum": int},
}
SPLITS = tuple(KINDS["entity"])
UNDIVIDED = KINDS["enum"]  # an entity too may have one list: a third for each split
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
GOAL = {
    "name": NAME,
    "constants:num_constants": {"*": str},
    "steps:num_steps": [{"tool": str, "arguments": {"*": str}}],
    "answer": str,
    "phrases": {**_POOLS, **_REWRITES},
}
TOOL = {"type": {"function"}, "function": _FUNCTION, "x-openagent": _MEANING}
_HEAD = {"name": NAME, "description": str, "types": {"*": dict}}
DOMAIN = {**_HEAD, "tools:num_tools": [TOOL], "goals": [GOAL], "review?": [str]}
_WORDS = {dict: "an object", list: "a list", int: "a number", bool: "true or false"}


def check(value: Any, schema: Any, place: str, limits: Limits, limit: str = "") -> bool:
    """Compare with the schema from the top down, and look at every text."""
    if not must(value is not TWICE, place, "duplicate key; remove or rename one"):
        return False
    if isinstance(schema, tuple):
        schema = schema[isinstance(value, dict)]
    kind = schema if isinstance(schema, type) else type(schema)
    kind, word = (kind, _WORDS[kind]) if kind in _WORDS else (str, "a text")
    problem = f"{short(value)} is not {word}; write {word}"
    if not must(type(value) is kind, place, problem):
        return False
    if limit and len(value) > (room := getattr(limits, limit)):
        remedy = f"remove some or raise sandbox.{limit}"
        return must(
            False, place, f"{len(value)} entries, the limit is {room}; {remedy}"
        )
    fine = True
    if isinstance(schema, dict):
        rules = {re.split("[?:]", rule)[0]: rule for rule in schema}
        names = value if "*" in rules else rules
        needed = [name for name in names if not rules.get(name, "").endswith("?")]
        fine = match(value, names, needed, place, "key")
        for name in [name for name in value if name in names]:
            at, rule = _join(place, name), rules.get(name, "*")
            named = NAME.fullmatch(name)
            fine &= must(named, place, f"{short(name)} is no name; {LETTERS}")
            fine &= check(value[name], schema[rule], at, limits, rule.partition(":")[2])
    elif isinstance(schema, list):
        fine = must(value, place, "empty list; write one entry or more")
        for index, item in enumerate(value):
            fine &= check(item, schema[0], f"{place}[{index}]", limits)
    elif kind is str and value.startswith(HOLE):
        said = repr(value).replace(r"\\", "\\")  # a pattern as it is
        fine = must(False, place, f"still says {said}; write that in its place")
    elif isinstance(schema, set):
        fine = known(value, schema, place, "unknown word")
    elif isinstance(schema, re.Pattern):
        problem = f"{short(value)} is no name; {LETTERS}"
        fine = must(NAME.fullmatch(value), place, problem)
    elif kind is str:
        odd = [mark for mark in value if mark in '"\\' or not mark.isprintable()]
        trim = value == value.strip() != ""
        fine = must(
            trim, place, f"{short(value)} is empty or has outer blanks; trim it"
        )
        problem = f"{short(value)} has {odd[:1]} in it; leave that out"
        fine &= must(not odd, place, problem)
    return fine


def sound(value: Any, schema: Any, limits: Limits) -> bool:
    """Whether it passes; nobody is told of faults."""
    with collected():
        return check(value, schema, "", limits)


def match(given: Any, names: Any, needed: Any, place: str, what: str) -> bool:
    """All that is given has a name that is known, and all that is needed is given."""
    fine = True
    for name in given:
        fine &= known(name, names, _join(place, name), f"unknown {what}")
    for name in needed:
        fine &= must(name in given, place, f"missing {what} {short(name)}; add it")
    return fine


def known(name: Any, names: Iterable[str], place: str, what: str) -> bool:
    """It is one of the names; the remedy is the nearest of them, or their list."""
    if name in (all_names := list(names)):
        return True
    close = difflib.get_close_matches(str(name), all_names, 1)
    remedy = f"known: {', '.join(map(str, all_names))}"
    remedy = f"did you mean {close[0]!r}?" if close else remedy
    return must(False, place, f"{what} {short(name)}; {remedy}")


def fits(texts: Iterable[str], place: str, room: int) -> None:
    """No text is longer than what the sandbox can look up."""
    for text in texts:
        size = len(text.encode(errors="replace"))
        remedy = f"write {room} at most"
        must(size <= room, place, f"{short(text)} has {size} bytes; {remedy}")


def _join(place: str, name: str) -> str:
    return f"{place}.{name}".strip(".")
