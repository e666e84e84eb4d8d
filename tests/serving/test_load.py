"""Too many requests, clients that disconnect, and an engine that fails."""

import dataclasses
import http.client
import json
import socket
import threading
import time

import pytest

from tests.serving import host
from tests.serving.clients import ASKED, ask, client, gated_client, openai, wait_until


def test_too_many_requests():
    num_rows = 1  # one is being decoded; the engine has not seen the others yet
    with gated_client(max_waiting=3) as (found, gate):
        said = []

        def one():
            said.append(ask(found).choices[0].message.content)

        threads = [threading.Thread(target=one) for _ in range(num_rows + 3)]
        for n, thread in enumerate(threads):
            thread.start()
            wait_until(lambda n=n: _num_known(found.served.engine) == n + 1)
            assert found.reached.wait(30)  # before that it would take another request
        with pytest.raises(openai.RateLimitError, match="3 requests are waiting") as e:
            ask(found)
        assert e.value.response.headers["Retry-After"] == "1"
        assert e.value.code == "rate_limit_exceeded"
        gate.set()
        for thread in threads:
            thread.join()
        assert said == ["Hm hm hm."] * (num_rows + 3)


def _num_known(engine):
    return engine.num_waiting + sum(row.request is not None for row in engine._rows)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_disconnects_frees_its_row(stream):
    body = {"model": host.NAME, "messages": ASKED, "stream": stream, "max_tokens": 9}
    with gated_client() as (found, gate):
        engine, address = found.served.engine, found.base_url
        for _ in engine._rows:
            link = http.client.HTTPConnection(address.host, address.port)
            link.request("POST", "/v1/chat/completions", json.dumps(body))
            wait_until(lambda: _num_known(engine) > 0)
            requests = [row.request for row in engine._rows if row.request]
            requests += [*engine._waiting]
            link.sock.shutdown(socket.SHUT_RDWR)
            link.close()
            wait_until(lambda known=requests: all(x.cancelled for x in known))
        gate.set()
        wait_until(lambda: _num_known(engine) == 0)
        assert ask(found).choices[0].message.content == "Hm hm hm."


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_fails(stream):
    def fail(*args):
        raise RuntimeError("the device is gone")

    broken = dataclasses.replace(host.scripted("Hm"), _decode=fail)
    with client("", broken) as found:
        with pytest.raises(openai.APIError, match="the device is gone"):
            list(ask(found, stream=stream))
        # The server stops with it.
        wait_until(lambda: found.served.engine.error is not None)
        with pytest.raises(openai.APIError):
            for _ in range(1000):
                ask(found)
                time.sleep(0.01)
