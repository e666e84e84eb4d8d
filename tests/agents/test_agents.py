"""Endpoints over real sockets: retries, errors, odd replies, and keys kept secret."""

import asyncio
import collections
import dataclasses
import json

import pytest

from openagent_jax.agents import agents
from tests import helpers, scripted
from tests.agents.endpoints import (
    FAULTS,
    NUM_TASKS,
    endpoint_of,
    evaluate,
    expert,
    read_log,
    report_rows,
)

pytest.importorskip("openai")
pytestmark = pytest.mark.usefixtures("short_delays")


def ask(endpoint):
    """Return the reply of an endpoint to a short message."""

    async def go():
        async with agents.endpoint(endpoint) as agent:
            return await agent([{"role": "user", "content": "Hm"}], [])

    return asyncio.run(go())


# Retries.


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"no reply"}))
def test_transient_faults_do_not_change_episodes(reference, tmp_path, fault):
    """Half of the requests fail once; the episodes are the same."""
    seen = collections.Counter()

    def script(body, number):
        text = json.dumps(body)
        seen[text] += 1
        return FAULTS[fault] if seen[text] == 1 and len(text) % 2 else expert(body)

    with scripted.server(script) as server:
        evaluate(tmp_path / "log", endpoint_of(server), num=3)
    episodes, count = read_log(tmp_path / "log")
    assert episodes == reference.episodes and set(count.values()) == {1}
    num_requests = reference.num_requests
    assert num_requests * 1.2 < len(server.requests) < num_requests * 1.8


MALFORMED = {
    "not UTF-8": b'{"choices": [{"message": {"content": "caf\xe9"}}]}',
    "huge number": b'{"x": ' + b"1" * 5000 + b"}",
    "deep nesting": b"[" * 10**5,
    "empty": b"",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_malformed_responses_are_retried_then_unanswered(body):
    with scripted.server(lambda *_: ("reply", body)) as server:
        with pytest.raises(agents.Unanswered, match="not a chat completion"):
            ask(endpoint_of(server))
        assert len(server.requests) == 3


def test_faults_of_two_kinds_share_the_retries():
    def script(body, number):
        return ("reply", b"") if len(server.requests) % 2 else FAULTS["server error"]

    with scripted.server(script) as server:
        with pytest.raises(agents.Unanswered) as error:
            ask(endpoint_of(server, max_retries=4))
        assert len(server.requests) == error.value.num_requests == 5


def test_an_error_that_comes_as_a_success_is_told():
    body = {"error": {"message": "the model s3cret is overloaded", "code": 502}}
    with scripted.server(lambda *_: ("reply", body)) as server:
        with pytest.raises(agents.Unanswered, match="the model .key. is overloaded"):
            ask(endpoint_of(server, key="s3cret", max_retries=0))


def test_other_servers_are_not_told_the_account(monkeypatch):
    """The official client sends these variables to every address."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-secret")
    with scripted.server(lambda *_: scripted.reply("Refuse")) as server:
        ask(endpoint_of(server))
    assert "secret" not in str(server.requests[0][2])


def test_requests_that_time_out_are_retried(reference, tmp_path):
    with scripted.server(
        lambda body, n: ("hang",) if n in (2, 9) else expert(body)
    ) as server:
        evaluate(tmp_path / "log", endpoint_of(server, timeout=1.0))
    assert read_log(tmp_path / "log")[0] == reference.episodes
    assert len(server.requests) == reference.num_requests + 2


def test_retry_after_header_is_obeyed(tmp_path):
    def script(body, number):
        if number == 0:
            return "error", 429, "slow down", None, {"Retry-After": "0.7"}
        return scripted.reply("Refuse")

    with scripted.server(script) as server:
        evaluate(tmp_path / "log", endpoint_of(server), num=1)
    (first, *_), (second, *_), *_ = server.requests
    assert 0.65 < second - first < 5


def test_total_time_of_a_slow_response_is_limited(monkeypatch):
    monkeypatch.setattr(agents, "LONGEST_WAIT", 0.2)
    with scripted.server(lambda *_: ("drip", scripted.reply("Refuse"))) as server:
        with pytest.raises(agents.Unanswered, match="no answer in 0.7 s"):
            ask(endpoint_of(server, timeout=0.5, max_retries=0))


# Errors of the server.


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            ("error", 401, "bad key s3cret"),
            r"does not accept the key: .*bad key \[key\]",
        ),
        (("error", 401, "y" * 280 + "s3cret"), r"y\[k"),  # redacted, then cut
        (("error", 403), "does not accept the key"),
        (("error", 404, "no such model"), 'has no model "scripted"'),
        (("error", 429, "you owe us", "insufficient_quota"), "insufficient_quota"),
        (("error", 429, "y" * 400, "insufficient_quota"), "yyy"),  # the code comes last
    ],
)
def test_permanent_errors_are_reported_at_once(tmp_path, response, message):
    with scripted.server(lambda *_: response) as server:
        endpoint = endpoint_of(server, key="s3cret", max_retries=0)
        with pytest.raises(agents.Rejected, match=message) as error:
            evaluate(tmp_path / "log", endpoint, num=1)
    assert len(server.requests) == 1
    assert "s3cret" not in str(error.value) + repr(endpoint_of(server, key="s3cret"))
    assert server.requests[0][2]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in (tmp_path / "log").read_text()


def test_hint_if_the_address_lacks_v1(tmp_path):
    with scripted.server(lambda *_: ("error", 404, "Not Found")) as server:
        for end, hint in (("", True), ("/v1", False), ("/v1/", False)):
            base_url = server.base_url.removesuffix("/v1") + end
            endpoint = dataclasses.replace(endpoint_of(server), base_url=base_url)
            with pytest.raises(agents.Rejected, match="has no model") as error:
                evaluate(tmp_path / "log", endpoint, num=1)
            assert ("should the address end with /v1?" in str(error.value)) == hint


@pytest.mark.parametrize(
    "response",
    [
        ("error", 400, "This model's maximum context length is 64 tokens"),
        ("error", 400, "too long", "context_length_exceeded"),
        ("error", 400, "y" * 400, "context_length_exceeded"),
        ("error", 400, "request (90 tokens) exceeds the available context size (64"),
        ("error", 400, "prompt is too long: 90 tokens > 64 maximum"),
        ("error", 413, "too large"),
    ],
)
def test_context_overflow_counts_as_failure(tmp_path, response):
    with scripted.server(lambda *_: response) as server:
        log = evaluate(tmp_path / "log", endpoint_of(server))
    rows = report_rows(log)
    assert {row["success"]["mean"] for row in rows} == {0.0}
    assert {row["n"] for row in rows} == {NUM_TASKS}
    assert len(server.requests) == len(log.done)


# Odd replies.


def test_odd_replies_count_as_errors_of_the_agent(tmp_path):
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
        log = evaluate(tmp_path / "log", endpoint_of(server))
    episodes, _ = read_log(tmp_path / "log")
    for kept in log.done.values():
        assert kept["answered"] and not kept["success"] and not kept["refused"]
        assert kept["num_calls"] == kept["num_errors"] == helpers.MAX_TURNS
    assert max(len(json.dumps(row)) for row in episodes.values()) < 200_000
    assert max(len(json.dumps(body)) for *_, body in server.requests) < 200_000


def test_optional_fields_of_a_completion_may_be_missing(tmp_path):
    bare = {"choices": [{"message": {"content": "Refuse"}}]}
    with scripted.server(lambda *_: bare) as server:
        log = evaluate(tmp_path / "log", endpoint_of(server))
    assert all(kept["refused"] for kept in log.done.values())


# Keys and addresses.


def test_key_is_redacted_in_the_log(tmp_path):
    with scripted.server(lambda *_: scripted.reply("s3cret\nRefuse")) as server:
        log = evaluate(tmp_path / "log", endpoint_of(server, key="s3cret"))
    assert all(kept["refused"] for kept in log.done.values())
    text = (tmp_path / "log").read_text()
    assert "[key]" in text and "s3cret" not in text


def test_key_is_redacted_in_all_parts_of_a_reply():
    message = {"content": "s3cret", "tool_calls": [{"function": {"name": "s3cret"}}]}
    with scripted.server(lambda *_: scripted.reply(message)) as server:
        message = ask(endpoint_of(server, key="s3cret")).message
    assert "s3cret" not in str(message) and str(message).count("[key]") == 2


def test_placeholder_keys_are_not_redacted():
    """A placeholder that is passed as a key does not change how replies are read."""
    call = {"function": {"name": "name", "arguments": '{"x":"none"}'}}
    with scripted.server(lambda *_: scripted.reply({"tool_calls": [call]})) as server:
        plain = ask(endpoint_of(server))
        for key in ("x", "name", "none", "u"):
            assert ask(endpoint_of(server, key=key)) == plain


@pytest.mark.parametrize(
    "changes",
    [{"key": key} for key in ("s3cret\n", " s3cret", "s3\rcret", "s3cret…")]
    + [{"base_url": f"http://{x}/v1"} for x in ("h:99999", "h:x", "[::1", ":80")],
)
def test_invalid_keys_and_addresses_are_rejected(changes):
    with pytest.raises(ValueError) as error:
        agents.Endpoint(**({"base_url": "http://h/v1", "model": "x"} | changes))
    assert "cret" not in str(error.value)


def test_place_omits_secrets():
    place = agents.Endpoint("https://me:s3cret@h:8/v1?key=s3cret", "x").place
    assert place == "https://h:8/v1"
