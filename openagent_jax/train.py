"""The one loop: make a batch, update, and now and then look up and save.

A step is one compiled program. Its data are a function of (seed, step), so the
`TrainState` is the whole of the state, and a resumed run continues bit for bit.
"""

import math
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.experimental import multihost_utils

from openagent_jax.checkpoint import Checkpoints
from openagent_jax.metrics import Progress, Writer
from openagent_jax.types import Algorithm, Batch, Metrics, Params, Task, TrainState

View = Callable[[Params, jax.Array], Params]
VIEW = 0x56494557  # folded into the key of a batch, which the algorithm has too


class Preempted(Exception):
    """The run was asked to stop, and has saved."""


class Diverged(Exception):
    """The loss or the gradient is not finite."""


def init_state(
    params: Any, optimizer: optax.GradientTransformation, key: jax.Array
) -> TrainState:
    return TrainState(jnp.int32(0), params, optimizer.init(params), key)


def make_step(
    sample: Callable[[jax.Array], Task],
    algorithm: Algorithm,
    optimizer: optax.GradientTransformation,
    batch_size: int,
    num_micro_batches: int = 1,
    constrain: Callable[[Batch], Batch] = lambda batch: batch,
    view: View = lambda params, key: params,
) -> Callable[[TrainState], tuple[TrainState, Metrics]]:
    """One update, as a function of the state alone.

    Args:
      sample: one task from one key.
      algorithm: makes the batch and its loss.
      optimizer: what the gradient goes through.
      batch_size: tasks of a step.
      num_micro_batches: parts over which the gradient is summed; they change
        nothing but memory.
      constrain: lays a batch out over the devices.
      view: what the loss of this step is to see of the parameters, by a key.
    """

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(state.key, state.step)
        task_key, batch_key = jax.random.split(key)
        fold = jax.vmap(jax.random.fold_in, (None, 0))
        tasks = jax.vmap(sample)(fold(task_key, jnp.arange(batch_size)))
        batch = constrain(algorithm.make_batch(state.params, batch_key, tasks))
        num_loss_tokens = jnp.sum(batch.loss_mask).astype(jnp.float32)
        # An empty mask has no loss: 0 / 1, not 0 / 0.
        total = jnp.maximum(num_loss_tokens, 1)

        def loss(params: Params, part: Batch):
            seen = view(params, jax.random.fold_in(batch_key, VIEW))
            return algorithm.loss_fn(seen, part, total)

        def gradient(part: Batch):
            grad = jax.value_and_grad(loss, has_aux=True)
            (_, metrics), grads = grad(state.params, part)
            return grads, metrics

        if num_micro_batches == 1:
            grads, metrics = gradient(batch)
        else:
            # Every n-th row, so that each part is spread over all devices.
            parts = jax.tree.map(
                lambda x: x.reshape(-1, num_micro_batches, *x.shape[1:]).swapaxes(0, 1),
                batch,
            )
            first = jax.tree.map(lambda x: x[0], parts)
            zeros = jax.tree.map(
                lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, first)
            )

            def add(total, part):
                return jax.tree.map(jnp.add, total, gradient(constrain(part))), None

            (grads, metrics), _ = jax.lax.scan(add, zeros, parts)

        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = {f"train/{name}": value for name, value in metrics.items()} | {
            "train/grad_norm": optax.tree.norm(grads),
            "train/num_loss_tokens": num_loss_tokens,
            "train/num_tokens": jnp.sum(batch.valid),
        }
        return TrainState(state.step + 1, params, opt_state, state.key), metrics

    return step


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
    log_every: int = 1,
) -> tuple[TrainState, Metrics]:
    """Train from `state.step` to `num_steps`, and save.

    A killed run loses `checkpoint_every` steps, and those that were made while the
    last save was being written, at most.

    Args:
      step: one update; compiled, else the first tokens/s are of the compiler.
      writer: None where another process speaks for this one.
      meta: goes into each checkpoint.
      evaluate: `(state, step)` -> scores, which go into the checkpoint of the step.
      evaluate_every: steps; 0 is never.
      log_every: steps.

    Returns:
      The state, and the scores of the last step; empty if it was not evaluated.

    Raises:
      Preempted: SIGTERM came; the state is saved.
      Diverged: a loss is not finite, so this step was not saved.
      OSError: something could not be written.
    """
    done = start = since_step = int(state.step)
    since, num_tokens = time.monotonic(), 0.0
    unread: list[tuple[int, Metrics]] = []
    scores: Metrics = {}
    stopping = False
    stop = _Sigterm()
    progress = Progress(num_steps, start) if writer else None
    try:
        while done < num_steps and not stopping:
            state, metrics = step(state)
            done, scores = done + 1, {}
            unread.append((done, metrics))
            stopping = stop.reached(done)
            last = done == num_steps
            must_log = last or done % log_every == 0
            must_save = last or done % checkpoint_every == 0 or stopping
            must_evaluate = evaluate_every > 0 and done % evaluate_every == 0
            # One step stays unread, so that the device does not wait for us.
            read = len(unread) - (not (must_log or must_save or must_evaluate))
            for item in unread[:read]:
                num_tokens += _check(*item, checkpoints)
            del unread[:read]
            if must_log and writer and progress:
                seconds = time.monotonic() - since
                values = {name: float(value) for name, value in metrics.items()}
                values["perf/step_time_s"] = seconds / (done - since_step)
                values["perf/tokens_per_s"] = num_tokens / seconds
                writer.write(done, values)
                progress.update(done, values)
                since, since_step, num_tokens = time.monotonic(), done, 0.0
            if must_evaluate and not stopping:
                pause = time.monotonic()
                try:
                    stop.at_once = True  # the scores can be made again
                    scores = evaluate(state, done)
                    stop.at_once = False
                except _Stop:
                    stopping = must_save = True
                since += time.monotonic() - pause
            if must_save:
                checkpoints.save(done, state, scores, meta)
        checkpoints.wait()
        if stopping or stop.asked:
            raise Preempted(f"stopped at step {done}, saved; start again to go on")
    except OSError as error:
        raise OSError(
            f"{error}; make room and start again ({_last(checkpoints)})"
        ) from error
    finally:
        stop.restore()
        if progress:
            progress.close()
    return state, scores


def _check(step: int, metrics: Metrics, checkpoints: Checkpoints) -> float:
    """Tokens of a step, once it is known to be sound."""
    for name in ("train/loss", "train/grad_norm"):
        value = float(metrics[name])
        if not math.isfinite(value):
            raise Diverged(
                f"{name} is {value} at step {step}; lower optim.learning_rate, or "
                f"raise optim.warmup_steps ({_last(checkpoints)})"
            )
    return float(metrics["train/num_tokens"])


def _last(checkpoints: Checkpoints) -> str:
    step = checkpoints.latest_step()
    return f"last checkpoint: {'none' if step is None else f'step {step}'}"


class _Stop(Exception):
    """SIGTERM, where there is nothing to bring to an end."""


class _Sigterm:
    """Notes a SIGTERM; raises `_Stop` at once while `at_once` is set.

    Several processes must stop at the same step: there JAX listens to the signal.
    """

    def __init__(self):
        self.asked = self.at_once = False
        self._together = jax.process_count() > 1
        # Only the main thread may listen; in another one nobody tells us.
        main = threading.current_thread() is threading.main_thread()
        self._old = None
        if main and not self._together:
            self._old = signal.signal(signal.SIGTERM, self._note)

    def reached(self, step: int) -> bool:
        """Whether this step is to be the last."""
        if self._together:
            return multihost_utils.reached_preemption_sync_point(step)
        return self.asked

    def restore(self) -> None:
        if self._old is not None:
            signal.signal(signal.SIGTERM, self._old)

    def _note(self, *_):
        self.asked = True
        if self.at_once:
            self.at_once = False
            raise _Stop
