"""What the compact style says of a tool, and how descriptions are cut and escaped."""

import json

import pytest

from openagent_jax.interop import chat_template
from openagent_jax.text import chat, documents, messages, style
from tests import helpers

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
RECURSIVE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}


def written(function, skip=""):
    """The compact document of a function; slots are in angle brackets."""
    names = [*function.get("parameters", {}).get("properties", {})]
    slots = {style.NAME: "<name>", style.TEXT: "<text>", style.NEEDS: "<needs>"}
    return "".join(
        slots.get(x.kind, f"<{names[x.index]}>") if x.kind else x.text
        for x in documents.compact(function, names, skip)
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (TEXT, "<a>"),
        (INTEGER, "<a>"),
        ({}, "<a>"),
        (True, "<a>"),
        ({"type": "number"}, "<a>: number"),
        ({"type": "boolean", "default": False}, "<a>: boolean; default false"),
        ({**INTEGER, "minimum": 0}, "<a>: integer; at least 0"),
        (
            {**INTEGER, "maximum": 9, "description": "how"},
            "<a>: integer; how; at most 9",
        ),
        ({"type": "number", "minimum": 0, "maximum": 0.5}, "<a>: number; 0 to 0.5"),
        ({**TEXT, "title": "A"}, "<a>"),
        ({**TEXT, "title": "Town"}, "<a>: title Town"),
        ({**TEXT, "enum": ["x", "y z"]}, "<a>: one of x, y z"),
        ({"enum": ["1", 1, "a, b", "", None]}, '<a>: one of "1", 1, "a, b", "", null'),
        ({"const": "v2"}, "<a>: const v2"),
        ({**TEXT, "format": "date", "minLength": 3}, "<a>: format date; minLength 3"),
        ({**TEXT, "enum": None, "minimum": None}, "<a>"),  # absent, in tables
        ({"type": ["string", "null"]}, "<a>: string or null"),
        ({"anyOf": [TEXT, {"type": "null"}]}, "<a>: string or null"),
        ({"type": "array"}, "<a>: list"),
        (
            {"type": "array", "items": TEXT, "maxItems": 2},
            "<a>: list of string; maxItems 2",
        ),
        (
            {
                "type": "array",
                "items": {"type": "object", "properties": {"b": INTEGER}},
            },
            "<a>: list of object {b (optional)}",
        ),
        (
            {
                "type": "object",
                "properties": {"b": TEXT, "c": {"enum": [1, 2]}},
                "required": ["b"],
            },
            "<a>: object {b; c (optional): one of 1, 2}",
        ),
        ({"$ref": "#/$defs/Kind", "description": "which"}, "<a>: which; one of x, y"),
        ({"$ref": "#/nowhere"}, "<a>: $ref #/nowhere"),
        ({"allOf": [TEXT]}, '<a>: allOf [{"type": "string"}]'),
    ],
)
def test_a_parameter(schema, text):
    kinds = {"Kind": {"type": "string", "enum": ["x", "y"]}}
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    parameters |= {"$defs": kinds} if "$ref" in str(schema) else {}
    document = written({"name": "go", "description": "d", "parameters": parameters})
    start = '{"description":"<text>","name":"<name>","parameters":["'
    assert document.startswith(start)
    shown, _, rest = document.removeprefix(start).rpartition('"]<needs>')
    assert shown.replace('\\"', '"') == text
    assert rest.startswith(',"$defs"' if "nowhere" in text else "}")


def test_other_keys_follow_the_parameters():
    function = {
        "name": "go",
        "description": "d",
        "strict": True,
        "returns": TEXT,
        "parameters": {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/Node"}, "code": TEXT},
            "additionalProperties": False,
            "$defs": {"Node": RECURSIVE},
            "dependentRequired": {"a": ["code"]},
        },
    }
    document = written(function, skip="code")
    assert document == (
        '{"description":"<text>","name":"<name>","parameters":["<a> (optional): '
        "object {next (optional): $ref #/$defs/Node}"
        '"]<needs>,"returns":{"type": "string"},"$defs":{"Node": '
        f'{json.dumps(RECURSIVE)}}},"dependentRequired":{{"a": ["code"]}}}}'
    )


def test_many_references_to_references_are_not_all_replaced():
    """Otherwise a few lines would say more than memory holds."""
    pair = [
        {"properties": {x: {"$ref": f"#/$defs/{i + 1}"} for x in "ab"}}
        for i in range(28)
    ]
    defs = {str(i): {"type": "object", **kind} for i, kind in enumerate(pair)}
    schema = {"properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": defs}
    assert len(written({"name": "go", "parameters": schema})) < 1 << 16


def test_deep_schemas_are_refused():
    deep = json.loads('{"items":' * 40 + "{}" + "}" * 40)
    with pytest.raises(ValueError, match="'go' has a schema of more than 32 levels"):
        documents.compact({"name": "go", "parameters": deep}, [])


@pytest.mark.parametrize(
    ("description", "purpose"),
    [
        ("Get it", "Get it"),
        ("Get it. Now.", "Get it. Now."),  # short enough as it is
        ("\n  Get it.\n  Now.\n", "\n  Get it"),
        ("Get it, e.g. here. " + "x" * 99, "Get it, e.g. here"),
        ("é" * 99, "é" * 50),
        ("word " * 99, "word " * 19 + "word"),
        ("Get it - " + "x" * 99, "Get it"),
    ],
)
def test_purpose(description, purpose):
    found = documents.purpose(description)
    assert found == purpose and description.startswith(found)


RAW = """'{"name": "' + tool.function.name + '", "description": "' +
tool.function.description + '", "parameters": ' + (tool.function.parameters | tojson) +
'}'"""


@pytest.mark.parametrize("is_raw", [True, False])
def test_descriptions_are_escaped_as_the_template_does(is_raw):
    source = (chat_template.BUILTIN / "hermes.jinja").read_text()
    if is_raw:  # as Mistral's template does
        source = source.replace("(tool | tojson)", RAW)
    template = chat_template.load(helpers.chat_tokenizer(), source)
    form, text = chat.read(template, 3), 'a "quoted"\nline é'
    shown = text if is_raw else 'a \\"quoted\\"\\nline é'
    assert documents.escape(form, text) == shown
    function = messages.tool("go", text, {"a": "string"})["function"]
    made = documents.layout(form, function, ["a"])
    chat.check_documents(template, form, [chat.Written(made, function, ["a"])])
