"""Make the value pools of a draft's types, from what their schemas say.

The pools for training, test and shift differ in form or in number. Where a schema gives
no values, they are made up by the name of the type (`made_up_values`), with a note for
a person to review; where that is impossible, the draft has a hole to fill in.
"""

import itertools
import json
import re
from typing import Any

from openagent_jax.domains import value_schema
from openagent_jax.domains.domain_schema import HOLE
from openagent_jax.drafting import made_up_values, number_ranges, patterns
from openagent_jax.text import scalars
from openagent_jax.text.lexicon import MAX_TEXT

MAX_NUMBER = 999  # no text may be a whole number from 0 up to this
MIN_MADE_UP = 6  # fewest values of a split that are made up from a name
MAX_ENUM = 12  # so few values of a pattern are not divided among the splits
SPLITS = ("train", "test", "shift")

# An example in a description; it has a digit.
_EXAMPLE = re.compile(
    r"(?:e\.g\.,?|for example,?|for instance,?|such as|examples?:|like)\s+['\"`]?"
    r"([\w@:/+#-]*[0-9][\w@:/+#-]*)",
    re.IGNORECASE,
)


def choices(schema: dict[str, Any]) -> list[Any]:
    """Return the values of an enum; an empty list if the schema is not an enum.

    They are texts, or else numbers and booleans. A text that is a whole number up to
    `MAX_NUMBER` cannot be told from that number: if all are, the enum is one of
    numbers, and otherwise they are left out. So is null, which stands for nothing. A
    number whose `multipleOf` makes gaps in its range counts as an enum.

    >>> choices({"type": "boolean"}), choices({"enum": [1, 2.5, None]})
    ([True, False], [1, 2.5])
    >>> choices({"enum": ["1", "2"]}), choices({"enum": ["auto", "1", 2]})
    ([1, 2], ['auto'])
    >>> choices({"type": "integer"}), choices({"type": "integer", "multipleOf": 400})
    ([], [0, 400, 800])
    """
    given = schema.get("enum") or ()
    if not given and schema.get("type") == "boolean":
        return [True, False]
    if not given and schema.get("type") in ("integer", "number"):
        return number_ranges.multiples(schema)
    texts = [clean_text(x) for x in given if isinstance(x, str)]
    texts = [x for x in dict.fromkeys(texts) if x]
    words = [x for x in texts if not _is_environment_number(x)]
    if words:
        return words
    others = [x for x in given if isinstance(x, bool) or _is_number(x)]
    others = [int(x) if not isinstance(x, bool) and x == int(x) else x for x in others]
    # Not as keys: in Python, true equals 1.
    unique = {json.dumps(x): x for x in others or map(int, texts)}
    return list(unique.values()) or [None] * (None in given)


def are_texts(values: list[Any]) -> bool:
    """Tell whether the values of an enum are strings."""
    return all(isinstance(x, str) for x in values)


def is_number(schema: dict[str, Any]) -> bool:
    """Tell whether the values are a range of numbers.

    >>> is_number({"type": "integer"}), is_number({"type": "integer", "enum": [1]})
    (True, False)
    """
    return schema.get("type") in ("integer", "number") and not choices(schema)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return scalars.spells(json.dumps(value))


def of_schema(
    name: str, schema: dict[str, Any], taken: set[str], owner: str
) -> tuple[dict[str, Any], str]:
    """Return `(type, note)`: a type of a domain file, and which parts were made up.

    The note is "" if nothing was made up.

    >>> schema = {"type": "integer", "minimum": 1, "maximum": 5}
    >>> of_schema("stars", schema, set(), "stars (of rate)")
    ({'kind': 'number', 'minimum': 1, 'maximum': 5}, '')
    >>> made, note = of_schema("city", {"type": "string"}, set(), "city (of go)")
    >>> note
    "city (of go): values such as 'Amber Bay', made up from its name"

    Args:
      name: the name of the type.
      schema: a plain JSON schema.
      taken: values of other types; those of this type are added.
      owner: the type and its tools, for the note.
    """
    if values := choices(schema):
        if are_texts(values):
            taken.update(values)
        return {"kind": "enum", "values": values}, _enum_note(values, schema, owner)
    if schema.get("enum"):
        hole = f"{HOLE} the values of {owner}, none of them a number"
        return {"kind": "enum", "values": [hole]}, ""
    if not is_number(schema):
        return _entity(name, schema, taken, owner)
    definition, note = number_ranges.of_schema(name, schema)
    low, high = definition["minimum"], definition["maximum"]
    return definition, note and f"{owner}: numbers from {low} to {high}, {note}"


def _enum_note(values: list[Any], schema: dict[str, Any], owner: str) -> str:
    """Return a note on an enum that differs from that of its schema."""
    given = schema.get("enum") or ()
    if not given and schema.get("type") != "boolean":
        shown = f"{values[0]} to {values[-1]}"
        return f"{owner}: the multiples of {schema['multipleOf']} from {shown}"
    if not are_texts(values) and given and are_texts(given):
        return f"{owner}: numbers, which calls write without quotes"
    return ""


def left_out(schema: dict[str, Any]) -> list[str]:
    """Return the values of an enum that `choices` leaves out, as texts.

    >>> left_out({"enum": ["auto", "1", 2, None]})
    ['1', '2']
    """
    kept = {clean_text(x) for x in choices(schema)}
    given = (x for x in schema.get("enum") or () if x is not None)
    texts = (
        clean_text(int(x) if isinstance(x, float) and x.is_integer() else x)
        for x in given
    )
    return [x for x in dict.fromkeys(texts) if x and x not in kept]


def clean_text(value: Any) -> str:
    """Return a value as a text that the environment can represent.

    >>> clean_text(True), clean_text('say "hi"')
    ('true', "say 'hi'")
    """
    text = printable(str(value).lower() if isinstance(value, bool) else str(value))
    return text.strip()


def printable(text: str) -> str:
    """Replace the characters that a domain file does not allow."""
    text = text.replace('"', "'").replace("\\", "/")
    text = "".join(mark if mark.isprintable() else " " for mark in text)
    return text.encode(errors="ignore").decode().strip()


def _entity(name: str, schema: dict, taken: set[str], owner: str) -> tuple[dict, str]:
    pattern = _pattern(schema)
    examples = [x for x in _examples(schema, taken) if not _misfit(schema, x)]
    pools, source = _like_examples(examples, schema, taken), "like its examples"
    if not pools and len(examples) >= 12:
        taken.update(examples)
        return {"kind": "entity", "values": examples}, ""
    if not pools:
        source = "made up from its name"
        pools = _fitting(made_up_values.pools(name, schema, taken), schema)
    if not pools:
        what, why = ("pattern" if schema.get("pattern") else "length"), ""
        source = f"made up from its {what}"
        try:
            found = _of_pattern(pattern, schema, taken)
        except patterns.Unsupported as error:
            found, why = [], f": its pattern has {error}"
        if len(found) < 3 and not (found and patterns.size(pattern) == len(found)):
            if len(examples) >= len(SPLITS):
                taken.update(examples)
                return {"kind": "entity", "values": examples}, ""
            hole = f"{HOLE} three or more values of {owner}, each of the form "
            hole += f"{_shown(pattern)}{why and f' (none can be made up{why})'}"
            return {"kind": "entity", "values": [hole]}, ""
        if len(found) <= MAX_ENUM:
            taken.update(found)
            is_all = patterns.size(pattern) == len(found)
            kind = {"kind": "enum" if is_all else "entity", "values": found}
            return kind, f"{owner}: the values {', '.join(found)}, {source}"
        pools = {split: found[i::3] for i, split in enumerate(SPLITS)}
    values = {
        split: [x for x in dict.fromkeys(expanded(pool)) if x not in taken]
        for split, pool in pools.items()
    }
    shown = values["train"][0]
    if examples:
        values["train"] = list(dict.fromkeys(examples + values["train"]))
        pools["train"] = values["train"]
    taken.update(*values.values())
    definition = {
        split: pool if isinstance(pool, dict) else values[split]
        for split, pool in pools.items()
    }
    note = f"{owner}: values such as '{shown}', {source}"
    return {"kind": "entity", **definition}, note


def _pattern(schema: dict[str, Any]) -> str:
    """Return the pattern of the values; one of letters if only their length is given.

    It is "" if the schema says nothing of them.
    """
    if pattern := schema.get("pattern"):
        return str(pattern)
    low, high = (schema.get(key) for key in ("minLength", "maxLength"))
    low = low if type(low) is int and low > 0 else 1
    high = min(high if type(high) is int else MAX_TEXT, max(low, 12))
    return f"[A-Z]{{{low},{max(low, high)}}}"


def _shown(pattern: str) -> str:
    text = "".join(x if x.isprintable() else " " for x in pattern)
    return text.replace('"', "'")


def _misfit(schema: dict[str, Any], text: str) -> str:
    keys = (*value_schema.STRICT, "format")
    if (pattern := schema.get("pattern")) and not value_schema.compiled(str(pattern)):
        return "its pattern cannot be read"
    return value_schema.misfit(schema, text, keys)


def expanded(pool: dict[str, Any] | list[str]) -> list[str]:
    """Return the values of a pool."""
    if isinstance(pool, dict):
        return [" ".join(x) for x in itertools.product(*pool["compose"])]
    return list(pool)


def _fitting(pools: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return pools of the values that fit a schema; none if they are too few.

    Where the form of the values for shift is not allowed, they are every second one of
    those for the test.
    """
    fits = {
        split: [x for x in expanded(pool) if not _misfit(schema, x)]
        for split, pool in pools.items()
    }
    if all(len(fits[split]) == len(expanded(pools[split])) for split in pools):
        return pools
    if len(fits["shift"]) < MIN_MADE_UP:
        fits["test"], fits["shift"] = fits["test"][::2], fits["test"][1::2]
    return fits if min(map(len, fits.values())) >= MIN_MADE_UP else {}


def _of_pattern(pattern: str, schema: dict[str, Any], taken: set[str]) -> list[str]:
    """Make up values for a pattern.

    Raises:
      patterns.Unsupported: that is not possible for this pattern.
    """

    def accept(text: str) -> bool:
        is_clean = text == text.strip() and 0 < len(text.encode()) <= MAX_TEXT
        is_new = text not in taken and not _is_environment_number(text)
        return is_clean and is_new and not _misfit(schema, text)

    return patterns.values(pattern, 3 * made_up_values.NUM_VALUES, accept)


def _examples(schema: dict[str, Any], taken: set[str]) -> list[str]:
    """Return the examples of a schema and its description that can be used."""
    given = schema.get("examples") or [schema.get("example", schema.get("default"))]
    given = [*given] if isinstance(given, list) else [given]
    given += _EXAMPLE.findall(str(schema.get("description", "")))
    texts = [clean_text(x) for x in given if isinstance(x, str | int | float)]
    texts = [x for x in dict.fromkeys(texts) if x and x not in taken]
    texts = [x for x in texts if len(x.encode()) <= MAX_TEXT]
    return [x for x in texts if not _is_environment_number(x)]


def _is_environment_number(text: str) -> bool:
    """Tell whether a text is one of the numbers that every domain has as symbols."""
    is_digits = text.isascii() and text.isdecimal()
    return is_digits and str(int(text)) == text and int(text) <= MAX_NUMBER


def _like_examples(
    examples: list[str], schema: dict[str, Any], taken: set[str]
) -> dict[str, list[str]]:
    """Return pools of values like an example with digits, but with other digits.

    Each split has its own range of first digits. The result is empty if there are too
    few such values, or if they do not fit the schema.
    """
    example = next((x for x in examples if len(re.findall("[0-9]", x)) > 2), "")
    unit = 10 ** (len(re.findall("[0-9]", example)) - 1)
    avoid = {*examples, *taken}

    def with_digits(number: int) -> str:
        digits = iter(str(number))
        return re.sub("[0-9]", lambda _: next(digits), example)

    pools = {}
    for split, first_digit, num_digits, num in (
        ("train", 1, 4, 60),
        ("test", 5, 3, 40),
        ("shift", 8, 2, 30),
    ):
        span = int(num_digits * unit)
        numbers = (int(first_digit * unit) + (37 * i + 11) % span for i in range(span))
        values = (x for x in map(with_digits, numbers) if x not in avoid)
        pools[split] = list(itertools.islice(values, num)) if example else []
    enough = min(map(len, pools.values())) > 2
    fit = not any(_misfit(schema, x) for pool in pools.values() for x in pool)
    return pools if enough and fit else {}
