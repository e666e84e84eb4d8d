"""Values of types: from the schema, like its examples, made up, or to be filled in."""

import json
import re

import pytest

from openagent_jax.domains import domain_file, value_schema
from openagent_jax.drafting import drafting, json_format
from tests.drafting.examples import (
    TEXT,
    draft_one,
    faults,
    function,
    openai,
    read_faults,
    tools_of,
)


class TestValues:
    @pytest.mark.parametrize(
        "pattern", ["^AP-[0-9]{3}$", "^[A-Z]{3}-[0-9]+$", r"^(hive|bee)/\d{2,4}[a-f]?$"]
    )
    def test_values_of_a_pattern(self, tmp_path, pattern):
        sku = {"type": "string", "pattern": pattern}
        draft = draft_one(sku=sku, other=sku)
        assert not draft.holes
        (kind,) = {*tools_of(draft)["get_value"]["arguments"].values()} - {"other"}
        pools = [draft.domain["types"][kind][x] for x in ("train", "test", "shift")]
        values = [x for pool in pools for x in pool]
        assert len({*values}) == len(values) == 120
        assert all(re.fullmatch(pattern, text) for text in values)
        assert any("made up from its pattern" in note for note in draft.review)
        assert faults(tmp_path, draft.domain) == []

    def test_few_values_of_a_pattern(self, tmp_path):
        draft = draft_one(
            order={"type": "string", "pattern": "^(asc|desc)$"},
            row={"type": "string", "pattern": "^row [1-9][A-B]$"},
        )
        types = draft.domain["types"]
        assert types["order"] == {"kind": "enum", "values": ["asc", "desc"]}
        assert sum(map(len, list(types["row"].values())[1:])) == 18
        assert faults(tmp_path, draft.domain) == []

    @pytest.mark.parametrize(
        "schema",
        [
            {"minLength": 3, "maxLength": 3},
            {"maxLength": 5},
            {"minLength": 20, "maxLength": 24},
            {"maxLength": 30, "minLength": "3"},
        ],
    )
    def test_values_have_the_length_of_the_schema(self, tmp_path, schema):
        draft = draft_one(origin={"type": "string", **schema})
        assert not draft.holes and faults(tmp_path, draft.domain) == []

    def test_a_pattern_that_gives_no_values_is_a_hole_with_the_reason(self, tmp_path):
        sku = {"type": "string", "pattern": "^(?!XX)[A-Z]{3}-[0-9]+$"}
        draft = draft_one(sku=sku)
        assert [hole.split(":")[0] for hole in draft.holes] == ["types.sku.values[0]"]
        assert "^(?!XX)[A-Z]{3}-[0-9]+$ (none can be made up: " in draft.holes[0]
        assert "its pattern has look-around" in draft.holes[0]
        (fault,) = faults(tmp_path, draft.domain)
        assert fault.startswith("types.sku.values[0]: still says 'FILL IN: three")
        draft.domain["types"]["sku"]["values"] = ["ABC-1", "ABC-2", "ABC-3"]
        assert faults(tmp_path, draft.domain) == []
        draft.domain["types"]["sku"]["values"] = ["ABC-1", "XXX-2", "ABC-x", "ABC-4"]
        assert faults(tmp_path, draft.domain) == [
            "types.sku: 'XXX-2': it does not match the pattern "
            "^(?!XX)[A-Z]{3}-[0-9]+$, and 1 more like it "
            "(tools[0].function.parameters.properties.sku); write values that fit"
        ]

    def test_a_pattern_with_an_example_is_not_a_hole(self):
        sku = {
            "type": "string",
            "pattern": "^[A-Z]{3}-[0-9]+$",
            "examples": ["ABC-123"],
        }
        draft = draft_one(sku=sku)
        assert not draft.holes
        for pool in ("train", "test", "shift"):
            values = draft.domain["types"]["sku"][pool]
            assert len(values) >= 30
            assert all(re.fullmatch("ABC-[0-9]{3}", x) for x in values)

    def test_values_like_the_example_must_match_the_pattern(self):
        sku = {"type": "string", "examples": ["ABC-123"]}
        draft = draft_one(sku={**sku, "pattern": "^[A-Z]{3}-[1-4]{3}$"})
        values = draft.domain["types"]["sku"]["train"]
        assert values[0] == "ABC-123"
        assert all(re.fullmatch("[A-Z]{3}-[1-4]{3}", text) for text in values)
        # A pattern that cannot be read may mean anything.
        assert len(draft_one(sku={**sku, "pattern": "(?<x"}).holes) == 1

    def test_types_with_similar_examples(self, tmp_path):
        """No two types have a value in common."""
        draft = draft_one(
            a_id={**TEXT, "example": "C-204"}, b_id={**TEXT, "example": "C-305"}
        )
        a, b = (draft.domain["types"][name] for name in ("a_id", "b_id"))
        for split in ("train", "test", "shift"):
            assert all(re.fullmatch(r"C-\d{3}", x) for x in a[split] + b[split])
        assert faults(tmp_path, draft.domain) == []

    def test_an_uninformative_name_is_a_hole(self):
        (hole,) = draft_one("", "fetch", command=TEXT).holes
        assert hole == (
            "types.fetch_result.values[0]: three or more values that fetch may return"
        )

    @pytest.mark.parametrize(
        "schema, kind",
        [
            ({"type": "integer"}, (0, 999)),
            ({"type": "integer", "minimum": 1, "maximum": 100_000}, (1, 100_000)),
            ({"type": "number", "multipleOf": 1, "maximum": 9}, (0, 9)),
            ({"type": "number", "maximum": 2.5}, (0, 2.5, 2)),
        ],
    )
    def test_numbers(self, tmp_path, schema, kind):
        draft = draft_one(size=schema)
        keys = ("minimum", "maximum", "decimals")
        made = {"kind": "number", **dict(zip(keys, kind, strict=False))}
        assert draft.domain["types"]["size"] == made
        assert faults(tmp_path, draft.domain) == []

    @pytest.mark.parametrize(
        "schema, values",
        [
            ({"type": "boolean"}, [True, False]),
            ({"type": "boolean", "enum": [True]}, [True]),
            ({"enum": [False, True]}, [True, False]),
            ({"type": "integer", "enum": [4, 2, 8]}, [4, 2, 8]),
            ({"enum": [1, 1.0, -2.5, None]}, [1, -2.5]),
            ({"enum": [1, True, 12345]}, [1, True, 12345]),
            ({"const": 7}, [7]),
            ({"enum": [None]}, [None]),
            ({"enum": [1e99, -1e99, 3]}, [3]),
            ({"type": "string", "enum": ["1", "2"]}, [1, 2]),
            ({"type": "number", "multipleOf": 0.5, "maximum": 1.5}, [0, 0.5, 1, 1.5]),
        ],
    )
    def test_enums_without_quotes(self, tmp_path, schema, values):
        draft = draft_one(size=schema)
        (name,) = tools_of(draft)["get_value"]["arguments"].values()
        made = draft.domain["types"][name]
        assert json.dumps(made) == json.dumps({"kind": "enum", "values": values})
        assert name == ("boolean" if values == [True, False] else "size")
        assert draft.holes == [] and faults(tmp_path, draft.domain) == []

    def test_texts_are_not_mixed_with_numbers(self, tmp_path):
        draft = draft_one(size={"enum": ["auto", 7, "12", True]})
        made = draft.domain["types"]["size"]
        assert made == {"kind": "enum", "values": ["auto"]}
        note = "without 7, 12, true, since the other values are texts"
        assert f"types.size: size (of get_value): {note}" in draft.review
        assert faults(tmp_path, draft.domain) == []

    def test_digits_as_texts_are_noted(self):
        notes = draft_one(size={"enum": ["1", "2"]}).review
        assert any("numbers, which calls write without quotes" in x for x in notes)

    def test_types_of_numbers_are_shared_if_their_schemas_agree(self, tmp_path):
        draft = draft_one(
            **{"a-size": {"enum": [1, 2]}, "a_size": {"enum": [True, 2]}},
            b_rate={"type": "number", "maximum": 5, "exclusiveMinimum": 0},
            **{"b-rate": {"type": "number", "maximum": 5}},
            **{"bRate": {"type": "integer", "maximum": 5}},
        )
        assert tools_of(draft)["get_value"]["arguments"] == {
            "a-size": "a_size",
            "a_size": "a_size_2",
            "b_rate": "b_rate",
            "b-rate": "b_rate",
            "bRate": "b_rate_2",
        }
        made = draft.domain["types"]["b_rate"]
        assert made == {**made, "minimum": 0.01, "maximum": 5, "decimals": 2}
        assert faults(tmp_path, draft.domain) == []

    def test_years_are_numbers(self, tmp_path):
        year = {"type": "integer", "minimum": 1990, "maximum": 2030}
        draft = draft_one(start_year=year, end_year={**year, "maximum": 2040})
        types = draft.domain["types"]
        assert types["start_year"]["minimum"] == 1990
        assert types["end_year"]["maximum"] == 2040
        assert not any("year" in note for note in draft.review if "types." in note)
        assert faults(tmp_path, draft.domain) == []

    def test_enums_that_share_a_value_are_divided(self, tmp_path):
        """No call has a value that the schema of its argument does not allow."""
        draft = draft_one(
            state={"enum": ["open", "closed"]},
            filter={"enum": ["all", "open"]},
            level={"enum": ["low", "all"]},
        )
        arguments = tools_of(draft)["get_value"]["arguments"]
        kinds = draft.domain["types"]
        values = {name: kinds[kind]["values"] for name, kind in arguments.items()}
        assert values == {
            "state": ["closed"],
            "filter": ["all", "open"],
            "level": ["low"],
        }
        assert any("only low, as other values are in" in x for x in draft.review)
        assert faults(tmp_path, draft.domain) == []

    @pytest.mark.parametrize(
        "name, value_format, pattern",
        [
            ("start_date", "", r"20\d\d-\d\d-\d\d"),
            ("at", "date-time", r"20\d\d-\d\d-\d\dT\d\d:\d\d:00Z"),
            ("at", "time", r"\d\d:\d\d:00Z"),
            ("invoice_number", "", r"INV-\d{4}"),
            ("homepage", "uri", r"https://example\.com/\w+/\w+"),
            ("contact_email", "", r"\w+\.\w+@example\.com"),
            ("assignee", "", r"[A-Z]\w+ [A-Z]\w+"),
            ("home_city", "", r"[A-Z]\w+ [A-Z]\w+"),
            ("message", "", r"[a-z]+ [a-z]+"),
            ("pickup_time", "", r"([01]\d|2[0-3]):[0-5]\d"),
            ("uid", "uuid", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        ],
    )
    def test_values_by_name_and_format(self, tmp_path, name, value_format, pattern):
        draft = draft_one(**{name: {"type": "string", "format": value_format}})
        file = tmp_path / "mine.json"
        file.write_text(json_format.dumps(draft.domain))
        kind = domain_file.load(file).types[0]
        assert all(re.fullmatch(pattern, text) for text in kind.train)
        assert min(map(len, (kind.train, kind.test, kind.shift))) >= 12


@pytest.mark.parametrize("name", ["date", "date-time", "time", "email", "uri", "uuid"])
def test_a_format_holds_in_all_splits(name):
    draft = draft_one(**{x: {"type": "string", "format": name} for x in ("a", "b")})
    for kind in {*tools_of(draft)["get_value"]["arguments"].values()}:
        pools = [draft.domain["types"][kind][x] for x in ("train", "test", "shift")]
        values = [x for pool in pools for x in pool]
        assert len({*values}) == len(values) == 120
        for text in values:
            assert value_schema.misfit({"format": name}, text) == ""
            assert value_schema.misfit({"format": name}, f"no {text}")


def test_several_types_of_times():
    """No two types have a value in common, and all values are times."""
    draft = draft_one(**{f"{x}_time": TEXT for x in ("start", "end", "send", "wake")})
    kinds = draft.domain["types"].values()
    for split in ("train", "test"):
        values = [x for kind in kinds for x in kind.get(split, ()) if ":" in x]
        assert len({*values}) == len(values) >= 140
        assert all(re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", x) for x in values)


def test_a_hole_shows_the_pattern_unchanged():
    pattern = r"^(?=S)SKU-\d{5}\.[A-Z]$"
    tool = function("find_it", "Find it", sku={"type": "string", "pattern": pattern})
    draft = drafting.draft(openai(tool), "it")
    assert f"each of the form {pattern}" in draft.holes[0]
    assert f"each of the form {pattern}" in draft.domain["types"]["sku"]["values"][0]
    assert f"each of the form {pattern} (none" in read_faults(draft.domain)[0]


def test_the_suffix_of_a_second_type_is_not_in_its_values():
    room = {"type": "string", "enum": ["attic", "cellar"]}
    lamp = function("light_lamp", "Light a lamp", room=room)
    door = function("open_door", "Open a door", room=TEXT)
    types = drafting.draft(openai(lamp, door), "home").domain["types"]
    assert types["room_2"]["train"]["compose"][1] == ["room"]
