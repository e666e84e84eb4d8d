"""Forms of results are read by the parsers of their formats."""

import ast
import csv
import html.parser
import io
import json
import re
import tomllib
import xml.etree.ElementTree as etree

import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from openagent_jax.text import result_forms, result_writing, scalars
from openagent_jax.text import style as styles
from openagent_jax.text.symbols import Symbols

FIELDS = {"hour": 17, "place": "Oak Bay", "is_open": "true"}
STRINGS = {key: str(value) for key, value in FIELDS.items()}
TYPED = {**FIELDS, "is_open": True}


def write(name, given=(True, True, True), fields=FIELDS):
    """Return a result as it is written in a form."""
    symbols = Symbols()
    keys = [symbols.one(key) for key in fields]
    values = [
        scalars.code(x) if isinstance(x, int) else symbols.one(x)
        for x in fields.values()
    ]
    digits = symbols.digits()
    style = styles.mapped(styles.compact(2), symbols.one, digits=digits)
    value = jnp.where(jnp.array(given), jnp.array(values), -1)
    written = result_writing.pieces(
        style,
        jnp.int32(list(result_forms.FORMS).index(name)),
        result_writing.Fields(
            given=value >= 0,
            outer=jnp.zeros((len(keys), 0), jnp.int32),
            own=jnp.array(keys),
            bare=jnp.zeros(len(keys), bool),
            is_typed=jnp.array([x in (17, "true") for x in fields.values()]),
        ),
        scalars.spell(digits, value),
    )
    return "".join(symbols.texts[piece] for piece in np.asarray(written))


def pairs(text, comma, equals):
    return dict(part.split(equals) for part in text.split(comma))


class _Items(html.parser.HTMLParser):
    def handle_data(self, data):
        self.found = {**getattr(self, "found", {}), **pairs(data, "\n", ": ")}


def html_items(text):
    parser = _Items()
    parser.feed(text)
    return parser.found


def markdown(text):
    head, rule, body = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
    )
    assert rule == ["---"] * len(head)
    return dict(zip(head, body, strict=True))


def python(text):
    call = ast.parse(text, mode="eval").body
    return {x.arg: getattr(x.value, "value", None) for x in call.keywords}


def table(delimiter):
    return lambda text: [*csv.DictReader(io.StringIO(text), delimiter=delimiter)][0]


READERS = {
    "json": (json.loads, STRINGS),
    "json_typed": (json.loads, TYPED),
    "json_envelope": (lambda text: json.loads(text)["data"], TYPED),
    "json_list": (lambda text: json.loads(text)[0], TYPED),
    "json_status": (lambda text: json.loads(text)["result"], TYPED),
    "key_value": (lambda text: pairs(text, "\n", "="), STRINGS),
    "yaml": (yaml.safe_load, TYPED),
    "brackets": (lambda text: pairs(text[1:-1], "; ", "="), STRINGS),
    "parentheses": (lambda text: pairs(text[1:-1], " / ", ": "), STRINGS),
    "log_line": (
        lambda text: {
            key: quoted or plain
            for key, quoted, plain in re.findall(r'(\w+)=(?:"([^"]*)"|(\S+))', text)
        },
        STRINGS,
    ),
    "query_string": (lambda text: pairs(text[1:], "&", "="), STRINGS),
    "csv": (table(","), STRINGS),
    "tsv": (table("\t"), STRINGS),
    "xml": (lambda text: {x.tag: x.text for x in etree.fromstring(text)}, STRINGS),
    "html_list": (html_items, STRINGS),
    "markdown_table": (markdown, STRINGS),
    "sentence": (
        lambda text: pairs(
            text.removeprefix("Here you are: the ")[:-1], ", the ", " is "
        ),
        STRINGS,
    ),
    "python": (python, STRINGS),
    "toml": (lambda text: tomllib.loads(text)["result"], TYPED),
}


@pytest.mark.parametrize("name", result_forms.FORMS)
def test_is_read(name):
    reader, expected = READERS[name]
    assert reader(write(name)) == expected


@pytest.mark.parametrize("name", result_forms.FORMS)
def test_fields_that_are_left_out(name):
    reader, expected = READERS[name]
    text = write(name, given=(False, True, False))
    assert reader(text) == {"place": "Oak Bay"}


def test_splits_share_no_form():
    train, test = (
        {*map(tuple, x.values())} for x in (result_forms.TRAIN, result_forms.TEST)
    )
    assert not train & test and len(train | test) == len(result_forms.FORMS)
