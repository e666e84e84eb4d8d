"""Unwrap the document of a list of tools: OpenAI's array, MCP's answer and the like.

All that is wrong with it is noted, and what can be read in spite of that is returned,
so that one run names the faults of the document and those of its schemas.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

from openagent_jax.domains.domain_schema import TWICE, json_fault
from openagent_jax.domains.domain_spec import DomainError, require

SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")  # OpenAI, MCP, Anthropic


@dataclass(frozen=True)
class Entry:
    """An entry of the list that is a tool.

    Attributes:
      place: where it is in the document: `tools[3]`.
      name: its name; "" if it has none, which is a fault.
      function: the object with its name, description and schema.
      item: the whole entry, which is often the same object.
    """

    place: str
    name: str
    function: dict[str, Any]
    item: dict[str, Any]

    @property
    def schema_key(self) -> str:
        """The key of the schema of its arguments; "" if it has none."""
        return next((key for key in SCHEMA_KEYS if self.function.get(key)), "")

    @property
    def function_place(self) -> str:
        """Where `function` is in the document."""
        return self.place + ("" if self.function is self.item else ".function")


def entries(document: Any) -> tuple[str, list[Entry], list[str]]:
    """Return the place of the list, its tools, and its faults.

    >>> place, (tool,), faults = entries({"tools": [{"name": "get_x"}, 3]})
    >>> place, tool.name, faults
    ('tools', 'get_x', ['tools[1]: not a tool; write an object with a name'])

    Args:
      document: the list as parsed from JSON.

    Raises:
      DomainError: there is no list.
    """
    list_place, items, faults = _items(document)
    found, places = [], {}
    for index, item in enumerate(items):
        place = f"{list_place}[{index}]"
        parts = ((at, json_fault(part)) for at, part in _walk(item, place))
        wrong = {at: fault for at, fault in parts if fault}
        faults += [f"{at}: {fault}" for at, fault in wrong.items()]
        entry = _entry(_repaired(item) if wrong else item, place, wrong, faults)
        if entry is None:
            continue
        found.append(entry)
        first = places.setdefault(entry.name or place, place)
        if first != place:
            problem = f"{entry.name!r} is also {first}; keep one of the two"
            faults.append(f"{place}: {problem}")
    return list_place, found, faults


def _items(document: Any) -> tuple[str, list[Any], list[str]]:
    """Unwrap the list; return its place in the document, its items and its faults."""
    place, faults = "", []
    for key in ("result", "tools"):
        if isinstance(document, dict) and key in document:
            is_domain = "goals" in document
            problem = "this is a domain file already; run `check` on it"
            require(not is_domain, place, problem)
            if document.get("nextCursor"):
                problem = "the list continues at its nextCursor; fetch all pages"
                faults.append(f"{place or 'top level'}: {problem}")
            place, document = f"{place}.{key}".strip("."), document[key]
    remedy = "write OpenAI's array of tools, or the result of MCP's tools/list"
    problem = f"not a list of tools; {remedy}"
    if document == []:
        problem = f"no tools; {remedy}"
    if not isinstance(document, list) or not document:
        raise DomainError(*faults, f"{place or 'top level'}: {problem}")
    return place or "tools", document, faults


def _walk(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield every nested value with its place."""
    yield place, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{place}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, f"{place}[{index}]")


def _repaired(value: Any) -> Any:
    """Return a value without the parts that are not JSON, so that the rest is checked.

    The value of a duplicate key is unknown; it becomes {}, which may be anything.
    """
    if isinstance(value, dict):
        return {
            _repaired(key): _repaired(x) for key, x in value.items() if _is_sound(x)
        }
    if isinstance(value, list):
        return [_repaired(x) if _is_sound(x) else 0 for x in value]
    if value is TWICE:
        return {}
    return value.encode(errors="ignore").decode() if isinstance(value, str) else value


def _is_sound(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _entry(
    item: Any, place: str, wrong: Collection[str], faults: list[str]
) -> Entry | None:
    """Return an entry of the list; None if it is no tool.

    Args:
      item: the entry.
      place: where it is.
      wrong: the places of what was left out of it.
      faults: gets its faults.
    """
    if not isinstance(item, dict):
        faults.append(f"{place}: not a tool; write an object with a name")
        return None
    function = item["function"] if isinstance(item.get("function"), dict) else item
    at = place if function is item else f"{place}.function"
    kind = function.get("type", "function")
    if kind != "function":
        if f"{at}.type" not in wrong:
            problem = f"a tool of type {kind!r} is not supported; list only functions"
            faults.append(f"{at}: {problem}")
        return None
    name, described = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name.strip():
        name = ""
        if not {at, f"{at}.name"} & {*wrong}:
            faults.append(f"{at}: the tool has no name; add one")
    is_text = described is None or isinstance(described, str)
    if not is_text and f"{at}.description" not in wrong:
        problem = f"{short(described)} is not a text; write one"
        faults.append(f"{at}.description: {problem}")
    return Entry(place, name, function, item)
