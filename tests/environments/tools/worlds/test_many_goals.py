"""Thousands of goals: no table is copied for each task, and memory stays small."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import perturb
from openagent_jax.curriculum import draw
from openagent_jax.environments.tools.worlds import documents, noise
from openagent_jax.environments.tools.worlds import domain as domains
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import style
from tests import helpers

NUM_GOALS, BATCH = 4096, 3
NOISE = "query_typos", "tool_name_noise", "description_noise"  # have tables too
DOMAIN_MEGABYTES = 500 / 26  # what each of 26 domains may take


@functools.cache
def many():
    """`poi`, with its goals repeated."""
    spec = helpers.spec("poi")
    goals = [spec.goals[g % len(spec.goals)] for g in range(NUM_GOALS)]
    spec = dataclasses.replace(spec, goals=tuple(goals))
    made = documents.Documents(style.compact(helpers.LIMITS.num_args))
    limits = documents.fitted(helpers.LIMITS, [spec])
    return domains.compile(spec, ToolSymbols(), limits, made)


@functools.cache
def tables():
    made = helpers.world("poi").tables
    return made._replace(source=made.source._replace(tasks=many()))


def avals(jaxpr):
    """Every array that a program computes, those of its parts included."""
    for equation in jaxpr.eqns:
        yield from (x.aval for x in equation.outvars)
        for inner in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr"),
        ):
            if hasattr(inner, "jaxpr"):
                inner = inner.jaxpr
            if hasattr(inner, "eqns"):
                yield from avals(inner)


def copied(function, *args):
    """Shapes of arrays that hold a whole table for each task."""
    goals = many()
    sizes = {len(goals.goal_set), len(goals.phrases.pieces), len(goals.phrases.start)}
    sizes.add(noise.BLOCK)
    shapes = {x.shape for x in avals(jax.make_jaxpr(function)(*args).jaxpr)}
    assert any(shape[:1] == (BATCH,) for shape in shapes)
    return {shape for shape in shapes if shape[:1] == (BATCH,) and sizes & {*shape[1:]}}


def test_no_table_is_copied_to_each_task():
    keys = helpers.keys()[:BATCH]
    sample = jax.vmap(helpers.ENVIRONMENT.sample, (None, 0, None))
    assert not copied(lambda x, keys: sample(x, keys, "train"), tables(), keys)
    tasks = sample(tables(), keys, "train")
    names = tuple(dict.fromkeys((*helpers.ENVIRONMENT.training_mix, *NOISE)))
    edit = jax.vmap(
        draw.make_edit(helpers.ENVIRONMENT, names, "train"), (None, 0, 0, None)
    )
    assert not copied(edit, tables(), keys, tasks, jnp.float32(1))


def test_copies_are_seen():
    """If pools are made in the branches of a switch, their tables are copied."""
    keys = helpers.keys()[:BATCH]
    tasks = jax.vmap(helpers.ENVIRONMENT.sample, (None, 0, None))(
        tables(), keys, "train"
    )

    def one(tables, key, task):
        edit = perturb.make(helpers.ENVIRONMENT, tables, "query_rewrite", "train")
        both = perturb.one_of(edit, perturb.identity)
        return both(key, task, jnp.float32(1))

    assert copied(jax.vmap(one, (None, 0, 0)), tables(), keys, tasks)


def test_memory():
    size = sum(x.nbytes for x in jax.tree.leaves(many()))
    lexicon = sum(x.nbytes for x in jax.tree.leaves(tables().lexicon))
    assert (size + lexicon) / 1e6 < DOMAIN_MEGABYTES


def test_goals_of_equal_needs_share_a_set():
    made = helpers.host(many())
    num = len(helpers.spec("poi").goals)
    assert made.pairing.shape == helpers.arrays("poi").pairing.shape
    np.testing.assert_array_equal(made.goal_set[:NUM_GOALS], np.arange(NUM_GOALS) % num)
