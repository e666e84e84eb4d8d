"""Reading lists of tools: what is accepted, and the errors for what is not."""

import pytest

from openagent_jax.drafting import drafting
from openagent_jax.environments.tools.worlds import domain_spec
from tests.drafting.examples import (
    SHOP,
    TEXT,
    faults,
    function,
    openai,
    returning,
    tools_of,
)

BAD = {
    "a text": ("tools", "top level: not a list of tools; write OpenAI's array"),
    "an object": ({"functions": []}, "top level: not a list of tools; write"),
    "nothing": ([], "top level: no tools; write OpenAI's array"),
    "no tools": ({"tools": []}, "tools: no tools; write OpenAI's array"),
    "no tool": ([3], "tools[0]: not a tool; write an object with a name"),
    "no name": (
        [{"type": "function", "function": {}}],
        "tools[0].function: the tool has no",
    ),
    "another kind": ([{"type": "web_search"}], "tools[0]: a tool of type 'web_search'"),
    "bad name": (
        openai(function("a.b")),
        "tools[0].function.name: 'a.b' is not a valid name",
    ),
    "long name": (openai(function("a" * 65)), "is not a valid name; use letters"),
    "twice": (
        openai(function("go"), function("go")),
        "tools[1]: 'go' is also tools[0]; keep one of the two",
    ),
    "one page": (
        {"tools": [], "nextCursor": "x"},
        "top level: the list continues at its",
    ),
    "a domain": (
        {"tools": [], "goals": []},
        "top level: this is a domain file already",
    ),
}


@pytest.mark.parametrize("document, words", BAD.values(), ids=BAD)
def test_bad_list(document, words):
    with pytest.raises(domain_spec.DomainError) as caught:
        drafting.draft(document, "bad")
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


UNSUPPORTED = {
    "list": (
        {"type": "array", "items": TEXT},
        "argument 'x': the type 'array' is not supported",
    ),
    "object": ({"type": "object"}, "argument 'x': the type 'object' is not supported"),
    "union": (
        {"anyOf": [TEXT, {"type": "integer"}]},
        "argument 'x': a union of types",
    ),
    "kinds": ({"type": ["string", "integer"]}, "argument 'x': a union of types"),
    "fraction": ({"type": "number"}, "argument 'x': fractional numbers are not"),
    "lost": ({"$ref": "#/$defs/No"}, "the reference '#/$defs/No' leads nowhere"),
    "endless": ({"$ref": "#/properties/x"}, "argument 'x'"),
    "no schema": (True, "argument 'x': True is not a schema"),
    "no type": ({"type": {}}, "argument 'x': {} is not a valid type"),
    "two lines": ({"type": "a\nb"}, "argument 'x': the type 'a\\nb' is"),
    "no enum": ({"enum": 5}, "argument 'x': 5 is not a valid enum"),
    "no union": ({"type": 5, "anyOf": 5}, "argument 'x': 5 is not a valid type"),
}


@pytest.mark.parametrize("schema, words", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_unsupported_argument(schema, words):
    tools = [
        *SHOP,
        *openai(function("bad_one", x=schema), function("bad_two", x=schema)),
    ]
    with pytest.raises(domain_spec.DomainError) as caught:
        drafting.draft(tools, "shop")
    assert f"tools[5]: 'bad_one', {words}" in str(caught.value)
    assert str(caught.value).endswith("leave the tool out: --skip=bad_one,bad_two")
    rest = drafting.draft(tools, "shop", skip=["bad_one", "bad_two"])
    assert list(tools_of(rest)) == list(tools_of(drafting.draft(SHOP, "shop")))


def test_required_arguments_with_one_value_are_arguments(tmp_path):
    """Their document says that they are required, so calls have to give them."""
    tool = function("go", "", a={"const": "v2"}, b={"enum": ["only"]}, c=TEXT)
    draft = drafting.draft(openai(tool), "go")
    assert list(tools_of(draft)["go"]["arguments"]) == ["a", "b", "c"]
    assert draft.domain["types"]["a"] == {"kind": "enum", "values": ["v2"]}
    assert draft.holes == [] and faults(tmp_path, draft.domain) == []


def test_optional_arguments_may_have_any_type():
    tool = function("go", "", [], x={"type": "array"}, y={"type": "object"})
    null = function("go", "", x={"type": ["array", "null"]})
    for one_of in (tool, null):
        draft = drafting.draft(openai(one_of), "go")
        assert tools_of(draft)["go"]["arguments"] == {}


def test_without_required_arguments_with_defaults_are_optional():
    """Servers that infer schemas from signatures write lists like this."""
    tool = function("go", "", x={"type": "array", "default": []}, y=TEXT)
    del tool["parameters"]["required"]
    draft = drafting.draft(openai(tool), "go")
    assert list(tools_of(draft)["go"]["arguments"]) == ["y"]
    assert any("left out of go: x (optional" in note for note in draft.review)


def test_null_means_absent():
    null = dict.fromkeys(("enum", "minimum", "anyOf", "description", "default"))
    filled_in = function("go", "", size={"type": "integer", **null}, x={**null})
    bare = function("go", "", size={"type": "integer"}, x={})
    made = [drafting.draft(openai(x), "go") for x in (filled_in, bare)]
    shown = [draft.domain["tools"][0].pop("function") for draft in made]
    assert shown == [{**x, "description": "go"} for x in (filled_in, bare)]
    assert made[0] == made[1]


def test_results_with_odd_names(tmp_path):
    names = {"2nd line", "größe", "x" * 80, "", "id"}
    tool = returning("find_it", dict.fromkeys(names, TEXT), item=TEXT)
    nested = {"1": {"type": "object", "properties": {"id": TEXT}}}
    other = returning("get_it", nested, item=TEXT)
    for one_of in (tool, other):
        draft = drafting.draft(openai(one_of), "odd")
        assert faults(tmp_path, draft.domain) == []
    assert list(tools_of(draft)["get_it"]["returns"]) == ["_1_id"]


def test_skip_has_to_name_a_tool():
    with pytest.raises(
        domain_spec.DomainError, match="no tool is called cancel; known"
    ):
        drafting.draft(SHOP, "shop", skip=["cancel"])
    with pytest.raises(domain_spec.DomainError, match="no tools are left"):
        drafting.draft(SHOP[:1], "shop", skip=["find_customer"])


def test_skip_of_a_tool_with_an_invalid_name():
    draft = drafting.draft([*SHOP, *openai(function("a.b"))], "shop", skip=["a.b"])
    assert list(tools_of(draft)) == list(tools_of(drafting.draft(SHOP, "shop")))


@pytest.mark.parametrize(
    "required, words",
    [
        (["x", "y"], "`required` names 'y', which is not a property"),
        (True, "`required` is not a list of names"),
    ],
)
def test_required_names_properties(required, words):
    with pytest.raises(domain_spec.DomainError) as caught:
        drafting.draft(openai(function("go", "", required, x=TEXT)), "go")
    assert f"'go', {words}" in str(caught.value)
