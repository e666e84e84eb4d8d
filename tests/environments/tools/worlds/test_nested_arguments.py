"""Arguments inside of objects and arrays, from a domain file to calls and back."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.domains import domain_file, nested_arguments
from openagent_jax.domains.goals import goal_sampling
from openagent_jax.domains.limits import Limits
from openagent_jax.environments import registry
from openagent_jax.environments.tools import types
from openagent_jax.environments.world import Settings, Spelling
from openagent_jax.text import chat, nesting, reply_scan
from openagent_jax.text import lexicon as lexicons
from tests import helpers
from tests.domains import inns, trips

LIMITS = Limits(num_args=8, num_constants=8, depth=2)
TOKENS, BYTES, NUM = 160, 640, 32
FORMS = (helpers.COMPACT, "hermes")
UNION = "filters~.price"  # of several types; one name with a dot


def make(folder, form=helpers.COMPACT, document=None):
    file = inns.save(folder, document or trips.document())
    settings = Settings(
        domain=str(file), transfer="poi", num_args=8, num_constants=8, depth=2
    )
    spelling = Spelling(helpers.tokenizer())
    if form != helpers.COMPACT:
        made = chat.read(helpers.template(form), settings.num_args)
        spelling = Spelling(helpers.chat_tokenizer(), made)
    return registry.make(settings, spelling)


def _player(world):
    environment, tables = world.environment, world.tables

    @jax.jit
    def read(task, text, length):
        return environment.parse(tables, task, text, length)

    @jax.jit
    @jax.vmap
    def play(key):
        clean = environment.sample(tables, key, "train")
        renaming = next(
            x for x in environment.perturbations if x.name == "argument_renaming"
        )
        edit = renaming.make(environment.pools(tables, clean, "train"))
        which = jax.random.bits(key) % 2 == 0
        task = jax.tree.map(
            lambda x, y: jnp.where(which, x, y), clean, edit(key, clean, 1.0)
        )
        state, first = environment.reset(tables, task), None
        for _ in range(2):
            action = environment.expert(tables, task, state)
            pieces = environment.utterance(tables, task, action)
            tokens, _, size = lexicons.write(tables.lexicon, pieces, TOKENS)
            text, length = reply_scan.detokenize(tables.lexicon, tokens, size - 1)
            first = first or (action, text, length)
            again = environment.parse(tables, task, text, length)
            state, _ = environment.step(tables, task, state, again)
        prompt = environment.prompt(tables, task)
        return task, *first, prompt, environment.outcome(tables, task, state)

    return play, read


@pytest.fixture(scope="module", params=FORMS)
def world(request, tmp_path_factory):
    made = make(tmp_path_factory.mktemp("nested"), request.param)
    play, read = _player(made)
    return request.param, made, jax.device_get(play(helpers.keys(num=NUM))), read


def expected_keys(name, task, texts):
    """Return the paths of a goal with the words that a task has for its keys."""
    tools = jax.tree.map(np.asarray, task.tools)
    words = {}
    spec_paths = nested_arguments.in_order(trips.ARGUMENTS)
    for a, path in enumerate(spec_paths):
        outer, own = tools.arg_path[0, a].tolist(), int(tools.arg_name[0, a])
        shown = nesting.decoded(outer, own, texts)
        words[path] = nesting.written(shown)
        for old, new in zip(nesting.parse(path), shown, strict=True):
            assert new == old or (isinstance(old, str) and new == f"{old}_one")
    return {words[path] for path in trips.GOALS[name]}


def test_the_expert_writes_nested_calls_and_solves_every_task(world):
    form, made, (tasks, actions, texts, lengths, prompts, outcome), _ = world
    assert outcome.success.all() and not outcome.num_errors.any()
    symbols, seen = lexicons.texts(made.tables.lexicon), set()
    for i in range(NUM):
        task = helpers.row(tasks, i)
        text = bytes(texts[i][: lengths[i]]).decode()
        call = json.loads(re.search(r"\{.*\}", text, re.DOTALL)[0])
        name = made.transcriber.goal(task)
        keys = expected_keys(name, task, symbols)
        leaves = dict(nesting.flat(call["arguments"]))
        assert set(map(nesting.written, leaves)) == keys
        message = made.transcriber.message(task, helpers.row(actions, i))
        said = message["tool_calls"][0]["function"]["arguments"]
        assert (
            nesting.flat(said)
            and set(nesting.written(path) for path, _ in nesting.flat(said)) == keys
        )
        renamed = any("_one" in key for key in keys)
        seen.add((name, renamed))
        if form != helpers.COMPACT:  # chat templates write values as JSON has them
            assert call["arguments"] == said
            spaced = json.dumps(call["arguments"], ensure_ascii=False)
            assert f'"arguments": {spaced}' in text
        # The documents have the same words.
        (document,) = made.transcriber.tools(task)
        prompt = "".join(symbols[s] for s in prompts[i])
        for key in {x for path in keys for x in nesting.parse(path)}:
            if isinstance(key, int):
                continue
            assert f'"{key}"' in json.dumps(document)
            shown = re.escape(key)
            assert re.search(rf'["{{ ]{shown}[";: (\\]', prompt), (key, prompt)
            if renamed and key.endswith("_one"):
                old = key.removesuffix("_one")
                assert f'"{old}"' not in json.dumps(document)
    assert seen == {(name, x) for name in trips.GOALS for x in (True, False)}


def status(world, changes, goal="least"):
    """Return the action for the expert's call with other arguments, and its names."""
    form, made, (tasks, _, texts, lengths, _, _), read = world
    names = [made.transcriber.goal(helpers.row(tasks, i)) for i in range(NUM)]
    symbols = lexicons.texts(made.tables.lexicon)
    i = next(
        i
        for i in range(NUM)
        if names[i] == goal and symbols[tasks.tools.arg_name[i, 0, 0]] == "city"
    )
    text = bytes(texts[i][: lengths[i]]).decode()
    found = re.search(r"\{.*\}", text, re.DOTALL)[0]
    call = json.loads(found)
    arguments = changes(call["arguments"])
    made_text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    inner = json.dumps({**call, "arguments": "HERE"}).replace('"HERE"', made_text)
    data = text.replace(found, inner).encode()
    row = np.zeros(BYTES, np.uint8)
    row[: len(data)] = np.frombuffer(data, np.uint8)
    task = helpers.row(tasks, i)
    return jax.device_get(read(task, row, jnp.int32(len(data)))), task


GOOD = '{"filters": {"city": "Ur"}, "tags": ["sea"]}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        '{"tags": ["sea"], "filters": {"city": "Ur"}}',
        '{ "tags":[ "sea" ] ,\n"filters" :{"city":"Ur"}, "stay":null }',
        '{"filters": {"city": "Ur", "price": null}, "tags": ["sea", null]}',
        '{"filters": {"city": "Ur"}, "tags": ["sea"], "stay": {}}',
        '{"filters": {"city": "Ur"}, "tags": ["sea"], "stay": {"quiet": null}}',
    ],
)
def test_spellings_of_one_call(world, text):
    action, _ = status(world, lambda _: text)
    wanted, _ = status(world, lambda _: GOOD)
    assert action.kind == reply_scan.CALL and action.call.tool == 0
    assert action.call.args.tolist() == wanted.call.args.tolist()
    given = ["filters.city", "tags.0"]
    paths = nested_arguments.in_order(trips.ARGUMENTS)
    assert (wanted.call.args >= 0).tolist() == [path in given for path in paths]


@pytest.mark.parametrize(
    "text",
    [
        '{"filters": {"city": "Ur", "zip": "x"}, "tags": ["sea"]}',  # no such key
        '{"filters": {"city": "Ur"}, "tags": ["sea", "hills", "sea"]}',
        '{"filters": {"city": "Ur", "city": "Ur"}, "tags": ["sea"]}',
        '{"filters": {"city": "Ur"}, "filters": {"price": 1}, "tags": ["sea"]}',
        '{"filters": {"city": "Ur"}, "tags": ["sea"], "tags": []}',
        '{"filters": {"city": "Ur"}, "tags": {"0": "sea"}}',
        '{"filters": {"city": "Ur"}, "tags": ["sea"], "stay": []}',
        '{"filters": {"city": "Ur"}, "tags": ["sea"], "more": {}}',
        '{"filters.city": "Ur", "tags.0": "sea"}',
        '{"city": "Ur", "tags": ["sea"]}',
        '{"": {"city": "Ur"}, "tags": ["sea"]}',
        '{"filters": "Ur", "tags": ["sea"]}',
    ],
)
def test_what_is_no_argument_makes_all_of_them_unacceptable(world, text):
    action, _ = status(world, lambda _: text)
    assert action.kind == reply_scan.CALL and action.call.tool == 0
    assert (action.call.args == types.UNACCEPTABLE).all()


@pytest.mark.parametrize(
    "text",
    [
        '{"filters": {"city": "Ur"}, "tags": ["sea"',
        '{"filters": {"city": "Ur"}, "tags": ["sea",]}',
        '{"filters": {"city": "Ur",}, "tags": ["sea"]}',
        '{"filters": {"city": "Ur"], "tags": ["sea"]}',
        '{"filters": {"city": "Ur"}, "tags": ["sea"}}',
        '{"filters": {"city" "Ur"}, "tags": ["sea"]}',
        '{"filters": {"city": {"name": "Ur"}}, "tags": ["sea"]}',  # too deep
        '{"filters": {"city": "Ur"}, "tags": ["sea" "hills"]}',
        '{"filters": {"city": "Ur"}, "tags": [,"sea"]}',
        '{"filters": {"city": "Ur"}, "tags": ["a": "sea"]}',
        '["sea"]',
    ],
)
def test_malformed(world, text):
    action, _ = status(world, lambda _: text)
    assert action.kind == reply_scan.MALFORMED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"tags": ["sea"]}', [types.MISSING]),
        ('{"filters": {}, "tags": ["sea"]}', [types.MISSING]),
        ('{"filters": null, "tags": ["sea"]}', [types.MISSING]),
        ('{"filters": {"city": "sea"}, "tags": ["sea"]}', [types.UNACCEPTABLE]),
        ('{"filters": {"city": 7}, "tags": ["sea"]}', [types.UNACCEPTABLE]),
    ],
)
def test_a_wrong_or_missing_leaf(world, text, expected):
    action, _ = status(world, lambda _: text)
    assert action.kind == reply_scan.CALL
    assert action.call.args.tolist()[:1] == expected
    assert action.call.args[5] >= 0


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ('"Ur"', True),
        ("7", True),
        ('"7"', True),  # numbers are compared by value
        ("true", True),
        ("24", False),
        ("null", None),
        ('"sea"', False),
        ("[]", False),
    ],
)
def test_a_value_of_any_type_of_a_union(world, value, accepted):
    text = f'{GOOD[:-1]}, "filters.price": {value}}}'
    action, _ = status(world, lambda _: text)
    assert action.kind == reply_scan.CALL
    got = action.call.args[7]
    expected = types.MISSING if accepted is None else types.UNACCEPTABLE
    assert got >= 0 if accepted else got == expected


def test_a_goal_gives_one_of_the_types_of_a_union(world):
    _, made, (tasks, actions, *_), _ = world
    seen = set()
    for i in range(NUM):
        task = helpers.row(tasks, i)
        message = made.transcriber.message(task, helpers.row(actions, i))
        arguments = message["tool_calls"][0]["function"]["arguments"]
        by = arguments.get("filters.price", arguments.get("filters.price_one"))
        seen.add((made.transcriber.goal(task), type(by)))
    assert seen == {("all", int), ("some", bool), ("least", type(None))}


def test_a_goal_cannot_give_another_type(tmp_path):
    def change(made, tool):
        made["goals"][2]["constants"]["filters__price"] = "tag"

    message = (
        "$filters__price is of type 'tag'; give one of type 'city' or 'hour' or 'flag'"
    )
    assert f"goals[2].steps[0].arguments.{UNION}: {message}" in faults(tmp_path, change)


@pytest.mark.parametrize(
    ("kinds", "fault"),
    [
        ([], "empty list; add at least one entry"),
        ([7], "7 is not a string; write a string"),
        (["city", "city"], "['city', 'city'] has a type twice; remove one"),
        (["city", "town"], "unknown type 'town'; "),
    ],
)
def test_wrong_unions(tmp_path, kinds, fault):
    def change(made, tool):
        tool["x-openagent"]["arguments"][UNION] = kinds

    assert any(x.startswith(f"{AT}.{UNION}: {fault}") for x in faults(tmp_path, change))


def faults(tmp_path, change, limits=LIMITS):
    made = trips.document()
    change(made, made["tools"][0])
    return domain_file.faults(str(inns.save(tmp_path, made)), limits)


AT, SCHEMA = "tools[0].x-openagent.arguments", "tools[0].function.parameters"


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        (
            "filters.zip",
            f"{SCHEMA}: 'filters.zip': 'filters' has no property 'zip'; add it there",
        ),
        (
            "filters.city.0",
            f"{SCHEMA}: 'filters.city.0': 'filters.city' is not an array with `items`; "
            "add these, or write the path of a scalar",
        ),
        ("tags.3", f"{AT}: 'tags.3' without 'tags.2'; add that"),
        (
            "filters",
            f"{AT}: 'filters' is a scalar here and a container in 'filters.city'; "
            "keep one",
        ),
        (
            "a.b.c",
            f"{AT}: 'a.b.c' is nested 3 deep, but the limit is 2; leave it out or "
            "raise sandbox.depth to 3",
        ),
    ],
)
def test_paths_that_do_not_fit(tmp_path, path, fault):
    def change(made, tool):
        tool["x-openagent"]["arguments"][path] = "city"

    limits = Limits(num_args=9, num_constants=8, depth=2)
    assert fault in faults(tmp_path, change, limits)


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "array"}, "'tag' is an array without `items`, which say what it h"),
        ({"type": "array", "items": {}}, "'tag' is an array in the schema; write the"),
        ({"type": "object"}, "'tag' is an object in the schema; write the path of a "),
    ],
)
def test_a_leaf_is_a_scalar(tmp_path, schema, fault):
    def change(made, tool):
        tool["function"]["parameters"]["properties"]["tag"] = schema
        tool["x-openagent"]["arguments"]["tag"] = "city"

    limits = Limits(num_args=9, num_constants=8, depth=2)
    lines = faults(tmp_path, change, limits)
    assert [line for line in lines if line.startswith(f"{AT}: {fault}")]


def test_depth_is_a_limit(tmp_path):
    found = faults(tmp_path, lambda *_: None, Limits(num_args=8, num_constants=8))
    for path in trips.ARGUMENTS.keys() - {UNION}:
        message = f"{path!r} is nested 2 deep, but the limit is 1; leave it out or "
        assert f"{AT}: {message}raise sandbox.depth to 2" in found


def test_what_an_object_requires_needs_a_type(tmp_path):
    def change(made, tool):
        del tool["x-openagent"]["arguments"]["filters.city"]

    message = "'filters.city' is required, but x-openagent.arguments has no type for it"
    assert f"{SCHEMA}.required: {message}; add it there" in faults(tmp_path, change)


def test_leaves_that_go_together(tmp_path):
    def change(made, tool):
        step = made["goals"][2]["steps"][0]["arguments"]
        del step["stay.kind"]
        del made["goals"][2]["constants"]["stay_kind"]
        for texts in made["goals"][2]["phrases"].values():
            texts[0] = texts[0].replace(", {stay_kind}", "")

    message = "missing argument 'stay.kind', which goes with others; add it"
    assert f"goals[2].steps[0].arguments: {message}" in faults(tmp_path, change)


def test_a_file_without_faults(tmp_path):
    assert faults(tmp_path, lambda *_: None) == []
    spec = domain_file.load(str(inns.save(tmp_path, trips.document())), LIMITS)
    (tool,) = spec.tools
    assert [path for path, _ in tool.arguments] == [
        "filters.city", "filters.price", "stay.kind", "stay.nights", "stay.quiet",
        "tags.0", "tags.1", UNION,
    ]  # fmt: skip
    assert tool.also == {UNION: ("hour", "flag")}
    assert tool.optional == {
        "filters.price": None,
        "stay.kind": None,
        "stay.nights": None,
        "stay.quiet": False,
        "tags.1": None,
        UNION: None,
    }


def test_sampled_goals_give_parts_together(tmp_path):
    """Phrases name nested arguments by their paths; optional parts come as a whole."""
    made = trips.document()
    slots = "in {filters.city}[ up to {filters.price}], tagged {tags.0}[ and {tags.1}]"
    slots += (
        "[ in a {stay.kind} for {stay.nights}][ and {stay.quiet}][ by {filters~.price}]"
    )
    made["goals"] = []
    made["tools"][0]["x-openagent"]["requests"] = {
        "do": {pool: [f"trip {pool} {slots}"] for pool in trips.POOLS},
        "fields": {"inn": {pool: [f"the trip {pool} {slots}"] for pool in trips.POOLS}},
    }
    description = "what a trip does"
    made["tools"][0]["function"]["description"] = description
    spec = domain_file.load(str(inns.save(tmp_path, made)), LIMITS)
    goals = goal_sampling.sample_goals(spec, LIMITS, 64)
    given = [dict(goal.steps[0][1]) for goal in goals]
    (tool,), seen = spec.tools, set()
    assert len({frozenset(x) for x in given}) > 4
    for arguments, goal in zip(given, goals, strict=True):
        assert not set(nested_arguments.missing(arguments, tool.gates))
        assert {"filters.city", "tags.0"} <= arguments.keys()
        assert ("stay.kind" in arguments) == ("stay.nights" in arguments)
        kinds = dict(goal.constants)
        seen.add(kinds[arguments[UNION][1:]] if UNION in arguments else None)
        slots = {x.replace("~.", "_").replace(".", "_") for x in arguments}
        assert {x[1:].removesuffix("_2") for x in arguments.values()} == slots
        for source in arguments.values():
            assert f"{{{source[1:]}}}" in goal.phrases["train"][0]
    assert seen == {None, "city", "hour", "flag"}
