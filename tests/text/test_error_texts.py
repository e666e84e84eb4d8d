"""Wordings of errors: complete, distinct, and disjoint between the splits."""

import itertools
import re

import pytest

from openagent_jax.text import error_texts, style
from openagent_jax.text.symbols import Symbols

SPLITS = (error_texts.TRAIN, error_texts.TEST)
# Words that the splits may share: those without much meaning, and keys of protocols.
SHARED = set(
    "a and another at be before by come does down ever for from has have in is it more "
    "must no not nothing now of off one out so such that the there this to was will "
    "with your error message code".split()
)


def texts(wording):
    return itertools.chain(*(x if isinstance(x, tuple) else (x,) for x in wording))


def words(split):
    """The words of a split; `NotFound` and `NOT_FOUND` are two words each."""
    wordings = itertools.chain(*split.values())
    found = " ".join(text for x in wordings for text in texts(x))
    return {x.lower() for x in re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z]+", found)}


def test_every_status_has_a_text_in_every_wording():
    symbols = Symbols()
    table = style.error_table(style.mapped(style.compact(2), symbols.one))
    assert len(table) == len(error_texts.WORDINGS) >= 30
    for row in table:
        said = ["".join(symbols.texts[x] for x in pair) for pair in row]
        assert {i for i, text in enumerate(said) if not text} == {*style.NOT_ERRORS}
        said = [text for text in said if text]
        assert len({*said}) == len(said)  # statuses are told apart by their texts


@pytest.mark.parametrize("field", ["moved_guided", "deprecated", "rate_limit"])
def test_what_is_named_has_a_place(field):
    plain = ("wrong_code", "out_of_order", "expired_code", "schema_changed", "stale")
    for wording in error_texts.WORDINGS:
        for name in (field, *plain):
            before, after = getattr(wording, name)
            assert "{" not in (before + after).replace('{"', "")
            assert before or after


@pytest.mark.parametrize("field", ["moved_guided", "deprecated"])
def test_ways_of_redirecting_and_deprecating(field):
    train, test = (
        {getattr(x, field) for x in itertools.chain(*split.values())}
        for split in SPLITS
    )
    assert not train & test and len(train) >= 7 and len(test) >= 3


def test_splits_share_no_family_and_no_words():
    train, test = SPLITS
    assert not train.keys() & test.keys()
    assert words(train) & words(test) <= SHARED
    num_train, num_test = (sum(map(len, split.values())) for split in SPLITS)
    assert 0.65 <= num_train / (num_train + num_test) <= 0.75


def test_ranges():
    (low, middle), (also_middle, high) = error_texts.RANGES
    assert (low, middle, high) == (1, also_middle, len(error_texts.WORDINGS))
    assert error_texts.WORDINGS[middle] == error_texts.TEST["shell"][0]
