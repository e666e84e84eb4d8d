"""Texts made up for patterns: each is matched as a whole."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openagent_jax.domains import value_schema
from openagent_jax.drafting import patterns

REAL = [
    "^AP-[0-9]{3}$",
    "^[A-Z]{2}[0-9]{4}$",
    r"^\d{4}-\d{2}-\d{2}$",
    r"^SKU-\d{5}\.[A-Z]$",
    "^(bee|hive)_[a-f0-9]+$",
    "[^/]+/[^/]+",
    r"^(?:\+49|0)[1-9]\d{6,9}$",
    "^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,}$",
    r"^(?<year>20\d\d)/(?P<week>[0-5]\d)$",
    "^#?([a-f0-9]{6}|[a-f0-9]{3})$",
    r"^\w+\b-?\w*$",
    "^[\\w-]{3,20}$",
    "^\\u0041[\\x30-\\x39]+$",
    "^x{1,3}?y*?z+?$",
    "^[^a-z\\s]{4}$",
    "^(.{2,}){2}$",
    "^urn:[a-z0-9][a-z0-9-]{0,31}:.+$",
    "^(A|B(C|D){2})-[02468]{4}$",
    "^{id}-[0-9]{4}$",  # a brace that counts nothing is itself
]


@pytest.mark.parametrize("pattern", REAL)
def test_texts_match_as_a_whole(pattern):
    texts = patterns.values(pattern, 120, lambda _: True)
    assert len({*texts}) == len(texts) == 120
    matcher = value_schema.compiled(pattern)
    for text in texts:
        assert matcher.fullmatch(text), text
        assert 0 < len(text) <= 64 and not {'"', "\\"} & {*text} and text.isprintable()
    assert texts == patterns.values(pattern, 120, lambda _: True)


def test_few_texts_are_all_given():
    assert patterns.values("^(asc|desc)$", 9, bool) == ["asc", "desc"]
    assert patterns.values("^a?b{1,2}$", 9, bool) == ["b", "bb", "ab", "abb"]
    assert patterns.values("^[0-2][a-b]$", 9, lambda x: x[0] != "1") == [
        "0a",
        "0b",
        "2a",
        "2b",
    ]
    assert patterns.size("^[0-2][a-b]$") == 6
    assert patterns.size("^[0-9]{6}$") is patterns.size("^a*$") is None


@pytest.mark.parametrize(
    "pattern, words",
    [
        ("^(?=.*[0-9])[a-z0-9]{8}$", "look-around"),
        ("^(?!x)y+$", "look-around"),
        ("(?<=a)b+", "look-around"),
        (r"^(a|b)\1$", "a back-reference"),
        (r"^(?<x>a|b)\k<x>$", "a part that Python's re cannot read"),
        (r"^\p{L}+$", "a part that Python's re cannot read"),
        ("(?i)ab+", "a group with flags"),
        ("^a{65}$", "no text of at most 64 characters: the shortest has 65"),
        ('^"[a-z]+"$', "a character that a value cannot have"),
        ("^(a", "a part that Python's re cannot read"),
        ("[a-", "a part that Python's re cannot read"),
        ("(" * 60 + "a+" + ")" * 60, "more than 40 groups"),
    ],
)
def test_what_is_not_supported_is_named(pattern, words):
    with pytest.raises(patterns.Unsupported, match=re.escape(words)):
        patterns.values(pattern, 9, bool)


@pytest.mark.parametrize("pattern", ["((((a*)*)*)*)*", "(((){0,64}){0,64}){0,64}b"])
def test_nested_counts_end(pattern):
    for text in patterns.values(pattern, 5, lambda x: len(x) < 9):
        assert re.fullmatch(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?:(.|[a\]]|\.))+[^a-z](?:\/){1,3}[a^](?:a){0,2}(?:(?:a)*)+?[a\]][A-Z0-9]$",
        "^(a|a)*a{9}b?$",
        "^((x+)+y?)+$",
    ],
)
def test_patterns_that_re_matches_slowly(pattern):
    """Of a long text, `re` would try every way to divide it."""
    start = time.monotonic()
    assert len(patterns.values(pattern, 5, lambda _: True)) == 5
    assert time.monotonic() - start < 20


LITERALS = st.sampled_from(["a", "Z", "7", "-", r"\.", r"\-", r"\/", "_", r"\d", r"\w"])
CLASSES = st.sampled_from(
    ["[a-f]", "[^a-z]", r"[\d-]", r"[\w.]", "[A-Z0-9]", "[-x]", "[a\\]]", ".", "[a^]"]
)
COUNTS = st.sampled_from(["", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "{0,2}", "+?"])


def _grown(inner):
    counted = st.builds(lambda x, count: f"(?:{x}){count}", inner, COUNTS)
    either = st.lists(inner, min_size=2, max_size=3).map(lambda x: f"({'|'.join(x)})")
    return counted | either | st.lists(inner, min_size=1, max_size=4).map("".join)


PATTERNS = st.recursive(LITERALS | CLASSES, _grown, max_leaves=12)


@settings(max_examples=400, deadline=None)
@given(PATTERNS, st.booleans())
def test_any_pattern(body, anchored):
    pattern = f"^{body}$" if anchored else body
    texts = patterns.values(pattern, 15, lambda x: bool(x.strip()))
    for text in texts:
        assert re.fullmatch(pattern, text, re.ASCII)
    assert len({*texts}) == len(texts)
