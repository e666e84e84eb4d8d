"""Find what is wrong in the schemas of tools, wherever it stands in them.

Agents read the documents of tools word for word, so a reference that leads nowhere or a
choice of thousands is a fault in an optional argument too.
"""

from collections.abc import Iterator
from typing import Any

from openagent_jax.text import schema_paths

MAX_CHOICES = 500  # of an enum
_BOUNDS = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
)


def problems(schema: Any, place: str, root: Any) -> Iterator[str]:
    """Yield each fault of a schema: `place: problem; remedy`.

    Args:
      schema: the schema, of which all that is in it is looked at.
      place: where it is in the file.
      root: the schema in which its references are looked up.
    """
    todo = [(schema, place)]
    while todo:
        part, at = todo.pop()
        if isinstance(part, dict):
            yield from _of_schema(part, at, root)
        inner = part.items() if isinstance(part, dict) else ()
        entries = [(item, f"{at}.{key}") for key, item in inner]
        if isinstance(part, list):
            entries = [(item, f"{at}[{i}]") for i, item in enumerate(part)]
        todo += reversed([x for x in entries if isinstance(x[0], dict | list)])


def _of_schema(schema: dict[str, Any], place: str, root: Any) -> Iterator[str]:
    choices = schema.get("enum")
    if isinstance(choices, list) and len(choices) > MAX_CHOICES:
        yield (
            f"{place}: an enum of {len(choices):,} values, which every agent would "
            f"have to read; write at most {MAX_CHOICES}, or a string with examples"
        )
    for lower, upper in _BOUNDS:
        low, high = schema.get(lower), schema.get(upper)
        if isinstance(low, int | float) and isinstance(high, int | float):
            if low > high:
                yield (
                    f"{place}: {lower} {low} is above {upper} {high}, so that no value "
                    "fits; correct one of them"
                )
    if isinstance(schema.get("$ref"), str):
        seen, reference = [], schema["$ref"]
        while isinstance(reference, str) and reference not in seen:
            seen.append(reference)
            target = schema_paths.referenced(root, reference)
            if target is None:
                yield (
                    f"{place}: the reference {reference!r} leads nowhere; add what it "
                    "names, or write the schema in its place"
                )
            reference = target.get("$ref") if isinstance(target, dict) else None
        if isinstance(reference, str):
            way = " -> ".join([*seen, reference])
            yield f"{place}: it refers to itself, {way}; write what it stands for"
