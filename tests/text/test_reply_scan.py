"""Reading a reply without any environment. The parser of the tool worlds has its own
tests against a reference (tests/environments/tools/test_parse_fuzz.py)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, style
from openagent_jax.text.symbols import Symbols
from tests import helpers

FORMS = ("get", "item", "count", "iron ore", "stick")


@functools.cache
def table():
    """Return a lexicon with a few forms, their symbols, and all texts."""
    symbols = Symbols()
    forms = symbols.add(FORMS)
    built = lexicons.build(symbols, helpers.tokenizer(), style.compact(2))
    return built, forms, symbols.texts


@functools.partial(jax.jit, static_argnames="max_args")
def scan(lexicon, text, num_bytes, max_args):
    return reply_scan.scan(lexicon, text, num_bytes, max_args)


def read(text, max_args=2, room=160):
    """Return the scan, with texts in place of symbols."""
    lexicon, _, texts = table()
    data = text.encode()
    row = np.zeros(room, np.uint8)
    row[: len(data)] = np.frombuffer(data[:room], np.uint8)
    found = jax.device_get(scan(lexicon, row, len(data), max_args))

    def words(symbols):
        return [texts[s] if s >= 0 else None for s in np.atleast_1d(symbols)]

    return found._replace(
        kind=int(found.kind),
        name=words(found.name)[0],
        arg_names=words(found.arg_names),
        arg_values=words(found.arg_values),
        given=found.given.tolist(),
        value=words(found.value)[0],
    )


def test_a_call():
    reply = read('{"name":"get","arguments":{"item":"iron ore","count":17}}')
    assert reply.kind == reply_scan.CALL
    assert reply.name == "get"
    assert reply.arg_names == ["item", "count", None]
    assert reply.arg_values == ["iron ore", "17", None]
    assert reply.given == [True, True, False]
    assert reply.value is None


def test_unknown_texts():
    """They are reported as given, although they have no symbol."""
    reply = read('{"name":"take","arguments":{"thing":"stick","item":"gold"}}')
    assert (reply.kind, reply.name) == (reply_scan.CALL, None)
    assert reply.arg_names == [None, "item", None]
    assert reply.arg_values == ["stick", None, None]
    assert reply.given == [True, True, False]


def test_one_argument_more_than_a_tool_has_is_read():
    pairs = ['"item":"stick"', '"count":1', '"code":"x"', '"item":"stick"']
    for max_args in (0, 1, 2):
        for num in range(len(pairs) + 1):
            text = '{"name":"get","arguments":{' + ",".join(pairs[:num]) + "}}"
            reply = read(text, max_args)
            assert len(reply.given) == max_args + 1
            fits = num <= max_args + 1
            assert reply.kind == (reply_scan.CALL if fits else reply_scan.MALFORMED)
            assert sum(reply.given) == (num if fits else 0)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("Answer: stick", reply_scan.ANSWER, "stick"),
        ("I have it.\nAnswer: iron ore \n", reply_scan.ANSWER, "iron ore"),
        ("Answer: gold", reply_scan.ANSWER, None),
        ("Refuse", reply_scan.REFUSE, None),
        ("Which one?\nAsk", reply_scan.ASK, None),
        ("get stick", reply_scan.MALFORMED, None),
        ('{"name":"get","arguments":{"item":"stick"}', reply_scan.MALFORMED, None),
        ("", reply_scan.MALFORMED, None),
    ],
)
def test_other_replies(text, kind, value):
    reply = read(text)
    assert (reply.kind, reply.value) == (kind, value)
    assert reply.name is None and not any(reply.given)
    assert reply.arg_names == reply.arg_values == [None] * 3


def test_a_truncated_reply():
    text = '{"name":"get","arguments":{"item":"stick"}}'
    assert read(text, room=len(text)).kind == reply_scan.CALL
    assert read(text + " ", room=len(text)).kind == reply_scan.MALFORMED


def test_detokenize():
    lexicon, *_ = table()
    tokens = helpers.tokenizer().encode("Answer: stick").ids
    row = jnp.array([*tokens, 7, 7], jnp.int32)
    text, num_bytes = jax.jit(reply_scan.detokenize)(lexicon, row, len(tokens))
    assert text.shape == (len(row) * reply_scan.BYTES_PER_TOKEN,)
    assert bytes(np.asarray(text))[: int(num_bytes)] == b"Answer: stick"
