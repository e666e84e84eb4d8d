"""A checkpoint is restored bit for bit, or else it is reported as corrupt."""

import contextlib
import gc
import logging
import math
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from jax.sharding import AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from openagent_jax import checkpoint, types

# TensorStore goes on reading, and warns, after Orbax has given up on a step.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)

STEPS = (1, 2, 3)


def make_state(seed: int, size: int = 64) -> types.TrainState:
    """Return a state of many dtypes. Orbax stores `kernel` apart from its index."""
    random = np.random.default_rng(seed)
    params = {
        "kernel": jnp.asarray(random.normal(size=(size, size)), jnp.float32),
        "half": jnp.asarray(random.normal(size=(8, 3)), jnp.bfloat16),
    }
    optimizer = optax.adamw(1e-3)
    _, opt_state = optimizer.update(params, optimizer.init(params), params)
    counts = jnp.asarray(random.integers(-100, 100, 5), jnp.int8)
    mask = jnp.asarray(random.integers(0, 2, 7), bool)
    keys = jax.random.split(jax.random.key(seed, impl="rbg"), 8)
    return types.TrainState(
        step=jnp.int32(seed),
        params=params,
        opt_state=(opt_state, counts, mask, keys),
        key=jax.random.key(seed),
    )


def abstract(state, sharding=None):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), state
    )


def to_bytes(leaf):
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return str(leaf.dtype), leaf.shape, to_bytes(jax.random.key_data(leaf))
    return str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()


def same(a, b) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        to_bytes(x) == to_bytes(y)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def save_all(folder, steps=STEPS, **kwargs):
    checkpoints = checkpoint.Checkpoints(folder, keep_last=0, **kwargs)
    for step in steps:
        checkpoints.save(step, make_state(step), {}, {"n": step})
    checkpoints.close()


def restore(folder, like=None):
    """Restore the newest state as another process would."""
    checkpoints = checkpoint.Checkpoints(folder, read_only=True)
    like = abstract(make_state(0)) if like is None else like
    with contextlib.closing(checkpoints):
        return checkpoints.restore(like)


def warnings_of(caplog) -> list[str]:
    """Return our own warnings; Orbax logs others, about files that do not matter."""
    ours = [r for r in caplog.records if r.name == checkpoint.__name__]
    return [r.getMessage() for r in ours if r.levelno >= logging.WARNING]


def leftovers(folder) -> list[pathlib.Path]:
    return list(pathlib.Path(folder).glob("*.orbax-checkpoint-tmp*"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


def test_round_trip_is_exact(folder):
    state = make_state(7)
    meta = {"config_hash": "ab12", "versions": {"jax": jax.__version__}, "é": [1, 2.5]}
    checkpoints = checkpoint.Checkpoints(folder)
    assert checkpoints.latest_step() is None
    checkpoints.save(7, state, {"eval/success": jnp.float32(0.5)}, meta)
    checkpoints.wait()
    assert (folder / "7").is_dir() and not leftovers(folder)
    restored, step, restored_meta = restore(folder)
    assert same(restored, state) and not same(restored, make_state(8))
    assert isinstance(restored.opt_state[0][0], optax.ScaleByAdamState)
    assert (step, restored_meta) == (7, meta)
    assert jnp.array_equal(
        jax.random.bits(restored.key, (3,)), jax.random.bits(state.key, (3,))
    )
    checkpoints.close()


def test_state_may_be_donated_while_it_is_saved(folder):
    change = jax.jit(lambda t: jax.tree.map(lambda x: x * 0 - 1, t), donate_argnums=0)
    state = {"x": jax.random.normal(jax.random.key(0), (1000, 1000))}
    saved = np.array(state["x"])
    checkpoints = checkpoint.Checkpoints(folder)
    checkpoints.save(1, state, {}, {})
    for _ in range(3):
        state = change(state)
    checkpoints.close()
    restored, _, _ = restore(folder, abstract(state))
    assert np.array_equal(restored["x"], saved)


@pytest.mark.parametrize(
    "mode, values, best",
    [
        ("min", [3.0, 1.0, 2.0, 5.0], 2),
        ("max", [3.0, 1.0, 2.0, 0.0], 1),
        ("max", [1.0, 4.0, 4.0, 2.0], 3),  # a tie
        ("max", [math.nan, 2.0, None, 1.0], 2),
        ("min", [2.0, math.nan, None, math.nan], 1),
    ],
)
@pytest.mark.parametrize("reopen", [False, True])
def test_keeps_the_last_and_the_best(folder, mode, values, best, reopen):
    def open_it():
        return checkpoint.Checkpoints(
            folder, keep_last=1, best_metric="loss", best_mode=mode
        )

    checkpoints = open_it()
    for step, value in enumerate(values, start=1):
        metrics = {"other": 0.0} | ({} if value is None else {"loss": value})
        checkpoints.save(step, {"params": {"x": jnp.full(3, step)}}, metrics, {})
        if reopen:
            checkpoints.close()
            checkpoints = open_it()
    assert checkpoints.steps() == [best, 4]
    like = {"x": jax.ShapeDtypeStruct((3,), jnp.int32)}
    for which, step in (("latest", 4), ("best", best), (best, best)):
        params, found, _ = checkpoints.restore_params(like, which)
        assert found == step and jnp.array_equal(params["x"], jnp.full(3, step))
    with pytest.raises(FileNotFoundError):
        checkpoints.restore_params(like, 17)
    checkpoints.close()


def test_keeps_the_last_ones(folder):
    checkpoints = checkpoint.Checkpoints(folder)
    for step in range(4):
        checkpoints.save(step, {"x": jnp.zeros(3)}, {}, {})
    assert checkpoints.steps() == [2, 3]  # one to fall back on
    assert checkpoints.latest_step() == 3
    checkpoints.save(3, {"x": jnp.ones(3)}, {}, {})  # there already
    assert not checkpoints.restore(abstract({"x": jnp.zeros(3)}))[0]["x"].any()
    with pytest.raises(ValueError, match="later step"):
        checkpoints.save(1, {"x": jnp.zeros(3)}, {}, {})
    checkpoints.close()


def test_restores_onto_another_mesh(folder):
    def mesh(*shape):
        devices = jax.devices("cpu")[: math.prod(shape)]
        types_ = (AxisType.Auto,) * 2
        return jax.make_mesh(shape, ("a", "b"), axis_types=types_, devices=devices)

    def place(mesh, spec):
        specs = {"w": spec, "v": P("b"), "keys": P("a")}
        return {name: NamedSharding(mesh, spec) for name, spec in specs.items()}

    random = np.random.default_rng(0)
    state = {
        "w": jnp.asarray(random.normal(size=(16, 24)), jnp.float32),
        "v": jnp.asarray(random.normal(size=8), jnp.bfloat16),
        "keys": jax.random.split(jax.random.key(0), 8),
    }
    checkpoints = checkpoint.Checkpoints(folder)
    sharded = jax.device_put(state, place(mesh(4, 2), P("a", "b")))
    assert len(sharded["w"].addressable_shards) == 8
    checkpoints.save(1, sharded, {}, {})
    checkpoints.close()
    for target in (
        place(mesh(2, 4), P("b", "a")),
        place(mesh(2, 2), P(None, ("a", "b"))),
        dict.fromkeys(state, SingleDeviceSharding(jax.devices("cpu")[3])),
    ):
        like = {name: abstract(state[name], target[name]) for name in state}
        restored, _, _ = restore(folder, like)
        assert same(restored, state)
        for name, leaf in restored.items():
            assert leaf.sharding.is_equivalent_to(target[name], leaf.ndim)
    bad = place(mesh(1, 5), P("b"))
    with pytest.raises(ValueError, match="divide"):
        restore(folder, {name: abstract(state[name], bad[name]) for name in state})


def damage_by(kind: str, path: pathlib.Path, where: float) -> None:
    data = bytearray(path.read_bytes())
    if kind == "deleted":
        path.unlink()
    elif kind == "truncated":
        path.write_bytes(data[: int(where * len(data))])
    else:
        data[int(where * len(data))] ^= 0x21
        path.write_bytes(data)


def largest_file(folder: pathlib.Path) -> pathlib.Path:
    """Return the file with the values of the large arrays."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("kind", ["deleted", "truncated", "altered"])
def test_damage_to_any_file_is_detected(folder, caplog, kind):
    save_all(folder)
    states = {step: make_state(step) for step in STEPS}
    files = [path for path in (folder / "3").rglob("*") if path.is_file()]
    names = [str(path.relative_to(folder / "3")) for path in files]
    # Without these files nothing can be restored. Damage to some others goes unnoticed
    # because they are not read; but values must never be wrong.
    vital = ("record/metadata", "state/manifest.ocdbt", "state/d/")
    assert all(any(name.startswith(start) for name in names) for start in vital)
    vital += (str(largest_file(folder / "3").relative_to(folder / "3")),)
    for path, name in zip(files, names, strict=True):
        for where in (0.0, 0.1, 0.6) if kind != "deleted" else (0.0,):
            intact = path.read_bytes()
            if not intact:
                continue
            damage_by(kind, path, where)
            caplog.clear()
            state, step, meta = restore(folder)
            path.write_bytes(intact)
            assert step in ((2,) if name.startswith(vital) else (2, 3)), name
            assert same(state, states[step]) and meta == {"n": step}, name
            lines = warnings_of(caplog)
            assert len(lines) == (3 - step), (name, lines)
            assert all(str(folder / "3") in line for line in lines)


def test_corruption_that_orbax_does_not_notice_is_detected(folder, caplog):
    save_all(folder)
    state = make_state(3)

    def orbax_reads():
        args = ocp.args.PyTreeRestore(
            state, restore_args=ocp.checkpoint_utils.construct_restore_args(state)
        )
        path = folder / "3" / "state"
        return ocp.PyTreeCheckpointHandler().restore(path, args=args)

    path = largest_file(folder / "3" / "state")
    intact = path.read_bytes()
    assert same(orbax_reads(), state)
    num_fooled = 0
    for where in np.linspace(0.1, 0.9, 9):
        damage_by("altered", path, where)
        with contextlib.suppress(Exception):
            num_fooled += not same(orbax_reads(), state)
        caplog.clear()
        restored, step, _ = restore(folder)
        assert step == 2 and same(restored, make_state(2))
        assert len(warnings_of(caplog)) == 1
        path.write_bytes(intact)
    assert num_fooled  # otherwise our digests would be needless


@pytest.mark.parametrize("old, new", [(b'"n": 3', b'"n": 8'), (b"0.25", b"0.75")])
def test_altered_meta_or_metric_is_detected(folder, old, new):
    checkpoints = checkpoint.Checkpoints(folder, best_metric="score")
    for step in (2, 3):
        checkpoints.save(step, {"x": jnp.zeros(3)}, {"score": step / 12}, {"n": step})
    checkpoints.close()
    path = folder / "3" / "record" / "metadata"
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new))
    assert restore(folder, abstract({"x": jnp.zeros(3)}))[1:] == (2, {"n": 2})


def test_falls_back_step_by_step_then_gives_up(folder, caplog):
    save_all(folder)
    like = abstract(make_state(0))
    for step, kept in ((3, 2), (2, 1), (1, None)):
        damage_by("altered", folder / str(step) / "record/metadata", 0.5)
        caplog.clear()
        if kept is not None:
            assert restore(folder)[1] == kept
        assert len(warnings_of(caplog)) == (4 - step if kept else 0)
    with pytest.raises(checkpoint.CorruptCheckpointError) as error:
        restore(folder, like)
    assert all(str(folder / str(step)) in str(error.value) for step in STEPS)


def test_training_goes_on_after_damage(folder):
    save_all(folder)
    (folder / "3" / "state" / "manifest.ocdbt").unlink()
    checkpoints = checkpoint.Checkpoints(folder, keep_last=1)
    assert checkpoints.restore(abstract(make_state(0)))[1] == 2
    checkpoints.save(
        3, make_state(33), {}, {"n": 33}
    )  # step 3 was skipped as corrupt, so it can be saved again
    checkpoints.close()
    state, step, meta = restore(folder)
    assert same(state, make_state(33)) and (step, meta) == (3, {"n": 33})


def test_best_falls_back_to_the_next_best(folder, caplog):
    checkpoints = checkpoint.Checkpoints(folder, keep_last=0, best_metric="score")
    for step, score in enumerate((0.1, 0.9, 0.8, 0.2), start=1):
        checkpoints.save(step, make_state(step), {"score": score}, {})
    checkpoints.wait()
    like = abstract(make_state(0).params)
    damage_by("truncated", folder / "2/state/manifest.ocdbt", 0.5)
    params, step, _ = checkpoints.restore_params(like, "best")
    assert step == 3 and same(params, make_state(3).params)
    assert len(warnings_of(caplog)) == 1
    with pytest.raises(checkpoint.CorruptCheckpointError):
        checkpoints.restore_params(like, 2)  # a given step has no substitute
    checkpoints.close()


@pytest.mark.parametrize(
    "change, name",
    [
        (lambda p: p | {"kernel": jnp.zeros((64, 65))}, "kernel"),
        (lambda p: p | {"half": p["half"].astype(jnp.float32)}, "half"),
        (lambda p: p | {"new": jnp.zeros(2)}, "new"),
        (lambda p: {"kernel": p["kernel"]}, "half"),
    ],
    ids=["shape", "dtype", "extra", "missing"],
)
def test_a_different_state_is_an_error_but_not_corruption(folder, caplog, change, name):
    """No older step is tried, even if it would fit."""
    other = {"params": change(make_state(2).params)}
    checkpoints = checkpoint.Checkpoints(folder)
    checkpoints.save(1, other, {}, {})
    checkpoints.save(2, {"params": make_state(2).params}, {}, {})
    with pytest.raises(ValueError, match=rf"params\.{name} is "):
        checkpoints.restore(abstract(other))
    with pytest.raises(ValueError, match=rf"params\.{name} is "):
        checkpoints.restore_params(abstract(other["params"]))
    assert not warnings_of(caplog)
    assert checkpoints.restore_params(abstract(other["params"]), 1)[1] == 1
    checkpoints.close()


def test_branches_of_parameters_can_be_left_out(folder):
    """For example the value head of PPO, which is not part of the policy."""
    params = make_state(2).params
    more = {**params, "value": {"weight": jnp.ones(3)}}
    checkpoints = checkpoint.Checkpoints(folder)
    checkpoints.save(1, {"params": more}, {}, {})
    with pytest.raises(ValueError, match=r"params\.value\.weight is "):
        checkpoints.restore_params(abstract(params))
    found, _, _ = checkpoints.restore_params(abstract(params), without=["value"])
    jax.tree.map(np.testing.assert_array_equal, found, params)
    checkpoints.close()


def test_another_kind_of_key_is_an_error(folder):
    checkpoints = checkpoint.Checkpoints(folder)
    checkpoints.save(1, {"key": jax.random.key(0)}, {}, {})
    with pytest.raises(ValueError, match="key is "):
        checkpoints.restore(abstract({"key": jax.random.key(0, impl="rbg")}))
    checkpoints.close()


def test_only_a_writer_removes_unfinished_saves(folder, caplog):
    save_all(folder, steps=(1,))
    unfinished = folder / "2.orbax-checkpoint-tmp"
    shutil.copytree(folder / "1", unfinished)
    assert restore(folder)[1] == 1 and unfinished.exists()
    assert not warnings_of(caplog)
    checkpoint.Checkpoints(folder).close()
    assert not unfinished.exists()
    assert [str(unfinished) in line for line in warnings_of(caplog)] == [True]
    assert restore(folder)[1] == 1


def test_restoring_from_an_empty_folder(folder):
    with pytest.raises(FileNotFoundError, match=str(folder)):
        restore(folder)
    assert not folder.exists()
    with pytest.raises(ValueError, match="read-only"):
        checkpoint.Checkpoints(folder, read_only=True).save(1, {}, {}, {})


def make_large(seed: int, size: int = 200_000):
    values = np.random.default_rng(seed).normal(size=(3, size))
    leaves = [jnp.asarray(value, jnp.float32) for value in values]
    return {f"leaf_{i}_of_{size}": leaf for i, leaf in enumerate(leaves)}


def save_forever(folder: str) -> None:
    """Save step after step; runs in a child process, which is killed."""
    checkpoints = checkpoint.Checkpoints(folder)
    step = 0
    if checkpoints.latest_step() is not None:
        state, step, _ = checkpoints.restore(abstract(make_large(0)))
        assert same(state, make_large(step))
    print(step, flush=True)
    while True:
        step += 1
        checkpoints.save(step, make_large(step), {}, {"n": step})
        print(step, flush=True)


def test_killed_at_any_moment(folder):
    paths = [str(pathlib.Path(__file__).parents[1]), *sys.path]
    env = {"PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}
    num_unfinished = resumed_from = 0
    for delay in (0.0, 0.03, 0.1, 0.2):  # counted from when a save is in progress
        with subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env=os.environ | env,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            first = [int(child.stdout.readline()) for _ in range(3)]
            while not leftovers(folder):
                assert child.poll() is None
            time.sleep(delay)
            child.kill()
            started = [*first, *map(int, child.stdout.read().split())]
        assert started[0] == resumed_from
        num_unfinished += len(leftovers(folder))
        state, resumed_from, meta = restore(folder, abstract(make_large(0)))
        assert same(state, make_large(resumed_from)) and meta == {"n": resumed_from}
        # Each save waits for the one before, so only the last may be lost. (One more
        # may have begun and not been printed.)
        assert started[-1] - 1 <= resumed_from <= started[-1] + 1
    assert num_unfinished  # otherwise no save was killed


@contextlib.contextmanager
def full_disk(folder: pathlib.Path):
    """A file system of 30 MB."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.call(mount) != 0:
        pytest.skip("no right to mount a small file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def small_files(folder: pathlib.Path):
    """No file may grow beyond 2 MB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def no_leftovers():
    """Collect what Orbax leaves behind when a write fails.

    It may warn when it is collected, which should not happen during another test.
    """
    yield
    gc.collect()


def size_of(folder):
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # threads remove some meanwhile
            size += path.stat().st_size * path.is_file()
    return size


def slowly(num):
    for i in range(num):
        time.sleep(0.5)
        yield i


@pytest.mark.parametrize("limit", [full_disk, small_files])
def test_no_space_for_a_checkpoint(folder, limit, caplog, no_leftovers):
    small = make_large(1, 50_000)
    large = dict.fromkeys(map(str, range(60)), next(iter(make_large(2).values())))
    with limit(folder):
        checkpoints = checkpoint.Checkpoints(folder, keep_last=1)
        checkpoints.save(1, small, {}, {})
        checkpoints.wait()
        checkpoints.save(2, large, {}, {})
        with pytest.raises(OSError, match=str(folder / "2")) as error:
            checkpoints.wait()
        assert "\n" not in str(error.value)
        assert "No space left" in str(error.value) or limit is small_files
        # Threads of Orbax still write for a while. What is left is of the first step.
        assert any(size_of(folder) < 1.5e6 for _ in slowly(20))
        assert same(checkpoints.restore(abstract(small))[0], small)
        checkpoints.save(3, large, {}, {})
        with pytest.raises(OSError, match=str(folder / "3")):
            checkpoints.save(4, small, {}, {})
        time.sleep(0.5)
        checkpoints.save(4, small, {}, {})  # for this one the failed ones left room
        checkpoints.close()
        assert restore(folder, abstract(small))[1] == 4
    assert not any(record.exc_info for record in caplog.records)  # no tracebacks


if __name__ == "__main__":
    save_forever(sys.argv[1])
