"""Choose the optional arguments that goals of a draft may give.

Each adds a type and a goal to review, so a tool keeps no more arguments than fit by
default, and only those that need no work: whose values can be made up, and do not
change what other arguments accept.
"""

import dataclasses
from typing import Any

from openagent_jax.domains.domain_schema import HOLE
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import tool_lists, value_pools
from openagent_jax.drafting.tool_lists import ListedTool, Schema


def chosen(tools: list[ListedTool]) -> list[ListedTool]:
    """Return the tools without the optional arguments that are not chosen.

    >>> from openagent_jax.drafting import tool_lists
    >>> names = {name: {"type": "integer"} for name in "abcde"}
    >>> schema = {"properties": names, "required": ["c"]}
    >>> (tool,) = chosen(tool_lists.read([{"name": "go", "parameters": schema}]))
    >>> [*tool.arguments], tool.optional, tool.dropped
    (['c', 'a', 'b'], ('a', 'b'), ('d', 'e'))
    """
    enums = [
        _texts(schema)
        for tool in tools
        for schema in (*tool.required.values(), *tool.returns.values())
    ]
    made = []
    for tool in tools:
        room, kept = Limits().num_args - len(tool.required) - bool(tool.pages), []
        for name in tool.optional:
            if len(kept) < room and _is_easy(name, tool.arguments[name], enums):
                kept.append(name)
                enums.append(_texts(tool.arguments[name]))
        made.append(_with_optional(tool, tuple(kept)))
    return made


def _texts(schema: Schema) -> set[Any]:
    values = value_pools.choices(schema)
    return set(values) if value_pools.are_texts(values) else set()


def _is_easy(name: str, schema: Schema, enums: list[set[Any]]) -> bool:
    """Tell whether values can be made up that no other type has.

    Enums with a value in common become one type, so an optional argument must not bring
    new values into the enum of another one.
    """
    texts = _texts(schema)
    if any(texts & other and texts != other for other in enums):
        return False
    if max((len(x.encode()) for x in texts), default=0) > Limits().value_bytes:
        return False
    taken = set[str]().union(*enums) - texts
    definition, _ = value_pools.of_schema(name, schema, taken, name)
    values = definition.get("values", ())
    return not any(isinstance(x, str) and x.startswith(HOLE) for x in values)


def _with_optional(tool: ListedTool, kept: tuple[str, ...]) -> ListedTool:
    names = [*tool.required, *kept]
    order = tool.function.get("parameters", {}).get("properties") or {}
    return dataclasses.replace(
        tool,
        arguments={name: tool.arguments[name] for name in names},
        optional=kept,
        dropped=tool_lists.left_out(order, names, tool.pages),
    )
