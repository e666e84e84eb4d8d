"""The words for requests in a domain file: what is wrong with them, all at once."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openagent_jax.domains import domain_file, lookalikes
from openagent_jax.domains.domain_spec import DomainError
from openagent_jax.domains.goals import phrase_syntax
from openagent_jax.domains.goals.request_reading import without_optional
from tests.domains import aquarium, inns

REMOVE = inns.REMOVE
DO = ("tools", 0, "x-openagent", "requests", "do")
FIELDS = ("tools", 0, "x-openagent", "requests", "fields")
AT = "tools[0].x-openagent.requests.do.train[0]"
TRAINED = aquarium.DOCUMENT["tools"][0]["x-openagent"]["requests"]["do"]["train"]
# name: (where to write, what to write, fault)
BAD = {
    "no pool": (
        (*DO, "rewrite_test"),
        REMOVE,
        "tools[0].x-openagent.requests.do: missing key 'rewrite_test'; add it",
    ),
    "no texts": (
        (*DO, "test"),
        [],
        "tools[0].x-openagent.requests.do.test: empty list; add at least one entry",
    ),
    "unknown field": (
        (*FIELDS, "tanks"),
        aquarium.DOCUMENT["tools"][1]["x-openagent"]["requests"]["fields"]["keeper"],
        "tools[0].x-openagent.requests.fields.tanks: unknown field 'tanks'; did you "
        "mean 'tank'?",
    ),
    "missing field": (
        (*FIELDS, "tank"),
        REMOVE,
        "tools[0].x-openagent.requests.fields: missing field 'tank'; add it",
    ),
    "unknown slot": (
        (*DO, "train", 0),
        "find the tank of {fisch}{fish}[ in {hall}]",
        f"{AT}.{{fisch}}: unknown slot '{{fisch}}'; did you mean '{{fish}}'?",
    ),
    "missing slot": (
        (*DO, "train", 0),
        "find the tank[ in {hall}]",
        f"{AT}: missing slot '{{fish}}'; add it",
    ),
    "slot twice": (
        (*DO, "train", 0),
        "find the tank of {fish} and {fish}[ in {hall}]",
        f"{AT}: slot {{fish}} occurs twice; keep one",
    ),
    "missing optional slot": (
        (*DO, "train", 0),
        "find the tank of {fish}",
        f"{AT}: missing slot '{{hall}}'; add it",
    ),
    "required in brackets": (
        (*DO, "train", 0),
        "find the tank[ of {fish}][ in {hall}]",
        f"{AT}: 'fish' is required; write its slot outside of brackets",
    ),
    "optional without brackets": (
        (*DO, "train", 0),
        "find the tank of {fish} in {hall}",
        f"{AT}: 'hall' is optional; put its slot in square brackets, with the words "
        "that vanish with it: [ in {hall}]",
    ),
    "brackets without a slot": (
        (*DO, "train", 0),
        "find the[ only] tank of {fish}[ in {hall}]",
        f"{AT}: [ only] has no slot; write its text without the brackets",
    ),
    "open bracket": (
        (*DO, "train", 0),
        "find the tank of {fish}[ in {hall}]]",
        f"{AT}: square brackets that do not match; close each [ with ], one inside no "
        "other",
    ),
    "open brace": (
        (*DO, "train", 0),
        "find the tank of {fish[ in {hall}]",
        f"{AT}.{{fish[ in : unknown slot '{{fish[ in '; did you mean '{{fish}}'?",
    ),
    "choice": (
        (*DO, "train", 0),
        "find|get the tank of {fish}[ in {hall}]",
        f"{AT}: contains '|', which separates the texts of a choice; remove it",
    ),
    "end of a sentence": (
        (*DO, "train", 0),
        "find the tank of {fish}[ in {hall}].",
        f"{AT}: ends with '.'; remove it, since requests add their own",
    ),
    "blank at the end": (
        (*DO, "train", 0),
        "find the tank of {fish}[ in {hall}] ",
        f"{AT}: begins or ends with a blank; remove it",
    ),
    "in two pools": (
        (*DO, "test", 0),
        TRAINED[2],
        "tools[0].x-openagent.requests.do.test: 'find the tan...ithin {hall}]' is "
        "already used in tools[0].x-openagent.requests.do.train; write something else",
    ),
    "no word of the description": (
        (*DO, "train", 0),
        "find the place of {fish}[ in {hall}]",
        f"{AT}: shares no word with the description of the tool, so that a reader who "
        "knows nothing else cannot find it; use one of ['fish', 'live', 'tank']",
    ),
}


def faults(tmp_path, document):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document))
    return domain_file.faults(file)


@pytest.mark.parametrize("path, value, fault", BAD.values(), ids=BAD)
def test_fault(tmp_path, path, value, fault):
    document = aquarium.good()
    inns.write(document, path, value)
    assert faults(tmp_path, document)[0] == fault


def test_a_good_file(tmp_path):
    assert faults(tmp_path, aquarium.good()) == []
    spec = aquarium.spec()
    assert spec.goals == () and all(tool.requests for tool in spec.tools)


def test_all_at_once(tmp_path):
    document = aquarium.good()
    inns.write(document, (*DO, "train", 0), "find the tank[ in {hall}]")
    inns.write(document, (*DO, "test", 1), "the tank of {fish}[ in {hall}]!")
    del document["tools"][2]["x-openagent"]["requests"]["fields"]["length"]
    places = [fault.split(": ")[0] for fault in faults(tmp_path, document)]
    start = "tools[0].x-openagent.requests.do"
    assert places == [
        f"{start}.train[0]",
        f"{start}.test[1]",
        "tools[2].x-openagent.requests.fields",
    ]


def test_words_are_optional():
    document = aquarium.good()
    for tool in document["tools"][1:]:
        del tool["x-openagent"]["requests"]
    with_words = [tool.name for tool in aquarium.spec(document).tools if tool.requests]
    assert with_words == ["find_tank"]
    del document["tools"][0]["x-openagent"]["requests"]
    with pytest.raises(DomainError) as caught:
        aquarium.spec(document)
    message = "empty list; add at least one entry, or `requests` to a tool"
    assert caught.value.faults == (f"goals: {message}",)


def test_brackets_vanish_with_their_argument():
    text = "the tank of {fish}[ in {hall}][, above {size}]"
    assert without_optional(text, ["fish"]) == "the tank of {fish}"
    given = ["fish", "size"]
    assert without_optional(text, given) == "the tank of {fish}, above {size}"
    given = ["fish", "hall", "size"]
    whole = "the tank of {fish} in {hall}, above {size}"
    assert without_optional(text, given) == whole


def test_choices_in_authored_phrases(tmp_path):
    document = inns.good()
    phrases = document["goals"][0]["phrases"]
    phrases["train"] = ["{Find|Get} {1:a|the} room in {city}{1:| now}."]
    assert faults(tmp_path, document) == []
    phrases["train"] = ["{1:Find|Get} a room in {city}{1:|, now|, soon}."]
    message = "choices with the number 1 have 2 and 3 texts; write equally many"
    assert faults(tmp_path, document) == [f"goals[0].phrases.train[0]: {message}"]


def test_two_tools_with_the_same_documents_are_warned_of():
    document = aquarium.good()
    assert list(lookalikes.warnings(aquarium.spec(document))) == []
    twin = copy.deepcopy(document["tools"][4])
    twin["function"]["name"] = "food_shelf"
    meaning = twin["x-openagent"]
    meaning["names"] = {"train": ["shelf_of"], "test": ["rack_of"]}
    meaning["descriptions"] = {"train": ["a shelf of food"], "test": ["food on it"]}
    document["tools"].append(twin)
    one, two = lookalikes.warnings(aquarium.spec(document))
    assert one.startswith("tools[4] (food_store): food_shelf would do as well in goals")
    assert two.startswith("tools[9] (food_shelf): food_store would do as well in goals")


PLAIN = st.text("ab ,.:1", min_size=1, max_size=6)
CHOICES = st.builds(
    phrase_syntax.Choice,
    st.lists(st.text("ab ,.", max_size=4), min_size=2, max_size=3).map(tuple),
    st.sampled_from(["", "1", "12"]),
)
SLOTS = st.builds(phrase_syntax.Slot, st.sampled_from(["fish", "fish_2"]))


@given(st.lists(CHOICES | SLOTS), st.lists(PLAIN))
def test_phrases_are_parsed_as_they_are_written(parts, texts):
    pieces = [x for pair in zip(parts, texts, strict=False) for x in pair]
    assert list(phrase_syntax.parse(phrase_syntax.write(pieces))) == pieces
