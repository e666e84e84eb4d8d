"""Logged worlds: exported, imported again, played, perturbed and split."""

import collections
import dataclasses
import functools
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.agents import dialogue
from openagent_jax.curriculum import mix
from openagent_jax.data import conversations, demonstrations
from openagent_jax.domains import domain_spec
from openagent_jax.environments import registry, transcript
from openagent_jax.environments.logs import logs
from openagent_jax.environments.tools import types
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.environments.world import SPLITS, Settings, Spelling
from openagent_jax.evaluation import transcript as texts
from tests import helpers
from tests.environments.logs.examples import (
    BOX,
    GOOD,
    LIMITS,
    PACK,
    PACKED,
    ROOM,
    TOOLS,
    build,
    calls,
    chain,
    failing,
    nested,
    says,
    unsure,
    weather,
)

NUM = 6  # episodes of each perturbation


# What cannot be imported again: calls of undocumented tools; results not in JSON, and
# errors that do not say in JSON that they are errors.
_NOT_IN_JSON = {
    "an argument called `code` whose value no earlier result has",
    "an answer that is in no result",
}
# Entries whose errors have words of their own, which an imported log does not keep.
WORDED = (
    "error_wording",
    "runtime_error",
    "verification_code_change",
    "stale_value",
    "fatal_error",
    "unsolvable",
)
LOST = {
    "tool_redirection": {"a call of an undocumented tool"},
    "tool_addition": {"a call of an undocumented tool"},
    "schema_drift": {"an undocumented argument"},
    "nonstandard_feedback": _NOT_IN_JSON,
    "tool_deprecation": _NOT_IN_JSON,
    **dict.fromkeys(
        (
            "error_wording",
            "runtime_error",
            "rate_limit",
            "missing_values",
            "verification_code_change",
            "stale_value",
        ),
        {"the same call twice with different results"},
    ),
    "incomplete_information": {
        "an undocumented argument",
        "the same call twice with different results",
    },
    "fatal_error": {"a refusal after calls that succeeded"},
}


OTHERS = [chain(), failing(), unsure(), weather(last="Refuse"), weather(*GOOD)]


@functools.cache
def observer(transcriber):
    return jax.jit(jax.vmap(jax.vmap(transcriber.observe, (None, 0))))


def export(world, tasks):
    """Yield `(episode, messages, tools)` of the expert on tasks."""
    transcriber = world.transcriber
    episodes, _ = helpers.demonstrate(world.tables, tasks)
    shown = observer(transcriber)(episodes.task, episodes.timestep.observation)
    for episode, pieces in zip(helpers.rows(episodes), np.asarray(shown)):
        messages = transcript.messages(transcriber, episode, pieces)
        yield episode, messages, transcriber.tools(episode.task)


@functools.cache
def exported():
    """Rows of each perturbation, as `launch.logs export` writes them, and others."""
    rows = []
    for name, split in (("poi", "train"), ("medical", "test")):
        for entry in helpers.EDITS:
            tasks = helpers.edited(name, split, entry)
            tasks = jax.tree.map(lambda x: x[:NUM], tasks)
            rows += [
                {"messages": m, "tools": t, "entry": entry, "episode": e}
                for e, m, t in export(helpers.world(name), tasks)
            ]
    rows.append({"messages": nested(), "tools": [PACK], "entry": ""})
    return rows + [{"messages": m, "tools": TOOLS, "entry": ""} for m in OTHERS]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    made = tmp_path_factory.mktemp("logs") / "all.jsonl"
    plain = [{**row, "episode": None} for row in exported()]
    made.write_text("".join(json.dumps(row) + "\n" for row in plain))
    return made


@pytest.fixture(scope="module")
def world(file):
    return build(file)


@pytest.fixture(scope="module")
def player(world):
    """Begins dialogues; its functions are compiled once."""
    return dialogue.Player(world)


@pytest.fixture(scope="module")
def log(file):
    """The log that the worlds are made of."""
    room = logs.max_sizes(LIMITS) | ROOM | {"sandbox.depth": 3}
    return logs.load(file, room).spelled_by(helpers.tokenizer())


def all_tasks(world):
    """Every task of a log, in its order."""
    source = world.tables.source.tasks
    uniforms, num = jnp.zeros(2), sum(source.num)
    one = lambda r: source.task(r, uniforms, domain.TRAIN)  # noqa: E731
    return jax.jit(jax.vmap(one))(jnp.arange(num))


@pytest.fixture(scope="module")
def played(world, log):
    """`{line: (episode, messages, tools)}` of the expert on the imported tasks."""
    lines = [line for line, _ in log.tasks]
    return dict(zip(lines, export(world, all_tasks(world)), strict=True))


def test_shown_conversations_are_different_ones(world):
    num = int(world.environment.num_tasks(world.tables, "test"))
    shown = texts.episodes(world, "clean", jax.random.key(0), num + 5, 1.0)
    users = ["\n".join(clean) for clean, _ in shown]
    assert len(users) == len({*users}) == num > 3


def contents(messages):
    """The content of messages: texts and calls, without ids."""
    found = []
    for message in messages:
        made = [call["function"] for call in message.get("tool_calls", ())]
        made = [(x["name"], x["arguments"]) for x in made]
        found.append((message["role"], message["content"], made))
    return found


def test_export_and_import(world, played):
    """The same tools, calls, results, answers and outcomes, clean and perturbed."""
    counts = collections.Counter()
    for line, (episode, messages, tools) in played.items():
        row = exported()[line - 1]
        if not row["entry"]:
            continue
        counts[row["entry"]] += 1
        if row["entry"] in ("nonstandard_feedback", "tool_deprecation"):
            continue  # a result that is not in JSON is one text
        theirs = row["episode"].state
        assert episode.state.success == theirs.success
        assert episode.state.solvable == theirs.solvable
        if row["entry"] in ("error_with_alternative", "still_solvable"):
            continue  # a tool that never worked is not part of the logged task
        if row["entry"] in ("query_ambiguous", "query_evolution"):
            continue  # what the user said later is part of the logged request
        if row["entry"] in ("rate_limit", "incomplete_information"):
            continue  # the log tells that a call has failed, but not why
        if row["entry"] in WORDED:
            continue  # a failure of a log is written in our own words
        assert contents(messages) == contents(row["messages"]), row["entry"]
        assert tools == row["tools"]
        assert episode.state.num_calls == theirs.num_calls
    for entry in helpers.EDITS:
        assert entry in LOST or counts[entry] == 2 * NUM, entry
    lost = collections.defaultdict(set)
    for skipped in world.skipped:
        lost[exported()[skipped.line - 1]["entry"]].add(skipped.reason)
    assert lost == LOST


def test_hand_written_conversations(player, played):
    """Replayed, each reply of the agent gets the logged result."""
    first = len(exported()) - len(OTHERS) + 1
    for line, messages in enumerate(OTHERS, first):
        episode, ours, _ = played[line]
        assert episode.state.success
        again = player.begin(episode.task)
        for message in ours:
            if message["role"] == "assistant":
                again.receive(message)
        assert again.finished and again.outcome.success
        asked = [m["content"] for m in messages if m["role"] == "user"]
        assert ours[1] == {"role": "user", "content": asked[0]}
    assert contents(played[first][1])[2:] == [
        ("assistant", "", [("find_order", {"order_id": "A-17", "year": 2024})]),
        (
            "tool",
            '{"parcel":"p9","state":"packed","weight":2.5,"gift":true}',
            [],
        ),
        ("assistant", "", [("ship", {"parcel": "p9", "to": "Oslo"})]),
        ("tool", '{"label":"L-4","by":null}', []),
        ("assistant", "Answer: done", []),
    ]
    assert contents(played[first - 1][1])[2:] == [
        ("assistant", "", [("pack", BOX)]),
        ("tool", json.dumps(PACKED, separators=(",", ":")), []),
        ("assistant", "Answer: 7", []),
    ]
    assert played[first - 1][2] == [PACK]
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
    ("name", "arguments", "error"),
    [
        ("get_weather", {"city": "Bern"}, "wrong arguments"),
        ("get_weather", {"city": "A-17"}, "wrong arguments"),
        ("get_weather", {}, "wrong arguments"),
        ("ship", {"parcel": "Rome", "to": "Rome"}, "wrong arguments"),
        ("sell", {}, "no such tool"),
    ],
)
def test_calls_that_are_not_in_the_log(player, played, name, arguments, error):
    task = played[len(exported())][0].task
    ours = player.begin(task)
    ours.receive(calls((name, arguments)))
    assert json.loads(ours.messages[-1]["content"]) == {"error": error}
    ours.receive(GOOD[0])
    assert json.loads(ours.messages[-1]["content"]) == {"sky": "sunny", "wind": "3"}
    ours.receive(says("Answer: sunny"))
    assert ours.outcome.success and ours.outcome.num_errors == 1


# Logged worlds have no other values or entities, results for two sources, or room for
# two worlds.
WITHOUT_EFFECT = {
    "stale_value",
    "query_evolution",
    "entity_shift",
    "knowledge_update",
    "query_ambiguous",
    "conflicting_sources",
    "cross_domain_composition",
}


# Those whose effect depends most on how a world was made.
SOME = ("tool_redirection", "query_underspecified", "unsolvable", "domain_transfer")
OTHERS_TOO = tuple(name for name in helpers.CATALOGUE if name not in SOME)


@pytest.fixture(scope="module")
def editor(world):
    tasks = all_tasks(world)

    @functools.cache
    def compiled(names):
        @jax.jit
        def edit(index, tables, strength):
            make = functools.partial(
                perturb.make, world.environment, tables, split="test"
            )
            keys = jax.random.split(jax.random.key(3), len(tasks.world))
            one = functools.partial(jax.lax.switch, index, [make(x) for x in names])
            return jax.vmap(one, (0, 0, None))(keys, tasks, strength)

        return edit

    def edit(name, strength):
        names = SOME if name in SOME else OTHERS_TOO
        index = jnp.int32(names.index(name))
        return compiled(names)(index, world.tables, jnp.float32(strength))

    return tasks, edit


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in SOME),
        *(pytest.param(name, marks=pytest.mark.hours) for name in OTHERS_TOO),
    ],
)
def test_perturbations(world, editor, name):
    old, edit = editor
    same, new = edit(name, 0.0), edit(name, 1.0)
    assert jax.tree.all(jax.tree.map(lambda x, y: (x == y).all(), same, old))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), new) == jax.tree.map(
        lambda x: (x.shape, x.dtype), old
    )
    hit = ~np.asarray(jax.vmap(perturb.equal)(new, old))
    share = hit.mean()
    assert share == 0 if name in WITHOUT_EFFECT else share > 0.2
    before, _ = helpers.demonstrate(world.tables, old)
    after, _ = helpers.demonstrate(world.tables, new)
    solvable = np.asarray(after.state.solvable)
    wanted = np.asarray(before.state.solvable) & helpers.CATALOGUE[name].solvable
    if name != "domain_transfer":
        assert np.array_equal(solvable[hit], wanted[hit])
    assert np.all(np.asarray(after.state.success))
    texts = np.asarray(world.tables.lexicon.canonical)
    visible = np.asarray(new.tools.visible)
    for names, on in zip(np.asarray(new.tools.name), visible):
        assert len({*texts[names[on]]}) == on.sum() and texts[names[on]].all()


def test_a_log_as_the_domain_of_transfer(file):
    """`domain_transfer` replaces tasks of a domain by those of the log."""
    settings = Settings(domain="poi", transfer=str(file))
    world = registry.make(settings, Spelling(helpers.tokenizer(), max_sizes=ROOM))
    environment = world.environment

    @jax.jit
    def tasks(tables, key):
        old = environment.sample(tables, key, "train")
        edit = perturb.make(environment, tables, "domain_transfer", "train")
        return old, edit(key, old, jnp.float32(1))

    old, new = helpers.host(tasks(world.tables, jax.random.key(0)))
    chex.assert_trees_all_equal_shapes_and_dtypes(old, new)
    assert (new.tools.result_low == types.RECORDED).all()
    assert not (old.tools.result_low == types.RECORDED).any()
    assert world.transcriber.goal(old) in {
        goal.name for goal in helpers.spec("poi").goals
    }
    assert not world.source  # which is for worlds whose own tasks are those of a log


def test_a_log_may_transfer_to_a_domain_whose_goals_are_sampled(file):
    """As those of all domains of the library but two."""
    assert not helpers.spec("weather").goals
    settings = Settings(domain=str(file), transfer="weather")
    world = registry.make(settings, Spelling(helpers.tokenizer(), max_sizes=ROOM))
    environment = world.environment

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def tasks(tables, key):
        old = environment.sample(tables, key, "test")
        edit = perturb.make(environment, tables, "domain_transfer", "test")
        new = edit(key, old, jnp.float32(1))
        return new, environment.certificate(tables, new)

    new, proof = tasks(world.tables, jax.random.split(jax.random.key(0), 32))
    assert np.all(np.asarray(new.phrase)[:, 0] > 0)  # it asks for something
    assert np.all(np.asarray(new.goal.tool)[:, 0] >= 0)
    assert np.all(proof.solvable) and np.all(np.asarray(proof.fewest_calls) > 0)
    with pytest.raises(domain_spec.DomainError, match="weather.*raise sandbox"):
        registry.make(
            dataclasses.replace(settings, num_goals=0),
            Spelling(helpers.tokenizer(), max_sizes=ROOM),
        )


@pytest.mark.parametrize("field", ["name", "description", "arg_name"])
def test_synonyms(world, field):
    """Each synonym has one meaning, belongs to one split, and is no original name."""
    texts = helpers.ragged(world.tables.lexicon.texts)
    texts = [bytes(text).decode() for text in texts]
    documents = world.tables.source.tasks.documents
    own = np.asarray(getattr(documents, field))
    own = own[:, 0] if field == "description" else own
    pools = np.asarray(getattr(documents.variants, field))
    meant = {text: (text, "") for text in map(texts.__getitem__, np.unique(own))}
    for split, pool in zip(SPLITS, pools):
        for place in zip(*np.nonzero(own)):
            for symbol in pool[place]:
                what = texts[own[place]], split
                assert meant.setdefault(texts[symbol], what) == what
    assert len(meant) > 100


def test_splits(world, log):
    """No task is in both splits, and each stays in its split when the log grows."""
    tasks = [task for _, task in log.tasks]
    test = logs.in_test_split(tasks)
    assert 0.1 < np.mean(test) < 0.4
    assert logs.in_test_split(tasks[50:]) == test[50:]
    assert logs.in_test_split([*tasks, *tasks[:9]]) == [*test, *test[:9]]
    drawn = {}
    for split in SPLITS:
        one = functools.partial(world.environment.sample, world.tables, split=split)
        drawn[split] = np.asarray(jax.jit(jax.vmap(one))(helpers.keys()).world)
    assert {*(drawn["train"] % 2)} == {0} and {*(drawn["test"] % 2)} == {1}
    halves = [{*(drawn[split] // 2)} for split in SPLITS]
    assert halves[1] <= {i for i, x in enumerate(test) if x} and len(halves[1]) > 30
    assert not halves[0] & halves[1] and len(halves[0]) > 90


def test_distractors_are_from_the_same_split(tmp_path):
    """With one conversation per split, there are no other tools to take."""
    file = tmp_path / "x.jsonl"
    rows = [
        {"messages": weather(*GOOD), "tools": TOOLS[1:2]},
        {"messages": chain(), "tools": TOOLS[::2]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = build(file).tables.source.tasks
    assert source.num == (1, 1)
    shown = np.arange(LIMITS.num_tools) < np.asarray(source.num_visible)[:, None]
    assert np.array_equal(np.asarray(source.document) > 0, shown)


def test_generated_worlds_have_no_facts():
    """Therefore their compiled programs contain no code for facts."""
    assert helpers.tasks("poi").facts is None


@pytest.mark.slow
def test_export():
    """Rows are plain JSON, a share of tasks is perturbed, and each call has an id."""
    world = helpers.world("poi")
    names = ("unsolvable",)
    recipe = demonstrations.Recipe(
        world,
        "poi",
        num_tokens=1,
        seed=5,
        alpha=0.5,
        perturbations=names,
    )
    rows = list(conversations.conversations(recipe, "test", 12))
    assert json.loads(json.dumps(rows)) == rows
    columns = "messages", "tools", "task_id", "perturbation", "solvable"
    assert {tuple(row) for row in rows} == {columns}
    assert len({row["task_id"] for row in rows}) == len(rows)
    noisy = mix.is_perturbed(np.arange(12), 0.5)
    for row, perturbed in zip(rows, noisy):
        assert row["perturbation"] == ("unsolvable" if perturbed else "clean")
        assert row["solvable"] != perturbed
        ids = [c["id"] for m in row["messages"] for c in m.get("tool_calls", ())]
        answers = [m.get("tool_call_id") for m in row["messages"]]
        assert [x for x in answers if x] == ids and len({*ids}) == len(ids)
        last = row["messages"][-1]["content"]
        assert last == "Refuse" if perturbed else last.startswith("Answer: ")
    assert sum(map(len, (row["messages"] for row in rows))) > 60
