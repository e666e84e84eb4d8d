"""Results and conditions of domain files: what is read, and what is wrong with them."""

import pytest

from openagent_jax.domains import domain_file, domain_spec
from openagent_jax.domains.limits import Limits
from tests.domains import ferries

BLOCK = "tools[0].x-openagent"


def faults(document, limits=ferries.LIMITS):
    with pytest.raises(domain_spec.DomainError) as caught:
        domain_file.read(document, limits)
    return caught.value.faults


def test_lists_are_expanded():
    tool = ferries.spec().tools[0]
    assert [name for name, _ in tool.returns] == [
        "office.clerk",
        *(f"sailings.{n}.{x}" for n in range(3) for x in ("id", "fare")),
    ]
    assert dict(tool.derived)["count(sailings)"] == domain_spec.COUNT
    assert dict(tool.derived)["min(sailings.fare).id"] == "sailing"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"at_least": 4}, "returns.sailings: at_least 4, at_most 3; keep"),
        ({"at_most": 13}, "returns.sailings.list.id: 13 records need as many values"),
        ({"list": {"id": "ship"}}, "returns.sailings.list.id: unknown type 'ship'"),
        ({"at_least": 0}, "sailings may be empty, and then has no best record"),
        ({"at_least": 0}, "sailings.0.id: not every call returns it"),
        ({"at_least": "1"}, "returns.sailings.at_least: '1' is not a whole number"),
        ({"least": 1}, "returns.sailings.least: unknown key 'least'; did you"),
        ({"list": {}}, "returns.sailings.list: empty list"),
    ],
)
def test_faults_of_lists(change, fault):
    document = ferries.good()
    document["tools"][0]["x-openagent"]["returns"]["sailings"] |= change
    assert any(fault in x for x in faults(document)), faults(document)


def test_a_path_is_a_field_or_has_fields():
    document = ferries.good()
    document["tools"][0]["x-openagent"]["returns"]["office"] = "clerk"
    fault = f"{BLOCK}.returns.office: it has fields of its own, so it cannot be a "
    assert f"{fault}field itself; rename one" in faults(document)


@pytest.mark.parametrize(
    ("limits", "remedy"),
    [
        (dict(depth=1), "raise sandbox.depth to 3"),
        (dict(num_fields=2), "raise sandbox.num_fields to 7"),
        (dict(num_derived=0), "raise sandbox.num_derived to 4"),
    ],
)
def test_limits_are_named(limits, remedy):
    sizes = ferries.SIZES | limits
    assert any(remedy in x for x in faults(ferries.good(), Limits(**sizes)))


def goal(**when):
    steps = [
        {"tool": "sailing_details", "arguments": {"sailing": "$sailing"}},
        {"tool": "book_seat", "arguments": {"sailing": "$sailing"}, "when": when},
    ]
    return {
        "name": "own",
        "constants": {"sailing": "sailing", "limit": "fare"},
        "steps": steps,
        "answer": "done",
        "phrases": {x: [f"{x} {{sailing}} {{limit}}"] for x in ferries.POOLS},
    }


def test_conditions_are_read():
    document = ferries.good()
    document["goals"] = [goal(value="#0.fare", at_most="$limit")]
    (read,) = ferries.spec(document).goals
    assert read.conditions == {1: ("#0.fare", "at_most", "$limit")}


@pytest.mark.parametrize(
    ("when", "fault"),
    [
        (dict(value="#0.fares", at_most="$limit"), "value: unknown source '#0.fares'"),
        (dict(value="#0.fare", at_most="$sailing"), "$sailing is of type 'sailing'"),
        (dict(value="#0.status", at_least="$limit"), "is not a number; compare it w"),
        (dict(value="#0.fare"), "0 comparisons; write one of at_most, at_least"),
        (
            dict(value="#0.fare", at_most="$limit", at_least="$limit"),
            "2 comparisons; write one",
        ),
        (dict(value="#0.fare", below="$limit"), "unknown key 'below'"),
    ],
)
def test_faults_of_conditions(when, fault):
    document = ferries.good()
    document["goals"] = [goal(**when)]
    assert any(fault in x for x in faults(document)), faults(document)


def test_conditions_have_a_limit_and_are_for_effects():
    document, made = ferries.good(), goal(value="#0.fare", at_most="$limit")
    document["goals"] = [made]
    sizes = ferries.SIZES | {"conditions": False}
    fault = "goals[0].steps[1].when: conditions are off; set sandbox.conditions=True"
    assert fault in faults(document, Limits(**sizes))
    made["steps"][1]["tool"] = "list_delays"
    assert any(
        "has no effect, so it may be called anyway" in x for x in faults(document)
    )
    made["steps"][1]["tool"], made["answer"] = "book_seat", "#1.seat"
    assert any("answer: unknown source '#1.seat'" in x for x in faults(document))
