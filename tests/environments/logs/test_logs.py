"""Logs as sources of tasks: what is skipped, why, and how it is reported."""

import functools
import json

import jax
import pytest

from openagent_jax.domains.domain_spec import DomainError
from openagent_jax.environments.logs import logs
from tests.environments.logs.examples import (
    GOOD,
    LIMITS,
    ROOM,
    build,
    calls,
    chain,
    failing,
    mapped,
    result,
    says,
    tool,
    user,
    weather,
    write_log,
)


def test_one_conversation_makes_no_test_split(tmp_path):
    made = build(write_log(tmp_path, weather(*GOOD), weather(*GOOD)))
    sample = functools.partial(made.environment.sample, made.tables)
    assert sample(jax.random.key(0), "train").world in (0, 2)
    made.check("train")
    for fails in (made.check, functools.partial(sample, jax.random.key(0))):
        with pytest.raises(ValueError, match="no conversation in the split test"):
            fails("test")


@pytest.mark.slow
def test_limits(tmp_path):
    """A conversation that exceeds a limit is skipped, with the limit that it needs."""
    long = [user("word " * 150), *GOOD, says("sunny")]
    file = write_log(tmp_path, weather(*GOOD), failing(), chain(), long)
    log = logs.load(file, logs.max_sizes(LIMITS) | {"sandbox.num_steps": 1} | ROOM)
    assert [(x.line, x.reason, x.needs) for x in log.skipped] == [
        (3, "needs more than sandbox.num_steps=1", {"sandbox.num_steps": 2})
    ]
    made = build(file, num_fields=3, max_turns=3, prompt_tokens=150)
    assert sum(made.tables.source.tasks.num) == 1
    assert sorted(x.line for x in made.skipped) == [2, 3, 4]
    assert made.source == str(file)
    assert made.summary == (
        "mapped 1 of 4 conversations; skipped 3: needs more than sandbox.max_turns=3 "
        "(1), needs more than sandbox.num_fields=3 (1), needs more than "
        "sandbox.prompt_tokens=150 (1)"
    )
    assert list(made.notes[:2]) == [
        "needs more than sandbox.max_turns=3 (1): line 2",
        "  enough for all of them: --config.sandbox.max_turns=4",
    ]
    needs = made.skipped[-1].needs["sandbox.prompt_tokens"]
    assert 160 < needs < 400  # the request and the documents
    assert build(file, prompt_tokens=needs).skipped == ()


def test_texts_that_the_tokenizer_does_not_reproduce(tmp_path):
    odd = [user("<|end|> Weather in Rome?"), *GOOD, says("sunny")]
    made = build(write_log(tmp_path, weather(*GOOD), odd))
    assert [(x.line, x.reason) for x in made.skipped] == [
        (2, "a text that the tokenizer does not reproduce")
    ]


def test_faults(tmp_path):
    file = write_log(tmp_path, weather())
    with pytest.raises(logs.NothingMapped, match="mapped 0 of 1 .*; skipped 1: "):
        build(file)
    with pytest.raises(DomainError, match="a log has no :dev"):
        build(f"{file}:dev")
    file.write_text("{")
    with pytest.raises(DomainError, match="line 1"):
        build(file)


def test_header_lines_of_evaluations_are_ignored(tmp_path):
    file = write_log(tmp_path, weather(*GOOD), weather(*GOOD))
    header = json.dumps({"evaluation": {"seed": 0}})
    file.write_text(f"{header}\n{file.read_text()}{header}\n")
    log = logs.load(file, ROOM)
    assert [line for line, _ in log.tasks] == [2, 3] and not log.skipped
    assert list(log.report()) == ["ignored 2 header lines of an evaluation"]


def test_splits_do_not_depend_on_names_in_the_code():
    """Renaming a class must not move the tasks of existing logs to another split."""
    tasks = []
    for i in range(24):
        city = f"city {i}"
        call = calls(("get_weather", {"city": city}))
        tasks.append(mapped(weather(call, GOOD[1], city=city)))
    test = logs.in_test_split(tasks)
    assert [i for i in range(24) if test[i]] == [1, 7, 10, 19, 22]


def test_refusals_in_words_are_listed(tmp_path):
    file = write_log(
        tmp_path,
        weather(*GOOD),
        weather(last="I have no tool for that."),
        weather(last="Refuse"),
        weather(*GOOD, last="I can't do that."),
        [user("Pay the bill"), says("Sorry, I'm unable to pay bills.")],
    )
    log = logs.load(file, ROOM)
    assert log.refusals == (2, 5)
    assert log.summary() == (
        "mapped 4 of 5 conversations; skipped 1: a refusal after calls that succeeded "
        "(1); read 2 as refusals in words"
    )
    line = "read as refusals in words, as if by Refuse: lines 2, 5"
    assert line in list(log.report())
    assert log.fitting([task.needs() for _, task in log.tasks], {})[0] == log
    needs = [{"x": (i, "")} for i in range(4)]
    _, kept = log.fitting(needs, {"x": 0})
    assert kept == [0]
    assert log.fitting(needs, {"x": 1})[0].refusals == (2,)


def test_parts_beyond_the_limits_are_named(tmp_path):
    file = write_log(tmp_path, weather(*GOOD), chain())
    log = logs.load(file, {"sandbox.num_fields": 3, "sandbox.value_bytes": 5})
    assert list(log.report()) == [
        "needs more than sandbox.value_bytes=5 (1): line 1",
        "  line 1: 'get_weather'",
        "  enough for all of them: --config.sandbox.value_bytes=11",
        "needs more than sandbox.num_fields=3 and sandbox.value_bytes=5 (1): line 2",
        "  line 2: 4 fields of results of find_order, 'get_weather'",
        "  enough for all of them: --config.sandbox.num_fields=4 "
        "--config.sandbox.value_bytes=11",
        "enough for all that need more: --config.sandbox.value_bytes=11 "
        "--config.sandbox.num_fields=4",
    ]


def test_numbers_beyond_exact_decimals_are_named(tmp_path):
    """They are texts in tasks; a report names at most a few."""
    found = {"sky": "sunny", "wind": "3", "id": 4006381333931}
    file = write_log(tmp_path, *[weather(GOOD[0], result(found))] * 10, chain())
    log = logs.load(file, {})
    first, *listed = log.report()
    assert first == (
        "numbers that are compared as texts, since they have more than 7 decimals, or "
        "exceed 67108862 without the decimal point:"
    )
    assert listed[0] == "  line 1: 4006381333931 (get_weather: id)"
    assert listed[-1] == "  and 2 more"


def test_names_that_apis_do_not_allow(tmp_path):
    file = tmp_path / "x.jsonl"
    tools = [tool("sky.look", "Look", at="string")]
    messages = [user("x"), calls(("sky.look", {"at": "x"})), result("dark"), says("ok")]
    file.write_text(json.dumps({"messages": messages, "tools": tools}))
    log = logs.load(file, {})
    (task,) = [task for _, task in log.tasks]
    assert task.documents[0].name == task.steps[0].tool == "sky_look"
    assert list(log.report()) == [
        "tools that are renamed, since model APIs do not allow their names:",
        "  line 1: 'sky.look' is sky_look",
    ]
