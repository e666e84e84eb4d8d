"""Which tokens of a domain may be exchanged for others."""

import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.tools.worlds import free_tokens, symbols
from openagent_jax.models import embedding_shuffle
from tests import helpers


@pytest.fixture(scope="module")
def free():
    return helpers.world("poi").free_tokens()


def test_what_all_domains_share_is_fixed(free):
    tokens, shapes = map(np.asarray, free)
    assert len({*tokens.tolist()}) == len(tokens) == len(shapes) > 4000
    notes = [text for split in symbols.NOTES.values() for x in split for text in x]
    table = symbols.ToolSymbols()
    syntax = table.texts[: table.numbers.high]
    sentences = ["find the ", "Please tell me which one is the best of all. ", "12"]
    for text in (*syntax, *notes, *sentences):
        assert not {*tokens.tolist()} & {*helpers.tokenizer().encode(text).ids}, text


def test_words_of_a_domain_are_free(free):
    """But for parts that general words have too."""
    tokens, encode = {*free[0].tolist()}, helpers.tokenizer().encode
    for word in ("museum", "restaurant", "temperature", "bakery"):
        assert word not in free_tokens.general_words()
        assert tokens & {*encode(word).ids}, word


def test_a_shuffle_exchanges_vectors_of_the_same_shape(free, getkey):
    tokens, shapes = map(np.asarray, free)
    vectors = np.arange(6144)[:, None]
    made = embedding_shuffle.shuffle({"embed": jnp.asarray(vectors)}, getkey(), *free)
    moved = np.asarray(made["embed"])[:, 0]
    changed = np.flatnonzero(moved != vectors[:, 0])
    assert 0 < len(changed) and {*changed} <= {*tokens}
    shape_of = dict(zip(tokens.tolist(), shapes.tolist(), strict=True))
    assert all(shape_of[i] == shape_of[moved[i]] for i in changed.tolist())
