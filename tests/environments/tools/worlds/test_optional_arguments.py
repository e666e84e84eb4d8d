"""Arguments that a call may leave out: given when asked for, wrong when invented."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.domains import domain_file
from openagent_jax.environments import registry
from openagent_jax.environments.world import Settings, Spelling
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, scalars, style
from tests import helpers
from tests.domains import inns

ROOM = 480  # bytes of a reply
GIVEN, LEFT_OUT = 0, 1  # goals


def document():
    """The kind of a room is "single" by default, a limit of its price is none."""
    made = inns.good()
    made["types"]["price"] = {"kind": "number", "minimum": 1, "maximum": 900}
    tool = inns.tool(
        "find_inn", {"city": "city", "kind": "kind", "limit": "price"}, {"inn": "inn"}
    )
    parameters = tool["function"]["parameters"]
    parameters["required"] = ["city"]
    parameters["properties"]["kind"]["default"] = "single"
    made["tools"] = [tool]
    made["goals"] = []
    for name, more in (("given", ("kind", "limit")), ("left_out", ())):
        constants = {"city": "city"} | {x: "price" if x == "limit" else x for x in more}
        slots = ", ".join(f"{{{x}}}" for x in constants)
        made["goals"].append(
            {
                "name": name,
                "constants": constants,
                "steps": [
                    {
                        "tool": "find_inn",
                        "arguments": {x: f"${x}" for x in constants},
                    }
                ],
                "answer": "#0.inn",
                "phrases": {
                    pool: [f"{pool} {name} {slots}"]
                    for pool in ("train", "test", "rewrite_train", "rewrite_test")
                },
            }
        )
    return made


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    file = inns.save(tmp_path_factory.mktemp("optional"), document())
    settings = Settings(domain=str(file), transfer="poi", action_tokens=80)
    return registry.make(settings, Spelling(helpers.tokenizer()))


@pytest.fixture(scope="module")
def played(world):
    """Tasks, the first call of the expert with its text, and the outcome."""
    environment, tables = world.environment, world.tables

    @jax.jit
    @jax.vmap
    def play(key):
        task = environment.sample(tables, key, "train")
        state, first = environment.reset(tables, task), None
        for _ in range(2):
            action = environment.expert(tables, task, state)
            pieces = environment.utterance(tables, task, action)
            tokens, _, size = lexicons.write(tables.lexicon, pieces, 80)
            text, length = reply_scan.detokenize(tables.lexicon, tokens, size - 1)
            first = first or (action, text, length)
            read = environment.parse(tables, task, text, length)
            state, _ = environment.step(tables, task, state, read)
        return task, first, environment.outcome(tables, task, state)

    return jax.device_get(play(helpers.keys(num=64)))


def test_the_expert_gives_what_the_request_gives(world, played):
    tasks, (actions, texts, lengths), outcome = played
    assert outcome.success.all() and not outcome.num_errors.any()
    seen = set()
    for i in range(64):
        kind = int(tasks.goal.kind[i])
        said = json.loads(bytes(texts[i][: lengths[i]]))["arguments"]
        expected = {"city"} if kind == LEFT_OUT else {"city", "kind", "limit"}
        assert said.keys() == expected
        message = world.transcriber.message(
            helpers.row(tasks, i), helpers.row(actions, i)
        )
        (call,) = message["tool_calls"]
        assert call["function"]["arguments"].keys() == expected
        seen.add(kind)
    assert seen == {GIVEN, LEFT_OUT}


def call(world, played, kind, changes):
    """Return the status of the expert's call with changes, and whether it is a step."""
    tasks, (_, texts, lengths), _ = played
    environment, tables = world.environment, world.tables
    i = int(np.argmax(tasks.goal.kind == kind))
    said = json.loads(bytes(texts[i][: lengths[i]]))
    for key, value in changes.items():
        said["arguments"][key] = value
        if value is ...:
            del said["arguments"][key]
    text = json.dumps(said).encode()
    row = np.zeros(ROOM, np.uint8)
    row[: len(text)] = np.frombuffer(text, np.uint8)
    task = jax.device_put(helpers.row(tasks, i))

    @jax.jit
    def play(row, length):
        state = environment.reset(tables, task)
        action = environment.parse(tables, task, row, length)
        state, timestep = environment.step(tables, task, state, action)
        return timestep.observation.status, state.done[0]

    status, done = play(row, jnp.int32(len(text)))
    return int(status), bool(done)


@pytest.mark.parametrize(
    ("changes", "status", "is_step"),
    [
        ({"kind": "single"}, style.OK, True),  # the default
        ({"kind": None, "limit": None}, style.OK, True),
        ({"kind": "double"}, style.OK, False),  # invented
        ({"limit": 7}, style.OK, False),
        ({"kind": "triple"}, style.BAD_ARGUMENT, False),
        ({"limit": 901}, style.BAD_ARGUMENT, False),
        ({"limit": "single"}, style.BAD_ARGUMENT, False),
        ({"kinds": None}, style.BAD_ARGUMENT, False),  # no such argument
        ({"city": None}, style.BAD_ARGUMENT, False),
        ({"city": ...}, style.BAD_ARGUMENT, False),
    ],
)
def test_calls_of_a_request_that_leaves_them_out(
    world, played, changes, status, is_step
):
    assert call(world, played, LEFT_OUT, changes) == (status, is_step)


@pytest.mark.parametrize("key", ["kind", "limit"])
def test_what_the_request_gives_must_be_given(world, played, key):
    tasks, _, _ = played
    i = int(np.argmax(tasks.goal.kind == GIVEN))
    texts = lexicons.texts(world.tables.lexicon)
    is_default = texts[tasks.constants[i][1]] == "single" and key == "kind"
    status, is_step = call(world, played, GIVEN, {key: ...})
    assert (status, is_step) == (style.OK, is_default)


def test_a_default_outside_of_the_type_is_accepted_as_itself(tmp_path):
    made = document()
    parameters = made["tools"][0]["function"]["parameters"]["properties"]
    parameters["kind"]["default"] = "any"
    parameters["limit"]["default"] = 1000
    spec = domain_file.load(str(inns.save(tmp_path, made)))
    assert spec.tools[0].optional == {"kind": "any", "limit": 1000}
    settings = Settings(domain=str(inns.save(tmp_path, made)), transfer="poi")
    world = registry.make(settings, Spelling(helpers.tokenizer()))
    environment, tables = world.environment, world.tables
    kind, limit = tables.source.tasks.tools.arg_default[0, 0].tolist()[1:]
    assert lexicons.texts(tables.lexicon)[kind] == "any"
    assert limit == scalars.code(1000)

    @jax.jit
    def play(key, text, length):
        task = environment.sample(tables, key, "train")
        state = environment.reset(tables, task)
        action = environment.parse(tables, task, text, length)
        _, timestep = environment.step(tables, task, state, action)
        return timestep.observation.status

    for kind, price, status in (
        ("any", 1000, style.OK),
        ("any", 1001, style.BAD_ARGUMENT),
        ("some", 1000, style.BAD_ARGUMENT),
    ):
        arguments = {"city": "Ur", "kind": kind, "limit": price}
        text = json.dumps({"name": "find_inn", "arguments": arguments}).encode()
        row = np.frombuffer(text.ljust(ROOM), np.uint8)
        assert play(jax.random.key(0), row, jnp.int32(len(text))) == status


def test_a_required_argument_cannot_be_left_out_of_a_goal(tmp_path):
    made = document()
    del made["goals"][1]["steps"][0]["arguments"]["city"]
    faults = domain_file.faults(str(inns.save(tmp_path, made)))
    place = "goals[1].steps[0].arguments"
    assert f"{place}: missing argument 'city'; add it" in faults
