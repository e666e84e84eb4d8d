"""What HTTP, messages and the giving away of rows cost: the server beside its decoder.

Clients of another process, each with one request at a time over loopback, against the
same compiled programs called in a bare loop with the same prompts (115 tokens of nano).
All replies have the same number of tokens, greedy, so both say the same. What a request
costs is shared by its tokens: so short replies are measured, and long ones.
"""

import concurrent.futures
import contextlib
import http.client
import json
import multiprocessing
import threading
from collections.abc import Callable

NUM_CLIENTS = 8
LENGTHS = (32, 256)  # of replies, in tokens
REQUEST = "Show me the opening hour of Oak Bay, and walk {0} minutes."


def measure(c, model, num_requests: int, medians: Callable) -> dict[str, float]:
    """`medians(*runs)` are the seconds of each."""
    from launch import backbones, endpoint
    from openagent_jax.serving import decoder as decoders
    from openagent_jax.serving import protocol

    params = backbones.first_params(c, model)
    decoder = decoders.compile(
        model.policy, params, decoders.NONE, NUM_CLIENTS, c.sandbox.context_tokens
    )  # nothing ends a reply
    served = endpoint.served(c, model, decoder, "bench", NUM_CLIENTS)
    spawn, figures = multiprocessing.get_context("spawn"), {}
    with (
        running(served) as port,
        concurrent.futures.ProcessPoolExecutor(1, spawn) as clients,
    ):
        for num in LENGTHS:
            bodies = [json.dumps(_body(i, num)) for i in range(num_requests)]
            asked = [protocol.read(body.encode()) for body in bodies]
            prompts = [served.conversations.tokens(x.messages, x.tools) for x in asked]
            seconds, rival = medians(
                lambda bodies=bodies: clients.submit(ask_all, port, bodies).result(),
                lambda prompts=prompts, num=num: bare(decoder, prompts, num),
            )
            figures |= {
                f"tokens_per_s_{num}": num_requests * num / seconds,
                f"bare_tokens_per_s_{num}": num_requests * num / rival,
                f"overhead_{num}": seconds / rival - 1,
            }
    return figures


def bare(decoder, prompts: list[list[int]], num_tokens: int) -> None:
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
        rows.left[:] = num_tokens - 1
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
            assert reply["choices"][0]["finish_reason"] == "length", reply

    with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
        list(pool.map(ask, range(NUM_CLIENTS)))


def _body(i: int, num_tokens: int) -> dict:
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
    asked = {"model": "bench", "max_tokens": num_tokens}
    return asked | {"messages": messages, "tools": tools}
