"""Numbers, booleans and null of a log, as agents see them and as they are exported."""

import dataclasses
import json

import pytest

from openagent_jax.environments.logs import json_kinds
from openagent_jax.suites.tasks import Suite
from tests.environments.logs.examples import (
    build,
    calls,
    mapped,
    result,
    says,
    tool,
    user,
)

KINDS = {
    "order": "string",
    "year": "integer",
    "weight": "number",
    "gift": "boolean",
    "rank": "integer",
}
TOOLS = [
    tool("find_order", "Find an order", **KINDS),
    tool("scale", "Set the scale", kilos="number"),
]
FOUND = {
    "price": 12.5,
    "stock": 1200,
    "few": 7,
    "fine": True,
    "none": None,
    "text": "12",
}


def order(i=0, **changes):
    given = {"order": f"A-{i}", "year": 2024, "weight": 2.5, "gift": True, "rank": 7}
    return [
        user(f"What is the price of A-{i} of 2024, 2.5 kg, true, 7?"),
        calls(("find_order", given | changes)),
        result(FOUND),
        says("It is 12.5"),
    ]


def test_kinds_of_arguments_fit_all_values():
    first, second = mapped(order(), TOOLS).documents
    assert [kind for _, kind in first.arguments] == [False] * 4 + [True]
    kinds = mapped(order(), TOOLS).kinds
    assert kinds == {
        "find_order": tuple(KINDS.values()),
        "scale": ("number",),  # it is not called
    }
    assert mapped(order(year="MMXX"), TOOLS).kinds["find_order"][1] == "string"
    assert mapped(order(year=2024.5), TOOLS).kinds["find_order"][1] == "string"
    assert mapped(order(weight=3), TOOLS).kinds["find_order"][2] == "number"
    assert mapped(order(), TOOLS).literals == {"price", "stock", "few", "fine", "none"}
    mixed = [*order()[:3], calls(("scale", {"kilos": 2.5})), result({"price": "12.5"})]
    assert "price" not in mapped([*mixed, says("ok")], TOOLS).literals


def test_kinds_do_not_move_tasks_to_another_split():
    """The split of a task is chosen by a hash of its `repr`."""
    task = mapped(order(), TOOLS)
    plain = dataclasses.replace(task, kinds={}, literals=frozenset())
    assert task != plain and repr(task) == repr(plain)


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    file = tmp_path_factory.mktemp("log") / "x.jsonl"
    rows = ({"messages": order(i), "tools": TOOLS} for i in range(8))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    room = {"prompt_tokens": 900, "result_tokens": 300, "context_tokens": 2000}
    world = build(file, num_args=6, num_fields=6, **room)
    names = ("argument_renaming", "tool_redirection", "domain_transfer")
    return Suite(world, names, 3, 2, 1.0, "train")


def types(document):
    properties = document["function"]["parameters"]["properties"]
    return [value["type"] for value in properties.values()]


def called(arguments):
    function = {"name": "find_order", "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"id": "1", "type": "function", "function": function}]}


@pytest.mark.slow
def test_agents_see_and_give_the_types_of_the_log(suite):
    clean, *_ = suite.episodes()
    ours, (plan, _) = clean.begin(), clean.facts["plan"]
    assert [types(document) for document in ours.tools] == [
        [*KINDS.values()], ["number"],
    ]  # fmt: skip
    given = dict(order=plan["arguments"]["order"], year=2024, weight=2.5, gift=True)
    assert plan["arguments"] == given | {"rank": 7}
    ours.hear(called(plan["arguments"]))
    assert json.loads(ours.results[0]) == FOUND and ours.outcome.num_errors == 0
    assert ours.actions == [plan]  # as it was written
    ours.hear({"content": "Answer: 12.5"})
    assert ours.outcome.success
    # Texts are read as before.
    again = clean.begin()
    again.hear(called({k: str(x) for k, x in given.items()} | {"gift": "true"}))
    assert again.outcome.num_errors == 1  # the rank is missing
    again.hear(called(plan["arguments"] | {"year": "2024", "weight": "2.5"}))
    assert again.outcome.num_errors == 1


@pytest.mark.slow
def test_types_of_perturbed_tasks(suite):
    for episode in suite.episodes():
        ours = episode.begin()
        if episode.scenario == "domain_transfer":  # not of this log
            assert set(sum(map(types, ours.tools), [])) <= {"string", "integer"}
        elif episode.facts["changed"]:
            assert sorted(map(types, ours.tools)) == sorted(
                [[*KINDS.values()], ["number"]]
            )
        if episode.scenario == "tool_redirection":
            plan = episode.facts["plan"]
            for action in plan[:-1]:
                function = {
                    "name": action["name"],
                    "arguments": json.dumps(action["arguments"]),
                }
                ours.hear({"tool_calls": [{"id": "1", "function": function}]})
            if ours.outcome.num_errors:
                assert types(ours.tools[-1]) == [*KINDS.values()]
                assert json.loads(ours.results[-1]) == FOUND


@pytest.mark.parametrize("text", ["007", "1.10", "NaN", "1e400", "[1]", '"x"', "x", ""])
def test_texts_that_are_no_literals(text):
    assert json_kinds.parsed(text) == text
