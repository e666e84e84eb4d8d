"""Numbers with decimals, and enums of booleans and numbers, from file to grade."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.domains import domain_file
from openagent_jax.domains.goals import goal_sampling
from openagent_jax.domains.limits import Limits
from openagent_jax.environments import registry
from openagent_jax.environments.world import Settings, Spelling
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, scalars, style
from tests import helpers
from tests.domains import inns

ROOM = 480  # bytes of a reply


def document():
    """An inn has a price; a room is booked for a price, with breakfast or without."""
    made = inns.good()
    made["types"] |= {
        "price": {"kind": "number", "minimum": -2.5, "maximum": 99.75, "decimals": 2},
        "breakfast": {"kind": "enum", "values": [True, False, None]},
        "stars": {"kind": "enum", "values": [1, 2.5, 12345]},
    }
    made["tools"] = [
        inns.tool("price_of", {"inn": "inn", "stars": "stars"}, {"price": "price"}),
        inns.tool(
            "pay",
            {"price": "price", "breakfast": "breakfast"},
            {"stars": "stars"},
            effect=True,
        ),
    ]
    phrases = {
        pool: [f"{pool}: {{inn}} with {{stars}} stars, {{breakfast}}"]
        for pool in ("train", "test", "rewrite_train", "rewrite_test")
    }
    made["goals"] = [
        {
            "name": "pay",
            "constants": {"inn": "inn", "stars": "stars", "breakfast": "breakfast"},
            "steps": [
                {
                    "tool": "price_of",
                    "arguments": {"inn": "$inn", "stars": "$stars"},
                },
                {
                    "tool": "pay",
                    "arguments": {"price": "#0.price", "breakfast": "$breakfast"},
                },
            ],
            "answer": "#0.price",
            "phrases": phrases,
        }
    ]
    return made


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    file = inns.save(tmp_path_factory.mktemp("typed"), document())
    settings = Settings(domain=str(file), transfer="poi", action_tokens=80)
    return registry.make(settings, Spelling(helpers.tokenizer()))


@pytest.fixture(scope="module")
def played(world):
    """Tasks, and for each the expert's replies in turn as bytes and as messages."""
    environment, tables = world.environment, world.tables

    @jax.jit
    @jax.vmap
    def play(key):
        task = environment.sample(tables, key, "train")
        state, turns = environment.reset(tables, task), []
        for _ in range(3):
            action = environment.expert(tables, task, state)
            pieces = environment.utterance(tables, task, action)
            tokens, _, size = lexicons.write(tables.lexicon, pieces, 80)
            text, length = reply_scan.detokenize(tables.lexicon, tokens, size - 1)
            read = environment.parse(tables, task, text, length)
            state, timestep = environment.step(tables, task, state, read)
            shown = environment.observe(tables, task, timestep.observation)
            turns.append((action, read, text, length, shown))
        return task, turns, environment.outcome(tables, task, state)

    return jax.device_get(play(helpers.keys(num=64)))


def test_the_expert_solves_all_tasks_through_text(played):
    _, turns, outcome = played
    assert outcome.success.all() and not outcome.num_errors.any()
    for action, read, *_ in turns:
        assert (action.call.args == read.call.args).all()


def test_messages_have_json_types(world, played):
    """The compact style writes strings only; what they spell is what messages have."""
    tasks, turns, _ = played
    prices, seen = [], set()
    texts = lexicons.texts(world.tables.lexicon)
    for i in range(64):
        task = helpers.row(tasks, i)
        typed = []
        for action, _, text, length, _ in turns[:2]:
            message = world.transcriber.message(task, helpers.row(action, i))
            (call,) = message["tool_calls"]
            arguments = call["function"]["arguments"]
            said = json.loads(bytes(text[i][: length[i]]))["arguments"]
            for key, value in arguments.items():
                spelled = value if isinstance(value, str) else json.dumps(value)
                assert spelled == said[key]
            typed.append(arguments)
        first, second = typed
        assert first["inn"] == texts[task.constants[0]]
        seen |= {repr(first["stars"]), repr(second["breakfast"])}
        prices.append(second["price"])
        spelled = scalars.spelled(scalars.shortest(second["price"]))
        answer = bytes(turns[2][2][i][: turns[2][3][i]]).decode()
        assert answer == style.ANSWER + spelled
        shown = "".join(texts[s] for s in turns[0][4][i])
        assert f'"price":"{spelled}"' in shown
    assert seen == {"1", "2.5", "12345", "True", "False", "None"}
    assert min(prices) >= -2.5 and max(prices) <= 99.75
    assert all(round(price, 2) == price for price in prices)
    assert len(set(prices)) > 50


@pytest.mark.parametrize(
    ("price", "stars", "right"),
    [
        ("{price}", "{stars}", True),
        ('"{price}"', '"{stars}"', True),
        ("{price}e+00", "{stars}", True),
        ("{price}e0", "{stars}E-0", True),
        ("{price}", "{stars}.0.0", False),
        ("999", "{stars}", False),
        ("1.005", "{stars}", False),
        ("true", "{stars}", False),
        ("{price}", "null", False),
        ("{price}", "3", False),
    ],
)
def test_values_are_compared_as_values(world, played, price, stars, right):
    """The two calls of the goal, with values written in other ways."""
    environment, tables = world.environment, world.tables
    tasks, turns, _ = played
    task = helpers.row(tasks, 0)
    first, second = (
        json.loads(bytes(text[0][: length[0]])) for _, _, text, length, _ in turns[:2]
    )
    spelled = {**second["arguments"], **first["arguments"]}
    for call, key, text in ((first, "stars", stars), (second, "price", price)):
        call["arguments"][key] = "HERE"
        said = json.dumps(call).replace('"HERE"', text.format(**spelled))
        row = np.zeros(ROOM, np.uint8)
        row[: len(said)] = np.frombuffer(said.encode(), np.uint8)
        action = jax.jit(environment.parse)(tables, task, row, jnp.int32(len(said)))
        turn = turns[0] if call is first else turns[1]
        wanted = helpers.row(turn[0], 0)
        same = bool((action.call.args == wanted.call.args).all())
        if right:
            assert same, said
        elif text not in ("{price}", "{stars}"):
            assert not same, said
            is_malformed = action.kind == reply_scan.MALFORMED
            try:
                json.loads(said)
                assert not is_malformed
            except ValueError:
                assert is_malformed


def test_a_unit_follows_the_number_in_requests():
    """Only constants have it: a result is referred to, and an argument is a number."""
    found = set()
    for name in ("farming", "geology"):
        spec = domain_file.load(name)
        units = {kind.name: kind.unit for kind in spec.types}
        for goal in goal_sampling.sample_goals(spec, Limits(), 40):
            for slot, kind in goal.constants:
                for phrase in itertools.chain(*goal.phrases.values()):
                    after = phrase.partition(f"{{{slot}}}")[2]
                    assert not units[kind] or after.startswith(f" {units[kind]}")
                    found.add(units[kind])
    assert found == {"", "kg", "kg/ha", "m", "deg"}
