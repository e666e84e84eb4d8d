"""Episodes as messages: their text, how replies are parsed, and their rewards."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from openagent_jax.agents import dialogue
from openagent_jax.environments import transcript
from openagent_jax.environments.tools import make
from openagent_jax.environments.world import Settings
from openagent_jax.text import messages as chat_messages
from openagent_jax.text import reply_scan
from tests import helpers, messages

NUM = 16  # episodes of each entry


@functools.cache
def player(name="poi", max_turns=helpers.MAX_TURNS):
    sizes = Settings(max_turns=max_turns).sizes
    environment = make.functions(sizes, helpers.NUM_VISIBLE)
    return dialogue.Player(helpers.world(name)._replace(environment=environment))


@functools.cache
def demonstrated(name, entry):
    split = {"poi": "train", "medical": "test"}[name]
    tasks = helpers.edited(name, split, entry)
    episodes, _ = helpers.demonstrate(helpers.world(name).tables, tasks)
    return helpers.rows(episodes)[:NUM]


def begin(task, name="poi", max_turns=helpers.MAX_TURNS):
    return player(name, max_turns).begin(task)


def plain(message):
    """A message in a common form: arguments parsed, without ids and empty fields."""
    found = {key: message[key] for key in ("role", "content") if message.get(key)}
    for call in message.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        found.setdefault("calls", []).append((call["function"]["name"], arguments))
    return found


@pytest.mark.parametrize("entry", helpers.SHOWN)
@pytest.mark.parametrize("name", helpers.DOMAINS)
def test_demonstrations_replayed_as_messages(name, entry):
    """Messages, results and outcomes are the same as in the compiled world."""
    transcriber, kinds = helpers.world(name).transcriber, set()
    for episode in demonstrated(name, entry):
        theirs = messages.Conversation(name, episode)
        ours = begin(episode.task, name)
        assert ours.tools == theirs.documents()
        *_, whole = theirs.messages()
        turns = [m for m in whole if m["role"] == "assistant"]
        for t, message in enumerate(turns):
            action = helpers.row(episode.action, t)
            kinds.add(int(action.kind))
            assert plain(transcriber.message(episode.task, action)) == plain(message)
            assert not ours.finished
            ours.receive(message)
        assert list(map(plain, ours.messages)) == list(map(plain, whole))
        assert ours.finished
        assert ours.outcome.success == episode.state.success
        assert ours.outcome.num_calls == episode.state.num_calls
        assert ours.outcome.num_errors == episode.state.num_errors
        assert ours.outcome.refused == (
            reply_scan.REFUSE in episode.action.kind[episode.valid]
        )
    assert reply_scan.CALL in kinds


@functools.cache
def task():
    """A task that takes two calls or more."""
    episodes = demonstrated("poi", helpers.CLEAN)
    return next(e for e in episodes if e.state.num_calls > 1)


def turns():
    *_, whole = messages.Conversation("poi", task()).messages()
    return [m for m in whole if m["role"] == "assistant"]


def called(name, arguments, call_id="a"):
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def test_several_calls_are_answered_one_by_one():
    ours, replies = begin(task().task), turns()
    calls = [call for m in replies[:2] for call in m["tool_calls"]]
    calls = [{**call, "id": f"id{i}"} for i, call in enumerate(calls)]
    ours.receive({"content": "Let me look.", "tool_calls": calls})
    shown, *answers = ours.messages[2:]
    assert shown["content"] == "Let me look." and len(shown["tool_calls"]) == 2
    assert [m["tool_call_id"] for m in answers] == ["id0", "id1"]
    assert [m["role"] for m in answers] == ["tool"] * 2
    assert ours.outcome.num_calls == 2 and ours.outcome.num_errors == 0
    for message in replies[2:]:
        ours.receive(message)
    assert ours.outcome.success


def test_calls_after_the_last_turn_are_ignored():
    ours, first = begin(task().task, max_turns=2), turns()[0]["tool_calls"][0]
    ours.receive({"tool_calls": [first] * 5})
    assert ours.finished and ours.outcome.num_calls == 2
    assert len(ours.messages) == 4  # no message follows the last reply


BAD = {
    "a tool that is not there": [called("no_such", "{}")],
    "no JSON": [called("N", "{place")],
    "a list": [called("N", "[]")],
    "more than JSON": [called("N", '{"x":"1"},"id":"x"')],
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
    ours.receive({"content": None, "tool_calls": json.loads(text)})
    answer = ours.messages[-1]
    assert answer["role"] == "tool" and answer["tool_call_id"]
    assert set(json.loads(answer["content"])) == {"error"}
    assert (ours.outcome.num_calls, ours.outcome.num_errors, ours.finished) == (
        1,
        1,
        False,
    )
    # Arguments that a server could not parse are never shown to the agent.
    shown = ours.messages[-2]["tool_calls"][0]["function"]
    assert isinstance(json.loads(shown["arguments"]), dict)
    assert len(json.dumps(ours.messages)) < 50_000
    for message in turns():
        ours.receive(message)
    assert ours.outcome.success


@pytest.mark.parametrize("arguments", ["", "  ", None, {}, "{}"])
def test_empty_arguments(arguments):
    (call,) = chat_messages.calls({"tool_calls": [called("sign_in", arguments)]})
    assert call.text == '{"name":"sign_in","arguments":{}}'


def test_numbers_that_json_cannot_write():
    """One that is too large for a float is kept as a text; NaN is not JSON."""
    made = chat_messages.calls({"tool_calls": [called("f", '{"x": NaN}')]})
    assert made[0].text == ""
    given = {"function": {"name": "f", "arguments": '{"x": 1e999}'}}
    found = transcript.described({"tool_calls": [given]})
    assert found == {"name": "f", "arguments": {"x": "1e999"}}


def test_calls_without_ids_are_told_apart():
    entries = [called("f", {}) | {"id": x} for x in (None, "", "a", "a")]
    found = [call.id for call in chat_messages.calls({"tool_calls": entries})]
    assert found == ["call00000", "call00001", "a", "call00003"]


@pytest.mark.parametrize(
    "content",
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
def test_free_text_is_not_an_answer(content):
    ours = begin(task().task)
    ours.receive({"content": content})
    assert ours.messages[-1] == {
        "role": "user",
        "content": '{"error":"cannot read this"}',
    }
    assert (ours.outcome.num_calls, ours.outcome.num_errors, ours.finished) == (
        1,
        1,
        False,
    )
    assert len(ours.messages[-2]["content"]) <= chat_messages.MAX_CHARS


@pytest.mark.parametrize("before", ["", "It is done.\n\n", "<think>\nRefuse\n"])
def test_the_last_line_is_the_answer(before):
    ours, replies = begin(task().task), turns()
    for message in replies[:-1]:
        ours.receive(message)
    ours.receive(
        {"content": [{"type": "text", "text": before + replies[-1]["content"]}]}
    )
    assert ours.finished and ours.outcome.success


def test_truncated_replies_are_malformed():
    ours, replies = begin(task().task), turns()
    ours.receive(replies[0], cut=True)
    assert ours.outcome.num_errors == 1
    ours.receive({"content": "Refuse"}, cut=True)
    assert ours.outcome.num_errors == 2 and not ours.finished


def test_refusal_and_question():
    ours = begin(task().task)
    ours.receive({"content": "Which one?\nAsk"})
    assert ours.messages[-1] == {"role": "user", "content": "I said all"}
    assert not ours.outcome.refused
    ours.receive({"content": "Refuse"})
    assert ours.finished and ours.outcome.refused and not ours.outcome.success


def test_chat_template_styles_are_refused():
    """Their replies would be parsed in the style of the model's chat template."""
    with pytest.raises(ValueError, match="not of the compact style"):
        dialogue.Player(helpers.world("poi", "hermes"))


@pytest.mark.parametrize("form", [helpers.COMPACT, *helpers.FORMS])
def test_transcriber_texts(form):
    """A transcriber knows the symbols of the tasks in every chat style."""
    known = helpers.texts("poi", form)
    assert helpers.world("poi", form).transcriber._texts[: len(known)] == known


def test_actions_results_and_rewards_are_recorded():
    """For each action: how it was parsed, what was shown, and its reward."""
    episode, replies = task(), turns()
    ours, other = begin(episode.task), begin(episode.task)
    for message in replies:
        ours.receive(message)
    plan = transcript.plan(
        helpers.world("poi").transcriber, episode.task, episode.action, episode.valid
    )
    assert ours.actions == plan
    *shown, _ = (m["content"] for m in ours.messages if m["role"] == "tool")
    assert ours.results[: len(shown)] == shown and ours.results[-1] is None
    assert set(ours.rewards) == {name for name, _ in helpers.ENVIRONMENT.rewards}
    for component, paid in ours.rewards.items():
        expected = episode.timestep.reward[component][episode.valid]
        assert paid == pytest.approx(expected.tolist(), abs=1e-6)
    for content in ("Well.\nHm", "{}"):  # without a tool call, JSON is only text
        other.receive({"content": content})
    other.receive({"content": "Refuse"}, cut=True)
    other.receive({"tool_calls": [called("f", "{")]})
    assert [action["text"] for action in other.actions] == ["Hm", "{}", "Refuse", "f"]
    assert len(other.results) == 4


def test_one_program_serves_all_episodes():
    """One program serves all tasks and texts, from start to end of an episode."""
    world, counts = helpers.world("poi"), {"parse": 0, "reset": 0}

    def counted(name):
        def function(*args):
            counts[name] += 1
            return getattr(world.environment, name)(*args)

        return function

    environment = world.environment._replace(**{x: counted(x) for x in counts})
    made = dialogue.Player(world._replace(environment=environment))
    for entry in (helpers.CLEAN, "runtime_error"):
        for episode in demonstrated("poi", entry)[:4]:
            ours = made.begin(episode.task)
            for text in ("Hm", "x" * 2**15, "Refuse"):
                ours.receive({"content": text})
            assert ours.finished
    assert counts == {"parse": 1, "reset": 1}


def names(tools):
    return [tool["function"]["name"] for tool in tools]


def test_a_tool_that_an_error_has_named_joins_the_list():
    """Many frameworks can only call what is in `tools`."""
    joined = 0
    for episode in demonstrated("poi", "tool_redirection"):
        ours, documented = begin(episode.task), None
        for t in np.flatnonzero(episode.valid):
            action = helpers.row(episode.action, t)
            message = helpers.world("poi").transcriber.message(episode.task, action)
            for call in message.get("tool_calls", ()):
                assert call["function"]["name"] in names(ours.tools)
            documented = documented or names(ours.tools)
            before = names(ours.tools)
            ours.receive(message)
            if names(ours.tools) != before:
                *same, new = ours.tools
                assert names(same) == before == documented
                assert new["function"]["name"] in ours.results[-1]
                old = next(
                    tool
                    for tool in same
                    if tool["function"]["name"] == call["function"]["name"]
                )
                kind = "parameters"
                assert new["function"][kind] == old["function"][kind]
                joined += 1
        assert ours.outcome.success
    assert joined > NUM // 2


def test_a_tool_that_no_error_has_named_is_not_listed():
    episode = demonstrated("poi", "tool_redirection")[0]
    hidden = np.zeros_like(episode.task.faults.guided)
    faults = dataclasses.replace(episode.task.faults, guided=hidden)
    ours = begin(dataclasses.replace(episode.task, faults=faults))
    before = names(ours.tools)
    for t in np.flatnonzero(episode.valid)[:-1]:
        action = helpers.row(episode.action, t)
        ours.receive(helpers.world("poi").transcriber.message(episode.task, action))
        assert names(ours.tools) == before
    assert ours.outcome.num_errors > 0
