"""The training loop: make batches, update the parameters, evaluate, save checkpoints.

The data of a step are a function of (root key, step), so the `TrainState` is the whole
state of a run, and a resumed run continues bit for bit. A run that reads stored data
also does, since its checkpoints hold the position in the data.
"""

import contextlib
import dataclasses
import errno
import math
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.experimental import multihost_utils

from openagent_jax.checkpoint import Checkpoints
from openagent_jax.metrics import Progress, Writer
from openagent_jax.sharding import UNDIVIDED, Division
from openagent_jax.types import (
    Algorithm,
    Batch,
    Curriculum,
    Metrics,
    Params,
    Tables,
    TrainState,
)

View = Callable[[Params, jax.Array], Params]
# Numbers that are folded into the key of a batch, for the view, the order of the rows
# and the perturbations. The algorithm gets that key itself, so that it draws the same
# numbers with and without perturbations; it only folds in or splits off small indices.
VIEW = 0x56494557
ORDER = 0x4F524452
PERTURB = 0x50414654
NUM_SAMPLED = "num_sampled_tokens"  # metric of making a batch
# Keys in the meta of a checkpoint.
NUM_TOKENS = "num_tokens"  # tokens used so far
UNEVALUATED = "unevaluated"  # whether SIGTERM prevented the evaluation of its step


class Preempted(Exception):
    """The run received SIGTERM, and has saved its state."""


class Diverged(Exception):
    """The loss, the gradient or another metric is not finite."""


class Made(NamedTuple):
    """What is made for a step before its policy is needed."""

    tasks: Any = None  # None if the batch is not made from tasks
    batch: Batch | None = None  # None if the policy plays the tasks first
    metrics: Metrics = {}


@dataclasses.dataclass(frozen=True)
class Step:
    """One training step: `(state, tables, batch=None) -> (state, metrics)`.

    Its two parts may be compiled apart. The first one runs briefly and would take long
    to compile with all optimizations.
    """

    make: Callable[[TrainState, Tables], Made]
    update: Callable[[TrainState, Tables, Made], tuple[TrainState, Metrics]]

    def __call__(
        self, state: TrainState, tables: Tables, batch: Batch | None = None
    ) -> tuple[TrainState, Metrics]:
        """Update the parameters on a batch; it is made here if it is not given."""
        made = self.make(state, tables) if batch is None else Made(batch=batch)
        return self.update(state, tables, made)


class Ended(NamedTuple):
    """The result of a run."""

    state: TrainState
    scores: Metrics
    num_tokens: int  # tokens sampled plus tokens trained on


def init_state(
    params: Any,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    frozen: Params | None = None,
    curriculum: Any = (),
) -> TrainState:
    """Return the state before the first step.

    Args:
      params: the parameters to train.
      optimizer: their optimizer.
      key: the root of all randomness of the run.
      frozen: parameters that are used, but neither trained nor saved.
      curriculum: the initial state of the curriculum.

    >>> state = init_state({"w": jnp.ones(2)}, optax.sgd(0.1), jax.random.key(0))
    >>> int(state.step), all_params(state)["w"].tolist()
    (0, [1.0, 1.0])
    """
    opt_state = optimizer.init(params)
    return TrainState(jnp.int32(0), params, opt_state, key, frozen or {}, curriculum)


def root_key(seed: int, algorithm: str, stage: int) -> jax.Array:
    """Return the root of all randomness of a run, which no other run of a chain has.

    A run that starts from another one, with the same seed, would otherwise draw the
    very tasks that its policy has already been trained on.

    Args:
      seed: the seed of the run.
      algorithm: name of the algorithm.
      stage: the place of the run in its chain: the number of runs before it.

    >>> keys = [root_key(0, *of) for of in (("sft", 0), ("sft", 1), ("grpo", 1))]
    >>> len({int(jax.random.bits(key)) for key in keys})
    3
    """
    key = jax.random.fold_in(jax.random.key(seed), stage)
    return jax.random.fold_in(key, zlib.crc32(algorithm.encode()))


def step_keys(state: TrainState) -> tuple[jax.Array, jax.Array]:
    """Return the keys of the tasks and of the batch of the next step."""
    task_key, batch_key = jax.random.split(jax.random.fold_in(state.key, state.step))
    return task_key, batch_key


def all_params(state: TrainState) -> Params:
    """Return all parameters of the policy, trained and frozen."""
    return {**state.frozen, **state.params}


def without_frozen(state: TrainState) -> TrainState:
    """Return the part of the state that a checkpoint holds: all but `frozen`."""
    return dataclasses.replace(state, frozen={})


def maker(
    curriculum: Curriculum, algorithm: Algorithm, batch_size: int
) -> Callable[[TrainState, Tables], Made]:
    """Return the first part of a step, which makes what the update needs.

    Args:
      curriculum: chooses the tasks of the step.
      algorithm: makes the batch, unless it needs the policy for that.
      batch_size: number of tasks of a step.
    """

    def make(state: TrainState, tables: Tables) -> Made:
        task_key, batch_key = step_keys(state)
        edit_key = jax.random.fold_in(batch_key, PERTURB)
        tasks = curriculum.sample(
            state.curriculum, tables, task_key, edit_key, state.step, batch_size
        )
        if algorithm.needs_policy:
            return Made(tasks)
        return Made(tasks, *algorithm.make_batch(state, tables, batch_key, tasks))

    return make


def make_step(
    curriculum: Curriculum,
    algorithm: Algorithm,
    optimizer: optax.GradientTransformation,
    batch_size: int,
    num_micro_batches: int = 1,
    num_epochs: int = 1,
    num_minibatches: int = 1,
    num_buckets: int = 1,
    widths: Sequence[int] = (),
    untrained: Sequence[str] = (),
    division: Division = UNDIVIDED,
    view: View = lambda params, key: params,
) -> Step:
    """Return one training step.

    A step makes a batch from tasks of the curriculum, or uses the `batch` that it is
    given, and updates the parameters on it.

    Args:
      curriculum: chooses the tasks of the step.
      algorithm: makes the batch and computes its loss.
      optimizer: transforms the gradient into an update.
      batch_size: number of tasks of a step.
      num_micro_batches: number of parts over which the gradient is accumulated. It
        affects memory, not the result.
      num_epochs: number of passes over the batch.
      num_minibatches: number of parts of the batch, with one update for each part. Rows
        are shuffled anew in each epoch.
      num_buckets: number of parts that a device divides its rows of a micro-batch into,
        after sorting them by length, so that few columns suffice for most parts. A
        device that has fewer rows makes fewer parts.
      widths: numbers of columns, ascending. The gradient of a part is computed on as
        many columns as its longest row needs, rounded up to one of these, or else on
        all. Each of them is one more copy of the program to compile.
      untrained: branches of the parameters that the optimizer leaves as they are. Their
        gradients are not computed.
      division: how the work is divided among devices.
      view: `(params, key) -> params`, a transformation of the parameters before the
        loss of each update.
    """

    def update(
        state: TrainState, tables: Tables, made: Made
    ) -> tuple[TrainState, Metrics]:
        _, batch_key = step_keys(state)
        fold = jax.vmap(jax.random.fold_in, (None, 0))
        tasks, batch, about = made
        progress = state.curriculum
        if batch is None:
            whole = division.gather(all_params(state))
            complete = dataclasses.replace(state, params=whole)
            batch, about = algorithm.make_batch(complete, tables, batch_key, tasks)
        if tasks is not None:
            progress = curriculum.update(progress, tasks, about)
        rows = division.constrain(batch)
        frozen, view_key = (
            division.gather(state.frozen),
            jax.random.fold_in(batch_key, VIEW),
        )

        def learn(learned, part: Batch):
            params, opt_state = learned
            # Without loss tokens the loss is 0 / 1, not 0 / 0.
            divisor = jnp.sum(part.divisor)
            divisor = jnp.where(divisor > 0, divisor, 1)
            num_loss_tokens = jnp.maximum(jnp.sum(part.loss_mask), 1)
            used = division.gather(params), frozen, view_key, divisor, num_loss_tokens
            grads, metrics = division.summed(gradient)(used, part)
            grads = {
                name: grads[name] if name in grads else jax.tree.map(jnp.zeros_like, x)
                for name, x in params.items()
            }
            updates, opt_state = optimizer.update(grads, opt_state, params)
            metrics["grad_norm"] = optax.tree.norm(grads)
            return (optax.apply_updates(params, updates), opt_state), metrics

        learned = state.params, state.opt_state
        if num_epochs * num_minibatches == 1:
            learned, metrics = learn(learned, rows)
        else:
            num_rows = rows.tokens.shape[0]
            keys = fold(jax.random.fold_in(batch_key, ORDER), jnp.arange(num_epochs))
            order = jax.vmap(lambda key: jax.random.permutation(key, num_rows))(keys)
            order = order.reshape(num_epochs * num_minibatches, -1)
            learned, metrics = jax.lax.scan(
                lambda learned, chosen: learn(
                    learned,
                    division.constrain(jax.tree.map(lambda x: x[chosen], rows)),
                ),
                learned,
                order,
            )
            metrics = jax.tree.map(jnp.mean, metrics)
        metrics = {f"train/{name}": value for name, value in metrics.items()} | {
            "train/num_loss_tokens": jnp.sum(rows.loss_mask).astype(jnp.float32),
            "train/num_tokens": num_epochs * jnp.sum(rows.valid),
        }
        new = TrainState(state.step + 1, *learned, state.key, state.frozen, progress)
        return new, metrics | about

    def gradient(used, batch: Batch):
        """Return the gradient and the metrics of rows, summed over parts of them."""
        num_rows, num_columns = batch.valid.shape
        num_parts = num_micro_batches
        if short := [width for width in widths if width < num_columns]:
            num_parts *= math.gcd(num_buckets, num_rows // num_micro_batches)
        if num_parts == 1:
            return on_few_columns(used, batch, short)
        if short:
            order = jnp.argsort(jnp.sum(batch.valid, axis=1))
            batch = jax.tree.map(lambda x: x[order], batch)
        parts = jax.tree.map(lambda x: x.reshape(num_parts, -1, *x.shape[1:]), batch)
        first = jax.tree.map(lambda x: x[0], parts)
        zeros = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype),
            jax.eval_shape(of_part, used, first),
        )

        def add(total, part):
            return jax.tree.map(jnp.add, total, on_few_columns(used, part, short)), None

        return jax.lax.scan(add, zeros, parts)[0]

    def on_few_columns(used, part: Batch, short: list[int]):
        """Return `of_part`, on the first columns only if the others are padding."""

        def on(width):
            return lambda used, part: of_part(
                used, jax.tree.map(lambda x: x[:, :width] if x.ndim > 1 else x, part)
            )

        if not short:
            return of_part(used, part)
        needed = jnp.any(part.valid, axis=0)
        index = sum(jnp.any(needed[width:]).astype(jnp.int32) for width in short)
        branches = [on(width) for width in (*short, part.valid.shape[1])]
        return jax.lax.switch(index, branches, used, part)

    def of_part(used, part: Batch):
        """Return the gradient and the metrics of rows."""
        params, frozen, view_key, divisor, num_loss_tokens = used

        def loss(trained: Params):
            visible = view({**frozen, **params, **trained}, view_key)
            return algorithm.loss_fn(visible, part, divisor)

        trained = {name: x for name, x in params.items() if name not in untrained}
        (value, metrics), grads = jax.value_and_grad(loss, has_aux=True)(trained)
        means = {name: x / num_loss_tokens for name, x in metrics.items()}
        return grads, {"loss": value, **means}

    return Step(maker(curriculum, algorithm, batch_size), update)


def run(
    step: Callable[[TrainState], tuple[TrainState, Metrics]],
    state: TrainState,
    *,
    num_steps: int,
    writer: Writer | None,
    checkpoints: Checkpoints,
    checkpoint_every: int,
    meta: dict[str, Any],
    evaluate: Callable[[TrainState, int], Metrics] = lambda state, step: {},
    evaluate_every: int = 0,
    evaluate_first: bool = False,
    log_every: int = 1,
    max_tokens: int = 0,
    num_tokens: int = 0,
    watch: Callable[[int, Metrics], None] = lambda step, metrics: None,
    position: Callable[[], dict[str, Any]] = dict,
) -> Ended:
    """Train until `num_steps` or until a budget of tokens is used up, and save.

    A run that is killed loses at most `checkpoint_every` steps, and the steps that were
    done while the last checkpoint was still being written.

    Args:
      step: `state -> (state, metrics)`, one step. It should be compiled already, or the
        first logged speed includes the compilation.
      state: the state to start from.
      num_steps: the number of the last step.
      writer: writes the metrics; None in processes that do not log.
      checkpoints: where the state is saved.
      checkpoint_every: number of steps between checkpoints.
      meta: stored in each checkpoint.
      evaluate: `(state, step) -> scores`; the scores are stored as the metrics of the
        checkpoint of that step.
      evaluate_every: number of steps between evaluations; 0 turns them off.
      evaluate_first: whether to evaluate `state` before the first step. A run that is
        resumed does so if its checkpoint is marked as `UNEVALUATED`. Its checkpoint
        gets no scores, since it exists already.
      log_every: number of steps between logged steps.
      max_tokens: training ends once this many tokens have been used, counting both
        sampled tokens and tokens trained on; 0 is no limit.
      num_tokens: number of tokens that the steps before `state.step` have used.
      watch: called with each step and its metrics, in order; it may raise.
      position: returns the part of the run that is not in its state, such as the
        position in stored data. It is stored in each checkpoint beside `meta`.

    Returns:
      The state, its scores (empty if it was not evaluated), and the tokens used.

    Raises:
      Preempted: SIGTERM was received; the state has been saved.
      Diverged: a loss, a gradient or another metric is not finite; that step has not
        been saved.
      Unhealthy: `watch` has stopped the run; that step has not been saved.
      OSError: something could not be written.
    """
    done = start = since_step = int(state.step)
    since, since_tokens = time.monotonic(), num_tokens
    pending: list[tuple[int, Metrics]] = []  # metrics still on the device

    def fetch(pending: list[tuple[int, Metrics]], leave_last: bool = False) -> int:
        """Check pending metrics, and return how many tokens their steps have used."""
        used = 0
        while len(pending) > leave_last:
            at, metrics = pending.pop(0)
            metrics = jax.device_get(metrics)
            used += _check(at, metrics, checkpoints)
            watch(at, metrics)
        return used

    def spent() -> bool:
        return 0 < max_tokens <= num_tokens

    scores: Metrics = {}
    stopping = False
    stop = _Sigterm()
    progress = Progress(num_steps, start) if writer else None

    def evaluated() -> bool:
        """Evaluate the state; tell whether it was done before a SIGTERM."""
        nonlocal scores, since
        pause = time.monotonic()
        try:
            with stop.interrupting():
                scores = evaluate(state, done)
        except _Stop:
            return False
        finally:
            since += time.monotonic() - pause
        return True

    try:
        if evaluate_first:
            stopping = not evaluated()
        while done < num_steps and not spent() and not stopping:
            state, metrics = step(state)
            done, scores = done + 1, {}
            pending.append((done, metrics))
            stopping = stop.reached(done)
            if max_tokens:  # the number of tokens decides whether this is the last step
                num_tokens += fetch(pending)
            last = done == num_steps or spent()
            must_log = last or done % log_every == 0
            must_save = last or done % checkpoint_every == 0 or stopping
            must_evaluate = evaluate_every > 0 and done % evaluate_every == 0
            # One step stays pending, so that the device does not wait for the host.
            num_tokens += fetch(pending, not (must_log or must_save or must_evaluate))
            if must_log and writer and progress:
                seconds = time.monotonic() - since
                values = {name: float(value) for name, value in metrics.items()}
                values["perf/step_time_s"] = seconds / (done - since_step)
                values["perf/tokens_per_s"] = (num_tokens - since_tokens) / seconds
                values["num_tokens"] = num_tokens
                writer.write(done, values)
                if max_tokens:
                    likely = max(done, done * max_tokens // max(num_tokens, 1))
                    progress.set_total_steps(min(num_steps, likely))
                progress.update(done, values)
                since, since_step = time.monotonic(), done
                since_tokens = num_tokens
            unevaluated = must_evaluate and (stopping or not evaluated())
            if unevaluated:
                stopping = must_save = True
            if must_save:
                now = {NUM_TOKENS: num_tokens, UNEVALUATED: unevaluated}
                saved = without_frozen(state)
                checkpoints.save(done, saved, scores, meta | now | position())
        checkpoints.wait()
        if stopping or stop.asked:
            raise Preempted(
                f"stopped at step {done}; its state is saved, so start the same "
                "command again to resume"
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted at step {done} ({_last(checkpoints)}); start the same "
            "command again to resume"
        ) from None
    except OSError as error:
        first = "make room and" if _is_full(error) else "once this is repaired,"
        raise OSError(f"{error}; {first} start again ({_last(checkpoints)})") from error
    finally:
        stop.restore()
        if progress:
            progress.close()
    return Ended(state, scores, num_tokens)


def _check(step: int, metrics: Metrics, checkpoints: Checkpoints) -> int:
    """Return the number of tokens that a step used.

    Raises:
      Diverged: its loss, its gradient or another metric is not finite.
    """
    # The loss and the gradient come first, because the others follow from them.
    names = "train/loss", "train/grad_norm"
    for name in dict.fromkeys([*names, *metrics]):
        value = float(metrics[name])
        if not math.isfinite(value):
            raise Diverged(
                f"{name} is {value} at step {step}; lower optim.learning_rate, or "
                f"raise optim.warmup_steps ({_last(checkpoints)})"
            )
    return int(metrics["train/num_tokens"]) + int(metrics.get(NUM_SAMPLED, 0))


def _is_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that it was raised from, is that of a full disk.

    Orbax raises errors of its own, some of which have only the text of the first one.
    """
    codes = errno.ENOSPC, errno.EDQUOT
    while error is not None:
        if getattr(error, "errno", None) in codes:
            return True
        if any(os.strerror(code) in str(error) for code in codes):
            return True
        error = error.__cause__
    return False


def _last(checkpoints: Checkpoints) -> str:
    step = checkpoints.latest_step()
    return f"last checkpoint: {'none' if step is None else f'step {step}'}"


@contextlib.contextmanager
def preemptible(step: int) -> Iterator[None]:
    """Let SIGTERM end work that follows the last step of a run.

    Raises:
      Preempted: the signal was received.
    """
    stop = _Sigterm()
    try:
        with stop.interrupting():
            yield
    except _Stop:
        raise Preempted(
            f"stopped after step {step}, the last one; its state is saved, so start "
            "the same command again to evaluate it"
        ) from None
    finally:
        stop.restore()


class _Stop(Exception):
    """SIGTERM was received during work that may be interrupted at once."""


class _Sigterm:
    """Records that SIGTERM was received; raises `_Stop` within `interrupting`.

    If there are several processes, they must stop at the same step, so JAX handles the
    signal instead.
    """

    def __init__(self):
        self.asked = self._interrupts = False
        self._together = jax.process_count() > 1
        # Only the main thread may handle signals.
        main = threading.current_thread() is threading.main_thread()
        self._old = None
        if main and not self._together:
            self._old = signal.signal(signal.SIGTERM, self._note)

    def reached(self, step: int) -> bool:
        """Tell whether this step has to be the last one."""
        if self._together:
            return multihost_utils.reached_preemption_sync_point(step)
        return self.asked

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise `_Stop` in this block, also if the signal has come before it."""
        try:
            self._interrupts = True
            if self.asked:
                raise _Stop
            yield
        finally:
            self._interrupts = False

    def restore(self) -> None:
        if self._old is not None:
            signal.signal(signal.SIGTERM, self._old)

    def _note(self, *_):
        self.asked = True
        if self._interrupts:
            self._interrupts = False
            raise _Stop
