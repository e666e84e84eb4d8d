"""Goals of a draft: one for each tool, and chains of tools that feed one another."""

import itertools
import re
from collections.abc import Iterable
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
    fed: dict[str, tuple[int, str]]  # argument -> step and field that it comes from


def goals(tools: list[Drafted], types: dict[str, Any]) -> list[dict[str, Any]]:
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
    tool: Drafted, tools: list[Drafted], types: dict[str, Any]
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
    tool: Drafted, tools: list[Drafted], types: dict[str, Any]
) -> Iterable[tuple[str, Drafted, str]]:
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
        behind = f" with {' and '.join(told)}" if told else ""
        clauses.append(tool.does.request + behind)
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
