"""Chat templates: our text against `apply_chat_template`, and what is refused."""

import collections
import functools

import jax
import numpy as np
import pytest

from openagent_jax.interop import chat_template
from openagent_jax.text import chat, style
from tests import helpers, messages

NUM_TOKENS = 4096
NUM = 3  # episodes of each kind of goal and entry
MOST = 48  # episodes of an entry that are written


@functools.cache
def demonstrated(name, entry):
    """The same episodes for every chat style."""
    split = {"poi": "train", "medical": "test"}[name]
    tasks = helpers.edited(name, split, entry)
    return helpers.demonstrate(helpers.world(name).tables, tasks)[0]


@functools.cache
def written(name, form, entry):
    """`(conversation, tokens, loss mask)` of some episodes."""
    tables, episodes = helpers.world(name, form).tables, demonstrated(name, entry)
    of_kind = collections.defaultdict(list)
    for i, kind in enumerate(np.asarray(episodes.task.goal.kind)):
        of_kind[kind].append(i)
    chosen = [i for rows in of_kind.values() for i in rows[:NUM]]
    assert len(chosen) <= MOST
    index = np.resize(chosen, MOST)  # one shape for all, so that one program does
    episodes = jax.tree.map(lambda x: x[index], episodes)
    tokens, _, mask, length = helpers.write(tables, episodes, NUM_TOKENS)
    found = []
    for row in helpers.rows((episodes, tokens, mask, length))[: len(chosen)]:
        episode, tokens, mask, length = row
        assert length <= NUM_TOKENS
        found.append(
            (messages.Conversation(name, episode), tokens[:length], mask[:length])
        )
    return found


@pytest.mark.parametrize("form", helpers.FORMS)
@pytest.mark.parametrize("name", helpers.DOMAINS)
def test_text_equals_the_template(name, form):
    template = helpers.template(form)
    kinds = set()
    for entry in helpers.SHOWN:
        for conversation, tokens, mask in written(name, form, entry):
            kinds.add(int(conversation.task.goal.kind))
            documents = conversation.documents()
            starts = np.flatnonzero(mask & ~np.roll(mask, 1))
            *before, whole = conversation.messages()
            for start, seen in zip(starts, before, strict=True):
                text = template.render(seen, documents, True)
                assert helpers.spell(tokens[:start]) == text
            text = template.render(whole, documents, False)
            said = helpers.spell(tokens)
            assert text.startswith(said)
            assert not text[len(said) :].strip()
    assert kinds == set(range(len(helpers.spec(name).goals)))


@pytest.mark.parametrize("form", helpers.FORMS)
def test_loss_mask_covers_the_agents_messages(form):
    end = helpers.lexicon("poi", form).end_token
    for conversation, tokens, mask in written("poi", form, "query_underspecified"):
        starts = np.flatnonzero(mask & ~np.roll(mask, 1))
        stops = np.flatnonzero(mask & ~np.roll(mask, -1))
        *before, whole = conversation.messages()
        assert set(tokens[stops]) == {end}
        assert len(starts) == len(before) == np.sum(tokens[mask] == end)
        said = [m for m in whole if m["role"] == "assistant"]
        for message, start, stop in zip(said, starts, stops, strict=True):
            text = helpers.spell(tokens[start:stop])
            calls = message.get("tool_calls", [])
            name = calls[0]["function"]["name"] if calls else message["content"]
            assert name in text


def test_worlds_do_not_depend_on_the_chat_template():
    compact = helpers.rows(helpers.tasks("poi"))[0]
    for form in helpers.FORMS:
        world, key = helpers.world("poi", form), helpers.keys(0, 0, 1)[0]
        task = world.environment.sample(world.tables, key, "train")
        for a, b in zip(*map(helpers.leaves, (task, compact)), strict=True):
            np.testing.assert_array_equal(a, b)


PLAIN = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
HERMES = (chat_template.BUILTIN / "hermes.jinja").read_text()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            PLAIN,
            "it does not support tools; take one that does, such as model.chat_templ",
        ),
        (
            PLAIN + "{{ tools | tojson }}",
            "two documents differ from one",
        ),
        ("{{ raise_exception('no system role') }}", "chat template: no system role"),
        ("{% for x %}", "chat template: expected token"),
        (HERMES.replace("<|im_end|>", "<|end_of_turn|>"), "not a special token of"),
        (HERMES.replace("<|im_start|>", "<|turn|>"), r'"<\|turn\|>", which is not a '),
        (HERMES.replace("\": ' +", "\": x' +"), "a call is not a JSON object"),
        (HERMES.replace('{"name": \' +', '{"id": 1, "name": \' +'), "a key 'id'"),
        (
            HERMES.replace("message.content + '\\n</", "'R' + '\\n</"),
            "or their results",
        ),
        (
            HERMES.replace("message.content or", "message.content|upper or"),
            "not support to",
        ),
        (HERMES.replace("function.name", "id"), "does not write calls of tools, or"),
        (
            HERMES + "{% if messages | length > 3 %}...{% endif %}",
            "a longer conversation|changes earlier text",
        ),
        (
            HERMES.replace("(tool | tojson)", "(tools | tojson)"),
            "a longer conversation is written differently",
        ),
    ],
)
def test_unsupported_templates_are_refused(source, message):
    template = chat_template.load(helpers.chat_tokenizer(), source)
    with pytest.raises(ValueError, match=message):
        chat.read(template, helpers.LIMITS.num_args)


def test_a_result_is_escaped_where_the_template_does():
    made = chat.read(helpers.template("llama31"), 3)
    plain = style.compact(3)
    assert made.result_open == '{\\"' != plain.result_open
    assert chat.read(helpers.template("llama3"), 3).results == plain.results
