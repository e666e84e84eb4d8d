"""The overhead of playing an agent over HTTP, with a server of fixed latency."""

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from launch.common import agents as launch_agents
from launch.common.config import Config
from openagent_jax.agents import agents, play
from openagent_jax.agents import log as logs

CONCURRENCY = 8
LATENCY = 0.25  # seconds; a language model seldom answers faster
NUM_EPISODES, NUM_REPLIES = 512, 4  # the size of a small evaluation
MANY = 10_000  # episodes of one reply, without latency
SETTLED = 1_000  # episodes after which memory should no longer grow


def measure(c: Config) -> dict[str, float]:
    """Return the overhead of playing over the endpoint's own time, and memory growth.

    Returns:
      The overhead in percent, with `CONCURRENCY` episodes at once; and the growth of
      the peak memory over `MANY` episodes, in megabytes.
    """
    c = c.replace({"eval.scenarios": (), "eval.num_tasks": MANY})
    tasks = launch_agents.suite(c)
    with _server(LATENCY, NUM_REPLIES) as (url, busy_seconds):
        _play(tasks, url, 2 * CONCURRENCY)  # compiles
        before = busy_seconds()
        seconds, _ = _play(tasks, url, NUM_EPISODES)
        own = (busy_seconds() - before) / CONCURRENCY
    with _server(0.0, 1) as (url, _):
        many, peaks = _play(tasks, url, MANY)
    return {
        "latency_s": LATENCY,
        "added_percent": 100 * (seconds / own - 1),
        "many_episodes_per_s": MANY / many,
        "grown_mb": peaks[-1] - peaks[0],
    }


def _play(tasks: launch_agents.Tasks, url: str, num: int) -> tuple[float, list[float]]:
    """Play; return the seconds, and the peak memory after every `SETTLED` episodes."""
    episodes = itertools.islice(tasks.episodes(()), num)
    peaks = []

    async def run(log: logs.Log) -> None:
        async with agents.endpoint(agents.Endpoint(url, "scripted")) as agent:
            playing = play.play(episodes, agent, CONCURRENCY, play.Budget())
            async for outcome in playing:
                log.add(outcome)
                if len(log.done) % SETTLED == 0:
                    usage = resource.getrusage(resource.RUSAGE_SELF)
                    peaks.append(usage.ru_maxrss / 1024)

    with tempfile.TemporaryDirectory() as folder:
        with contextlib.closing(logs.Log(Path(folder, launch_agents.LOG), {})) as log:
            start = time.perf_counter()
            asyncio.run(run(log))
            return time.perf_counter() - start, peaks


@contextlib.contextmanager
def _server(latency: float, num_replies: int) -> Iterator[tuple[str, Callable]]:
    """Run a server; yield its address, and the seconds it has spent on requests."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, latency, num_replies))
    process.start()

    def busy_seconds() -> float:
        ours.send(None)
        return ours.recv()

    try:
        yield f"http://127.0.0.1:{ours.recv()}/v1", busy_seconds
    finally:
        process.terminate()
        process.join()


def _serve(pipe: Connection, latency: float, num_replies: int) -> None:
    """Answer each request after the latency: with plain text, finally a refusal."""
    spent = 0.0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        nonlocal spent
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                begin = time.perf_counter()
                size = re.search(rb"content-length: (\d+)", head.lower())
                body = await reader.readexactly(int(size[1]) if size else 0)
                await asyncio.sleep(latency)
                num = len(json.loads(body)["messages"]) // 2
                text = "Refuse" if num >= num_replies else "Let me think."
                writer.write(_completion(text))
                await writer.drain()
                spent += time.perf_counter() - begin
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=2**20)
        pipe.send(server.sockets[0].getsockname()[1])
        loop = asyncio.get_running_loop()
        loop.add_reader(pipe.fileno(), lambda: (pipe.recv(), pipe.send(spent)))
        await server.serve_forever()

    asyncio.run(run())


def _completion(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps({"object": "chat.completion", "choices": [choice]}).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
