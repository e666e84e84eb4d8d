"""Whole drafts: what is guessed and noted, and that all of them can be used."""

import json
import re

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openagent_jax.domains import domain_file, domain_schema, domain_spec
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import drafting, json_format
from openagent_jax.text import synonyms
from tests.drafting.examples import (
    MCP,
    SHOP,
    TEXT,
    draft_one,
    faults,
    filled,
    function,
    goals_of,
    openai,
    read_faults,
    returning,
    tools_of,
)


class TestShop:
    draft = drafting.draft(SHOP, "shop")

    def test_arguments_and_results(self):
        tools = {
            name: (meaning["arguments"], meaning["returns"])
            for name, meaning in tools_of(self.draft).items()
        }
        assert tools == {
            "find_customer": ({"email": "email"}, {"customer_id": "customer_id"}),
            "list_orders": (
                {"customer_id": "customer_id", "limit": "limit"},
                {"order_id": "order_id"},
            ),
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

    def test_effects(self):
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
        # A reason is not a result that a tool finds.
        ends = [g for g in goals if g.endswith("cancelOrder")]
        assert all("reason" in goals[name]["constants"] for name in ends)

    def test_synonyms(self):
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

    def test_no_holes_and_no_faults(self, tmp_path):
        assert self.draft.holes == []
        assert faults(tmp_path, self.draft.domain) == []

    def test_guesses_are_listed_with_their_places(self):
        notes = "\n".join(self.draft.review)
        assert "judging by their words: cancelOrder" in notes
        assert "tools[4].x-openagent.returns: check_stock returns stock" in notes
        assert "types.email:" in notes and "types.reason" not in notes
        assert len(self.draft.domain["review"]) == len(self.draft.review)

    def test_bare_functions_give_the_same_draft(self):
        bare = {"tools": [tool["function"] for tool in SHOP]}
        assert drafting.draft(bare, "shop") == self.draft

    def test_the_training_half_can_be_split_for_development(self, tmp_path):
        file = tmp_path / "mine.json"
        file.write_text(json_format.dumps(self.draft.domain))
        part = domain_file.load(f"{file}:dev")
        assert len(part.tools) == 5


ISSUES = {"list": {"id": "issue_id", "title": "issue_title"}}
ISSUES |= {"at_least": 1, "at_most": 3}


class TestProtocol:
    """The result of MCP's tools/list."""

    draft = drafting.draft(MCP, "issues")

    def test_output_schemas_and_hints_are_used(self):
        """A list is a list; its length is not returned beside it."""
        tools = {
            name: (meaning["arguments"], meaning["returns"], meaning.get("effect"))
            for name, meaning in tools_of(self.draft).items()
        }
        assert tools == {
            "search_issues": (
                {"repository": "repository", "state": "issue_state"},
                {"issues": ISSUES},
                None,
            ),
            "label_issue": (
                {"issue_id": "issue_id", "urgent": "boolean", "points": "points"},
                {"receipt": "receipt_number"},
                True,
            ),
        }
        assert not any("judging by their words" in note for note in self.draft.review)

    def test_values(self):
        kinds = self.draft.domain["types"]
        assert kinds["issue_state"] == {"kind": "enum", "values": ["open", "closed"]}
        assert kinds["boolean"] == {"kind": "enum", "values": [True, False]}
        assert kinds["points"] == {"kind": "number", "minimum": 1, "maximum": 13}

    def test_optional_arguments_are_left_out_with_a_note(self):
        note = "left out of search_issues: labels, since (optional); agents see them"
        assert any(note in x for x in self.draft.review)

    def test_a_result_is_an_argument_of_another_tool(self):
        goal = goals_of(self.draft)["search_issues_then_label_issue"]
        assert goal["steps"][1]["arguments"]["issue_id"] == "#0.issues.0.id"
        assert goal["answer"] == "done"

    def test_a_full_server_response_is_accepted(self):
        sent = {"jsonrpc": "2.0", "id": 1, "result": MCP}
        assert drafting.draft(sent, "issues") == self.draft

    def test_no_holes_and_no_faults(self, tmp_path):
        assert self.draft.holes == []
        assert faults(tmp_path, self.draft.domain) == []


def test_notes_can_be_encoded():
    odd = {'say "hi"\n\\': TEXT}
    draft = drafting.draft(openai(function("go", "", ["x"], x=TEXT, **odd)), "go")
    assert any("of go is renamed to say_hi" in note for note in draft.review)
    "\n".join(draft.review).encode()
    assert draft.domain["review"] == draft.review


def test_arguments_beyond_the_limit_are_noted():
    draft = draft_one(**{f"arg_{letter}": TEXT for letter in "abcde"})
    notes = "\n".join(draft.review)
    assert "needs --config.sandbox.num_args=5" in notes
    assert "needs --config.sandbox.num_constants=5" in notes


def test_functions_are_kept_word_for_word():
    described = '  Moves it.\n\nSay "now" for C:\\now.  '
    days = {"type": "integer", "minimum": 1, "maximum": 7, "description": "how long"}
    where = {"enum": ["here", "there"], "title": "Where"}
    openai_tool = function("move_it", described, ["where"], where=where, days=days)
    openai_tool |= {"strict": False, "returns": {"type": "string"}}
    words = {"name": "shift_it", "description": "Shift it."}
    anthropic = openai_tool | words
    anthropic = {"input_schema": anthropic.pop("parameters"), **anthropic}
    draft = drafting.draft([*openai(openai_tool), anthropic], "moves")
    one, two = (tool["function"] for tool in draft.domain["tools"])
    assert json.dumps(one) == json.dumps(openai_tool)
    del openai_tool["returns"]  # Anthropic's tools have no such key
    assert two == openai_tool | words
    assert read_faults(draft.domain) == []


def test_what_a_document_says_beside_the_name_tells_tools_apart(tmp_path):
    """Goals whose request another tool would answer as well are left out."""
    apart = function("get_d", "Get it.", thing=TEXT)
    tools = [function(f"get_{x}", "Get it. Fast.", item=TEXT) for x in "abc"]
    draft = drafting.draft(openai(*tools, apart), "same")
    assert faults(tmp_path, draft.domain) == []
    assert [*goals_of(draft)] == ["get_d"]
    described = [x["function"]["description"] for x in draft.domain["tools"]]
    assert described == ["Get it. Fast."] * 3 + ["Get it."]
    (note,) = (x for x in draft.review if x.startswith("goals:"))
    assert note.startswith("goals: none with get_a, get_b, get_c: their documents diff")
    text = json.dumps(draft.domain["goals"])
    assert not re.search("get_[abc]", text + json.dumps(described))
    with pytest.raises(domain_spec.DomainError, match="^tools: no goal can be drafted"):
        drafting.draft(openai(*tools), "same")


@pytest.mark.parametrize("has_results", [True, False])
def test_equal_requests_are_told_apart_by_results(tmp_path, has_results):
    """Only by those of the list: guessed ones repeat the name of the tool."""
    described = {"hour": "A lot.", "price": "A little."}
    tools = [
        returning(f"get_{x}", {f"late_{x}": TEXT} if has_results else {}, item=TEXT)
        for x in described
    ]
    for tool, more in zip(tools, described.values(), strict=True):
        tool["description"] = f"Get it. {more}"
    other = function("find_town", "Find a town.", name=TEXT)
    draft = drafting.draft(openai(*tools, other), "same")
    assert faults(tmp_path, draft.domain) == []
    assert len(goals_of(draft)) == (3 if has_results else 1)
    if has_results:
        first = goals_of(draft)["get_hour"]["phrases"]["train"][0]
        assert first == "Please get it with item {item} and tell me the late hour."
    else:
        assert any("requests would read the same" in note for note in draft.review)


def test_tools_beyond_the_limit_are_noted():
    def notes(num):
        tools = (function(f"get_{word}") for word in WORDS[:num])
        return [x for x in drafting.draft(openai(*tools), "many").review if "num_" in x]

    most = Limits().num_tools
    assert not notes(most)
    assert notes(most + 1)[0].endswith(f"need --config.sandbox.num_tools={most + 1}")


WORDS = sorted({x.split("_")[0] for v in synonyms.VERBS for x in v.words.split()})
WORDS += [*synonyms.NOUNS, "id", "code", "x", "by", "URL", "Größe"]
NAMES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map("_".join)
SENTENCES = st.one_of(
    st.just(""),
    st.text(max_size=60),
    st.lists(st.sampled_from([*WORDS, "a", "the", "of", "{x}", '"', ".", ","])).map(
        " ".join
    ),
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SHORT = st.text(max_size=9)
SCALARS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "description": SENTENCES,
            "format": st.sampled_from(["date", "email", "uuid", "odd"]),
            "examples": st.lists(st.text(max_size=20), max_size=3),
            "pattern": st.sampled_from(
                ['^"\\d+$', "^[A-Z]{2}-\\d{3}$", "^(?!x)[a-z]+$", "^(a|b)$", "^z+"]
            ),
            "minLength": st.integers(0, 9),
            "maxLength": st.integers(2, 70),
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
    st.fixed_dictionaries(
        {"type": st.sampled_from(["number", "float"])},
        optional={
            "minimum": FLOATS | st.integers(),
            "exclusiveMinimum": st.booleans() | FLOATS,
            "maximum": FLOATS,
            "exclusiveMaximum": FLOATS | st.integers(-9, 9),
            "multipleOf": st.sampled_from([0.01, 0.25, 1, 10, 1e-9, 0, "x"]),
            "description": SENTENCES,
        },
    ),
    st.fixed_dictionaries({"enum": st.lists(st.text(max_size=9), min_size=1)}),
    st.fixed_dictionaries(
        {
            "enum": st.lists(
                st.none() | st.booleans() | st.integers() | FLOATS | SHORT,
                min_size=1,
                max_size=4,
            )
        }
    ),
    st.just({"type": "boolean"}),
    st.just({"anyOf": [{"type": "array"}, {"type": "number"}, TEXT]}),
)
ARGUMENTS = st.dictionaries(
    NAMES.filter(lambda x: domain_schema.NAME.fullmatch(x))
    | st.text("ab._[] ~é", min_size=1, max_size=5),
    SCALARS,
    max_size=5,
)
TOOLS = st.lists(
    st.builds(
        lambda name, description, properties, returns, effect, num: {
            "name": name,
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                **({"required": [*properties][:num]} if num is not None else {}),
            },
            **({"outputSchema": {"properties": returns}} if returns else {}),
            **({"annotations": {"readOnlyHint": effect}} if effect is not None else {}),
        },
        st.one_of(NAMES, st.from_regex(domain_schema.NAME, fullmatch=True)).filter(
            lambda x: domain_schema.NAME.fullmatch(x)
        ),
        SENTENCES,
        ARGUMENTS,
        ARGUMENTS,
        st.sampled_from([None, True, False]),
        st.none() | st.integers(0, 5),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda tool: tool["name"],
)


NARROWED = [
    {"name": "abort", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "A", "inputSchema": {"type": "object", "properties": {}}},
    {
        "name": "activate",
        "inputSchema": {"type": "object", "properties": {}},
        "outputSchema": {"properties": {"abort": {"enum": ["'"]}}},
    },
    {
        "name": "accept",
        "inputSchema": {
            "type": "object",
            "properties": {"abort": {"type": "string"}, "a": {"enum": ['"', "00"]}},
        },
    },
]


@settings(max_examples=150, deadline=None)
@hypothesis.example(NARROWED)
@given(TOOLS)
def test_any_draft_can_be_used_once_it_is_filled_in(tools):
    try:
        draft = drafting.draft({"tools": tools}, "any")
    except domain_spec.DomainError as error:
        assert str(error).startswith("tools: no goal can be drafted: ") or (
            "so that no value fits; correct one of them" in str(error)
        )
        hypothesis.reject()
    text = json_format.dumps(draft.domain)
    assert json.loads(text) == draft.domain
    problems = read_faults(draft.domain)
    assert len(problems) == len(draft.holes)  # holes, and nothing else
    assert all(re.search("still says .FILL IN:", fault) for fault in problems)
    # What fills them in here does not know of patterns and lengths.
    holes = {re.split(r"[.\[:]", hole)[1] for hole in draft.holes}
    for fault in read_faults(filled(draft.domain)):
        assert fault.split(": ")[0].removeprefix("types.") in holes
        assert fault.endswith("; write values that fit")
