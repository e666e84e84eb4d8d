"""Whether a call is one of those that a BFCL task accepts.

The rules are those of the Berkeley Function Calling Leaderboard for Python functions
(Patil et al., ICML 2025), its oddities too, so that the same outputs have the same
scores: strings are compared without case, blanks and some punctuation; a whole number
may stand for a float; where the accepted values are of another type than the document
says, the value is taken for the name of a variable and must be equal.
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
OMITTED = ""  # among the accepted values: the argument may be left out
_IGNORED = re.compile(r"[ ,./\-_*^]")


def accepts(
    parameters: dict[str, Any], accepted: dict[str, list], given: dict[str, Any]
) -> bool:
    """
    Args:
      parameters: of the document: `properties` and `required`.
      accepted: values of each argument.
      given: the arguments of the call.

    Raises:
      KeyError: a type is not one of Python's.
    """
    known = parameters["properties"]
    if any(name not in given for name in parameters["required"]):
        return False
    if any(name not in known or name not in accepted for name in given):
        return False
    if any(OMITTED not in accepted[name] for name in accepted if name not in given):
        return False
    return all(_value(known[name], accepted[name], given[name]) for name in given)


def _value(document: dict[str, Any], accepted: list, value: Any) -> bool:
    kind, inside = TYPES[document["type"]], None
    if kind is list:
        inside = TYPES[document["items"]["type"]]
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is kind:
        if inside and not _items(accepted, value, inside):
            return False
    elif type(value) is not _type(accepted):  # None is the type of no value
        return False
    if type(value) is not kind or _type(accepted) not in (kind, None):
        return value in accepted  # the name of a variable
    if kind is dict:
        return _dict(accepted, value)
    if inside is dict:
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
    """Whether all are of the type of the items, or of that of accepted ones."""
    return any(
        not isinstance(wanted, list)
        or all(type(value) in (kind, _type(wanted)) for value in values)
        for wanted in accepted
    )


def _dict(accepted: Sequence[Any], given: dict[str, Any]) -> bool:
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
    """Of the first value that is one."""
    return next((type(x) for x in accepted if x != OMITTED), None)


def _plain(value: Any) -> Any:
    """A string as it is compared; else the value."""
    if not isinstance(value, str):
        return value
    return _IGNORED.sub("", value).lower().replace("'", '"')
