"""OpenAI's client, connected to a server that generates a given text."""

import contextlib
import http.client
import json
import threading
import time

import pytest

from openagent_jax.text import messages
from tests import helpers
from tests.serving import host

openai = pytest.importorskip("openai")

CALL = '{"name":"look","arguments":{"place":"Oak Bay"}}'
TOOLS = [messages.tool("look", "opening hour of a place", {"place": "string"})]
ASKED = [{"role": "user", "content": "Show me the opening hour of Oak Bay."}]


@contextlib.contextmanager
def client(text, decoder=None, **changes):
    """A client of a server that generates a text."""
    served = host.serve(decoder or host.scripted(text), **changes)
    with host.address(served) as address:
        base_url = f"{address}/v1"
        with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as made:
            made.served = served
            yield made


@contextlib.contextmanager
def gated_client(**changes):
    """A client of a server that generates nothing until a gate is opened."""
    gate, reached = threading.Event(), threading.Event()
    made = host.gated(host.scripted("Hm hm hm."), gate, reached)
    with client("", made, **changes) as found:
        found.reached = reached
        try:
            yield found, gate
        finally:
            gate.set()


def ask(client, **more):
    more = {"messages": ASKED, "model": host.NAME} | more
    return client.chat.completions.create(**more)


def num_tokens(text):
    return len(helpers.tokenizer().encode(text).ids)


def post(client, body, path="chat/completions"):
    link = http.client.HTTPConnection(client.base_url.host, client.base_url.port)
    with contextlib.closing(link):
        link.request("POST", f"/v1/{path}", body)
        answer = link.getresponse()
        return answer.status, json.loads(answer.read())["error"], answer.headers


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
