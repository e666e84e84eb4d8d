"""What a rehearsal finds in a domain that has all kinds of problems; two columns."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from openagent_jax import expert
from openagent_jax.curriculum import draw
from openagent_jax.domains import domain_file
from openagent_jax.environments import registry
from openagent_jax.environments.tools import make
from openagent_jax.environments.world import SPLITS, Settings, Spelling
from openagent_jax.evaluation import transcript
from openagent_jax.expert import Lengths
from openagent_jax.suites import rehearsal
from tests import helpers

NUM_GATES = 11  # deeper than the oracle searches
SETTINGS = Settings(
    num_tools=NUM_GATES + 1,
    num_visible=NUM_GATES + 1,
    max_turns=1,
    prompt_tokens=320,
    action_tokens=60,
    result_tokens=36,
    context_tokens=608,
)
SIZES, LIMITS = SETTINGS.sizes, make.limits_of(SETTINGS)


def words(name):
    return {split: [f"{split} {name} one", f"{split} {name} two"] for split in SPLITS}


def tool(name, arguments, **meaning):
    parameters = {key: {"type": "string"} for key in arguments}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"what {name} is for",
            "parameters": {
                "type": "object",
                "properties": parameters,
                "required": list(parameters),
            },
        },
        "x-openagent": {
            "arguments": arguments,
            "returns": {"hour": "hour"},
            **meaning,
            "names": {split: [f"{split}_{name}"] for split in SPLITS},
            "descriptions": words(name),
            "argument_names": {
                key: {split: [f"{split}_{key}"] for split in SPLITS}
                for key in arguments
            },
        },
    }


def goal(name, *steps, **constants):
    slots = " ".join(f"{{{slot}}}" for slot in constants)
    pools = ("train", "test", "rewrite_train", "rewrite_test")
    begins = {"train": "a longer request to train on:"}
    return {
        "name": name,
        "constants": constants,
        "steps": [
            {"tool": step, "arguments": {key: f"${key}" for key in constants}}
            for step in steps
        ],
        "answer": f"#{len(steps) - 1}.hour",
        "phrases": {
            pool: [f"{begins.get(pool, pool)} {name} {slots}".strip()] for pool in pools
        },
    }


DOMAIN = {
    "name": "gates",
    "description": "gates behind gates",
    "types": {
        "color": {"kind": "enum", "values": ["red", "green"]},
        "hour": {"kind": "number", "minimum": 0, "maximum": 999},
    },
    "tools": [
        tool("gate_0", {}),
        *(
            tool(f"gate_{i}", {}, call_after=f"gate_{i - 1}")
            for i in range(1, NUM_GATES)
        ),
        tool("paint", {"color": "color"}),
    ],
    "goals": [
        goal("painted", "paint", color="color"),
        goal("through", f"gate_{NUM_GATES - 1}"),
    ],
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("domain") / "gates.json"
    file.write_text(json.dumps(DOMAIN))
    return file


@pytest.fixture(scope="module")
def world(file):
    settings = dataclasses.replace(SETTINGS, domain=str(file), transfer=str(file))
    return registry.make(settings, Spelling(helpers.tokenizer()))


@pytest.fixture(scope="module")
def both(world):
    """The measurements by split and scenario."""
    scenarios = {"test": rehearsal.SCENARIOS, "train": (draw.CLEAN,)}
    return rehearsal.rehearse(world, 0, scenarios)


@pytest.fixture(scope="module")
def rehearsed(file, both):
    return domain_file.load(file, LIMITS), both["test"]


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_tasks_are_those_of_their_split(world, both, split):
    keys = draw.task_keys(jax.random.key(0), 0, rehearsal.NUM_DRAWN)

    @jax.jit
    def find(tables, keys):
        def one(key):
            task = world.environment.sample(tables, key, split)
            pieces = world.environment.prompt(tables, task)
            return task.goal.kind, expert.num_tokens(tables, pieces)

        return jax.vmap(one)(keys)

    kinds, lengths = jax.device_get(find(world.tables, keys))
    seen = both[split][draw.CLEAN]
    for kind in range(2):
        first = np.flatnonzero(kinds == kind)[:128]  # each goal has as many tasks
        found = seen.lengths.prompt[seen.goal == kind]
        assert sorted(found) == sorted(lengths[first])


@pytest.mark.slow
def test_every_goal_is_rehearsed(rehearsed):
    _, seen = rehearsed
    assert list(seen) == ["clean", *helpers.CATALOGUE]
    for one in seen.values():
        assert len(one.goal) == rehearsal.NUM_TASKS
    assert np.bincount(seen["clean"].goal).tolist() == [128, 128]


@pytest.mark.slow
def test_troubles(rehearsed):
    spec, seen = rehearsed
    told = list(rehearsal.troubles(spec, seen, SIZES, LIMITS, num_visible=12))
    full = "sandbox.num_tools=12 has no row for another tool; raise it"
    assert told == [
        "goals[1] (through): the oracle cannot solve it; look at what its tools need",
        "goals[0] (painted): the oracle does not solve it in sandbox.max_turns=1 "
        "turns; raise them",
        "distractor_tools changes nothing here: all 12 tools are shown already "
        "(sandbox.num_visible=12)",
        f"tool_redirection changes nothing here: {full}",
        f"tool_deprecation changes nothing here: {full}",
        "tool_addition changes nothing here: sandbox.num_tools=12 has no rows for two "
        "more tools; raise it",
        f"schema_drift changes nothing here: {full}",
        f"verification_code_change changes nothing here: {full}",
        "stale_value changes nothing here: no goal uses a value that a call without an "
        "effect has found, and that can be another",
        f"dependency_extension changes nothing here: {full}",
        f"rule_shift changes nothing here: {full}",
        "logic_inversion changes nothing here: no tool needs the code of another "
        "(code_from), and no goal has two steps that do not feed each other",
        f"conflicting_sources changes nothing here: {full}",
        "cross_domain_composition changes nothing here: no task of sandbox.transfer "
        "fits beside one of these; they have too many tools, steps or values together, "
        "or tools of one name",
        "entity_shift changes nothing here: no type is an entity",
        "knowledge_update changes nothing here: no goal without changes of records "
        "passes one text of a list of four or more to a tool",
        f"fatal_error changes nothing here: {full}",
        f"error_with_alternative changes nothing here: {full}",
        f"contradiction changes nothing here: {full}",
        f"spare_contradiction changes nothing here: {full}",
    ]


def test_sampled_goals_are_named_by_their_calls(tmp_path):
    """Three with the same problem are named, and the others are counted."""
    file = tmp_path / "gates.json"
    file.write_text(json.dumps(DOMAIN))
    spec = domain_file.load(file, LIMITS)
    sampled = [dataclasses.replace(spec.goals[0], name=f"s{i}") for i in range(6)]
    num = len(spec.goals) + len(sampled)
    fine, lengths = np.ones(num, bool), Lengths(*[np.ones(num, int)] * 4)
    solvable = fine & (np.arange(num) < 3)  # the last five cannot be solved
    one = rehearsal.Rehearsed(np.arange(num), fine, solvable, solvable, lengths)
    seen = dict.fromkeys(rehearsal.SCENARIOS, one)
    told = list(rehearsal.troubles(spec, seen, SIZES, LIMITS, 12, sampled))
    problem = "the oracle cannot solve it; look at what its tools need"
    assert told[:4] == [
        *[f"a sampled goal (paint): {problem}"] * 3,
        "2 more sampled goals: the oracle cannot solve them; look at what its tools "
        "need",
    ]
    assert not any("goals[" in line for line in told)


def test_trained_scenarios():
    assert "runtime_error" in rehearsal.TRAINED and rehearsal.TRAINED[0] == "clean"
    assert "rule_shift" in rehearsal.TRAINED
    assert not {"entity_shift", "domain_transfer"} & {*rehearsal.TRAINED}


def test_goals_in_turn():
    goals = np.array([0, 0, 0, 1, 2, 1])
    assert rehearsal._evenly(goals).tolist() == [0, 3, 4, 1, 5, 2]


def test_rooms():
    def lengths(prompt, action, result, episode):
        no, yes = np.zeros(2, bool), np.ones(2, bool)
        sizes = (np.array([1, x]) for x in (prompt, action, result, episode))
        return rehearsal.Rehearsed(np.arange(2), no, yes, yes, Lengths(*sizes))

    seen = {"clean": lengths(320, 60, 36, 400)}
    trained = {"clean": lengths(320, 60, 36, 288)}
    assert list(rehearsal.rooms(seen, trained, SIZES, 288)) == []
    trained["runtime_error"] = lengths(321, 61, 37, 289)
    seen["runtime_error"] = lengths(322, 1, 1, 607)
    seen["rule_shift"] = lengths(396, 1, 1, 609)
    assert list(rehearsal.rooms(seen, trained, SIZES, 288)) == [
        ("sandbox.prompt_tokens", 320, 396, "rule_shift"),
        ("sandbox.action_tokens", 60, 61, "runtime_error"),
        ("sandbox.result_tokens", 36, 37, "runtime_error"),
        ("sandbox.context_tokens", 608, 609, "rule_shift"),
        ("algorithm.num_tokens", 288, 289, "runtime_error"),
    ]


def test_two_columns():
    left = ["offers a", "offers b", "user   find it", "agent  a()", "gone"]
    right = ["offers x", "offers b", "user   find it", "agent  x()", "more", "again"]
    rows = list(transcript.side_by_side(left, right, 33))
    assert [row for _, row in rows] == [
        "offers a        | offers x",
        "offers b          offers b",
        "user   find it    user   find it",
        "agent  a()      | agent  x()",
        "gone            | more",
        "                > again",
    ]
    assert [mark for mark, _ in rows] == ["|", " ", " ", "|", "|", ">"]


def test_long_lines_are_wrapped_in_their_column():
    rows = list(transcript.side_by_side(["user   one two three four"], [], 37))
    assert [row for _, row in rows] == [
        "user   one two    <",
        "       three four <",
    ]
