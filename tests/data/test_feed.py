"""Batches of stored demonstrations: order, packing, processes, and resuming a run."""

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from launch.common import backbones, batching, build, checks, cli, compiled_step
from openagent_jax import data, sharding, train
from openagent_jax.algorithms import sft
from openagent_jax.checkpoint import Checkpoints
from tests import helpers, tiny
from tests.data.datasets import NUM_TOKENS, RECORDS, dataset_folder, read_all

pytest.importorskip("grain")
pytest.importorskip("tensorflow_datasets")
from openagent_jax.data import feed, store

pytestmark = pytest.mark.slow


# The order of records. A toy record is identified by its token.


def read_batches(records, num_batches, num_rows=4, num_columns=12, **settings):
    settings = {"seed": 0, "packed": False} | settings
    made = feed.batches(records, num_rows=num_rows, num_columns=num_columns, **settings)
    made = iter(made)
    return [next(made) for _ in range(num_batches)]


def toys(num):
    """Return records that each consist of one repeated token."""
    random = np.random.default_rng(0)
    lengths = random.integers(2, 10, num)
    return [
        {
            "tokens": np.full(size, 1 + i, np.int32),
            "loss_mask": np.arange(size) >= size // 2,
            "index": i,
        }
        for i, size in enumerate(lengths)
    ]


def indices(batches):
    """Return which toy is in each row, for one toy per row."""
    return [int(row[0]) - 1 for batch in batches for row in batch.tokens]


def test_unpacked_batch_by_hand():
    (batch,) = read_batches(RECORDS[:1], 1, num_rows=2, num_columns=4)
    assert batch.tokens.tolist() == [[1, 2, 0, 0]] * 2
    assert batch.positions.tolist() == [[0, 1, 2, 3]] * 2
    assert batch.segments.tolist() == [[1, 1, 0, 0]] * 2
    assert batch.loss_mask.tolist() == [[False, True, False, False]] * 2
    assert batch.divisor.tolist() == [1, 1]


@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_processes_share_each_epoch(num_processes):
    """Together they see every record once per epoch, in an order that changes."""
    num = 11  # the processes have different numbers of records
    orders = []
    for index in range(num_processes):
        mine = len(range(index, num, num_processes))
        process = index, num_processes
        batches = read_batches(toys(num), 2 * mine, num_rows=1, process=process)
        seen = indices(batches)
        orders.append((seen[:mine], seen[mine:]))
    for epoch in range(2):
        seen = [i for order in orders for i in order[epoch]]
        assert sorted(seen) == list(range(num))
    assert orders[0][0] != orders[0][1]
    assert indices(read_batches(toys(num), num, num_rows=1, seed=1)) != orders[0][0]


def test_more_processes_than_records():
    with pytest.raises(ValueError, match="1 demonstrations are too few for 2"):
        read_batches(toys(1), 1, process=(0, 2))


@pytest.mark.parametrize("packed", [False, True])
def test_a_record_that_is_longer_than_a_row(packed):
    """It is not cut, so that no episode without its end is trained on."""
    long = {"tokens": np.ones(13, np.int32), "loss_mask": np.ones(13, bool)}
    with pytest.raises(ValueError, match="13 tokens, and a row has 12; raise algo"):
        read_batches([long], 1, packed=packed)


@pytest.mark.parametrize("packed", [False, True])
def test_order_does_not_depend_on_threads(packed):
    one, many = (
        read_batches(toys(50), 40, packed=packed, num_threads=num) for num in (1, 8)
    )
    jax.tree.map(np.testing.assert_array_equal, one, many)


def test_packing_equals_that_of_sft():
    """The same order of records, packed first-fit until one does not fit."""
    num_rows, num_columns = 3, 14
    pack = jax.jit(sft.pack, static_argnums=3)
    waiting = [toys(20)[i] for i in indices(read_batches(toys(20), 80, num_rows=1))]
    for batch in read_batches(toys(20), 6, num_rows, num_columns, packed=True):
        texts = waiting[:12]
        sizes = np.array([len(text["tokens"]) for text in texts])
        tokens, mask = (
            np.stack([np.resize(text[name], num_columns) for text in texts])
            for name in ("tokens", "loss_mask")
        )
        mask &= np.arange(num_columns) < sizes[:, None]
        num = 0
        while True:  # the texts after `num` are made too long for any row
            length = np.where(np.arange(12) <= num, sizes, num_columns + 1)
            found, placed = pack(tokens, mask, length, num_rows)
            if np.sum(~placed) > 11 - num:
                break
            best, num = found, num + 1
        assert 3 < num < 12
        waiting = waiting[num:]
        for name in ("tokens", "positions", "loss_mask", "divisor"):
            np.testing.assert_array_equal(getattr(batch, name), getattr(best, name))
        # Segments are numbered from 1 in each row, not by text.
        for ours, theirs in zip(batch.segments, np.asarray(best.segments)):
            np.testing.assert_array_equal(np.diff(ours) != 0, np.diff(theirs) != 0)
            np.testing.assert_array_equal(ours > 0, theirs > 0)


def toy_feed(packed, of="toys", records=None):
    mesh = sharding.make_mesh(data=4, devices=jax.devices()[:4])
    layout = sharding.batch_sharding(mesh)
    rows = feed.batches(records or toys(20), 0, 4, 12, packed)
    return feed.Feed(rows, (4, 12), layout, {"of": of})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("num_read", [0, 1, 7])
def test_restored_feed_continues_exactly(packed, num_read):
    whole, cut = toy_feed(packed), toy_feed(packed)
    for _ in range(num_read):
        next(whole), next(cut)
    state = json.loads(json.dumps(cut.state()))  # as a checkpoint keeps it
    other = toy_feed(packed)
    next(other)
    other.restore(state)
    for _ in range(9):
        ours, theirs = next(other), next(whole)
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        assert len(ours.tokens.sharding.device_set) == 4
        like = jax.tree.map(lambda x: (x.shape, x.dtype, x.sharding), ours)
        assert like == jax.tree.map(
            lambda x: (x.shape, x.dtype, x.sharding), other.abstract
        )


def test_state_of_another_dataset_is_rejected():
    state = toy_feed(True).state()
    with pytest.raises(ValueError, match="not the one that this run started with"):
        toy_feed(True, of="others").restore(state)
    twice = state | {"states": state["states"] * 2}
    with pytest.raises(ValueError, match="by 2 process.* now by 1; start 2 again"):
        toy_feed(True).restore(twice)


def test_processes_must_divide_the_data_axis():
    mesh = sharding.make_mesh(data=2, tensor=2, devices=jax.devices()[:4])
    sharding.check_processes(mesh, 2)
    with pytest.raises(ValueError, match=r"4 processes cannot divide .*mesh.data"):
        sharding.check_processes(mesh, 4)


def test_missing_extra_is_a_usage_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    monkeypatch.delitem(sys.modules, store.__name__)
    monkeypatch.delattr(data, "store")
    c = tiny.config("sft", data__path="somewhere")
    with pytest.raises(
        cli.UsageError, match=r"data.path needs .* pip install -e .*data"
    ):
        batching.stored(c, None)


def test_read_error_is_one_line():
    class Broken(list):
        def __getitem__(self, index):
            raise RuntimeError("Corrupted\nrecords file")

    with pytest.raises(RuntimeError, match="cannot be read: .*Corrupted records file"):
        next(toy_feed(False, records=Broken(toys(9))))


WORKER = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
me = int(sys.argv[1])
jax.distributed.initialize(f"localhost:{sys.argv[2]}", 2, me)
from openagent_jax import sharding
from openagent_jax.data import feed
def made(packed=True):
    rows = feed.batches(json.loads(sys.argv[3]), 0, 2, 12, packed, (me, 2))
    layout = sharding.batch_sharding(sharding.make_mesh(data=4))
    return feed.Feed(rows, (4, 12), layout, {})
total = jax.jit(lambda batch: batch.tokens.sum())
whole = made()
for _ in range(3):
    total(next(whole))
state = whole.state()
other = made()
other.restore(json.loads(json.dumps(state)))
sums = [[int(total(next(x))) for _ in range(5)] for x in (whole, other)]
shards = next(made(False)).tokens.addressable_shards
rows = [(x.index[0].start, int(x.data[0, 0]) - 1) for x in shards]
print(json.dumps([state, *sums, rows]))
"""


def test_two_processes_read_their_shares():
    """Each gets its rows of the same batches, and has its own read position."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    names = "tokens", "loss_mask"
    records = json.dumps([{k: x[k].tolist() for k in names} for x in toys(21)])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(i), port, records],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )
        for i in range(2)
    ]
    outputs = [
        json.loads(x.communicate(timeout=120)[0].splitlines()[-1]) for x in processes
    ]
    (state, before, after, rows), (same_state, *same_sums, other_rows) = outputs
    assert state == same_state and [before, after] == same_sums
    assert before == after and len(set(before)) > 1
    places = [place["parent"]["next_index"] for place in state["states"]]
    assert len(set(places)) == 2  # they have read different texts
    expected = [read_batches(toys(21), 1, num_rows=2, process=(i, 2)) for i in range(2)]
    expected = [*enumerate(itertools.chain(*map(indices, expected)))]
    assert [tuple(row) for row in rows + other_rows] == expected


# Training on it.


@pytest.fixture(scope="module")
def start_training(stored):
    """A function that returns the step, the first state, and the feed at its start."""
    c = tiny.config(
        "sft",
        sandbox__num_visible=helpers.NUM_VISIBLE,
        data__path=str(dataset_folder(stored)),
        algorithm__num_tokens=2 * NUM_TOKENS,
        algorithm__num_rows=4,
        train__num_micro_batches=2,
        seed=1,
    )
    checks.check(c)
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    devices = jax.devices()[:1]
    read = batching.stored(c, source, devices)
    step, state = compiled_step.trainer(c, model, source, devices, read)
    begin = read.state()

    def start():
        read.restore(begin)
        return step, tiny.copy(state), read

    return start


class Killed(Exception):
    pass


def train_run(folder, step, state, read, num_steps=6, killed_at=0):
    """Train as `launch.train` does; return `(state, losses)`."""
    losses = {}

    def watch(at, metrics):
        losses[at] = float(metrics["train/loss"])
        if at == killed_at:
            raise Killed

    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        if checkpoints.latest_step():
            state, _, meta = checkpoints.restore(state)
            read.restore(meta["data"])
        with contextlib.suppress(Killed):
            state = train.run(
                step,
                state,
                num_steps=num_steps,
                writer=None,
                checkpoints=checkpoints,
                checkpoint_every=2,
                meta={},
                watch=watch,
                position=lambda: {"data": read.state()},
            ).state
    return state, losses


def test_interrupted_run_resumes_bit_for_bit(start_training, tmp_path):
    whole, expected = train_run(tmp_path / "whole", *start_training())
    assert len(set(expected.values())) == 6
    _, before = train_run(tmp_path / "cut", *start_training(), killed_at=5)
    # Another feed, which has already been read from.
    step, state, read = start_training()
    for _ in range(3):
        next(read)
    resumed, after = train_run(tmp_path / "cut", step, state, read)
    assert min(after) == 5  # steps after the last checkpoint are repeated
    assert before | after == expected
    for ours, theirs in zip(*map(jax.tree.leaves, (resumed.params, whole.params))):
        np.testing.assert_array_equal(ours, theirs)


def test_step_trains_on_the_stored_records(start_training, stored):
    """The tokens of a step are those of the records, in the order of the feed."""
    step, state, read = start_training()
    batch = next(read)
    read.restore(start_training()[2].state())
    _, metrics = step(state)
    assert metrics["train/num_tokens"] == np.sum(batch.valid)
    assert metrics["train/num_loss_tokens"] == np.sum(batch.loss_mask)
    known = {bytes(x["tokens"]) for x in read_all(stored.splits["train"])}
    for tokens, segments in zip(*map(np.asarray, (batch.tokens, batch.segments))):
        assert segments[0] == 1
        for i in range(1, 1 + segments.max()):
            assert bytes(tokens[segments == i]) in known
