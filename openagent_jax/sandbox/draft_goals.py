"""Goals of a draft: one for each tool, and chains of tools that feed one another."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from openagent_jax.sandbox import wording
from openagent_jax.sandbox.domain_spec import DONE
from openagent_jax.sandbox.tool_lists import Listed
from openagent_jax.types import Limits

NUM_CHAINS = 2  # goals that end in one tool


@dataclass(frozen=True)
class Drafted:
    """A tool of the list, and what was found about it."""

    listed: Listed
    description: str
    does: wording.Doing
    arguments: dict[str, str]  # name -> type
    returns: dict[str, str]
    effect: bool


@dataclass(frozen=True)
class _Call:
    tool: Drafted
    fed: dict[str, str]  # argument -> field of the call before


def goals(tools: list[Drafted], types: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each tool, and some whose steps feed one another."""
    chains = [[_Call(tool, {})] for tool in tools]
    for tool in tools:
        chains += itertools.islice(_chains(tool, tools, types), NUM_CHAINS)
    limits, made, said = Limits(), {}, set()
    for chain in chains:
        goal = _goal(chain, types, said)
        if len(chain) == 1 or len(goal["constants"]) <= limits.num_constants:
            made.setdefault(goal["name"], goal)
    return list(made.values())


def _chains(
    tool: Drafted, tools: list[Drafted], types: dict[str, Any]
) -> Iterator[list[_Call]]:
    """Ways to feed an argument of the tool: a long one, then those of one more call."""
    longest = _longest(tool, tools, types, ())
    if len(longest) > 2:
        yield longest
    for argument, other, field in _feeders(tool, tools, types):
        yield [_Call(other, {}), _Call(tool, {argument: field})]


def _longest(
    tool: Drafted, tools: list[Drafted], types: dict[str, Any], behind: tuple
) -> list[_Call]:
    """Each fed by the first tool that can, as far as there is room."""
    behind = (*behind, tool)
    for argument, other, field in _feeders(tool, tools, types):
        if other not in behind and len(behind) < Limits().num_steps:
            before = _longest(other, tools, types, behind)
            return [*before, _Call(tool, {argument: field})]
    return [_Call(tool, {})]


def _feeders(
    tool: Drafted, tools: list[Drafted], types: dict[str, Any]
) -> Iterator[tuple[str, Drafted, str]]:
    """Arguments of a tool, and who returns such a value without being told it."""
    for argument, kind in tool.arguments.items():
        for other in tools:
            field = next((f for f, k in other.returns.items() if k == kind), None)
            told = kind in other.arguments.values() or types[kind]["kind"] == "enum"
            if field and not told and other is not tool:
                yield argument, other, field


def _goal(chain: list[_Call], types: dict[str, Any], said: set[str]) -> dict[str, Any]:
    constants: dict[str, str] = {}
    steps, clauses, listing = [], [], []
    for step, call in enumerate(chain):
        tool, sources, told = call.tool, {}, []
        for argument, kind in tool.arguments.items():
            words = " ".join(wording.words(argument))
            if argument in call.fed:
                field = call.fed[argument]
                sources[argument] = f"#{step - 1}.{field}"
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
        behind = f" with {' and '.join(told)}" if told else ""
        clauses.append(tool.does.request + behind)
    last = chain[-1].tool
    kinds = {field: types[kind]["kind"] for field, kind in last.returns.items()}
    fields = sorted(kinds, key=lambda field: kinds[field] == "enum")  # easily guessed
    asked = " ".join(wording.words(fields[0]))
    answer, end = f"#{len(chain) - 1}.{fields[0]}", f" and tell me the {asked}"
    if last.effect:
        answer, end = DONE, ", then say done"
    elif len(fields) == 1 and len(chain) == 1:
        end = ""
    full = ", then ".join(clauses) + end
    names = [call.tool.listed.name for call in chain]
    short = ", ".join([" then ".join(c.tool.does.request for c in chain), *listing])
    short += ", say done" if last.effect else f", {asked}" if end else ""
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
