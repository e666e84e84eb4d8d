"""A person as an agent: what a typed line means, and how it can be completed.

An action is typed as `tool arg=value other=value`, `tool(arg=value, other=value)` or
`call tool(...)`; `answer VALUE`, `ask` and `refuse`. A line with a slash, such as
`/plan`, is a command to the game. This module only handles texts; `launch` decides who
plays, and where.
"""

import ast
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from openagent_jax.text import style
from openagent_jax.text.messages import Call, Message, assistant

COMMANDS = {
    "/plan": "what the oracle would do from here (/plan start: from the start)",
    "/what": "what is perturbed, beside the clean task",
    "/tools": "the tools again",
    "/again": "play this task from the start",
    "/next": "the next task",
    "/help": "what can be typed",
    "/quit": "end the game",
}
WORDS = {
    "answer": "give the answer, and end the episode (answer done: nothing to tell)",
    "ask": "ask the user for what the request leaves out",
    "refuse": "say that the tools cannot do it, and end the episode",
}
_CALL, _CALL_ID = "call", "call"
# The name of an argument and "=", at the start of the text or after a separator.
_NAME = re.compile(r"(?:^|[\s,(])([^\s,()='\"\[\]{}]+)\s*=(?!=)\s*")
_SENTENCE = re.compile(r"\b[A-Z][\w'’-]*(?: [A-Z][\w'’-]*)*")  # names in a request
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?')  # with a colon it is a key
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w|\.\d)")


class Command(NamedTuple):
    """A command to the game."""

    name: str  # one of COMMANDS
    rest: str = ""


class Completion(NamedTuple):
    """A text that may replace the last `length` characters of a line."""

    text: str
    length: int
    about: str = ""


def read(line: str, tools: Sequence[Mapping[str, Any]]) -> Message | Command:
    """Return what a line says.

    Args:
      line: what was typed.
      tools: the tools that can be called, in OpenAI's function format.

    Raises:
      ValueError: it cannot be understood; the message is one line with the remedy.

    >>> look = {"name": "look", "parameters": {"properties": {"at": {}}}}
    >>> tools = [{"function": look}]
    >>> read("look at=Oak Bay", tools)["tool_calls"][0]["function"]
    {'name': 'look', 'arguments': '{"at": "Oak Bay"}'}
    >>> read("answer 4", tools)["content"], read("/quit", tools)
    ('Answer: 4', Command(name='/quit', rest=''))
    """
    line = line.strip()
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word.startswith("/"):
        if word not in COMMANDS:
            raise ValueError(f"there is no {word}{_closest(word, COMMANDS)}; see /help")
        return Command(word, rest)
    names = {tool["function"]["name"] for tool in tools}
    first = re.split(r"[\s(]", line, maxsplit=1)[0]
    spoken = word.lower().rstrip(":")
    if first not in names and spoken in WORDS:
        if spoken == "answer" and not rest:
            raise ValueError('answer what? "answer done" if there is nothing to tell')
        said = {"answer": style.ANSWER + rest, "ask": style.ASK, "refuse": style.REFUSE}
        return assistant(said[spoken])
    if forced := (first not in names and word == _CALL):
        line = rest
        first = re.split(r"[\s(]", line, maxsplit=1)[0]
    if not first:
        raise ValueError("type a tool with its arguments, or /help")
    if first not in names and not forced:
        close = _closest(first, [*names, *WORDS])
        raise ValueError(f'there is no tool "{first}"{close}; /tools lists them')
    tool = next((x for x in tools if x["function"]["name"] == first), None)
    arguments = _arguments(first, line[len(first) :], _properties(tool))
    text = json.dumps(arguments, ensure_ascii=False)
    return assistant("", [Call(_CALL_ID, first, text)])


def complete(
    line: str, tools: Sequence[Mapping[str, Any]], values: Iterable[str] = ()
) -> Iterator[Completion]:
    """Yield how a line can go on.

    Args:
      line: the line up to the cursor.
      tools: the tools that can be called.
      values: values of arguments and answers that have been seen; see `values_in`.

    >>> look = {"name": "look", "parameters": {"properties": {"at": {}}}}
    >>> tools = [{"function": look}]
    >>> for line in ("lo", "look ", "look at=O"):
    ...     print([x.text for x in complete(line, tools, ["Oak Bay", "9"])])
    ['look']
    ['at=']
    ['Oak Bay']
    """
    line = line.lstrip()
    if line.startswith("/"):
        yield from _matching(line, COMMANDS)
        return
    called = line[len(_CALL) :].lstrip() if line.startswith(f"{_CALL} ") else line
    match = re.match(r"([^\s(]+)[\s(]", called)
    described = {
        tool["function"]["name"]: tool["function"].get("description") or ""
        for tool in tools
    }
    if not match:
        words = {} if called != line else WORDS
        yield from _matching(called, described | words)
        return
    name, rest = match[1], called[match.end() :]
    tool = next((x for x in tools if x["function"]["name"] == name), None)
    if tool is None:
        if name == "answer":
            known = dict.fromkeys(values, "") | {"done": "there is nothing to tell"}
            yield from _matching(rest.lstrip(), known)
        return
    properties = _properties(tool)
    found = list(_NAME.finditer(rest))
    last = found[-1] if found else None
    if last and not _is_over(rest[last.end() :]):
        known = properties.get(last[1], {})
        own = known.get("enum") or (
            ["true", "false"] if known.get("type") == "boolean" else []
        )
        seen = dict.fromkeys([*map(str, own), *values], "")
        yield from _matching(rest[last.end() :].lstrip("'\""), seen)
        if not rest.endswith(" "):
            return
    given = {x[1] for x in found}
    left = {f"{key}=": _about(x) for key, x in properties.items() if key not in given}
    yield from _matching(re.split(r"[\s,(]", rest)[-1], left)


def values_in(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return values that a conversation contains, the latest first, each once.

    >>> user = {"role": "user", "content": "When does Oak Bay open on day 4?"}
    >>> values_in([user, {"role": "tool", "content": '{"hour":"9"}'}])
    ['9', '4', 'Oak Bay']
    """
    found: dict[str, None] = {}
    for message in messages:
        content = message.get("content") or ""
        if message["role"] == "user":
            names = _SENTENCE.finditer(content)
            # A single word that begins the sentence is not a name.
            some = [m[0] for m in names if m.start() or " " in m[0]]
            some += _NUMBER.findall(content)
        elif message["role"] == "tool":
            some = [text for text, colon in _STRING.findall(content) if not colon]
            some += _NUMBER.findall(_STRING.sub("", content))
        else:
            continue
        for value in some:
            found.pop(value, None)
            found[value] = None
    return [x for x in reversed(found) if x]


def signature(tool: Mapping[str, Any]) -> str:
    """Return how a tool is called, with optional arguments in brackets.

    >>> signature({"function": {"name": "sign_in"}})
    'sign_in()'
    """
    properties = _properties(tool)
    schema = tool["function"].get("parameters") or {}
    required = schema.get("required", list(properties))
    shown = (key if key in required else f"[{key}]" for key in properties)
    return f"{tool['function']['name']}({', '.join(shown)})"


def _arguments(name: str, text: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Read the arguments of a call."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    elif text.startswith("("):
        raise ValueError(f'"{name}{text}" lacks a closing ")"')
    if not text:
        return {}
    if text.startswith("{"):
        try:
            made = json.loads(text)
        except ValueError as error:
            raise ValueError(f"the arguments of {name} are not JSON: {error}") from None
        if isinstance(made, dict):
            return made
    found = [m for m in _NAME.finditer(text) if not _is_inside(text[: m.start(1)])]
    if not found and len(properties) == 1:  # the name of the only one may be left out
        (key,) = properties
        return {key: _value(text, properties[key])}
    if not found or text[: found[0].start(1)].strip():
        known = " ".join(f"{key}=..." for key in properties)
        raise ValueError(
            f"write arguments as name=value: {name} {known}"
            if known
            else f"{name} takes no arguments"
        )
    made = {}
    ends = [*(m.start() for m in found[1:]), len(text)]
    for m, end in zip(found, ends, strict=True):
        if m[1] in made:
            raise ValueError(f"{m[1]} is given twice")
        value = text[m.end() : end].strip().removesuffix(",").strip()
        made[m[1]] = _value(value, properties.get(m[1], {}))
    return made


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """Read a value: a literal of JSON or Python, or else a string without quotes."""
    quoted = text[:1] in ("'", '"')
    if not quoted and schema.get("type") == "string":
        return text
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
            json.dumps(value, allow_nan=False)  # raises for what JSON does not have
            return value
        except (TypeError, ValueError, SyntaxError, RecursionError, MemoryError):
            pass
    return text


def _is_inside(text: str) -> bool:
    """Tell whether a text ends within quotes or brackets.

    >>> _is_inside("a='x, "), _is_inside("a=[1, "), _is_inside("a=it's, ")
    (True, True, False)
    """
    quote, depth, before = "", 0, " "
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and before in " =([{,:":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        before = character
    return bool(quote) or depth > 0


def _is_over(value: str) -> bool:
    """Tell whether a value is finished, so that another argument may follow.

    >>> _is_over("4, "), _is_over("'Oak Bay' "), _is_over("Oak")
    (True, True, False)
    """
    if _is_inside(value):
        return False
    if value[:1] in ("'", '"', "[", "{"):
        return True
    return "," in value


def _matching(begin: str, texts: Mapping[str, str]) -> Iterator[Completion]:
    """Yield the texts that start with `begin`, ignoring case."""
    for text, about in texts.items():
        if text.lower().startswith(begin.lower()):
            yield Completion(text, len(begin), about)


def _properties(tool: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the schemas of a tool's parameters, by name."""
    if tool is None:
        return {}
    return (tool["function"].get("parameters") or {}).get("properties") or {}


def _about(schema: Mapping[str, Any]) -> str:
    return str(schema.get("description") or schema.get("type") or "")


def _closest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f'; did you mean "{close[0]}"?' if close else ""
