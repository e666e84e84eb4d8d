"""Propose the goals of a draft: one for each tool, and chains of tools.

In a chain, a result of one tool is an argument of the next. Optional arguments are left
out, but for one goal that gives each.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openagent_jax.domains import lookalikes
from openagent_jax.domains.domain_spec import DONE
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import draft_types, list_results
from openagent_jax.drafting.tool_lists import ListedTool
from openagent_jax.text import nesting, synonyms, wording

NUM_CHAINS = 2  # most goals of several steps that end in the same tool


@dataclass(frozen=True)
class DraftedTool:
    """A tool of the list and what was found out about it.

    Attributes:
      listed: the tool as it is in the list.
      function: its function object in the domain file.
      does: what the tool does.
      arguments: the type of each argument, by name.
      optional: the names of the optional ones.
      returns: the type of each field of its result, by path; of a list of records,
        those of the first one.
      effect: whether it changes something.
      lists: the most records of each list that it returns, by path.
    """

    listed: ListedTool
    function: dict[str, Any]
    does: wording.Purpose
    arguments: dict[str, str]
    optional: tuple[str, ...]
    returns: dict[str, str]
    effect: bool
    lists: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def required(self) -> dict[str, str]:
        """The type of each required argument, by name."""
        return {k: v for k, v in self.arguments.items() if k not in self.optional}


@dataclass(frozen=True)
class _Call:
    tool: DraftedTool
    from_previous: dict[str, str]  # argument -> field of the previous call's result
    given: str = ""  # an optional argument

    @property
    def arguments(self) -> dict[str, str]:
        """The type of each argument that it gives, by name."""
        given = {*self.tool.required, self.given}
        return {k: v for k, v in self.tool.arguments.items() if k in given}


def goals(
    tools: list[DraftedTool], types: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the goals of a domain file, and notes on those that are left out.

    There is one for each tool and one for each optional argument, then the chains. A
    goal is left out if its request could as well mean another tool: one whose document
    differs only in the name, or one whose request would read the same.

    Args:
      tools: all tools.
      types: the types of the domain file, by name.
    """
    alike = [
        [tools[index].listed.name for index in group]
        for group in lookalikes.groups([tool.function for tool in tools])
    ]
    notes = [
        f"goals: none with {', '.join(names)}: their documents differ only in the name "
        "and each does what is asked of the other; tell them apart in descriptions"
        for names in alike
    ]
    unclear = {name for names in alike for name in names}
    clear = [tool for tool in tools if tool.listed.name not in unclear]
    chains = [[_Call(tool, {})] for tool in clear]
    chains += [[_Call(tool, {}, x)] for tool in clear for x in tool.optional]
    for tool in clear:
        chains += itertools.islice(_chains(tool, clear, types), NUM_CHAINS)
    limits, made = Limits(), {}
    for chain in chains:
        goal = _goal(chain, types)
        is_needed = len(chain) == 1 and not chain[0].given
        if is_needed or len(goal["constants"]) <= limits.num_constants:
            made.setdefault(goal["name"], (chain, goal))
    for names in _same_requests(made):
        for name in names:
            chain, _ = made[name]
            if chain[-1].tool.listed.returns:  # else their names are guessed
                made[name] = chain, _goal(chain, types, tells=True)
    for names in _same_requests(made):
        notes.append(
            f"goals: none for {', '.join(names)}: their requests would read the same; "
            "write goals whose requests tell them apart"
        )
        for name in names:
            del made[name]
    return [goal for _, goal in made.values()], notes


def _same_requests(made: dict[str, tuple[list[_Call], dict]]) -> list[list[str]]:
    """Return the names of the goals whose requests read the same, by group."""
    names: dict[str, list[str]] = {}
    for name, (_, goal) in made.items():
        names.setdefault(json.dumps(goal["phrases"]), []).append(name)
    return [group for group in names.values() if len(group) > 1]


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
    for argument, kind in tool.required.items():
        for other in tools:
            field = next((f for f, k in other.returns.items() if k == kind), None)
            is_given = kind in other.required.values()
            is_choice = types[kind]["kind"] == "enum"
            if field and not is_given and not is_choice and other is not tool:
                yield argument, other, field


def _spoken(argument: str) -> str:
    """Return the words for an argument, none of them twice in a row.

    >>> [_spoken(x) for x in ("dueDate", "to.city", "tags.0", "tags.1")]
    ['due date', 'to city', 'tag', 'second tag']
    >>> _spoken("labels.0.labelType")
    'label type'
    """
    words = [x for key in draft_types.spoken_keys(argument) for x in wording.words(key)]
    words = [word for word, _ in itertools.groupby(words)]
    later = [key for key in nesting.parse(argument) if isinstance(key, int) and key]
    return " ".join(["second"] * bool(later) + words)


def _noun(tool: DraftedTool, field: str) -> str:
    """Return the words for a field of the result of a tool: "id of the first task"."""
    path = nesting.parse(field)
    outer = list_results.list_of(path)
    if nesting.written(outer) in tool.lists:
        *more, last = wording.words(str(outer[-1]))
        record = "record" if last == "data" else wording.singular(last)
        record = " ".join([*more, record])
        return f"{_own(path[len(outer) + 1 :], '')} of the first {record}"
    return _own(path, tool.returns[field])


def _own(path: nesting.Path, kind: str) -> str:
    """Return the words for a field, in its own words if these say enough.

    >>> _own(("due", "dueDate"), "due_date"), _own(("owner", "name"), "owner_name")
    ('due date', 'owner name')
    >>> _own(("name",), "order_name"), _own(("tags", 0), "tag")
    ('order name', 'first tag')
    """
    *around, own = draft_types.spoken_keys(nesting.written(path))
    words = wording.words(own)
    if len(words) == 1:
        outer = wording.words(around[-1]) if around else wording.words(kind)[:-1]
        if around or [*outer, *words] == wording.words(kind):
            words = [*outer, *words]
    words = [*["first"] * isinstance(path[-1], int), *words]
    return _quoted(" ".join(word for word, _ in itertools.groupby(words)))


def _quoted(words: str) -> str:
    """Put words in quotes if they would otherwise be read as part of the sentence."""
    is_open = words.split()[-1] in synonyms.FUNCTION_WORDS
    return f"'{words}' value" if is_open else words


def _reference(chain: list[_Call], step: int, field: str, kind: str) -> str:
    """Return how a request names a value that the call before a step returns."""
    noun = _noun(chain[step - 1].tool, field)
    # Another value that is called so, in what the request has said up to here.
    others = [
        argument
        for call in chain[: step + 1]
        for argument, other in call.arguments.items()
        if other == kind
        and not (call is chain[step] and argument in call.from_previous)
    ]
    if others:
        return f"the {noun} from that step"
    return f"the {noun}" if " of the first " in noun else f"that {noun}"


def _goal(
    chain: list[_Call], types: dict[str, Any], tells: bool = False
) -> dict[str, Any]:
    """Return the goal of a chain.

    Args:
      chain: its calls.
      types: the types of the domain file, by name.
      tells: whether the request names what it asks for even if the result has only one
        field.
    """
    constants: dict[str, str] = {}
    steps, clauses, short_clauses, slots = [], [], [], []
    for step, call in enumerate(chain):
        tool, sources, values, references = call.tool, {}, [], []
        for argument, kind in call.arguments.items():
            words = _spoken(argument)
            if argument in call.from_previous:
                field = call.from_previous[argument]
                sources[argument] = f"#{step - 1}.{field}"
                values.append(_reference(chain, step, field, kind))
                references += values[-1:]
                continue
            slot = re.sub("[^A-Za-z0-9_]+", "_", argument)
            while constants.get(slot, kind) != kind:
                slot += "_2"
            if slot not in constants:
                slots.append(f"{words} {{{slot}}}")
            constants[slot] = kind
            sources[argument] = f"${slot}"
            values.append(f"{words} {{{slot}}}")
        steps.append({"tool": tool.listed.name, "arguments": sources})
        request = tool.does.request
        joint = ", using" if " with " in request else " with"
        with_values = f"{joint} {' and '.join(values)}" if values else ""
        clauses.append(request + with_values)
        # What "that id" is goes without saying, but not which record of a list.
        needed = [x for x in references if not x.startswith("that ")]
        short_clauses.append(" with ".join([request, *needed]))
    last = chain[-1].tool
    kinds = {field: types[kind]["kind"] for field, kind in last.returns.items()}
    # An enum is easily guessed, so it is the answer only if there is nothing else.
    answer_field = min(kinds, key=lambda field: kinds[field] == "enum")
    asked = _noun(last, answer_field)
    if pages := last.listed.pages:
        answer_field = f"count({pages.path})"
        listed = wording.words(str(nesting.parse(pages.path)[-1]))
        asked = f"number of {' '.join(listed) if listed != ['data'] else 'records'}"
    answer, end = f"#{len(chain) - 1}.{answer_field}", f" and tell me the {asked}"
    if last.effect:
        answer, end = DONE, ", then say done"
    elif len(kinds) == 1 and len(chain) == 1 and not (tells or last.lists):
        end = ""
    full = ", then ".join(clauses) + end
    names, given = [call.tool.listed.name for call in chain], chain[-1].given
    name = "_then_".join(name[: 60 // len(names)] for name in names)[:64]
    short = ", ".join([" then ".join(short_clauses), *slots])
    short += ", say done" if last.effect else f", {asked}" if end else ""
    return {
        "name": f"{name}_with_{re.sub('[^A-Za-z0-9_-]+', '_', given)}"[:64]
        if given
        else name,
        "constants": constants,
        "steps": steps,
        "answer": answer,
        "phrases": wording.requests(full, short),
    }
