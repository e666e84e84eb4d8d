"""Nested arguments of earlier calls, in the compact style."""

import json

from openagent_jax.serving import compact
from openagent_jax.text import messages


def written(arguments):
    """Return the arguments of a call that a conversation contains, as JSON."""
    look = messages.tool("look", "opening hour", {"place": "string"})
    history = [
        {"role": "user", "content": "When?"},
        messages.call("look", arguments),
        messages.result("look", "9"),
    ]
    text = "".join(compact.render(history, [look], True))
    begin = text.index('{"name"')
    call, _ = json.JSONDecoder().raw_decode(text[begin:])
    assert call["name"] == "look"
    return call["arguments"]


def test_all_scalars_are_texts():
    nested = {"to": {"city": 'a "b"', "n": 5}, "tags": ["x", True], "day": "9"}
    assert written(nested) == {
        "to": {"city": 'a "b"', "n": "5"},
        "tags": ["x", "true"],
        "day": "9",
    }
    assert written({"city": "Ur", "n": 5}) == {"city": "Ur", "n": "5"}
    assert written({"a": {"b": 1}, "c": {"b": 2}}) == {"a": {"b": "1"}, "c": {"b": "2"}}


def test_what_is_very_deep_is_a_text():
    deep = "x"
    for _ in range(20):
        deep = [deep]
    assert written({"a": deep}) == {"a": json.dumps(deep)}


def test_the_request_comes_twice():
    look = messages.tool("look", "opening hour", {"place": "string"})
    history = [
        {"role": "user", "content": "When?"},
        messages.call("look", {"place": "Ur"}),
        messages.call("look", {"to": {"city": "Ur"}}),
    ]
    text = "".join(compact.render(history, [look], True))
    assert text.startswith('<|user|>When?<|system|>{"description":"opening hour"')
    assert text.count("When?") == 2
    assert '{"name":"look","arguments":{"place":"Ur"}}<|end|>' in text
    assert '{"name":"look","arguments":{"to":{"city":"Ur"}}}<|end|>' in text
