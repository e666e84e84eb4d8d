"""Draft a domain file from a bare list of tools.

As much as names, descriptions and schemas allow: types and their values, what each tool
returns and whether it changes something, other words for all of it, a goal for each tool
and goals that chain them. What was guessed is listed under `review`; what nobody can
guess is a text that begins with FILL IN, which the reader of domain files refuses.
"""

import itertools
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from openagent_jax.sandbox import draft_types, style, tool_lists, value_pools, wording
from openagent_jax.sandbox.domain_schema import HOLE
from openagent_jax.sandbox.domain_spec import DONE
from openagent_jax.sandbox.tool_lists import Listed, Schema
from openagent_jax.types import Limits

NUM_CHAINS = 2  # goals that end in one tool


@dataclass(frozen=True)
class Draft:
    domain: dict[str, Any]
    holes: list[str]  # to fill in, by place
    review: list[str]  # guesses, by place


@dataclass(frozen=True)
class _Tool:
    listed: Listed
    description: str
    does: wording.Doing
    place: str
    arguments: dict[str, str]  # name -> type
    returns: dict[str, str]
    effect: bool


def draft(document: Any, name: str, skip: Collection[str] = ()) -> Draft:
    """
    Raises:
      DomainError: it is no list of tools, or one that the sandbox cannot hold.
    """
    listed = tool_lists.read(document, skip)
    said: set[str] = set()
    texts = [_describe(tool, said) for tool in listed]
    does = [wording.doing(tool.name, text) for tool, text in zip(listed, texts)]
    types = draft_types.Types(list(zip(listed, does)))
    arguments = [types.arguments(tool, what) for tool, what in zip(listed, does)]
    tools = []
    for index, (tool, what) in enumerate(zip(listed, does)):
        effect = what.effect if tool.effect is None else tool.effect
        returns = types.returns(tool, what, effect)
        at = f"tools[{index}].x-openagent"
        tools.append(
            _Tool(tool, texts[index], what, at, arguments[index], returns, effect)
        )
    made, notes = types.made()
    review = [*itertools.chain(*map(_notes, tools)), *notes]
    taken = {tool.name for tool in listed}
    name = re.sub("[^A-Za-z0-9_]+", "_", name).strip("_")[:50] or "my_tools"
    domain = {
        "name": name if name[0].isalpha() else f"tools_{name}",
        "description": f"{len(tools)} tools, drafted from a list",
        "types": made,
        "tools": [_block(tool, taken, said) for tool in tools],
        "goals": goals_of(tools, made),
    }
    if review:
        domain["review"] = [value_pools.plain(note) for note in review]
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
        yield f"{place}: {value.removeprefix(HOLE).strip(': ')}"


def _notes(tool: _Tool) -> Iterable[str]:
    name, listed, limits = tool.listed.name, tool.listed, Limits()
    if listed.dropped:
        gone = ", ".join(listed.dropped)
        yield f"{tool.place}.arguments: {name} is called without {gone} (optional)"
    for old, new in zip(listed.arguments, tool.arguments, strict=True):
        if old != new:
            yield f"{tool.place}.arguments: {old} of {name} is called {new} here"
    if len(tool.arguments) > limits.num_args:
        needs = f"--config.sandbox.num_args={len(tool.arguments)}"
        yield f"{tool.place}.arguments: {name} needs {needs}"
    if len(tool.arguments) > limits.num_constants:
        needs = f"--config.sandbox.num_constants={len(tool.arguments)}"
        yield f"{tool.place}.arguments: so does its goal {needs}"
    if listed.effect is None:
        says = "changes something" if tool.effect else "changes nothing"
        yield f"{tool.place}.effect: {name} {says}, by its words"
    shown = ", ".join(tool.returns)
    if not listed.returns:
        yield f"{tool.place}.returns: {name} returns {shown}, by its name"
    elif len(listed.returns) > len(tool.returns):
        others = len(listed.returns) - len(tool.returns)
        yield f"{tool.place}.returns: {name} returns {shown}; {others} more left out"


def _block(tool: _Tool, taken: set[str], said: set[str]) -> dict[str, Any]:
    listed = tool.listed
    spoken = {style.CODE, *tool.arguments}
    properties = {
        new: {"type": "integer" if _whole(schema) else "string"}
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


def _whole(schema: Schema) -> bool:
    return schema.get("type") in ("integer", "number")


# Goals.


@dataclass(frozen=True)
class _Call:
    tool: _Tool
    fed: dict[str, tuple[int, str]]  # argument -> step and field that it comes from


def goals_of(tools: list[_Tool], types: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each tool, and some whose steps feed one another."""
    chains = [[_Call(tool, {})] for tool in tools]
    for tool in tools:
        chains += itertools.islice(_chains(tool, tools, types), NUM_CHAINS)
    limits, made, said = Limits(), [], set()
    for chain in chains:
        goal = _goal(chain, types, said)
        room = len(chain) == 1 or len(goal["constants"]) <= limits.num_constants
        if room and goal["name"] not in [other["name"] for other in made]:
            made.append(goal)
    return made


def _chains(
    tool: _Tool, tools: list[_Tool], types: dict[str, Any]
) -> Iterable[list[_Call]]:
    """Ways to feed an argument of the tool by another one: short ones, then the longest
    that is found."""
    links = list(_feeders(tool, tools, types))
    short = []
    for argument, other, field in links:
        short.append([_Call(other, {}), _Call(tool, {argument: (0, field)})])
    for argument, other, field in links[:1]:
        chain, behind = [_Call(tool, {argument: (-1, field)})], other
        seen = {tool.listed.name}
        while behind.listed.name not in seen and len(chain) < Limits().num_steps - 1:
            seen.add(behind.listed.name)
            further = next(iter(_feeders(behind, tools, types)), None)
            if further is None or further[1].listed.name in seen:
                break
            chain.insert(0, _Call(behind, {further[0]: (-1, further[2])}))
            behind = further[1]
        chain.insert(0, _Call(behind, {}))
        if len(chain) > 2:
            yield [
                _Call(call.tool, {a: (i - 1, f) for a, (_, f) in call.fed.items()})
                for i, call in enumerate(chain)
            ]
    yield from short


def _feeders(
    tool: _Tool, tools: list[_Tool], types: dict[str, Any]
) -> Iterable[tuple[str, _Tool, str]]:
    """Arguments of a tool, and who returns such a value without being told it."""
    for argument, kind in tool.arguments.items():
        for other in tools:
            field = next((f for f, k in other.returns.items() if k == kind), None)
            useful = types[kind]["kind"] != "enum" and kind not in (
                other.arguments.values()
            )
            if field and useful and other is not tool:
                yield argument, other, field


def _goal(chain: list[_Call], types: dict[str, Any], said: set[str]) -> dict[str, Any]:
    constants: dict[str, str] = {}
    steps, clauses, listing = [], [], []
    for call in chain:
        tool, sources, told = call.tool, {}, []
        for argument, kind in tool.arguments.items():
            words = " ".join(wording.words(argument))
            if argument in call.fed:
                step, field = call.fed[argument]
                sources[argument] = f"#{step}.{field}"
                told.append(f"that {' '.join(wording.words(field))}")
                continue
            slot = re.sub("[^A-Za-z0-9_]", "_", argument)
            while constants.get(slot, kind) != kind:
                slot += "_2"
            if slot not in constants:
                listing.append(f"{words} {{{slot}}}")
            constants[slot] = kind
            sources[argument] = f"${slot}"
            told.append(f"{words} {{{slot}}}")
        steps.append({"tool": tool.listed.name, "arguments": sources})
        clauses.append(
            tool.does.phrase + (" with " if told else "") + " and ".join(told)
        )
    last = chain[-1].tool
    fields = sorted(
        last.returns, key=lambda x: types[last.returns[x]]["kind"] == "enum"
    )
    asked = " ".join(wording.words(fields[0]))
    answer, end = f"#{len(chain) - 1}.{fields[0]}", f" and tell me the {asked}"
    if last.effect:
        answer, end = DONE, ", then say done"
    elif len(fields) == 1 and len(chain) == 1:
        end = ""
    full = ", then ".join(clauses) + end
    names = [call.tool.listed.name for call in chain]
    short = ", ".join([" then ".join(c.tool.does.phrase for c in chain), *listing])
    short += {True: ", say done"}.get(last.effect, f", {asked}" if end else "")
    if f"{full} {short}" in said:
        full, short = f"{full} by {names[-1]}", f"{short} by {names[-1]}"
    said.add(f"{full} {short}")
    return {
        "name": "_then_".join(name[: 60 // len(names)] for name in names)[:64],
        "constants": constants,
        "steps": steps,
        "answer": answer,
        "phrases": wording.requests(full, short),
    }
