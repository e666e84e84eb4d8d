"""Write JSON for people to read and edit."""

import json
from typing import Any

WIDTH = 88  # columns of a written file


def dumps(value: Any, indent: str = "") -> str:
    """Return JSON with each value on one line if it fits; lists of texts fill lines.

    >>> print(dumps({"name": "shop", "values": ["amber"] * 15}))
    {
      "name": "shop",
      "values": [
        "amber", "amber", "amber", "amber", "amber", "amber", "amber", "amber", "amber",
        "amber", "amber", "amber", "amber", "amber", "amber"
      ]
    }

    Args:
      value: anything that `json.dumps` takes.
      indent: the blanks with which its line begins.
    """
    text = json.dumps(value, ensure_ascii=False)
    if len(indent + text) <= WIDTH or not isinstance(value, dict | list) or not value:
        return text
    inner = f"{indent}  "
    if isinstance(value, dict):
        names = (json.dumps(key, ensure_ascii=False) for key in value)
        lines = [
            f"{inner}{name}: {dumps(item, inner)}"
            for name, item in zip(names, value.values(), strict=True)
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    parts = [dumps(item, inner) for item in value]
    lines = [inner + parts[0]]
    for part in parts[1:]:
        lines[-1] += ","
        if "\n" in lines[-1] + part or len(f"{lines[-1]} {part},") > WIDTH:
            lines.append(inner)
        lines[-1] += part if lines[-1] == inner else f" {part}"
    return "[\n" + "\n".join(lines) + f"\n{indent}]"
