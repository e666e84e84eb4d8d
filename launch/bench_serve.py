"""What HTTP, messages and the giving away of rows cost: the server beside its decoder.

Clients of another process, each with one request at a time over loopback, against the
same compiled programs called in a bare loop with the same prompts. All replies have the
same number of tokens, greedy, so both say the same.
"""

import concurrent.futures
import contextlib
import http.client
import json
import multiprocessing
import threading
from collections.abc import Callable

NUM_CLIENTS, NUM_REQUESTS, NEW_TOKENS = 8, 64, 128
REQUEST = "Show me the opening hour of Oak Bay, and walk {0} minutes."


def measure(c, model, medians: Callable) -> dict[str, float]:
    """`medians(*runs)` are the seconds of each."""
    from launch import backbones, endpoint
    from openagent_jax.serving import decoder as decoders
    from openagent_jax.serving import protocol

    params = backbones.first_params(c, model)
    decoder = decoders.compile(
        model.policy, params, decoders.NONE, NUM_CLIENTS, c.sandbox.context_tokens
    )  # nothing ends a reply
    served = endpoint.served(c, model, decoder, "bench", NUM_CLIENTS)
    bodies = [json.dumps(_body(i)) for i in range(NUM_REQUESTS)]
    asked = [protocol.read(body.encode()) for body in bodies]
    prompts = [served.conversations.tokens(x.messages, x.tools) for x in asked]
    spawn = multiprocessing.get_context("spawn")
    with (
        running(served) as port,
        concurrent.futures.ProcessPoolExecutor(1, spawn) as clients,
    ):
        seconds, rival = medians(
            lambda: clients.submit(ask_all, port, bodies).result(),
            lambda: bare(decoder, prompts),
        )
    num_tokens = NUM_REQUESTS * NEW_TOKENS
    return {
        "tokens_per_s": num_tokens / seconds,
        "bare_tokens_per_s": num_tokens / rival,
        "ratio": rival / seconds,
        "overhead": seconds / rival - 1,
        "prompt_tokens": sum(map(len, prompts)) / NUM_REQUESTS,
    }


def bare(decoder, prompts: list[list[int]]) -> None:
    """A batch of prompts after the other, read and gone on from."""
    import numpy as np

    from openagent_jax.serving import decoder as decoders

    cache, size = decoder.empty(), decoders.PIECE
    for first in range(0, len(prompts), decoder.num_rows):
        rows = decoders.idle(decoder.num_rows)
        for row, prompt in enumerate(prompts[first : first + decoder.num_rows]):
            for start in range(0, len(prompt), size):
                tokens = np.array(prompt[start : start + size], np.int32)
                piece = np.pad(tokens, (0, size - len(tokens)))
                rows.length[row] = start
                cache, token = decoder.read(cache, row, piece, len(tokens), rows)
            rows.length[row], rows.token[row] = len(prompt), token
        rows.left[:] = NEW_TOKENS - 1
        while rows.left.any():
            cache, said = decoder.decode(cache, rows, decoders.MAX_STEPS)
            num = (np.asarray(said) != decoders.NONE).sum(axis=1)
            rows.token[:] = np.asarray(said)[range(len(num)), num - 1]
            rows.length[:] += num
            rows.left[:] -= num


@contextlib.contextmanager
def running(served):
    """The port of a server that runs on a thread."""
    from launch import endpoint

    with endpoint.listen("127.0.0.1", 0) as door:
        server = endpoint.server(served)
        thread = threading.Thread(target=server.run, args=([door],))
        thread.start()
        try:
            yield door.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def ask_all(port: int, bodies: list[str]) -> None:
    """All clients, in a process of their own."""

    def ask(client: int) -> None:
        link = http.client.HTTPConnection("127.0.0.1", port)
        for body in bodies[client::NUM_CLIENTS]:
            link.request("POST", "/v1/chat/completions", body)
            reply = json.loads(link.getresponse().read())
            assert reply["usage"]["completion_tokens"] == NEW_TOKENS, reply

    with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
        list(pool.map(ask, range(NUM_CLIENTS)))


def _body(i: int) -> dict:
    """Prompts have nothing in common: a row that knows one would not read it again."""
    place = {"type": "object", "properties": {"place": {"type": "string"}}}
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"opening_hour_{j}",
                "description": f"{i} {j} opening hour of a place",
                "parameters": place,
            },
        }
        for j in range(5)
    ]
    messages = [{"role": "user", "content": REQUEST.format(i)}]
    asked = {"model": "bench", "max_tokens": NEW_TOKENS}
    return asked | {"messages": messages, "tools": tools}
