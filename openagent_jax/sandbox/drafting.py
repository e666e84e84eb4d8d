"""Draft a domain file from a bare list of tools.

As much as names, descriptions and schemas allow: types and their values, what each tool
returns and whether it changes something, other words for all of it, a goal for each
tool and goals that chain them. What was guessed is listed under `review`; what nobody
can guess is a text that begins with FILL IN, which the reader of domain files refuses.
"""

import itertools
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from openagent_jax.sandbox import (
    draft_goals,
    draft_types,
    style,
    tool_lists,
    value_pools,
    wording,
)
from openagent_jax.sandbox.domain_schema import HOLE
from openagent_jax.sandbox.draft_goals import Drafted
from openagent_jax.sandbox.tool_lists import Listed
from openagent_jax.types import Limits

WIDTH = 88  # of a written file


@dataclass(frozen=True)
class Draft:
    domain: dict[str, Any]
    holes: list[str]  # to fill in, by place
    review: list[str]  # guesses, by place


def draft(document: Any, name: str, skip: Collection[str] = ()) -> Draft:
    """
    Args:
      document: a list of tools, as it was read from a file.
      name: of the domain.
      skip: names of tools that are left out.

    Raises:
      DomainError: it is no list of tools, or one that the sandbox cannot hold.
    """
    listed = tool_lists.read(document, skip)
    said: set[str] = set()
    texts = [_describe(tool, said) for tool in listed]
    both = list(zip(listed, texts, strict=True))
    pairs = [(tool, wording.doing(tool.name, text)) for tool, text in both]
    types = draft_types.Types(pairs)
    arguments = [types.arguments(*pair) for pair in pairs]
    tools = []
    for index, (tool, does) in enumerate(pairs):
        effect = does.effect if tool.effect is None else tool.effect
        returns = types.returns(tool, does, effect)
        made = texts[index], does, arguments[index], returns, effect
        tools.append(Drafted(tool, *made))
    made, notes = types.made()
    of_each = itertools.chain(*map(_notes, itertools.count(), tools))
    notes = [*_effects(tools), *of_each, *notes]
    review = [value_pools.plain(note) for note in notes]
    taken = {tool.name for tool in listed}
    name = re.sub("[^A-Za-z0-9_]+", "_", name).strip("_")[:50] or "my_tools"
    domain = {
        "name": name if name[0].isalpha() else f"tools_{name}",
        "description": f"{len(tools)} tools, drafted from a list",
        "types": made,
        "tools": [_block(tool, taken, said) for tool in tools],
        "goals": draft_goals.goals(tools, made),
    }
    if review:
        domain["review"] = review
    return Draft(domain, list(_holes(domain, "")), review)


def _describe(tool: Listed, said: set[str]) -> str:
    """The first sentence of its description, or else what its name says; no two tools
    say the same."""
    text = wording.sentence(tool.description) or " ".join(wording.words(tool.name))
    text = text if text not in said else f"{text}, as {tool.name}"
    said.add(text)
    return text


def _holes(value: Any, place: str) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _holes(item, f"{place}.{key}".strip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _holes(item, f"{place}[{index}]")
    elif isinstance(value, str) and value.startswith(HOLE):
        yield f"{place}: {value.removeprefix(HOLE).strip()}"


def _effects(tools: list[Drafted]) -> Iterable[str]:
    """Which tools change something, where nobody says so."""
    guessed = [tool for tool in tools if tool.listed.effect is None]
    names = [tool.listed.name for tool in guessed if tool.effect]
    if guessed:
        told = ", ".join(names) or "none"
        yield f"tools: what changes something (effect), by its words: {told}"
    if (num := len(tools)) > Limits().num_tools:
        yield f"tools: so many need --config.sandbox.num_tools={num}"


def _notes(index: int, tool: Drafted) -> Iterable[str]:
    """What was guessed of a tool, and what was left out."""
    name, listed, limits = tool.listed.name, tool.listed, Limits()
    at, num = f"tools[{index}].x-openagent", len(tool.arguments)
    if listed.dropped:
        gone = f"{', '.join(listed.dropped)} (optional, or always the same)"
        yield f"{at}.arguments: {name} does without {gone}"
    for old, new in zip(listed.arguments, tool.arguments, strict=True):
        if old != new:
            yield f"{at}.arguments: {old} of {name} is called {new} here"
    for key, room in vars(limits).items():
        if key in ("num_args", "num_constants") and num > room:
            yield f"{at}.arguments: {name} needs --config.sandbox.{key}={num}"
    shown, others = ", ".join(tool.returns), len(listed.returns) - len(tool.returns)
    if not listed.returns:
        yield f"{at}.returns: {name} returns {shown}, by its name"
    elif others > 0:
        yield f"{at}.returns: {name} returns {shown}; {others} more left out"


def _block(tool: Drafted, taken: set[str], said: set[str]) -> dict[str, Any]:
    listed = tool.listed
    spoken = {style.CODE, *tool.arguments}
    properties = {
        new: {"type": "integer" if value_pools.is_whole(schema) else "string"}
        for new, schema in zip(tool.arguments, listed.arguments.values(), strict=True)
    }

    def pools(made: dict[str, list[str]], claimed: set[str], num: int):
        return {
            split: wording.unclaimed(texts, claimed, num)
            for split, texts in made.items()
        }

    return {
        "type": "function",
        "function": {
            "name": listed.name,
            "description": tool.description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
            },
        },
        "x-openagent": {
            "arguments": tool.arguments,
            "returns": tool.returns,
            **({"effect": True} if tool.effect else {}),
            "names": pools(wording.names(listed.name, tool.does), taken, 3),
            "descriptions": pools(wording.descriptions(tool.does), said, 3),
            "argument_names": {
                argument: pools(wording.arguments(argument), spoken, 2)
                for argument in tool.arguments
            },
        },
    }


def written(value: Any, indent: str = "") -> str:
    """JSON for people: what fits is on one line, and the texts of a list fill lines."""
    text = json.dumps(value, ensure_ascii=False)
    if len(indent + text) <= WIDTH or not isinstance(value, dict | list) or not value:
        return text
    inner = f"{indent}  "
    if isinstance(value, dict):
        names = (json.dumps(key, ensure_ascii=False) for key in value)
        lines = [
            f"{inner}{name}: {written(item, inner)}"
            for name, item in zip(names, value.values(), strict=True)
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    parts = [written(item, inner) for item in value]
    lines = [inner + parts[0]]
    for part in parts[1:]:
        lines[-1] += ","
        if "\n" in lines[-1] + part or len(f"{lines[-1]} {part},") > WIDTH:
            lines.append(inner)
        lines[-1] += part if lines[-1] == inner else f" {part}"
    return "[\n" + "\n".join(lines) + f"\n{indent}]"
