"""The cost of HTTP, messages and scheduling: the server against its bare decoder.

Clients in another process send requests over loopback, each client one at a time. The
baseline is a bare loop over the same compiled programs with the same prompts (115
tokens of nano). All replies are greedy and have the same number of tokens, so both
decode the same tokens. The cost of a request is spread over its tokens, so both short
and long replies are measured.
"""

import concurrent.futures
import contextlib
import http.client
import json
import multiprocessing
import threading

from launch.benchmarks.timing import Timer
from launch.common.config import Config
from launch.common.model_loading import Backbone

NUM_CLIENTS = 8
LENGTHS = (32, 256)  # of replies, in tokens
REQUEST = "Show me the opening hour of Oak Bay, and walk {0} minutes."


def measure(
    c: Config, model: Backbone, num_requests: int, timer: Timer
) -> dict[str, float]:
    """Return tokens per second of both, and the overhead, by the length of replies."""
    from launch.common import backbones, endpoint
    from openagent_jax.serving import decoder as decoders
    from openagent_jax.serving import protocol

    params = backbones.first_params(c, model)
    decoder = decoders.compile(
        model.policy, params, decoders.NO_TOKEN, NUM_CLIENTS, c.sandbox.context_tokens
    )  # no token ends a reply
    served = endpoint.served(c, model, decoder, "bench", NUM_CLIENTS)
    spawn, figures = multiprocessing.get_context("spawn"), {}
    with (
        running(served) as port,
        concurrent.futures.ProcessPoolExecutor(1, spawn) as clients,
    ):
        for num in LENGTHS:
            bodies = [json.dumps(_body(i, num)) for i in range(num_requests)]
            requests = [protocol.parse_request(body.encode()) for body in bodies]
            tokens = served.conversations.tokens
            prompts = [tokens(x.messages, x.tools) for x in requests]
            seconds, rival = timer(
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
    """Prefill and decode one batch of prompts after the other."""
    import numpy as np

    from openagent_jax.serving import decoder as decoders

    cache, size = decoder.empty(), decoders.MAX_PREFILL
    for first in range(0, len(prompts), decoder.num_rows):
        rows = decoders.idle_rows(decoder.num_rows)
        for row, prompt in enumerate(prompts[first : first + decoder.num_rows]):
            for start in range(0, len(prompt), size):
                tokens = np.array(prompt[start : start + size], np.int32)
                piece = np.pad(tokens, (0, size - len(tokens)))
                rows.length[row] = start
                cache, token = decoder.read(cache, row, piece, len(tokens), rows)
            rows.length[row], rows.token[row] = len(prompt), token
        rows.remaining[:] = num_tokens - 1
        while rows.remaining.any():
            cache, decoded = decoder.decode(cache, rows, decoders.MAX_STEPS)
            num = (np.asarray(decoded) != decoders.NO_TOKEN).sum(axis=1)
            rows.token[:] = np.asarray(decoded)[range(len(num)), num - 1]
            rows.length[:] += num
            rows.remaining[:] -= num


@contextlib.contextmanager
def running(served):
    """Run a server on a thread, and yield its port."""
    from launch.common import endpoint

    with endpoint.listen("127.0.0.1", 0) as listener:
        server = endpoint.server(served)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def ask_all(port: int, bodies: list[str]) -> None:
    """Send all requests, by `NUM_CLIENTS` clients at once. Runs in its own process."""

    def ask(client: int) -> None:
        link = http.client.HTTPConnection("127.0.0.1", port)
        for body in bodies[client::NUM_CLIENTS]:
            link.request("POST", "/v1/chat/completions", body)
            reply = json.loads(link.getresponse().read())
            assert reply["choices"][0]["finish_reason"] == "length", reply

    with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
        list(pool.map(ask, range(NUM_CLIENTS)))


def _body(i: int, num_tokens: int) -> dict:
    """Return a request whose prompt has no prefix in common with any other.

    A row that holds the prefix of a prompt in its cache would not prefill it again.
    """
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
    options = {"model": "bench", "max_tokens": num_tokens}
    return options | {"messages": messages, "tools": tools}
