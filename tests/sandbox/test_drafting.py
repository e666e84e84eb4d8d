"""Drafts of domains: what is inferred, what is left to a person; all can be used."""

import json
import re
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openagent_jax import types
from openagent_jax.sandbox import (
    domain_file,
    domain_schema,
    domain_spec,
    drafting,
    synonyms,
    wording,
)

ROOM = types.Limits(num_tools=24, num_args=5, num_constants=5)


def function(name, description="", required=None, /, **properties):
    parameters = {"type": "object", "properties": properties}
    parameters["required"] = list(properties) if required is None else required
    return {"name": name, "description": description, "parameters": parameters}


def openai(*functions):
    return [{"type": "function", "function": item} for item in functions]


TEXT, ID = {"type": "string"}, {"type": "string", "description": "e.g. C-20417"}
SHOP = openai(
    function("find_customer", "Find a customer by email address.", email=TEXT),
    function(
        "list_orders",
        "Returns the newest order of a customer. Sorted by date.",
        ["customer_id"],
        customer_id=ID,
        limit={"type": "integer", "minimum": 1, "maximum": 50},
    ),
    function("get_order_status", "Get the status of an order.", order_id=TEXT),
    function(
        "cancelOrder",
        "Cancels an order",
        order_id=TEXT,
        reason={"type": "string", "enum": ["late", "broken", "other"]},
    ),
    function("check_stock", "", product={"type": "string"}),
)
MCP = {
    "tools": [
        {
            "name": "search_issues",
            "title": "Search issues",
            "description": "Search the issues of a repository.",
            "inputSchema": {
                "$defs": {"State": {"type": "string", "enum": ["open", "closed"]}},
                "type": "object",
                "properties": {
                    "repository": {"type": "string"},
                    "state": {"$ref": "#/$defs/State"},
                    "labels": {"type": "array", "items": {"type": "string"}},
                    "since": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["repository", "state", "since"],
            },
            "outputSchema": {
                "type": "object",
                "properties": {
                    "total": {"type": "integer"},
                    "issues": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "id": {"type": "string"},
                                "title": {"type": "string"},
                            },
                        },
                    },
                },
            },
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": "label_issue",
            "description": "Put a label on an issue.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "issue_id": {"type": "string"},
                    "urgent": {"type": "boolean"},
                    "points": {"type": "integer", "minimum": 1, "maximum": 13},
                },
                "required": ["issue_id", "urgent", "points"],
            },
            "annotations": {"readOnlyHint": False},
        },
    ]
}


def tools_of(draft):
    return {x["function"]["name"]: x["x-openagent"] for x in draft.domain["tools"]}


def goals_of(draft):
    return {goal["name"]: goal for goal in draft.domain["goals"]}


def faults(tmp_path, domain):
    file = tmp_path / "mine.json"
    file.write_text(drafting.written(domain))
    return domain_file.faults(file, ROOM)


def filled(value):
    """A domain whose holes a person has filled in."""
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    hole = [x for x in value if isinstance(x, str) and x.startswith("FILL IN:")]
    if hole:
        return [f"filled {zlib.crc32(hole[0].encode())} {i}" for i in range(4)]
    return list(map(filled, value))


class TestShop:
    draft = drafting.draft(SHOP, "shop")

    def test_what_goes_in_and_out(self):
        said = {
            name: (meaning["arguments"], meaning["returns"])
            for name, meaning in tools_of(self.draft).items()
        }
        assert said == {
            "find_customer": ({"email": "email"}, {"customer_id": "customer_id"}),
            "list_orders": ({"customer_id": "customer_id"}, {"order_id": "order_id"}),
            "get_order_status": ({"order_id": "order_id"}, {"status": "order_status"}),
            "cancelOrder": (
                {"order_id": "order_id", "reason": "reason"},
                {"receipt": "receipt_number"},
            ),
            "check_stock": ({"product": "product"}, {"stock": "stock"}),
        }

    def test_values(self):
        kinds = self.draft.domain["types"]
        assert kinds["reason"] == {
            "kind": "enum",
            "values": ["late", "broken", "other"],
        }
        assert kinds["stock"] == {"kind": "number", "minimum": 0, "maximum": 999}
        like = kinds["customer_id"]
        assert like["train"][0] == "C-20417"
        for split in ("train", "test", "shift"):
            assert all(re.fullmatch(r"C-\d{5}", x) for x in like[split])
        assert all("@" in x for x in kinds["email"]["test"])

    def test_what_changes_something(self):
        effects = {n: x.get("effect") for n, x in tools_of(self.draft).items()}
        assert [name for name in effects if effects[name]] == ["cancelOrder"]

    def test_goals(self):
        goals = goals_of(self.draft)
        assert set(tools_of(self.draft)) <= set(goals)
        assert goals["get_order_status"]["answer"] == "#0.status"
        assert goals["cancelOrder"]["answer"] == "done"
        for text in goals["cancelOrder"]["phrases"]["test"]:
            assert "cancel an order" in text and "done" in text
        chain = goals["find_customer_then_list_orders_then_get_order_status"]
        assert chain["constants"] == {"email": "email"}
        assert [step["arguments"] for step in chain["steps"]] == [
            {"email": "$email"},
            {"customer_id": "#0.customer_id"},
            {"order_id": "#1.order_id"},
        ]
        assert chain["answer"] == "#2.status"
        # A reason is not something that a tool finds out.
        ends = [g for g in goals if g.endswith("cancelOrder")]
        assert all("reason" in goals[name]["constants"] for name in ends)

    def test_other_words(self):
        meaning = tools_of(self.draft)["cancelOrder"]
        assert meaning["names"] == {
            "train": ["revokePurchase", "revokeOrder", "purchaseRevoke"],
            "test": ["call_off_acquisition", "void_acquisition", "call_off_order"],
        }
        assert meaning["descriptions"] == {
            "train": [
                "Revoke a purchase",
                "Use it to cancel an order",
                "A tool to cancel an order",
            ],
            "test": [
                "Call off an acquisition",
                "With this one can cancel an order",
                "Void an acquisition",
            ],
        }
        assert meaning["argument_names"]["order_id"] == {
            "train": ["purchase_number", "order_number"],
            "test": ["acquisitionKey", "orderKey"],
        }

    def test_nothing_is_left_to_fill_in(self, tmp_path):
        assert self.draft.holes == []
        assert faults(tmp_path, self.draft.domain) == []

    def test_guesses_are_told_with_their_places(self):
        told = "\n".join(self.draft.review)
        assert "by its words: cancelOrder" in told
        assert "tools[1].x-openagent.arguments: list_orders does without limit" in told
        assert "tools[4].x-openagent.returns: check_stock returns stock" in told
        assert "types.email:" in told and "types.reason" not in told
        assert len(self.draft.domain["review"]) == len(self.draft.review)

    def test_bare_functions_are_the_same(self):
        bare = {"tools": [tool["function"] for tool in SHOP]}
        assert drafting.draft(bare, "shop") == self.draft

    def test_the_training_half_can_be_divided(self, tmp_path):
        file = tmp_path / "mine.json"
        file.write_text(drafting.written(self.draft.domain))
        part = domain_file.load(f"{file}:dev")
        assert len(part.tools) == 5


class TestProtocol:
    """The result of MCP's tools/list."""

    draft = drafting.draft(MCP, "issues")

    def test_schemas_of_results_and_hints_are_believed(self):
        said = {
            name: (meaning["arguments"], meaning["returns"], meaning.get("effect"))
            for name, meaning in tools_of(self.draft).items()
        }
        assert said == {
            "search_issues": (
                {"repository": "repository", "state": "issue_state"},
                {"issue_id": "issue_id", "total": "total"},
                None,
            ),
            "label_issue": (
                {"issue_id": "issue_id", "urgent": "boolean", "points": "points"},
                {"receipt": "receipt_number"},
                True,
            ),
        }
        assert not any("by its words" in note for note in self.draft.review)

    def test_values(self):
        kinds = self.draft.domain["types"]
        assert kinds["issue_state"] == {"kind": "enum", "values": ["open", "closed"]}
        assert kinds["boolean"] == {"kind": "enum", "values": ["true", "false"]}
        assert kinds["points"] == {"kind": "number", "minimum": 1, "maximum": 13}

    def test_what_need_not_be_given_is_left_out_and_told(self):
        note = "search_issues does without labels, since (optional, or"
        assert any(note in told for told in self.draft.review)

    def test_a_result_feeds_an_argument(self):
        goal = goals_of(self.draft)["search_issues_then_label_issue"]
        assert goal["steps"][1]["arguments"]["issue_id"] == "#0.issue_id"
        assert goal["answer"] == "done"

    def test_as_a_server_sends_it(self):
        sent = {"jsonrpc": "2.0", "id": 1, "result": MCP}
        assert drafting.draft(sent, "issues") == self.draft

    def test_it_can_be_used(self, tmp_path):
        assert self.draft.holes == []
        assert faults(tmp_path, self.draft.domain) == []


def one(description="Get the value of a thing.", name="get_value", **properties):
    return drafting.draft(openai(function(name, description, **properties)), "one")


class TestValues:
    def test_a_pattern_without_an_example_is_left_to_a_person(self, tmp_path):
        sku = {"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"}
        draft = one(sku=sku)
        assert [hole.split(":")[0] for hole in draft.holes] == ["types.sku.values[0]"]
        assert "^[A-Z]{3}-[0-9]+$" in draft.holes[0]
        (fault,) = faults(tmp_path, draft.domain)
        assert fault.startswith("types.sku.values[0]: still says 'FILL IN: three")
        draft.domain["types"]["sku"]["values"] = ["ABC-1", "ABC-2", "ABC-3"]
        assert faults(tmp_path, draft.domain) == []

    def test_a_pattern_with_an_example_is_not(self):
        sku = {
            "type": "string",
            "pattern": "^[A-Z]{3}-[0-9]+$",
            "examples": ["ABC-123"],
        }
        draft = one(sku=sku)
        assert not draft.holes
        for pool in ("train", "test", "shift"):
            values = draft.domain["types"]["sku"][pool]
            assert len(values) >= 30
            assert all(re.fullmatch("ABC-[0-9]{3}", x) for x in values)

    @pytest.mark.parametrize("pattern", ["^[A-Z]{3}-[1-4]", "(?<x"])
    def test_an_example_is_not_stretched_beyond_its_pattern(self, pattern):
        draft = one(sku={"type": "string", "pattern": pattern, "examples": ["ABC-123"]})
        assert len(draft.holes) == 1

    def test_examples_of_one_form(self, tmp_path):
        """Each type has values of its own."""
        draft = one(
            a_id={**TEXT, "example": "C-204"}, b_id={**TEXT, "example": "C-305"}
        )
        a, b = (draft.domain["types"][name] for name in ("a_id", "b_id"))
        for split in ("train", "test", "shift"):
            assert all(re.fullmatch(r"C-\d{3}", x) for x in a[split] + b[split])
        assert faults(tmp_path, draft.domain) == []

    def test_a_name_that_says_nothing_is_left_to_a_person(self):
        (hole,) = one("", "fetch", command=TEXT).holes
        assert hole == (
            "types.fetch_result.values[0]: three or more values that fetch may return"
        )

    @pytest.mark.parametrize(
        "schema, kind",
        [
            ({"type": "integer"}, (0, 999)),
            ({"type": "integer", "minimum": 3}, (3, 999)),
            ({"type": "integer", "minimum": -5, "maximum": 5}, (0, 5)),
            ({"type": "integer", "minimum": 1, "maximum": 100_000}, (1, 999)),
            ({"type": "integer", "minimum": 1.0, "maximum": 5.0}, (1, 5)),
            ({"type": "integer", "minimum": float("nan")}, (0, 999)),
            ({"type": "integer", "maximum": float("inf")}, (0, 999)),
            ({"type": "integer", "minimum": 7, "maximum": 3}, (7, 999)),
            ({"type": "integer", "enum": [4, 2, 8]}, (2, 8)),
            ({"type": "string", "enum": ["1", "2"]}, (1, 2)),
            ({"type": "number", "multipleOf": 1, "maximum": 9}, (0, 9)),
        ],
    )
    def test_numbers(self, schema, kind):
        made = one(size=schema).domain["types"]["size"]
        assert made == {"kind": "number", "minimum": kind[0], "maximum": kind[1]}

    def test_numbers_that_the_sandbox_has_not_are_texts(self, tmp_path):
        year = {"type": "integer", "minimum": 1990, "maximum": 2030}
        draft = one(start_year=year, end_year={**year, "maximum": 2040})
        assert set(tools_of(draft)["get_value"]["arguments"].values()) == {"start_year"}
        kind = draft.domain["types"]["start_year"]
        assert kind == {"kind": "enum", "values": [str(x) for x in range(1990, 2041)]}
        assert any("texts, since numbers end at 999" in note for note in draft.review)
        assert faults(tmp_path, draft.domain) == []

    def test_enums_that_share_a_value_are_one_type(self, tmp_path):
        draft = one(
            state={"enum": ["open", "closed"]},
            filter={"enum": ["all", "open"]},
            level={"enum": ["low", "all"]},
        )
        kinds = set(tools_of(draft)["get_value"]["arguments"].values())
        assert len(kinds) == 1
        values = draft.domain["types"][kinds.pop()]["values"]
        assert sorted(values) == ["all", "closed", "low", "open"]
        assert faults(tmp_path, draft.domain) == []

    @pytest.mark.parametrize(
        "name, form, pattern",
        [
            ("start_date", "", r"20\d\d-\d\d-\d\d"),
            ("at", "date-time", r"20\d\d-\d\d-\d\dT\d\d:\d\d"),
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
    def test_names_and_formats_tell_of_values(self, tmp_path, name, form, pattern):
        draft = one(**{name: {"type": "string", "format": form}})
        file = tmp_path / "mine.json"
        file.write_text(drafting.written(draft.domain))
        kind = domain_file.load(file).types[0]
        assert all(re.fullmatch(pattern, text) for text in kind.train)
        assert min(map(len, (kind.train, kind.test, kind.shift))) >= 12


HALF = {"\ud83d": TEXT}  # half a character


def test_many_types_of_times():
    """Each with values of its own, all of them times."""
    draft = one(**{f"{x}_time": TEXT for x in ("start", "end", "send", "wake")})
    kinds = draft.domain["types"].values()
    for split in ("train", "test"):
        values = [x for kind in kinds for x in kind.get(split, ()) if ":" in x]
        assert len({*values}) == len(values) >= 140
        assert all(re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", x) for x in values)


def returning(name, returns, /, **properties):
    tool = function(name, "", **properties)
    return {**tool, "outputSchema": {"type": "object", "properties": returns}}


class TestChains:
    def test_what_others_take_comes_first(self):
        many = {"note": TEXT, "size": TEXT, "ticket_id": TEXT}
        tools = [
            returning("find_note", many, owner=TEXT),
            returning("drop_ticket", {"kind": TEXT}, ticket_id=TEXT),
        ]
        draft = drafting.draft(openai(*tools), "chains")
        returns = tools_of(draft)["find_note"]["returns"]
        assert list(returns) == ["ticket_id", "note"]
        assert "find_note_then_drop_ticket" in goals_of(draft)

    def test_what_was_told_feeds_nothing(self):
        """A result that is also an argument is no news, and comes last."""
        three = {"ticket_id": TEXT, "size": TEXT, "kind": TEXT}
        tools = [
            returning("touch_ticket", {"ticket_id": TEXT}, ticket_id=TEXT),
            returning("get_ticket", three, ticket_id=TEXT),
        ]
        draft = drafting.draft(openai(*tools), "chains")
        assert list(tools_of(draft)["get_ticket"]["returns"]) == ["size", "kind"]
        assert list(goals_of(draft)) == ["touch_ticket", "get_ticket"]

    def test_what_is_made_has_an_id_and_what_is_changed_a_receipt(self):
        tools = [
            function("create_ticket", "", message=TEXT),
            function("delete_ticket", "", reason=TEXT),
            function("show_ticket", "", ticket_id=TEXT),
        ]
        said = tools_of(drafting.draft(openai(*tools), "chains"))
        assert said["create_ticket"]["returns"] == {"ticket_id": "ticket_id"}
        assert said["delete_ticket"]["returns"] == {"receipt": "receipt_number"}

    def test_a_choice_feeds_nothing(self):
        level = {"enum": ["low", "high"]}
        tools = [
            returning("find_level", {"level": level, "size": TEXT}, owner=TEXT),
            returning("use_level", {"kind": TEXT}, level=level),
        ]
        assert len(drafting.draft(openai(*tools), "chains").domain["goals"]) == 2

    def test_an_answer_is_no_choice_if_it_can_be_helped(self):
        level = {"enum": ["low", "high"]}
        tool = returning("find_level", {"level": level, "size": TEXT}, owner=TEXT)
        (goal,) = drafting.draft(openai(tool), "chains").domain["goals"]
        assert goal["answer"] == "#0.size"
        assert all("the size" in text for text in goal["phrases"]["train"])

    def test_values_of_one_name_and_two_types(self, tmp_path):
        tools = [
            returning("find_seller", {"ticket_id": TEXT}, name=TEXT),
            function("rename_ticket", "", ticket_id=TEXT, name=TEXT),
        ]
        draft = drafting.draft(openai(*tools), "chains")
        goal = goals_of(draft)["find_seller_then_rename_ticket"]
        assert goal["constants"] == {"name": "seller_name", "name_2": "ticket_name"}
        assert faults(tmp_path, draft.domain) == []


def test_an_argument_named_code_has_another_name_here(tmp_path):
    draft = one("Check a coupon.", "check_coupon", code=TEXT)
    assert list(tools_of(draft)["check_coupon"]["arguments"]) == ["coupon_code"]
    assert any("code of check_coupon is called coupon_code" in x for x in draft.review)
    assert faults(tmp_path, draft.domain) == []


@pytest.mark.parametrize(
    "tool, returns",
    [
        (function("get_coupon_code", "", x=TEXT), ["result_code"]),
        (function("search_code", "", x=TEXT), ["result_code"]),
        (returning("find_coupon", {"code": TEXT, "by": TEXT}), ["coupon_code", "by"]),
    ],
)
def test_a_result_named_code_has_another_name_here(tmp_path, tool, returns):
    draft = drafting.draft(openai(tool), "one")
    (meaning,) = tools_of(draft).values()
    assert list(meaning["returns"]) == returns
    assert faults(tmp_path, draft.domain) == []


def test_notes_are_in_letters_that_can_be_written():
    draft = drafting.draft(openai(function("go", "", ["x"], x=TEXT, **HALF)), "go")
    assert any("go does without" in note for note in draft.review)
    "\n".join(draft.review).encode()
    assert draft.domain["review"] == draft.review


def test_more_arguments_than_there_is_room_for():
    draft = one(**{f"arg_{letter}": TEXT for letter in "abcde"})
    told = "\n".join(draft.review)
    assert "needs --config.sandbox.num_args=5" in told
    assert "needs --config.sandbox.num_constants=5" in told


def test_tools_that_say_the_same_are_told_apart(tmp_path):
    tools = [function(f"get_{x}", "Get it.", item=TEXT) for x in "abc"]
    draft = drafting.draft(openai(*tools), "same")
    assert faults(tmp_path, draft.domain) == []


# What no draft is made of.

BAD = {
    "a text": ("tools", "top level: not a list of tools; write OpenAI's array"),
    "an object": ({"functions": []}, "top level: not a list of tools; write"),
    "nothing": ([], "top level: no tools; write OpenAI's array"),
    "no tools": ({"tools": []}, "tools: no tools; write OpenAI's array"),
    "no tool": ([3], "tools[0]: not a tool; write an object with a name"),
    "no name": ([{"type": "function", "function": {}}], "tools[0].function: it has no"),
    "another kind": ([{"type": "web_search"}], "tools[0]: a tool of type 'web_search'"),
    "bad name": (openai(function("a.b")), "tools[0].function.name: 'a.b' is no name"),
    "long name": (openai(function("a" * 65)), "is no name; use letters, digits, _"),
    "twice": (
        openai(function("go"), function("go")),
        "tools[1]: 'go' is also tools[0]; keep one of the two",
    ),
    "one page": (
        {"tools": [], "nextCursor": "x"},
        "top level: the list goes on at its",
    ),
    "a domain": ({"tools": [], "goals": []}, "top level: a domain file already"),
}


@pytest.mark.parametrize("document, words", BAD.values(), ids=BAD)
def test_bad_list(document, words):
    with pytest.raises(domain_spec.DomainError) as caught:
        drafting.draft(document, "bad")
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


UNSUPPORTED = {
    "list": ({"type": "array", "items": TEXT}, "argument 'x': an array"),
    "object": ({"type": "object"}, "argument 'x': an object"),
    "union": (
        {"anyOf": [TEXT, {"type": "integer"}]},
        "argument 'x': a choice of types",
    ),
    "kinds": ({"type": ["string", "integer"]}, "argument 'x': a choice of types"),
    "fraction": ({"type": "number"}, "argument 'x': a number that is not whole"),
    "lost": ({"$ref": "#/$defs/No"}, "the reference '#/$defs/No' leads nowhere"),
    "endless": ({"$ref": "#/properties/x"}, "argument 'x'"),
    "no schema": (True, "argument 'x': True is no schema"),
    "no type": ({"type": {}}, "argument 'x': {} is no type"),
    "two lines": ({"type": "a\nb"}, "argument 'x': an a b is not supported"),
    "no enum": ({"enum": 5}, "argument 'x': 5 is no enum"),
    "no union": ({"type": 5, "anyOf": 5}, "argument 'x': 5 is no type"),
}


@pytest.mark.parametrize("schema, words", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_unsupported(schema, words):
    tools = [
        *SHOP,
        *openai(function("bad_one", x=schema), function("bad_two", x=schema)),
    ]
    with pytest.raises(domain_spec.DomainError) as caught:
        drafting.draft(tools, "shop")
    assert f"tools[5]: 'bad_one', {words}" in str(caught.value)
    assert str(caught.value).endswith("leave out: --skip=bad_one,bad_two")
    rest = drafting.draft(tools, "shop", skip=["bad_one", "bad_two"])
    assert list(tools_of(rest)) == list(tools_of(TestShop.draft))


def test_what_is_always_the_same_is_left_out():
    tool = function("go", "", a={"const": "v2"}, b={"enum": ["only"]}, c=TEXT)
    draft = drafting.draft(openai(tool), "go")
    assert list(tools_of(draft)["go"]["arguments"]) == ["c"]
    assert any("go does without a, b (optional, or always" in x for x in draft.review)


def test_what_need_not_be_given_may_be_of_any_type():
    tool = function("go", "", [], x={"type": "array"}, y={"type": "object"})
    null = function("go", "", x={"type": ["array", "null"]})
    for one_of in (tool, null):
        draft = drafting.draft(openai(one_of), "go")
        assert tools_of(draft)["go"]["arguments"] == {}


def test_without_a_list_of_what_is_required():
    """All is, but for what has a default; as servers write that infer their schemas."""
    tool = function("go", "", x={"type": "array", "default": []}, y=TEXT)
    del tool["parameters"]["required"]
    draft = drafting.draft(openai(tool), "go")
    assert list(tools_of(draft)["go"]["arguments"]) == ["y"]
    assert any("go does without x (optional" in note for note in draft.review)


def test_what_is_null_is_not_there():
    null = dict.fromkeys(("enum", "minimum", "anyOf", "description", "default"))
    filled_in = function("go", "", size={"type": "integer", **null}, x={**null})
    bare = function("go", "", size={"type": "integer"}, x={})
    made = [drafting.draft(openai(x), "go") for x in (filled_in, bare)]
    assert made[0] == made[1]


def test_results_of_odd_names(tmp_path):
    names = {"2nd line", "größe", "x" * 80, "", "id"}
    tool = returning("find_it", dict.fromkeys(names, TEXT), item=TEXT)
    nested = {"1": {"type": "object", "properties": {"id": TEXT}}}
    other = returning("get_it", nested, item=TEXT)
    for one_of in (tool, other):
        draft = drafting.draft(openai(one_of), "odd")
        assert faults(tmp_path, draft.domain) == []
    assert list(tools_of(draft)["get_it"]["returns"]) == ["_1_id"]


def test_skip_names_a_tool():
    with pytest.raises(
        domain_spec.DomainError, match="no tool is called cancel; known"
    ):
        drafting.draft(SHOP, "shop", skip=["cancel"])
    with pytest.raises(domain_spec.DomainError, match="no tools are left"):
        drafting.draft(SHOP[:1], "shop", skip=["find_customer"])


def test_skip_names_a_tool_whose_name_is_none_here():
    draft = drafting.draft([*SHOP, *openai(function("a.b"))], "shop", skip=["a.b"])
    assert list(tools_of(draft)) == list(tools_of(TestShop.draft))


@pytest.mark.parametrize(
    "required, words",
    [
        (["x", "y"], "`required` names 'y', which is no property"),
        (True, "`required` is not a list of names"),
    ],
)
def test_what_is_required_must_be_there(required, words):
    with pytest.raises(domain_spec.DomainError) as caught:
        drafting.draft(openai(function("go", "", required, x=TEXT)), "go")
    assert f"'go', {words}" in str(caught.value)


def test_a_pattern_is_told_as_it_is():
    pattern = r"^SKU-\d{5}\.[A-Z]$"
    tool = function("find_it", "Find it", sku={"type": "string", "pattern": pattern})
    draft = drafting.draft(openai(tool), "it")
    assert f"each of the form {pattern}" in draft.holes[0]
    assert f"each of the form {pattern}" in draft.domain["types"]["sku"]["values"][0]
    assert f"each of the form {pattern}'; write that" in _faults(draft.domain)[0]


def test_a_number_behind_a_name_is_not_in_its_values():
    room = {"type": "string", "enum": ["attic", "cellar"]}
    lamp = function("light_lamp", "Light a lamp", room=room)
    door = function("open_door", "Open a door", room=TEXT)
    types = drafting.draft(openai(lamp, door), "home").domain["types"]
    assert types["room_2"]["train"]["compose"][1] == ["room"]


def test_a_list_of_many_tools_says_what_room_they_need():
    def told(num):
        tools = (function(f"get_{word}") for word in WORDS[:num])
        return [x for x in drafting.draft(openai(*tools), "many").review if "num_" in x]

    most = types.Limits().num_tools
    assert not told(most)
    assert told(most + 1)[0].endswith(f"need --config.sandbox.num_tools={most + 1}")


# Any list of tools.

WORDS = sorted({x.split("_")[0] for v in synonyms.VERBS for x in v.words.split()})
WORDS += [*synonyms.SYNONYMS, "id", "code", "x", "by", "URL", "Größe"]
NAMES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map("_".join)
SAID = st.one_of(
    st.just(""),
    st.text(max_size=60),
    st.lists(st.sampled_from([*WORDS, "a", "the", "of", "{x}", '"', ".", ","])).map(
        " ".join
    ),
)
SCALARS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "description": SAID,
            "format": st.sampled_from(["date", "email", "uuid", "odd"]),
            "examples": st.lists(st.text(max_size=20), max_size=3),
            "pattern": st.just('^"\\d+$'),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("integer")},
        optional={
            "minimum": st.integers(-2000, 3000),
            "maximum": st.integers(-2000, 3000),
            "enum": st.lists(st.integers(-9, 3000), min_size=1, max_size=4),
        },
    ),
    st.fixed_dictionaries({"enum": st.lists(st.text(max_size=9), min_size=1)}),
    st.just({"type": "boolean"}),
)
ARGUMENTS = st.dictionaries(
    NAMES.filter(lambda x: domain_schema.NAME.fullmatch(x)), SCALARS, max_size=5
)
TOOLS = st.lists(
    st.builds(
        lambda name, said, properties, returns, effect: {
            "name": name,
            "description": said,
            "inputSchema": {"type": "object", "properties": properties},
            **({"outputSchema": {"properties": returns}} if returns else {}),
            **({"annotations": {"readOnlyHint": effect}} if effect is not None else {}),
        },
        st.one_of(NAMES, st.from_regex(domain_schema.NAME, fullmatch=True)).filter(
            lambda x: domain_schema.NAME.fullmatch(x)
        ),
        SAID,
        ARGUMENTS,
        ARGUMENTS,
        st.sampled_from([None, True, False]),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda tool: tool["name"],
)


@settings(max_examples=150, deadline=None)
@given(TOOLS)
def test_any_draft_that_is_filled_in_can_be_used(tools):
    draft = drafting.draft({"tools": tools}, "any")
    text = drafting.written(draft.domain)
    assert json.loads(text) == draft.domain
    found = _faults(draft.domain)
    assert len(found) == len(draft.holes)  # holes, and nothing else
    assert all(re.search("still says .FILL IN:", fault) for fault in found)
    assert _faults(filled(draft.domain)) == []


def _faults(domain):
    with domain_spec.collected() as found:
        domain_file.read(domain, ROOM)
    return found


@pytest.mark.parametrize(
    "name, description, phrase, effect",
    [
        ("get_x", "Retrieves the state.", "retrieve the state", False),
        ("cancel_x", "This tool cancels an order.", "cancel an order", True),
        ("close_x", "Use this to close a case. Be careful.", "close a case", True),
        ("f", "A function that searches flights", "search flights", False),
        ("f", "Allows you to delete e.g. a file", "delete e.g. a file", True),
        ("create_order", "Returns the new order.", "return the new order", True),
        ("order_status", "State of an order", "get state of an order", False),
        ("order_cancel", "", "cancel order", True),
        ("bookRoom", "", "book room", True),
        ("book_title", "Title of a book", "get title of a book", False),
        ("weather", "", "get weather", False),
        ("get_NASA", "NASA pictures", "get NASA pictures", False),
        # Verbs that we do not know, and what only looks like one.
        ("press_key", "Presses a key", "press a key", False),
        ("poke", "Poke this user.", "poke this user", False),
        ("weather", "Weather of the day", "get weather of the day", False),
        ("orders", "All the orders", "get all the orders", False),
        ("heat", "°C of a city", "get °C of a city", False),
        ("turn_on", "Turn on the light", "turn on the light", True),
        ("find_user", "Look up a user", "find a user", False),
        ("play_it", "🎵 Play music", "play music", True),
        ("f", "Recursively search for files", "search for files", False),
        ("f", "Daily schedule of a team", "get daily schedule of a team", False),
        ("f", "Given a city, returns the weather", "return the weather", False),
        ("tabs", "List, create or close a tab", "list, create or close a tab", False),
    ],
)
def test_what_a_tool_does(name, description, phrase, effect):
    does = wording.doing(name, description)
    assert (does.phrase, does.effect) == (phrase, effect)


@pytest.mark.parametrize(
    "name, description, words, never",
    [
        ("press_key", "Press a key", "Use it to press a key", "Get a key"),
        ("search_x", "Search for files", "Find documents", "Find for documents"),
        ("tabs", "List, create or close", "Gather, create or close", "Gather create"),
    ],
)
def test_other_descriptions_are_english(name, description, words, never):
    said = wording.descriptions(wording.doing(name, description))["train"]
    assert words in said and never not in said


def test_other_names_do_not_turn_the_meaning_round():
    does = wording.doing("return_order", "Start a return of an order")
    names = wording.names("return_order", does)
    assert "open_return_order" in names["train"]
    assert not {"open_order", "create_order"} & {*names["train"]}
    does = wording.doing("press_key", "Press a key")
    assert wording.names("press_key", does)["train"] == [
        "press_key_tool",
        "do_press_key",
    ]


@pytest.mark.parametrize(
    "name, parts",
    [
        ("getOrderStatus", ["get", "order", "status"]),
        ("get_order-status", ["get", "order", "status"]),
        ("HTTPRequest2", ["http", "request2"]),
        ("_", ["it"]),
    ],
)
def test_words_of_a_name(name, parts):
    assert wording.words(name) == parts
