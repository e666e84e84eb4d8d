"""Scheduling: who is served when, and that this does not change the replies."""

import contextlib
import queue
import threading

import jax
import pytest

from openagent_jax.serving import engine as engines
from tests.serving.test_decoder import greedy, made, prompt


class Asked:
    """A request, and the events that it receives."""

    def __init__(self, engine, tokens, max_tokens=12, **how):
        self.events = queue.Queue()
        deliver = lambda tokens, end: self.events.put((tokens, end))  # noqa: E731
        self.request = engines.Request(tokens, max_tokens, deliver, **how)
        engine.submit(self.request)

    def next(self):
        return self.events.get(timeout=60)

    def said(self):
        """Return all tokens; `end` is set to the reason why the reply ended."""
        said, self.end = [], None
        while self.end is None:
            tokens, self.end = self.next()
            said += tokens
        return said


@contextlib.contextmanager
def running(decoder=None):
    engine = engines.Engine(decoder or made())
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.slow
def test_more_requests_than_rows():
    prompts = [prompt(n, n) for n in (150, 9, 129, 7, 40, 260, 33, 12, 5, 64)]
    with running() as engine:
        asked = [Asked(engine, tokens) for tokens in prompts]
        said = [one.said() for one in asked]
    assert said == [greedy(tokens, 12) for tokens in prompts]
    stops = [row[-1] == made().end_token for row in said]
    ends = [engines.STOP if stop else engines.LENGTH for stop in stops]
    assert [one.end for one in asked] == ends
    assert any(stops) and not all(stops)
    assert engine.num_waiting == 0


def test_all_at_once():
    with running() as engine:
        asked = Asked(engine, prompt(40), 100, incremental=False)
        tokens, end = asked.next()
    assert (tokens, end) == (greedy(prompt(40), 100), engines.LENGTH)
    assert len(tokens) == 100


def test_sampling_does_not_mind_the_company():
    how = {"temperature": 1.5, "top_p": 0.9, "seed": 3}
    with running() as engine:
        alone = Asked(engine, prompt(40), 30, **how).said()
        others = [Asked(engine, prompt(50 + n), 60, temperature=1) for n in range(7)]
        assert Asked(engine, prompt(40), 30, **how).said() == alone
        assert Asked(engine, prompt(40), 30, **(how | {"seed": 4})).said() != alone
        for other in others:
            other.said()


def test_what_is_known_is_not_read_again():
    """The next turn of a conversation reuses the cache, and so does a shared prefix."""
    tokens = prompt(140)
    with running() as engine:
        first = Asked(engine, tokens)
        said = first.said()
        assert first.request.num_cached == 0
        longer = [*tokens, *said, *prompt(30, 1)]
        second = Asked(engine, longer)
        assert second.said() == greedy(longer, 12)
        # The last generated token has never been read.
        assert second.request.num_cached == len(tokens) + len(said) - 1
        again = Asked(engine, longer)
        assert again.said() == greedy(longer, 12)
        assert again.request.num_cached == len(longer) - 1
        other = [*tokens[:100], *prompt(20, 2)]
        third = Asked(engine, other)
        assert third.said() == greedy(other, 12)
        assert third.request.num_cached == 100


def test_rows_that_know_something_are_kept():
    """Four interleaved conversations each find their own row again."""
    with running() as engine:
        turns = [prompt(50, seed) for seed in range(4)]
        for tokens in turns:
            Asked(engine, tokens, 2).said()
        for tokens in turns[::-1]:
            asked = Asked(engine, [*tokens, 9, 9], 2)
            asked.said()
            assert asked.request.num_cached >= 50


def test_who_does_not_want_it_any_more():
    with running() as engine:
        busy = [Asked(engine, prompt(40), 200, temperature=9) for _ in range(4)]
        waiting = Asked(engine, prompt(30))
        last = Asked(engine, prompt(33))
        busy[0].next()
        waiting.request.cancelled = True
        busy[0].request.cancelled = True
        assert last.said() == greedy(prompt(33), 12)
        busy[0].said(), waiting.said()
        assert busy[0].end == waiting.end == engines.CANCELLED
        assert any(one.request.cancelled is False for one in busy)


def test_nothing_is_compiled_once_it_runs():
    compiled = []

    def heard(name, *_, **__):
        compiled.append(name)

    with running() as engine:
        jax.monitoring.register_event_duration_secs_listener(heard)
        try:
            for how in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.5}):
                asked = [Asked(engine, prompt(n, n), 20, **how) for n in (9, 40, 200)]
                assert all(one.said() for one in asked)
        finally:
            unregister = "unregister_event_duration_listener"
            getattr(jax.monitoring, unregister)(heard)
    assert not [name for name in compiled if "compile" in name or "trace" in name]


class Told:
    """A decoder that records how it is called."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return getattr(made(), name)

    def prefill(self, *args):
        self.calls.append("prefill")
        return made().prefill(*args)

    def decode(self, cache, rows, num_steps):
        self.calls.append((rows.remaining > 0).sum())
        return made().decode(cache, rows, num_steps)


@pytest.mark.parametrize("read_s", [60, 0])
def test_rows_go_together_but_nobody_waits_for_long(monkeypatch, read_s):
    """With little time for prefill, rows that can decode get a step between chunks."""
    monkeypatch.setattr(engines, "PREFILL_S", read_s)
    decoder = Told()
    engine = engines.Engine(decoder)
    prompts = [prompt(n, n) for n in (40, 260, 70)]
    asked = [Asked(engine, tokens, 4) for tokens in prompts]
    engine.start()
    assert [one.said() for one in asked] == [greedy(x, 4) for x in prompts]
    engine.close()
    pieces = decoder.calls[:5]
    one = "prefill"
    assert pieces == ([one] * 5 if read_s else [one, 1, one, 1, one])


def test_who_has_left_does_not_wait():
    """A cancelled request is answered although no row is free."""
    turns = threading.Semaphore(0)

    class Slow(Told):
        def decode(self, *args):
            turns.acquire()
            return super().decode(*args)

    engine = engines.Engine(Slow())
    busy = [Asked(engine, prompt(40, n), 250, temperature=9) for n in range(4)]
    waiting = Asked(engine, prompt(30))
    waiting.request.cancelled = True
    engine.start()
    turns.release()
    assert waiting.next() == ([], engines.CANCELLED)
    assert engine.num_waiting == 0
    for one in busy:
        one.request.cancelled = True
    turns.release(9)
    assert not any(one.said() and one.end == engines.LENGTH for one in busy)
    engine.close()


class Broken:
    """A decoder that fails in its third call."""

    def __init__(self):
        self.num_rows, self.end_token, self.empty = 2, 5, made().empty
        self.num_calls = 0

    def prefill(self, *args):
        return self.decode(*args)

    def decode(self, cache, *args):
        self.num_calls += 1
        if self.num_calls == 3:
            raise RuntimeError("the device is gone")
        return cache, 7


def test_those_who_wait_hear_of_a_failure():
    seen = queue.Queue()
    engine = engines.Engine(Broken())
    asked = [Asked(engine, prompt(300)) for _ in range(4)]
    engine.start(lambda: seen.put(str(engine.error)))
    assert seen.get(timeout=60) == "the device is gone"
    for one in asked:
        one.said()
        assert isinstance(one.end, engines.EngineStopped)
        assert "the device is gone" in str(one.end)
    with pytest.raises(engines.EngineStopped, match="the device is gone"):
        Asked(engine, prompt(3))
    engine.close()


def test_nobody_is_left_behind_at_the_end():
    with running() as engine:
        asked = [Asked(engine, prompt(40), 250, temperature=9) for _ in range(6)]
        asked[0].next()
    for one in asked:
        one.said()
        assert isinstance(one.end, engines.EngineStopped) or one.end == engines.STOP
    assert engine.error is None
    with pytest.raises(engines.EngineStopped, match="it was closed"):
        Asked(engine, prompt(3))
