"""`launch.serve`, as seen by users."""

import concurrent.futures
import json
import os
import re
import signal
import socket
import time
import urllib.request

import pytest

pytest.importorskip("starlette")

SMALL = (
    "--config=configs/base.py",
    "--config.init_from=random",
    "--config.compile_cache=",
    "--config.model.width=16",
    "--config.model.num_layers=1",
    "--config.model.num_heads=2",
    "--config.model.num_kv_heads=2",
    "--config.model.head_size=8",
    "--config.model.mlp_width=16",
    "--config.model.look_back_heads=1",
)
ASKED = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Hm?"}],
    "temperature": 1,
    "seed": 1,
    "max_tokens": 400,
}


def wait_for_address(commands):
    """Return the address of the server when it is ready."""
    end = time.monotonic() + 100
    while not (found := re.search(r"http://\S+/v1", commands.output())):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found[0]


def post(address, body):
    request = urllib.request.Request(
        f"{address}/chat/completions", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize(
    ("how", "code"),
    [
        pytest.param(signal.SIGTERM, 0, id="TERM", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, id="Ctrl-C"),
    ],
)
def test_accepted_requests_are_completed_at_shutdown(commands, how, code):
    pid = commands.start("serve", *SMALL, "--port=0", "--name=tiny", "--max_batch=2")
    address = wait_for_address(commands)
    assert address.startswith("http://127.0.0.1:")
    assert commands.output() == f"tiny: {address}, 2 rows of 576 tokens\n"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [pool.submit(post, address, ASKED) for _ in range(6)]
        asked[0].result()  # the last requests still wait for a row
        os.kill(pid, how)
        said = [one.result() for one in asked]
    done = commands.wait()
    assert (done.code, done.err.strip()) == (
        code,
        "serve.py: interrupted" if code else "",
    )
    texts = {one["choices"][0]["message"]["content"] for one in said}
    assert len(texts) == 1 and texts != {""}  # the same seed
    with pytest.raises(OSError):
        post(address, ASKED)


def test_bad_use(commands):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for args, code, message in (
            ([], 2, "give either --workdir or --config"),
            ([*SMALL, "--workdir=x"], 2, "give either --workdir or --config"),
            (["--workdir=nowhere"], 2, "nowhere is not a workdir"),
            ([*SMALL, "--host=no.such.host.invalid"], 2, "--host=no.such.host.invalid"),
            ([*SMALL, f"--port={port}"], 1, f"--port={port}: Address already in use"),
            ([*SMALL, "--host=192.0.2.1"], 1, "192.0.2.1 --port=8000: Cannot assign"),
            ([*SMALL, "--port=99999"], 2, "port"),
            ([*SMALL, "--max_batch=0"], 2, "max_batch"),
        ):
            done = commands("serve", *args)
            assert done.code == code, (args, done)
            assert ("--port=0 finds" in done.err) == ("in use" in done.err)
            assert message in done.err and not done.out
            assert done.err.count("\n") == 1, done.err
