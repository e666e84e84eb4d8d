"""Who is served when: one thread owns the device, and rows are given to requests.

A round admits who waits for a row, reads pieces of the oldest prompts that are not
yet read, and lets every row that can speak some tokens further: a step takes as long
for one row as for all, so that rows had better go together. What a row has read stays
in it when its request is done: the next one that begins in the same way reads only
what is new, as the next turn of a conversation does.
"""

import collections
import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from openagent_jax.serving import decoder as decoders
from openagent_jax.serving.decoder import Decoder

# Seconds that the device decodes at a time, about; the same while a row is free; and
# of reading prompts before who can speak gets a step.
ROUND_S, OPEN_ROUND_S, READ_S = 0.02, 0.004, 0.02
STOP, LENGTH, CANCELLED = "stop", "length", "cancelled"  # why a request has ended


class Broken(RuntimeError):
    """The engine has died, or was closed before the request was done."""


@dataclass(eq=False)
class Request:
    """A prompt to go on from.

    `deliver(tokens, end)` is called on the thread of the engine with each few tokens
    more, or once with all of them; `end` is None until the last time, and then says
    why, or what went wrong.
    """

    prompt: Sequence[int]
    max_tokens: int
    deliver: Callable[[list[int], str | Exception | None], object]
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    at_once: bool = True  # each few tokens are wanted as they come
    cancelled: bool = False  # set by whoever does not want it any more
    num_cached: int = 0  # tokens of the prompt that were not read again


@dataclass(eq=False)
class _Row:
    """What is known of a row on the host."""

    index: int
    read: list[int] = field(default_factory=list)  # tokens in the cache
    request: Request | None = None
    said: list[int] = field(default_factory=list)  # and not delivered yet
    used: int = 0  # when, by the count of requests

    @property
    def unread(self) -> int:
        """Tokens of the prompt that are still to be read."""
        return len(self.request.prompt) - len(self.read) if self.request else 0


class Engine:
    """Serves requests from `start` to `close`."""

    def __init__(self, decoder: Decoder):
        self._decoder, self._cache = decoder, decoder.empty()
        self._control = decoders.idle(decoder.num_rows)
        self._rows = [_Row(i) for i in range(decoder.num_rows)]
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._waiting: collections.deque[Request] = collections.deque()
        self._count = itertools.count(1)
        self._step_s = ROUND_S
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._closed, self._lock = False, threading.Lock()
        self.error: Exception | None = None  # what it has died of

    def start(self, on_failure: Callable[[], object] = lambda: None) -> None:
        """
        Args:
          on_failure: called on the thread of the engine when it has died.
        """
        self._on_failure = on_failure
        self._thread.start()

    def close(self) -> None:
        """Requests that are not done end as `Broken`."""
        with self._lock:
            self._closed = True
        self._inbox.put(None)
        self._thread.join()

    @property
    def num_waiting(self) -> int:
        """Requests without a row."""
        return self._inbox.qsize() + len(self._waiting)

    def submit(self, request: Request) -> None:
        with self._lock:
            if self._closed:
                raise self._broken()
            self._inbox.put(request)

    def _run(self) -> None:
        try:
            while not self._closed:
                self._round()
        except Exception as error:  # whatever it is, those who wait must hear of it
            self.error = error
        with self._lock:
            self._closed = True
        self._take(block=False)
        left = [row.request for row in self._rows if row.request]
        for request in (*left, *self._waiting):
            request.deliver([], self._broken())
        if self.error:
            self._on_failure()

    def _broken(self) -> Broken:
        return Broken(f"the engine has stopped: {self.error or 'it was closed'}")

    def _round(self) -> None:
        busy = [row for row in self._rows if row.request]
        self._take(block=not busy and not self._waiting)
        for row in busy:
            if row.request and row.request.cancelled:
                self._end(row, [], CANCELLED)
        self._admit()
        reading = self._read_some()
        if self._control.left.any():
            # Who is still to be read does not wait for long, nor who may come.
            whole = ROUND_S if all(row.request for row in self._rows) else OPEN_ROUND_S
            steps = 1 if reading else int(whole / self._step_s)
            self._decode(max(1, min(steps, decoders.MAX_STEPS)))

    def _take(self, block: bool) -> None:
        """Requests that have come in."""
        while True:
            try:
                request = self._inbox.get(block=block)
            except queue.Empty:
                return
            if request:
                self._waiting.append(request)
            block = False

    def _admit(self) -> None:
        """Whoever has waited longest gets the row that knows most of what it says."""
        for request in [x for x in self._waiting if x.cancelled]:
            self._waiting.remove(request)
            request.deliver([], CANCELLED)
        while self._waiting:
            free = [row for row in self._rows if not row.request]
            if not free:
                return
            request = self._waiting.popleft()
            # The last token is read in any case: what comes next is told by it.
            prompt = request.prompt[:-1]
            known = [_num_common(row.read, prompt) for row in free]
            best = max(range(len(free)), key=lambda i: (known[i], -free[i].used))
            row = free[best]
            row.request, row.used = request, next(self._count)
            request.num_cached = known[best]
            del row.read[known[best] :]
            control, i = self._control, row.index
            control.temperature[i], control.top_p[i] = (
                request.temperature,
                request.top_p,
            )
            control.seed[i] = request.seed

    def _read_some(self) -> bool:
        """Pieces of the oldest prompts; returns whether more is to be read."""
        start = time.perf_counter()
        while reading := [row for row in self._rows if row.unread > 0]:
            self._read(min(reading, key=lambda row: row.used))
            self._take(block=False)
            self._admit()
            if time.perf_counter() - start > READ_S:
                break
        return any(row.unread > 0 for row in self._rows)

    def _read(self, row: _Row) -> None:
        request, start = row.request, len(row.read)
        assert request
        piece = np.zeros(decoders.PIECE, np.int32)
        tokens = request.prompt[start : start + decoders.PIECE]
        piece[: len(tokens)] = tokens
        self._control.length[row.index] = start
        self._cache, token = self._decoder.read(
            self._cache, row.index, piece, len(tokens), self._control
        )
        row.read.extend(tokens)
        self._control.length[row.index] = len(row.read)
        token = int(token)  # waits for it: how long it takes is to be known
        if not row.unread:
            self._control.left[row.index] = request.max_tokens
            self._said(row, [token])

    def _decode(self, num_steps: int) -> None:
        control, start = self._control, time.perf_counter()
        self._cache, said = self._decoder.decode(self._cache, control, num_steps)
        said = np.asarray(said)
        took = time.perf_counter() - start
        num_said = (said != decoders.NONE).sum(axis=1)
        self._step_s += 0.2 * (took / max(num_said.max(), 1) - self._step_s)
        for row in self._rows:
            num = num_said[row.index]
            if num:
                # All but the last are in the cache by now, behind the one before them.
                tokens = said[row.index, :num].tolist()
                row.read += [int(control.token[row.index]), *tokens[:-1]]
                control.length[row.index] = len(row.read)
                self._said(row, tokens)

    def _said(self, row: _Row, tokens: list[int]) -> None:
        """Hand on what a row has said."""
        assert row.request
        control, i = self._control, row.index
        control.token[i] = tokens[-1]
        control.left[i] -= len(tokens)
        if tokens[-1] == self._decoder.end_token:
            self._end(row, tokens, STOP)
        elif not control.left[i]:
            self._end(row, tokens, LENGTH)
        elif row.request.at_once:
            row.request.deliver(tokens, None)
        else:
            row.said += tokens

    def _end(self, row: _Row, tokens: list[int], why: str) -> None:
        assert row.request
        self._control.left[row.index] = 0
        said, row.said = [*row.said, *tokens], []
        request, row.request = row.request, None
        request.deliver(said, why)


def _num_common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of what two rows of tokens begin with in common."""
    size = min(len(a), len(b))
    differs = np.flatnonzero(np.asarray(a[:size]) != np.asarray(b[:size]))
    return int(differs[0]) if len(differs) else size
