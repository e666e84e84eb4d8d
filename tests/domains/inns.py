"""A small valid domain file, and ways to break it."""

import copy
import json
import re

import pytest

from openagent_jax.domains import domain_file, domain_spec

REMOVE = ...  # in place of a value


def tool(name, arguments, returns, **meaning):
    kinds = {"hour": "integer", "seats": "integer", "code": "string"}
    properties = {key: {"type": kinds.get(key, "string")} for key in arguments}
    parameters = {"type": "object", "properties": properties}
    parameters["required"] = list(properties)
    words = {
        split: [f"{split} words of {name}", f"{split} text of {name}"]
        for split in ("train", "test")
    }
    function = {"name": name, "description": f"what {name} does"}
    return {
        "type": "function",
        "function": {**function, "parameters": parameters},
        "x-openagent": {
            "arguments": arguments,
            "returns": returns,
            **meaning,
            "names": {"train": [f"{name}_one"], "test": [f"{name}_two"]},
            "descriptions": words,
            "argument_names": {
                key: {"train": [f"{key}_one"], "test": [f"{key}_two"]}
                for key in arguments
            },
        },
    }


def good():
    """The document. Its tools: 0 sign_in, 1 find_inn, 2 hold_room, which needs the code
    of 0, and 3 book_room, which needs the code of 2."""
    phrases = {
        pool: [f"{pool} room in {{city}}"]
        for pool in ("train", "test", "rewrite_train", "rewrite_test")
    }
    steps = [
        {"tool": "find_inn", "arguments": {"city": "$city"}},
        {"tool": "hold_room", "arguments": {"inn": "#0.inn"}},
        {"tool": "book_room", "arguments": {"inn": "#0.inn"}},
    ]
    return {
        "name": "inns",
        "description": "inns and rooms",
        "types": {
            "city": {
                "kind": "entity",
                "train": ["Ur"],
                "test": ["Uz"],
                "shift": ["Ys"],
            },
            "inn": {
                "kind": "entity",
                "train": {"compose": [["Old", "New"], ["Oak", "Elm"]]},
                "test": {"compose": [["Red"], ["Oak", "Elm"]]},
                "shift": ["Au Coq"],
            },
            "kind": {"kind": "enum", "values": ["single", "double"]},
            "hour": {"kind": "number", "minimum": 0, "maximum": 23},
        },
        "tools": [
            tool("sign_in", {}, {"hour": "hour"}),
            tool("find_inn", {"city": "city"}, {"inn": "inn"}),
            tool("hold_room", {"inn": "inn"}, {"hour": "hour"}, code_from="sign_in"),
            tool(
                "book_room",
                {"inn": "inn"},
                {"hour": "hour"},
                code_from="hold_room",
                effect=True,
            ),
        ],
        "goals": [
            {
                "name": "book",
                "constants": {"city": "city"},
                "steps": steps,
                "answer": "#2.hour",
                "phrases": phrases,
            }
        ],
    }


def gated(num):
    """The document with `num` tools without arguments to be called before sign_in."""
    document, gates = good(), [f"gate_{i}" for i in range(num)]
    before = [{}, *({"call_after": gate} for gate in gates)]
    for name, after in zip(gates, before):
        document["tools"].append(tool(name, {}, {"hour": "hour"}, **after))
    document["tools"][0]["x-openagent"] |= before[-1]
    return document


def save(tmp_path, document):
    file = tmp_path / "mine.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def load(tmp_path, document):
    return domain_file.load(str(save(tmp_path, document)))


def write(document, path, value):
    """Put a value at a path; the index after the last one appends."""
    *front, last = path if isinstance(path, tuple) else (path,)
    for key in front:
        document = document[key]
    if value is REMOVE:
        del document[last]
    elif isinstance(document, list) and last == len(document):
        document.append(value)
    else:
        document[last] = value


def check_fault(tmp_path, path, value, fault):
    """A document with one wrong value is refused, and this fault is reported first."""
    document = good()
    write(document, path, copy.deepcopy(value))
    file = save(tmp_path, document)
    with pytest.raises(domain_spec.DomainError) as caught:
        domain_file.load(file)
    assert str(caught.value) == f"{file}: {fault}"
    assert re.fullmatch("[^\n]+: [^\n]+; [^\n]+", fault)
    assert domain_file.faults(file)[0] == fault
