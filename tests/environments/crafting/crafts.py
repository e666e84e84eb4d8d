"""Crafting worlds and their compiled functions, built once for all tests of the folder.

Compiling takes most of the time: all batches have one size, and scenarios are traced
indices.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import expert
from openagent_jax.curriculum import draw
from openagent_jax.environments import registry
from openagent_jax.environments.crafting import make, types
from openagent_jax.environments.world import Settings, Spelling, World
from openagent_jax.text import chat
from tests import helpers

BATCH = 1024
# Tokens of an episode; chat templates take many with so small a tokenizer.
ROOM = {"compact": 640, "hermes": 1600, "llama3": 1600}
# With the room that `launch.common.sizing` gives it.
SETTINGS = Settings(domain="crafting", prompt_tokens=416, context_tokens=736)
CATALOGUE = {entry.name: entry for entry in make.SPEC.perturbations}
EDITS = (draw.CLEAN, *CATALOGUE)
COMPACT, HERMES, LLAMA3 = "compact", "hermes", "llama3"


@functools.cache
def world(style: str = COMPACT) -> World:
    """The worlds under the tokenizer of the small backbone."""
    if style == COMPACT:
        return registry.make(SETTINGS, Spelling(helpers.tokenizer()))
    read = chat.read(helpers.template(style), max_args=3)
    return registry.make(SETTINGS, Spelling(helpers.chat_tokenizer(), read))


@functools.cache
def tasks(split: str = "train") -> types.Task:
    """A batch of tasks."""
    return _sample(world().tables, helpers.keys(num=BATCH), split)


@functools.cache
def edited(entry: str, split: str = "train", strength: float = 1.0, seed: int = 1):
    """The same batch under an entry of the catalogue, or `clean`."""
    return _edit(
        world().tables,
        helpers.keys(seed, num=BATCH),
        tasks(split),
        jnp.float32(strength),
        jnp.int32(EDITS.index(entry)),
        split,
    )


@functools.partial(jax.jit, static_argnums=2)
def _sample(tables, keys, split):
    sample = world().environment.sample
    return jax.vmap(lambda key: sample(tables, key, split))(keys)


@functools.partial(jax.jit, static_argnums=5)
def _edit(tables, keys, tasks, strength, index, split):
    edit = draw.make_edit(world().environment, EDITS[1:], split)

    def one(key, task):
        return edit(tables, key, task, strength, index).task

    return jax.vmap(one)(keys, tasks)


@functools.cache
def played(entry: str = draw.CLEAN, split: str = "train", style: str = COMPACT):
    """The expert's episodes: `(episodes, certificates, tokens, lengths)`, in NumPy."""
    return helpers.host(_play(world(style).tables, edited(entry, split), ROOM[style]))


@functools.partial(jax.jit, static_argnums=2)
def _play(tables, tasks, room):
    environment = world().environment

    def one(task):
        episode = expert.demonstrate(environment, tables, task)
        tokens, _, mask, length = expert.write(environment, tables, episode, room)
        num = functools.partial(expert.num_tokens, tables)
        own = jax.vmap(lambda x: num(environment.utterance(tables, task, x)))
        told = jax.vmap(lambda x: num(environment.observe(tables, task, x)))
        lengths = {
            "prompt": num(environment.prompt(tables, task)),
            "action": jnp.max(jnp.where(episode.valid, own(episode.action), 0)),
            "result": jnp.max(
                jnp.where(episode.valid, told(episode.timestep.observation), 0)
            ),
            "context": length,
        }
        return episode, environment.certificate(tables, task), (tokens, mask), lengths

    return jax.vmap(one)(tasks)


def task(ingredients, raw=(), held=None, goal=0, failures=None, sold_out=()):
    """Make a task by hand: `{item: ingredients}`, raw items, `{item: units}` etc."""
    num, most = types.NUM_ITEMS, types.NUM_INGREDIENTS
    recipes = np.full((num, most), -1, np.int32)
    for item, row in ingredients.items():
        recipes[item, : len(row)] = row
    base = helpers.row(tasks(), 0)

    def flags(rows):
        return jnp.asarray(np.isin(np.arange(num), list(rows)))

    def counts(given):
        rows = np.zeros(num, np.int32)
        for item, count in (given or {}).items():
            rows[item] = count
        return jnp.asarray(rows)

    return types.Task(
        world=base.world,
        items=types.Items(
            jnp.asarray(recipes), flags(raw), base.items.name, base.items.place
        ),
        held=counts(held),
        goal=jnp.int32(goal),
        other_goal=jnp.int32(goal),
        faults=types.Faults(counts(failures), flags(sold_out), base.faults.form),
        phrase=base.phrase,
        shown=base.shown,
    )
