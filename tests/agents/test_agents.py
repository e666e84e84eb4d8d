"""External agents over real sockets, including everything that can go wrong there."""

import asyncio
import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import threading
import time

import jax
import numpy as np
import pytest

from openagent_jax.agents import agents, play
from openagent_jax.agents import log as logs
from openagent_jax.curriculum import draw
from openagent_jax.suites import tasks as suites
from openagent_jax.types import Outcome
from tests import helpers, messages, scripted

pytest.importorskip("openai")

SCENARIOS = ("identity_erasure", "runtime_error", "unsolvable")
NUM_TASKS = 4
ABOUT = {"model": "scripted"}


@functools.cache
def suite():
    return suites.Suite(helpers.world("poi"), SCENARIOS, 3, NUM_TASKS, 1.0, "test")


@functools.cache
def lines():
    """Return what the expert replies to each conversation."""
    episodes = list(suite().episodes())
    room = helpers.BATCH - len(episodes)
    tasks = [task for episode in episodes for task in episode.begin.args]
    tasks += tasks[:1] * room
    tasks = jax.tree.map(lambda *x: np.stack(x), *tasks)
    demonstrated, _ = helpers.demonstrate(helpers.world("poi").tables, tasks)
    found = {}
    for episode in helpers.rows(demonstrated)[: len(episodes)]:
        theirs = messages.Conversation("poi", episode)
        *before, whole = theirs.messages()
        for seen in before:
            key = shape(seen, theirs.documents())
            assert found.setdefault(key, whole[len(seen)]) == whole[len(seen)]
    return found


def shape(seen, tools):
    """Return a conversation in a canonical form, which ignores variants of spelling."""
    turns = []
    for message in seen:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        for call in calls:
            arguments = call["arguments"]
            if isinstance(arguments, str):
                arguments = json.loads(arguments)
            turns.append(["call", call["name"], sorted(arguments.items())])
        turns.append([message["role"], message.get("content") or ""])
    return json.dumps([turns, tools], sort_keys=True)


def expert(body, number=0):
    message = lines()[shape(body["messages"], body["tools"])]
    calls = [
        {"function": dict(function, arguments=json.dumps(function["arguments"]))}
        for function in (call["function"] for call in message.get("tool_calls", ()))
    ]
    return scripted.reply({"content": message["content"], "tool_calls": calls})


def where(server, **changes):
    given = {"timeout": 5.0, "max_retries": 2} | changes
    return agents.Endpoint(server.base_url, "scripted", **given)


def run(file, place, num=4, budget=None, about=ABOUT):
    """Play the episodes that the log does not have yet, and return the log."""
    log = logs.Log(file, about)
    over = {key for key, kept in log.done.items() if kept["answered"]}

    async def go():
        async with agents.endpoint(place) as agent:
            playing = play.play(
                suite().episodes(over), agent, num, budget or play.Budget()
            )
            async with contextlib.aclosing(playing):
                async for outcome in playing:
                    log.add(outcome)

    try:
        asyncio.run(go())
    finally:
        log.close()
    return log


def rows_of(log):
    entries, names = suite().entries, suite().names
    return logs.rows(log, entries, names, NUM_TASKS, 1.0, "test")


def written(file):
    """Return a log's episodes by scenario and task, without times, and their count."""
    _, *rows = map(json.loads, file.read_text("utf-8").splitlines())
    count = collections.Counter((row["scenario"], row["index"]) for row in rows)
    for row in rows:
        del row["seconds"]
    return {(row["scenario"], row["index"]): row for row in rows}, count


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(agents, "BACK_OFF", 0.01)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.02)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The expert's episodes when nothing goes wrong."""
    file = tmp_path_factory.mktemp("clean") / "episodes.jsonl"
    lines()  # computed now, so that no request has to wait for it
    with scripted.server(expert) as server:
        log = run(file, where(server))
    return log, written(file)[0], len(server.requests)


def test_an_expert_solves_all(clean):
    log, episodes, num_requests = clean
    rows = {row["scenario"]: row for row in rows_of(log)}
    assert list(rows) == [draw.CLEAN, *SCENARIOS]
    for row in rows.values():
        assert row["success"]["mean"] == 1 and row["n"] == NUM_TASKS
        assert "unanswered" not in row
    assert rows["unsolvable"]["refusal_rate"] == 1
    assert rows["runtime_error"]["tool_error_rate"] > 0
    assert rows[draw.CLEAN]["chain_length_ratio"] == 1
    assert sum(e["num_replies"] for e in episodes.values()) == num_requests
    assert sum(e["num_tokens"] for e in episodes.values()) == 7 * num_requests


def fault(kind):
    return {
        "rate limit": ("error", 429, "slow down"),
        "server error": ("error", 500),
        "garbage": ("reply", b"<html>it is late</html>"),
        "half of it": ("drop", scripted.reply("Refuse")),
        "no completion": ("reply", {"choices": []}),
        "no object": ("reply", [1, 2]),
        "no message": ("reply", {"choices": [{"message": None}]}),
        "no text": ("reply", b'{"choices": "\xff"}'),
        "depths": ("reply", b"[" * 100_000),
        "silence": ("hang",),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    ["rate limit", "server error", "garbage", "half of it", "no completion"]
    + ["no object", "no message", "no text", "depths"],
)
def test_what_goes_away_changes_nothing(clean, tmp_path, kind):
    """Half of the requests fail once; the episodes are the same."""
    seen = collections.Counter()

    def script(body, number):
        text = json.dumps(body)
        seen[text] += 1
        return fault(kind) if seen[text] == 1 and len(text) % 2 else expert(body)

    with scripted.server(script) as server:
        run(tmp_path / "log", where(server), num=3)
    episodes, count = written(tmp_path / "log")
    assert episodes == clean[1] and set(count.values()) == {1}
    assert clean[2] * 1.2 < len(server.requests) < clean[2] * 1.8


def ask_once(place):
    async def go():
        async with agents.endpoint(place) as agent:
            return await agent([{"role": "user", "content": "Hm"}], [])

    return asyncio.run(go())


GARBAGE = {
    "no UTF-8": b'{"choices": [{"message": {"content": "caf\xe9"}}]}',
    "a number without end": b'{"x": ' + b"1" * 5000 + b"}",
    "no bottom": b"[" * 10**5,
    "nothing": b"",
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_no_answer(body):
    with scripted.server(lambda *_: ("reply", body)) as server:
        with pytest.raises(agents.Unanswered, match="not a chat completion"):
            ask_once(where(server))
        assert len(server.requests) == 3


def test_silence_is_waited_for_and_asked_again(clean, tmp_path):
    with scripted.server(
        lambda body, n: ("hang",) if n in (2, 9) else expert(body)
    ) as server:
        run(tmp_path / "log", where(server, timeout=1.0))
    assert written(tmp_path / "log")[0] == clean[1]
    assert len(server.requests) == clean[2] + 2


def test_the_time_that_a_server_asks_for(tmp_path):
    def script(body, number):
        if number == 0:
            return "error", 429, "slow down", None, {"Retry-After": "0.7"}
        return scripted.reply("Refuse")

    with scripted.server(script) as server:
        run(tmp_path / "log", where(server), num=1)
    (first, *_), (second, *_), *_ = server.requests
    assert 0.65 < second - first < 5


@pytest.mark.parametrize("kind", ["server error", "garbage", "silence", "half of it"])
def test_who_never_answers_has_not_failed(clean, tmp_path, kind):
    """Tasks 1 and 3 get no answer at first, but get one when the run is repeated."""
    file = tmp_path / "log"
    silent = {
        json.dumps(row["messages"][:2])
        for (_, index), row in clean[1].items()
        if index in (1, 3)
    }

    def script(body, number):
        hit = json.dumps(body["messages"][:2]) in silent
        return fault(kind) if hit else expert(body)

    with scripted.server(script) as server:
        log = run(file, where(server, timeout=0.5, max_retries=1))
    lost = {key for key, kept in log.done.items() if not kept["answered"]}
    assert lost >= {(name, i) for name in suite().names for i in (1, 3)}
    rows = rows_of(log)
    assert sum(row["n"] + row["unanswered"] for row in rows) == len(log.done)
    assert {row["success"]["mean"] for row in rows} == {1.0}
    assert all(log.done[key]["reason"] for key in lost)
    with scripted.server(expert) as server:
        run(file, where(server))
    episodes, count = written(file)
    assert episodes == clean[1]
    assert count == {key: 1 + (key in lost) for key in clean[1]}
    assert len(server.requests) == sum(clean[1][key]["num_replies"] for key in lost)


def test_one_that_has_ceased_to_answer_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(play, "PATIENCE", 5)
    with scripted.server(lambda *_: ("error", 503, "gone")) as server:
        with pytest.raises(RuntimeError, match="5 episodes in a row .* 503 .*gone"):
            run(tmp_path / "log", where(server, max_retries=0), num=1)
        assert len(server.requests) == 5
    # The port is closed now.
    with pytest.raises(RuntimeError, match="5 episodes in a row had no answer: Conn"):
        run(tmp_path / "log", where(server, max_retries=0), num=1)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            ("error", 401, "bad key s3cret"),
            r"does not accept the key: .*bad key \[key\]",
        ),
        (("error", 401, "y" * 280 + "s3cret"), r"y\[k"),  # redacted, then cut
        (("error", 403), "does not accept the key"),
        (("error", 404, "no such model"), 'has no model "scripted"'),
        (("error", 429, "you owe us", "insufficient_quota"), "insufficient_quota"),
    ],
)
def test_what_will_never_be_is_said_at_once(tmp_path, said, message):
    with scripted.server(lambda *_: said) as server:
        with pytest.raises(agents.Rejected, match=message) as error:
            run(tmp_path / "log", where(server, key="s3cret", max_retries=0), num=1)
    assert len(server.requests) == 1
    assert "s3cret" not in str(error.value) + repr(where(server, key="s3cret"))
    assert server.requests[0][2]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in (tmp_path / "log").read_text()


def test_an_address_that_lacks_its_end(tmp_path):
    with scripted.server(lambda *_: ("error", 404, "Not Found")) as server:
        for end, hint in (("", True), ("/v1", False), ("/v1/", False)):
            place = where(server)
            base_url = server.base_url.removesuffix("/v1") + end
            place = dataclasses.replace(place, base_url=base_url)
            with pytest.raises(agents.Rejected, match="has no model") as error:
                run(tmp_path / "log", place, num=1)
            assert ("should the address end with /v1?" in str(error.value)) == hint


@pytest.mark.parametrize(
    "said",
    [
        ("error", 400, "This model's maximum context length is 64 tokens"),
        ("error", 400, "too long", "context_length_exceeded"),
        ("error", 413, "too large"),
    ],
)
def test_no_room_is_the_fault_of_the_agent(tmp_path, said):
    with scripted.server(lambda *_: said) as server:
        log = run(tmp_path / "log", where(server))
    rows = rows_of(log)
    assert {row["success"]["mean"] for row in rows} == {0.0}
    assert {row["n"] for row in rows} == {NUM_TASKS}
    assert len(server.requests) == len(log.done)


def test_odd_replies_are_errors_of_the_agent(tmp_path):
    """Wrong names, huge replies and replies that were cut off: the agent's errors."""
    odd = [
        scripted.reply(
            {"tool_calls": [{"function": {"name": "x", "arguments": "{}"}}]}
        ),
        scripted.reply("y" * 2**20),
        scripted.reply({"tool_calls": [{"function": {"name": "x" * 2**20}}]}),
        scripted.reply({"tool_calls": [{"id": "x" * 2**20}]}),
        scripted.reply("half a letter: \ud83d"),
        scripted.reply(
            {"tool_calls": [{"id": "\ud83d", "function": {"name": "\ud83d"}}]}
        ),
        scripted.reply({"tool_calls": [{"function": {"arguments": "\ud83d"}}]}),
        scripted.reply("Refuse", "length"),
        scripted.reply({"content": None}),
        scripted.reply("Refuse\ud800"),
        scripted.reply(
            {"tool_calls": [{"id": "\ud800", "function": {"name": "\ud800"}}]}
        ),
    ]
    with scripted.server(
        lambda body, n: odd[min(len(body["messages"]) // 2 - 1, len(odd) - 1)]
    ) as server:
        log = run(tmp_path / "log", where(server))
    episodes, _ = written(tmp_path / "log")
    for kept in log.done.values():
        assert kept["answered"] and not kept["success"] and not kept["refused"]
        assert kept["num_calls"] == kept["num_errors"] == helpers.MAX_TURNS
    assert max(len(json.dumps(row)) for row in episodes.values()) < 200_000
    assert max(len(json.dumps(body)) for *_, body in server.requests) < 200_000


def test_a_budget_ends_it_and_a_larger_one_goes_on(clean, tmp_path):
    file = tmp_path / "log"
    with scripted.server(expert) as server:
        with pytest.raises(play.Spent, match="10 calls are made"):
            run(file, where(server), budget=play.Budget(max_calls=10))
        assert len(server.requests) == 10
        with pytest.raises(play.Spent, match="70 tokens are used"):
            run(file, where(server), num=1, budget=play.Budget(max_tokens=70))
        assert len(server.requests) == 20
        run(file, where(server))
    episodes, count = written(file)
    assert episodes == clean[1] and set(count.values()) == {1}


def test_who_waits_when_the_budget_ends_is_heard():
    numbers, over = itertools.count(), set()

    async def agent(messages, tools):
        await asyncio.sleep(0.1 * (next(numbers) == 0))  # the first call is slow
        return agents.Reply({"content": "Hm"})

    async def go():
        episodes = [play.Episode("clean", i, Bare, {}) for i in range(4)]
        async for outcome in play.play(episodes, agent, 2, play.Budget(max_calls=2)):
            over.add(outcome["index"])

    with pytest.raises(play.Spent):
        asyncio.run(go())
    assert over == {0, 1}


def test_what_never_ends_is_waited_for_no_longer():
    """If the agent rejects a request, a reply that is still pending is not awaited."""

    async def agent(messages, tools):
        if next(numbers):
            raise agents.Rejected("no")
        await asyncio.sleep(60)

    async def go():
        episodes = [play.Episode("clean", i, Bare, {}) for i in range(2)]
        async for _ in play.play(episodes, agent, 2, play.Budget()):
            pass

    numbers, start = itertools.count(), time.monotonic()
    with pytest.raises(agents.Rejected):
        asyncio.run(go())
    assert time.monotonic() - start < 30


def test_a_server_that_drips_is_not_listened_to_for_ever(monkeypatch):
    monkeypatch.setattr(agents, "LONGEST_WAIT", 0.2)
    with scripted.server(lambda *_: ("drip", scripted.reply("Refuse"))) as server:
        with pytest.raises(agents.Unanswered, match="no answer in 0.7 s"):
            ask_once(where(server, timeout=0.5, max_retries=0))


def test_what_was_answered_stays_answered(clean, tmp_path):
    log = logs.Log(tmp_path / "log", ABOUT)
    _, first, *_ = clean[1].values()
    for answered in (False, True, False):
        log.add(first | {"answered": answered})
    log.close()
    log = logs.Log(tmp_path / "log", ABOUT)
    log.close()
    (kept,) = log.done.values()
    assert kept["answered"] and kept["success"] == first["success"]


def test_a_line_that_was_being_written_is_played_again(clean, tmp_path):
    file = tmp_path / "log"
    with scripted.server(expert) as server:
        run(file, where(server))
        whole = file.read_bytes()
        file.write_bytes(whole[:-40])
        before = len(server.requests)
        run(file, where(server))
    episodes, count = written(file)
    assert episodes == clean[1] and set(count.values()) == {1}
    assert before < len(server.requests) <= before + helpers.MAX_TURNS


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff\xfe", "line 3 is no line of this log .UnicodeDecodeError"),
        (b'{"scenario": "clean"', "line 3 is no line of this log .JSONDecodeError"),
        (b'{"scenario": "clean"}', "line 3 is no line of this log .KeyError"),
        (b"[]", "line 3 is no line of this log"),
    ],
)
def test_damaged_logs(tmp_path, clean, line, message):
    file = tmp_path / "log"
    with scripted.server(expert) as server:
        with pytest.raises(play.Spent):
            run(file, where(server), num=1, budget=play.Budget(max_calls=9))
        kept = file.read_bytes().splitlines()
        damaged = b"\n".join([*kept[:2], line, *kept[2:], b""])
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            run(file, where(server))
        assert len(server.requests) == 9 and file.read_bytes() == damaged


def test_a_log_is_of_one_evaluation_and_one_writer(tmp_path):
    file = tmp_path / "log"
    log = logs.Log(file, ABOUT)
    with pytest.raises(OSError, match="another evaluation is writing it"):
        logs.Log(file, ABOUT)
    log.close()
    with pytest.raises(ValueError, match="model was 'scripted', and is 'other' now"):
        logs.Log(file, {"model": "other"})
    logs.Log(file, ABOUT).close()
    file.write_text('{"evaluation": 3}\n')
    with pytest.raises(ValueError, match="line 1 is no line of this log"):
        logs.Log(file, ABOUT)


@pytest.mark.slow
def test_a_suite_has_a_digest():
    other = dataclasses.replace(suite(), seed=4)
    assert suite().digest() == suite().digest() != other.digest()
    later = dataclasses.replace(suite())
    order = np.array([0, 2, 1, *range(3, suites.BLOCK)])
    drawn = jax.tree.map(lambda x: x[order], suite()._draw(0, 0))
    vars(later)["_draw"] = lambda *_: drawn
    assert later.digest() != suite().digest()  # only the later tasks differ


class Bare:
    """An episode that ends with the first reply."""

    def __init__(self):
        self.tools, self.messages, self.actions, self.results = [], [], [], []
        self.rewards, self.finished, self.terminated = {}, False, False
        no, none = np.bool_(False), np.int32(0)
        self.outcome = Outcome(no, no, no, none, none, none, none)

    def hear(self, reply, cut):
        self.finished = True


def test_what_is_over_is_told_before_it_is_given_up(monkeypatch):
    """The failure that ends the evaluation arrives together with seven answers."""
    slow, last, heard = range(1, 8), play.PATIENCE + 6, {}
    # Among episodes that end together, the unanswered ones are handled first.
    monkeypatch.setattr(play, "_failed", lambda task: task.result()["answered"])

    async def go():
        told, numbers = asyncio.Event(), itertools.count()

        async def agent(messages, tools):
            number = next(numbers)
            if number in slow:
                await told.wait()
                return agents.Reply({"content": "Hm"})
            if number == last:
                told.set()
            raise agents.Unanswered("no")

        episodes = [play.Episode("clean", i, Bare, {}) for i in range(last + 1)]
        playing = play.play(episodes, agent, 8, play.Budget())
        with contextlib.suppress(RuntimeError):
            async for outcome in playing:
                heard[outcome["index"]] = outcome["answered"]

    asyncio.run(go())
    assert heard == {i: i in slow for i in range(last + 1)}


def test_a_key_that_is_repeated_goes_into_no_log(tmp_path):
    with scripted.server(lambda *_: scripted.reply("s3cret\nRefuse")) as server:
        log = run(tmp_path / "log", where(server, key="s3cret"))
    assert all(kept["refused"] for kept in log.done.values())
    text = (tmp_path / "log").read_text()
    assert "[key]" in text and "s3cret" not in text


def test_a_word_is_no_key():
    """A placeholder that is passed as a key does not change how replies are read."""
    call = {"function": {"name": "name", "arguments": '{"x":"none"}'}}
    with scripted.server(lambda *_: scripted.reply({"tool_calls": [call]})) as server:
        plain = ask_once(where(server))
        for key in ("x", "name", "none", "u"):
            assert ask_once(where(server, key=key)) == plain


def test_the_key_is_in_no_part_of_a_reply():
    said = {"content": "s3cret", "tool_calls": [{"function": {"name": "s3cret"}}]}
    with scripted.server(lambda *_: scripted.reply(said)) as server:
        message = ask_once(where(server, key="s3cret")).message
    assert "s3cret" not in str(message) and str(message).count("[key]") == 2


@pytest.mark.parametrize(
    "changes",
    [{"key": key} for key in ("s3cret\n", " s3cret", "s3\rcret", "s3cret…")]
    + [{"base_url": f"http://{x}/v1"} for x in ("h:99999", "h:x", "[::1", ":80")],
)
def test_what_no_request_can_be_made_of(changes):
    with pytest.raises(ValueError) as error:
        agents.Endpoint(**({"base_url": "http://h/v1", "model": "x"} | changes))
    assert "cret" not in str(error.value)


def test_a_place_tells_no_secrets():
    place = agents.Endpoint("https://me:s3cret@h:8/v1?key=s3cret", "x").place
    assert place == "https://h:8/v1"


def test_a_reply_may_lack_what_is_not_needed(tmp_path):
    bare = {"choices": [{"message": {"content": "Refuse"}}]}
    with scripted.server(lambda *_: bare) as server:
        log = run(tmp_path / "log", where(server))
    assert all(kept["refused"] for kept in log.done.values())


# Functions.


def told(messages, tools):
    messages.append("spoilt")
    tools.clear()
    return "Refuse"


async def thinks(messages, tools):
    return {"content": "Well.\nRefuse"}


def fails(messages, tools):
    raise KeyError("a fault of mine")


def tells(messages, tools):
    if tools:
        raise KeyError("s3cret")
    return "s3cret"


def number(messages, tools):
    return 7


class Thinks:
    async def __call__(self, messages, tools):
        return "Refuse"


thinker = Thinks()


def hands_on(messages, tools):
    return thinks(messages, tools)


def at_its_end(messages, tools):
    return next(iter(()))


def completion(messages, tools):
    return scripted.reply("Refuse")


def no_calls(messages, tools):
    return {"content": None, "tool_calls": [7]}


def no_json(messages, tools):
    call = {"function": {"name": "f", "arguments": {"x": object()}}}
    return {"content": None, "tool_calls": [call]}


def no_text(messages, tools):
    return {"content": b"Refuse"}


NO_MESSAGES = (
    ("completion", "a message with neither content nor tool_calls"),
    ("no_calls", "not a list of calls"),
    ("no_json", "it contains an object of type object"),
    ("no_text", "bytes"),
)


def ask(name, *given):
    return asyncio.run(agents.function(f"{__name__}:{name}")(*given))


def test_functions():
    given = [{"role": "user", "content": "x"}], [{"type": "function"}]
    assert ask("told", *given).message == {"content": "Refuse"}
    assert given == ([{"role": "user", "content": "x"}], [{"type": "function"}])
    assert ask("thinks", *given).message == {"content": "Well.\nRefuse"}
    with pytest.raises(agents.Unanswered, match="KeyError: 'a fault of mine'"):
        ask("fails", *given)
    with pytest.raises(agents.Rejected, match="returns int, not a message"):
        ask("number", *given)
    for name, message in NO_MESSAGES:
        with pytest.raises(agents.Rejected, match=f"{name} returns .*{message}"):
            ask(name, *given)
    for name, message in (
        ("nothing", "no attribute 'nothing'; write module:function"),
        ("NUM_TASKS", "is not a function"),
    ):
        with pytest.raises(agents.Rejected, match=message):
            agents.function(f"{__name__}:{name}")
    with pytest.raises(agents.Rejected, match="No module named 'no_such_module'"):
        agents.function("no_such_module:f")


def test_a_function_does_not_tell_the_key():
    agent = agents.function(f"{__name__}:tells", "s3cret")
    assert asyncio.run(agent([], [])).message == {"content": "[key]"}
    with pytest.raises(agents.Unanswered, match=r"KeyError: '\[key\]'"):
        asyncio.run(agent([], [{}]))


def test_what_a_function_may_be():
    """Any callable can be an agent; awaitable results are awaited."""
    given = [{"role": "user", "content": "x"}], []
    for name in ("thinker", "hands_on"):
        assert ask(name, *given).message["content"].endswith("Refuse")
    with pytest.raises(agents.Unanswered, match="StopIteration"):
        ask("at_its_end", *given)


def test_messages_of_the_official_client(monkeypatch):
    from openai.types.chat import ChatCompletionMessage

    function = {"name": "f", "arguments": "{}"}
    call = {"id": "1", "type": "function", "function": function}
    called = ChatCompletionMessage.model_validate(
        {"role": "assistant", "tool_calls": [call]}
    )
    refused = ChatCompletionMessage(role="assistant", content=None, refusal="I can't")
    for said, content, calls in (
        (called, None, [call]),
        ({"content": "x", "tool_calls": called.tool_calls}, "x", [call]),
        (refused, "Refuse", None),
        ({"content": None, "refusal": "no"}, "Refuse", None),
    ):
        monkeypatch.setitem(globals(), "told", lambda messages, tools, x=said: x)
        message = ask("told", [], []).message
        assert (message["content"], message.get("tool_calls")) == (content, calls)


def test_functions_run_at_once_and_nobody_waits_for_them(monkeypatch):
    """More functions run at once than asyncio has threads, and exit waits for none."""
    num = 40
    together, never = threading.Barrier(num), threading.Event()
    monkeypatch.setitem(globals(), "told", lambda *_: f"{together.wait(20)}")
    agent = agents.function(f"{__name__}:told")

    async def ask_all():
        return await asyncio.gather(*(agent([], []) for _ in range(num)))

    assert {reply.message["content"] for reply in asyncio.run(ask_all())} == {
        str(i) for i in range(num)
    }
    monkeypatch.setitem(globals(), "told", lambda *_: never.wait(20))
    agent = agents.function(f"{__name__}:told")
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(agent([], []), 0.1))
    assert time.monotonic() - begin < 10
    never.set()


def test_modules_that_cannot_be_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text, message in (
        ("of_mine_1", "1 / 0", "cannot be imported: ZeroDivisionError: division"),
        ("of_mine_2", "def (", "cannot be imported: SyntaxError: invalid syntax"),
        ("of_mine_3", "import no_such_x", "No module named 'no_such_x'$"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(agents.Rejected, match=message):
            agents.function(f"{name}:f")
