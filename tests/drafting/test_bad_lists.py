"""Lists with faults: each is named with its place and a remedy, and none crashes."""

import copy
import json

import pytest

from openagent_jax.domains import domain_file
from openagent_jax.domains.domain_spec import DomainError
from openagent_jax.drafting import drafting, json_format
from tests.drafting import real_lists

TEXT = {"type": "string"}
AT = "tools[0].inputSchema.properties.x: "
ARGUMENT = "tools[0]: 'get_lot', argument 'x'"


def tool(x, **more):
    schema = {"type": "object", "properties": {"x": x}, "required": ["x"]}
    made = {"name": "get_lot", "description": "Find a lot of honey."}
    return {**made, "inputSchema": schema, **more}


def written(folder, content):
    file = folder / "tools.json"
    is_raw = isinstance(content, bytes)
    file.write_bytes(content if is_raw else json.dumps(content).encode())
    return file


def faults(folder, content):
    """Return the faults for which a list is refused; none if it is drafted."""
    try:
        drafting.draft(domain_file.read_json(written(folder, content)), "mine")
    except DomainError as error:
        return error.faults
    return ()


SELF = {"type": "object", "properties": {"x": {"$ref": "#/$defs/N"}}, "required": ["x"]}
NODES = {**SELF, "$defs": {"N": SELF}}
LISTS = {"type": "array", "items": {"$ref": "#/properties/x"}}
PAIR = {"type": "array", "prefixItems": [TEXT, TEXT]}
WRONG = {
    "itself": (tool({"$ref": "#/properties/x"}), f"{AT}it refers to itself, "),
    "itself, required": (
        {"name": "get_lot", "inputSchema": NODES},
        "tools[0]: 'get_lot', argument 'x.x.x' refers to itself, and requires that",
    ),
    "itself, in a list": (
        tool(LISTS),
        "tools[0]: 'get_lot', argument 'x.0.0' refers to itself, and requires that",
    ),
    "nowhere": (tool({"$ref": "#/$defs/No"}), f"{AT}the reference '#/$defs/No' leads"),
    "elsewhere": (
        tool({"$ref": "https://a.b/c"}),
        f"{AT}the reference 'https://a.b/c'",
    ),
    "choices": (
        tool({"enum": [f"v{i}" for i in range(10_000)]}),
        f"{AT}an enum of 10,",
    ),
    "no items": (tool({"type": "array"}), f"{ARGUMENT}: an array without `items`, whi"),
    "a pair": (tool(PAIR), f"{ARGUMENT}: an array without one schema for its `items`;"),
    "bounds": (tool({"minimum": 9, "maximum": 3}), f"{AT}minimum 9 is above maximum 3"),
    "lengths": (
        tool({"minLength": 9, "maxLength": 3}),
        f"{AT}minLength 9 is above max",
    ),
    "NaN": (
        tool({"type": "number", "minimum": float("nan")}),
        "tools[0].inputSchema.properties.x.minimum: NaN is not a number in JSON; write",
    ),
    "infinite": (
        tool({"type": "number", "default": float("inf")}),
        "tools[0].inputSchema.properties.x.default: Infinity is not a number in JSON; ",
    ),
    "half a character": (
        tool(TEXT, description="bad \ud800"),
        "tools[0].description: 'bad \\ud800' contains half of a surrogate pair;",
    ),
    "a key with half a character": (
        tool({**TEXT, "\ud800": 1}),
        "tools[0].inputSchema.properties.x: '\\ud800' contains half of a surrogate ",
    ),
    "type": (tool({"type": "strnig"}), f"{ARGUMENT}: the type 'strnig' is not suppor"),
    "no schema": (tool(True), f"{ARGUMENT}: True is not a schema; change the schema, "),
    "anything": (
        tool({"type": "object", "additionalProperties": TEXT}),
        f"{ARGUMENT}: an object without `properties`, which may hold anything; write",
    ),
    "properties": (
        {"name": "get_lot", "inputSchema": {"properties": []}},
        "tools[0]: 'get_lot', `properties` is not an object, such as {}; change the",
    ),
    "no name": ({"name": " "}, "tools[0]: the tool has no name; add one"),
    "a number": (
        {"name": "a", "description": 5},
        "tools[0].description: 5 is not a text;",
    ),
    "no tool": ("get_lot", "tools[0]: not a tool; write an object with a name"),
}


@pytest.mark.parametrize(("item", "expected"), WRONG.values(), ids=WRONG)
def test_a_fault_is_named_with_place_and_remedy(tmp_path, item, expected):
    (line,) = faults(tmp_path, [item])
    assert line.startswith(expected)
    assert ";" in line and "\n" not in line and len(line) < 400


HOLE = {"type": "string", "pattern": "^(?!XX)[A-Z]{2}$"}


def test_all_are_named_at_once(tmp_path):
    """Also what alone would be a hole of the draft, or a note."""
    items, expected = [], []
    for number, (item, line) in enumerate(WRONG.values()):
        item = copy.deepcopy(item)
        if isinstance(item, dict) and item["name"] == "get_lot":
            item["name"] = f"get_{number}"
        items.append(item)
        line = line.replace("tools[0]", f"tools[{number}]")
        expected.append(line.replace("get_lot", f"get_{number}"))
    num, text = len(items), tool(TEXT)
    items += [text | {"name": "get_x"}, text | {"name": "get_x"}]
    expected.append(f"tools[{num + 1}]: 'get_x' is also tools[{num}]; keep one of")
    items.append(tool(HOLE, name="get_hole"))
    expected.append(f"tools[{num + 2}]: 'get_hole', argument 'x' needs three or more")
    items += [text | {"name": f"find_{i}"} for i in range(200)]
    tools = num + 202  # one entry is no tool
    expected.append(f"tools: {tools} tools, but the limit is 16; leave some out")
    lines = faults(tmp_path, items)
    assert len(lines) == len(expected)
    for start in expected:
        assert [line for line in lines if line.startswith(start)], start


def test_the_rest_of_a_tool_with_a_fault_of_json_is_looked_at(tmp_path):
    """But nothing is said to be missing that is only written twice."""
    properties = '{"x": {"type": "array"}, "y": 1, "y": 2}'
    schema = f'{{"properties": {properties}, "required": ["x", "y"]}}'
    tool = f'{{"name": "a", "name": "b", "description": 5, "inputSchema": {schema}}}'
    lines = faults(tmp_path, f"[{tool}]".encode())
    assert [line.split(":")[0] for line in lines] == [
        "tools[0].name",
        "tools[0].inputSchema.properties.y",
        "tools[0].description",
        "tools[0]",
    ]
    assert "argument 'x': an array without `items`" in lines[-1]


def test_examples_are_a_remedy_for_a_pattern(tmp_path):
    schema = {**HOLE, "examples": ["AB", "CD", "EF"]}
    made = drafting.draft([tool(schema)], "mine")
    assert not made.holes
    assert made.domain["types"]["x"]["values"] == ["AB", "CD", "EF"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "file: it is empty; write JSON"),
        (b"\xef\xbb\xbf \n", "file: it is empty; write JSON"),
        (b"tools", "line 1, column 1: invalid JSON, Expecting value; correct it there"),
        (b'[{"name":', "line 1, column 10: invalid JSON, Expecting value; correct it"),
        (b"{}\n{}", "line 2, column 1: invalid JSON, Extra data; correct it there"),
        ("[]".encode("utf-16"), "byte 0: not UTF-8; save the file as UTF-8"),
        (b"[" * 100_000, "top level: nested too deeply; follow the schema"),
        (b"[" + b"9" * 5_000 + b"]", "top level: a number has thousands of digits; "),
        (b"null", "top level: not a list of tools; write OpenAI's array of tools"),
        (b"[]", "top level: no tools; write OpenAI's array of tools, or the result of"),
        (b'[{"name": "a", "name": "b"}]', "tools[0].name: duplicate key; remove or re"),
    ],
)
def test_files_that_are_no_list(tmp_path, content, expected):
    (line,) = faults(tmp_path, content)
    assert line.startswith(expected)


@pytest.mark.parametrize(
    ("schema", "hole"),
    [
        ({"type": "string", "pattern": "^(?!XX)[A-Z]{2}$"}, "of the form ^(?!XX)[A-Z]"),
        ({"type": "string", "pattern": "^([A-Z"}, "of the form ^([A-Z (none can be "),
        ({"type": "string", "minLength": 9_999}, "[A-Z]{9999,9999} (none can be made"),
        ({"enum": [{"a": 1}, ["b"]]}, "the values of x (of get_lot), none of them a n"),
    ],
)
def test_values_that_no_rule_makes_up_are_holes(tmp_path, schema, hole):
    document = domain_file.read_json(written(tmp_path, [tool(schema)]))
    (found,) = drafting.draft(document, "mine").holes
    assert found.startswith("types.x.values[0]: ") and hole in found


LONG = 100_000  # bytes
ODD = {
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps([tool(TEXT)]).encode(),
    "a long description": [tool(TEXT, description="Find it. " + "bla " * (LONG // 4))],
    "a long word": [tool(TEXT, description="x" * LONG)],
    "a long default": [tool({**TEXT, "default": "z" * LONG})],
    "a long text of an argument": [tool({**TEXT, "description": "y " * (LONG // 2)})],
    "a huge number": [tool({"type": "integer", "default": 10**400})],
    "wide bounds": [tool({"type": "integer", "minimum": 10**30})],
    "bounds that are texts": [tool({"type": "integer", "minimum": "a"})],
    "an empty enum": [tool({"enum": []})],
    "itself, where it may end": [
        {"name": "get_lot", "inputSchema": {**NODES, "$defs": {"N": {
            "properties": {"v": TEXT, "x": {"$ref": "#/$defs/N"}}, "required": ["v"]
        }}}}
    ],
    "a result that leads nowhere": [
        tool(TEXT, outputSchema={"properties": {"a": {"$ref": "#/no"}, "b": TEXT}})
    ],
}  # fmt: skip


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_what_is_odd_becomes_a_domain(tmp_path, content):
    document = domain_file.read_json(written(tmp_path, content))
    file = tmp_path / "mine.json"
    made = drafting.draft(document, "mine")
    file.write_text(json_format.dumps(made.domain), encoding="utf-8")
    assert not made.holes
    assert domain_file.faults(file, real_lists.ROOM) == []
