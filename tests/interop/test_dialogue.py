"""Episodes by messages: what is said, how replies are read, and what they are worth."""

import functools
import json

import numpy as np
import pytest

from openagent_jax import types
from openagent_jax.interop import dialogue
from openagent_jax.sandbox import conversation
from tests import helpers, messages

NUM = 16  # episodes of each entry


@functools.cache
def writer(name="poi"):
    return conversation.Writer(helpers.world(name).lexicon)


@functools.cache
def demonstrated(name, entry):
    split = {"poi": "train", "medical": "test"}[name]
    tasks = helpers.edited(name, split, entry)
    episodes, _ = helpers.demonstrate(helpers.world(name).lexicon, tasks)
    return helpers.rows(episodes)[:NUM]


def begin(task, name="poi", max_turns=helpers.MAX_TURNS):
    lexicon = helpers.world(name).lexicon
    return dialogue.Dialogue(writer(name), lexicon, task, max_turns)


def plain(message):
    """A message as all agree on it: arguments parsed, no ids, nothing that is empty."""
    found = {key: message[key] for key in ("role", "content") if message.get(key)}
    for call in message.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        found.setdefault("calls", []).append((call["function"]["name"], arguments))
    return found


@pytest.mark.parametrize("entry", helpers.SHOWN)
@pytest.mark.parametrize("name", helpers.DOMAINS)
def test_demonstrations_are_what_they_were(name, entry):
    """The same words, results and outcomes as in the compiled world."""
    kinds = set()
    for episode in demonstrated(name, entry):
        theirs = messages.Conversation(name, episode)
        ours = begin(episode.task, name)
        assert ours.tools == theirs.documents()
        *_, whole = theirs.messages()
        turns = [m for m in whole if m["role"] == "assistant"]
        for t, message in enumerate(turns):
            action = helpers.row(episode.action, t)
            kinds.add(int(action.kind))
            assert plain(writer(name).message(episode.task, action)) == plain(message)
            assert not ours.finished
            ours.hear(message)
        assert list(map(plain, ours.messages)) == list(map(plain, whole))
        assert ours.finished
        assert ours.success == episode.state.success
        assert ours.num_calls == episode.state.num_calls
        assert ours.num_errors == episode.state.num_errors
        assert ours.refused == (types.REFUSE in episode.action.kind[episode.valid])
    assert types.CALL in kinds


@functools.cache
def task():
    """One that is solved by two calls or more."""
    episodes = demonstrated("poi", helpers.CLEAN)
    return next(e for e in episodes if e.state.num_calls > 1)


def turns():
    *_, whole = messages.Conversation("poi", task()).messages()
    return [m for m in whole if m["role"] == "assistant"]


def called(name, arguments, call_id="a"):
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def test_several_calls_are_answered_one_by_one():
    ours, said = begin(task().task), turns()
    calls = [call for m in said[:2] for call in m["tool_calls"]]
    calls = [{**call, "id": f"id{i}"} for i, call in enumerate(calls)]
    ours.hear({"content": "Let me look.", "tool_calls": calls})
    shown, *answers = ours.messages[2:]
    assert shown["content"] == "Let me look." and len(shown["tool_calls"]) == 2
    assert [m["tool_call_id"] for m in answers] == ["id0", "id1"]
    assert [m["role"] for m in answers] == ["tool"] * 2
    assert ours.num_calls == 2 and ours.num_errors == 0
    for message in said[2:]:
        ours.hear(message)
    assert ours.success


def test_calls_behind_the_last_turn_are_not_made():
    ours, first = begin(task().task, max_turns=2), turns()[0]["tool_calls"][0]
    ours.hear({"tool_calls": [first] * 5})
    assert ours.finished and ours.num_calls == 2
    assert len(ours.messages) == 4  # and nothing is said after the last one


BAD = {
    "a tool that is not there": [called("no_such", "{}")],
    "no JSON": [called("N", "{place")],
    "a list": [called("N", "[]")],
    "more than JSON": [called("N", '{"x":"1"},"purpose":"x"')],
    "a list in an argument": [called("N", '{"place":["x"]}')],
    "a word that is nothing here": [called("N", '{"place":"Atlantis \\ud83d"}')],
    "an argument too many": [called("N", '{"place":"x","more":1}')],
    "the same twice": [called("N", '{"place":"x","place":"x"}')],
    "not even a name": [{"function": {"name": None, "arguments": None}}],
    "nothing of a call": [{}],
    "no call": ["x"],
    "no function": [{"function": "x"}],
    "a megabyte": [called("N", json.dumps({"place": "x" * 2**20}))],
    "depth": [called("N", '{"a":' * 9999)],
    "a surrogate": [called("\ud83d", "{}")],
}


@pytest.mark.parametrize("calls", BAD.values(), ids=BAD)
def test_bad_calls_are_answered_by_an_error(calls):
    name = turns()[0]["tool_calls"][0]["function"]["name"]
    text = json.dumps(calls).replace('"N"', json.dumps(name))
    ours = begin(task().task)
    ours.hear({"content": None, "tool_calls": json.loads(text)})
    answer = ours.messages[-1]
    assert answer["role"] == "tool" and answer["tool_call_id"]
    assert set(json.loads(answer["content"])) == {"error"}
    assert (ours.num_calls, ours.num_errors, ours.finished) == (1, 1, False)
    # It is never shown what a server could not read.
    shown = ours.messages[-2]["tool_calls"][0]["function"]
    assert isinstance(json.loads(shown["arguments"]), dict)
    assert len(json.dumps(ours.messages)) < 50_000
    for message in turns():
        ours.hear(message)
    assert ours.success


@pytest.mark.parametrize("arguments", ["", "  ", None, {}, "{}"])
def test_nothing_to_pass(arguments):
    (call,) = conversation.calls({"tool_calls": [called("sign_in", arguments)]})
    assert call.text == '{"name":"sign_in","arguments":{}}'


@pytest.mark.parametrize(
    "said",
    [
        "I do not know.",
        None,
        "",
        '{"name":"sign_in","arguments":{}}',
        'Well:\n{"name":"sign_in","arguments":{}}',
        "x" * 2**20,
        "Answer 5",
        7,
        "Answer: 5\N{REPLACEMENT CHARACTER}",
        "\N{REPLACEMENT CHARACTER}\nRefuse",
        [{"type": "text", "text": "Who?"}, {"type": "image"}, 7],
    ],
)
def test_talk_is_not_an_answer(said):
    ours = begin(task().task)
    ours.hear({"content": said})
    assert ours.messages[-1] == {
        "role": "user",
        "content": '{"error":"cannot read this"}',
    }
    assert (ours.num_calls, ours.num_errors, ours.finished) == (1, 1, False)
    assert len(ours.messages[-2]["content"]) <= conversation.MAX_CHARS


@pytest.mark.parametrize("before", ["", "It is done.\n\n", "<think>\nRefuse\n"])
def test_the_last_line_is_the_answer(before):
    ours, said = begin(task().task), turns()
    for message in said[:-1]:
        ours.hear(message)
    ours.hear({"content": [{"type": "text", "text": before + said[-1]["content"]}]})
    assert ours.finished and ours.success


def test_what_was_cut_off_counts_for_nothing():
    ours, said = begin(task().task), turns()
    ours.hear(said[0], cut=True)
    assert ours.num_errors == 1
    ours.hear({"content": "Refuse"}, cut=True)
    assert ours.num_errors == 2 and not ours.finished


def test_refusal_and_question():
    ours = begin(task().task)
    ours.hear({"content": "Which one?\nAsk"})
    assert ours.messages[-1] == {"role": "user", "content": "I said all"}
    assert not ours.refused
    ours.hear({"content": "Refuse"})
    assert ours.finished and ours.refused and not ours.success


def test_other_styles_are_refused():
    with pytest.raises(ValueError, match="not of the compact style"):
        conversation.Writer(helpers.world("poi", "hermes").lexicon)


def test_texts():
    lexicon = helpers.world("poi").lexicon
    assert conversation.texts(lexicon) == helpers.texts("poi")
    assert np.shape(lexicon.texts.start)[0] == len(helpers.texts("poi"))
