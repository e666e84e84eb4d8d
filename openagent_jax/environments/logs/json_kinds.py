"""The JSON types of the values of a log, which are texts in a task."""

import json
import math
from typing import Any

_TYPES = {"integer": (int,), "number": (int, float), "boolean": (bool,)}


def fits(text: str, kind: str) -> bool:
    """Tell whether a text is how JSON writes a value of a type.

    >>> fits("2.5", "number"), fits("2.5", "integer"), fits("007", "integer")
    (True, False, False)
    """
    value = parsed(text)
    return type(value) in _TYPES.get(kind, ())


def parsed(text: str) -> Any:
    """Return the number, boolean or null that JSON writes so; any other text itself.

    >>> parsed("2.5"), parsed("true"), parsed("1.10"), parsed("NaN")
    (2.5, True, '1.10', 'NaN')
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_scalar = value is None or isinstance(value, int | float)
    # JSON has no NaN and no Infinity.
    is_json = is_scalar and (value is None or math.isfinite(value))
    return value if is_json and json.dumps(value) == text else text


def declared(kind: Any) -> str:
    """Return the type that a schema declares: one of `_TYPES`, else "string".

    >>> declared("integer"), declared(["number", "null"]), declared("array")
    ('integer', 'number', 'string')
    """
    names = [x for x in kind if x != "null"] if isinstance(kind, list) else [kind]
    (name,) = names if len(names) == 1 else ("",)
    return name if isinstance(name, str) and name in _TYPES else "string"
