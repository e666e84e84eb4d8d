"""Make up values of a type from its name and format: dates, emails, ids, names.

Values of different splits differ in form: words, years, top-level domains, notations. A
format that a schema states holds in all splits.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from openagent_jax.text import wording

NUM_VALUES = 40  # number of values of a split, if they are listed
NUM_SECONDS = 3  # number of second words, if values are pairs of words
# First words of values, by split, and the second words that they are combined with.
_FIRST_WORDS = {
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
_GIVEN_NAMES = {
    "train": "Ana Ben Clara David Emma Felix Grace Hugo Ines Jonas Kira Leo",
    "test": "Mara Nils Olga Paul Rosa Simon Tara Uwe Vera Will Yara Zoe",
    "shift": "Aoife Bjarne Chidi Dagny Eero Farouk Guanyu Hye-jin Ikaika Jiri",
}
_SURNAMES = "Abel Brandt Costa Dietz Evans Fischer Gray Holm Ivers Jansen Keller Lund"
_PLACE_WORDS = "Bay Bridge Falls Field Harbor Hill Mills Park Port Ridge Valley Woods"

# Last words of the names of types, by the kind of their values.
_ID_NAMES = (
    "id number no nr code ref reference sku isbn uuid guid key token handle identifier"
)
_PERSON_NAMES = (
    "person customer user author assignee owner recipient contact guest member sender "
    "employee manager attendee patient client reporter username"
)
_TEXT_NAMES = (
    "text message body content comment note reason title subject question query topic "
    "keyword keywords term description summary name label details product item book"
)
_PLACE_NAMES = (
    "city town place location destination origin address airport country region venue "
    "station street area departure arrival"
)
_TOP_LEVEL_DOMAIN = {"train": "com", "test": "org", "shift": "net"}
_SPLIT_INDEX = {"train": 0, "test": 1, "shift": 2}


def pools(name: str, schema: dict[str, Any], taken: set[str]) -> dict[str, Any]:
    """Return values by split: a list, or `{"compose": [first words, second words]}`.

    >>> pools("start_date", {}, set())["test"][:2]
    ['2100-01-01', '2100-01-02']
    >>> pools("start", {"format": "date-time"}, set())["shift"][0]
    '2060-01-01T00:00:30Z'
    >>> pools("order_id", {"format": "uuid"}, set())["train"][0]
    '10000000-1000-4a6b-8c1d-0000005a17c3'
    >>> pools("color", {}, set())["shift"]["compose"][1]
    ['color']

    Args:
      name: the name of the type.
      schema: its `format` and `description` are used.
      taken: values of other types, to be avoided.
    """
    value_format, parts = str(schema.get("format", "")), wording.words(name)
    if make := _BY_FORMAT.get(value_format):
        return {split: _unused(make, split, taken) for split in _FIRST_WORDS}
    while len(parts) > 1 and parts[-1].isdecimal():  # the second type of that name
        parts.pop()
    last, last_two = parts[-1], {*parts[-2:]}
    described = set(wording.words(str(schema.get("description", ""))))
    makers: list[tuple[str, Callable[[str, int], str]]] = [
        ("email mail", _email),
        ("uri url link website", _url),
        ("date-time datetime timestamp", _date_time),
        ("date day birthday deadline", _date),
        ("time", _time),
        ("uuid guid", _uuid),
        ("ipv4 ip", _ip_address),
        ("phone telephone mobile", _phone),
        ("path file filename folder directory", _path),
        (_ID_NAMES, lambda split, i: _id(parts, split, i)),
    ]
    # The format decides, else the name; if neither does, the description.
    known = f"{_PERSON_NAMES} {_PLACE_NAMES} {_TEXT_NAMES}".split()
    hints_by_description = described - {"id", "number", "time", "file"}
    for hints in (
        {value_format},
        {last},
        hints_by_description if last_two.isdisjoint(known) else set(),
    ):
        for maker_words, make in makers:
            if not hints.isdisjoint(maker_words.split()):
                return {split: _unused(make, split, taken) for split in _FIRST_WORDS}
    if not last_two.isdisjoint(_PERSON_NAMES.split()):
        return _composed(_GIVEN_NAMES, _SURNAMES.split(), taken, str)
    own_words = list(dict.fromkeys((last, " ".join(parts))))
    if last in _PLACE_NAMES.split():
        seconds = [x.capitalize() for x in (*_PLACE_WORDS.split(), *own_words)]
        return _composed(_FIRST_WORDS, seconds, taken, str.capitalize)
    seconds = [*_NOUNS, *own_words] if last in _TEXT_NAMES.split() else own_words
    return _composed(_FIRST_WORDS, seconds, taken, str)


def _unused(make: Callable[[str, int], str], split: str, taken: set[str]) -> list[str]:
    values = dict.fromkeys(make(split, i) for i in range(2000))
    return list(itertools.islice((x for x in values if x not in taken), NUM_VALUES))


def _composed(
    first_words: dict[str, str], seconds: Sequence[str], taken: set[str], case: Callable
) -> dict[str, Any]:
    """Return pairs of words; no other type has values with the same second words."""
    firsts = {
        split: [case(x) for x in text.split()] for split, text in first_words.items()
    }
    every = list(itertools.chain(*firsts.values()))
    free = [x for x in seconds if not {f"{y} {x}" for y in every} & taken]
    free = free[: NUM_SECONDS if len(seconds) > 2 else 1]
    free = free or [_numbered(seconds[0], every, taken)]
    return {split: {"compose": [words, free]} for split, words in firsts.items()}


def _numbered(word: str, firsts: Iterable[str], taken: set[str]) -> str:
    """Return the word with the first number that makes all its pairs unused."""
    numbered = (f"{word}{i}" for i in itertools.count(2))
    return next(x for x in numbered if not {f"{y} {x}" for y in firsts} & taken)


def _id(parts: list[str], split: str, i: int) -> str:
    prefix = "".join(parts[:-1])[:3].upper() or "ID"
    number = (1000, 5000)[_SPLIT_INDEX[split] % 2] + 37 * i % 3900
    return f"{number}/{prefix.lower()}" if split == "shift" else f"{prefix}-{number}"


def _date(split: str, i: int) -> str:
    month, day = 1 + i // 28 % 12, 1 + i % 28
    if split == "shift":
        return f"{day}.{month}.{2029 + i // 336}"
    return f"{(2024, 2100)[_SPLIT_INDEX[split]] + i // 336}-{month:02}-{day:02}"


def _time(split: str, i: int) -> str:
    extra = i // 144 % 5  # round times first, then those that are minutes later
    hour, minute = i % 24, 10 * (i // 24) % 60 + extra
    if split == "shift":
        # "3 o'clock", then "3.05 o'clock", and so on.
        minute = 5 * (i // 12) % 60 + extra
        return f"{1 + i % 12}{f'.{minute:02}' if minute else ''} o'clock"
    return f"{hour:02}:{minute + 5 * _SPLIT_INDEX[split]:02}"


def _date_time(split: str, i: int) -> str:
    separator = " at " if split == "shift" else "T"
    return f"{_date(split, i)}{separator}{i % 24:02}:{7 * i % 60:02}"


def _formal_date(split: str, i: int) -> str:
    month, day = 1 + i // 28 % 12, 1 + i % 28
    year = (2024, 2100, 2060)[_SPLIT_INDEX[split]] + i // 336
    return f"{year}-{month:02}-{day:02}"


def _formal_time(split: str, i: int) -> str:
    minute = 10 * (i // 24) % 60 + i // 144 % 5 + (0, 5, 0)[_SPLIT_INDEX[split]]
    return f"{i % 24:02}:{minute:02}:{(0, 0, 30)[_SPLIT_INDEX[split]]:02}Z"


def _formal_date_time(split: str, i: int) -> str:
    return f"{_formal_date(split, i)}T{_formal_time(split, 25 * i)}"


def _email(split: str, i: int) -> str:
    given_names, surnames = _GIVEN_NAMES[split].split(), _SURNAMES.lower().split()
    given_name = given_names[i % len(given_names)].lower()
    surname = surnames[i // len(given_names) % len(surnames)]
    suffix = i // (len(given_names) * len(surnames)) or ""
    return f"{given_name}.{surname}{suffix}@example.{_TOP_LEVEL_DOMAIN[split]}"


def _url(split: str, i: int) -> str:
    return f"https://example.{_TOP_LEVEL_DOMAIN[split]}{_path(split, i)}"


def _path(split: str, i: int) -> str:
    firsts = _FIRST_WORDS[split].split()
    first, noun = firsts[i % len(firsts)], _NOUNS[i // len(firsts) % len(_NOUNS)]
    return f"/{first}/{noun}{i // 900 or ''}"


def _uuid(split: str, i: int) -> str:
    start = (0x10000000, 0x70000000, 0xC0000000)[_SPLIT_INDEX[split]] + 0x9E3779 * i
    return f"{start:08x}-{4096 + i:04x}-4a6b-8c1d-{0x5A17C3 * (i + 1):012x}"


def _ip_address(split: str, i: int) -> str:
    network = ("192.0.2", "198.51.100", "203.0.113")[_SPLIT_INDEX[split]]
    return f"{network}.{i}"


def _phone(split: str, i: int) -> str:
    if split == "shift":
        return f"(555) 01{i:04}"
    return f"+1-555-{(1, 7)[_SPLIT_INDEX[split]]}{i:03}"


# The formats of JSON Schema (RFC 3339) that values by name do not have in all splits.
_BY_FORMAT: dict[str, Callable[[str, int], str]] = {
    "date": _formal_date,
    "time": _formal_time,
    "date-time": _formal_date_time,
}
