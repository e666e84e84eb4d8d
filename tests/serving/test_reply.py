"""Which text is a call and which is content, whole and in pieces."""

import functools
import json

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openagent_jax.environments.tools import parse
from openagent_jax.serving import reply
from openagent_jax.text import chat, reply_scan, style
from openagent_jax.text.messages import Call
from tests import helpers

COMPACT = reply.call_style(style.compact(3), flat=True)
HERMES = reply.CallStyle("<tool_call>", "</tool_call>", "name", "arguments")
LLAMA = reply.CallStyle("", "", "name", "parameters")
FORMS = {"compact": COMPACT, "hermes": HERMES, "llama": LLAMA}


def call(arguments, name="look", key="arguments"):
    return f'{{"name": "{name}", "{key}": {arguments}}}'


def marked(text):
    return f"<tool_call>\n{text}\n</tool_call>"


@pytest.mark.parametrize("form", ["hermes", "llama3"])
def test_call_styles_of_templates(form):
    made = reply.call_style(chat.read(helpers.template(form), 3), flat=False)
    assert made == {"hermes": HERMES, "llama3": LLAMA}[form]


ONE = '{"place": "Oak Bay"}'
CALLS = {
    "compact": ("compact", call(ONE), "", [ONE]),
    "arguments first": (
        "compact",
        f'{{"arguments": {ONE}, "name": "look"}}',
        "",
        [ONE],
    ),
    "blanks": ("compact", f" \n{call('{ }')}\t", "", ["{ }"]),
    "other keys": ("llama", call(ONE, key="parameters"), "", [ONE]),
    "escapes in a key": (
        "compact",
        '{"n\\u0061me": "look", "arguments": {}}',
        "",
        ["{}"],
    ),
    "as it was said": (
        "hermes",
        marked(call('{"a": 1.50,\n "a": [-1e2, {"b": "}"}]}')),
        "",
        ['{"a": 1.50,\n "a": [-1e2, {"b": "}"}]}'],
    ),
    "scalars, in the compact form": (
        "compact",
        call('{"a": -1.5e3, "b": true, "c": null}'),
        "",
        ['{"a": -1.5e3, "b": true, "c": null}'],
    ),
    "a number of 32 characters, there": (
        "compact",
        call(f'{{"a": {"1" * 32}}}'),
        "",
        [f'{{"a": {"1" * 32}}}'],
    ),
    "two": ("hermes", marked(call(ONE)) + "\n" + marked(call("{}")), "", [ONE, "{}"]),
    "talk": ("hermes", "Let me <see>.\n\n" + marked(call(ONE)), "Let me <see>.", [ONE]),
    "a mark in a text": (
        "hermes",
        marked(call('{"a": "<tool_call>"}')),
        "",
        ['{"a": "<tool_call>"}'],
    ),
}
TALK = {
    "no call": ("compact", "Answer: 5"),
    "nothing": ("compact", ""),
    "more behind": ("compact", call(ONE) + "."),
    "more before": ("compact", "So: " + call(ONE)),
    "half a call": ("compact", call(ONE)[:-1]),
    "another key": ("compact", '{"id":1,' + call(ONE)[1:]),
    "a key twice": ("compact", '{"name":"x",' + call(ONE)[1:]),
    "no name": ("compact", f'{{"arguments": {ONE}}}'),
    "a name that is none": ("compact", '{"name":1,"arguments":{}}'),
    "arguments that are none": ("compact", call("[]")),
    "a list, in the compact form": ("compact", call('{"a": [1.5]}')),
    "a long number, there": ("compact", call(f'{{"a": {"1" * 33}}}')),
    "no number": ("hermes", marked(call('{"a": NaN}'))),
    "a list": ("compact", f"[{call(ONE)}]"),
    "two without marks": ("compact", call(ONE) * 2),
    "no mark": ("hermes", call(ONE)),
    "no end": ("hermes", marked(call(ONE))[:-1]),
    "talk behind": ("hermes", marked(call(ONE)) + " Done."),
    "talk between": ("hermes", marked(call(ONE)) + " and " + marked(call(ONE))),
    "one good, one bad": ("hermes", marked(call(ONE)) + marked("{}")),
    "deep": ("hermes", marked(call('{"a":' * 5000))),
}


@pytest.mark.parametrize(
    ("form", "text", "talk", "arguments"), CALLS.values(), ids=CALLS
)
def test_calls(form, text, talk, arguments):
    content, calls = reply.read(FORMS[form], text)
    assert content == talk
    assert [x.arguments for x in calls] == arguments
    assert {x.name for x in calls} == {"look"}


@pytest.mark.parametrize(("form", "text"), TALK.values(), ids=TALK)
def test_other_text_is_content(form, text):
    assert reply.read(FORMS[form], text) == (text, [])


def test_one_call_at_most():
    two = marked(call(ONE)) * 2
    assert len(reply.read(HERMES, two)[1]) == 2
    assert reply.read(HERMES, two, parallel_calls=False) == (two, [])


def test_a_lone_surrogate_is_not_a_name():
    _, (found,) = reply.read(COMPACT, call("{}", name="\\ud83d"))
    assert found.name == "?"


@pytest.mark.parametrize("texts", [CALLS, TALK], ids=["calls", "talk"])
def test_compact_calls_match_the_parser_of_the_sandbox(texts):
    """The sandbox's parser and the server recognise the same texts as calls."""
    lexicon = helpers.world("poi").tables.lexicon
    task = helpers.rows(helpers.tasks("poi"))[0]
    read = jax.jit(parse.parse)
    for form, text, *_ in texts.values():
        if form == "compact":
            data = np.frombuffer(text.encode().ljust(256), np.uint8)
            action = read(lexicon, task, data, len(text.encode()))
            called = action.kind == reply_scan.CALL
            assert bool(called) == bool(reply.read(COMPACT, text)[1]), text


# Tokens.


@functools.cache
def detokenizer(name=helpers.COMPACT):
    named = name != helpers.COMPACT
    form = chat.read(helpers.template(name), 3) if named else style.compact(3)
    tokenizer = helpers.chat_tokenizer()
    return reply.Detokenizer(tokenizer, form, tokenizer.token_to_id(form.end))


def tokens(text):
    return helpers.chat_tokenizer().encode(text).ids


SPECIAL = "<|pad|>"
TEXTS = {
    "Answer: Oak Bay": ("Answer: Oak Bay", 0),
    "Café, 漢字 and 🦊!": ("Café, 漢字 and 🦊!", 0),
    call(ONE): ("", 1),
    f" {call(ONE)}": ("", 1),
    call(ONE)[:-1]: (call(ONE)[:-1], 0),
    "  Hm": ("  Hm", 0),
    # The text of a special token is shown, and is not part of a call.
    f"Refuse{SPECIAL}": (f"Refuse{SPECIAL}", 0),
    call(f'{{"a": "{SPECIAL}"}}'): (call(f'{{"a": "{SPECIAL}"}}'), 0),
}


@pytest.mark.parametrize("text", TEXTS)
@given(data=st.data())
def test_replies_do_not_depend_on_chunking(text, data):
    said = tokens(text + helpers.END)
    ends = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=6)))
    made, content = reply.Reply(detokenizer(), COMPACT), ""
    for a, b in zip([0, *ends], [*ends, len(said)], strict=True):
        content += made.add(said[a:b])
    content += made.end(cut=False)
    assert (content, len(made.calls)) == TEXTS[text]
    assert made.tokens == said


@given(data=st.data())
def test_text_before_a_call_is_streamed_without_marks(data):
    text = "Let me see. <tool> \n" + marked(call(ONE))
    said = tokens(text)
    ends = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=6)))
    made, parts = reply.Reply(detokenizer("hermes"), HERMES), []
    for a, b in zip([0, *ends], [*ends, len(said)], strict=True):
        parts.append(made.add(said[a:b]))
    assert "".join(parts) == "Let me see. <tool>"
    assert made.end(cut=False) == ""
    assert made.calls == [Call("", "look", ONE)]


def test_invalid_utf8():
    """They are shown as replacement characters, and are not accepted in a call."""
    letter = tokens("é")  # two bytes
    assert len(letter) == 2
    said = tokens(call(ONE)[:-2])
    made = reply.Reply(detokenizer(), COMPACT)
    assert made.add([*said, letter[0], *tokens('"}}')]) == ""
    assert "\N{REPLACEMENT CHARACTER}" in made.end(cut=False)
    assert not made.calls
    made = reply.Reply(detokenizer(), COMPACT)
    assert made.add([*tokens("a"), letter[0]]) == "a"
    assert made.end(cut=True) == "\N{REPLACEMENT CHARACTER}"


def test_truncated_replies_have_no_call():
    made = reply.Reply(detokenizer(), COMPACT)
    assert made.add(tokens(call(ONE))) == ""
    assert made.end(cut=True) == call(ONE)
    assert not made.calls


def test_calls_are_content_without_tools():
    made = reply.Reply(detokenizer(), None)
    assert made.add(tokens(call(ONE))) + made.end(cut=False) == call(ONE)
    assert not made.calls


@given(data=st.data())
def test_stop(data):
    said = tokens("one two three two four")
    ends = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=6)))
    made, content = reply.Reply(detokenizer(), COMPACT, ["five", "two th", "three"]), ""
    for a, b in zip([0, *ends], [*ends, len(said)], strict=True):
        if not made.stopped:
            content += made.add(said[a:b])
    content += made.end(cut=False)
    assert content == "one " and made.stopped


def test_a_stop_string_that_does_not_occur():
    made = reply.Reply(detokenizer(), COMPACT, ["two!"])
    assert made.add(tokens("one two")) == "one "
    assert made.end(cut=False) == "two"
    assert not made.stopped


def test_arguments_are_kept_verbatim():
    for arguments in ('{"a":"\\u00e9"}', '{"a" : "é" , "b":{}}', "{}"):
        (found,) = reply.read(HERMES, marked(call(arguments)))[1]
        assert found.arguments == arguments
        assert isinstance(json.loads(found.arguments), dict)
