"""Draft a domain file from a bare list of tools.

The draft contains what names, descriptions and schemas allow to guess: types and their
values, what each tool returns and whether it changes something, paraphrases of all
texts, a goal for each tool, and goals that chain tools. Guesses are listed under
`review`. What cannot be guessed becomes a text that begins with FILL IN, which
`domain_file.load` rejects.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from openagent_jax.domains import nested_arguments
from openagent_jax.domains.domain_schema import HOLE
from openagent_jax.domains.domain_spec import require
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import (
    draft_goals,
    draft_types,
    list_pages,
    list_results,
    optional_arguments,
    telling_sentences,
    tool_lists,
    value_pools,
)
from openagent_jax.drafting.draft_goals import DraftedTool
from openagent_jax.drafting.list_schemas import JSON_TYPES
from openagent_jax.drafting.tool_lists import ListedTool
from openagent_jax.text import messages, nesting, schema_paths, style, wording


@dataclass(frozen=True)
class Draft:
    """A drafted domain.

    Attributes:
      domain: the content of the domain file.
      holes: the texts that a person has to fill in, each as `place: what`.
      review: the guesses, each as `place: guess`.
    """

    domain: dict[str, Any]
    holes: list[str]
    review: list[str]


def draft(document: Any, name: str, skip: Collection[str] = ()) -> Draft:
    """Draft a domain from a list of tools.

    >>> schema = {"properties": {"city": {"type": "string"}}}
    >>> tool = {"name": "get_weather", "parameters": schema}
    >>> made = draft([{"type": "function", "function": tool}], "my tools")
    >>> made.domain["name"], list(made.domain["types"])
    ('my_tools', ['city', 'weather'])
    >>> made.domain["goals"][0]["phrases"]["train"][0]
    'Please get weather with city {city}.'

    Args:
      document: the list as parsed from JSON; see `tool_lists.read`.
      name: the name of the domain; characters that a name cannot have are replaced.
      skip: names of tools to leave out.

    Raises:
      DomainError: the document is not a list of tools, or it has a tool that the
        environment cannot represent.
    """
    listed = optional_arguments.chosen(tool_lists.read(document, skip))
    told = telling_sentences.of([tool.description for tool in listed])
    named = zip([tool.name for tool in listed], told, strict=True)
    purposes = list(itertools.starmap(wording.purpose, named))
    pairs = list(zip(listed, purposes, strict=True))
    types = draft_types.Types(pairs)
    arguments = [types.arguments(*pair) for pair in pairs]
    tools = []
    for (tool, does), names in zip(pairs, arguments, strict=True):
        effect = does.effect if tool.effect is None else tool.effect
        if effect:  # a call that changes something has one result
            tool = dataclasses.replace(tool, pages=None)
        returns = types.returns(tool, does, effect)
        function = _function(tool, names)
        renamed = zip(tool.arguments, names, strict=True)
        optional = tuple(new for old, new in renamed if old in tool.optional)
        drafted = DraftedTool(tool, function, does, names, optional, returns, effect)
        tools.append(drafted)
    definitions, type_notes = types.definitions()
    type_notes += _length_notes(definitions)
    tools = [_with_lists(tool, definitions) for tool in tools]
    tool_notes = itertools.chain(*map(_tool_notes, itertools.count(), tools))
    goals, goal_notes = draft_goals.goals(tools, definitions)
    problem = "; ".join(note.removeprefix("goals: ") for note in goal_notes)
    require(goals, "tools", f"no goal can be drafted: {problem}")
    notes = [*_list_notes(tools), *tool_notes, *type_notes, *goal_notes]
    review = [value_pools.printable(note) for note in notes]
    taken = {tool.name for tool in listed}
    descriptions = {tool.function["description"] for tool in tools}
    name = re.sub("[^A-Za-z0-9_]+", "_", name).strip("_")[:50] or "my_tools"
    domain = {
        "name": name if name[0].isalpha() else f"tools_{name}",
        "description": f"{len(tools)} tools, drafted from a list",
        "types": definitions,
        "tools": [_tool_entry(tool, taken, descriptions) for tool in tools],
        "goals": goals,
    }
    if review:
        domain["review"] = review
    return Draft(domain, list(_holes(domain, "")), review)


def _function(tool: ListedTool, arguments: Iterable[str]) -> dict[str, Any]:
    """Return the function object of a tool as it is in the list, word for word.

    Only a name that the environment reserves is replaced, and a missing description.

    Args:
      tool: the tool.
      arguments: the name of each of its arguments in the domain file.
    """
    described = tool.description if tool.description.strip() else _in_words(tool)
    renamed = dict(zip(tool.arguments, arguments, strict=True))
    return messages.reworded(tool.function, tool.name, described, renamed)


def _in_words(tool: ListedTool) -> str:
    return " ".join(wording.words(tool.name))


def _holes(value: Any, place: str) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key != "function":  # it is as it was in the list
                yield from _holes(item, f"{place}.{key}".strip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _holes(item, f"{place}[{index}]")
    elif isinstance(value, str) and value.startswith(HOLE):
        yield f"{place}: {value.removeprefix(HOLE).strip()}"


def _list_notes(tools: list[DraftedTool]) -> Iterable[str]:
    """Yield notes on the list: guessed effects, new names, the limit that it needs."""
    guessed = [tool for tool in tools if tool.listed.effect is None]
    if guessed:
        names = ", ".join(tool.listed.name for tool in guessed if tool.effect)
        guess = "tools that change something (effect), judging by their words"
        yield f"tools: {guess}: {names or 'none'}; mark others with effect: true"
    for index, tool in enumerate(tools):
        if listed_as := _listed_as(tool):
            name = f"{listed_as} is called {tool.listed.name}; agents see that name"
            yield f"tools[{index}].x-openagent.listed_as: {name}"
    if any(tool.listed.has_new_types for tool in tools):
        types = ", ".join(f"{new} for {old}" for old, new in JSON_TYPES.items())
        yield f"tools: types have the names of JSON Schema: {types}"
    if (num := len(tools)) > Limits().num_tools:
        yield f"tools: {num} tools need --config.sandbox.num_tools={num}"


def _listed_as(tool: DraftedTool) -> str:
    """Return the name that the list has for a tool; "" if the draft keeps it."""
    name = str(tool.listed.function.get("name"))
    return "" if name == tool.listed.name else name


def _length_notes(types: dict[str, Any]) -> Iterable[str]:
    """Yield notes on choices that are longer than the limit."""
    for name, kind in types.items():
        values = kind.get("values", ()) if kind["kind"] == "enum" else ()
        texts = (x for x in values if isinstance(x, str))
        size = max((len(text.encode()) for text in texts), default=0)
        if size > Limits().value_bytes:
            yield f"types.{name}: it needs --config.sandbox.value_bytes={size}"


def _tool_notes(index: int, tool: DraftedTool) -> Iterable[str]:
    """Yield notes on what was guessed of a tool, and what was left out."""
    name, listed, limits = tool.listed.name, tool.listed, Limits()
    place = f"tools[{index}].x-openagent"
    num_args = len(tool.arguments) + bool(listed.pages)
    num = {"num_args": num_args, "num_constants": len(tool.required)}
    for argument, decision in listed.unions.items():
        if argument in listed.arguments:
            yield f"{place}.arguments: {name}, {decision}"
    if listed.dropped:
        dropped = ", ".join(listed.dropped)
        what = f"left out of {name}: {dropped} (optional)"
        yield f"{place}.arguments: {what}; agents see them, but no goal needs them"
    if not listed.description.strip():
        text = tool.function["description"]
        at = f"tools[{index}].function.description"
        yield f"{at}: {name} has none; '{text}' is made from its name"
    for old, new in zip(listed.arguments, tool.arguments, strict=True):
        if old != new:
            yield f"{place}.arguments: {old} of {name} is renamed to {new}"
    for key, limit in vars(limits).items():
        if num.get(key, 0) > limit:
            yield f"{place}.arguments: {name} needs --config.sandbox.{key}={num[key]}"
    fields, num_others = _returned(tool), len(listed.returns) - len(tool.returns)
    if not listed.returns:
        yield f"{place}.returns: {name} returns {fields}, judging by its name"
    elif num_others > 0:
        yield f"{place}.returns: {name} returns {fields}; {num_others} more left out"
    elif tool.lists and not listed.pages:
        yield f"{place}.returns: {name} returns {fields}"
    if pages := listed.pages:
        yield (
            f"{place}.pages: {name} returns {pages.path} in pages of "
            f"{list_pages.SIZE}; its argument {pages.cursor} takes the cursor that is "
            f"in {pages.next}"
        )


def _returned(tool: DraftedTool) -> str:
    """Return what a tool returns in words, for a note."""
    parts: dict[str, list[str]] = {}
    for path in tool.returns:
        (outer,) = list_results.lists([path]) or ("",)
        is_list = outer in tool.lists
        own = path.removeprefix(f"{outer}.0.") if is_list else path
        parts.setdefault(outer if is_list else "", []).append(own)
    return " and ".join(
        f"{outer} (at most {tool.lists[outer]} records of {', '.join(own)})"
        if outer
        else ", ".join(own)
        for outer, own in parts.items()
    )


def _with_lists(tool: DraftedTool, types: dict[str, Any]) -> DraftedTool:
    """Return a tool with the lists that it returns, as long as its types have values.

    A list that is too short for pages is returned at once.
    """
    if tool.effect:
        return tool
    listed, lists = tool.listed, {}
    for path in list_results.lists(tool.returns):
        fields = (x for x in tool.returns if list_results.lists([x]) == [path])
        room = min(_num_values(types[tool.returns[x]]) for x in fields)
        if listed.pages and room <= list_pages.SIZE:
            listed = dataclasses.replace(listed, pages=None)
        most = list_results.MOST_IN_PAGES if listed.pages else list_results.MOST
        lists[path] = int(min(room, most))
    return dataclasses.replace(tool, listed=listed, lists=lists)


def _num_values(kind: dict[str, Any]) -> float:
    """Return how many records of a list can have different values of a type."""
    if kind["kind"] == "number":
        size = (kind["maximum"] - kind["minimum"]) * 10 ** kind.get("decimals", 0)
        return int(size) + 1
    if kind["kind"] == "enum":  # its values may be repeated
        return math.inf
    if "values" in kind:
        return max(len(kind["values"]) // len(value_pools.SPLITS), 1)
    return min(len(value_pools.expanded(kind[x])) for x in value_pools.SPLITS)


def _results(tool: DraftedTool) -> dict[str, Any]:
    """Return what a tool returns, and how it divides that, as a domain file has it."""
    returns: dict[str, Any] = {}
    for path, kind in tool.returns.items():
        (outer,) = list_results.lists([path]) or ("",)
        if outer not in tool.lists:
            returns[path] = kind
            continue
        ends = {"at_least": 1, "at_most": tool.lists[outer]}
        made = returns.setdefault(outer, {"list": {}, **ends})
        made["list"][path.removeprefix(f"{outer}.0.")] = kind
    if (pages := tool.listed.pages) is None:
        return {"returns": returns}
    divided = {"list": pages.path, "size": list_pages.SIZE}
    divided |= {"cursor": pages.cursor, "next": pages.next}
    return {"returns": returns, "pages": divided}


def _tool_entry(
    tool: DraftedTool, taken_names: set[str], taken_descriptions: set[str]
) -> dict[str, Any]:
    """Return the tool as an entry of a domain file."""
    listed = tool.listed
    pages = listed.pages
    cursor = [nesting.written((pages.cursor,))] if pages else []
    keys = nested_arguments.keys([*tool.arguments, *cursor])
    root = tool.function.get("parameters") or {}
    taken_arguments = {style.CODE, *keys, *schema_paths.names(root, tool.arguments)}

    def pools(candidates: dict[str, list[str]], taken: set[str], num: int):
        return {
            split: wording.take_unused(texts, taken, num)
            for split, texts in candidates.items()
        }

    return {
        "type": "function",
        "function": tool.function,
        "x-openagent": {
            **({"listed_as": listed_as} if (listed_as := _listed_as(tool)) else {}),
            "arguments": tool.arguments,
            **_results(tool),
            **({"effect": True} if tool.effect else {}),
            "names": pools(wording.tool_names(listed.name, tool.does), taken_names, 3),
            "descriptions": pools(
                wording.descriptions(tool.does), taken_descriptions, 3
            ),
            "argument_names": {
                key: pools(wording.argument_names(key), taken_arguments, 2)
                for key in keys
            },
        },
    }
