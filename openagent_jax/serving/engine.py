"""Schedule requests on the rows of a decoder (continuous batching).

One thread owns the device. In each round it gives free rows to waiting requests,
prefills chunks of the oldest prompts that are not in the cache yet, and decodes a few
tokens of all rows whose prompt is in the cache. A step takes as long for one row as for
all, so rows should decode together. The cache of a finished row is kept: a later
request whose prompt has the same prefix, such as the next turn of a conversation,
prefills only the rest.
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

# Target times in seconds: of decoding in one round, if all rows are taken and if a row
# is free; and of prefilling before the rows that can decode get a step.
ROUND_S, OPEN_ROUND_S, PREFILL_S = 0.02, 0.004, 0.02
STOP, LENGTH, CANCELLED = "stop", "length", "cancelled"  # why a request ended


class EngineStopped(RuntimeError):
    """The engine failed, or was closed before the request was done."""


@dataclass(eq=False)
class Request:
    """A prompt to continue.

    The engine calls `deliver(tokens, end)` on its own thread, with a few new tokens
    each time, or once with all of them. `end` is None until the last call, in which it
    is `STOP`, `LENGTH`, `CANCELLED` or an `EngineStopped`.
    """

    prompt: Sequence[int]
    max_tokens: int
    deliver: Callable[[list[int], str | Exception | None], object]
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    incremental: bool = True  # whether to deliver tokens as they come or at the end
    cancelled: bool = False  # the caller sets it to cancel the request
    num_cached: int = 0  # tokens of the prompt that were already in the cache


@dataclass(eq=False)
class _Row:
    """The host's state of a row."""

    index: int
    cached: list[int] = field(default_factory=list)  # tokens in the cache
    request: Request | None = None
    pending: list[int] = field(default_factory=list)  # decoded, but not delivered yet
    last_used: int = 0  # number of the last request, counted from 1

    @property
    def num_to_prefill(self) -> int:
        return len(self.request.prompt) - len(self.cached) if self.request else 0


class Engine:
    """Serves requests from `start` to `close`; `submit` may be called by any thread."""

    def __init__(self, decoder: Decoder):
        self._decoder, self._cache = decoder, decoder.empty()
        self._state = decoders.idle_rows(decoder.num_rows)
        self._rows = [_Row(i) for i in range(decoder.num_rows)]
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._waiting: collections.deque[Request] = collections.deque()
        self._count = itertools.count(1)
        self._step_s = ROUND_S  # running estimate of a step's time in seconds
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._closed, self._lock = False, threading.Lock()
        self.error: Exception | None = None  # why the engine failed

    def start(self, on_failure: Callable[[], object] = lambda: None) -> None:
        """Start the engine's thread.

        Args:
          on_failure: called on that thread if the engine fails.
        """
        self._on_failure = on_failure
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; unfinished requests end with an `EngineStopped`."""
        with self._lock:
            self._closed = True
        self._inbox.put(None)
        self._thread.join()

    @property
    def num_waiting(self) -> int:
        """Number of requests that have no row yet."""
        return self._inbox.qsize() + len(self._waiting)

    def submit(self, request: Request) -> None:
        """Add a request to the waiting ones.

        Raises:
          EngineStopped: the engine is closed or has failed.
        """
        with self._lock:
            if self._closed:
                raise self._stopped()
            self._inbox.put(request)

    def _run(self) -> None:
        try:
            while not self._closed:
                self._round()
        except Exception as error:  # requests must be told of any error
            self.error = error
        with self._lock:
            self._closed = True
        self._receive(block=False)
        active = [row.request for row in self._rows if row.request]
        for request in (*active, *self._waiting):
            request.deliver([], self._stopped())
        if self.error:
            self._on_failure()

    def _stopped(self) -> EngineStopped:
        return EngineStopped(f"the engine has stopped: {self.error or 'it was closed'}")

    def _round(self) -> None:
        busy = [row for row in self._rows if row.request]
        self._receive(block=not busy and not self._waiting)
        for row in busy:
            if row.request and row.request.cancelled:
                self._end(row, [], CANCELLED)
        self._assign_rows()
        more_to_prefill = self._prefill_some()
        if self._state.remaining.any():
            # Rounds are short while there is more to prefill or a row is free.
            all_taken = all(row.request for row in self._rows)
            round_s = ROUND_S if all_taken else OPEN_ROUND_S
            steps = 1 if more_to_prefill else int(round_s / self._step_s)
            self._decode(max(1, min(steps, decoders.MAX_STEPS)))

    def _receive(self, block: bool) -> None:
        """Move new requests from the inbox to the waiting ones."""
        while True:
            try:
                request = self._inbox.get(block=block)
            except queue.Empty:
                return
            if request:
                self._waiting.append(request)
            block = False

    def _assign_rows(self) -> None:
        """Give each request, oldest first, the free row with most of its prompt."""
        for request in [x for x in self._waiting if x.cancelled]:
            self._waiting.remove(request)
            request.deliver([], CANCELLED)
        while self._waiting:
            free = [row for row in self._rows if not row.request]
            if not free:
                return
            request = self._waiting.popleft()
            # The last token is never reused: its logits are needed to choose the next.
            prompt = request.prompt[:-1]
            num_cached = [_common_prefix(row.cached, prompt) for row in free]
            best = max(
                range(len(free)), key=lambda i: (num_cached[i], -free[i].last_used)
            )
            row = free[best]
            row.request, row.last_used = request, next(self._count)
            request.num_cached = num_cached[best]
            del row.cached[num_cached[best] :]
            state, i = self._state, row.index
            state.temperature[i], state.top_p[i] = request.temperature, request.top_p
            state.seed[i] = request.seed

    def _prefill_some(self) -> bool:
        """Prefill chunks of the oldest prompts; return whether any are left."""
        start = time.perf_counter()
        while rows := [row for row in self._rows if row.num_to_prefill > 0]:
            self._prefill(min(rows, key=lambda row: row.last_used))
            self._receive(block=False)
            self._assign_rows()
            if time.perf_counter() - start > PREFILL_S:
                break
        return any(row.num_to_prefill > 0 for row in self._rows)

    def _prefill(self, row: _Row) -> None:
        request, start = row.request, len(row.cached)
        assert request
        padded = np.zeros(decoders.MAX_PREFILL, np.int32)
        tokens = request.prompt[start : start + decoders.MAX_PREFILL]
        padded[: len(tokens)] = tokens
        self._state.length[row.index] = start
        self._cache, token = self._decoder.prefill(
            self._cache, row.index, padded, len(tokens), self._state
        )
        row.cached.extend(tokens)
        self._state.length[row.index] = len(row.cached)
        token = int(token)  # waits for the device, so that `_prefill_some` can time it
        if not row.num_to_prefill:
            self._state.remaining[row.index] = request.max_tokens
            self._deliver(row, [token])

    def _decode(self, num_steps: int) -> None:
        state, start = self._state, time.perf_counter()
        self._cache, tokens = self._decoder.decode(self._cache, state, num_steps)
        tokens = np.asarray(tokens)
        seconds = time.perf_counter() - start
        num_new = (tokens != decoders.NO_TOKEN).sum(axis=1)
        self._step_s += 0.2 * (seconds / max(num_new.max(), 1) - self._step_s)
        for row in self._rows:
            num = num_new[row.index]
            if num:
                new = tokens[row.index, :num].tolist()
                # Each step caches the token before the one that it chooses.
                row.cached += [int(state.token[row.index]), *new[:-1]]
                state.length[row.index] = len(row.cached)
                self._deliver(row, new)

    def _deliver(self, row: _Row, tokens: list[int]) -> None:
        """Deliver the new tokens of a row, and end its request if it is done."""
        assert row.request
        state, i = self._state, row.index
        state.token[i] = tokens[-1]
        state.remaining[i] -= len(tokens)
        if tokens[-1] == self._decoder.end_token:
            self._end(row, tokens, STOP)
        elif not state.remaining[i]:
            self._end(row, tokens, LENGTH)
        elif row.request.incremental:
            row.request.deliver(tokens, None)
        else:
            row.pending += tokens

    def _end(self, row: _Row, tokens: list[int], reason: str) -> None:
        assert row.request
        self._state.remaining[row.index] = 0
        tokens, row.pending = [*row.pending, *tokens], []
        request, row.request = row.request, None
        request.deliver(tokens, reason)


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences of tokens.

    >>> _common_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    size = min(len(a), len(b))
    differs = np.flatnonzero(np.asarray(a[:size]) != np.asarray(b[:size]))
    return int(differs[0]) if len(differs) else size
