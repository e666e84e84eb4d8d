"""One training step: make a batch, compute the gradient, update the parameters.

The data of a step are a function of (root key, step).
"""

import dataclasses
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

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
