"""From messages to tokens: as rendered, and as they were generated."""

import functools

import numpy as np
import pytest

from openagent_jax.serving import compact, conversation
from openagent_jax.serving.surface_tokenizer import SurfaceTokenizer
from openagent_jax.text import chat, messages
from tests import helpers
from tests.text import test_chat

END = helpers.END


@functools.cache
def tokenizer(name, form=helpers.COMPACT):
    return SurfaceTokenizer(
        helpers.chat_tokenizer(), helpers.world(name, form).tables.lexicon
    )


@functools.cache
def conversations(form=helpers.COMPACT):
    """A shared object, which tests must not change."""
    return fresh(form)


def fresh(form=helpers.COMPACT):
    render, end = compact.render, END
    if form != helpers.COMPACT:
        end = chat.read(helpers.template(form), 3).end

        def render(said, tools, speaks):
            return [helpers.template(form).render(said, tools, speaks)]

    end_token = helpers.chat_tokenizer().token_to_id(end)
    return conversation.Conversations(render, end, end_token, tokenizer("poi", form))


def over_the_wire(said):
    """Messages in OpenAI's protocol, where arguments are text."""
    return [
        message
        | {
            "tool_calls": [
                call
                | {
                    "function": call["function"]
                    | {
                        "arguments": str(call["function"]["arguments"]).replace(
                            "'", '"'
                        )
                    }
                }
                for call in message["tool_calls"]
            ]
        }
        if "tool_calls" in message
        else message
        for message in said
    ]


@pytest.mark.parametrize("entry", helpers.SHOWN)
@pytest.mark.parametrize("name", helpers.DOMAINS)
def test_tokens_match_the_renderer(name, entry):
    """For a whole conversation that has not been seen before."""
    spelled, num = tokenizer(name), 0
    for episode, tokens, mask in test_chat.written(name, helpers.COMPACT, entry):
        starts = np.flatnonzero(mask & ~np.roll(mask, 1))
        *before, _ = episode.messages()
        for start, said in zip(starts, before, strict=True):
            pieces = compact.render(said, episode.documents(), True)
            assert "".join(pieces) == helpers.spell(tokens[:start])
            # An envelope of a result closes as a call does, which is one text.
            if entry != "nonstandard_feedback":
                assert spelled(pieces) == tokens[:start].tolist()
            num += 1
    assert num > 50


@pytest.mark.parametrize("form", ["hermes", "llama3"])
def test_tokens_of_a_template(form):
    """This tokenizer joins blanks to the next word, so all text is searched."""
    made = conversations(form)
    for episode, tokens, mask in test_chat.written("poi", form, helpers.CLEAN)[:6]:
        starts = np.flatnonzero(mask & ~np.roll(mask, 1))
        *before, _ = episode.messages()
        for start, said in zip(starts, before, strict=True):
            said = over_the_wire(said)
            assert made.tokens(said, episode.documents()) == tokens[:start].tolist()


TOOLS = [messages.tool("look", "opening hour of a place", {"place": "string"})]
ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Show me the opening hour of Oak Bay."},
]


def called(call_id="call_1", arguments='{"place":"Oak Bay"}'):
    function = {"name": "look", "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def told(call_id="call_1"):
    return {"role": "tool", "tool_call_id": call_id, "content": '{"hour":"12"}'}


def tokens(text):
    return helpers.chat_tokenizer().encode(text).ids


# No tokenizer would split the call like this, and no renderer would write it.
SAID = [tokens('{"')[0], *tokens("na"), *tokens('me" :'), *tokens('"look"}')]


@pytest.mark.parametrize("form", [helpers.COMPACT, "hermes", "llama3"])
@pytest.mark.parametrize("ended", [True, False])
def test_generated_tokens_are_kept(form, ended):
    made = fresh(form)
    end = made._end_token
    before = made.tokens(ASKED, TOOLS)
    first = [*before, *SAID, end]
    made.keep([*ASKED, called()], TOOLS, before, SAID + [end] * ended)
    again = [*ASKED, called(), told()]
    whole = made.tokens(again, TOOLS)
    assert whole[: len(first)] == first
    # What follows is what follows the call in a conversation that is not cached.
    other = fresh(form).tokens(again, TOOLS)
    rest = whole[len(first) :]
    assert rest and other[-len(rest) :] == rest and other[-len(rest) - 1] == end
    assert '{"hour":"12"}' in helpers.spell(rest)
    # The same holds one turn later.
    answer = {"role": "assistant", "content": "12"}
    made.keep([*again, answer], TOOLS, whole, [*tokens("1"), *tokens("2"), end])
    longer = [*again, answer, {"role": "user", "content": "Thanks."}]
    further = made.tokens(longer, TOOLS)
    assert further[: len(whole)] == whole
    assert "Thanks." in helpers.spell(further[len(whole) :])


@pytest.mark.parametrize(
    "changed",
    [
        [*ASKED, called("call_2"), told("call_2")],
        [*ASKED, called(arguments='{"place":"Oak  Bay"}'), told()],
        [*ASKED[1:], called(), told()],
        [*ASKED, ASKED[1], called(), told()],
    ],
)
def test_changed_conversations_are_tokenized_anew(changed):
    made, other = fresh(), fresh()
    made.keep([*ASKED, called()], TOOLS, made.tokens(ASKED, TOOLS), SAID)
    assert made.tokens(changed, TOOLS) == other.tokens(changed, TOOLS)
    again = [*ASKED, called(), told()]
    assert made.tokens(again, TOOLS * 2) == other.tokens(again, TOOLS * 2)
    assert made.tokens(again, TOOLS) != other.tokens(again, TOOLS)


def test_null_fields_do_not_prevent_reuse():
    made = fresh()
    made.keep([*ASKED, called()], TOOLS, made.tokens(ASKED, TOOLS), SAID)
    again = [*ASKED, called() | {"content": "", "refusal": None, "audio": None}, told()]
    assert made.tokens(again, TOOLS) != fresh().tokens(again, TOOLS)


def test_the_oldest_conversations_are_evicted(monkeypatch):
    monkeypatch.setattr(conversation, "MAX_KEPT", 3)
    made = fresh()
    asked = [[{"role": "user", "content": f"{n}"}] for n in range(5)]
    answer = {"role": "assistant", "content": "Hm"}
    for said in asked:
        made.keep([*said, answer], [], made.tokens(said, []), SAID)
    assert len(made._kept) == 3
    more = {"role": "user", "content": "So?"}
    known = [
        made.tokens([*said, answer, more], [])
        != fresh().tokens([*said, answer, more], [])
        for said in asked
    ]
    assert known == [False, False, True, True, True]


def test_templates_that_rewrite_earlier_turns_are_tokenized_anew():
    """For example, a template that omits the reasoning of earlier turns."""

    def render(said, tools, speaks):
        last = len(said) - 1
        return [
            f"{m['content'] if i == last or m['role'] != 'assistant' else '...'}{END}"
            for i, m in enumerate(said)
        ]

    end_token = helpers.chat_tokenizer().token_to_id(END)
    made = conversation.Conversations(render, END, end_token, tokenizer("poi"))
    asked = [{"role": "user", "content": "Hm"}]
    said = [*asked, {"role": "assistant", "content": "Well"}]
    made.keep(said, [], made.tokens(asked, []), SAID)
    more = [*said, {"role": "user", "content": "So?"}]
    assert helpers.spell(made.tokens(more, [])) == f"Hm{END}...{END}So?{END}"


# The compact form.


def text(said, tools=(), speaks=True):
    return "".join(compact.render(said, [*tools], speaks))


def test_several_calls_and_their_results():
    two = called() | {"tool_calls": called()["tool_calls"] * 2}
    two = messages.for_template([*ASKED, two, told(), told()])
    assert text(two, TOOLS) == (
        "<|user|>Show me the opening hour of Oak Bay."
        '<|system|>{"description":"opening hour of a place","name":"look","parameters":'
        '["place"]}<|user|>Show me the opening hour of Oak Bay.<|assistant|>'
        + '{"name":"look","arguments":{"place":"Oak Bay"}}' * 2
        + '<|end|><|tool|>{"hour":"12"}<|tool|>{"hour":"12"}<|assistant|>'
    )


def test_any_tools():
    """More arguments than the sandbox allows, any values, quotes, and no schema."""
    names = [f"a{i}" for i in range(12)]
    wide = messages.tool("wide", 'a "wide" one', dict.fromkeys(names, "string"))
    bare = {"type": "function", "function": {"name": "bare"}}
    arguments = '{"n": 1.5, "o": {"x": null}, "q": "\\"\\n", "t": true}'
    said = [*ASKED, called(arguments=arguments), called(arguments="no JSON")]
    written = text(messages.for_template(said), [wide, bare], speaks=False)
    listed = '","'.join(names)
    assert (
        f'{{"description":"a \\"wide\\" one","name":"wide","parameters":["{listed}"]}}'
        in written
    )
    assert '{"description":"","name":"bare","parameters":[]}' in written
    assert (
        '{"name":"look","arguments":{"n":"1.5","o":{"x":"null"},'
        '"q":"\\"\\n","t":"true"}}<|end|>'
    ) in written
    assert written.endswith('"name":"look","arguments":{}}<|end|>')


@pytest.mark.parametrize(
    ("description", "parameters", "written"),
    [
        ("ticket", ["code"], '"ticket","name":"look","parameters":["code"]}'),
        (
            "ticket, needs the code from sign_in",
            ["place", "code"],
            '"ticket","name":"look","parameters":["place"],"code_from":"sign_in"}',
        ),
        (
            "ticket, to be called after sign_in",
            [],
            '"ticket","name":"look","parameters":[],"call_after":"sign_in"}',
        ),
        (
            "a, needs the code from b, to be called after c",
            ["code"],
            '"a","name":"look","parameters":[],"code_from":"b","call_after":"c"}',
        ),
        (
            "needs the code from b to be called after c",
            [],
            '"needs the code from b to be called after c","name":"look","parameters":[',
        ),
        ("two\nlines", [], '"two\\nlines","name":"look","parameters":[]}'),
    ],
)
def test_prerequisites_of_a_tool(description, parameters, written):
    tool = messages.tool("look", description, dict.fromkeys(parameters, "string"))
    assert f'{{"description":{written}' in text(ASKED, [tool])


def test_arbitrary_texts_are_reproduced():
    """Even long ones, which take little time."""
    spelled = tokenizer("poi")
    for said in ("Zyzzyva!", "1" * 5000, "a" * 200_000, "", "é🦊"):
        assert spelled([said]) == tokens(said) or said.startswith("1")
        assert helpers.spell(spelled([said])) == said
