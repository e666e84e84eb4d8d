"""Schedule requests on the rows of a decoder (continuous batching).

One thread owns the device. In each round it gives free rows to waiting requests,
prefills chunks of the oldest prompts that are not in the cache yet, and decodes some
tokens in all rows that can: a step takes as long for one row as for all, so rows should
decode together. The cache of a finished row is kept: a later request whose prompt
begins in the same way, such as the next turn of a conversation, prefills only the rest.
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

# Target times in seconds: of decoding in one round, when all rows are taken and when a
# row is free; and of prefilling before the rows that can decode get a step.
ROUND_S, OPEN_ROUND_S, PREFILL_S = 0.02, 0.004, 0.02
STOP, LENGTH, CANCELLED = "stop", "length", "cancelled"  # why a request has ended


class EngineStopped(RuntimeError):
    """The engine has failed, or was closed before the request was done."""


@dataclass(eq=False)
class Request:
    """A prompt to continue.

    The engine calls `deliver(tokens, end)` on its own thread, with a few new tokens
    each time, or once with all of them. `end` is None until the last call; then it is
    one of `STOP`, `LENGTH` and `CANCELLED`, or the exception that has stopped the
    engine.
    """

    prompt: Sequence[int]
    max_tokens: int
    deliver: Callable[[list[int], str | Exception | None], object]
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    incremental: bool = True  # deliver tokens as they come, not all at the end
    cancelled: bool = False  # set by whoever no longer wants the reply
    num_cached: int = 0  # tokens of the prompt that were in the cache already


@dataclass(eq=False)
class _Row:
    """What the host knows about a row."""

    index: int
    cached: list[int] = field(default_factory=list)  # tokens in the cache
    request: Request | None = None
    pending: list[int] = field(default_factory=list)  # decoded, not delivered yet
    last_used: int = 0  # by the count of requests

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
        self._step_s = ROUND_S  # running estimate of the time of a step
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._closed, self._lock = False, threading.Lock()
        self.error: Exception | None = None  # why the engine has failed

    def start(self, on_failure: Callable[[], object] = lambda: None) -> None:
        """Start the thread.

        Args:
          on_failure: called on the thread of the engine if it fails.
        """
        self._on_failure = on_failure
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; requests that are not done get an `EngineStopped`."""
        with self._lock:
            self._closed = True
        self._inbox.put(None)
        self._thread.join()

    @property
    def num_waiting(self) -> int:
        """Number of requests that have no row yet."""
        return self._inbox.qsize() + len(self._waiting)

    def submit(self, request: Request) -> None:
        """Add a request to those that wait.

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
        except Exception as error:  # whatever it is, waiting requests must be told
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
            # Short rounds while prompts are to be prefilled, or a request may come.
            all_taken = all(row.request for row in self._rows)
            round_s = ROUND_S if all_taken else OPEN_ROUND_S
            steps = 1 if more_to_prefill else int(round_s / self._step_s)
            self._decode(max(1, min(steps, decoders.MAX_STEPS)))

    def _receive(self, block: bool) -> None:
        """Move new requests from the inbox to those that wait."""
        while True:
            try:
                request = self._inbox.get(block=block)
            except queue.Empty:
                return
            if request:
                self._waiting.append(request)
            block = False

    def _assign_rows(self) -> None:
        """Give free rows to the oldest requests, each the row that has cached most."""
        for request in [x for x in self._waiting if x.cancelled]:
            self._waiting.remove(request)
            request.deliver([], CANCELLED)
        while self._waiting:
            free = [row for row in self._rows if not row.request]
            if not free:
                return
            request = self._waiting.popleft()
            # The last token is always computed: its logits choose the next one.
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
        """Prefill chunks of the oldest prompts; return whether more is to be done."""
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
                # Each step has cached the token before the one that it has chosen.
                row.cached += [int(state.token[row.index]), *new[:-1]]
                state.length[row.index] = len(row.cached)
                self._deliver(row, new)

    def _deliver(self, row: _Row, tokens: list[int]) -> None:
        """Hand on new tokens of a row."""
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
