"""Find tools whose documents differ in nothing but their names.

A request for one of them is answered equally well by the other, unless it gives the
name away; and then an agent need not read the documents.
"""

import collections
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openagent_jax.domains.domain_spec import DomainSpec


def groups(documents: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return the indices of documents that are alike, by group.

    Args:
      documents: function objects. Their names are not compared.

    >>> look = {"description": "opening hour of a place"}
    >>> groups([{"name": "look", **look}, {"name": "go"}, {"name": "see", **look}])
    [[0, 2]]
    """
    alike: dict[str, list[int]] = collections.defaultdict(list)
    for index, document in enumerate(documents):
        others = {key: value for key, value in document.items() if key != "name"}
        alike[json.dumps(others, sort_keys=True)].append(index)
    return [group for group in alike.values() if len(group) > 1]


def warnings(spec: DomainSpec) -> Iterator[str]:
    """Yield a warning for each goal whose request other tools answer equally well, and
    for each tool from which such goals are sampled."""
    documents = [
        {**tool.function, "code_from": tool.code_from, "call_after": tool.call_after}
        for tool in spec.tools
    ]
    others: dict[str, list[str]] = {}
    for group in groups(documents):
        names = [spec.tools[index].name for index in group]
        others |= {name: [x for x in names if x != name] for name in names}
    for number, goal in enumerate(spec.goals):
        for name in dict.fromkeys(name for name, _ in goal.steps):
            if name in others:
                yield (
                    f"goals[{number}] ({goal.name}): {', '.join(others[name])} would "
                    f"do as well as {name}, since their documents differ only in the "
                    "name; tell them apart in their descriptions, or remove the goal"
                )
    for number, tool in enumerate(spec.tools):
        if tool.requests and tool.name in others:
            yield (
                f"tools[{number}] ({tool.name}): {', '.join(others[tool.name])} would "
                "do as well in goals that are sampled, since their documents differ "
                "only in the name; tell them apart in their descriptions, or remove "
                "its requests"
            )


def names_in_descriptions(spec: DomainSpec) -> Iterator[str]:
    """Yield a warning for each tool whose description contains its own name."""
    for number, tool in enumerate(spec.tools):
        is_word = "_" in tool.name or "-" in tool.name or tool.name != tool.name.lower()
        if is_word and tool.name in tool.description:
            yield (
                f"tools[{number}]: its description contains its name {tool.name}, "
                "which stays there when a perturbation renames the tool"
            )
