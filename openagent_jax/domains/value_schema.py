"""Compare texts with what a JSON schema says of strings.

The keywords `pattern`, `enum`, `const`, `minLength` and `maxLength` and the usual
formats are checked, also behind references and in unions. Whatever else a schema says
is ignored, and so is a pattern that Python cannot compile.
"""

import datetime
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from openagent_jax.domains.domain_checks import Checker
from openagent_jax.domains.domain_spec import (
    DomainSpec,
    Fields,
    TypeSpec,
)
from openagent_jax.text import nesting, schema_paths

MAX_DEPTH = 8  # of references and unions inside one another
STRICT = ("pattern", "minLength", "maxLength")  # a call that breaks these is refused
LOOSE = ("enum", "const", "format")
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?"
_FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "date-time": rf"\d{{4}}-\d\d-\d\d[Tt ]{_CLOCK}",
    "time": _CLOCK,
    "email": r"[^@\s]+@[^@\s]+\.[^@\s]+",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:\S+",
    "uuid": r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
}
_EXAMPLES = {
    "date": "2030-01-31",
    "date-time": "2030-01-31T08:00:00Z",
    "time": "08:00:00Z",
    "email": "ana@example.com",
    "uri": "https://example.com/a",
    "uuid": "10000000-1000-4a6b-8c1d-0000005a17c3",
}


@functools.cache
def compiled(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern of JSON Schema as one of Python; None if that is impossible.

    >>> compiled("(?<year>[0-9]+)").search("in 1999")["year"]
    '1999'
    """
    try:
        return re.compile(re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern), re.ASCII)
    except (re.error, RecursionError, OverflowError):
        return None


def misfit(
    schema: Any, text: str, keys: Iterable[str] = (*STRICT, *LOOSE), root: Any = None
) -> str:
    """Return why a text does not fit a schema; "" if it does.

    >>> misfit({"pattern": "^AP-[0-9]{3}$"}, "AP-12")
    'it does not match the pattern ^AP-[0-9]{3}$'

    Args:
      schema: the schema of a property.
      text: the text.
      keys: the keys that are looked at.
      root: what references begin at.
    """
    return _misfit(schema, text, frozenset(keys), root, 0)


def misfits(
    function: Mapping[str, Any],
    arguments: Fields,
    types: Mapping[str, TypeSpec | None],
    keys: Iterable[str],
) -> Iterator[tuple[str, str, str]]:
    """Yield `(argument, type, problem)` where values do not fit what a tool documents.

    Args:
      function: the function object of the tool.
      arguments: the name and the type of each argument.
      types: the types of the domain, by name.
      keys: the keys of a schema that are looked at.
    """
    parameters = function.get("parameters") or {}
    for name, type_name in arguments:
        kind = types.get(type_name)
        if kind is None or kind.kind == "number":
            continue
        place = schema_paths.places(parameters, nesting.parse(name))
        schema = place[-1].schema if place else None
        wrong = {
            text: reason
            for text in dict.fromkeys((*kind.train, *kind.test, *kind.shift))
            if (reason := misfit(schema, text, keys, parameters))
        }
        if wrong:
            text, reason = next(iter(wrong.items()))
            more = f", and {len(wrong) - 1} more like it" if len(wrong) > 1 else ""
            yield name, type_name, f"{text!r}: {reason}{more}"


def check(
    function: Mapping[str, Any], arguments: Fields, place: str, checker: Checker
) -> None:
    """Check that the values of a tool's arguments have the form that it documents.

    Args:
      function: the function object of the tool.
      arguments: the name and the type of each argument.
      place: where the function object is in the domain file.
      checker: collects the faults.
    """
    for name, kind, problem in misfits(function, arguments, checker.types, STRICT):
        message = f"{problem} ({place}.parameters.properties.{name}); write values that"
        checker.require(False, f"types.{kind}", f"{message} fit")


def warnings(spec: DomainSpec) -> Iterator[str]:
    """Yield a warning for each type whose values are not those of a choice or format.

    What breaks a pattern or a length is a fault of the file, and not found here.
    """
    types = {kind.name: kind for kind in spec.types}
    for number, tool in enumerate(spec.tools):
        found = misfits(tool.function, tool.accepted, types, LOOSE)
        for name, type_name, problem in found:
            yield (
                f"types.{type_name}: as {name} of tools[{number}] ({tool.name}), "
                f"{problem}; write values that its schema allows"
            )


def _misfit(schema: Any, text: str, keys: frozenset, root: Any, depth: int) -> str:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return ""
    kinds = schema.get("type", "string")
    if "string" not in (kinds if isinstance(kinds, list) else [kinds]):
        return ""  # what it says of strings does not apply
    if isinstance(target := schema.get("$ref"), str):
        found = schema_paths.referenced(root, target)
        if reason := _misfit(found, text, keys, root, depth + 1):
            return reason
    for union in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(union), list) and options:
            of_text = [x for x in options if x != {"type": "null"}]
            reasons = [_misfit(x, text, keys, root, depth + 1) for x in of_text]
            if reasons and all(reasons):
                return reasons[0]
    for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        if reason := _misfit(part, text, keys, root, depth + 1):
            return reason
    reasons = (_broken(x, schema, text) for x in (*STRICT, *LOOSE) if x in keys)
    return next(filter(None, reasons), "")


def _broken(key: str, schema: Mapping[str, Any], text: str) -> str:
    """Return what is wrong with a text by one key of a schema; "" if nothing is."""
    value = schema.get(key)
    if key == "pattern" and isinstance(value, str):
        matcher = compiled(value)
        fits = matcher is None or matcher.search(text)
        return "" if fits else f"it does not match the pattern {value}"
    if key in ("minLength", "maxLength") and type(value) is int:
        fits = value <= len(text) if key == "minLength" else len(text) <= value
        most = "at least" if key == "minLength" else "at most"
        return "" if fits else f"it has {len(text)} letters, not {most} {value}"
    if key == "enum" and isinstance(value, list):
        known = [_written(x) for x in value]
        return "" if text in known else f"it is not one of {', '.join(known[:8])}"
    if key == "const" and "const" in schema:
        return "" if text == _written(value) else f"it is not {_written(value)}"
    if key == "format" and value in _FORMATS:
        fits = re.fullmatch(_FORMATS[value], text) and _is_date(value, text)
        return "" if fits else f"it is not a valid {value}, such as {_EXAMPLES[value]}"
    return ""


def _is_date(name: str, text: str) -> bool:
    if not name.startswith("date"):
        return True
    try:
        datetime.date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
