"""The loop: exact resume, when things are saved, and what stops it."""

import contextlib
import errno
import functools
import json
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from openagent_jax import train, train_step
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.metrics import Writer
from openagent_jax.types import Algorithm, Batch, Curriculum
from tests import tiny

SHAPE = (4, 3)  # of a toy task: positions and features


def sample(key):
    return jax.random.normal(key, SHAPE)


def all_new(state, tables, task_key, edit_key, step, num_tasks):
    """A new task for each index."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(task_key, jnp.arange(num_tasks))
    return jax.vmap(sample)(keys)


def make_batch(state, tables, key, tasks):
    """The tokens are the task; rows differ in their number of loss tokens."""
    mask = jax.random.bernoulli(key, 0.4, tasks.shape[:2])
    positions, num = jnp.zeros(mask.shape, jnp.int32), jnp.sum(mask, 1) * 1.0
    segments = jnp.ones_like(positions)
    return Batch(tasks, positions, segments, mask, num), {"made": num[0]}


def loss_fn(params, batch, divisor):
    error = (batch.tokens @ params["w"] - 1) ** 2 * batch.loss_mask
    return jnp.sum(error) / divisor, {"error": jnp.sum(jnp.sqrt(error))}


CURRICULUM = Curriculum(lambda: (), all_new, lambda state, tasks, metrics: state)
ALGORITHM = Algorithm(make_batch, loss_fn)
OPTIMIZER = optax.adamw(0.05)


def toy_step(algorithm=ALGORITHM, batch_size=8, num_micro_batches=1, **kwargs):
    made = train_step.make_step(
        CURRICULUM, algorithm, OPTIMIZER, batch_size, num_micro_batches, **kwargs
    )
    return jax.jit(functools.partial(made, tables=()))


def toy_state(seed=0):
    params = {"w": jnp.arange(3.0), "clock": jnp.zeros(())}
    return train_step.init_state(params, OPTIMIZER, jax.random.key(seed))


def run(folder, step, state, num_steps=6, checkpoint_every=2, **kwargs):
    """Train as `launch.train` does, from the last checkpoint if there is one."""
    return whole_run(folder, step, state, num_steps, checkpoint_every, **kwargs)[:2]


def whole_run(folder, step, state, num_steps=6, checkpoint_every=2, **kwargs):
    checkpoints = Checkpoints(folder / "checkpoints", best_metric="score")
    num_tokens, unevaluated = 0, False
    if resumed := checkpoints.latest_step():
        state, _, meta = checkpoints.restore(state)
        num_tokens = meta.pop(train.NUM_TOKENS)
        unevaluated = meta.pop(train.UNEVALUATED)
        assert meta == {"name": "test"}
    writer = Writer(folder, resume_step=resumed or 0)
    with contextlib.closing(checkpoints), writer:
        return train.run(
            step,
            state,
            num_steps=num_steps,
            writer=writer,
            checkpoints=checkpoints,
            checkpoint_every=checkpoint_every,
            meta={"name": "test"},
            num_tokens=num_tokens,
            evaluate_first=unevaluated,
            **kwargs,
        )


def saved(folder) -> list[int]:
    with contextlib.closing(Checkpoints(folder / "checkpoints", read_only=True)) as x:
        return x.steps()


def logged(folder, name="train/loss") -> dict[int, float]:
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len({line["step"] for line in lines}) == len(lines)
    return {line["step"]: line[name] for line in lines}


def host(tree):
    data = jax.random.key_data
    is_key = jax.dtypes.prng_key
    return jax.tree.map(
        lambda x: np.asarray(data(x) if jnp.issubdtype(x.dtype, is_key) else x), tree
    )


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, host(a), host(b))


def stop_at(step, at: int, action):
    """The step, followed by the action when it has been made `at` times."""

    def wrapper(state):
        done = int(state.step) + 1
        out = step(state)
        if done == at:
            action()
        return out

    return wrapper


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def step():
    return toy_step()


# One update.


def test_a_step_by_hand(step):
    state, metrics = step(toy_state())
    key, batch_key = jax.random.split(jax.random.fold_in(jax.random.key(0), 0))
    tasks = jnp.stack([sample(jax.random.fold_in(key, i)) for i in range(8)])
    mask = np.asarray(jax.random.bernoulli(batch_key, 0.4, tasks.shape[:2]))
    error = np.asarray(tasks) @ np.arange(3.0) - 1
    np.testing.assert_allclose(metrics["train/loss"], np.mean(error[mask] ** 2), 1e-5)
    mean = np.mean(np.abs(error[mask]))  # over loss tokens, like all metrics of a loss
    np.testing.assert_allclose(metrics["train/error"], mean, 1e-5)
    assert metrics["made"] == mask[0].sum()
    grads = np.mean(2 * error[mask, None] * np.asarray(tasks)[mask], axis=0)
    np.testing.assert_allclose(metrics["train/grad_norm"], np.linalg.norm(grads), 1e-5)
    assert metrics["train/num_loss_tokens"] == mask.sum() and np.ptp(mask.sum(1)) > 0
    assert metrics["train/num_tokens"] == mask.size
    assert state.step == 1
    # Adam's first step moves by one learning rate against the gradient.
    moved = np.arange(3.0) - 0.05 * np.sign(grads) - 0.05 * 1e-4 * np.arange(3.0)
    np.testing.assert_allclose(state.params["w"], moved, rtol=1e-4)


def test_the_loss_sees_a_view():
    """The gradient is computed on the view, and propagates back through it."""
    seen = []

    def view(params, key):
        seen.append(key)
        return params | {"w": params["w"][::-1]}

    made = train_step.make_step(CURRICULUM, ALGORITHM, OPTIMIZER, 8, view=view)
    plain = toy_step()
    start = toy_state()
    turned = toy_state()
    turned.params["w"] = turned.params["w"][::-1]
    state, metrics = made(start, ())
    expected, metrics_of_turned = plain(turned)
    np.testing.assert_allclose(state.params["w"][::-1], expected.params["w"], 1e-6)
    np.testing.assert_allclose(metrics["train/loss"], metrics_of_turned["train/loss"])
    made(state, ())
    assert len({int(jax.random.bits(key)) for key in seen}) == 2


@pytest.mark.parametrize("num_micro_batches", [2, 4, 8])
def test_micro_batches_change_nothing(step, num_micro_batches):
    state, metrics = step(toy_state())
    parts = toy_step(num_micro_batches=num_micro_batches)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        host((state, metrics)),
        host(parts(toy_state())),
    )


@pytest.mark.parametrize(
    ("longest", "num_micro_batches", "num_buckets", "num_columns"),
    [
        # The lengths of the 8 rows are 0, 1, ..., longest, 0, 1, ...
        (1, 1, 1, [1]),
        (2, 1, 1, [3]),
        (3, 1, 1, [3]),
        (4, 1, 1, [4]),
        (4, 1, 2, [1, 4]),  # 0 0 1 1, 2 2 3 4
        (4, 2, 2, [1, 1, 3, 4]),
        (4, 1, 4, [1, 1, 3, 4]),
        (4, 1, 6, [1, 4]),  # 6 does not divide 8
    ],
)
def test_empty_columns_change_nothing(
    longest, num_micro_batches, num_buckets, num_columns
):
    """Each part of the sorted rows is computed on as few columns as it needs."""
    lengths = jnp.arange(8) % (longest + 1)

    def ragged(*args):
        batch, made = make_batch(*args)
        valid = jnp.arange(SHAPE[0])[None] < lengths[:, None]
        mask = valid & (batch.loss_mask | (jnp.arange(SHAPE[0])[None] == 0))
        num = jnp.sum(mask, 1)
        extra = num, batch.tokens  # one value per row, and one per row and column
        segments = valid.astype(jnp.int32)
        return Batch(
            batch.tokens, batch.positions, segments, mask, num * 1.0, extra
        ), made

    def loss(params, batch, divisor):
        assert batch.extra[1].shape == batch.tokens.shape
        value, metrics = loss_fn(params, batch, divisor)
        columns = batch.tokens.shape[1] * jnp.sum(batch.loss_mask)
        same = jnp.sum((batch.extra[0] == jnp.sum(batch.loss_mask, 1)) * 1.0)
        # Metrics are divided by the number of loss tokens of the batch.
        one = jnp.float32(10) ** batch.tokens.shape[1]
        return value, metrics | {"columns": columns, "same": same, "one": one}

    algorithm = Algorithm(ragged, loss)
    parts = dict(num_micro_batches=num_micro_batches)
    whole, expected = toy_step(algorithm, **parts)(toy_state())
    cut = dict(num_buckets=num_buckets, widths=(1, 3))
    short, metrics = toy_step(algorithm, **parts, **cut)(toy_state())
    num = metrics["train/num_loss_tokens"]
    assert round(float(metrics.pop("train/one") * num)) == sum(
        10**columns for columns in num_columns
    )
    assert expected.pop("train/columns") == SHAPE[0] >= metrics.pop("train/columns")
    del expected["train/one"]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7),
        host((whole, expected)),
        host((short, metrics)),
    )


@pytest.mark.parametrize("num_micro_batches", [1, 2])
def test_a_batch_without_loss_tokens(num_micro_batches):
    def empty(*args):
        batch, _ = make_batch(*args)
        nothing, none = jnp.zeros_like(batch.loss_mask), jnp.zeros(8)
        return Batch(batch.tokens, batch.positions, batch.segments, nothing, none), {}

    algorithm = Algorithm(empty, loss_fn)
    state, metrics = toy_step(algorithm, num_micro_batches=num_micro_batches)(
        toy_state()
    )
    assert metrics["train/loss"] == metrics["train/grad_norm"] == 0
    assert np.isfinite(state.params["w"]).all()


# A run.


def test_resumes_bit_for_bit(step, tmp_path):
    whole, _ = run(tmp_path / "whole", step, toy_state(), num_steps=8)
    with pytest.raises(train.Preempted, match="step 3"):
        run(tmp_path / "cut", stop_at(step, 3, terminate), toy_state(), num_steps=8)
    assert saved(tmp_path / "cut") == [2, 3]
    resumed, _ = run(tmp_path / "cut", step, toy_state(seed=1), num_steps=8)
    assert_same(resumed, whole)
    losses = logged(tmp_path / "cut")
    assert losses == logged(tmp_path / "whole")
    assert list(losses) == list(range(1, 9))


def test_a_run_killed_between_its_checkpoints(step, tmp_path):
    """Steps after the last checkpoint are written again, but appear only once."""

    class Killed(Exception):
        pass

    def kill():
        raise Killed

    whole, _ = run(tmp_path / "whole", step, toy_state())
    with pytest.raises(Killed):
        run(tmp_path / "cut", stop_at(step, 6, kill), toy_state(), checkpoint_every=4)
    assert saved(tmp_path / "cut") == [4] and 5 in logged(tmp_path / "cut")
    resumed, _ = run(tmp_path / "cut", step, toy_state(), checkpoint_every=4)
    assert_same(resumed, whole)
    assert logged(tmp_path / "cut") == logged(tmp_path / "whole")


def test_intervals_of_logging_saving_and_evaluation(step, tmp_path):
    """The last step is logged and saved, whatever its number."""
    evaluated = []

    def evaluate(state, at):
        assert state.step == at
        evaluated.append(at)
        return {"score": -at}

    _, scores = run(
        tmp_path,
        step,
        toy_state(),
        num_steps=11,
        checkpoint_every=4,
        evaluate=evaluate,
        evaluate_every=4,
        log_every=3,
    )
    assert evaluated == [4, 8] and not scores
    assert list(logged(tmp_path)) == [3, 6, 9, 11]
    assert saved(tmp_path) == [4, 8, 11]  # the last two, and the best
    assert all(value > 0 for value in logged(tmp_path, "perf/tokens_per_s").values())


def test_scores_of_the_last_step(step, tmp_path):
    def evaluate(state, at):
        return {"score": at}

    def go_on():
        return run(tmp_path, step, toy_state(), evaluate=evaluate, evaluate_every=3)

    assert go_on()[1] == {"score": 6}
    assert go_on()[1] == {}  # the run has ended: nothing is done


def test_without_a_writer(step, tmp_path, capsys):
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        train.run(
            step,
            toy_state(),
            num_steps=2,
            writer=None,
            checkpoints=checkpoints,
            checkpoint_every=1,
            meta={},
        )
        assert checkpoints.latest_step() == 2
    assert capsys.readouterr().out == ""


def test_progress(step, tmp_path, capsys):
    run(tmp_path, step, toy_state())
    last = capsys.readouterr().out.splitlines()[-1]
    for word in ("step 6/6", "loss ", "tokens/s ", "00:00 left"):
        assert word in last


def sampler(state, tables, key, tasks):
    """As `make_batch`, by an algorithm that samples 10 to 19 tokens in each step."""
    batch, metrics = make_batch(state, tables, key, tasks)
    num_sampled = 10 + jax.random.randint(key, (), 0, 10)
    return batch, metrics | {train_step.NUM_SAMPLED: num_sampled}


@pytest.mark.parametrize("cut", [None, 2, 3])
def test_token_budget(tmp_path, cut, capsys):
    """It ends with the step that uses up the budget, also after resuming."""
    step = toy_step(Algorithm(sampler, loss_fn))
    lines, state = [], toy_state()
    for _ in range(9):
        state, metrics = step(state)
        # 8 rows of 4, and these.
        lines.append(32 + int(metrics[train_step.NUM_SAMPLED]))
    used = np.cumsum(lines)
    assert len(set(lines)) > 3
    budget = dict(num_steps=9, max_tokens=int(used[4]) - 1, log_every=2)
    if cut:
        with pytest.raises(train.Preempted):
            stopping = stop_at(step, cut, terminate)
            run(tmp_path, stopping, toy_state(), **budget)
    ended = whole_run(tmp_path, step, toy_state(), **budget)
    assert ended.state.step == 5 and ended.num_tokens == used[4]
    assert "\nstep 5/5, " in capsys.readouterr().out
    assert saved(tmp_path)[-1] == 5
    again = whole_run(tmp_path, step, toy_state(), **budget)
    assert again.state.step == 5 and again.num_tokens == used[4]


def test_each_step_is_watched_once(step, tmp_path):
    seen = []

    def watch(at, metrics):
        seen.append(at)
        if at == 5:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        run(tmp_path, step, toy_state(), log_every=3, watch=watch)
    assert seen == [1, 2, 3, 4, 5]
    assert saved(tmp_path) == [2, 4]


# What stops it.


@pytest.mark.parametrize("log_every", [1, 100])
def test_divergence_is_not_saved(tmp_path, log_every):
    def fatal(params, batch, divisor):
        loss, _ = loss_fn(params, batch, divisor)
        loss -= params["clock"]  # it grows by the learning rate in each step
        loss = jnp.where(params["clock"] > 0.12, jnp.nan, loss)
        return loss, {}

    step = toy_step(Algorithm(make_batch, fatal))
    state = toy_state()
    for _ in range(3):
        state, metrics = step(state)
        assert np.isfinite(metrics["train/loss"])
    with pytest.raises(train.Diverged) as error:
        run(tmp_path, step, toy_state(), checkpoint_every=1, log_every=log_every)
    message = str(error.value)
    assert "train/loss is nan at step 4" in message and "\n" not in message
    assert "optim.learning_rate" in message and "last checkpoint: step 3" in message
    assert saved(tmp_path) == [2, 3]
    with contextlib.closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints:
        assert_same(checkpoints.restore(toy_state())[0], state)


@pytest.mark.parametrize("name", ["train/kl", "sampler_trainer/gap"])
def test_any_metric_that_is_not_finite_is_noticed(tmp_path, name):
    """Not only the loss and the gradient: at a temperature of 0, for example, neither
    of them showed that log-probabilities were NaN."""

    def step_of(bad):
        def step(state):
            state, metrics = good(state)
            spoilt = jnp.where(state.step > 3, bad, 0.0)
            return state, metrics | {name: spoilt}

        good = toy_step()
        return step

    for bad in (jnp.nan, jnp.inf):
        folder = tmp_path / str(bad)
        with pytest.raises(train.Diverged, match=f"^{name} is {bad} at step 4; "):
            run(folder, step_of(bad), toy_state(), checkpoint_every=1)
        assert saved(folder) == [2, 3]


def test_the_sigterm_handler_is_restored(step, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    run(tmp_path / "whole", step, toy_state(), num_steps=2)
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(train.Preempted):
        run(tmp_path / "cut", stop_at(step, 1, terminate), toy_state())
    assert signal.getsignal(signal.SIGTERM) == before


def test_sigterm_interrupts_an_evaluation(step, tmp_path):
    """Its scores can be computed again, so SIGTERM does not wait for its end."""
    reached = []

    def evaluate(state, at):
        reached.append(at)
        terminate()
        reached.append("the end")
        return {"score": 1}

    options = {"checkpoint_every": 100, "evaluate": evaluate, "evaluate_every": 5}
    with pytest.raises(train.Preempted, match="step 5"):
        run(tmp_path, step, toy_state(), **options)
    assert reached == [5] and saved(tmp_path) == [5]
    # Nor does the run that makes up for it; it has to do so again.
    with pytest.raises(train.Preempted, match="step 5"):
        run(tmp_path, step, toy_state(), **options)
    assert reached == [5, 5] and saved(tmp_path) == [5]


def test_sigterm_interrupts_what_follows_the_last_step():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(
        train.Preempted, match="step 6, the last one; .* to evaluate it"
    ):
        with train.preemptible(6):
            terminate()
            raise AssertionError("it went on")
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_interrupt_says_what_remains(step, tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    stopped = stop_at(step, 5, interrupt)
    with pytest.raises(KeyboardInterrupt) as error:
        run(tmp_path, stopped, toy_state())
    assert "(last checkpoint: step 4); start the same command" in str(error.value)


def test_sigterm_just_before_an_evaluation(step, tmp_path):
    """The signal comes while the host waits for the metrics of the step."""

    def watch(at, metrics):
        if at == 5 and not reached:
            terminate()

    reached = []
    options = {
        "checkpoint_every": 100,
        "evaluate": lambda state, at: reached.append((at, int(state.step))) or {},
        "evaluate_every": 5,
        "watch": watch,
    }
    with pytest.raises(train.Preempted, match="step 5"):
        run(tmp_path, step, toy_state(), **options)
    assert not reached and saved(tmp_path) == [5]
    run(tmp_path, step, toy_state(), **options)  # makes up for it, once
    assert reached == [(5, 5)] and saved(tmp_path) == [5, 6]


@pytest.mark.parametrize("at", [4, 6])
def test_disk_full(step, tmp_path, monkeypatch, at):
    save = Checkpoints.save

    def full(self, number, *args):
        if number == at:
            raise OSError(f"{number} not saved: No space left on device")
        save(self, number, *args)

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(OSError) as error:
        run(tmp_path, step, toy_state())
    message = str(error.value)
    assert "No space left" in message and "make room and start again" in message
    assert f"last checkpoint: step {at - 2}" in message and "\n" not in message
    monkeypatch.undo()
    whole, _ = run(tmp_path / "whole", step, toy_state())
    assert_same(run(tmp_path, step, toy_state())[0], whole)


def test_other_failures_of_a_save_do_not_ask_for_room(step, tmp_path, monkeypatch):
    def fail(self, number, *args):
        try:
            raise PermissionError(errno.EACCES, "Permission denied", "x")
        except PermissionError as error:
            raise OSError(f"{number} not saved: {error}") from error

    monkeypatch.setattr(Checkpoints, "save", fail)
    with pytest.raises(OSError, match="Permission denied.*; once this is rep") as error:
        run(tmp_path, step, toy_state())
    assert "make room" not in str(error.value)


# The real step, on one device and on eight.


@pytest.fixture(scope="module")
def paft_trainers():
    """PAFT on one device, and on eight as 2 x 2 x 2 with two micro-batches."""
    few = dict(paft__perturbations=tiny.FEW)
    split = dict(mesh__data=2, mesh__fsdp=2, mesh__tensor=2)
    one = tiny.config("paft", **few)
    eight = tiny.config("paft", train__num_micro_batches=2, **few, **split)
    return {1: tiny.trainer(one), 8: tiny.trainer(eight, 8)}


def play(step, state, num_steps):
    state, lines = tiny.copy(state), []
    for _ in range(num_steps):
        state, metrics = step(state)
        lines.append({name: float(value) for name, value in metrics.items()})
    return state, lines


def assert_close(a, b):
    """Check all metrics of the first step, and the losses of all steps, to within 1e-5.

    Later gradient norms differ by more, because Adam divides by small numbers.
    """
    assert a[0] == pytest.approx(b[0], rel=1e-5, abs=1e-5)
    losses = ([line["train/loss"] for line in lines] for lines in (a, b))
    np.testing.assert_allclose(*losses, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_devices_and_micro_batches_change_nothing(paft_trainers):
    one, lines = play(*paft_trainers[1], 4)
    eight, others = play(*paft_trainers[8], 4)
    assert len(eight.params["embed"].sharding.device_set) == 8
    assert not eight.params["embed"].sharding.is_fully_replicated
    assert len({line["train/loss"] for line in lines}) == 4
    assert_close(lines, others)
    # Where a gradient is about 0, Adam makes a full step in the direction of its sign.
    ends = [host(state.params) for state in (one, eight)]
    np.testing.assert_array_equal(*(params["embed"] for params in ends))  # frozen
    learned = (jax.tree.leaves({**params, "embed": ()}) for params in ends)
    pairs = zip(*learned, strict=True)
    apart = np.concatenate([np.abs(a - b).ravel() for a, b in pairs])
    assert len(apart) > 1000
    assert np.mean(apart > 1e-5) < 0.003
    assert np.max(apart) < 8e-3  # the opposite sign in each of the four steps


@pytest.mark.slow
def test_one_axis_of_data_changes_nothing():
    one = play(*tiny.trainer(tiny.config("sft")), 2)[1]
    assert_close(one, play(*tiny.trainer(tiny.config("sft"), 8), 2)[1])


@pytest.mark.slow
def test_paft_run_resumes_bit_for_bit(paft_trainers, tmp_path):
    step, state = paft_trainers[1]
    whole, lines = play(step, state, 6)
    with pytest.raises(train.Preempted):
        run(tmp_path, stop_at(step, 3, terminate), tiny.copy(state))
    resumed, _ = run(tmp_path, step, tiny.copy(state))
    assert_same(resumed, whole)
    expected = {i + 1: line["train/loss"] for i, line in enumerate(lines)}
    assert logged(tmp_path) == expected


@pytest.mark.slow
def test_resumes_on_more_devices(paft_trainers, tmp_path):
    step, state = paft_trainers[1]
    _, lines = play(step, state, 4)
    run(tmp_path, step, tiny.copy(state), num_steps=2)
    step, state = paft_trainers[8]
    resumed, _ = run(tmp_path, step, tiny.copy(state), num_steps=4)
    assert len(resumed.params["embed"].sharding.device_set) == 8
    losses = logged(tmp_path)
    assert list(losses) == [1, 2, 3, 4]
    expected = [line["train/loss"] for line in lines]
    np.testing.assert_allclose(list(losses.values()), expected, rtol=1e-5)
