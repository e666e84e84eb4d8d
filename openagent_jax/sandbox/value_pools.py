"""Values for the types of a draft: from what a schema says, or made up by its name.

Pools for training, the test and the shift are apart in form or in number. What was made
up is told, to be looked at; what nobody can make up is a hole.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from openagent_jax.sandbox import wording
from openagent_jax.sandbox.domain_schema import HOLE
from openagent_jax.sandbox.lexicon import MAX_TEXT

LOWEST, HIGHEST = 0, 999  # numbers of the sandbox
NUM_LARGE = 99  # of larger ones
NUM_SECONDS = 3  # words that the values of a type end with
# Words that values begin with, by split; and those that they go on with.
_FIRST = {
    "train": "amber birch cedar dune elm fern granite hazel iris juniper kelp larch "
    "maple nectar olive pebble quartz river silver thyme umber velvet willow yarrow",
    "test": "agate basil coral dahlia ember flint ginger heron indigo jasmine koala "
    "lotus mango nutmeg onyx pearl quince rowan saffron tulip ultra violet wren zinc",
    "shift": "nowy stara kleine grote petit vieux alto bajo monte verde norte isla "
    "haute basse terra nuovo lungo gran mola zona",
}
_NOUNS = (
    "lantern harbor garden ladder window bottle meadow engine basket mirror pillow "
    "wagon candle carpet hammer kettle ribbon saddle ticket tunnel valley whistle "
    "anchor bridge castle desert forest island jacket market needle orchard palace "
    "rocket shelter temple village barrel canyon dragon falcon gallery helmet"
).split()
_PEOPLE = {
    "train": "Ana Ben Clara David Emma Felix Grace Hugo Ines Jonas Kira Leo",
    "test": "Mara Nils Olga Paul Rosa Simon Tara Uwe Vera Will Yara Zoe",
    "shift": "Aoife Bjarne Chidi Dagny Eero Farouk Guanyu Hye-jin Ikaika Jiri",
}
_SURNAMES = "Abel Brandt Costa Dietz Evans Fischer Gray Holm Ivers Jansen Keller Lund"
_PLACES = "Bay Bridge Falls Field Harbor Hill Mills Park Port Ridge Valley Woods"

# An example in a description; it has a digit.
_EXAMPLE = re.compile(
    r"(?:e\.g\.,?|for example,?|for instance,?|such as|examples?:|like)\s+['\"`]?"
    r"([\w@:/+#-]*[0-9][\w@:/+#-]*)",
    re.IGNORECASE,
)
# What the last word of a name tells of its values.
_ID = (
    "id number no nr code ref reference sku isbn uuid guid key token handle identifier"
)
_PERSON = (
    "person customer user author assignee owner recipient contact guest member sender "
    "employee manager attendee patient client reporter username"
)
_TEXTS = (
    "text message body content comment note reason title subject question query topic "
    "keyword keywords term description summary name label details product item book"
)
_PLACE = (
    "city town place location destination origin address airport country region venue "
    "station street area departure arrival"
)


def choices(schema: dict[str, Any]) -> list[str]:
    """Of an enum, as texts; none of what is no enum, or one of numbers.

    Numbers that are all larger than those of the sandbox (years) are an enum too.
    """
    if schema.get("type") == "boolean":
        return ["true", "false"]
    low, high = schema.get("minimum"), schema.get("maximum")
    given = schema.get("enum") or ()
    if given and not _numbers(schema):
        return list(dict.fromkeys(text(x) for x in given if x is not None))
    if not given and isinstance(low, int) and low > HIGHEST:
        last = high if isinstance(high, int) and high > low else low + NUM_LARGE
        return [str(x) for x in range(low, min(last, low + NUM_LARGE) + 1)]
    return []


def is_whole(schema: dict[str, Any]) -> bool:
    """Whether it is of numbers."""
    if schema.get("enum"):
        return bool(_numbers(schema))
    return schema.get("type") in ("integer", "number") and not choices(schema)


def _numbers(schema: dict[str, Any]) -> list[int]:
    """Of an enum that has nothing else, if the sandbox has such numbers."""
    texts = [str(x) for x in schema.get("enum") or () if not isinstance(x, bool)]
    fine = all(re.fullmatch("-?[0-9]{1,9}", x) for x in texts)
    numbers = [int(x) for x in texts] if fine else []
    return numbers if min(numbers, default=0) <= HIGHEST else []


def of_schema(
    name: str, schema: dict[str, Any], taken: set[str], what: str
) -> tuple[dict[str, Any], str]:
    """`(type, note)`: the note says what was made up, and is empty if nothing was.

    Args:
      name: of the type.
      schema: in JSON, plain.
      taken: values of other types; those of this one are added.
      what: whose values they are, for the note.
    """
    if texts := choices(schema):
        made = _enum(texts, what)
        taken.update(made["values"])
        large = schema.get("type") in ("integer", "number")
        return made, f"{what}: texts, since numbers end at {HIGHEST}" if large else ""
    if not is_whole(schema):
        return _texts(name, schema, taken, what)
    low, high = schema.get("minimum"), schema.get("maximum")
    if numbers := _numbers(schema):
        low, high = min(numbers), max(numbers)
    return _number(low, high, what)


def text(value: Any) -> str:
    """A value in letters that the sandbox takes, and no longer than it can hold."""
    value = plain(str(value).lower() if isinstance(value, bool) else str(value))
    while len(value.encode()) > MAX_TEXT:
        value = value[:-1]
    return value.strip()


def plain(value: str) -> str:
    """A text in letters that the sandbox takes."""
    value = value.replace('"', "'").replace("\\", "/")
    value = "".join(mark if mark.isprintable() else " " for mark in value)
    return value.encode(errors="ignore").decode().strip()


def _enum(values: list[str], what: str) -> dict[str, Any]:
    values = [x for x in values if x and not _is_number(x)]
    if len(values) < 2:
        values.append(f"{HOLE} two values or more of {what}, none of them a number")
    return {"kind": "enum", "values": values}


def _number(low: Any, high: Any, what: str) -> tuple[dict[str, Any], str]:
    asked = [int(x) if _is_whole_number(x) else None for x in (low, high)]
    first, last = max(LOWEST, asked[0] or 0), HIGHEST
    if asked[1] is not None and asked[1] >= first:
        last = min(last, asked[1])
    note = f"{what}: whole numbers from {first} to {last}"
    made = {"kind": "number", "minimum": first, "maximum": last}
    return made, "" if asked == [first, last] else note


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int) or isinstance(value, float) and value.is_integer()


def _texts(name: str, schema: dict, taken: set[str], what: str) -> tuple[dict, str]:
    given = schema.get("examples") or [schema.get("example", schema.get("default"))]
    given = [*given] if isinstance(given, list) else [given]
    given += _EXAMPLE.findall(str(schema.get("description", "")))
    given = [text(x) for x in given if isinstance(x, str | int | float)]
    given = [x for x in dict.fromkeys(given) if x and x not in taken]
    given = [x for x in given if not _is_number(x)]
    pattern = str(schema.get("pattern", ""))
    made, how = _like(given, pattern, taken), "like its examples"
    if not made and pattern:
        form = "".join(x if x.isprintable() else " " for x in pattern)
        form = form.replace('"', "'")
        hole = f"{HOLE} three or more values of {what}, each of the form {form}"
        return {"kind": "entity", "values": [hole]}, ""
    if not made and len(given) >= 12:
        taken.update(given)
        return {"kind": "entity", "values": given}, ""
    if not made:
        how = "made up by its name"
        made = _made_up(name, schema, taken)
    flat = {
        split: [" ".join(x) for x in itertools.product(*values["compose"])]
        if isinstance(values, dict)
        else [x for x in dict.fromkeys(values) if x not in taken]
        for split, values in made.items()
    }
    shown = flat["train"][0]
    if given:
        made["train"] = flat["train"] = list(dict.fromkeys(given + flat["train"]))
    taken.update(*flat.values())
    pools = {k: v if isinstance(v, dict) else flat[k] for k, v in made.items()}
    return {"kind": "entity", **pools}, f"{what}: values such as '{shown}', {how}"


def _is_digits(value: str) -> bool:
    return value.isascii() and value.isdecimal()


def _is_number(value: str) -> bool:
    """Of those that the sandbox has already."""
    return _is_digits(value) and str(int(value)) == value and int(value) <= HIGHEST


def _like(examples: list[str], pattern: str, taken: set[str]) -> dict[str, list[str]]:
    """Values with other digits than the first example that has some; the first digit
    tells the split. Nothing, if there are too few, or if they do not fit a pattern."""
    form = next((x for x in examples if len(re.findall("[0-9]", x)) > 2), "")
    unit = 10 ** (len(re.findall("[0-9]", form)) - 1)

    def other(number: int) -> str:
        digits = iter(str(number))
        return re.sub("[0-9]", lambda _: next(digits), form)

    found = {}
    for split, first, size, num in (
        ("train", 1, 4, 60),
        ("test", 5, 3, 40),
        ("shift", 8, 2, 30),
    ):
        span = int(size * unit)
        numbers = (int(first * unit) + (37 * i + 11) % span for i in range(span))
        free = (x for x in map(other, numbers) if x not in taken and x not in examples)
        found[split] = list(itertools.islice(free, num)) if form else []
    enough = min(map(len, found.values())) > 2
    return found if enough and _match(pattern, sum(found.values(), [])) else {}


def _match(pattern: str, values: list[str]) -> bool:
    try:
        return all(re.search(pattern, value) for value in values)
    except re.error:  # of another dialect
        return False


def _made_up(name: str, schema: dict[str, Any], taken: set[str]) -> dict[str, Any]:
    form, parts = str(schema.get("format", "")), wording.words(name)
    while len(parts) > 1 and parts[-1].isdecimal():  # the second of that name
        parts.pop()
    last, said = parts[-1], set(wording.words(str(schema.get("description", ""))))
    makers: list[tuple[str, Callable[[str, int], str]]] = [
        ("email mail", _email),
        ("uri url link website", _url),
        ("date-time datetime timestamp", _moment),
        ("date day birthday deadline", _date),
        ("time", _time),
        ("uuid guid", _uuid),
        ("ipv4 ip", _address),
        ("phone telephone mobile", _phone),
        ("path file filename folder directory", _path),
        (_ID, lambda split, i: _id(parts, split, i)),
    ]
    # The format says most, then the name; and if that says nothing, the description.
    plain = not {last, *parts[-2:-1]} & set(f"{_PERSON} {_PLACE} {_TEXTS}".split())
    for hints in (
        {form},
        {last},
        said - {"id", "number", "time", "file"} if plain else (),
    ):
        for fits, make in makers:
            if not set(fits.split()).isdisjoint(hints):
                return {split: _fresh(make, split, taken) for split in _FIRST}
    if not {last, *parts[-2:-1]}.isdisjoint(_PERSON.split()):
        return _composed(_PEOPLE, _SURNAMES.split(), taken, str)
    rest = [last, " ".join(parts)]
    if last in _PLACE.split():
        case = [word.capitalize() for word in (*_PLACES.split(), *rest)]
        return _composed(_FIRST, case, taken, str.capitalize)
    words = [*_NOUNS, *rest] if last in _TEXTS.split() else rest
    return _composed(_FIRST, words, taken, str)


def _fresh(make: Callable[[str, int], str], split: str, taken: set[str]) -> list[str]:
    values = (make(split, i) for i in range(2000))
    return list(itertools.islice((x for x in values if x not in taken), 40))


def _composed(
    firsts: dict[str, str], seconds: Sequence[str], taken: set[str], case: Callable
) -> dict[str, Any]:
    """Pairs of words; the second ones are those that no other type has."""
    heads = {split: [case(x) for x in said.split()] for split, said in firsts.items()}
    every = list(itertools.chain(*heads.values()))
    free = [x for x in seconds if not {f"{y} {x}" for y in every} & taken]
    free = free[: NUM_SECONDS if len(seconds) > 2 else 1]
    free = free or [_new_word(seconds, every, taken)]
    return {split: {"compose": [words, free]} for split, words in heads.items()}


def _new_word(seconds: Sequence[str], heads: Iterable[str], taken: set[str]) -> str:
    numbered = (f"{seconds[0]}{i}" for i in itertools.count(2))
    return next(x for x in numbered if not {f"{y} {x}" for y in heads} & taken)


_STARTS = {"train": 0, "test": 1, "shift": 2}


def _id(parts: list[str], split: str, i: int) -> str:
    short = "".join(parts[:-1])[:3].upper() or "ID"
    number = (1000, 5000)[_STARTS[split] % 2] + 37 * i % 3900
    return f"{number}/{short.lower()}" if split == "shift" else f"{short}-{number}"


def _date(split: str, i: int) -> str:
    month, day = 1 + i // 28 % 12, 1 + i % 28
    if split == "shift":
        return f"{day}.{month}.{2029 + i // 336}"
    return f"{(2024, 2100)[_STARTS[split]] + i // 336}-{month:02}-{day:02}"


def _time(split: str, i: int) -> str:
    hour, minute = i % 24, 10 * (i // 24) % 60
    if split == "shift":
        return f"{1 + i % 12} o'clock{' sharp' * (i // 12)}"
    return f"{hour:02}:{minute + 5 * _STARTS[split]:02}"


def _moment(split: str, i: int) -> str:
    mark = " at " if split == "shift" else "T"
    return f"{_date(split, i)}{mark}{i % 24:02}:{7 * i % 60:02}"


def _email(split: str, i: int) -> str:
    heads = _PEOPLE[split].split()
    head, tail = heads[i % len(heads)].lower(), _SURNAMES.lower().split()
    again = i // (len(heads) * len(tail)) or ""
    return f"{head}.{tail[i // len(heads) % len(tail)]}{again}@example.{_TOP[split]}"


def _url(split: str, i: int) -> str:
    heads = _FIRST[split].split()
    head, tail = heads[i % len(heads)], _NOUNS[i // len(heads) % len(_NOUNS)]
    return f"https://example.{_TOP[split]}/{head}/{tail}{i // 900 or ''}"


def _path(split: str, i: int) -> str:
    heads = _FIRST[split].split()
    head, tail = heads[i % len(heads)], _NOUNS[i // len(heads) % len(_NOUNS)]
    return f"/{head}/{tail}{i // 900 or ''}"


def _uuid(split: str, i: int) -> str:
    head = (0x10000000, 0x70000000, 0xC0000000)[_STARTS[split]] + 0x9E3779 * i
    return f"{head:08x}-{4096 + i:04x}-4a6b-8c1d-{0x5A17C3 * (i + 1):012x}"


def _address(split: str, i: int) -> str:
    return f"{('192.0.2', '198.51.100', '203.0.113')[_STARTS[split]]}.{i}"


def _phone(split: str, i: int) -> str:
    if split == "shift":
        return f"(555) 01{i:04}"
    return f"+1-555-{(1, 7)[_STARTS[split]]}{i:03}"


_TOP = {"train": "com", "test": "org", "shift": "net"}
