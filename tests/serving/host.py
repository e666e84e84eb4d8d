"""Served policies for tests, over real sockets on the loopback interface."""

import contextlib
import dataclasses
import functools

import jax
import jax.numpy as jnp

from launch.benchmarks import serving
from openagent_jax.serving import app, compact, conversation, decoder, reply
from openagent_jax.serving.engine import Engine
from openagent_jax.serving.surface_tokenizer import SurfaceTokenizer
from openagent_jax.text import style
from openagent_jax.types import Cache, Policy
from tests import helpers

NAME = "ours"


def decode(policy, params, num_rows=4, num_slots=320):
    """A compiled decoder."""
    end = helpers.tokenizer().token_to_id(helpers.END)
    return decoder.compile(policy, params, end, num_rows, num_slots)


SCRIPT = 96  # tokens of the longest script


@functools.cache
def script_decoder():
    """A decoder whose policy generates its parameters, whatever it reads."""

    def init_cache(num_rows, blocks):
        empty = tuple((jnp.zeros((num_rows, 1, 1, size)),) for size in blocks)
        # The first slot counts the tokens of the script that have been generated.
        slots = tuple((jnp.zeros((num_rows, 1, size, 1)),) for size in blocks)
        return Cache(empty, slots, jnp.zeros(num_rows, int))

    def extend(params, cache, tokens, num_new):
        (first, *rest) = cache.values
        said = first[0][:, 0, 0, 0] + 1 if tokens.shape[1] == 1 else 0 * num_new
        first = (first[0].at[:, 0, 0, 0].set(said.astype(float)),)
        hidden = jnp.broadcast_to(said[:, None, None], (*tokens.shape, 1))
        length = cache.length + num_new
        return hidden.astype(float), Cache(cache.keys, (first, *rest), length)

    def head(params, hidden):
        token = params["script"][hidden[..., 0].astype(int)]
        return 9.0 * jax.nn.one_hot(token, num_tokens)

    num_tokens = helpers.tokenizer().get_vocab_size()
    policy = Policy(lambda key: script(""), lambda *_: None, init_cache, extend, head)
    return decode(policy, script(""))


def script(text):
    tokens = helpers.tokenizer().encode(text).ids
    end = helpers.tokenizer().token_to_id(helpers.END)
    assert len(tokens) < SCRIPT
    return {"script": jnp.array(tokens + [end] * (SCRIPT - len(tokens)))}


def scripted(text):
    """A decoder that generates a text, then ends."""
    return dataclasses.replace(script_decoder(), _params=script(text))


def gated(made, gate, reached):
    """The same decoder, but it decodes nothing until the gate is opened; `reached` is
    set when it waits there."""

    def decode(*args):
        reached.set()
        assert gate.wait(60)
        return made._decode(*args)

    return dataclasses.replace(made, _decode=decode)


def serve(made, source=None, **changes):
    """Return a decoder as the application serves it, in the compact style."""
    source, compact_style = source or helpers.world("poi"), style.compact(3)
    tokenizer, end = helpers.tokenizer(), source.tables.lexicon.end_token
    tokenize = SurfaceTokenizer(tokenizer, source.tables.lexicon)
    given = {
        "name": NAME,
        "engine": Engine(made),
        "conversations": conversation.Conversations(
            compact.render, compact_style.end, end, tokenize
        ),
        "detokenizer": reply.Detokenizer(tokenizer, compact_style, end),
        "call_style": reply.call_style(compact_style, flat=True),
        "max_context": made.num_slots,
        "max_tokens": 16,
        "temperature": 0.0,
        "max_waiting": 64,
    }
    return app.Served(**(given | changes))


@contextlib.contextmanager
def address(served):
    """Yield the address of a server that runs until the end of the block."""
    with serving.running(served) as port:
        yield f"http://127.0.0.1:{port}"
