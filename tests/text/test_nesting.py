"""Leaves with paths, written as nested JSON and compared with `json`."""

import functools
import json

import jax
import numpy as np
import pytest

from openagent_jax.text import nesting, scalars
from openagent_jax.text.symbols import Symbols

SPACED = nesting.json_syntax(('": "', '": '), ('", "', ', "'), ('"}', "}"))
DENSE = nesting.json_syntax(('":"', '":'), ('","', ',"'), ('"}', "}"))
QUOTED = nesting.json_syntax(('":"', '":"'), ('","', ',"'), ('"}', "}"))
LEAVES, LEVELS = 6, 3
KEYS = ("a", "b", "c", "d e")


def random_object(rng, depth=0):
    """Return an object or an array without empty containers."""
    size = rng.integers(1, 4)
    items = [
        random_object(rng, depth + 1)
        if depth < LEVELS and rng.random() < 0.4
        else [str(rng.choice(["x", "y z", ""])), 7, -1.5, True, None][rng.integers(5)]
        for _ in range(size)
    ]
    if depth and rng.random() < 0.5:
        return items
    return dict(zip(rng.permutation(KEYS)[:size].tolist(), items, strict=False))


@functools.cache
def writer(syntax):
    symbols = Symbols()
    made = syntax.mapped(symbols.one)
    function = jax.jit(jax.vmap(functools.partial(nesting.pieces, made)))
    return symbols, function


def written(syntax, rows):
    """Return the texts of some lists of `(path, value)`."""
    symbols, function = writer(syntax)
    path = np.zeros((len(rows), LEAVES, LEVELS), np.int32)
    name = np.zeros((len(rows), LEAVES), np.int32)
    given, bare = np.zeros_like(name, bool), np.zeros_like(name, bool)
    value = np.zeros((len(rows), LEAVES, 1), np.int32)
    for i, leaves in enumerate(rows):
        # Leaves that are left out are between those that are given.
        places = np.linspace(0, LEAVES, len(leaves), endpoint=False).astype(int)
        for at, (keys, item) in zip(places, leaves, strict=True):
            outer, own = nesting.encoded(keys, LEVELS, symbols.one)
            path[i, at], name[i, at], given[i, at] = outer, own, True
            bare[i, at] = not isinstance(item, str)
            text = item if isinstance(item, str) else json.dumps(item)
            value[i, at] = symbols.one(text)
    found = function(path, name, given, bare, value)
    texts = symbols.texts
    return ['{"' + "".join(texts[s] for s in row) for row in np.asarray(found)]


@pytest.mark.parametrize(
    ("syntax", "separators"), [(SPACED, (", ", ": ")), (DENSE, (",", ":"))]
)
def test_pieces_are_what_json_writes(syntax, separators):
    rng = np.random.default_rng(0)
    values = [random_object(rng) for _ in range(3000)]
    values = [x for x in values if len(list(nesting.flat(x))) <= LEAVES]
    assert len(values) > 1000
    assert {len(path) for x in values for path, _ in nesting.flat(x)} == {1, 2, 3, 4}
    rows = [list(nesting.flat(value)) for value in values]
    for value, text in zip(values, written(syntax, rows), strict=True):
        assert text == json.dumps(value, separators=separators)


def test_all_values_may_have_quotes():
    leaves = [(("n",), 5), (("to", "m"), 6), (("tags", 0), 7), (("tags", 1), True)]
    (text,) = written(QUOTED, [leaves])
    assert text == '{"n":"5","to":{"m":"6"},"tags":["7","true"]}'


def test_no_leaf():
    assert written(DENSE, [[]]) == ['{"}']


def test_left_out_leaves_do_not_matter():
    leaves = [(("a", "b"), "x"), (("c", 0, "d"), "y"), (("c", 1, "d"), 1)]
    texts = written(DENSE, [leaves[:1], leaves[1:], leaves[::2], leaves[2:]])
    assert texts == [
        '{"a":{"b":"x"}}',
        '{"c":[{"d":"y"},{"d":1}]}',
        '{"a":{"b":"x"},"c":[{"d":1}]}',
        '{"c":[{"d":1}]}',
    ]


def test_flat_and_nested_are_inverse():
    rng = np.random.default_rng(1)
    for _ in range(300):
        value = random_object(rng)
        assert nesting.nested(dict(nesting.flat(value))) == value
    assert nesting.nested({}) == {}
    assert list(nesting.flat({"a": {}, "b": []})) == []


def test_paths():
    texts = ["", "guests", "name"]
    path = nesting.parse("guests.1.name")
    assert nesting.written(path) == "guests.1.name"
    outer, name = nesting.encoded(path, 3, texts.index)
    assert (outer, name) == ([1, scalars.code(1), 0], 2)
    assert nesting.decoded(outer, name, texts) == path
    path = "repo.owner", 0, "a..b."
    assert nesting.written(path) == "repo~.owner.0.a~.~.b~."
    assert nesting.parse(nesting.written(path)) == path
    assert nesting.parse("repo.owner") != nesting.parse("repo~.owner")
    for text in ("a", "a.0", "a.10.b_c", "_a-b.c", "a~.b", "a~..b", "a.b~.c.0"):
        assert nesting.PATH.fullmatch(text)
    for text in (
        "",
        "0",
        "0.a",
        "a.",
        "a..b",
        "a.01",
        "a b",
        "a.b/c",
        "a~b",
        "~.a",
        "a~",
    ):
        assert not nesting.PATH.fullmatch(text)
