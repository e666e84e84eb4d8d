"""Make crafting worlds: lexicon, pools, and the pure functions.

`make` runs on the host, once for each run. It returns arrays and pure functions.
"""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from openagent_jax import hashing
from openagent_jax.environments import grading
from openagent_jax.environments.crafting import (
    catalogue,
    environment,
    oracle,
    parse,
    perturb,
    render,
    worlds,
)
from openagent_jax.environments.crafting import words as texts
from openagent_jax.environments.crafting.transcriber import Transcriber
from openagent_jax.environments.crafting.types import Task
from openagent_jax.environments.crafting.words import Words
from openagent_jax.environments.world import (
    SPLITS,
    EnvironmentSpec,
    Settings,
    Spelling,
    World,
)
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, style, symbols
from openagent_jax.types import Environment, Sizes, Tables


def make(settings: Settings, spelling: Spelling) -> World:
    """Return the crafting worlds under a tokenizer.

    Args:
      settings: only the maximum sizes of an episode are used.
      spelling: how texts are written as tokens.

    Raises:
      ValueError: the tokenizer cannot be used, or not with this style.
    """
    table = symbols.Symbols()
    words, pools = texts.words(table), texts.pools(table)
    transcriber = Transcriber(table, words)
    chosen = spelling.style or style.compact(max_args=1)
    lexicon = lexicons.build(table, spelling.tokenizer, chosen, spelling.vocab_size)
    source = worlds.source([pools[split] for split in SPLITS])
    return World(
        environment=functions(settings.sizes, words),
        tables=Tables(lexicon, source),
        transcriber=transcriber,
    )


@cache  # equal environments share compiled programs
def functions(sizes: Sizes, words: Words) -> Environment:
    """Return the environment as pure functions.

    Args:
      sizes: the maximum sizes of an episode.
      words: symbols of the words that are the same in all tasks.
    """
    return Environment(
        name="crafting",
        sizes=sizes,
        sample=_sample,
        reset=lambda tables, task: environment.reset(task),
        step=lambda tables, task, state, action: environment.step(
            tables.lexicon, task, state, action, sizes.max_turns
        ),
        prompt=lambda tables, task: render.prompt(tables.lexicon.style, words, task),
        utterance=lambda tables, task, action: render.action(
            tables.lexicon.style, words, task, action
        ),
        parse=lambda tables, task, text, num_bytes: parse.parse(
            tables.lexicon, words, task, text, num_bytes
        ),
        observe=lambda tables, task, result: render.observation(
            tables.lexicon.style, words, task, result
        ),
        expert=lambda tables, task, state: oracle.expert(tables.lexicon, task, state),
        blank=lambda tables, task: environment.no_action(),
        refuse=lambda tables, task: replace(
            environment.no_action(), kind=jnp.int32(reply_scan.REFUSE)
        ),
        ask=lambda tables, task: replace(
            environment.no_action(), kind=jnp.int32(reply_scan.ASK)
        ),
        certificate=lambda tables, task: oracle.certificate(task),
        outcome=lambda tables, task, state: grading.outcome(state),
        counts=_counts,
        phrasing=lambda tables, task: hashing.fingerprint(task.phrase),
        pools=lambda tables, task, split: perturb.pools(
            tables.source.of(SPLITS.index(split)), split
        ),
        perturbations=catalogue.CATALOGUE,
        training_mix=catalogue.TRAINING_MIX,
        suite=catalogue.SUITE,
        rewards=grading.REWARDS,
        reasons=oracle.REASONS,
        documented=lambda tables, task: replace(task, faults=worlds.no_faults()),
        remembered=lambda tables, clean, task: replace(clean, shown=task.shown),
    )


def _sample(tables: Tables, key: jax.Array, split: str) -> Task:
    which = SPLITS.index(split)
    return worlds.sample(tables.source.of(which), key, which)


def _counts(tables: Tables, task: Task) -> Int[Array, "3"]:
    """Return the numbers of recipes, of raw items and of units held."""
    del tables
    recipes = jnp.sum(oracle.has_recipe(task.items))
    return jnp.stack([recipes, jnp.sum(task.items.raw), jnp.sum(task.held)])


SPEC = EnvironmentSpec(
    make=make,
    perturbations=catalogue.CATALOGUE,
    training_mix=catalogue.TRAINING_MIX,
    suite=catalogue.SUITE,
    rewards=grading.REWARDS,
)
