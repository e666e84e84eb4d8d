"""Optimizers: a learning-rate schedule, gradient clipping, and AdamW or Muon.

AdamW is arXiv 1711.05101. Muon (arXiv 2502.16982) orthogonalises the update of each
weight matrix. Here every matrix of every layer is orthogonalised on its own: the query,
key, value, gate and up projections are separate parameters, and the axis on which
layers are stacked is a batch axis. Embeddings, the output head and the norms are
updated by AdamW in both cases.
"""

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

OPTIMIZERS = ("adamw", "muon")
B1, B2 = 0.9, 0.95  # decays of the moments of AdamW
SCHEDULES = ("constant", "cosine", "linear", "wsd")
REFERENCE = "reference"  # branch of the parameters that is never trained
# For signatures outside this module.
Optimizer: TypeAlias = optax.GradientTransformation


def make_optimizer(
    name: str = "adamw",
    *,
    learning_rate: float,
    num_updates: int,
    schedule: str = "cosine",
    warmup_steps: int = 0,
    end_factor: float = 0.1,
    weight_decay: float = 0.0,
    clip_norm: float = 1.0,
    b1: float = B1,
    b2: float = B2,
    muon_learning_rate: float | None = None,
    muon_momentum: float = 0.95,
    train_embedding: bool = True,
    master_copy: bool = False,
) -> optax.GradientTransformation:
    """Build the optimizer of a run.

    Args:
      name: one of `OPTIMIZERS`.
      learning_rate: peak of the schedule.
      num_updates: number of updates, at which the schedule ends.
      schedule: one of `SCHEDULES`; see `make_schedule`.
      warmup_steps: number of updates of linear warm-up.
      end_factor: the schedule ends at this fraction of the peak.
      weight_decay: decoupled weight decay of matrices, never of vectors. With Muon, it
        applies to the matrices of the layers only.
      clip_norm: largest global norm of the gradient; 0 turns clipping off.
      b1: decay of the first moment of AdamW.
      b2: decay of the second moment of AdamW.
      muon_learning_rate: peak of the schedule for the matrices of the layers. Updates
        of Muon are scaled to the size of AdamW's, so None (the same as
        `learning_rate`) is a sensible value.
      muon_momentum: decay of Muon's momentum.
      train_embedding: False freezes the embedding. The vectors of rare tokens then stay
        like those of common ones, so that what the model learns about some tokens
        (copying them, for example) holds for all.
      master_copy: whether the updates are added to a copy of the parameters in float32;
        see `with_master_copy`.

    Raises:
      ValueError: a setting is out of range; the message names its config key.

    >>> import jax.numpy as jnp
    >>> params = {"layers": {"up": jnp.ones((2, 3, 3))}, "norm": jnp.ones(3)}
    >>> optimizer = make_optimizer(
    ...     learning_rate=0.1, num_updates=9, schedule="constant", weight_decay=0.5
    ... )
    >>> gradients = jax.tree.map(jnp.zeros_like, params)
    >>> updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    >>> bool(jnp.any(updates["layers"]["up"])), bool(jnp.any(updates["norm"]))
    (True, False)
    """
    if name not in OPTIMIZERS:
        raise ValueError(f'optim.name="{name}" is not one of {", ".join(OPTIMIZERS)}')
    fraction = make_schedule(schedule, num_updates, warmup_steps, end_factor)

    def scheduled(peak):
        return lambda step: peak * fraction(step)

    if name == "adamw":
        update = optax.adamw(
            scheduled(learning_rate), b1, b2, weight_decay=weight_decay, mask=_is_matrix
        )
    else:
        if muon_learning_rate is None:
            muon_learning_rate = learning_rate
        update = optax.contrib.muon(
            scheduled(muon_learning_rate),
            beta=muon_momentum,
            weight_decay=weight_decay,
            adam_b1=b1,
            adam_b2=b2,
            adam_learning_rate=scheduled(learning_rate),
            muon_weight_dimension_numbers=_muon_axes,
            consistent_rms=0.2,
        )
    if clip_norm < 0:
        raise ValueError(f"optim.clip_norm={clip_norm} must not be negative")
    clip = optax.clip_by_global_norm(clip_norm) if clip_norm else optax.identity()
    optimizer = optax.chain(clip, update)
    if master_copy:
        optimizer = with_master_copy(optimizer)
    frozen = untrained(train_embedding)
    return optax.partition(
        {True: optax.set_to_zero(), False: optimizer},
        lambda params: jax.tree.map_with_path(
            lambda path, _: getattr(path[0], "key", None) in frozen, params
        ),
    )


class MasterCopy(NamedTuple):
    """State of `with_master_copy`."""

    params: Any  # in float32
    inner: Any


def with_master_copy(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformation:
    """Return an optimizer that keeps the parameters in float32 (arXiv 1710.03740).

    An update that is small beside a parameter in bfloat16 would be lost by rounding.
    The copy takes it, and the parameters are the copy, rounded.

    >>> import jax.numpy as jnp
    >>> params = jnp.ones(1, jnp.bfloat16)
    >>> optimizer = with_master_copy(optax.sgd(1e-3))
    >>> state = optimizer.init(params)
    >>> for _ in range(8):
    ...     updates, state = optimizer.update(jnp.ones(1), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> round(float(state.params[0]), 4), params.tolist(), params.dtype
    (0.992, [0.9921875], dtype(bfloat16))
    """

    def exact(tree):
        return jax.tree.map(lambda x: x.astype(jnp.float32), tree)

    def init(params):
        copy = exact(params)
        return MasterCopy(copy, optimizer.init(copy))

    def update(updates, state, params=None):
        updates, inner = optimizer.update(exact(updates), state.inner, state.params)
        copy = optax.apply_updates(state.params, updates)
        # Added to the parameters in float32 and rounded, these give the rounded copy.
        updates = jax.tree.map(lambda new, old: new - old, copy, exact(params))
        return updates, MasterCopy(copy, inner)

    return optax.GradientTransformation(init, update)


def untrained(train_embedding: bool) -> tuple[str, ...]:
    """Return the branches of the parameters that the optimizer leaves as they are.

    Besides the embedding, that is the reference policy of a KL penalty.
    """
    return (REFERENCE,) if train_embedding else (REFERENCE, "embed")


def make_schedule(
    name: str, num_updates: int, warmup_steps: int, end_factor: float = 0.1
) -> optax.Schedule:
    """Return a function from the number of an update to a fraction of the peak rate.

    Args:
      name: "constant" stays at the peak after warm-up, "cosine" and "linear" decay
        until `num_updates`, and "wsd" (warm-up, stable, decay; arXiv 2404.06395) decays
        linearly over the last fifth of the updates after warm-up.
      num_updates: number of updates, after which the decay has ended.
      warmup_steps: number of updates of linear warm-up. The first of them already has a
        learning rate above 0.
      end_factor: the fraction at which the decay ends.

    Raises:
      ValueError: `name` is unknown, or `warmup_steps` is not from 0 to `num_updates`.

    >>> schedule = make_schedule("linear", 6, warmup_steps=2, end_factor=0.0)
    >>> [float(schedule(update)) for update in range(7)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if name not in SCHEDULES:
        raise ValueError(
            f'optim.schedule="{name}" is not one of {", ".join(SCHEDULES)}'
        )
    if not 0 <= warmup_steps <= num_updates:
        raise ValueError(
            f"optim.warmup_steps={warmup_steps} is not between 0 and {num_updates}, "
            "the number of updates (train.num_steps, epochs and minibatches)"
        )
    steps_left = max(num_updates - warmup_steps, 1)
    decay_steps = max(steps_left // 5, 1)
    after_warmup = {
        "constant": optax.constant_schedule(1.0),
        "cosine": optax.cosine_decay_schedule(1.0, steps_left, end_factor),
        "linear": optax.linear_schedule(1.0, end_factor, steps_left),
        "wsd": optax.linear_schedule(
            1.0, end_factor, decay_steps, steps_left - decay_steps
        ),
    }[name]
    if not warmup_steps:
        return after_warmup
    # (step + 1) / warmup_steps, so that the first step already learns.
    warmup = optax.linear_schedule(1 / warmup_steps, 1.0, max(warmup_steps - 1, 1))
    return optax.join_schedules([warmup, after_warmup], [warmup_steps])


def _is_matrix(params: Any) -> Any:
    """Mark the parameters that weight decay applies to.

    The rank alone does not tell: the norm vectors of all layers are stacked too.
    """
    return jax.tree.map_with_path(
        lambda path, x: x.ndim - _is_stacked(path) == 2, params
    )


def _muon_axes(params: Any) -> Any:
    """Tell which axes of each parameter form a matrix for Muon; None means AdamW."""

    def axes(path, x):
        if _is_stacked(path) and x.ndim == 3:
            return optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=2)
        return None

    return jax.tree.map_with_path(axes, params)


def _is_stacked(path) -> bool:
    """Tell whether a parameter stacks all layers on its leading axis."""
    return any(getattr(entry, "key", None) == "layers" for entry in path)
