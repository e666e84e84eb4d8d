"""Rendered text compared with messages that other code renders, and parsed again."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.crafting import types
from openagent_jax.serving import compact
from openagent_jax.text import chat, reply_scan
from openagent_jax.text import lexicon as lexicons
from tests import helpers
from tests.environments.crafting import crafts

STYLES = (crafts.COMPACT, crafts.HERMES, crafts.LLAMA3)
# Together they contain every kind of action and result that the expert meets.
SHOWN = ("clean", "vague_goal", "failing_bench", "sold_out", "nonstandard_feedback")
NUM = 48  # episodes of each entry
ROOM = 80  # tokens of an action


def render(style, messages, tools):
    """Render a conversation up to the agent's next turn, or to its end."""
    speaks = messages[-1]["role"] != "assistant"
    if style == crafts.COMPACT:
        return "".join(compact.render(messages, tools, speaks))
    return helpers.template(style).render(messages, tools, speaks)


def conversation(episode):
    """Return an episode as messages, written by the transcriber."""
    transcriber, observe = crafts.world().transcriber, _observe()
    messages = transcriber.opening(episode.task)
    for t in np.flatnonzero(episode.valid):
        messages.append(
            transcriber.message(episode.task, helpers.row(episode.action, t))
        )
        told = helpers.row(episode.timestep.observation, t)
        shown = transcriber.shown(np.asarray(observe(episode.task, told)))
        if shown:
            role, content = shown
            name = (
                calls[0]["function"]["name"]
                if (calls := messages[-1].get("tool_calls"))
                else ""
            )
            made = (
                chat.result(name, content)
                if role == "tool"
                else {"role": role, "content": content}
            )
            messages.append(made)
    return messages


@functools.cache
def _observe():
    return jax.jit(crafts.world().transcriber.observe)


@pytest.mark.parametrize("entry", SHOWN)
@pytest.mark.parametrize("style", STYLES)
def test_tokens_spell_the_messages(style, entry):
    """The prompt and the whole episode are what the chat template renders."""
    episodes, _, (tokens, mask), lengths = crafts.played(entry, "test", style)
    statuses = set()
    for i in range(NUM):
        episode = helpers.row(episodes, i)
        tools = crafts.world().transcriber.tools(episode.task)
        messages = conversation(episode)
        opening = render(style, messages[:2], tools)
        num = int(lengths["prompt"][i])
        assert helpers.spell(tokens[i, :num]) == opening
        text = helpers.spell(tokens[i, : lengths["context"][i]])
        # A template may add a line break after the last message.
        assert render(style, messages, tools).rstrip("\n") == text
        assert not mask[i, :num].any() and mask[i, num]
        statuses |= {*episode.timestep.observation.status[episode.valid]}
    assert len(statuses) >= 2


def test_request():
    """The text of a request, put together by hand."""
    tables = crafts.world().tables
    texts = lexicons.texts(tables.lexicon)
    for task in helpers.rows(crafts.tasks("test"))[:200]:
        request = crafts.world().transcriber.opening(task)[1]["content"]
        items, order = task.items, np.argsort(task.items.place)
        name = [texts[symbol] for symbol in items.name]
        book = [
            f"{name[i]}: {', '.join(name[x] for x in items.ingredients[i] if x >= 0)}"
            for i in order
            if items.ingredients[i, 0] >= 0
        ]
        raw = ", ".join(name[i] for i in order if items.raw[i]) or "nothing"
        held = [name[i] for i in order for _ in range(task.held[i])]
        slots = ["\n".join(book), raw, ", ".join(held) or "nothing", name[task.goal]]
        pieces = (texts[x] if x >= 0 else slots[-1 - x] for x in task.phrase)
        assert request == "".join(pieces)


@functools.cache
def reader(style):
    """`(actions parsed back from their tokens, lengths)`."""
    environment, tables = crafts.world(style).environment, crafts.world(style).tables

    @jax.jit
    def read(tables, tasks, actions):
        def one(task, action):
            pieces = environment.utterance(tables, task, action)
            tokens, _, length = lexicons.write(tables.lexicon, pieces, ROOM)
            text = reply_scan.detokenize(tables.lexicon, tokens, length - 1)
            return environment.parse(tables, task, *text), length

        return jax.vmap(one)(tasks, actions)

    return lambda tasks, actions: helpers.host(read(tables, tasks, actions))


@pytest.mark.parametrize("entry", ["clean", "item_renaming", "entity_shift"])
@pytest.mark.parametrize("style", STYLES)
def test_render_then_parse(style, entry):
    num = crafts.BATCH
    draw = np.random.default_rng(0).integers
    kinds = (reply_scan.CALL, reply_scan.ANSWER, reply_scan.REFUSE, reply_scan.ASK)
    kind = np.asarray(kinds)[draw(0, 4, num)]
    kind[: num // 2] = reply_scan.CALL
    called = kind == reply_scan.CALL
    tool, item = draw(0, types.NUM_TOOLS, num), draw(0, types.NUM_ITEMS, num)
    item = np.where(tool == types.INVENTORY, types.NO_ITEM, item)
    done = crafts.world(style).tables.lexicon.style.done
    actions = types.Action(
        kind=jnp.asarray(kind, jnp.int32),
        call=types.Call(
            tool=jnp.asarray(np.where(called, tool, -1), jnp.int32),
            item=jnp.asarray(np.where(called, item, types.NO_ITEM), jnp.int32),
        ),
        value=jnp.asarray(np.where(kind == reply_scan.ANSWER, done, -1), jnp.int32),
    )
    read, length = reader(style)(crafts.edited(entry), actions)
    assert length.max() <= ROOM
    jax.tree.map(np.testing.assert_array_equal, read, helpers.host(actions))


@functools.cache
def parser():
    environment, tables = crafts.world().environment, crafts.world().tables
    return jax.jit(functools.partial(environment.parse, tables))


@pytest.mark.parametrize(
    ("reply", "kind", "tool", "item"),
    [
        ({"name": "get", "arguments": {"item": 3}}, 0, types.GET, 3),
        ({"arguments": {"item": 0}, "name": "craft"}, 0, types.CRAFT, 0),
        ({"name": "inventory", "arguments": {}}, 0, types.INVENTORY, types.NO_ITEM),
        ({"name": "get", "arguments": {}}, 0, types.GET, types.NO_ITEM),
        (
            {"name": "get", "arguments": {"item": "a unicorn"}},
            0,
            types.GET,
            types.UNKNOWN_ITEM,
        ),
        (
            {"name": "get", "arguments": {"thing": 3}},
            0,
            types.GET,
            types.WRONG_ARGUMENTS,
        ),
        (
            {"name": "get", "arguments": {"item": 3, "num": "2"}},
            0,
            types.GET,
            types.WRONG_ARGUMENTS,
        ),
        ({"name": "fly", "arguments": {"item": 3}}, 0, -1, 3),
        ({"name": "get"}, reply_scan.MALFORMED, -1, types.NO_ITEM),
        ("craft it", reply_scan.MALFORMED, -1, types.NO_ITEM),
    ],
)
def test_replies(reply, kind, tool, item):
    """Integers stand for the names of the items in these rows."""
    task = helpers.row(crafts.tasks(), 0)
    names = lexicons.texts(crafts.world().tables.lexicon)
    if isinstance(reply, dict) and "arguments" in reply:
        given = {
            key: names[int(task.items.name[x])] if isinstance(x, int) else x
            for key, x in reply["arguments"].items()
        }
        reply = reply | {"arguments": given}
    text = reply if isinstance(reply, str) else json.dumps(reply)
    data = np.zeros(160, np.uint8)
    data[: len(text)] = np.frombuffer(text.encode(), np.uint8)
    action = parser()(task, jnp.asarray(data), jnp.int32(len(text)))
    assert (action.kind, action.call.tool, action.call.item) == (kind, tool, item)
