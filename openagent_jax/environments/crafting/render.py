"""Write the texts of an episode: prompt, actions and observations, as rows of symbols.

Everything specific to a chat format comes from the layouts of a style, so the compact
style and all chat templates work alike. The rows that a function returns have the same
size for all tasks.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.environments.crafting import oracle, types
from openagent_jax.environments.crafting.types import Action, Items, Result, Task
from openagent_jax.environments.crafting.words import TOOLS, Words
from openagent_jax.text import layout, reply_scan, result_writing
from openagent_jax.text import style as styles
from openagent_jax.text.result_writing import Fields
from openagent_jax.text.style import Style

MAX_LISTED = 6  # most units that the listing of an inventory names


def prompt(style: Style[int], words: Words, task: Task) -> Int[Array, "P"]:
    """Return the prompt: documents and request, up to where the agent writes."""
    documents = [_document(style, words, tool) for tool in range(types.NUM_TOOLS)]
    between = layout.single(style.between)
    first, *others = documents
    for document in others:
        first = jnp.concatenate([first, between, document])
    asked = [layout.single(style.user), request(style, words, task)]
    return jnp.concatenate(
        [
            *(asked if style.request_first else []),
            layout.single(style.system),
            first,
            *asked,
            layout.single(style.assistant),
        ]
    )


def request(style: Style[int], words: Words, task: Task) -> Int[Array, "P"]:
    """Return what the user asks for: recipes, raw items, inventory and goal."""
    items = task.items
    goal = jnp.where(task.shown, items.name[task.goal], style.unknown)
    sections = {
        types.BOOK: _book(words, items),
        types.RAW: _listing(words, items, items.raw.astype(jnp.int32), len(items.raw)),
        types.HELD: _listing(words, items, task.held, types.MAX_HELD),
        types.GOAL: goal[None],
    }
    # Sort all symbols by the place of their slot in the phrase.
    symbols, place = [jnp.maximum(task.phrase, 0)], [jnp.arange(len(task.phrase))]
    for slot, row in sections.items():
        symbols.append(row)
        place.append(jnp.full(row.shape, jnp.argmax(task.phrase == slot)))
    order = jnp.argsort(jnp.concatenate(place), stable=True)
    return jnp.concatenate(symbols)[order]


def action(style: Style[int], words: Words, task: Task, act: Action) -> Int[Array, "P"]:
    """Return what the agent writes for an action, including the end mark."""
    tool, item = jnp.maximum(act.call.tool, 0), act.call.item
    slots = {
        styles.NAME: jnp.array(words.tools)[tool][None],
        styles.TEXT: jnp.array(words.descriptions)[tool][None],
        styles.ARGUMENT: layout.single(words.item),
        styles.VALUE: task.items.name[jnp.maximum(item, 0)][None],
    }
    given = (item >= 0).astype(jnp.int32)
    value = {styles.VALUE: jnp.maximum(act.value, 0)[None]}
    none = jnp.int32(0)
    texts = [
        layout.fill(style.calls[:2], given, slots),
        layout.fill([style.answer], none, value),
        layout.fill([style.refuse], none, {}),
        layout.fill([style.ask], none, {}),
    ]
    size = max(map(len, texts))
    *texts, ask = (layout.pad(text, size) for text in texts)
    kinds = (reply_scan.CALL, reply_scan.ANSWER, reply_scan.REFUSE)
    text = jnp.select([act.kind == kind for kind in kinds], texts, ask)
    return jnp.concatenate([text, layout.single(style.end)])


def observation(
    style: Style[int], words: Words, task: Task, result: Result
) -> Int[Array, "P"]:
    """Return what the agent is shown after an action, up to where it writes again."""
    items = task.items
    tool = jnp.maximum(result.tool, 0)
    lists = tool == types.INVENTORY
    listing = _listing(words, items, result.held, MAX_LISTED)
    done = layout.pad(layout.single(style.done), len(listing))
    no = jnp.zeros(1, bool)
    field = Fields(
        value=jnp.zeros(1, jnp.int32),
        literal=jnp.zeros(1, jnp.int32),
        outer=jnp.zeros((1, 0), jnp.int32),
        own=jnp.where(lists, words.items, style.result)[None],
        bare=no,
        is_typed=no,
    )
    value = jnp.where(lists, listing, done)[None]
    form = result_writing.chosen(style, task.faults.form[tool])
    body = result_writing.written(style, form, field, value)

    plain = style.errors[0]
    messages = [before for before, _ in styles.error_table(style)[0]]
    errors = jnp.array((*messages[: styles.NO_RESULT + 1], *words.errors))
    about = jnp.where(result.item >= 0, items.name[result.item], 0)
    error = layout.stack([plain.open, errors[result.status], about, plain.close])

    goal = jnp.where(task.shown, style.nothing, items.name[task.goal])
    replied = result.status == styles.USER_REPLY
    text = jnp.where(result.status == styles.OK, body, layout.pad(error, len(body)))
    text = jnp.where(replied, layout.pad(goal[None], len(body)), text)
    # An action that could not be parsed called no tool, so the user answers it.
    by_user = replied | (result.status == styles.BAD_FORMAT)
    begin = jnp.where(by_user, style.reply_open, style.tool_open)
    end = jnp.where(by_user, style.reply_close, style.tool_close)
    shown = jnp.concatenate([begin[None], text, end[None]])
    return jnp.where(result.status == styles.NO_RESULT, 0, shown)


def _document(style: Style[int], words: Words, tool: int) -> Int[Array, "P"]:
    _, _, takes_item = TOOLS[tool]
    slots = {
        styles.NAME: layout.single(words.tools[tool]),
        styles.TEXT: layout.single(words.descriptions[tool]),
        styles.NEEDS: layout.single(0),
        styles.ARGUMENT: layout.single(words.item),
        styles.VALUE: layout.single(style.string),
    }
    return layout.fill([style.documents[takes_item]], jnp.int32(0), slots)


def _book(words: Words, items: Items) -> Int[Array, "P"]:
    """Return the book: the recipes in their order, one per line."""
    order = jnp.argsort(items.place)
    has = oracle.has_recipe(items)[order]
    ingredients = items.ingredients[order]
    names = jnp.where(ingredients >= 0, items.name[ingredients], 0)
    comma = jnp.where(ingredients >= 0, words.comma, 0).at[:, 0].set(words.colon)
    line = jnp.where(_is_first(has), 0, words.line)
    pairs = jnp.stack([comma, names], axis=2).reshape(len(order), -1)
    rows = jnp.concatenate([line[:, None], items.name[order][:, None], pairs], axis=1)
    book = jnp.where(has[:, None], rows, 0).reshape(-1)
    return book.at[0].set(jnp.where(jnp.any(has), book[0], words.nothing))


def _listing(
    words: Words, items: Items, units: Int[Array, "I"], room: int
) -> Int[Array, "_"]:
    """List the names of items, each as often as it has units, separated by commas.

    Args:
      words: symbols of words.
      items: the items.
      units: number of units of each item.
      room: the most names; a longer listing ends in "and more".
    """
    order = jnp.argsort(items.place)
    ends = jnp.cumsum(units[order])
    place = jnp.arange(room)
    row = order[jnp.searchsorted(ends, place, side="right").clip(0, len(order) - 1)]
    there = place < ends[-1]
    comma = jnp.where(there & (place > 0), words.comma, 0)
    names = jnp.where(there, items.name[row], 0)
    names = names.at[0].set(jnp.where(there[0], names[0], words.nothing))
    more = jnp.where(ends[-1] > room, words.more, 0)
    return jnp.append(jnp.stack([comma, names], axis=1).reshape(-1), more)


def _is_first(condition: Bool[Array, "I"]) -> Bool[Array, "I"]:
    return condition & (jnp.cumsum(condition) == 1)
