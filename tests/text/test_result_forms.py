"""Results in every form are read back by independent readers of these formats."""

import ast
import csv
import html.parser
import io
import json
import random
import re
import tomllib
import urllib.parse
import xml.etree.ElementTree as etree
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from openagent_jax.text import nesting, result_forms, result_writing, scalars
from openagent_jax.text import style as styles
from openagent_jax.text.symbols import Symbols

FORMS = result_forms.FORMS
every_form = pytest.mark.parametrize("name", FORMS)

# The fields of a result by their paths: numbers, texts, and words without quotes.
PLAIN = {
    "hour": 17,
    "place": "Oak Bay, north",
    "is_open": True,
    "utc-offset": -1234567,
    "total": "1048.5",
    "share": "0.05",
    "items.0.price": "12.5",
    "items.0.name": "O'Hare: (east) = 1",
    "items.1.price": 1000,
    "items.1.name": "the end is near, the rest is not.",
    "tags": [],
    "owner": None,
    "code": "zuk4",
}
SPECIAL = {
    "quote": 'say "hi" | <b>; a\tb & c\\d\n',
    "$ref": "-]",
    "empty": "",
    "url": "https://a.example/?q=1%20+2",
}


def leaf(value):
    """The text of a value."""
    if isinstance(value, bool) or value in (None, []):
        return json.dumps(value)
    return str(value)


@cache
def writer(names):
    """A compiled function that writes fields with these paths, and all texts."""
    symbols, paths = Symbols(), [nesting.parse(name) for name in names]
    digits = symbols.digits()
    style = styles.mapped(styles.compact(2), symbols.one, digits=digits)
    outer, own = zip(*(nesting.encoded(x, 2, symbols.one) for x in paths))

    @jax.jit
    def write(which, value, literal, bare, is_typed):
        arrays = jnp.array(outer), jnp.array(own), bare, is_typed
        fields = result_writing.Fields(value, literal, *arrays)
        return result_writing.pieces(style, which, fields)

    return write, symbols, style


def written(form, fields, given=None):
    """A result, and the leaves that it has to have."""
    write, symbols, style = writer(tuple(fields))
    values = list(fields.values())
    literals = {"[]": style.no_records, "null": style.null}
    literal = [literals.get(leaf(x), 0) if x in (None, []) else 0 for x in values]
    is_number = [scalars.spells(leaf(x)) for x in values]
    value = [
        -1
        if x in (None, [])
        else scalars.shortest(x)
        if number
        # A text is known by the letters that JSON has for it.
        else symbols.one(json.dumps(leaf(x), ensure_ascii=False)[1:-1])
        for x, number in zip(values, is_number, strict=True)
    ]
    bare = np.array([x in (None, []) or isinstance(x, bool) for x in values])
    given = np.array([True] * len(values) if given is None else given)
    pieces = write(
        jnp.int32(list(FORMS).index(form)),
        jnp.where(given, jnp.array(value), -1),
        jnp.where(given, jnp.array(literal), 0),
        bare,
        np.array(is_number) | bare,
    )
    text = "".join(symbols.texts[piece] for piece in np.asarray(pieces))
    names = [name for name, there in zip(fields, given, strict=True) if there]
    return text, {name: leaf(fields[name]) for name in names}


# Readers return leaves by their paths; where a format has types, as their texts.


def flat(value):
    """The leaves of a JSON value, with empty lists."""
    found = {}

    def walk(item, path):
        if item and isinstance(item, dict | list):
            pairs = item.items() if isinstance(item, dict) else enumerate(item)
            for key, part in pairs:
                walk(part, (*path, str(key)))
        else:
            found[".".join(path)] = leaf(item)

    walk(value, ())
    return found


def loads(text):
    return json.loads(text, parse_float=str, parse_int=str)


def pairs(lines, equals):
    return dict(line.split(equals, 1) for line in lines)


def log_line(text):
    found = re.findall(r'(\S+?)=("(?:[^"\\]|\\.)*"|\S+)', text.removeprefix("INFO "))
    return {k: json.loads(v) if v[0] == '"' else v for k, v in found}


def sentence(text):
    found = re.findall(r'the (\S+) is ("[^"]*"|[^",]+?)(?=, the |\.$)', text)
    return {k: v.strip('"') for k, v in found}


class _Items(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_data(self, data):
        self.found.append(data)


def html_items(text):
    parser = _Items()
    parser.feed(text)
    return pairs(parser.found, ": ")


def markdown(text):
    head, rule, body = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n")
    )
    assert len(rule) == len(head) and all(re.fullmatch("-{3}:?", x) for x in rule)
    return dict(zip(head, body, strict=True))


def table(delimiter, quoting):
    def read(text):
        rows = csv.DictReader(
            io.StringIO(text), delimiter=delimiter, quoting=quoting, strict=True
        )
        (row,) = rows
        return dict(row)

    return read


def numbers(read, thousands, point):
    """A reader of a form that writes numbers as these marks say."""

    def plain(key, text):
        is_number = scalars.spells(leaf(PLAIN.get(key, "")))
        if not is_number:
            return text
        assert re.fullmatch(
            rf"-?\d{{1,3}}(\{thousands}\d{{3}})*(\{point}\d+)?", text
        ) or (not thousands)
        return text.replace(thousands or "\0", "").replace(point, ".")

    return lambda text: {k: plain(k, v) for k, v in read(text).items()}


READERS = {
    "json": lambda text: flat(loads(text)),
    "json_typed": lambda text: flat(loads(text)),
    "json_envelope": lambda text: flat(loads(text)["data"]),
    "json_list": lambda text: flat(loads(text)[0]),
    "json_status": lambda text: flat(loads(text)["result"]),
    "json_thousands": numbers(lambda text: flat(loads(text)["display"]), ",", "."),
    "key_value": lambda text: pairs(text.split("\n"), "="),
    "yaml": lambda text: flat(yaml.load(text, Loader=yaml.BaseLoader)),
    "brackets": lambda text: pairs(text[1:-1].split("; "), "="),
    "parentheses": lambda text: pairs(text[1:-1].split(" / "), ": "),
    "log_line": log_line,
    "query_string": lambda text: dict(
        urllib.parse.parse_qsl(text[1:], strict_parsing=True)
    ),
    "csv": table(",", csv.QUOTE_MINIMAL),
    "csv_semicolon": numbers(table(";", csv.QUOTE_NONE), "", ","),
    "tsv": table("\t", csv.QUOTE_NONE),
    "xml": lambda text: {x.tag: x.text for x in etree.fromstring(text)},
    "html_list": html_items,
    "markdown_table": markdown,
    "markdown_european": numbers(markdown, ".", ","),
    "sentence": sentence,
    "python": lambda text: dict(ast.literal_eval(text[len("OrderedDict(") : -1])),
    "toml": lambda text: tomllib.loads(text)["result"],
}


@every_form
def test_no_value_is_lost(name):
    text, leaves = written(name, PLAIN)
    assert READERS[name](text) == leaves


@every_form
@pytest.mark.parametrize("seed", range(3))
def test_fields_that_are_left_out(name, seed):
    given = [
        key.startswith("items.0") or random.Random(f"{seed} {key}").random() < 0.5
        for key in PLAIN
    ]
    text, leaves = written(name, PLAIN, given)
    assert READERS[name](text) == leaves


@pytest.mark.parametrize("name", [x for x, form in FORMS.items() if form.escapes])
def test_special_values(name):
    text, leaves = written(name, SPECIAL)
    assert READERS[name](text) == leaves


@every_form
def test_any_plain_value(name):
    rng = random.Random(0)
    letters = "aZ é09.,:;/|<>&%+=-_'\"()[]{}#@$~!?*`^\\ the is"
    made = ("".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(9999))
    made = [x for x in made if result_forms.is_plain(x) and not scalars.spells(x)]
    fields = {f"field_{i}": x for i, x in enumerate(made[:60])}
    text, leaves = written(name, fields)
    assert READERS[name](text) == leaves


@pytest.mark.parametrize("text", [*SPECIAL.values(), *SPECIAL, "a / b", " a", "a "])
def test_what_is_not_plain(text):
    assert not result_forms.is_plain(text) or text in ("quote", "empty", "url")


def test_types():
    """Typed forms write numbers, booleans and null as their formats do."""
    typed = {"hour": 17, "share": 0.05, "is_open": True, "owner": None, "place": "17a"}
    for name in ("json_typed", "yaml"):
        read = {"json_typed": json.loads, "yaml": yaml.safe_load}[name]
        assert read(written(name, typed)[0]) == typed


def test_splits_share_no_family_and_no_form():
    train, test = result_forms.TRAIN, result_forms.TEST
    assert not train.keys() & test.keys()
    (low, middle), (also_middle, high) = result_forms.RANGES
    assert (low, middle, high) == (1, also_middle, len(FORMS))
    assert len({*map(tuple, FORMS.values())}) == len(FORMS) >= 12
    assert 0.65 <= middle / high <= 0.75
    # Each split has forms that can write every value.
    for low, high in result_forms.RANGES:
        assert sum(form.escapes for form in [*FORMS.values()][low:high]) >= 2
