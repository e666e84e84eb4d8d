"""Records of demonstrations: contents, perturbations, splits, and reproducibility."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.algorithms import sft
from openagent_jax.data import demonstrations
from openagent_jax.environments.tools.worlds import domain
from tests import helpers
from tests.data.datasets import (
    NAMES,
    NUM_TASKS,
    NUM_TOKENS,
    SEED,
    cached_maker,
    read_all,
)

pytest.importorskip("tensorflow_datasets")
pytestmark = pytest.mark.slow


def task_keys(split, index):
    """Return the keys that draw the tasks of these indices, and that perturb them."""
    root = jax.random.fold_in(jax.random.key(SEED), domain.SPLITS[split])
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    return jax.vmap(jax.random.split)(fold(root, jnp.asarray(index)))


def test_records_equal_batches_of_sft(recipe, stored):
    """Tokens and loss masks follow from seed and index, and equal the algorithm's own;
    demonstrations that are longer than a row are left out and counted."""
    index = jnp.arange(NUM_TASKS["train"])
    keys = task_keys("train", index)
    # Three out of ten in a row, none of them earlier than its share is due.
    noisy = np.array([i % 10 in (3, 6, 9) for i in range(NUM_TASKS["train"])])
    room = 400

    environment, tables = recipe.world.environment, recipe.world.tables

    @jax.jit
    def make(keys, strength):
        clean = jax.vmap(lambda key: environment.sample(tables, key, "train"))(
            keys[:, 0]
        )
        edits = [perturb.make(environment, tables, name, "train") for name in NAMES]
        tasks = jax.vmap(perturb.one_of(*edits))(keys[:, 1], clean, strength)
        same = jax.vmap(perturb.equal)(tasks, clean)
        algorithm = sft.sft(None, environment, room)
        return algorithm.make_batch(None, tables, None, tasks)[0], tasks, same

    batch, tasks, same = jax.device_get(make(keys, jnp.asarray(noisy, jnp.float32)))
    length = np.sum(batch.segments, axis=1)
    fits = np.flatnonzero(length <= NUM_TOKENS)
    assert 0 < len(fits) < NUM_TASKS["train"] and max(length) < room
    records = read_all(stored.splits["train"])
    assert [record["index"] for record in records] == fits.tolist()
    for record, i in zip(records, fits):
        np.testing.assert_array_equal(record["tokens"], batch.tokens[i, : length[i]])
        np.testing.assert_array_equal(
            record["loss_mask"], batch.loss_mask[i, : length[i]]
        )
        goal = helpers.spec("poi").goals[tasks.goal.kind[i]]
        assert record["goal"].decode() == goal.name
        perturbed = record["perturbation"] != demonstrations.CLEAN.encode()
        assert perturbed == (not same[i]) == (record["strength"] > 0)
    counts = stored.metadata["counts"]["train"]
    assert counts == {
        "asked_for": NUM_TASKS["train"],
        "left_out": NUM_TASKS["train"] - len(fits),
        "perturbed": int(np.sum(~same[fits])),
        "tokens": int(np.sum(length[fits])),
        "loss_tokens": int(np.sum(batch.loss_mask[fits])),
        "longest": max(length[fits]),
    }
    assert counts["perturbed"] > 5


def test_perturbation_names_match_the_records(stored):
    """A task with a withheld tool is unsolvable; an erased name looks meaningless."""
    records = read_all(stored.splits["train"])
    by_name = {name: [] for name in (*NAMES, demonstrations.CLEAN)}
    for record in records:
        by_name[record["perturbation"].decode()].append(record)
    assert all(len(found) > 2 for found in by_name.values())
    assert not any(record["solvable"] for record in by_name["tool_withheld"])
    odd = re.compile(r'"name":"(tool|func|api)_[a-j]\d\d"')
    for name, found in by_name.items():
        for record in found:
            text = helpers.spell(record["tokens"])
            assert bool(odd.search(text)) == (name == "identity_erasure")
            assert name == "tool_withheld" or record["solvable"]


def test_splits_share_neither_worlds_nor_entities(recipe, stored):
    worlds_of, entities = {}, {}
    of_split = {
        split: {
            text
            for kind in helpers.spec("poi").types
            for text in getattr(kind, split)
            if kind.train != kind.test
        }
        for split in NUM_TASKS
    }
    for split, records in stored.splits.items():
        found = read_all(records)
        assert {record["split"] for record in found} == {split.encode()}
        # A record has its index, and thereby the key of its world.
        keys = task_keys(split, [int(record["index"]) for record in found])[:, 0]
        sample = jax.vmap(recipe.world.environment.sample, (None, 0, None))
        drawn = sample(recipe.world.tables, keys, split)
        worlds_of[split] = {*drawn.world.tolist()}
        goals = [goal.name for goal in helpers.spec("poi").goals]
        assert [record["goal"].decode() for record in found] == [
            goals[i] for i in drawn.goal.kind
        ]
        quoted = {
            text
            for record in found
            for text in re.findall(r'"([^"]*)"', helpers.spell(record["tokens"]))
        }
        entities[split] = quoted & (of_split["train"] | of_split["test"])
        assert len(entities[split]) > 10 and entities[split] <= of_split[split]
    assert not entities["train"] & entities["test"]
    assert all(world % 2 == 0 for world in worlds_of["train"])
    assert all(world % 2 == 1 for world in worlds_of["test"])


def test_larger_dataset_starts_with_the_same_records(recipe, stored, monkeypatch):
    """This also holds if it takes another number of batches."""
    monkeypatch.setattr(demonstrations, "maker", cached_maker)
    more = list(demonstrations.records(recipe, "test", NUM_TASKS["test"] + 70))
    kept = [record for record in more[: NUM_TASKS["test"]] if record]
    for ours, theirs in zip(kept, read_all(stored.splits["test"]), strict=True):
        np.testing.assert_array_equal(ours["tokens"], theirs["tokens"])


def test_choose_draws_what_one_of_applies(getkey):
    marks = [lambda key, task, strength, i=i: jnp.int32(i) for i in range(5)]
    keys = jax.random.split(getkey(), 64)
    took = jax.vmap(lambda key: perturb.one_of(*marks)(key, 0, 1.0))(keys)
    drawn = jax.vmap(lambda key: perturb.choose(key, 5)[0])(keys)
    np.testing.assert_array_equal(took, drawn)
    assert set(drawn.tolist()) == {0, 1, 2, 3, 4}
