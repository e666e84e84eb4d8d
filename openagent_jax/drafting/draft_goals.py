"""Propose the goals of a draft: one for each tool, and chains of tools.

In a chain, a result of one tool is an argument of the next.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from openagent_jax.drafting.tool_lists import ListedTool
from openagent_jax.environments.tools.types import Limits
from openagent_jax.environments.tools.worlds.domain_spec import DONE
from openagent_jax.text import wording

NUM_CHAINS = 2  # most goals of several steps that end in the same tool


@dataclass(frozen=True)
class DraftedTool:
    """A tool of the list and what was found out about it.

    Attributes:
      listed: the tool as it is in the list.
      description: the description it gets in the domain file.
      does: what the tool does.
      arguments: the type of each argument, by name.
      returns: the type of each field of its result, by name.
      effect: whether it changes something.
    """

    listed: ListedTool
    description: str
    does: wording.Purpose
    arguments: dict[str, str]
    returns: dict[str, str]
    effect: bool


@dataclass(frozen=True)
class _Call:
    tool: DraftedTool
    from_previous: dict[str, str]  # argument -> field of the previous call's result


def goals(tools: list[DraftedTool], types: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the goals of a domain file: one for each tool, then the chains.

    Args:
      tools: all tools.
      types: the types of the domain file, by name.
    """
    chains = [[_Call(tool, {})] for tool in tools]
    for tool in tools:
        chains += itertools.islice(_chains(tool, tools, types), NUM_CHAINS)
    limits, made, phrases = Limits(), {}, set()
    for chain in chains:
        goal = _goal(chain, types, phrases)
        if len(chain) == 1 or len(goal["constants"]) <= limits.num_constants:
            made.setdefault(goal["name"], goal)
    return list(made.values())


def _chains(
    tool: DraftedTool, tools: list[DraftedTool], types: dict[str, Any]
) -> Iterator[list[_Call]]:
    """Yield chains that end in a tool: a long one, then those of two calls."""
    longest = _longest_chain(tool, tools, types, ())
    if len(longest) > 2:
        yield longest
    for argument, other, field in _sources(tool, tools, types):
        yield [_Call(other, {}), _Call(tool, {argument: field})]


def _longest_chain(
    tool: DraftedTool, tools: list[DraftedTool], types: dict[str, Any], later: tuple
) -> list[_Call]:
    """Put the first possible source before each call, up to the limit of steps."""
    later = (*later, tool)
    for argument, other, field in _sources(tool, tools, types):
        if other not in later and len(later) < Limits().num_steps:
            earlier = _longest_chain(other, tools, types, later)
            return [*earlier, _Call(tool, {argument: field})]
    return [_Call(tool, {})]


def _sources(
    tool: DraftedTool, tools: list[DraftedTool], types: dict[str, Any]
) -> Iterator[tuple[str, DraftedTool, str]]:
    """Yield `(argument, other tool, field)` where the field can be the argument.

    The other tool must not take that value as an argument itself.
    """
    for argument, kind in tool.arguments.items():
        for other in tools:
            field = next((f for f, k in other.returns.items() if k == kind), None)
            is_given = kind in other.arguments.values()
            is_choice = types[kind]["kind"] == "enum"
            if field and not is_given and not is_choice and other is not tool:
                yield argument, other, field


def _goal(
    chain: list[_Call], types: dict[str, Any], phrases: set[str]
) -> dict[str, Any]:
    """Return a goal with a request that no other goal has; add it to `phrases`."""
    constants: dict[str, str] = {}
    steps, clauses, slots = [], [], []
    for step, call in enumerate(chain):
        tool, sources, values = call.tool, {}, []
        for argument, kind in tool.arguments.items():
            words = " ".join(wording.words(argument))
            if argument in call.from_previous:
                field = call.from_previous[argument]
                sources[argument] = f"#{step - 1}.{field}"
                values.append(f"that {' '.join(wording.words(field))}")
                continue
            slot = re.sub("[^A-Za-z0-9_]", "_", argument)
            while constants.get(slot, kind) != kind:
                slot += "_2"
            if slot not in constants:
                slots.append(f"{words} {{{slot}}}")
            constants[slot] = kind
            sources[argument] = f"${slot}"
            values.append(f"{words} {{{slot}}}")
        steps.append({"tool": tool.listed.name, "arguments": sources})
        with_values = f" with {' and '.join(values)}" if values else ""
        clauses.append(tool.does.request + with_values)
    last = chain[-1].tool
    kinds = {field: types[kind]["kind"] for field, kind in last.returns.items()}
    # An enum is easily guessed, so it is the answer only if there is nothing else.
    answer_field = min(kinds, key=lambda field: kinds[field] == "enum")
    asked = " ".join(wording.words(answer_field))
    answer, end = f"#{len(chain) - 1}.{answer_field}", f" and tell me the {asked}"
    if last.effect:
        answer, end = DONE, ", then say done"
    elif len(kinds) == 1 and len(chain) == 1:
        end = ""
    full = ", then ".join(clauses) + end
    names = [call.tool.listed.name for call in chain]
    short = ", ".join([" then ".join(c.tool.does.request for c in chain), *slots])
    short += ", say done" if last.effect else f", {asked}" if end else ""
    if f"{full} {short}" in phrases:
        full, short = f"{full} by {names[-1]}", f"{short} by {names[-1]}"
    phrases.add(f"{full} {short}")
    return {
        "name": "_then_".join(name[: 60 // len(names)] for name in names)[:64],
        "constants": constants,
        "steps": steps,
        "answer": answer,
        "phrases": wording.requests(full, short),
    }
