"""Which tokens of a domain may be exchanged for others."""

import pytest

from openagent_jax.environments.tools.worlds import fixed_tokens, symbols
from tests import helpers


@pytest.fixture(scope="module")
def fixed():
    return helpers.world("poi").fixed_tokens()


def test_what_all_domains_share(fixed):
    notes = [text for split in symbols.NOTES.values() for x in split for text in x]
    table = symbols.ToolSymbols()
    syntax = table.texts[: table.numbers.high]
    sentences = ["find the ", "Please tell me which one is the best of all. ", "12"]
    for text in (*syntax, *notes, *sentences):
        assert {*helpers.tokenizer().encode(text).ids} <= fixed, text
    assert len(fixed) < 0.3 * helpers.tokenizer().get_vocab_size()


def test_words_of_a_domain_are_not_fixed(fixed):
    """But for parts that general words have too."""
    general = fixed_tokens.general_words()
    for word in ("museum", "restaurant", "temperature", "bakery"):
        assert word not in general
        assert {*helpers.tokenizer().encode(word).ids} - fixed, word
