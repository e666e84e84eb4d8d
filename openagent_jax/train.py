"""The training loop: make batches, update the parameters, evaluate, save checkpoints.

The data of a step are a function of (root key, step), so the `TrainState` is the whole
state of a run, and a resumed run continues bit for bit. A run that reads stored data
also does, since its checkpoints hold the position in the data.
"""

import contextlib
import errno
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax.experimental import multihost_utils

from openagent_jax import train_step
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.metrics import Progress, Writer
from openagent_jax.types import (
    Metrics,
    TrainState,
)

# Keys in the meta of a checkpoint.
NUM_TOKENS = "num_tokens"  # tokens used so far
UNEVALUATED = "unevaluated"  # whether SIGTERM prevented the evaluation of its step


class Preempted(Exception):
    """The run received SIGTERM, and has saved its state."""


class Diverged(Exception):
    """The loss, the gradient or another metric is not finite."""


class Ended(NamedTuple):
    """The result of a run."""

    state: TrainState
    scores: Metrics
    num_tokens: int  # tokens sampled plus tokens trained on


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
                saved = train_step.without_frozen(state)
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
    return int(metrics["train/num_tokens"]) + int(
        metrics.get(train_step.NUM_SAMPLED, 0)
    )


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
