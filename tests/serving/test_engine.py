"""Scheduling: the order of requests, and that it does not change the replies."""

import contextlib
import queue
import threading

import jax
import pytest

from openagent_jax.serving import engine as engines
from tests.serving.test_decoder import greedy, prompt, shared_decoder


class Client:
    """A client of one request, and the events that it receives."""

    def __init__(self, engine, tokens, max_tokens=12, **how):
        self.events = queue.Queue()
        deliver = lambda tokens, end: self.events.put((tokens, end))  # noqa: E731
        self.request = engines.Request(tokens, max_tokens, deliver, **how)
        engine.submit(self.request)

    def next(self):
        return self.events.get(timeout=60)

    def tokens(self):
        """Return all tokens; `end` is set to the reason why the reply ended."""
        said, self.end = [], None
        while self.end is None:
            tokens, self.end = self.next()
            said += tokens
        return said


@contextlib.contextmanager
def running(decoder=None):
    engine = engines.Engine(decoder or shared_decoder())
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.slow
def test_more_requests_than_rows():
    prompts = [prompt(n, n) for n in (150, 9, 129, 7, 40, 260, 33, 12, 5, 64)]
    with running() as engine:
        asked = [Client(engine, tokens) for tokens in prompts]
        said = [one.tokens() for one in asked]
    assert said == [greedy(tokens, 12) for tokens in prompts]
    stops = [row[-1] == shared_decoder().end_token for row in said]
    ends = [engines.STOP if stop else engines.LENGTH for stop in stops]
    assert [one.end for one in asked] == ends
    assert any(stops) and not all(stops)
    assert engine.num_waiting == 0


def test_a_reply_without_streaming():
    with running() as engine:
        asked = Client(engine, prompt(40), 100, incremental=False)
        tokens, end = asked.next()
    assert (tokens, end) == (greedy(prompt(40), 100), engines.LENGTH)
    assert len(tokens) == 100


def test_sampling_does_not_depend_on_other_requests():
    how = {"temperature": 1.5, "top_p": 0.9, "seed": 3}
    with running() as engine:
        alone = Client(engine, prompt(40), 30, **how).tokens()
        others = [Client(engine, prompt(50 + n), 60, temperature=1) for n in range(7)]
        assert Client(engine, prompt(40), 30, **how).tokens() == alone
        assert Client(engine, prompt(40), 30, **(how | {"seed": 4})).tokens() != alone
        for other in others:
            other.tokens()


def test_cached_prefixes_are_reused():
    """The next turn of a conversation reuses the cache, and so does a shared prefix."""
    tokens = prompt(140)
    with running() as engine:
        first = Client(engine, tokens)
        said = first.tokens()
        assert first.request.num_cached == 0
        longer = [*tokens, *said, *prompt(30, 1)]
        second = Client(engine, longer)
        assert second.tokens() == greedy(longer, 12)
        # The last generated token has never been read.
        assert second.request.num_cached == len(tokens) + len(said) - 1
        again = Client(engine, longer)
        assert again.tokens() == greedy(longer, 12)
        assert again.request.num_cached == len(longer) - 1
        other = [*tokens[:100], *prompt(20, 2)]
        third = Client(engine, other)
        assert third.tokens() == greedy(other, 12)
        assert third.request.num_cached == 100


def test_rows_with_a_cached_prefix_are_kept():
    """Four interleaved conversations each find their own row again."""
    with running() as engine:
        turns = [prompt(50, seed) for seed in range(4)]
        for tokens in turns:
            Client(engine, tokens, 2).tokens()
        for tokens in turns[::-1]:
            asked = Client(engine, [*tokens, 9, 9], 2)
            asked.tokens()
            assert asked.request.num_cached >= 50


def test_cancelled_requests_free_their_rows():
    with running() as engine:
        busy = [Client(engine, prompt(40), 200, temperature=9) for _ in range(4)]
        waiting = Client(engine, prompt(30))
        last = Client(engine, prompt(33))
        busy[0].next()
        waiting.request.cancelled = True
        busy[0].request.cancelled = True
        assert last.tokens() == greedy(prompt(33), 12)
        busy[0].tokens(), waiting.tokens()
        assert busy[0].end == waiting.end == engines.CANCELLED


def test_nothing_is_compiled_after_the_start():
    compiled = []

    def heard(name, *_, **__):
        compiled.append(name)

    with running() as engine:
        jax.monitoring.register_event_duration_secs_listener(heard)
        try:
            for how in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.5}):
                asked = [Client(engine, prompt(n, n), 20, **how) for n in (9, 40, 200)]
                assert all(one.tokens() for one in asked)
        finally:
            unregister = "unregister_event_duration_listener"
            getattr(jax.monitoring, unregister)(heard)
    assert not [name for name in compiled if "compile" in name or "trace" in name]


class RecordingDecoder:
    """A decoder that records how it is called."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return getattr(shared_decoder(), name)

    def prefill(self, *args):
        self.calls.append("prefill")
        return shared_decoder().prefill(*args)

    def decode(self, cache, rows, num_steps):
        self.calls.append((rows.remaining > 0).sum())
        return shared_decoder().decode(cache, rows, num_steps)


@pytest.mark.parametrize("read_s", [60, 0])
def test_prefill_alternates_with_decoding_if_time_is_short(monkeypatch, read_s):
    """With little time for prefill, rows that can decode get a step between chunks."""
    monkeypatch.setattr(engines, "PREFILL_S", read_s)
    decoder = RecordingDecoder()
    engine = engines.Engine(decoder)
    prompts = [prompt(n, n) for n in (40, 260, 70)]
    asked = [Client(engine, tokens, 4) for tokens in prompts]
    engine.start()
    assert [one.tokens() for one in asked] == [greedy(x, 4) for x in prompts]
    engine.close()
    pieces = decoder.calls[:5]
    one = "prefill"
    assert pieces == ([one] * 5 if read_s else [one, 1, one, 1, one])


def test_cancelled_requests_do_not_wait_for_a_row():
    """A cancelled request is answered although no row is free."""
    turns = threading.Semaphore(0)

    class SlowDecoder(RecordingDecoder):
        def decode(self, *args):
            turns.acquire()
            return super().decode(*args)

    engine = engines.Engine(SlowDecoder())
    busy = [Client(engine, prompt(40, n), 250, temperature=9) for n in range(4)]
    waiting = Client(engine, prompt(30))
    waiting.request.cancelled = True
    engine.start()
    turns.release()
    assert waiting.next() == ([], engines.CANCELLED)
    assert engine.num_waiting == 0
    for one in busy:
        one.request.cancelled = True
    turns.release(9)
    assert not any(one.tokens() and one.end == engines.LENGTH for one in busy)
    engine.close()


class FailingDecoder:
    """A decoder that fails in its third call."""

    def __init__(self):
        self.num_rows, self.end_token, self.empty = 2, 5, shared_decoder().empty
        self.num_calls = 0

    def prefill(self, *args):
        return self.decode(*args)

    def decode(self, cache, *args):
        self.num_calls += 1
        if self.num_calls == 3:
            raise RuntimeError("the device is gone")
        return cache, 7


def test_waiting_requests_are_told_of_a_failure():
    seen = queue.Queue()
    engine = engines.Engine(FailingDecoder())
    asked = [Client(engine, prompt(300)) for _ in range(4)]
    engine.start(lambda: seen.put(str(engine.error)))
    assert seen.get(timeout=60) == "the device is gone"
    for one in asked:
        one.tokens()
        assert isinstance(one.end, engines.EngineStopped)
        assert "the device is gone" in str(one.end)
    with pytest.raises(engines.EngineStopped, match="the device is gone"):
        Client(engine, prompt(3))
    engine.close()


def test_no_request_is_left_at_shutdown():
    with running() as engine:
        asked = [Client(engine, prompt(40), 250, temperature=9) for _ in range(6)]
        asked[0].next()
    for one in asked:
        one.tokens()
        assert isinstance(one.end, engines.EngineStopped) or one.end == engines.STOP
    assert engine.error is None
    with pytest.raises(engines.EngineStopped, match="it was closed"):
        Client(engine, prompt(3))
