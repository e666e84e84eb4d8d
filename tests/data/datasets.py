"""The settings of the stored dataset, its compiled maker, and simple records."""

import numpy as np

from openagent_jax.data import demonstrations

NAMES = ("identity_erasure", "tool_withheld")  # the perturbations
NUM_TASKS = {"train": 71, "test": 20}
SEED, ALPHA, NUM_TOKENS, MAX_TURNS = 3, 0.3, 240, 8

# Complete records, made without a world.
RECORDS = [
    {
        "tokens": np.arange(1, 3 + i % 5, dtype=np.int32),
        "loss_mask": np.arange(2 + i % 5) > 0,
        "num_calls": np.int32(1),
        "solvable": np.bool_(True),
        "seed": 0,
        "index": i,
        "split": "train",
        "domain": "toy",
        "perturbation": demonstrations.CLEAN,
        "strength": 0.0,
        "goal": "toy",
    }
    for i in range(23)
]

MAKERS = {}


def cached_maker(recipe, split, make=demonstrations.maker):
    """As `demonstrations.maker`, but compiled once."""
    if split not in MAKERS:
        MAKERS[split] = make(recipe, split)
    return MAKERS[split]


def dataset_folder(stored):
    """Return the folder that `store.write` was given."""
    return stored.folder.parents[1]


def read_all(records):
    return [records[i] for i in range(len(records))]
