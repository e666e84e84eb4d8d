"""Read stored demonstrations as shuffled, packed batches, with exact resumption.

Each of n processes reads every n-th record of an epoch, so that together they read each
record once. The order depends only on the seed and on the state of the iterator; the
number of threads affects the speed, not the order.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import grain
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding

from openagent_jax.types import Batch

Json = dict[str, Any]
NUM_AHEAD = 64  # number of records that are prefetched


def batches(
    records: Sequence[Any],
    seed: int,
    num_rows: int,
    num_columns: int,
    packed: bool,
    process: tuple[int, int] = (0, 1),
    num_threads: int = 2,
) -> grain.IterDataset:
    """Return an endless dataset of batches of NumPy arrays.

    Args:
      records: demonstrations with `tokens` and `loss_mask`.
      seed: the seed of the order, which differs from epoch to epoch.
      num_rows: number of rows of a batch of this process.
      num_columns: number of tokens of a row; a longer record raises a `ValueError`
        when it is read.
      packed: whether records are packed end to end, each into the first row that has
        room for it; otherwise each has its own row.
      process: the index of this process, and the number of processes.
      num_threads: number of threads that read.

    >>> record = {"tokens": [7, 8], "loss_mask": [False, True]}
    >>> batch = next(iter(batches([record], 0, num_rows=1, num_columns=4, packed=True)))
    >>> batch.tokens.tolist(), batch.segments.tolist()
    ([[7, 8, 7, 8]], [[1, 1, 2, 2]])

    Raises:
      ValueError: there are fewer records than processes.
    """
    index, count = process
    if len(records) < count:
        raise ValueError(
            f"{len(records)} demonstrations are too few for {count} processes"
        )
    order = grain.MapDataset.source(records).shuffle(seed=seed)
    order = order[index::count].repeat()
    read = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=NUM_AHEAD)
    arrays = order.map(lambda record: _arrays(record, num_columns))
    rows = arrays.to_iter_dataset(read)
    if packed:
        rows = grain.experimental.FirstFitPackIterDataset(
            rows,
            length_struct={"tokens": num_columns, "loss_mask": num_columns},
            num_packing_bins=num_rows,
            shuffle_bins=False,
        )
    else:
        rows = rows.map(lambda record: _padded(record, num_columns))
    return rows.batch(num_rows).map(_batch)


def _arrays(record, num_columns: int) -> Json:
    """Return the arrays of a record.

    Raises:
      ValueError: it is longer than a row, so it would lose its end.
    """
    arrays = {name: np.asarray(record[name]) for name in ("tokens", "loss_mask")}
    if (size := len(arrays["tokens"])) > num_columns:
        raise ValueError(
            f"it has {size} tokens, and a row has {num_columns}; raise "
            "algorithm.num_tokens"
        )
    return arrays


def _padded(record: Json, num_columns: int) -> Json:
    """Return a record as a row, with the same keys as a packed row."""
    size = len(record["tokens"])
    row = {name: np.resize(x, num_columns) for name, x in record.items()}
    place = np.arange(num_columns)
    here = place < size
    row = {name: np.where(here, x, 0).astype(x.dtype) for name, x in row.items()}
    return row | {
        "tokens_segment_ids": here.astype(np.int32),
        "tokens_positions": place.astype(np.int32),
    }


def _batch(rows: Json) -> Batch:
    mask = rows["loss_mask"].astype(bool)
    names = "tokens", "tokens_positions", "tokens_segment_ids"
    tokens, positions, segments = (rows[name].astype(np.int32) for name in names)
    divisor = mask.sum(axis=1).astype(np.float32)
    return Batch(tokens, positions, segments, mask, divisor)  # type: ignore


class Feed:
    """An iterator over the batches of a run, as arrays on its devices."""

    def __init__(
        self,
        batches: grain.IterDataset,
        shape: tuple[int, int],
        sharding: NamedSharding,
        of: Json,
    ):
        """
        Args:
          batches: the dataset of this process.
          shape: rows and columns of the batches of all processes together.
          sharding: the sharding of each array.
          of: a description of the dataset; a resumed run must have the same.
        """
        self.metadata = of
        self._batches, self._sharding = iter(batches), sharding
        self._of = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()

        def array(dtype, *shape) -> Any:
            return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

        ids, mask = array(np.int32, *shape), array(np.bool_, *shape)
        # The shapes and dtypes of a batch.
        self.abstract = Batch(ids, ids, ids, mask, array(np.float32, shape[0]))

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        try:
            batch = next(self._batches)
        except Exception as error:  # grain passes on whatever the file reader raises
            text = " ".join(str(error).split())
            text = f"a demonstration cannot be read: {text[:200]}"
            raise RuntimeError(text) from error
        put = jax.make_array_from_process_local_data
        return jax.tree.map(lambda x: put(self._sharding, x), batch)

    def state(self) -> Json:
        """Return the position in the data, for a checkpoint.

        All processes must call this together.
        """
        own = json.dumps(self._batches.get_state()).encode()
        size = int(np.max(multihost_utils.process_allgather(np.int32(len(own)))))
        padded = np.frombuffer(own.ljust(size), np.uint8)
        every = multihost_utils.process_allgather(padded).reshape(-1, size)
        states = [json.loads(bytes(x)) for x in every]
        return {"of": self._of, "states": states}

    def restore(self, state: Json) -> None:
        """Continue from a position that `state` returned.

        Raises:
          ValueError: it belongs to another dataset, or to another number of processes.
        """
        if state["of"] != self._of:
            raise ValueError("the dataset is not the one that this run started with")
        if (count := len(state["states"])) != jax.process_count():
            raise ValueError(
                f"the dataset was read by {count} process(es), now by "
                f"{jax.process_count()}; start {count} again"
            )
        self._batches.set_state(state["states"][jax.process_index()])
