"""The structure of a domain file: pydantic models, and their errors in plain words.

The models say which keys and values a file may have; what these mean (sources, cycles,
texts that must differ) is checked in `domain_file`.
"""

import json
import math
import re
import typing
from reprlib import repr as short
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field, Tag
from pydantic_core import ErrorDetails, PydanticCustomError

from openagent_jax.domains.domain_checks import Checker, suggest
from openagent_jax.text import nesting
from openagent_jax.text.documents import MAX_DEPTH
from openagent_jax.text.scalars import MAX_DECIMALS

HOLE = "FILL IN:"  # begins a text that a person has to replace
TWICE = object()  # the value of a key that is written twice
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
LETTERS = "use letters, digits, _ and -, at most 64, not a digit first"
# Arguments have more letters: `$filter` and `@type` occur in real lists.
ARGUMENT = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$@.-]{0,63}")
ARGUMENT_LETTERS = (
    "use letters, digits, _, -, ., $ and @, at most 64, not a digit, . or - first"
)


def _text_fault(text: str) -> str:
    """Return what is wrong with a text; an empty one if nothing is."""
    if not text:
        return "'' is empty; write a text"
    problems = ["begins or ends with a blank"] if text != text.strip() else []
    odd = [mark for mark in text if mark in '"\\' or not mark.isprintable()]
    problems += [f"contains {mark!r}" for mark in odd[:1]]
    return f"{short(text)} {' and '.join(problems)}; remove that" if problems else ""


def _check_text(text: str) -> str:
    if text.startswith(HOLE) or _text_fault(text):
        raise _fault(_text_fault(text))
    return text


def _check_unit(text: str) -> str:
    if re.search("[{|}]", text):
        raise _fault(f"{short(text)} has braces or bars; write it without")
    return text


def _check_prose(text: str) -> str:
    if text.startswith(HOLE):
        raise _fault("")
    if not text.strip():
        raise _fault(f"{short(text)} is empty; write a text")
    return text


def _check_real(value: Any) -> Any:
    if not _is_real(value):
        raise _fault(f"{short(value)} is not a number; write a number")
    return value


def _check_choice(value: Any) -> Any:
    if isinstance(value, str):
        return _check_text(value)
    if not (value is None or isinstance(value, bool) or _is_real(value)):
        what = "a string, a number, true, false or null"
        raise _fault(f"{short(value)} is not {what}; write one of these")
    return value


def _check_kinds(value: Any) -> list[str]:
    kinds = value if isinstance(value, list) else [value]
    if not kinds:
        raise _fault("empty list; add at least one entry")
    for kind in kinds:
        if not isinstance(kind, str):
            raise _fault(f"{short(kind)} is not a string; write a string")
        _check_text(kind)
    if len(set(kinds)) < len(kinds):
        raise _fault(f"{short(value)} has a type twice; remove one")
    return kinds


def _is_real(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _at_most(limit: str) -> BeforeValidator:
    """Bound the number of entries by a field of `Limits`, before any is looked at."""

    def check(value: Any, info: pydantic.ValidationInfo) -> Any:
        room = getattr(info.context, limit)
        if isinstance(value, dict | list) and len(value) > room:
            remedy = f"remove some or raise sandbox.{limit}"
            raise _fault(f"{len(value)} entries, but the limit is {room}; {remedy}")
        return value

    return BeforeValidator(check)


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("fault", "{message}", {"message": message})


NOT_EMPTY = Field(min_length=1)
Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
Text = Annotated[str, AfterValidator(_check_text)]
Texts = Annotated[list[Text], NOT_EMPTY]
Real = Annotated[Any, BeforeValidator(_check_real)]
Unit = Annotated[Text, AfterValidator(_check_unit)]
Choice = Annotated[Any, BeforeValidator(_check_choice)]
# What is shown but never looked up: any text, also with quotes and line breaks.
Prose = Annotated[str, AfterValidator(_check_prose)]
Fields = dict[Name, Text]  # name -> type or source
# The path of an argument or of a returned value; see `nested_arguments`.
Path = Annotated[str, Field(pattern=f"^{nesting.PATH.pattern}$", max_length=256)]
Arguments = dict[Path, Text]
Kinds = Annotated[Any, AfterValidator(_check_kinds)]  # a type, or several
Argument = Annotated[str, Field(pattern=f"^{ARGUMENT.pattern}$")]
ABSENT: Any = None  # the value of a key that is not there; `null` is not accepted


class Model(pydantic.BaseModel):
    """An object with these keys and no others, whose values are not converted."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)


class Composed(Model):
    """All combinations of one text from each list, joined by blanks."""

    compose: Annotated[list[Texts], NOT_EMPTY]


# Pydantic puts the tags of unions into locations.
_TAGS: dict[str, Any] = {"<list>": Texts, "<object>": Composed}
Pool = Annotated[
    Annotated[Texts, Tag("<list>")] | Annotated[Composed, Tag("<object>")],
    pydantic.Discriminator(lambda x: "<object>" if isinstance(x, dict) else "<list>"),
]


class Records(Model):
    """A list of records in a result."""

    columns: Annotated[dict[Path, Text], NOT_EMPTY] = Field(alias="list")
    at_least: int = 0
    at_most: int


_TAGS |= {"<type>": Text, "<records>": Records}
Returned = Annotated[
    Annotated[Text, Tag("<type>")] | Annotated[Records, Tag("<records>")],
    pydantic.Discriminator(lambda x: "<records>" if isinstance(x, dict) else "<type>"),
]


class Kind(Model, extra="ignore"):
    """The key that decides which model an entry of `types` has; see `type_model`."""

    kind: Literal["entity", "enum", "number"]


class Entity(Kind, extra="forbid"):
    train: Pool
    test: Pool
    shift: Pool


class ValueList(Kind, extra="forbid"):
    """An entity whose values are divided among the splits."""

    values: Texts


class Enum(Kind, extra="forbid"):
    values: Annotated[list[Choice], NOT_EMPTY]


class Number(Kind, extra="forbid"):
    minimum: Real
    maximum: Real  # inclusive
    decimals: Annotated[int, Field(ge=0, le=MAX_DECIMALS)] = 0
    unit: Unit = ""
    identifier: bool = False  # "receipt 4711": sampled goals do not compare it


class Synonyms(Model):
    train: Texts
    test: Texts


class Paraphrases(Model):
    train: Annotated[list[Prose], NOT_EMPTY]
    test: Annotated[list[Prose], NOT_EMPTY]


class Phrases(Paraphrases):
    rewrite_train: Annotated[list[Prose], NOT_EMPTY]
    rewrite_test: Annotated[list[Prose], NOT_EMPTY]


class Requests(Model):
    do: Phrases
    fields: dict[Text, Phrases]  # by what they name; see `result_reading`


class Parameters(Model, extra="allow"):
    """A JSON schema, of which only this much is looked at."""

    type: Literal["object"] = "object"
    properties: dict[str, Any] = {}
    required: list[str] = []


class Function(Model, extra="allow"):
    """A function object. It is shown as it is, with all its keys."""

    name: Name
    description: Prose
    parameters: Parameters = Parameters()


class Table(Model):
    key: Text
    fields: Annotated[Fields, NOT_EMPTY]
    initially: Literal["present", "absent"]


class State(Model):
    """What a tool does to a record; see `domain_tables.py`."""

    table: Text
    key: Text
    reads: Fields = {}
    sets: Fields = {}
    adds: Fields = {}
    subtracts: Fields = {}
    creates: bool = False
    deletes: bool = False


class Pages(Model):
    """How a tool divides a list; see `result_pages.py`."""

    path: Text = Field(alias="list")
    size: int
    cursor: Argument
    next: Path


class Meaning(Model):
    listed_as: Prose = ABSENT
    arguments: Annotated[dict[Path, Kinds], _at_most("num_args")]
    returns: Annotated[dict[Path, Returned], _at_most("num_fields")]
    code_from: Text = ABSENT
    call_after: Text = ABSENT
    effect: bool = False
    names: Synonyms
    descriptions: Paraphrases
    argument_names: dict[Argument, Synonyms]
    requests: Requests = ABSENT
    state: State = ABSENT
    pages: Pages = ABSENT


class Tool(Model):
    type: Literal["function"]
    function: Function
    meaning: Meaning = Field(alias="x-openagent")


class When(Model):
    """The condition of a step: a source, and the one that it is compared with."""

    value: Text
    at_most: Text = ABSENT
    at_least: Text = ABSENT
    equals: Text = ABSENT


class Step(Model):
    tool: Text
    arguments: Arguments
    when: When = ABSENT


class Goal(Model):
    name: Name
    constants: Annotated[Fields, _at_most("num_constants")]
    steps: Annotated[list[Step], NOT_EMPTY, _at_most("num_steps")]
    answer: Text
    phrases: Phrases


class Package(Model):
    """The package whose list of tools a domain follows."""

    package: Text
    version: Text
    license: Text
    registry: Text
    adapted: bool = False


class DomainFile(Model):
    """A whole file. The entries of its parts are parsed one by one, so that those
    without faults can be checked further."""

    name: Name
    description: Text
    types: dict[Name, Any]
    tools: Annotated[list[Any], NOT_EMPTY, _at_most("num_tools")]
    goals: list[Any]  # may be empty if goals can be sampled
    tables: dict[Name, Any] = {}
    review: Texts = []
    source: Any = ABSENT  # "authored", or a `Package`


def type_model(value: Any) -> type[Kind]:
    """Return the model of an entry of `types`; `Kind` if its kind is unknown."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "entity" and "values" not in value:
        return Entity
    models = {"entity": ValueList, "enum": Enum, "number": Number}
    return models.get(str(kind), Kind)


M = TypeVar("M", bound=Model)


def parse(model: type[M], value: Any, place: str, check: Checker) -> M | None:
    """Compare a part of a file with its model.

    Args:
      model: what it should look like.
      value: the part, as `json` returns it.
      place: where it is in the file.
      check: collects the faults.

    Returns:
      The part, or None if it has faults.
    """
    try:
        return model.model_validate(value, context=check.limits)
    except pydantic.ValidationError as errors:
        for error in errors.errors(include_url=False):
            check.require(False, _place(place, error), _message(model, error))
        return None


def json_fault(value: Any) -> str:
    """Return what is wrong with a value that Python's `json` read; "" if nothing is.

    What is inside of it is not looked at, but the keys of an object are.

    >>> json_fault({"a": "b"}), json_fault(float("nan"))
    ('', 'NaN is not a number in JSON; write another')
    """
    if value is TWICE:
        return "duplicate key; remove or rename one"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{json.dumps(value)} is not a number in JSON; write another"
    for text in value if isinstance(value, dict) else [value]:
        if isinstance(text, str) and text != text.encode(errors="ignore").decode():
            return f"{short(text)} contains half of a surrogate pair; remove it"
    return ""


def check_json(value: Any, place: str, check: Checker) -> None:
    """Check a part of a file that may hold anything: it must be JSON, and not too deep.

    Places with a fault that is known are not named again.
    """
    parts = [(value, place, 0)]
    while parts:
        part, at, depth = parts.pop()
        fault = json_fault(part)
        check.require(not fault or at in check.places, at, fault)
        inner: list[tuple[Any, str]] = []
        if isinstance(part, dict):
            inner = [(item, f"{at}.{key}") for key, item in part.items()]
        elif isinstance(part, list):
            inner = [(item, f"{at}[{index}]") for index, item in enumerate(part)]
        if inner and depth == MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} levels deep; write it flatter"
            check.require(False, place, message)
            break
        parts += [(item, where, depth + 1) for item, where in inner]


_EXPECTED = {
    "string_type": "a string", "int_type": "a whole number",
    "bool_type": "true or false", "list_type": "a list",
    "dict_type": "an object", "model_type": "an object",
}  # fmt: skip


def _message(model: type[Model], error: ErrorDetails) -> str:
    """Put an error of pydantic into words: `problem; remedy`."""
    kind, value, text = error["type"], error["input"], short(error["input"])
    key = error["loc"][-1] if error["loc"] else ""
    if value is TWICE:
        return "duplicate key; remove or rename one"
    if isinstance(value, str) and value.startswith(HOLE):
        text = repr(value).replace(r"\\", "\\")  # a pattern is shown as it is
        return f"still says {text}; replace it with what it asks for"
    if kind == "string_unicode":  # half of a character
        return _text_fault(value)
    if kind in _EXPECTED:
        return f"{text} is not {_EXPECTED[kind]}; write {_EXPECTED[kind]}"
    if kind == "extra_forbidden":
        return f"unknown key {key!r}; {suggest(key, _keys(model, error['loc'][:-1]))}"
    if kind == "literal_error":
        known = re.findall("'(.*?)'", error["msg"])
        return f"unknown {key} {text}; {suggest(value, known)}"
    return {
        "missing": f"missing key {key!r}; add it",
        "string_pattern_mismatch": f"{text} is not a valid name; {_letters(error)}",
        "too_short": "empty list; add at least one entry",
        "less_than_equal": f"{text} is too large; write 0 to {MAX_DECIMALS}",
        "greater_than_equal": f"{text} is too small; write 0 to {MAX_DECIMALS}",
    }.get(kind, error["msg"])


def _letters(error: ErrorDetails) -> str:
    """Return the characters allowed in a name that does not match its pattern."""
    is_argument = "$@" in error.get("ctx", {}).get("pattern", "")
    return ARGUMENT_LETTERS if is_argument else LETTERS


def _place(place: str, error: ErrorDetails) -> str:
    """Return where an error is, as in `tools[3].x-openagent.arguments.place`."""
    missing = error["type"] == "missing"  # a fault of the object without the key
    for step in error["loc"][:-1] if missing else error["loc"]:
        if step not in ("[key]", *_TAGS):
            place += f"[{step}]" if isinstance(step, int) else f".{step}"
    return place.removeprefix(".")


def _keys(model: Any, location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the model that is used at a location of another one."""

    def fields(model: type[Model]) -> dict[Any, Any]:
        return {x.alias or name: x.annotation for name, x in model.model_fields.items()}

    for step in location:
        if step in _TAGS:
            model = _TAGS[str(step)]
        elif isinstance(model, type) and issubclass(model, Model):
            model = fields(model)[step]
        else:  # the annotation of the entries of a list or an object
            model = typing.get_args(model)[-1]
    return list(fields(model))
