"""The tokenizer: a word has the same pieces wherever it stands."""

import pytest

from openagent_jax.domains import domain_file, domain_words
from openagent_jax.text import style, tokenizer


@pytest.fixture(scope="module")
def bpe():
    return tokenizer.train(style.syntax_tokens(), {"exhibit": 3}, num_merges=800)


@pytest.fixture(scope="module")
def unknown():
    """Words of held-out domains, none of which the tokenizer has been trained on."""
    return sorted(domain_words.of(domain_file.load("film")) - tokenizer.words())


def pieces(bpe, text):
    return [bpe.decode([token]) for token in bpe.encode(text).ids]


@pytest.mark.parametrize("end", [" ", "_", ", ", '"', "_id"])
def test_what_follows_a_word_does_not_change_its_pieces(bpe, unknown, end):
    assert len(unknown) > 100
    for word in unknown:
        made = pieces(bpe, word + end)
        stems = [x.rstrip(" _") for x in made[: len(pieces(bpe, word))]]
        assert stems == pieces(bpe, word)


def test_a_capital_does_not_change_the_pieces(bpe, unknown):
    same = [pieces(bpe, x.capitalize()) == _capital(pieces(bpe, x)) for x in unknown]
    # Some unknown words begin in a way in which none of the list begins.
    assert sum(same) > 0.97 * len(same)


def _capital(parts):
    return [parts[0].capitalize(), *parts[1:]]


def test_a_plural_contains_the_singular(bpe):
    for word in ("exhibit", "oak", "ribbon"):
        assert pieces(bpe, word + "s") == [*pieces(bpe, word), "s"]


def test_words_of_many_domains_are_single_tokens(bpe):
    assert pieces(bpe, "Exhibit exhibit_") == ["Exhibit ", "exhibit_"]


def test_texts_survive(bpe):
    texts = ["Ünïcode, 12:36 A_b__c  dd", *map(str, domain_file.load("sql").tools)]
    for text in texts:
        assert bpe.decode(bpe.encode(text).ids) == text
