r"""Write the document of a tool as it is in its file, as a layout with slots.

A style has generic layouts, by number of parameters (`Style.documents`). They know no
more of a tool than its name, its description and the names and types of its arguments.
`layout` makes the layout of one tool from its whole function object, so that choices,
ranges, descriptions of arguments and nested schemas are shown too. What perturbations
edit are slots: the name, the description and the names of arguments.

In a chat template the layout is what the template writes (`chat.document`). The compact
style has rules of its own (`compact`). A required string or integer is written as its
name alone if its schema says nothing else:

    "parameters":["city","days"]

Otherwise `(optional)` follows the name where it applies, and what the schema says after
a colon, in parts that are divided by semicolons:

    city (optional): where to look; default Rome
    unit: one of metric, imperial
    days: integer; how many days; 1 to 7
    at: format date-time
    tags: list of string; maxItems 3
    to: object {street; zip (optional): postal code}
    amount: number or null; at least 0.5

The parts come in this order: type (a string is not named), description, choices, range,
default, and all other keys as `key value`. Values other than strings are written as
JSON, and so are strings that could be misread. References within the schema are
replaced by what they refer to. Keys of the function or of its parameters that are not
named here follow the parameters as JSON. Left out are only `strict`, `$schema`,
`additionalProperties` of the parameters, and titles that repeat a name.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openagent_jax.text import chat, nesting, schema_paths, style
from openagent_jax.text.style import Layout, Piece, Style, literal, slot

MAX_PURPOSE = 100  # bytes of what `purpose` returns
MAX_DEPTH = 32  # of a nested schema
MAX_REFERENCES = 256  # of a schema; more are not replaced by what they refer to
# The end of a sentence, or of what stands for one.
_SENTENCE = re.compile(r"(?<=[^.]{3})[.!?;](?=\s|$)| [-–—] |\s*\n")
_UNIONS = ("anyOf", "oneOf")
_SILENT = ("$schema", "additionalProperties")  # keys of parameters that are left out


def purpose(description: str) -> str:
    r"""Return the beginning of a description that says what the tool is for.

    It is the whole description if that is short, and otherwise its first sentence.

    >>> purpose("opening hour of a place")
    'opening hour of a place'
    >>> purpose("Get the weather.\n\nWorks for all of " + "the world and " * 9)
    'Get the weather'
    """
    if len(description.encode()) <= MAX_PURPOSE and "\n" not in description:
        return description
    begin = len(description) - len(description.lstrip())
    end = _SENTENCE.search(description, begin)
    head = description[: end.start()] if end else description
    cut = head.encode()[:MAX_PURPOSE].decode(errors="ignore")
    if cut != head and cut.rfind(" ") > begin:
        cut = cut[: cut.rfind(" ")]
    return cut


def layout(
    form: Style[str],
    function: Mapping[str, Any],
    arguments: Sequence[str],
    with_code: bool = False,
    keys: Mapping[str, int] | None = None,
) -> Layout[str]:
    """Return the layout of the document of a tool.

    Args:
      form: the style to write it in.
      function: the function object of the tool.
      arguments: the names of the arguments that are slots, in the order of the slots.
      with_code: whether the code is a parameter, in styles that document it as one.
      keys: the slot of each key, if arguments are paths; see `compact`.

    Raises:
      ValueError: the chat template writes this tool in an unsupported way.

    >>> from openagent_jax.text import messages
    >>> look = messages.tool("look", "opening hour", {"place": "string"})["function"]
    >>> compact_style = style.compact(1)
    >>> layout(compact_style, look, ["place"]) == compact_style.documents[1]
    True
    """
    if form.template is None:
        return compact(function, arguments, keys=keys)
    code = style.CODE if with_code else ""
    return chat.document(form.template, form, function, arguments, code, keys)


def escape(form: Style[str], text: str) -> str:
    r"""Return a description as the documents of a style contain it.

    >>> print(escape(style.compact(1), 'a "b"'))
    a \"b\"
    """
    if form.template is None:
        return _quoted(text)
    return chat.document_escape(form.template)(text)


def compact(
    function: Mapping[str, Any],
    arguments: Sequence[str],
    skip: str = "",
    keys: Mapping[str, int] | None = None,
) -> Layout[str]:
    """Return the layout of a tool's document in the compact style.

    Args:
      function: the function object of the tool.
      arguments: the names of the arguments that are slots, in the order of the slots.
      skip: the name of a parameter that is left out.
      keys: the slot of each key, if arguments are paths (see `nesting`): a key is a
        slot wherever a path leads through it.

    Raises:
      ValueError: the schema is nested too deeply.

    >>> schema = {"properties": {"days": {"type": "integer", "maximum": 7}}}
    >>> made = compact({"name": "look", "parameters": schema}, ["days"])
    >>> [piece.text for piece in made if piece.kind == style.LITERAL][-2:]
    [' (optional): integer; at most 7"]', '}']
    """
    if _depth(function) > MAX_DEPTH:
        name = function.get("name")
        raise ValueError(f"{name!r} has a schema of more than {MAX_DEPTH} levels")
    parameters_of = _object(function.get("parameters"))
    if keys is not None:
        parameters_of = _marked(parameters_of, arguments)
    inlined = _References(parameters_of).inlined
    properties = _object(inlined.get("properties"))
    required = inlined.get("required")
    required = set(map(str, required if isinstance(required, list) else ()))
    index = {name: i for i, name in enumerate(arguments)} if keys is None else keys
    first, comma, last, none = style.DOC_PARAMS
    pieces = [literal(style.DOC_OPEN), slot(style.TEXT), literal(style.DOC_NAME)]
    pieces += [slot(style.NAME), literal(none)]
    parameters: list[Piece[str]] = []
    for name, value in properties.items():
        if name == skip:
            continue
        at = index.get(name) if keys is None or isinstance(name, _Key) else None
        shown = literal(_quoted(name)) if at is None else slot(style.ARGUMENT, at)
        parameters += [literal(comma), shown]
        says = _parameter("", value, name in required, name)
        parameters += _pieces(_quoted(says), index)
    if parameters:
        pieces[-1:] = [literal(first), *parameters[1:], literal(last)]
    known = {"name", "description", "parameters", "strict"}
    more = {key: value for key, value in function.items() if key not in known}
    known = {"type", "properties", "required", "title", *_SILENT}
    if "$ref" not in json.dumps(properties):
        known |= {"$defs", "definitions"}
    more |= {key: value for key, value in inlined.items() if key not in known}
    pieces.append(slot(style.NEEDS))
    pieces += [literal(f",{_json(key)}:{_json(value)}") for key, value in more.items()]
    return joined([*pieces, literal(style.DOC_CLOSE)])


class _Key(str):
    """A key of a schema that is a slot: as a name it is the key itself."""

    @property
    def mark(self) -> str:
        """What stands for the slot in a text."""
        return f"{_MARK}{self}{_MARK}"


_MARK = "\N{OBJECT REPLACEMENT CHARACTER}"


def _marked(root: dict[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Return a schema with the keys of some paths as `_Key`.

    Objects that have such keys are written with their fields, also where the schema
    says in another way that they are objects.
    """
    made = copy.deepcopy(root)
    found = (schema_paths.places(made, nesting.parse(path)) for path in paths)
    for place in [place for places in found for place in places]:
        holder, key = place.holder, place.key
        if isinstance(key, int):
            continue
        holder["properties"] = {
            _Key(name) if name == key else name: value
            for name, value in holder["properties"].items()
        }
        kind = holder.get("type", "object")
        if isinstance(kind, list) and holder is not made and "anyOf" not in holder:
            others = [{"type": x} for x in kind if x != "object"]
            parts = {
                x: holder.pop(x) for x in ("properties", "required") if x in holder
            }
            holder["anyOf"] = [{"type": "object", **parts}, *others]
            del holder["type"]
        elif holder is not made:
            holder["type"] = kind
    return made


def _pieces(text: str, slots: Mapping[str, int]) -> Iterator[Piece[str]]:
    """Yield a text as pieces, with slots where it has marks."""
    for number, part in enumerate(text.split(_MARK)):
        is_slot = number % 2 == 1
        yield slot(style.ARGUMENT, slots[part]) if is_slot else literal(part)


def joined(pieces: Sequence[Piece[str]]) -> Layout[str]:
    """Return a layout in which no two literals are neighbours, and none is empty."""
    made: list[Piece[str]] = []
    for piece in pieces:
        is_literal = piece.kind == style.LITERAL
        if is_literal and not piece.text:
            continue
        if is_literal and made and made[-1].kind == style.LITERAL:
            made[-1] = literal(made[-1].text + piece.text)
        else:
            made.append(piece)
    return tuple(made)


def _parameter(shown: str, schema: Any, is_required: bool, name: str) -> str:
    """Return the text of a parameter: a name and what its schema says."""
    if isinstance(schema, dict) and _is_title_of(schema.get("title"), name):
        schema = {key: value for key, value in schema.items() if key != "title"}
    says = _says(schema)
    shown = name.mark if shown and isinstance(name, _Key) else shown
    return (
        shown + ("" if is_required else " (optional)") + (f": {says}" if says else "")
    )


def _says(schema: Any, is_inner: bool = False) -> str:
    """Return what a schema says; "" for a string or an integer without any more.

    The types of inner schemas (of the items of a list, and of options) are always
    named.
    """
    if not isinstance(schema, dict):
        return "" if schema is True else _json(schema)
    # In tables, null is written for keys that are absent.
    may_be_null = ("default", "const")
    rest = {k: v for k, v in schema.items() if v is not None or k in may_be_null}
    parts = [*_type(rest, is_inner)]
    description = rest.pop("description", None)
    if description:
        text = description if isinstance(description, str) else _json(description)
        parts.append(text)
    if isinstance(choices := rest.get("enum"), list):
        del rest["enum"]
        parts.append(f"one of {', '.join(map(_value, choices))}")
    if "minimum" in rest and "maximum" in rest:
        low, high = rest.pop("minimum"), rest.pop("maximum")
        parts.append(f"{_json(low)} to {_json(high)}")
    for key, words in (("minimum", "at least"), ("maximum", "at most")):
        if key in rest:
            parts.append(f"{words} {_json(rest.pop(key))}")
    if "default" in rest:
        parts.append(f"default {_value(rest.pop('default'))}")
    parts += [f"{key} {_value(value)}" for key, value in rest.items()]
    return "" if parts == ["integer"] and not is_inner else "; ".join(parts)


def _type(rest: dict[str, Any], is_inner: bool) -> Iterator[str]:
    """Yield the type of a schema, if it is named; take its keys out of `rest`."""
    kind = rest.pop("type", None)
    if kind == "array":
        items = rest.pop("items", None)
        inner = _grouped(_says(items, True)) if items else ""
        yield f"list of {inner}" if inner else "list"
    elif kind == "object" and isinstance(rest.get("properties"), dict):
        required = rest.pop("required", None)
        required = required if isinstance(required, list) else []
        fields = [
            _parameter(str(name), value, name in required, name)
            for name, value in rest.pop("properties").items()
        ]
        yield f"object {{{'; '.join(fields)}}}"
    elif isinstance(kind, list):
        yield " or ".join(map(str, kind))
    elif kind is not None and (is_inner or kind != "string"):
        yield str(kind)
    for key in _UNIONS:
        if isinstance(options := rest.get(key), list) and options:
            del rest[key]
            yield " or ".join(_grouped(_says(option, True)) for option in options)


def _grouped(text: str) -> str:
    """Return a text in parentheses if it has several parts."""
    return f"({text})" if "; " in text or " or " in text else text


def _value(value: Any) -> str:
    """Return a value; strings are bare, unless they could be misread."""
    if isinstance(value, str) and re.fullmatch(
        r"[^\s,;\"](?:[^,;\"\n]*[^\s,;\"])?", value
    ):
        try:
            json.loads(value)
        except ValueError:
            return value
    return _json(value)


def _is_title_of(title: Any, name: str) -> bool:
    """Tell whether a title only repeats a name, as generated ones do."""
    letters = re.compile(r"[\W_]+")
    same = letters.sub("", str(title)).lower() == letters.sub("", name).lower()
    return isinstance(title, str) and same


class _References:
    """Replaces the references in a schema by what they refer to.

    A reference stays if it leads nowhere, or to something that it is part of, or if
    very many have been replaced already.
    """

    def __init__(self, root: Any):
        self._root, self._room = root, MAX_REFERENCES
        self.inlined = self._walk(root, ())

    def _walk(self, value: Any, within: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [self._walk(item, within) for item in value]
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref")
        if isinstance(reference, str) and reference not in within and self._room:
            target = schema_paths.referenced(self._root, reference)
            if isinstance(target, dict):
                self._room -= 1
                rest = {key: item for key, item in value.items() if key != "$ref"}
                return self._walk({**target, **rest}, (*within, reference))
        keep = ("$defs", "definitions") if value is self._root else ()
        return {
            key: item if key in keep else self._walk(item, within)
            for key, item in value.items()
        }


def _depth(value: Any) -> int:
    """Return how deep a value is nested, but at most one more than `MAX_DEPTH`."""
    depth, level = 0, [value]
    while depth <= MAX_DEPTH:
        level = [
            item
            for part in level
            if isinstance(part, dict | list)
            for item in (part.values() if isinstance(part, dict) else part)
        ]
        if not level:
            break
        depth += 1
    return depth


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _quoted(text: str) -> str:
    """Return a text as the content of a JSON string."""
    return _json(text)[1:-1]
