"""Decide whether a call is one of those that a BFCL task accepts.

The rules are those of the Berkeley Function Calling Leaderboard for Python functions
(Patil et al., ICML 2025), including their oddities, so that the same outputs get the
same scores. Strings are compared without case, blanks and some punctuation. An integer
is accepted as a float. If the accepted values have another type than the document
requires, a value of that type counts as the name of a variable and must be equal.
"""

import re
from collections.abc import Sequence
from typing import Any

TYPES = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
OMITTED = ""  # as an accepted value: the argument may be left out
_IGNORED = re.compile(r"[ ,./\-_*^]")


def accepts(
    parameters: dict[str, Any], accepted: dict[str, list], given: dict[str, Any]
) -> bool:
    """Tell whether the arguments of a call are accepted.

    >>> parameters = {"properties": {"city": {"type": "string"}}, "required": ["city"]}
    >>> accepts(parameters, {"city": ["New York"]}, {"city": "new-york"})
    True
    >>> accepts(parameters, {"city": ["New York"]}, {"town": "New York"})
    False

    Args:
      parameters: `properties` and `required` of the function's document.
      accepted: the accepted values of each argument, by name.
      given: the arguments of the call, by name.

    Raises:
      KeyError: the document has a type that Python functions cannot have.
    """
    known = parameters["properties"]
    if any(name not in given for name in parameters["required"]):
        return False
    if any(name not in known or name not in accepted for name in given):
        return False
    if any(OMITTED not in accepted[name] for name in accepted if name not in given):
        return False
    return all(_value(known[name], accepted[name], given[name]) for name in given)


def example(accepted: Any) -> Any:
    """Return a plain value for an accepted value.

    An accepted dict has a list of accepted values for each key. The first of them is
    taken; if it is `OMITTED`, the key is left out.

    >>> example([{"min": [3, 4], "max": ["", 9]}])
    [{'min': 3}]
    """
    if isinstance(accepted, list):
        return [example(value) for value in accepted]
    if not isinstance(accepted, dict):
        return accepted
    first = {key: values[0] for key, values in accepted.items()}
    return {key: value for key, value in first.items() if value != OMITTED}


def _value(document: dict[str, Any], accepted: list, value: Any) -> bool:
    """Tell whether the value of one argument is accepted."""
    kind, item_kind = TYPES[document["type"]], None
    if kind is list:
        item_kind = TYPES[document["items"]["type"]]
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is kind:
        if item_kind and not _items(accepted, value, item_kind):
            return False
    elif type(value) is not _type(accepted):  # `_type` is None without any values
        return False
    if type(value) is not kind or _type(accepted) not in (kind, None):
        return value in accepted  # counts as the name of a variable
    if kind is dict:
        return _dict(accepted, value)
    if item_kind is dict:
        return any(
            len(value) == len(wanted)
            and all(_dict([a], b) for a, b in zip(wanted, value, strict=True))
            for wanted in accepted
        )
    if kind is str:
        return _plain(value) in [_plain(x) for x in accepted if isinstance(x, str)]
    if kind is list:
        return [_plain(x) for x in value] in [[*map(_plain, x)] for x in accepted]
    return value in accepted


def _items(accepted: list, values: list, kind: type) -> bool:
    """Tell whether all items have the documented type or that of accepted items."""
    return any(
        not isinstance(wanted, list)
        or all(type(value) in (kind, _type(wanted)) for value in values)
        for wanted in accepted
    )


def _dict(accepted: Sequence[Any], given: dict[str, Any]) -> bool:
    """Tell whether a dict matches one of the accepted dicts.

    An accepted dict has a list of accepted values for each key.
    """
    return any(
        wanted != OMITTED
        and all(
            key in wanted and _plain(value) in [*map(_plain, wanted[key])]
            for key, value in given.items()
        )
        and all(key in given or OMITTED in wanted[key] for key in wanted)
        for wanted in accepted
    )


def _type(accepted: list) -> type | None:
    """Return the type of the first accepted value; None if there is none."""
    return next((type(x) for x in accepted if x != OMITTED), None)


def _plain(value: Any) -> Any:
    """Normalise a string for comparison; return other values unchanged."""
    if not isinstance(value, str):
        return value
    return _IGNORED.sub("", value).lower().replace("'", '"')
