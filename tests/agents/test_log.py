"""Logs of evaluations: resuming, damage, and locks."""

import json

import pytest

from openagent_jax.agents import log as logs
from openagent_jax.agents import play
from tests import helpers, scripted
from tests.agents.endpoints import (
    ABOUT,
    FAULTS,
    endpoint_of,
    evaluate,
    expert,
    read_log,
    report_rows,
    suite,
)

pytest.importorskip("openai")
pytestmark = pytest.mark.usefixtures("short_delays")


@pytest.mark.parametrize(
    "fault", ["server error", "not JSON", "no reply", "connection lost"]
)
def test_unanswered_episodes_are_no_failures_and_played_again(
    reference, tmp_path, fault
):
    """Tasks 1 and 3 get no answer at first, but get one when the run is repeated."""
    file = tmp_path / "log"
    unanswered = {
        json.dumps(row["messages"][:2])
        for (_, index), row in reference.episodes.items()
        if index in (1, 3)
    }

    def script(body, number):
        fails = json.dumps(body["messages"][:2]) in unanswered
        return FAULTS[fault] if fails else expert(body)

    with scripted.server(script) as server:
        log = evaluate(file, endpoint_of(server, timeout=0.5, max_retries=1))
    lost = {key for key, kept in log.done.items() if not kept["answered"]}
    assert lost >= {(name, i) for name in suite().names for i in (1, 3)}
    rows = report_rows(log)
    assert sum(row["n"] + row["unanswered"] for row in rows) == len(log.done)
    assert {row["success"]["mean"] for row in rows} == {1.0}
    assert all(log.done[key]["reason"] for key in lost)
    assert sum(log.unanswered().values()) == len(lost)
    with scripted.server(expert) as server:
        evaluate(file, endpoint_of(server))
    episodes, count = read_log(file)
    assert episodes == reference.episodes
    assert count == {key: 1 + (key in lost) for key in reference.episodes}
    num_replies = sum(reference.episodes[key]["num_replies"] for key in lost)
    assert len(server.requests) == num_replies


def test_unanswered_line_never_replaces_an_answered_one(reference, tmp_path):
    log = logs.Log(tmp_path / "log", ABOUT)
    _, first, *_ = reference.episodes.values()
    for answered in (False, True, False):
        log.add(first | {"answered": answered})
    log.close()
    log = logs.Log(tmp_path / "log", ABOUT)
    log.close()
    (kept,) = log.done.values()
    assert kept["answered"] and kept["success"] == first["success"]


def test_episode_of_a_truncated_last_line_is_played_again(reference, tmp_path):
    file = tmp_path / "log"
    with scripted.server(expert) as server:
        evaluate(file, endpoint_of(server))
        whole = file.read_bytes()
        file.write_bytes(whole[:-40])
        before = len(server.requests)
        evaluate(file, endpoint_of(server))
    episodes, count = read_log(file)
    assert episodes == reference.episodes and set(count.values()) == {1}
    assert before < len(server.requests) <= before + helpers.MAX_TURNS


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff\xfe", "line 3 is not a line of this log .UnicodeDecodeError"),
        (b'{"scenario": "clean"', "line 3 is not a line of this log .JSONDecodeError"),
        (b'{"scenario": "clean"}', "line 3 is not a line of this log .KeyError"),
        (b"[]", "line 3 is not a line of this log"),
    ],
)
def test_damaged_line_is_an_error_and_log_is_kept(tmp_path, reference, line, message):
    file = tmp_path / "log"
    with scripted.server(expert) as server:
        with pytest.raises(play.BudgetExceeded):
            evaluate(file, endpoint_of(server), num=1, budget=play.Budget(max_calls=9))
        kept = file.read_bytes().splitlines()
        damaged = b"\n".join([*kept[:2], line, *kept[2:], b""])
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            evaluate(file, endpoint_of(server))
        assert len(server.requests) == 9 and file.read_bytes() == damaged


def test_log_has_one_evaluation_and_one_writer(tmp_path):
    file = tmp_path / "log"
    log = logs.Log(file, ABOUT)
    with pytest.raises(OSError, match="another evaluation is writing it"):
        logs.Log(file, ABOUT)
    log.close()
    with pytest.raises(ValueError, match="model was 'scripted' and is now 'other'"):
        logs.Log(file, {"model": "other"})
    logs.Log(file, ABOUT).close()
    file.write_text('{"evaluation": 3}\n')
    with pytest.raises(ValueError, match="line 1 is not a line of this log"):
        logs.Log(file, ABOUT)
