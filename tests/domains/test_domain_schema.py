"""Domain files with a wrong structure: keys, types of values, texts, sizes, JSON."""

import json

import pytest

from openagent_jax.domains import domain_file, domain_spec
from openagent_jax.domains.limits import Limits
from tests.domains.inns import (
    REMOVE,
    check_fault,
    good,
    load,
    save,
    tool,
)

SIGN = {"tool": "sign_in", "arguments": {}}
# name: (where to write, what to write, fault)
BAD = {
    "missing key": (
        "name",
        REMOVE,
        "top level: missing key 'name'; add it",
    ),
    "unknown key": (
        ("tools", 3, "x-openagent", "retruns"),
        {},
        "tools[3].x-openagent.retruns: unknown key 'retruns'; did you mean 'returns'?",
    ),
    "unknown key, nothing like it": (
        ("goals", 0, "zzz"),
        1,
        "goals[0].zzz: unknown key 'zzz'; known: name, constants, steps, answer, "
        "phrases",
    ),
    "wrong json type": (
        "tools",
        {},
        "tools: {} is not a list; write a list",
    ),
    "true is no number": (
        ("types", "hour", "minimum"),
        True,
        "types.hour.minimum: True is not a number; write a number",
    ),
    "unit with braces": (
        ("types", "hour", "unit"),
        "{kg}",
        "types.hour.unit: '{kg}' has braces or bars; write it without",
    ),
    "too many decimals": (
        ("types", "hour", "decimals"),
        8,
        "types.hour.decimals: 8 is too large; write 0 to 7",
    ),
    "a list is no value of an enum": (
        ("types", "kind", "values", 0),
        [],
        "types.kind.values[0]: [] is not a string, a number, true, false or null; "
        "write one of these",
    ),
    "not an OpenAI function": (
        ("tools", 1, "type"),
        "functions",
        "tools[1].type: unknown type 'functions'; did you mean 'function'?",
    ),
    "bad name": (
        ("tools", 1, "function", "name"),
        "find inn",
        "tools[1].function.name: 'find inn' is not a valid name; use letters, "
        "digits, _ and -, at most 64, not a digit first",
    ),
    "bad name of a key": (
        ("types", "a b"),
        {"kind": "number"},
        "types.a b: 'a b' is not a valid name; use letters, digits, _ and -, at most "
        "64, not a digit first",
    ),
    "null prerequisite": (
        ("tools", 3, "x-openagent", "call_after"),
        None,
        "tools[3].x-openagent.call_after: None is not a string; write a string",
    ),
    "empty phrase pool": (
        ("goals", 0, "phrases", "test"),
        [],
        "goals[0].phrases.test: empty list; add at least one entry",
    ),
    "empty pool": (
        ("types", "city", "train"),
        [],
        "types.city.train: empty list; add at least one entry",
    ),
    "empty part of a pool": (
        ("types", "inn", "train", "compose", 1),
        [],
        "types.inn.train.compose[1]: empty list; add at least one entry",
    ),
    "quote": (
        ("types", "city", "train", 0),
        'U"r',
        "types.city.train[0]: 'U\"r' contains '\"'; remove that",
    ),
    "backslash": (
        ("types", "city", "train", 0),
        "U\\r",
        "types.city.train[0]: 'U\\\\r' contains '\\\\'; remove that",
    ),
    "control character": (
        ("types", "city", "train", 0),
        "U\nr",
        "types.city.train[0]: 'U\\nr' contains '\\n'; remove that",
    ),
    "half a character": (
        ("types", "city", "train", 0),
        "U\ud800r",
        "types.city.train[0]: 'U\\ud800r' contains '\\ud800'; remove that",
    ),
    "leading blank": (
        ("types", "city", "train", 0),
        " Ur",
        "types.city.train[0]: ' Ur' begins or ends with a blank; remove that",
    ),
    "trailing blank": (
        ("types", "city", "train", 0),
        "Ur ",
        "types.city.train[0]: 'Ur ' begins or ends with a blank; remove that",
    ),
    "empty description": (
        ("tools", 1, "function", "description"),
        " \n",
        "tools[1].function.description: ' \\n' is empty; write a text",
    ),
    "half a character in a schema": (
        ("tools", 1, "function", "parameters", "properties", "city", "pattern"),
        "\ud800",
        "tools[1].function.parameters.properties.city.pattern: '\\ud800' contains "
        "half of a surrogate pair; remove it",
    ),
    "empty value": (
        ("types", "kind", "values", 1),
        "",
        "types.kind.values[1]: '' is empty; write a text",
    ),
    "unknown kind": (
        ("types", "hour", "kind"),
        "numbers",
        "types.hour.kind: unknown kind 'numbers'; did you mean 'number'?",
    ),
    "too many tools": (
        "tools",
        [{}] * 10_000,
        "tools: 10000 entries, but the limit is 16; remove some or raise "
        "sandbox.num_tools",
    ),
    "too many arguments": (
        ("tools", 1, "x-openagent", "arguments"),
        dict.fromkeys("abcd", "city"),
        "tools[1].x-openagent.arguments: 4 entries, but the limit is 3; remove some "
        "or raise sandbox.num_args",
    ),
    "too many fields": (
        ("tools", 1, "x-openagent", "returns"),
        dict.fromkeys("abc", "city"),
        "tools[1].x-openagent.returns: 3 entries, but the limit is 2; remove some or "
        "raise sandbox.num_fields",
    ),
    "too many steps": (
        ("goals", 0, "steps"),
        [SIGN] * 6,
        "goals[0].steps: 6 entries, but the limit is 5; remove some or raise "
        "sandbox.num_steps",
    ),
    "too many constants": (
        ("goals", 0, "constants"),
        dict.fromkeys("abcde", "city"),
        "goals[0].constants: 5 entries, but the limit is 4; remove some or raise "
        "sandbox.num_constants",
    ),
}


@pytest.mark.parametrize("path, value, fault", BAD.values(), ids=BAD)
def test_structural_fault(tmp_path, path, value, fault):
    check_fault(tmp_path, path, value, fault)


def test_both_problems_of_a_text_are_named(tmp_path):
    fault = "types.city.train[0]: ' U\"r' begins or ends with a blank and contains '\"'"
    path = ("types", "city", "train", 0)
    check_fault(tmp_path, path, ' U"r', f"{fault}; remove that")


def test_a_lone_surrogate_in_a_key(tmp_path):
    document = good()
    document["tools"][0]["\ud800"] = 3
    message = "'\\ud800' contains '\\ud800'; remove that"
    assert f"tools[0]: {message}" in domain_file.faults(save(tmp_path, document))


def test_limits_can_be_raised(tmp_path):
    document = good()
    extra = [tool(f"tool_{i}", {}, {"hour": "hour"}) for i in range(13)]
    document["tools"] += extra
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document))
    with pytest.raises(
        domain_spec.DomainError, match="17 entries, but the limit is 16"
    ):
        domain_file.load(file)
    domain = domain_file.load(file, Limits(num_tools=17))
    assert len(domain.tools) == 17


BAD_TEXT = {
    "syntax": (
        b'{"name": "x",\n "tools": [,]}',
        "line 2, column 12: invalid JSON, Expecting value; correct it there",
    ),
    "empty file": (
        b"",
        "file: it is empty; write JSON",
    ),
    "not UTF-8": (b'{"name": "\xff"}', "byte 10: not UTF-8; save the file as UTF-8"),
    "a list": (b"[]", "top level: [] is not an object; write an object"),
    "duplicate top level key": (
        b'{"name": "a", "name": "b"}',
        "name: duplicate key; remove or rename one",
    ),
}


@pytest.mark.parametrize("content, message", BAD_TEXT.values(), ids=BAD_TEXT)
def test_bad_text(tmp_path, content, message):
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    with pytest.raises(domain_spec.DomainError) as caught:
        domain_file.load(file)
    assert str(caught.value) == f"{file}: {message}"


@pytest.mark.parametrize(
    "old, place",
    [
        ('"hour": {"kind"', "types.hour"),
        ('"name": "book"', "goals[0].name"),
        ('"inn": "#0.inn"', "goals[0].steps[1].arguments.inn"),
        ('"inn": "inn"}, "returns"', "tools[2].x-openagent.arguments.inn"),
        (
            '"type": "string"}}, "required": ["inn"]',
            "tools[2].function.parameters.properties.inn.type",
        ),
    ],
)
def test_duplicate_key(tmp_path, old, place):
    """JSON readers silently keep the last one; ours reports it."""
    text, key = json.dumps(good()), old.split(":")[0]
    assert old in text
    with pytest.raises(domain_spec.DomainError) as caught:
        load(tmp_path, text.replace(old, f"{key}: 1, {old}", 1))
    file = tmp_path / "mine.json"
    message = f"{file}: {place}: duplicate key; remove or rename one"
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[" * 200_000, "top level: nested too deeply; follow the schema"),
        (
            '{"name": ' + "9" * 5000 + "}",
            "top level: a number has thousands of digits;",
        ),
    ],
)
def test_pathological_json(tmp_path, text, fault):
    with pytest.raises(domain_spec.DomainError, match=fault):
        load(tmp_path, text)


def test_no_such_file(tmp_path):
    with pytest.raises(domain_spec.DomainError) as caught:
        domain_file.load(tmp_path / "none.json")
    message = f"{tmp_path / 'none.json'}: file: No such file or directory; "
    assert str(caught.value) == message + "check the path"


@pytest.mark.parametrize(
    "name, remedy",
    [
        ("pio", "did you mean 'poi'?"),
        ("xyzzy", f"known: {', '.join(domain_file.builtins())}"),
    ],
)
def test_no_such_builtin(name, remedy):
    with pytest.raises(domain_spec.DomainError) as caught:
        domain_file.load(name)
    message = f"{name}: name: unknown builtin domain {name!r}; {remedy}"
    assert str(caught.value) == message
