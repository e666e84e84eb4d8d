"""Give every tool of a list, and every argument, a name that agents can call.

MCP allows names such as `files.read`, which the APIs of models do not. They are changed
to letters, digits, `_` and `-`, at most 64 of them; names that become equal are kept
apart by a number. Arguments may also have dots, `$` and `@`, and keep these.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from openagent_jax.domains.domain_schema import ARGUMENT, NAME
from openagent_jax.text import nesting, schema_paths

MAX_LETTERS = 64


def valid(names: Sequence[str]) -> list[str]:
    """Return valid names for those of a list, in its order.

    A name that is valid stays as it is, whatever the others become.

    >>> valid(["files.read", "files/read", "files_read", "2 größte Städte"])
    ['files_read_2', 'files_read_3', 'files_read', '_2_grosste_Stadte']
    """
    taken = {name for name in names if NAME.fullmatch(name)}
    made = []
    for name in names:
        if not NAME.fullmatch(name):
            name = _unused(_spelled(name), taken)
            taken.add(name)
        made.append(name)
    return made


def _spelled(name: str) -> str:
    """Return a name in the letters that are allowed."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    plain = "".join(x for x in plain if not unicodedata.combining(x))
    spelled = re.sub("[^A-Za-z0-9-]+", "_", plain).strip("_") or "tool"
    return spelled if NAME.match(spelled) else f"_{spelled}"


def arguments(parameters: Mapping[str, Any], paths: Iterable[str]) -> dict[str, str]:
    """Return the paths of arguments with valid names, by those of a list.

    >>> schema = {"properties": {"filter[name]": {}, "filter_name": {}, "to.city": {}}}
    >>> arguments(schema, ["filter[name]", "to~.city"])
    {'filter[name]': 'filter_name_2', 'to~.city': 'to~.city'}

    Args:
      parameters: the schema that has the arguments.
      paths: their paths.
    """
    found: dict[str, str] = {}
    made: dict[int, dict[str, str]] = {}  # new names, by the object that has them
    for text in paths:
        path = nesting.parse(text)
        keys: list[str | int] = [*path]
        for level, place in enumerate(schema_paths.places(parameters, path)):
            key, names = place.key, made.setdefault(id(place.holder), {})
            if isinstance(key, int) or ARGUMENT.fullmatch(key):
                continue
            if key not in names:
                taken = {*place.holder["properties"], *names.values()}
                names[key] = _unused(_spelled(key), taken)
            keys[level] = names[key]
        found[text] = nesting.written(keys)
    return found


def _unused(name: str, taken: Collection[str]) -> str:
    """Return a name of at most 64 letters that is not taken."""
    made, number = name[:MAX_LETTERS], 1
    while made in taken:
        number += 1
        end = f"_{number}"
        made = name[: MAX_LETTERS - len(end)] + end
    return made
