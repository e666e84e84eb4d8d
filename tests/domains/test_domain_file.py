"""Domain files: what a valid one is read as, and all semantic faults."""

import contextlib
import copy
import dataclasses
import functools
import json
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from openagent_jax.domains import domain_file, domain_spec
from openagent_jax.domains.limits import Limits
from tests.domains.inns import (
    REMOVE,
    check_fault,
    good,
    load,
    save,
    tool,
    write,
)


def test_good_file_loads(tmp_path):
    domain = load(tmp_path, good())
    city, inn, kind, hour = domain.types
    assert inn.train == ("Old Oak", "Old Elm", "New Oak", "New Elm")
    assert (city.shift, inn.shift) == (("Ys",), ("Au Coq",))
    assert kind.train == kind.test == kind.shift == ("single", "double")
    assert (hour.minimum, hour.maximum) == (0, 23)
    book = domain.tools[3]
    assert (book.arguments, book.returns) == ((("inn", "inn"),), (("hour", "hour"),))
    assert (book.code_from, book.call_after, book.effect) == ("hold_room", None, True)
    assert book.argument_names["inn"] == {"train": ("inn_one",), "test": ("inn_two",)}
    assert domain.goals[0].steps[1] == ("hold_room", {"inn": "#0.inn"})
    assert domain_spec.extra_calls(domain, domain.goals[0]) == ("sign_in",)


def test_optional_keys_and_byte_order_mark(tmp_path):
    document = good()
    function = document["tools"][0]["function"]
    function["strict"] = function["parameters"]["additionalProperties"] = False
    assert load(tmp_path, "\ufeff" + json.dumps(document)).name == "inns"


SIGN = {"tool": "sign_in", "arguments": {}}
# name: (where to write, what to write, fault)
BAD = {
    "duplicate tool": (
        ("tools", 1, "function", "name"),
        "sign_in",
        "tools[1].function.name: 'sign_in' is already used in "
        "tools[0].function.name; write something else",
    ),
    "synonym of another tool": (
        ("tools", 1, "x-openagent", "names", "test"),
        ["sign_in_one"],
        "tools[1].x-openagent.names.test: 'sign_in_one' is already used in "
        "tools[0].x-openagent.names.train; write something else",
    ),
    "train and test descriptions overlap": (
        ("tools", 1, "x-openagent", "descriptions", "test"),
        ["train words of find_inn"],
        "tools[1].x-openagent.descriptions.test: 'train words of find_inn' is "
        "already used in tools[1].x-openagent.descriptions.train; write something "
        "else",
    ),
    "description like a synonym of another tool": (
        ("tools", 1, "function", "description"),
        "train words of sign_in",
        "tools[1].function.description: 'train words of sign_in' is already used in "
        "tools[0].x-openagent.descriptions.train; write something else",
    ),
    "argument without synonyms": (
        ("tools", 1, "x-openagent", "argument_names"),
        {},
        "tools[1].x-openagent.argument_names: missing argument 'city'; add it",
    ),
    "argument named code": (
        ("tools", 1),
        tool("find_inn", {"code": "city"}, {"inn": "inn"}),
        "tools[1].x-openagent.arguments: 'code' is already used as the name of every "
        "code; write something else",
    ),
    "argument synonym": (
        ("tools", 1, "x-openagent", "argument_names", "city", "test"),
        ["city"],
        "tools[1].x-openagent.argument_names.city.test: 'city' is already used in "
        "tools[1].x-openagent.arguments; write something else",
    ),
    "missing type": (
        ("tools", 3, "x-openagent", "returns", "hour"),
        "hours",
        "tools[3].x-openagent.returns.hour: unknown type 'hours'; did you mean 'hour'?",
    ),
    "missing type of a constant": (
        ("goals", 0, "constants", "city"),
        "zzz",
        "goals[0].constants.city: unknown type 'zzz'; known: city, inn, kind, hour",
    ),
    "returns nothing": (
        ("tools", 3, "x-openagent", "returns"),
        {},
        "tools[3].x-openagent.returns: nothing to return; add a field",
    ),
    "returns named code": (
        ("tools", 3, "x-openagent", "returns"),
        {"code": "hour", "hour": "hour"},
        "tools[3].x-openagent.returns: 'code' is already used as the name of every "
        "code; write something else",
    ),
    "properties differ": (
        ("tools", 1, "function", "parameters", "properties"),
        {"town": {"type": "string"}},
        "tools[1].function.parameters.properties: missing argument 'city'; add it",
    ),
    "required argument that is none": (
        ("tools", 1, "function", "parameters", "required"),
        ["city", "town"],
        "tools[1].function.parameters.required: unknown argument 'town'; known: city",
    ),
    "required argument without a meaning": (
        ("tools", 0, "function", "parameters"),
        {"properties": {"pin": {"type": "string"}}, "required": ["pin"]},
        "tools[0].function.parameters.required: 'pin' is required, but "
        "x-openagent.arguments has no type for it; add it there",
    ),
    "argument synonym like an argument without a meaning": (
        ("tools", 1, "function", "parameters", "properties"),
        {"city": {"type": "string"}, "city_one": {"type": "string"}},
        "tools[1].x-openagent.argument_names.city.train: 'city_one' is already used "
        "in tools[1].function; write something else",
    ),
    "schema too deep": (
        ("tools", 1, "function", "parameters", "properties", "city"),
        functools.reduce(lambda inner, _: {"items": inner}, range(40), {}),
        "tools[1].function: nested more than 32 levels deep; write it flatter",
    ),
    "unknown prerequisite": (
        ("tools", 3, "x-openagent", "code_from"),
        "hold_rom",
        "tools[3].x-openagent.code_from: unknown tool 'hold_rom'; did you mean "
        "'hold_room'?",
    ),
    "cycle": (
        ("tools", 0, "x-openagent", "call_after"),
        "book_room",
        "tools[0].x-openagent: cycle sign_in -> book_room -> hold_room -> sign_in; "
        "remove one code_from or call_after",
    ),
    "needs itself": (
        ("tools", 1, "x-openagent", "call_after"),
        "find_inn",
        "tools[1].x-openagent: cycle find_inn -> find_inn; remove one code_from or "
        "call_after",
    ),
    "prerequisite is no step": (
        ("goals", 0, "steps", 1),
        SIGN,
        "goals[0].steps[2]: 'book_room' needs 'hold_room', which takes arguments; "
        "make it a step",
    ),
    "prerequisite comes later": (
        ("goals", 0, "steps"),
        [good()["goals"][0]["steps"][i] for i in (0, 2, 1)],
        "goals[0].steps[1]: 'book_room' needs 'hold_room', a later step; move it",
    ),
    "useless step": (
        ("goals", 0, "steps", 3),
        {"tool": "find_inn", "arguments": {"city": "$city"}},
        "goals[0].steps[3]: nothing uses 'find_inn'; use its result or remove it",
    ),
    "unknown tool": (
        ("goals", 0, "steps", 0, "tool"),
        "find_in",
        "goals[0].steps[0].tool: unknown tool 'find_in'; did you mean 'find_inn'?",
    ),
    "later step": (
        ("goals", 0, "steps", 1, "arguments", "inn"),
        "#2.hour",
        "goals[0].steps[1].arguments.inn: unknown source '#2.hour'; known: $city, "
        "#0.inn",
    ),
    "unknown field": (
        ("goals", 0, "steps", 1, "arguments", "inn"),
        "#0.inns",
        "goals[0].steps[1].arguments.inn: unknown source '#0.inns'; did you mean "
        "'#0.inn'?",
    ),
    "unknown answer": (
        ("goals", 0, "answer"),
        "#2.hours",
        "goals[0].answer: unknown source '#2.hours'; did you mean '#2.hour'?",
    ),
    "answer is a constant": (
        ("goals", 0, "answer"),
        "$city",
        "goals[0].answer: unknown source '$city'; known: done, #0.inn, #1.hour, "
        "#2.hour",
    ),
    "source of another type": (
        ("goals", 0, "steps", 1, "arguments", "inn"),
        "$city",
        "goals[0].steps[1].arguments.inn: $city is of type 'city'; give one of type "
        "'inn'",
    ),
    "missing argument": (
        ("goals", 0, "steps", 1, "arguments"),
        {},
        "goals[0].steps[1].arguments: missing argument 'inn'; add it",
    ),
    "unused constant": (
        ("goals", 0, "constants", "hour"),
        "hour",
        "goals[0].constants.hour: used by no step; use it or remove it",
    ),
    "duplicate goal": (
        ("goals", 1),
        good()["goals"][0],
        "goals[1].name: 'book' is already used in goals[0].name; write something else",
    ),
    "unknown slot": (
        ("goals", 0, "phrases", "test", 0),
        "room in {town}",
        "goals[0].phrases.test[0].{town}: unknown slot '{town}'; known: {city}",
    ),
    "open brace": (
        ("goals", 0, "phrases", "test", 0),
        "room in {city",
        "goals[0].phrases.test[0].{city: unknown slot '{city'; did you mean '{city}'?",
    ),
    "missing slot": (
        ("goals", 0, "phrases", "rewrite_test", 0),
        "room somewhere",
        "goals[0].phrases.rewrite_test[0]: missing slot '{city}'; add it",
    ),
    "phrase of too many pieces": (
        ("goals", 0, "phrases", "test", 0),
        " and ".join(["{city}"] * 13),
        "goals[0].phrases.test[0]: 25 slots and texts between them; write at most 24",
    ),
    "phrases overlap": (
        ("goals", 0, "phrases", "rewrite_test"),
        ["train room in {city}"],
        "goals[0].phrases.rewrite_test: 'train room in {city}' is already used in "
        "goals[0].phrases.train; write something else",
    ),
    "splits overlap": (
        ("types", "city", "shift"),
        ["Uz"],
        "types.city.shift: 'Uz' is already used in types.city.test; write something "
        "else",
    ),
    "splits overlap in the first word": (
        ("types", "inn", "test", "compose"),
        [["Old"], ["Ash"]],
        "types.inn.test: 'Old' is already used in types.inn.train; write something "
        "else",
    ),
    "composed like a value of another split": (
        ("types", "inn", "shift"),
        ["Old Oak"],
        "types.inn.shift: 'Old Oak' is already used in types.inn.train; write "
        "something else",
    ),
    "types overlap": (
        ("types", "kind", "values"),
        ["single", "Ur"],
        "types.kind.values: 'Ur' is already used in types.city.train; write "
        "something else",
    ),
    "name is a number": (
        ("types", "kind", "values"),
        ["single", "12"],
        "types.kind.values: '12' is already used as a number; write something else",
    ),
    "huge pool": (
        ("types", "inn", "shift"),
        {"compose": [[f"a{i}" for i in range(1000)]] * 3},
        "types.inn.shift: 1000000000 values; have at most 100000",
    ),
    "minimum above maximum": (
        ("types", "hour", "minimum"),
        24,
        "types.hour: minimum 24, maximum 23; keep minimum <= maximum",
    ),
    "number too large": (
        ("types", "hour", "maximum"),
        67108863,
        "types.hour: 67108863 has more than 7 decimals, or is larger than 67108862 "
        "without its decimal point; change the bounds or decimals",
    ),
    "more decimals than stated": (
        ("types", "hour", "minimum"),
        0.5,
        "types.hour: 0.5 has more than 0 decimals; change the bounds or decimals",
    ),
    "strings beside numbers": (
        ("types", "kind", "values", 0),
        1,
        "types.kind.values: strings beside other values; write strings only, or none",
    ),
    "boolean twice": (
        ("types", "kind", "values"),
        [True, True],
        "types.kind.values: 'true' is already used in types.kind.values; write "
        "something else",
    ),
}


@pytest.mark.parametrize("path, value, fault", BAD.values(), ids=BAD)
def test_semantic_fault(tmp_path, path, value, fault):
    check_fault(tmp_path, path, value, fault)


def test_a_good_file_has_no_faults(tmp_path):
    file = save(tmp_path, good())
    assert domain_file.faults(file) == domain_file.faults("poi") == []
    assert domain_file.faults(f"{file}:dev") == []


def test_all_faults_are_found(tmp_path):
    document = good()
    for path, value in (
        (("types", "hour", "maximum"), -1),
        (("types", "city", "kind"), "entitty"),
        (("tools", 0, "function", "name"), 3),
        (("tools", 1, "x-openagent", "names", "test"), []),
        (("tools", 2, "x-openagent", "arguments", "inn"), "in"),
        (("tools", 2, "x-openagent", "code_from"), "sign_on"),
        (("goals", 0, "phrases", "test", 0), "room"),
        (("goals", 0, "answer"), "don"),
        ("extra", 1),
    ):
        write(document, path, value)
    document["goals"].append({**document["goals"][0], "name": "again"})
    faults = domain_file.faults(save(tmp_path, document))
    assert [fault.split(": ")[0] for fault in faults] == [
        "extra",
        "types.city.kind",
        "types.hour",
        "tools[0].function.name",
        "tools[1].x-openagent.names.test",
        "tools[2].x-openagent.arguments.inn",
        "tools[2].x-openagent.code_from",
        "goals[0].phrases.test[0]",
        # What a tool with faults returns is unknown, so answers are not checked.
        "goals[1].phrases.train",
        "goals[1].phrases.test",
        "goals[1].phrases.rewrite_train",
        "goals[1].phrases.rewrite_test",
        "goals[1].phrases.test[0]",
    ]


@pytest.mark.parametrize("key", ["types", "tools", "goals"])
def test_references_to_a_missing_part_are_not_checked(tmp_path, key):
    document = good()
    del document[key]
    faults = domain_file.faults(save(tmp_path, document))
    assert faults == [f"top level: missing key '{key}'; add it"]


def test_an_unreadable_part_does_not_hide_other_faults(tmp_path):
    document = good()
    document["types"] = 3
    document["tools"][1]["x-openagent"]["effect"] = "yes"
    document["goals"][0]["phrases"]["test"] = ["somewhere"]
    assert domain_file.faults(save(tmp_path, document)) == [
        "types: 3 is not an object; write an object",
        "tools[1].x-openagent.effect: 'yes' is not true or false; write true or false",
        "goals[0].phrases.test[0]: missing slot '{city}'; add it",
    ]


def all_paths(value, path=()):
    """All paths into a document."""
    yield path
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from all_paths(item, (*path, key))


SPOILED = [
    None,
    3,
    -1,
    True,
    "",
    "x y",
    "code",
    "done",
    "{city}",
    [],
    {},
    [[]],
    {"a": 1},
]
PLACES = [path for path in all_paths(good()) if path]


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(
    st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from([*SPOILED, REMOVE])),
        min_size=1,
        max_size=4,
    )
)
def test_no_document_crashes_the_checks(changes):
    """Each fault has a place, a problem and a remedy, and none hides another one."""
    document = good()
    for path, value in changes:
        with contextlib.suppress(KeyError, IndexError, TypeError):
            write(document, path, copy.deepcopy(value))
    faults = faults_of(document)
    assert all(re.fullmatch("[^\n]+: [^\n]+; [^\n]+", fault) for fault in faults)
    extra = "extra: unknown key 'extra'; known: "
    extra += "name, description, types, tools, goals, tables, review, source"
    assert {*faults_of({**document, "extra": 1})} == {*faults, extra}


def faults_of(document):
    try:
        domain_file.read(document, Limits())
    except domain_spec.DomainError as error:
        return error.faults
    return ()


def test_faults_of_all_kinds_are_named_at_once():
    """Of each tool too: a key that is unknown does not hide what its schema has."""
    document = good()
    for index, schema in enumerate((
        {"$ref": "#/properties/x"},
        {"$ref": "#/$defs/No"},
        {"enum": [f"v{i}" for i in range(10_000)]},
        {"minimum": float("nan"), "items": {"minimum": 2, "maximum": 1}},
    )):  # fmt: skip
        document["tools"][index]["function"]["parameters"] = {
            "properties": {"x": schema}
        }
    document["tools"][1]["x-openagent"]["effct"] = True
    document["tools"] += [document["tools"][0]] * 200
    found = "\n".join(faults_of(document))
    at = "function.parameters.properties.x"
    for line in (
        f"tools[0].{at}: it refers to itself, ",
        f"tools[1].{at}: the reference '#/$defs/No' leads nowhere",
        "tools[1].x-openagent.effct: unknown key 'effct'; did you mean 'effect'?",
        f"tools[2].{at}: an enum of 10,000 values",
        f"tools[3].{at}.minimum: NaN is not a number in JSON",
        f"tools[3].{at}.items: minimum 2 is above maximum 1",
        "tools[9].function.name: 'sign_in' is already used",
        "entries, but the limit is 16; remove some or raise sandbox.num_tools",
    ):
        assert line in found
    assert "tools[9].x-openagent.names" not in found  # a copy has one line


class TestAuthoring:
    """Features that make a file easier to write and to complete."""

    def test_a_list_of_values_is_divided(self, tmp_path):
        document = good()
        values = ["Ur", "Ux", "Uz", "Us", "Ut"]
        document["types"]["city"] = {"kind": "entity", "values": values}
        city = load(tmp_path, document).types[0]
        assert city.train == ("Ur", "Us")
        assert city.test == ("Ux", "Ut")
        assert city.shift == ("Uz",)

    @pytest.mark.parametrize(
        "kind, fault",
        [
            ({"values": ["Ur", "Ux"]}, ".values: fewer than 3 values; add some"),
            ({"values": ["Ur"], "test": ["Uz"]}, ".test: unknown key 'test'; known"),
            ({"values": ["Ur", "Ux", "Ur"]}, ".values: 'Ur' is already used in"),
        ],
    )
    def test_a_list_that_cannot_be_divided(self, tmp_path, kind, fault):
        document = good()
        document["types"]["city"] = {"kind": "entity", **kind}
        with pytest.raises(domain_spec.DomainError, match=re.escape(fault)):
            load(tmp_path, document)

    def test_placeholders_are_refused(self, tmp_path):
        document = good()
        document["types"]["city"]["train"] = ["FILL IN: towns"]
        document["goals"][0]["phrases"]["test"] = ["FILL IN: requests"]
        remedy = "replace it with what it asks for"
        assert domain_file.faults(save(tmp_path, document)) == [
            f"types.city.train[0]: still says 'FILL IN: towns'; {remedy}",
            f"goals[0].phrases.test[0]: still says 'FILL IN: requests'; {remedy}",
        ]

    def test_notes_have_no_effect(self, tmp_path):
        document = good()
        plain = load(tmp_path, document)
        document["review"] = ["types.city: made up"]
        noted = load(tmp_path, document)
        assert noted.review == ("types.city: made up",)
        assert dataclasses.replace(noted, review=()) == plain

    @pytest.mark.parametrize(
        "path",
        [
            ("types", "city", "train", 0),
            ("types", "kind", "values", 0),
            ("tools", 1, "x-openagent", "names", "train", 0),
        ],
    )
    def test_overlong_texts_are_refused_unless_the_limit_is_raised(
        self, tmp_path, path
    ):
        document = good()
        write(document, path, "x" * 64)
        load(tmp_path, document)
        write(document, path, "x" * 80)
        message = "has 80 bytes, but the limit is 64; shorten it or raise "
        message += "sandbox.value_bytes to 80"
        domain_file.load(save(tmp_path, document), Limits(value_bytes=80))
        with pytest.raises(domain_spec.DomainError, match=message):
            load(tmp_path, document)
