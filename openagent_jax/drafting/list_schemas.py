"""Make plain schemas of those that lists of tools have.

References and unions are replaced by what they stand for, and names of types by those
of JSON Schema.
"""

from typing import Any

from openagent_jax.text import schema_paths

MAX_DEPTH = 8  # of nested references
SCALAR_TYPES = ("string", "integer", "number", "boolean")
_UNIONS = ("anyOf", "oneOf", "allOf")
# Words for types that lists have in place of those of JSON Schema.
JSON_TYPES = {"dict": "object", "float": "number", "double": "number"}
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_DATA_KEYS = ("enum", "const", "default", "example", "examples")  # hold no schemas
Schema = dict[str, Any]


class Unsupported(ValueError):
    """The environment cannot represent a tool; each argument says why."""


def resolve(
    schema: Any, root: Any, what: str, notes: list[str] | None = None
) -> Schema:
    """Replace references and unions by what they stand for.

    Args:
      schema: a schema.
      root: what references begin at.
      what: what the schema is of, for errors.
      notes: gets a note if there is a union, whose first scalar is taken. If it is
        None, only unions with null are supported.
    """
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, dict):
            raise Unsupported(f"{what}: {schema!r:.40} is not a schema")
        schema = {key: value for key, value in schema.items() if value is not None}
        options = next((schema[key] for key in _UNIONS if schema.get(key)), None)
        rest = {key: value for key, value in schema.items() if key not in _UNIONS}
        if "$ref" in schema:
            reference = str(schema["$ref"])
            target = schema_paths.referenced(root, reference)
            if target is None:
                raise Unsupported(f"{what}: the reference {reference!r} leads nowhere")
            rest.pop("$ref")
        elif isinstance(options, list):
            not_null = [x for x in options if x != {"type": "null"}]
            if len(not_null) == 1:
                target = not_null[0]
            elif not schema.get("allOf") and (choices := _choices(not_null)):
                target = {"enum": choices}
            else:
                is_choice = not schema.get("allOf")
                target = _scalar(not_null if is_choice else [], root, what, notes)
        else:
            break
        schema = {**target, **rest} if isinstance(target, dict) else target
    else:
        raise Unsupported(f"{what}: its references never end")
    if isinstance(kind := schema.get("type"), list):
        not_null = [x for x in kind if x != "null"]
        target = {"type": not_null[0]} if len(not_null) == 1 else None
        target = target or _scalar([{"type": x} for x in not_null], root, what, notes)
        schema = {**schema, **target}
    for key, python_type in (("type", str), ("enum", list)):
        if not isinstance(value := schema.get(key, python_type()), python_type):
            raise Unsupported(f"{what}: {value!r:.40} is not a valid {key}")
    if (kind := schema.get("type")) in JSON_TYPES:
        schema = {**schema, "type": JSON_TYPES[kind]}
        if schema["type"] == "number":
            schema.setdefault("format", kind)  # as in OpenAPI
    return schema


def _choices(options: list[Any]) -> list[Any]:
    """Return the values of a union of nothing but enums and constants; else none."""
    found = []
    for option in options:
        values = option.get("enum") if isinstance(option, dict) else None
        if isinstance(option, dict) and "const" in option:
            values = [option["const"]]
        if not isinstance(values, list) or not values:
            return []
        found += values
    return found


def _scalar(
    options: list[Any], root: Any, what: str, notes: list[str] | None
) -> Schema:
    """Return the first option of a union that is supported, with a note.

    Raises:
      Unsupported: no option is supported, or `notes` is None.
    """
    for option in options if notes is not None else ():
        try:
            schema = resolve(option, root, what)
        except Unsupported:
            continue
        if schema.get("type") in SCALAR_TYPES or {"enum", "const"} & schema.keys():
            assert notes is not None
            kind = "an enum" if "enum" in schema else f"of type {schema.get('type')}"
            union = f"a union of {len(options)} types"
            notes.append(f"{what} is {kind}, the first scalar of {union}")
            return schema
    raise Unsupported(f"{what}: a union of types is not supported")


def with_json_types(function: dict[str, Any]) -> dict[str, Any]:
    """Return a function object whose parameters name types as JSON Schema does."""
    if "parameters" not in function:
        return function
    return {**function, "parameters": _json_types(function["parameters"])}


def _json_types(schema: Any, by_name: bool = False) -> Any:
    """Replace the names of types in a schema, or in an object of schemas by name."""
    if isinstance(schema, list):
        return [_json_types(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    if by_name:
        return {name: _json_types(value) for name, value in schema.items()}
    made = {
        key: value if key in _DATA_KEYS else _json_types(value, key in _BY_NAME)
        for key, value in schema.items()
    }
    if isinstance(kind := schema.get("type"), str):
        made["type"] = JSON_TYPES.get(kind, kind)
    return made
