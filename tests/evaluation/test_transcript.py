"""Episodes as messages, and as text for people."""

import functools

import jax
import numpy as np
import pytest

from openagent_jax.curriculum import draw
from openagent_jax.environments import transcript
from openagent_jax.evaluation import transcript as texts
from openagent_jax.report import trajectories
from tests import helpers, messages

NUM = 12


@functools.cache
def demonstrated(entry):
    tasks = helpers.edited("poi", "train", entry)
    found, _ = helpers.demonstrate(helpers.world("poi").tables, tasks)
    return helpers.rows(found)[:NUM]


@functools.cache
def observe():
    return jax.jit(jax.vmap(helpers.world("poi").transcriber.observe, (None, 0)))


def shown(episode):
    """The pieces of text that follow each turn."""
    observation = episode.timestep.observation
    return np.asarray(observe()(episode.task, observation))


def without_ids(turns):
    turns = [{k: v for k, v in m.items() if k != "tool_call_id"} for m in turns]
    for message in turns:
        message.pop("name", None)
        message["tool_calls"] = [
            {k: v for k, v in call.items() if k != "id"}
            for call in message.get("tool_calls", ())
        ]
    return turns


@pytest.mark.parametrize("entry", helpers.SHOWN)
def test_messages_match_the_reference(entry):
    transcriber = helpers.world("poi").transcriber
    for episode in demonstrated(entry):
        ours = transcript.messages(transcriber, episode, shown(episode))
        *_, theirs = messages.Conversation("poi", episode).messages()
        assert without_ids(ours) == without_ids(theirs)
        calls = [m["tool_calls"][0]["id"] for m in ours if "tool_calls" in m]
        answers = [m["tool_call_id"] for m in ours if m["role"] == "tool"]
        assert len({*calls}) == len(calls) and answers == calls[: len(answers)]
        planned = transcript.plan(
            transcriber, episode.task, episode.action, episode.valid
        )
        assert planned == [
            transcript.described(m) for m in ours if m["role"] == "assistant"
        ]


def call(name, arguments):
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "x", "function": function}],
    }


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name":"f","arguments":{"x":"9"}}', {"x": "9"}),
        ('<tool_call>\n{"name": "f", "arguments": {"x": 9}}\n</tool_call>', {"x": 9}),
        ('{"name": "f", "parameters": {"x": "9", "y": "z"}}', {"x": "9", "y": "z"}),
        ('{"name":"f","arguments":{"x":"1","x":"9"}}', {"x": 1}),  # a repeated key
        ('{"name":"f","arguments":{"x":"1"}}', {"x": 1}),  # the same call
        ('{"name":"g","arguments":{"x":"9"}}', {"x": 1}),  # not the parsed call
        ('{"name":"f","arguments":["9"]}', {"x": 1}),
        ('{"name":"f"}', {"x": 1}),
        ('{"name":"f","arguments":{"x":1e999}}', {"x": "1e999"}),  # no float has it
        ('{"name":"f","arguments":{"x":Infinity}}', {"x": 1}),  # no JSON
        ("get 3 log", {"x": 1}),
        ("{" * 10**5, {"x": 1}),
        ("", {"x": 1}),
    ],
)
def test_calls_as_they_were_written(text, arguments):
    given = call("f", {"x": 1})
    found = transcript.as_written(given, text)
    assert transcript.described(found) == {"name": "f", "arguments": arguments}
    assert given == call("f", {"x": 1})


def test_unparsed_replies_are_kept_verbatim():
    blank = {"role": "assistant", "content": ""}
    assert transcript.as_written(blank, "Hm")["content"] == "Hm"
    answer = {"role": "assistant", "content": "Answer: 4"}
    assert transcript.as_written(answer, "Answer:  4") == answer


def test_results_without_a_call_are_user_messages():
    turns = [
        transcript.Turn({"role": "assistant", "content": "Hm"}, ("tool", "error")),
        transcript.Turn(call("f", {}), ("tool", "found")),
        transcript.Turn(call("f", {}), ("user", "what?")),
        transcript.Turn({"role": "assistant", "content": "Refuse"}, None),
    ]
    made = list(transcript.chat([{"role": "user", "content": "Do"}], turns))
    assert [(m["role"], m["content"]) for m in made] == [
        ("user", "Do"),
        ("assistant", "Hm"),
        ("user", "error"),
        ("assistant", ""),
        ("tool", "found"),
        ("assistant", ""),
        ("user", "what?"),
        ("assistant", "Refuse"),
    ]
    assert made[4]["tool_call_id"] == made[3]["tool_calls"][0]["id"] == "call00001"
    assert turns[1].message == call("f", {})  # is not modified


def test_in_short():
    for arguments in ({"x": "a", "n": 3}, '{"x": "a", "n": 3}'):
        action = transcript.described(call("f", arguments))
        assert transcript.in_short(action) == "f(x='a', n=3)"
    action = transcript.described(call("f", "{x"))
    assert transcript.in_short(action) == "f({x)"
    refusal = {"role": "assistant", "content": None, "tool_calls": None}
    assert transcript.described(refusal) == {"text": ""}


@pytest.mark.parametrize(
    "entry",
    ["unsolvable", pytest.param("identity_erasure", marks=pytest.mark.slow)],
)
def test_episodes_of_the_oracle(entry):
    """The same tasks, clean and perturbed, as in an evaluation."""
    world, num, key = helpers.world("poi"), 4, jax.random.key(3)
    both = list(texts.episodes(world, entry, key, num, 1.0))
    assert len(both) == num
    # Clean episodes do not depend on the batch size or the scenario.
    alone = texts.episodes(world, draw.CLEAN, key, 2, 0.0)
    assert [clean for clean, _ in alone] == [clean for clean, _ in both[:2]]
    for clean, other in both:
        assert clean[-1] == "solved by the oracle"
        assert any(line.startswith("offers ") for line in clean)
        assert any(line.startswith("user   ") for line in clean)
        assert other[-1] == "solved by the oracle"
        assert ("agent  Refuse" in other) == (entry == "unsolvable")
        assert clean != other


OFFER = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "finds things",
        "parameters": {"properties": {"x": {}, "n": {}}},
    },
}
LINE = {
    "tools": [OFFER, {"function": {"name": "stop", "description": None}}],
    "messages": [
        {"role": "system", "content": "You use tools."},
        {"role": "user", "content": "Find a tree."},
        call("find", {"x": "tree", "n": 3}),
        {"role": "tool", "content": "none", "tool_call_id": "x"},
        {"role": "assistant", "content": "Answer: none"},
    ],
    "plan": [{"name": "stop", "arguments": {}}, {"text": "Refuse"}],
    "unsolvable": "tool_withheld",
    "failure": "missed_refusal",
}
TOLD = [
    "offers find(x, n): finds things",
    "offers stop(): ",
    "user   Find a tree.",
    "agent  find(x='tree', n=3)",
    "tool   none",
    "agent  Answer: none",
]


def test_kept_episodes_as_text():
    assert list(texts.kept(LINE)) == [
        *TOLD,
        "failure: missed_refusal",
        "by the oracle it cannot be solved: tool_withheld",
        "oracle stop(); Refuse",
    ]
    fine = LINE | {"failure": "", "unsolvable": "", "plan": []}
    assert list(texts.kept(fine)) == [*TOLD, "success"]


@pytest.fixture
def run(tmp_path):
    """A run with two evaluations."""
    for step, name in ((2, "clean"), (10, "clean"), (10, "unsolvable")):
        folder = tmp_path / "run" / "eval" / str(step) / trajectories.FOLDER
        lines = [LINE | {"index": i, "scenario": name} for i in range(3)]
        trajectories.write(folder, name, lines if step == 10 else lines[:1])
    return tmp_path / "run"


def test_show_prints_kept_episodes(commands, run):
    done = commands("domain", "show", f"--workdir={run}")
    assert done.code == 0, done.err
    assert done.out.count("failure: missed_refusal") == 2
    first = done.out.strip().split("\n\n")[0].splitlines()
    assert first[0] == f"task 0 of clean, in {run}/eval/10"
    assert first[1:] == list(texts.kept(LINE))
    args = ("--perturbation=unsolvable", "--num=9")
    more = commands("domain", "show", f"--workdir={run}", *args)
    assert more.out.count(" of unsolvable, in ") == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["show", "--workdir=NONE"], ["--workdir: NONE: no such folder"]),
        (["show", "--workdir=EMPTY"], ["EMPTY has no kept episodes; eval"]),
        (["show", "--workdir=RUN", "--perturbation=x"], ["kept are: clean, unsolv"]),
        (["show", "poi", "--workdir=RUN"], ['"poi" is not a flag']),
        (["check", "poi", "--workdir=RUN"], ["--workdir is for show"]),
        (["show"], ["show: FILE is missing"]),
    ],
)
def test_bad_use(commands, run, tmp_path, args, words):
    (tmp_path / "empty").mkdir()
    places = {"RUN": run, "EMPTY": tmp_path / "empty", "NONE": tmp_path / "none"}
    for name, place in places.items():
        args = [arg.replace(name, str(place)) for arg in args]
        words = [word.replace(name, str(place)) for word in words]
    done = commands("domain", *args)
    assert done.code == 2 and not done.out
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


def test_damage_is_reported_in_one_line(commands, run):
    file = run / "eval/10" / trajectories.FOLDER / "clean.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    done = commands("domain", "show", f"--workdir={run}", "--num=3")
    assert done.code == 1 and "is damaged" in done.err
    assert done.err.count("\n") == 1
