"""Reading lists of tools: what is accepted, and the errors for what is not."""

import dataclasses
import json

import pytest

from openagent_jax.domains import domain_file, domain_spec
from openagent_jax.drafting import drafting
from tests.drafting.examples import (
    ROOM,
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
    "object": (
        {"type": "object"},
        "argument 'x': an object without `properties`, which may hold anything",
    ),
    "object in a list": (
        {"type": "array", "items": {"type": "object"}},
        "argument 'x.0': an object without `properties`, which may hold anything",
    ),
    "union": (
        {"anyOf": [{"type": "array"}, {"type": "object"}]},
        "argument 'x': a union of types",
    ),
    "all of several": ({"allOf": [TEXT, {"maxLength": 3}]}, "argument 'x': a union of"),
    "kinds": ({"type": ["array", "object"]}, "argument 'x': a union of types"),
    "list of anything": (
        {"type": "array"},
        "argument 'x': an array without `items`, which say what it holds",
    ),
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


UNIONS = {
    "any of": ({"anyOf": [{"type": "array"}, {"type": "integer"}, TEXT]}, "integer", 3),
    "one of": ({"oneOf": [{"type": "object"}, TEXT]}, "string", 2),
    "kinds": ({"type": ["object", "number", "string"]}, "number", 3),
    "reference": (
        {"anyOf": [{"$ref": "#/$defs/No"}, {"type": "boolean"}]},
        "boolean",
        2,
    ),
}


@pytest.mark.parametrize("required", [["x"], []], ids=["required", "optional"])
@pytest.mark.parametrize("schema, kind, num", UNIONS.values(), ids=UNIONS)
def test_the_first_scalar_of_a_union_is_taken(tmp_path, schema, kind, num, required):
    tool = function("go", "", required, x=schema)
    tool["parameters"]["$defs"] = {"No": {"type": "object"}}
    draft = drafting.draft(openai(tool), "go")
    (name,) = tools_of(draft)["go"]["arguments"].values()
    made = draft.domain["types"][name]
    wanted = {"integer": "number", "number": "number", "boolean": "enum"}
    assert made["kind"] == wanted.get(kind, "entity")
    assert made.get("decimals", 0) == (2 if kind == "number" else 0)
    assert (
        f"tools[0].x-openagent.arguments: go, argument 'x' is of type {kind}, the "
        f"first scalar of a union of {num} types"
    ) in draft.review
    assert draft.holes == [] and faults(tmp_path, draft.domain) == []


def test_a_union_that_refers_to_itself_ends():
    loop = {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "array", "items": TEXT}]}
    tool = function("go", "", x=loop)
    tool["parameters"]["$defs"] = {"Loop": loop}
    made = drafting.draft(openai(tool), "go")
    assert [*tools_of(made)["go"]["arguments"]] == ["x.0", "x.1"]
    (note,) = (x for x in made.review if x.startswith("tools[0].x-openagent.arguments"))
    assert note.endswith("go, argument 'x' is the first array of a union")


def test_a_union_of_choices_is_one_choice(tmp_path):
    """So zod writes unions of literals."""
    union = {"anyOf": [{"const": "up"}, {"enum": ["down", "left"]}, {"const": "off"}]}
    draft = drafting.draft(openai(function("go", "", x=union)), "go")
    made = draft.domain["types"]["x"]
    assert made == {"kind": "enum", "values": ["up", "down", "left", "off"]}
    assert not any("union" in note for note in draft.review)
    assert faults(tmp_path, draft.domain) == []


def test_types_that_are_not_those_of_json_schema(tmp_path):
    """Lists of Python functions have them; agents see the names of JSON Schema."""
    size = {"type": "float", "default": {"type": "float"}}
    inner = {"type": "dict", "properties": {"default": {"type": "double"}}}
    tool = function("go", "", ["size"], size=size, inner=inner)
    tool["parameters"]["type"] = "dict"
    draft = drafting.draft(openai(tool), "go")
    assert draft.domain["types"]["size"]["decimals"] == 2  # though `size` may be whole
    shown = draft.domain["tools"][0]["function"]["parameters"]
    assert shown["type"] == "object"
    assert shown["properties"] == {
        "size": {"type": "number", "default": {"type": "float"}},
        "inner": {"type": "object", "properties": {"default": {"type": "number"}}},
    }
    note = "tools: types have the names of JSON Schema: object for dict, "
    assert note + "number for float, number for double" in draft.review
    assert faults(tmp_path, draft.domain) == []
    assert not any("JSON Schema" in x for x in drafting.draft(SHOP, "shop").review)


def test_many_required_arguments_are_drafted_and_check_names_the_flag(tmp_path):
    tool = function("go", "", **{f"arg_{x}": TEXT for x in "abcdefgh"})
    draft = drafting.draft(openai(tool), "go")
    assert len(tools_of(draft)["go"]["arguments"]) == 8
    assert any("go needs --config.sandbox.num_args=8" in x for x in draft.review)
    (tmp_path / "go.json").write_text(json.dumps(draft.domain))
    found = domain_file.faults(tmp_path / "go.json")
    at = "tools[0].x-openagent.arguments"
    message = "8 entries, but the limit is 3; remove some or raise sandbox.num_args"
    assert f"{at}: {message}" in found
    room = dataclasses.replace(ROOM, num_args=8, num_constants=8)
    assert domain_file.faults(tmp_path / "go.json", room) == []


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
    assert list(tools_of(draft)["get_it"]["returns"]) == ["_1.id"]


PLACE = "tools[0].function.parameters"


@pytest.mark.parametrize(
    "schema, problem",
    [
        (
            {"$ref": "#/$defs/No"},
            "properties.x: the reference '#/$defs/No' leads nowhere; add what it "
            "names, or write the schema in its place",
        ),
        (
            {"$ref": "#/properties/x"},
            "properties.x: it refers to itself, #/properties/x -> #/properties/x; "
            "write what it stands for",
        ),
        (
            {"type": "array", "items": {"anyOf": [{"$ref": "#/properties/y"}]}},
            "properties.x.items.anyOf[0]: the reference '#/properties/y' leads "
            "nowhere; add what it names, or write the schema in its place",
        ),
        (
            {"enum": [f"v{i}" for i in range(10_000)]},
            "properties.x: an enum of 10,000 values, which every agent would have to "
            "read; write at most 500, or a string with examples",
        ),
    ],
)
@pytest.mark.parametrize("required", [["x"], []], ids=["required", "optional"])
def test_faults_of_schemas(schema, problem, required):
    """Agents read the schema, so it counts for optional arguments too."""
    with pytest.raises(domain_spec.DomainError) as caught:
        drafting.draft(openai(function("go", "", required, x=schema)), "go")
    (fault,) = caught.value.faults
    assert fault == f"{PLACE}.{problem}, or leave the tool out: --skip=go"


def test_all_faults_of_a_list_are_named_at_once():
    loop = {"type": "object", "properties": {"next": {"$ref": "#/properties/node"}}}
    tools = openai(
        function("go", "", a={"$ref": "#/$defs/No"}, b={"type": "array"}, c=TEXT),
        function("find", "", c=TEXT),
        function("tree", "", node=loop),
        function("pick", "", [], c={"enum": [*range(501)]}),
    )
    with pytest.raises(domain_spec.DomainError) as caught:
        drafting.draft(tools, "all")
    lines = caught.value.faults
    assert [line.split(": ")[0] for line in lines] == [
        f"{PLACE}.properties.a",
        "tools[0]",
        "tools[2]",
        "tools[3].function.parameters.properties.c",
    ]
    assert lines[0].endswith("or leave the tool out: --skip=go,tree,pick")
    assert "'go', argument 'b': an array without `items`" in lines[1]
    assert all(line.endswith("leave the tool out") for line in lines[1:])
    bare = [3, {"type": "web_search"}, *openai(function("go")), *openai(function("go"))]
    with pytest.raises(domain_spec.DomainError) as caught:
        drafting.draft(bare, "all")
    places = [line.split(": ")[0] for line in caught.value.faults]
    assert places == ["tools[0]", "tools[1]", "tools[3]"]


def test_two_hundred_tools(tmp_path):
    """The draft is written; its review and `check` name the limit and its flag."""
    tools = [function(f"get_part_{i}", f"Get part {i}.", a=TEXT) for i in range(200)]
    draft = drafting.draft(openai(*tools), "many")
    assert "tools: 200 tools need --config.sandbox.num_tools=200" in draft.review
    (tmp_path / "many.json").write_text(json.dumps(draft.domain))
    (fault,) = domain_file.faults(tmp_path / "many.json")
    assert fault == (
        "tools: 200 entries, but the limit is 16; remove some or raise "
        "sandbox.num_tools"
    )
    room = dataclasses.replace(ROOM, num_tools=200)
    assert domain_file.faults(tmp_path / "many.json", room) == []


def test_a_result_that_refers_to_itself_ends():
    node = {f"x{i}": {"$ref": "#/$defs/Node"} for i in range(20)}
    tool = returning("find_it", {"root": {"$ref": "#/$defs/Node"}}, item=TEXT)
    tool["outputSchema"]["$defs"] = {"Node": {"type": "object", "properties": node}}
    assert drafting.draft(openai(tool), "nodes").domain["tools"]


def test_names_that_agents_cannot_call_are_replaced(tmp_path):
    names = [
        "files.read",
        "files/read",
        "files_read",
        "get all files",
        "get_" + 70 * "x",
    ]
    tools = [function(name, f"Do {i} things.", a=TEXT) for i, name in enumerate(names)]
    draft = drafting.draft(openai(*tools), "files")
    assert faults(tmp_path, draft.domain) == []
    made = tools_of(draft)
    assert list(made) == [
        "files_read_2",
        "files_read_3",
        "files_read",
        "get_all_files",
        "get_" + 60 * "x",
    ]
    listed = [meaning.get("listed_as") for meaning in made.values()]
    assert listed == [*names[:2], None, *names[3:]]
    assert any(
        "files.read is called files_read_2; agents see" in x for x in draft.review
    )
    steps = {step["tool"] for goal in draft.domain["goals"] for step in goal["steps"]}
    assert steps <= {*made} and "files.read" not in str(draft.domain["goals"])
    functions = [tool["function"] for tool in draft.domain["tools"]]
    assert [function["name"] for function in functions] == list(made)
    spec = domain_file.load(tmp_path / "mine.json", ROOM)
    assert [tool.listed_as for tool in spec.tools] == listed
    for skipped in ("files.read", "files_read_2"):  # either name
        rest = drafting.draft(openai(*tools), "files", [skipped])
        assert list(tools_of(rest)) == list(made)[1:]


def test_skip_has_to_name_a_tool():
    with pytest.raises(
        domain_spec.DomainError,
        match="no tool is called cancel; did you mean 'cancelOrder'",
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
