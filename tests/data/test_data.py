"""Stored demonstrations: their contents, their order, and resuming."""

import contextlib
import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch.common import backbones, build, checks, cli
from openagent_jax import data, perturb, sharding, train
from openagent_jax.algorithms import sft
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.data import demonstrations
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.environments.world import Settings
from tests import helpers, tiny

pytest.importorskip("grain")
pytest.importorskip("tensorflow_datasets")
from openagent_jax.data import feed, store

pytestmark = pytest.mark.slow

NAMES = ("identity_erasure", "tool_withheld")
NUM = {"train": 71, "test": 20}
SEED, ALPHA, NUM_TOKENS, MAX_TURNS = 3, 0.3, 240, 8


@pytest.fixture(scope="module")
def recipe():
    sizes = Settings(max_turns=MAX_TURNS).sizes
    environment = tools.functions(sizes, helpers.NUM_VISIBLE)
    return demonstrations.Recipe(
        world=helpers.world("poi")._replace(environment=environment),
        domain="poi",
        num_tokens=NUM_TOKENS,
        seed=SEED,
        alpha=ALPHA,
        perturbations=NAMES,
        about={"code_version": "that of the test"},
    )


@pytest.fixture(scope="module")
def stored(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "poi"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstrations, "maker", maker)
        return store.write(folder, recipe, helpers.tokenizer().to_str(), NUM)


MAKERS = {}


def maker(recipe, split, make=demonstrations.maker):
    """As `demonstrations.maker`, but compiled once."""
    if split not in MAKERS:
        MAKERS[split] = make(recipe, split)
    return MAKERS[split]


def keys_of(split, index):
    """Return the keys that draw the tasks of these indices, and that perturb them."""
    root = jax.random.fold_in(jax.random.key(SEED), domain.SPLITS[split])
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    return jax.vmap(jax.random.split)(fold(root, jnp.asarray(index)))


def folder_of(stored):
    return stored.folder.parents[1]


def everything(records):
    return [records[i] for i in range(len(records))]


# What is stored.


def test_is_what_the_device_makes(recipe, stored):
    """Tokens and loss masks follow from seed and index, and equal the algorithm's own;
    demonstrations that are longer than a row are left out and counted."""
    index = jnp.arange(NUM["train"])
    keys = keys_of("train", index)
    # Three out of ten in a row, none of them earlier than its share is due.
    noisy = np.array([i % 10 in (3, 6, 9) for i in range(NUM["train"])])
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
    assert 0 < len(fits) < NUM["train"] and max(length) < room
    records = everything(stored.splits["train"])
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
        "asked_for": NUM["train"],
        "left_out": NUM["train"] - len(fits),
        "perturbed": int(np.sum(~same[fits])),
        "tokens": int(np.sum(length[fits])),
        "loss_tokens": int(np.sum(batch.loss_mask[fits])),
    }
    assert counts["perturbed"] > 5


def test_names_tell_what_was_done(stored):
    """A task with a withheld tool is unsolvable; an erased name looks meaningless."""
    records = everything(stored.splits["train"])
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
        for split in NUM
    }
    for split, records in stored.splits.items():
        found = everything(records)
        assert {record["split"] for record in found} == {split.encode()}
        # A record has its index, and thereby the key of its world.
        keys = keys_of(split, [int(record["index"]) for record in found])[:, 0]
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


def test_a_larger_dataset_begins_with_the_same(recipe, stored, monkeypatch):
    """This also holds if it takes another number of batches."""
    monkeypatch.setattr(demonstrations, "maker", maker)
    more = list(demonstrations.records(recipe, "test", NUM["test"] + 70))
    kept = [record for record in more[: NUM["test"]] if record]
    for ours, theirs in zip(kept, everything(stored.splits["test"]), strict=True):
        np.testing.assert_array_equal(ours["tokens"], theirs["tokens"])


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (0.0, []),
        (0.3, [3, 6, 9, 13, 16, 19]),
        (0.5, [*range(1, 20, 2)]),
        (1.0, [*range(20)]),
    ],
)
def test_share_that_is_perturbed(alpha, expected):
    found = np.flatnonzero(demonstrations.is_perturbed(np.arange(20), alpha))
    assert found.tolist() == expected


def test_drawn_is_what_one_of_takes(getkey):
    marks = [lambda key, task, strength, i=i: jnp.int32(i) for i in range(5)]
    keys = jax.random.split(getkey(), 64)
    took = jax.vmap(lambda key: perturb.one_of(*marks)(key, 0, 1.0))(keys)
    drawn = jax.vmap(lambda key: perturb.choose(key, 5)[0])(keys)
    np.testing.assert_array_equal(took, drawn)
    assert set(drawn.tolist()) == {0, 1, 2, 3, 4}


def test_metadata_is_stored_with_it(stored, recipe):
    assert store.read(folder_of(stored)).metadata == stored.metadata
    expected = {"domain": "poi", "seed": SEED, "alpha": ALPHA, "strength": 1.0}
    expected |= {"num_tokens": NUM_TOKENS, "perturbations": list(NAMES)}
    expected |= {"code_version": "that of the test", "max_turns": MAX_TURNS}
    expected |= demonstrations.fingerprints(recipe.world.tables.lexicon)
    assert stored.metadata.items() >= expected.items()
    assert stored.tokenizer == helpers.tokenizer().to_str()


# What is refused.


def test_another_tokenizer_or_form_is_refused(stored, recipe):
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
    with pytest.raises(ValueError, match=f"up to {NUM_TOKENS} tokens, a row has 239"):
        store.check(stored, ours, NUM_TOKENS - 1)


def test_a_dataset_is_not_overwritten(stored, recipe):
    with pytest.raises(FileExistsError, match="holds a dataset; remove"):
        store.write(folder_of(stored), recipe, "", NUM)
    assert len(store.read(folder_of(stored)).splits) == 2


KILLED = """
import os, signal
from openagent_jax.data import demonstrations, store
from tests import helpers
from tests.data import test_data
def records(recipe, split, num):
    yield from test_data.RECORDS[:5]
    os.kill(os.getpid(), signal.SIGKILL)
demonstrations.records = records
recipe = demonstrations.Recipe(helpers.world("poi"), "poi", 240, 0)
store.write(%r, recipe, "{}", {"train": 9})
"""
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


def test_a_build_that_is_cut_leaves_nothing_whole(tmp_path, recipe, monkeypatch):
    killed = subprocess.run([sys.executable, "-c", KILLED % str(tmp_path)])
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


def test_nothing_fits(tmp_path, recipe, monkeypatch):
    monkeypatch.setattr(demonstrations, "records", lambda *args: iter([None] * 9))
    with pytest.raises(ValueError, match=r"no demonstration of train has 240 tokens"):
        store.write(tmp_path, recipe, "{}", {"train": 9})
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    "name", ["demonstrations-train.*", "*_info.json", "metadata.json", "tokenizer.json"]
)
@pytest.mark.parametrize("share", [None, 0.5])
def test_damage_is_told_of(stored, tmp_path, name, share):
    shutil.copytree(folder_of(stored), tmp_path / "poi")
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


# The order of records. A toy record is known by its tokens.


def drain(records, num_batches, num_rows=4, num_columns=12, **settings):
    settings = {"seed": 0, "packed": False} | settings
    made = feed.batches(records, num_rows=num_rows, num_columns=num_columns, **settings)
    made = iter(made)
    return [next(made) for _ in range(num_batches)]


def toys(num):
    """Records that each consist of one repeated token."""
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


def firsts(batches):
    """Return which toy is in each row, for one toy per row."""
    return [int(row[0]) - 1 for batch in batches for row in batch.tokens]


def test_a_row_for_each_by_hand():
    (batch,) = drain(RECORDS[:1], 1, num_rows=2, num_columns=4)
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
        seen = firsts(
            drain(toys(num), 2 * mine, num_rows=1, process=(index, num_processes))
        )
        orders.append((seen[:mine], seen[mine:]))
    for epoch in range(2):
        seen = [i for order in orders for i in order[epoch]]
        assert sorted(seen) == list(range(num))
    assert orders[0][0] != orders[0][1]
    assert firsts(drain(toys(num), num, num_rows=1, seed=1)) != orders[0][0]


def test_more_processes_than_records():
    with pytest.raises(ValueError, match="1 demonstrations are too few for 2"):
        drain(toys(1), 1, process=(0, 2))


@pytest.mark.parametrize("packed", [False, True])
def test_threads_change_nothing(packed):
    one, many = (drain(toys(50), 40, packed=packed, num_threads=num) for num in (1, 8))
    jax.tree.map(np.testing.assert_array_equal, one, many)


def test_packed_as_on_the_device():
    """The same order of records, packed first-fit until one does not fit."""
    num_rows, num_columns = 3, 14
    pack = jax.jit(sft.pack, static_argnums=3)
    waiting = [toys(20)[i] for i in firsts(drain(toys(20), 80, num_rows=1))]
    for batch in drain(toys(20), 6, num_rows, num_columns, packed=True):
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
            found, num_dropped = pack(tokens, mask, length, num_rows)
            if num_dropped > 11 - num:
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


def made_feed(packed, of="toys", records=None):
    mesh = sharding.make_mesh(data=4, devices=jax.devices()[:4])
    layout = sharding.batch_sharding(mesh)
    rows = feed.batches(records or toys(20), 0, 4, 12, packed)
    return feed.Feed(rows, (4, 12), layout, {"of": of})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("num_read", [0, 1, 7])
def test_goes_on_exactly_where_it_was(packed, num_read):
    whole, cut = made_feed(packed), made_feed(packed)
    for _ in range(num_read):
        next(whole), next(cut)
    state = json.loads(json.dumps(cut.state()))  # as a checkpoint keeps it
    other = made_feed(packed)
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


def test_a_state_of_other_data_is_refused():
    state = made_feed(True).state()
    with pytest.raises(ValueError, match="not the one that this run started with"):
        made_feed(True, of="others").restore(state)
    twice = state | {"states": state["states"] * 2}
    with pytest.raises(ValueError, match="by 2 process.* now by 1; start as many"):
        made_feed(True).restore(twice)


def test_a_mesh_that_processes_cannot_share():
    mesh = sharding.make_mesh(data=2, tensor=2, devices=jax.devices()[:4])
    sharding.check_processes(mesh, 2)
    with pytest.raises(ValueError, match=r"4 processes cannot divide .*mesh.data"):
        sharding.check_processes(mesh, 4)


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    monkeypatch.delitem(sys.modules, store.__name__)
    monkeypatch.delattr(data, "store")
    c = tiny.config("sft", data__path="somewhere")
    with pytest.raises(
        cli.UsageError, match=r"data.path needs .* pip install -e .*data"
    ):
        build.feed(c, None)


def test_what_cannot_be_read_is_one_line():
    class Broken(list):
        def __getitem__(self, index):
            raise RuntimeError("Corrupted\nrecords file")

    with pytest.raises(RuntimeError, match="cannot be read: .*Corrupted records file"):
        next(made_feed(False, records=Broken(toys(9))))


OF_TWO = """
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


def test_two_real_processes():
    """Each gets its rows of the same batches, and has its own read position."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    names = "tokens", "loss_mask"
    records = json.dumps([{k: x[k].tolist() for k in names} for x in toys(21)])
    both = [
        subprocess.Popen(
            [sys.executable, "-c", OF_TWO, str(i), port, records],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )
        for i in range(2)
    ]
    said = [json.loads(x.communicate(timeout=120)[0].splitlines()[-1]) for x in both]
    (state, before, after, rows), (same_state, *same_sums, other_rows) = said
    assert state == same_state and [before, after] == same_sums
    assert before == after and len(set(before)) > 1
    places = [place["parent"]["next_index"] for place in state["states"]]
    assert len(set(places)) == 2  # they have read different texts
    expected = [drain(toys(21), 1, num_rows=2, process=(i, 2)) for i in range(2)]
    expected = [*enumerate(itertools.chain(*map(firsts, expected)))]
    assert [tuple(row) for row in rows + other_rows] == expected


# Training on it.


@pytest.fixture(scope="module")
def fed(stored):
    """A function that returns the step, the first state, and the feed at its start."""
    c = tiny.config(
        "sft",
        sandbox__num_visible=helpers.NUM_VISIBLE,
        data__path=str(folder_of(stored)),
        algorithm__num_tokens=2 * NUM_TOKENS,
        algorithm__num_rows=4,
        train__num_micro_batches=2,
        seed=1,
    )
    checks.check(c)
    model = backbones.backbone(c)
    source = build.world(c, model, c.sandbox.domain)
    devices = jax.devices()[:1]
    read = build.feed(c, source, devices)
    step, state = build.trainer(c, model, source, devices, read)
    begin = read.state()

    def start():
        read.restore(begin)
        return step, tiny.copy(state), read

    return start


class Killed(Exception):
    pass


def run(folder, step, state, read, num_steps=6, killed_at=0):
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


def test_killed_and_resumed_is_the_same_bit_for_bit(fed, tmp_path):
    whole, expected = run(tmp_path / "whole", *fed())
    assert len(set(expected.values())) == 6
    _, before = run(tmp_path / "cut", *fed(), killed_at=5)
    # Another feed, which has already been read from.
    step, state, read = fed()
    for _ in range(3):
        next(read)
    resumed, after = run(tmp_path / "cut", step, state, read)
    assert min(after) == 5  # steps after the last checkpoint are repeated
    assert before | after == expected
    for ours, theirs in zip(*map(jax.tree.leaves, (resumed.params, whole.params))):
        np.testing.assert_array_equal(ours, theirs)


def test_a_fed_step_learns_from_what_is_stored(fed, stored):
    """The tokens of a step are those of the records, in the order of the feed."""
    step, state, read = fed()
    batch = next(read)
    read.restore(fed()[2].state())
    _, metrics = step(state)
    assert metrics["train/num_tokens"] == np.sum(batch.valid)
    assert metrics["train/num_loss_tokens"] == np.sum(batch.loss_mask)
    known = {bytes(x["tokens"]) for x in everything(stored.splits["train"])}
    for tokens, segments in zip(*map(np.asarray, (batch.tokens, batch.segments))):
        assert segments[0] == 1
        for i in range(1, 1 + segments.max()):
            assert bytes(tokens[segments == i]) in known
