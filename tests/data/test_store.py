"""Datasets on disk: metadata, checks before use, interrupted builds, and damage."""

import dataclasses
import shutil
import signal
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.data import demonstrations
from tests import helpers
from tests.data.datasets import (
    ALPHA,
    MAX_TURNS,
    NAMES,
    NUM_TASKS,
    NUM_TOKENS,
    RECORDS,
    SEED,
    dataset_folder,
)

pytest.importorskip("tensorflow_datasets")
from openagent_jax.data import store

pytestmark = pytest.mark.slow


def test_metadata_is_stored(stored, recipe):
    assert store.read(dataset_folder(stored)).metadata == stored.metadata
    expected = {"domain": "poi", "seed": SEED, "alpha": ALPHA, "strength": 1.0}
    expected |= {"num_tokens": NUM_TOKENS, "perturbations": list(NAMES)}
    expected |= {"code_version": "that of the test", "max_turns": MAX_TURNS}
    expected |= demonstrations.fingerprints(recipe.world.tables.lexicon)
    assert stored.metadata.items() >= expected.items()
    assert stored.tokenizer == helpers.tokenizer().to_str()


def test_other_tokenizer_or_chat_style_is_rejected(stored, recipe):
    lexicon = recipe.world.tables.lexicon
    ours = demonstrations.fingerprints(lexicon)
    store.check(stored, ours, NUM_TOKENS)
    swapped = np.asarray(lexicon.token_bytes.flat)[::-1].copy()
    table = dataclasses.replace(lexicon.token_bytes, flat=jnp.asarray(swapped))
    form = helpers.lexicon("poi", "hermes").style_digest
    for other, what in (
        (dataclasses.replace(lexicon, token_bytes=table), "another tokenizer"),
        (dataclasses.replace(lexicon, style_digest=form), "another chat style"),
    ):
        with pytest.raises(ValueError, match=what) as error:
            store.check(stored, demonstrations.fingerprints(other), NUM_TOKENS)
        assert str(stored.folder) in str(error.value)
    # Rows have to hold what is stored, not what the limit would have allowed.
    longest = max(len(x["tokens"]) for rows in stored.splits.values() for x in rows)
    found = [counts["longest"] for counts in stored.metadata["counts"].values()]
    assert max(found) == longest
    with pytest.raises(ValueError, match=f"up to {longest} tokens, a row has"):
        store.check(stored, ours, longest - 1)

    def with_counts(**counts):
        made = {"counts": {split: counts for split in stored.splits}}
        return stored._replace(metadata=stored.metadata | made)

    store.check(with_counts(longest=100), ours, 100)
    with pytest.raises(ValueError, match=f"up to {NUM_TOKENS} tokens"):
        store.check(with_counts(), ours, NUM_TOKENS - 1)  # of an earlier version


def test_existing_dataset_is_not_overwritten(stored, recipe):
    with pytest.raises(FileExistsError, match="holds a dataset; remove"):
        store.write(dataset_folder(stored), recipe, "", NUM_TASKS)
    assert len(store.read(dataset_folder(stored)).splits) == 2


KILLED_BUILD = """
import os, signal
from openagent_jax.data import demonstrations, store
from tests import helpers
from tests.data.datasets import RECORDS
def records(recipe, split, num):
    yield from RECORDS[:5]
    os.kill(os.getpid(), signal.SIGKILL)
demonstrations.records = records
recipe = demonstrations.Recipe(helpers.world("poi"), "poi", 240, 0)
store.write(%r, recipe, "{}", {"train": 9})
"""


def test_interrupted_build_leaves_no_dataset(tmp_path, recipe, monkeypatch):
    killed = subprocess.run([sys.executable, "-c", KILLED_BUILD % str(tmp_path)])
    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.rglob("incomplete*"))
    with pytest.raises(FileNotFoundError, match="launch.data build --out="):
        store.read(tmp_path)

    def records(*args):
        yield RECORDS[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(demonstrations, "records", records)
    with pytest.raises(KeyboardInterrupt):
        store.write(tmp_path, recipe, "{}", {"train": 9})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    monkeypatch.setattr(demonstrations, "records", lambda *args: iter(RECORDS[:9]))
    made = store.write(tmp_path, recipe, "{}", {"train": 9})
    assert len(made.splits["train"]) == 9
    assert [path.name for path in tmp_path.rglob("demonstrations/*")] == ["2.0.0"]


def test_error_if_no_demonstration_fits(tmp_path, recipe, monkeypatch):
    monkeypatch.setattr(demonstrations, "records", lambda *args: iter([None] * 9))
    with pytest.raises(ValueError, match=r"no demonstration of train has 240 tokens"):
        store.write(tmp_path, recipe, "{}", {"train": 9})
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    "name", ["demonstrations-train.*", "*_info.json", "metadata.json", "tokenizer.json"]
)
@pytest.mark.parametrize("share", [None, 0.5])
def test_damaged_files_are_reported(stored, tmp_path, name, share):
    shutil.copytree(dataset_folder(stored), tmp_path / "poi")
    (file,) = tmp_path.rglob(name)
    intact = file.read_bytes()
    file.unlink()
    if share:
        file.write_bytes(intact[: int(share * len(intact))])
    if share and name == "tokenizer.json":
        return  # only for people who read it: a model has its own
    with pytest.raises(ValueError, match="is damaged") as error:
        store.read(tmp_path / "poi")
    assert "\n" not in str(error.value)
