"""Demonstrations on disk: a TFDS dataset in `array_record` files, without TensorFlow.

    folder/demonstrations/2.0.0/    records, features, metadata, and the tokenizer

TFDS writes to a temporary folder and renames it once it is complete.
"""

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from array_record.python import array_record_module as array_record

from openagent_jax.curriculum.draw import CLEAN
from openagent_jax.data import demonstrations
from openagent_jax.data.demonstrations import Recipe, Record

TOKENIZER = "tokenizer.json"
# Counts of a split; demonstrations that are longer than a row are left out.
COUNTS = ("asked_for", "left_out", "perturbed", "tokens", "loss_tokens", "longest")
# Metadata that must be equal for reader and writer, and their names in errors.
SAME = {"tokenizer": "tokenizer", "chat_style": "chat style"}


class Demonstrations(tfds.core.GeneratorBasedBuilder):
    """The expert's demonstrations of one recipe."""

    VERSION = tfds.core.Version("2.0.0")

    def __init__(self, recipe: Recipe, tokenizer: str, num: dict[str, int], **kwargs):
        self._recipe, self._tokenizer, self._num = recipe, tokenizer, num
        super().__init__(**kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        def tensor(dtype, about):
            return tfds.features.Tensor(shape=(None,), dtype=dtype, doc=about)

        def scalar(dtype, about):
            return tfds.features.Scalar(dtype=dtype, doc=about)

        def text(about):
            return tfds.features.Text(doc=about)

        features = {
            "tokens": tensor(np.int32, "of the whole episode"),
            "loss_mask": tensor(np.bool_, "those that the policy must produce"),
            "seed": scalar(np.int64, "of the dataset"),
            "index": scalar(np.int64, "of the task; with seed and split its key"),
            "split": text("train or test"),
            "domain": text("where the tools are from"),
            "goal": text("which goal of the domain"),
            "perturbation": text(f"its name, or {CLEAN}"),
            "strength": scalar(np.float32, "which a name with @ multiplies"),
            "num_calls": scalar(np.int32, "that the expert makes"),
            "solvable": scalar(np.bool_, "whether the task can be done at all"),
        }
        self._counts = {
            split: dict.fromkeys(COUNTS, 0) | {"asked_for": num}
            for split, num in self._num.items()
        }
        metadata = self._recipe.metadata() | {"counts": self._counts}
        return tfds.core.DatasetInfo(
            builder=self,
            description="Demonstrations of an oracle in a tool-use sandbox.",
            features=tfds.features.FeaturesDict(features),
            metadata=tfds.core.MetadataDict(metadata),
            disable_shuffling=True,  # the order is that of the index
        )

    def _split_generators(self, dl_manager):
        del dl_manager  # nothing is downloaded
        # Here, `data_dir` is the temporary folder.
        (Path(self.data_dir) / TOKENIZER).write_text(self._tokenizer, "utf-8")
        return {split: self._generate_examples(split) for split in self._num}

    def _generate_examples(self, split: str):
        made = demonstrations.records(self._recipe, split, self._num[split])
        counts = self._counts[split]
        for i, record in enumerate(made):
            if record is None:
                counts["left_out"] += 1
                continue
            counts["perturbed"] += record["perturbation"] != CLEAN
            counts["tokens"] += len(record["tokens"])
            counts["longest"] = max(counts["longest"], len(record["tokens"]))
            counts["loss_tokens"] += int(np.sum(record["loss_mask"]))
            yield i, record
        if counts["left_out"] == counts["asked_for"]:
            raise ValueError(
                f"no demonstration of {split} has {self._recipe.num_tokens} tokens or "
                "fewer; raise algorithm.num_tokens"
            )


class Stored(NamedTuple):
    """A dataset on disk."""

    folder: Path
    metadata: dict[str, Any]
    splits: dict[str, Sequence[Record]]
    size: str
    tokenizer: str  # the text of its tokenizer.json


def write(
    folder: str | Path, recipe: Recipe, tokenizer: str, num: dict[str, int]
) -> Stored:
    """Make demonstrations and store them as a dataset.

    Args:
      folder: where the dataset is written; it must not hold one yet.
      recipe: how the demonstrations are made.
      tokenizer: the text of the tokenizer.json.
      num: number of tasks of each split; demonstrations that are too long are left out.

    Raises:
      FileExistsError: the folder holds a dataset already.
      ValueError: all demonstrations of a split are too long.
    """
    check_free(folder)
    for path in _where(folder).parent.glob(f"{tfds.core.constants.INCOMPLETE_PREFIX}*"):
        shutil.rmtree(path)  # left by a build that was killed
    tfds.disable_progress_bar()
    builder = Demonstrations(
        recipe, tokenizer, num, data_dir=str(folder), file_format="array_record"
    )
    # TFDS prints messages about downloads, and makes a folder for them.
    with (
        contextlib.redirect_stdout(io.StringIO()),
        tempfile.TemporaryDirectory() as unused,
    ):
        builder.download_and_prepare(download_dir=unused)
    return read(folder)


def check_free(folder: str | Path) -> None:
    """Check that a dataset can be written to a folder.

    Raises:
      FileExistsError: the folder holds one already.
    """
    if _where(folder).exists():
        raise FileExistsError(
            f"{folder} holds a dataset; remove {_where(folder)}, or write elsewhere"
        )


def read(folder: str | Path) -> Stored:
    """Return the dataset of a folder.

    Raises:
      FileNotFoundError: the folder holds no dataset.
      ValueError: the dataset is damaged.
    """
    where = _where(folder)
    if not where.is_dir():
        raise FileNotFoundError(
            f"{folder} holds no dataset; python -m launch.data build --out={folder} "
            "makes one"
        )
    try:
        builder = tfds.builder_from_directory(where)
        metadata = json.loads((where / "metadata.json").read_text("utf-8"))
        tokenizer = (where / TOKENIZER).read_text("utf-8")
        splits = {
            split: builder.as_data_source(split=split) for split in builder.info.splits
        }
        for split, records in splits.items():
            # A file that is truncated at the end of a block reads as if it were empty.
            files = map(str, builder.info.splits[split].filepaths)
            found = sum(array_record.ArrayRecordReader(x).num_records() for x in files)
            if found != len(records):
                raise ValueError(f"{split} has {found} of {len(records)} records")
    except Exception as error:  # TFDS raises different errors for different damage
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{where} is damaged ({text[:200]})") from error
    return Stored(where, metadata, splits, str(builder.info.dataset_size), tokenizer)


def check(stored: Stored, fingerprints: dict[str, str], num_tokens: int) -> None:
    """Check that a run can use a dataset.

    Args:
      stored: the dataset.
      fingerprints: those of the run; see `demonstrations.fingerprints`.
      num_tokens: number of tokens of a row.

    Raises:
      ValueError: the dataset was made with another tokenizer or chat style, or its
        demonstrations are longer than a row.
    """
    for name, what in SAME.items():
        theirs, ours = stored.metadata[name], fingerprints[name]
        if theirs != ours:
            raise ValueError(
                f"{stored.folder} was made with another {what} ({theirs} there, {ours} "
                "here); build it again with this model"
            )
    # Datasets of an earlier version know the limit alone.
    limit, counts = stored.metadata["num_tokens"], stored.metadata["counts"].values()
    if (longest := max(x.get("longest", limit) for x in counts)) > num_tokens:
        raise ValueError(
            f"{stored.folder} has demonstrations of up to {longest} tokens, a row has "
            f"{num_tokens}; raise algorithm.num_tokens"
        )


def _where(folder: str | Path) -> Path:
    return Path(folder) / Demonstrations.name / str(Demonstrations.VERSION)
