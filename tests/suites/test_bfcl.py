"""BFCL's tasks: the requests, their perturbations and their scores."""

import copy
import dataclasses
import functools
import json

import numpy as np
import pytest

from openagent_jax.curriculum import draw
from openagent_jax.suites import bfcl
from tests.suites import test_call_check as checks

pytestmark = checks.present
NUM = 60  # tasks of each category


@functools.cache
def suite(category, num=NUM):
    items = bfcl.load(category)
    return bfcl.Suite(category, items[:num], bfcl.SCENARIOS, 3, 1.0)


@functools.cache
def episodes(category):
    found = {}
    for episode in suite(category).episodes():
        found.setdefault(episode.scenario, []).append(episode)
    return found


def names(question):
    return [tool["function"]["name"] for tool in question.tools]


def reply(*calls):
    """A reply of `(name, arguments)`."""
    made = [
        {"id": "1", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for name, arguments in calls
    ]
    return {"content": "So.", "tool_calls": made}


def outcome(episode, *calls):
    question = episode.begin()
    question.receive(reply(*calls))
    assert question.finished and question.outcome.refused == (not calls)
    assert question.outcome.num_calls == len(calls)
    assert bool(question.outcome.solvable) == (not episode.facts["unsolvable"])
    return question.outcome.success


def gold(episode, category, rng):
    """The right call in the words of the documents, as the agent sees them."""
    item = suite(category).items[episode.index]
    made = checks.call([{"f": item.accepted}], rng)["f"]
    question = episode.begin()
    *_, task = episode.begin.args
    tools = task.tools
    shown = [n for n in np.argsort(tools.place, kind="stable") if tools.visible[n]]
    function = question.tools[shown.index(item.wanted)]["function"]
    known = item.functions[item.wanted]["parameters"]["properties"]
    spelled = dict(zip(known, function["parameters"]["properties"], strict=True))
    return function["name"], {spelled[key]: value for key, value in made.items()}


def test_files():
    """As many as BFCL v4 has."""
    sizes = [len(bfcl.load(category)) for category in bfcl.CATEGORIES]
    assert sizes == [400, 200, 240]
    with pytest.raises(ValueError, match='no category "parallel"; known: simple_py'):
        bfcl.load("parallel")


@pytest.mark.parametrize("answers", [None, "{", '{"id": 1}'])
def test_broken_answers_are_named(tmp_path, monkeypatch, answers):
    monkeypatch.setattr(bfcl.packages, "data", lambda module, package: tmp_path)
    (tmp_path / "BFCL_v4_multiple.json").write_text("")
    if answers:
        (tmp_path / "possible_answer").mkdir()
        (tmp_path / "possible_answer/BFCL_v4_multiple.json").write_text(answers)
    with pytest.raises(ValueError, match="BFCL_v4_multiple.json"):
        bfcl.load("multiple")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(bfcl, "MODULE", "no_such_package")
    with pytest.raises(ValueError, match="pip install --no-deps bfcl-eval"):
        bfcl.load("multiple")


@pytest.mark.parametrize("category", ["simple_python", "multiple"])
def test_clean_scores_match_the_package(category):
    """Right calls, damaged ones, several, none, and calls of other functions."""
    rng, verdicts = np.random.default_rng(0), {True: 0, False: 0}
    whole = suite(category, 400)
    whole = dataclasses.replace(whole, scenarios=())
    check = checks.theirs(dots=False)
    for episode, (functions, accepted) in zip(
        whole.episodes(), checks.tasks(category), strict=True
    ):
        for i in range(8):
            made = checks.call(accepted, rng)
            name = next(iter(made))
            for _ in range(min(i, 2)):
                made[name] = checks.mutated(made[name], rng)
            if i == 7:
                name = functions[rng.integers(len(functions))]["name"]
                made = {name: next(iter(made.values()))}
            calls = [made] * [1, 1, 1, 1, 1, 2, 0, 1][i]
            # The package compares names without dots, as endpoints require.
            spelled = [
                {key.replace(".", "_"): value for key, value in call.items()}
                for call in calls
            ]
            want = check(functions, copy.deepcopy(spelled), accepted, category)
            want = want is True
            got = outcome(episode, *(pair for call in spelled for pair in call.items()))
            assert got == want, (calls, accepted)
            verdicts[want] += 1
    assert min(verdicts.values()) > 300, verdicts


@pytest.mark.parametrize("scenario", [draw.CLEAN, *bfcl.SCENARIOS])
@pytest.mark.parametrize("category", ["simple_python", "multiple"])
def test_the_gold_call_succeeds_in_every_scenario(category, scenario):
    rng = np.random.default_rng(1)
    for episode in episodes(category)[scenario]:
        assert not outcome(episode, ("nothing", {}))
        if scenario == "tool_withheld":
            assert outcome(episode) and episode.facts["unsolvable"]
            continue
        assert not episode.facts["unsolvable"]
        assert episode.begin().outcome.fewest_calls == 1
        assert not outcome(episode)
        name, arguments = gold(episode, category, rng)
        assert outcome(episode, (name, arguments))
        (planned,) = episode.facts["plan"]
        assert outcome(episode, (planned["name"], planned["arguments"]))
        assert not outcome(episode, (name, arguments), (name, arguments))


@pytest.mark.parametrize("category", bfcl.CATEGORIES)
def test_each_scenario_changes_its_part_only(category):
    """Functions that a scenario does not rename keep their names."""
    clean = [e.begin() for e in episodes(category)[draw.CLEAN]]
    for scenario, found in episodes(category).items():
        for episode, first in zip(found, clean, strict=True):
            question = episode.begin()
            assert question.messages == first.messages
            same = question.tools == first.tools
            assert episode.facts["changed"] == (not same or scenario == draw.CLEAN)
            assert len({*names(question)}) == len(question.tools) > 0
            if scenario in ("identity_erasure", "semantic_renaming"):
                assert not {*names(question)} & {*names(first)}
            if scenario == "tool_order":
                assert sorted(names(question)) == sorted(names(first))
            if scenario == "distractor_tools":
                assert len(question.tools) == len(first.tools) + 3
            if scenario == "tool_withheld":  # another one takes its place
                assert len(question.tools) == len(first.tools)
                gone = {*names(first)} - {*names(question)}
                assert len(gone) == (category != "irrelevance")
    changed = {
        scenario: sum(e.facts["changed"] for e in found)
        for scenario, found in episodes(category).items()
    }
    alone = category != "multiple"  # one function: none to confuse it with
    for scenario in ("semantic_trap", "tool_order"):
        assert (changed[scenario] == 0) == alone
    assert (changed["tool_withheld"] == 0) == (category == "irrelevance")
    for scenario in {*bfcl.SCENARIOS} - {"semantic_trap", "tool_order"}:
        assert alone or changed[scenario] == NUM


def test_irrelevance_expects_no_call():
    for found in episodes("irrelevance").values():
        for episode in found:
            assert episode.facts["unsolvable"] and not episode.facts["plan"]
            assert outcome(episode)
            assert not outcome(episode, (names(episode.begin())[0], {}))


def test_malformed_arguments_are_not_a_call():
    episode = episodes("irrelevance")[draw.CLEAN][0]
    question = episode.begin()
    function = {"name": names(question)[0], "arguments": "{"}
    question.receive({"content": None, "tool_calls": [{"function": function}]})
    outcome = question.outcome
    assert outcome.success and outcome.refused and outcome.num_calls == 0


def test_documents():
    """OpenAI's types, names without dots, and nothing else is changed."""
    kinds = set()

    def collect(schema):
        if isinstance(schema, dict):
            if isinstance(schema.get("type"), str):
                kinds.add(schema["type"])
            for value in schema.values():
                collect(value)

    for episode in episodes("simple_python")[draw.CLEAN]:
        (tool,) = episode.begin().tools
        (function,) = suite("simple_python").items[episode.index].functions
        assert tool["type"] == "function"
        assert tool["function"]["name"] == function["name"].replace(".", "_")
        assert tool["function"]["description"] == function["description"]
        ours, theirs = tool["function"]["parameters"], function["parameters"]
        assert ours["required"] == theirs["required"]
        for key, value in theirs["properties"].items():
            assert ours["properties"][key]["description"] == value["description"]
        collect(ours)
    assert kinds <= {"object", "number", "array", "string", "integer", "boolean"}
    digest = suite("simple_python").digest()
    assert (
        digest
        == bfcl.Suite(
            "simple_python", suite("simple_python").items, (), 3, 0.5
        ).digest()
        != suite("multiple").digest()
    )
