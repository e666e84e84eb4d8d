"""The one loop: make a batch, update, and now and then look up and save.

A step is one compiled program. Its data are a function of (seed, step), so the
`TrainState` is the whole of the state, and a resumed run continues bit for bit.
"""

import signal
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from openagent_jax.checkpoint import Checkpoints
from openagent_jax.metrics import Progress, Writer
from openagent_jax.types import Algorithm, Batch, Metrics, Task, TrainState


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

        def gradient(part: Batch):
            grad = jax.value_and_grad(algorithm.loss_fn, has_aux=True)
            (_, metrics), grads = grad(state.params, part, total)
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
            "train/grad_norm": optax.global_norm(grads),
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
    writer: Writer,
    checkpoints: Checkpoints,
    checkpoint_every: int,
    meta: dict[str, Any],
    evaluate: Callable[[TrainState, int], Metrics] | None = None,
    evaluate_every: int = 0,
    log_every: int = 1,
) -> TrainState:
    """Train from `state.step` to `num_steps`.

    Raises:
      Preempted: SIGTERM came; the state is saved.
      Diverged: a loss is not finite; names the last checkpoint.
    """
    start = int(state.step)
    stop = _watch_for_sigterm()
    progress = Progress(num_steps, start)
    num_tokens, since, last = 0.0, time.monotonic(), {}
    pending: tuple[int, Metrics] | None = None
    saved = checkpoints.latest_step()
    try:
        for i in range(start, num_steps):
            state, metrics = step(state)
            # Fetch the metrics of the step before: this one is on its way already.
            if pending is not None:
                num_tokens += _check(*pending, checkpoints)
            pending = i + 1, metrics
            done = i + 1
            if done % log_every == 0 or done == num_steps:
                num_tokens += _check(*pending, checkpoints)
                pending = None
                seconds = time.monotonic() - since
                steps = done - start if not last else done - last["step"]
                last = {"step": done}
                values = {name: float(value) for name, value in metrics.items()}
                values["perf/step_time_s"] = seconds / steps
                values["perf/tokens_per_s"] = num_tokens / seconds
                writer.write(done, values)
                progress.update(done, values)
                num_tokens, since = 0.0, time.monotonic()
            scores: Metrics = {}
            if evaluate and evaluate_every and done % evaluate_every == 0:
                if done < num_steps:  # the last one is made after the loop
                    scores = evaluate(state, done)
                    writer.write(done, scores)
                    since = time.monotonic()
            if done % checkpoint_every == 0 or done == num_steps or stop.asked:
                checkpoints.save(done, state, scores, meta)
                saved = done
            if stop.asked:
                checkpoints.wait()
                raise Preempted(f"stopped at step {saved}, saved")
    finally:
        progress.close()
        stop.restore()
    checkpoints.wait()
    return state


def _check(step: int, metrics: Metrics, checkpoints: Checkpoints) -> float:
    """Tokens of a step, once it is known to be sound."""
    for name in ("train/loss", "train/grad_norm"):
        if not jnp.isfinite(metrics[name]):
            raise Diverged(
                f"{name} is {float(metrics[name])} at step {step}; the last "
                f"checkpoint is step {checkpoints.latest_step()}: lower "
                "optim.learning_rate, or raise optim.warmup_steps"
            )
    return float(metrics["train/num_tokens"])


class _watch_for_sigterm:
    """Notes a SIGTERM instead of dying of it."""

    def __init__(self):
        self.asked = False
        try:
            self._old = signal.signal(signal.SIGTERM, self._note)
        except ValueError:  # not the main thread: nobody to tell us
            self._old = None

    def _note(self, *_):
        self.asked = True

    def restore(self):
        if self._old is not None:
            signal.signal(signal.SIGTERM, self._old)
