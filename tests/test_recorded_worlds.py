"""Logs as sources of tasks: out and in again, played, perturbed and divided."""

import collections
import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb, worlds
from openagent_jax.data import conversations, demonstrations
from openagent_jax.interop import dialogue
from openagent_jax.sandbox import (
    conversation,
    domain,
    logs,
    recorded_worlds,
    render,
)
from openagent_jax.sandbox.domain_spec import DomainError
from tests import helpers
from tests.sandbox.test_log_mapping import (
    GOOD,
    TOOLS,
    calls,
    chain,
    result,
    says,
    user,
    weather,
)

NUM = 6  # episodes of each entry
ROOM = {"sandbox.max_turns": helpers.MAX_TURNS}
LIMITS = dataclasses.replace(
    helpers.LIMITS, num_tools=18, num_args=4, num_fields=4, num_steps=7, num_constants=5
)
# What a log of ours does not tell: a tool without a document; fields in other marks.
LOST = {
    "tool_redirection": {"a call of a tool that is not documented"},
    "nonstandard_feedback": {
        "an argument called `code` that no result told",
        "an answer that is in no result",
    },
}


def failing():
    failed = calls(("get_weather", {"city": "Rome"})), result({"error": "busy"})
    return weather(*failed, *failed, *GOOD)


def unsure():
    return [user("Weather of it?"), says("Which?\nAsk"), user("Rome"), *GOOD]


OTHERS = [chain(), failing(), unsure(), weather(last="Refuse"), weather(*GOOD)]


@jax.jit
def shown(lexicon, episodes):
    def one(episode):
        show = functools.partial(render.observation, lexicon.style, episode.task)
        return jax.vmap(show)(episode.result)

    return jax.vmap(one)(episodes)


def written(lexicon, tasks):
    """`(episode, messages, tools)` of the expert on tasks."""
    writer = conversation.Writer(lexicon)
    episodes, _ = helpers.demonstrate(lexicon, tasks)
    told = np.asarray(shown(lexicon, episodes))
    for episode, pieces in zip(helpers.rows(episodes), told):
        messages = conversations.messages(writer, episode, pieces)
        yield episode, messages, writer.tools(episode.task)


@functools.cache
def exported():
    """Lines of each entry, as `launch.logs export` writes them, and of others."""
    rows = []
    for name, split in (("poi", "train"), ("medical", "test")):
        lexicon = helpers.world(name).lexicon
        for entry in helpers.EDITS:
            tasks = helpers.edited(name, split, entry)
            tasks = jax.tree.map(lambda x: x[:NUM], tasks)
            rows += [
                {"messages": m, "tools": t, "entry": entry, "episode": e}
                for e, m, t in written(lexicon, tasks)
            ]
    return rows + [{"messages": m, "tools": TOOLS, "entry": ""} for m in OTHERS]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    made = tmp_path_factory.mktemp("logs") / "all.jsonl"
    plain = [{**row, "episode": None} for row in exported()]
    made.write_text("".join(json.dumps(row) + "\n" for row in plain))
    return made


@pytest.fixture(scope="module")
def world(file):
    return worlds.build(file, helpers.tokenizer(), LIMITS, 5, room=ROOM)


def all_tasks(world):
    """Every task of a log, in its order."""
    source = world.sample.args[0]
    lots, num = jnp.zeros(2), len(world.log.tasks)
    one = lambda r: recorded_worlds._task(source, r, lots, domain.TRAIN)  # noqa: E731
    return jax.jit(jax.vmap(one))(jnp.arange(num))


@pytest.fixture(scope="module")
def played(world):
    """`{line: (episode, messages, tools)}` of the expert on what was imported."""
    lines = [line for line, _ in world.log.tasks]
    return dict(zip(lines, written(world.lexicon, all_tasks(world)), strict=True))


def said(messages):
    """What is said, called and shown, without the marks of who called."""
    found = []
    for message in messages:
        made = [call["function"] for call in message.get("tool_calls", ())]
        made = [(x["name"], x["arguments"]) for x in made]
        found.append((message["role"], message["content"], made))
    return found


def test_out_and_in_again(world, played):
    """The same tools, calls, results, answers and outcomes, clean and perturbed."""
    counts = collections.Counter()
    for line, (episode, messages, tools) in played.items():
        row = exported()[line - 1]
        if not row["entry"]:
            continue
        counts[row["entry"]] += 1
        if row["entry"] == "nonstandard_feedback":
            continue  # what is in marks that are not JSON's is one text
        assert said(messages) == said(row["messages"]), row["entry"]
        assert tools == row["tools"]
        theirs = row["episode"].state
        assert episode.state.success == theirs.success
        assert episode.state.solvable == theirs.solvable
        assert episode.state.num_calls == theirs.num_calls
    for entry in helpers.EDITS:
        assert entry in LOST or counts[entry] == 2 * NUM, entry
    lost = collections.defaultdict(set)
    for missed in world.log.missed:
        lost[exported()[missed.line - 1]["entry"]].add(missed.reason)
    assert lost == LOST


def test_conversations_of_others(world, played):
    """Played again as they were logged: each reply is answered as it was."""
    writer = conversation.Writer(world.lexicon)
    first = len(exported()) - len(OTHERS) + 1
    for line, messages in enumerate(OTHERS, first):
        episode, ours, _ = played[line]
        assert episode.state.success
        again = dialogue.Dialogue(writer, world.lexicon, episode.task, 12)
        for message in ours:
            if message["role"] == "assistant":
                again.hear(message)
        assert again.finished and again.success
        asked = [m["content"] for m in messages if m["role"] == "user"]
        assert ours[1] == {"role": "user", "content": asked[0]}
    assert said(played[first][1])[2:] == [
        ("assistant", "", [("find_order", {"order_id": "A-17", "year": "2024"})]),
        (
            "tool",
            '{"parcel":"p9","state":"packed","weight":"2.5","gift":"true"}',
            [],
        ),
        ("assistant", "", [("ship", {"parcel": "p9", "to": "Oslo"})]),
        ("tool", '{"label":"L-4","by":"null"}', []),
        ("assistant", "Answer: L-4", []),
    ]
    assert [m["content"] for m in played[first + 1][1][2:]] == [
        "",
        '{"error":"failed, try again"}',
        "",
        '{"error":"failed, try again"}',
        "",
        '{"sky":"sunny","wind":"3"}',
        "Answer: sunny",
    ]
    assert [m["content"] for m in played[first + 2][1][2:5]] == ["Ask", "Rome", ""]
    assert [m["content"] for m in played[first + 3][1][2:]] == ["Refuse"]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("get_weather", {"city": "Bern"}, "wrong arguments"),
        ("get_weather", {"city": "A-17"}, "wrong arguments"),
        ("get_weather", {}, "wrong arguments"),
        ("ship", {"parcel": "Rome", "to": "Rome"}, "wrong arguments"),
        ("sell", {}, "no such tool"),
    ],
)
def test_calls_that_were_never_recorded(world, played, name, arguments, told):
    task = played[len(exported())][0].task
    writer = conversation.Writer(world.lexicon)
    ours = dialogue.Dialogue(writer, world.lexicon, task, 12)
    ours.hear(calls((name, arguments)))
    assert json.loads(ours.messages[-1]["content"]) == {"error": told}
    ours.hear(GOOD[0])
    assert json.loads(ours.messages[-1]["content"]) == {"sky": "sunny", "wind": "3"}
    ours.hear(says("Answer: sunny"))
    assert ours.success and ours.num_errors == 1


# Recorded worlds have no other entities, and no table of other goals.
STAY = {"entity_shift"}


@pytest.fixture(scope="module")
def edits(world):
    tasks = all_tasks(world)
    pools = world.pools["test"]
    makes = [perturb.make(name, pools) for name in perturb.CATALOGUE]

    @jax.jit
    def edit(index, tasks, strength):
        keys = jax.random.split(jax.random.key(3), len(tasks.world))
        one = functools.partial(jax.lax.switch, index, makes)
        return jax.vmap(one, (0, 0, None))(keys, tasks, strength)

    def run(name, strength):
        index = jnp.int32([*perturb.CATALOGUE].index(name))
        return edit(index, tasks, jnp.float32(strength))

    return tasks, run


@pytest.mark.parametrize("name", perturb.CATALOGUE)
def test_perturbations(world, edits, name):
    old, run = edits
    same, new = run(name, 0.0), run(name, 1.0)
    assert jax.tree.all(jax.tree.map(lambda x, y: (x == y).all(), same, old))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), new) == jax.tree.map(
        lambda x: (x.shape, x.dtype), old
    )
    hit = ~np.asarray(jax.vmap(perturb.equal)(new, old))
    share = hit.mean()
    assert share == 0 if name in STAY else share > 0.2
    before, _ = helpers.demonstrate(world.lexicon, old)
    after, _ = helpers.demonstrate(world.lexicon, new)
    solvable = np.asarray(after.state.solvable)
    wanted = np.asarray(before.state.solvable) & perturb.CATALOGUE[name].solvable
    if name != "domain_transfer":
        assert np.array_equal(solvable[hit], wanted[hit])
    assert np.all(np.asarray(after.state.success))
    texts = np.asarray(world.lexicon.canonical)
    visible = np.asarray(new.tools.visible)
    for names, on in zip(np.asarray(new.tools.name), visible):
        assert len({*texts[names[on]]}) == on.sum() and texts[names[on]].all()


@pytest.mark.parametrize("field", ["name", "description", "arg_name"])
def test_other_words(world, field):
    """Each stands for one thing, in one split, and nothing else is called so."""
    texts = conversation.texts(world.lexicon)
    documents = world.sample.args[0].documents
    own = np.asarray(getattr(documents, field))
    own = own[:, 0] if field == "description" else own
    pools = np.asarray(getattr(documents.variants, field))
    meant = {text: (text, "") for text in map(texts.__getitem__, np.unique(own))}
    for split, pool in zip(domain.SPLITS, pools):
        for place in zip(*np.nonzero(own)):
            for symbol in pool[place]:
                what = texts[own[place]], split
                assert meant.setdefault(texts[symbol], what) == what
    assert len(meant) > 100


def test_splits(world):
    """No task is in both, and each task stays where it is when others come."""
    tasks = [task for _, task in world.log.tasks]
    test = logs.is_test(tasks)
    assert 0.1 < np.mean(test) < 0.4
    assert logs.is_test(tasks[50:]) == test[50:]
    assert logs.is_test([*tasks, *tasks[:9]]) == [*test, *test[:9]]
    drawn = {}
    for split in domain.SPLITS:
        draw = jax.jit(jax.vmap(lambda key, split=split: world.sample(key, split)))
        drawn[split] = np.asarray(draw(helpers.keys()).world)
    assert {*(drawn["train"] % 2)} == {0} and {*(drawn["test"] % 2)} == {1}
    halves = [{*(drawn[split] // 2)} for split in domain.SPLITS]
    assert halves[1] <= {i for i, x in enumerate(test) if x} and len(halves[1]) > 30
    assert not halves[0] & halves[1] and len(halves[0]) > 90


def test_what_distracts_is_of_the_same_split(tmp_path):
    """One conversation in each: there are no others to take tools from."""
    file = tmp_path / "x.jsonl"
    rows = [
        {"messages": weather(*GOOD), "tools": TOOLS[1:2]},
        {"messages": chain(), "tools": TOOLS[::2]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = build(file).sample.args[0]
    assert source.num == (1, 1)
    shown = np.arange(LIMITS.num_tools) < np.asarray(source.num_visible)[:, None]
    assert np.array_equal(np.asarray(source.document) > 0, shown)


def log_of(tmp_path, *conversations, name="x.jsonl"):
    file = tmp_path / name
    rows = ({"messages": x, "tools": TOOLS} for x in conversations)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def build(file, **room):
    limits = {x: room.pop(x) for x in [*room] if hasattr(LIMITS, x)}
    limits = dataclasses.replace(LIMITS, **limits)
    room = {f"sandbox.{key}": value for key, value in room.items()}
    return worlds.build(file, helpers.tokenizer(), limits, 5, room=ROOM | room)


def test_one_conversation_has_no_test(tmp_path):
    made = build(log_of(tmp_path, weather(*GOOD), weather(*GOOD)))
    assert made.sample(jax.random.key(0), "train").world in (0, 2)
    with pytest.raises(ValueError, match="no conversation for the split test"):
        made.sample(jax.random.key(0), "test")


def test_room(tmp_path):
    """What finds none is left out, and told with what it needs."""
    long = [user("word " * 150), *GOOD, says("sunny")]
    file = log_of(tmp_path, weather(*GOOD), failing(), chain(), long)
    found = logs.load(file, logs.room(LIMITS) | {"sandbox.num_steps": 1} | ROOM)
    assert [(x.line, x.reason, x.needs) for x in found.missed] == [
        (3, "more than sandbox.num_steps=1", {"sandbox.num_steps": 2})
    ]
    made = build(file, num_fields=3, max_turns=3, prompt_tokens=150)
    assert [line for line, _ in made.log.tasks] == [1]
    assert made.log.summary() == (
        "mapped 1 of 4 conversations; 3 not: 1 more than sandbox.max_turns=3, "
        "1 more than sandbox.num_fields=3, 1 more than sandbox.prompt_tokens=150"
    )
    told = list(made.log.told())
    assert told[:2] == [
        "1 more than sandbox.max_turns=3: line 2",
        "  room for all of them: --config.sandbox.max_turns=4",
    ]
    needs = made.log.missed[-1].needs["sandbox.prompt_tokens"]
    assert 160 < needs < 300  # the words, and the documents
    assert build(file, prompt_tokens=needs).log.missed == ()


def test_texts_that_a_tokenizer_cannot_spell(tmp_path):
    odd = [user("<|end|> Weather in Rome?"), *GOOD, says("sunny")]
    made = build(log_of(tmp_path, weather(*GOOD), odd))
    assert [(x.line, x.reason) for x in made.log.missed] == [
        (2, "a text that the tokenizer reads as another")
    ]


def test_faults(tmp_path):
    file = log_of(tmp_path, weather())
    with pytest.raises(logs.NothingMapped, match="mapped 0 of 1 conversations; 1 not"):
        build(file)
    with pytest.raises(DomainError, match="a log has no :dev"):
        build(f"{file}:dev")
    file.write_text("{")
    with pytest.raises(DomainError, match="line 1"):
        build(file)


def test_a_log_of_an_evaluation(tmp_path):
    file = log_of(tmp_path, weather(*GOOD), weather(*GOOD))
    header = json.dumps({"evaluation": {"seed": 0}})
    file.write_text(f"{header}\n{file.read_text()}{header}\n")
    found = logs.load(file, ROOM)
    assert [line for line, _ in found.tasks] == [2, 3] and not found.missed
    assert list(found.told()) == ["2 first lines of an evaluation, skipped"]


def test_generated_worlds_have_no_facts():
    """Nothing of them is in their programs."""
    assert helpers.tasks("poi").facts is None


def test_export():
    """In plain JSON, with a share of perturbed tasks, and ids for each call."""
    world = helpers.world("poi")
    names = ("unsolvable",)
    recipe = demonstrations.Recipe(
        world.lexicon,
        world.sample,
        "poi",
        families=(),
        max_turns=helpers.MAX_TURNS,
        num_tokens=1,
        seed=5,
        alpha=0.5,
        perturbations=names,
        edits={"test": worlds.perturbation(world, names, "test")},
    )
    rows = list(conversations.conversations(recipe, "test", 12))
    assert json.loads(json.dumps(rows)) == rows
    columns = "messages", "tools", "task_id", "perturbation", "solvable"
    assert {tuple(row) for row in rows} == {columns}
    assert len({row["task_id"] for row in rows}) == len(rows)
    noisy = demonstrations.is_perturbed(np.arange(12), 0.5)
    for row, perturbed in zip(rows, noisy):
        assert row["perturbation"] == ("unsolvable" if perturbed else "clean")
        assert row["solvable"] != perturbed
        ids = [c["id"] for m in row["messages"] for c in m.get("tool_calls", ())]
        answers = [m.get("tool_call_id") for m in row["messages"]]
        assert [x for x in answers if x] == ids and len({*ids}) == len(ids)
        last = row["messages"][-1]["content"]
        assert last == "Refuse" if perturbed else last.startswith("Answer: ")
    assert sum(map(len, (row["messages"] for row in rows))) > 60
