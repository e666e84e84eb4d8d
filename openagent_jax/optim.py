"""Optimizers: a schedule, gradient clipping, and AdamW or Muon.

Muon (https://arxiv.org/abs/2502.16982) orthogonalises the update of each weight
matrix. Here it takes every matrix of every layer on its own: query, key, value,
gate and up projections are separate parameters, and the stacked layer axis is a
batch axis. Embeddings, the head and the norms go to its AdamW part.
"""

from typing import Any

import jax
import optax

OPTIMIZERS = ("adamw", "muon")
_FROZEN = ("reference",)  # parameters that a policy is held near to
SCHEDULES = ("constant", "cosine", "linear", "wsd")


def make_optimizer(
    name: str = "adamw",
    *,
    learning_rate: float,
    num_steps: int,
    schedule: str = "cosine",
    warmup_steps: int = 0,
    end_factor: float = 0.1,
    weight_decay: float = 0.0,
    clip_norm: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.95,
    muon_learning_rate: float | None = None,
    muon_momentum: float = 0.95,
    train_embedding: bool = True,
) -> optax.GradientTransformation:
    """The whole optimizer of a run.

    Args:
      learning_rate: peak of the schedule.
      end_factor: the schedule ends at this fraction of the peak.
      weight_decay: of matrices, never of vectors. Under Muon, of the matrices of
        the layers alone.
      clip_norm: largest global norm of the gradient; 0 does not clip.
      muon_learning_rate: peak for the matrices of the layers. Updates are scaled
        to the size of AdamW's, so None (the same as `learning_rate`) is sane.
      train_embedding: False leaves the embedding as it is. The vectors of rare tokens
        then stay like those of common ones, and what is learned of some (to copy
        them, say) holds for all.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f'optim.name="{name}" is not one of {", ".join(OPTIMIZERS)}')
    shape = make_schedule(schedule, num_steps, warmup_steps, end_factor)

    def peak(value):
        return lambda step: value * shape(step)

    if name == "adamw":
        update = optax.adamw(
            peak(learning_rate), b1, b2, weight_decay=weight_decay, mask=_is_matrix
        )
    else:
        update = optax.contrib.muon(
            peak(learning_rate if muon_learning_rate is None else muon_learning_rate),
            beta=muon_momentum,
            weight_decay=weight_decay,
            adam_b1=b1,
            adam_b2=b2,
            adam_learning_rate=peak(learning_rate),
            muon_weight_dimension_numbers=_muon_axes,
            consistent_rms=0.2,
        )
    if clip_norm < 0:
        raise ValueError(f"optim.clip_norm={clip_norm} must not be negative")
    clip = optax.clip_by_global_norm(clip_norm) if clip_norm else optax.identity()
    optimizer = optax.chain(clip, update)
    frozen = _FROZEN if train_embedding else (*_FROZEN, "embed")
    return optax.partition(
        {True: optax.set_to_zero(), False: optimizer},
        lambda params: jax.tree.map_with_path(
            lambda path, _: getattr(path[0], "key", None) in frozen, params
        ),
    )


def make_schedule(
    name: str, num_steps: int, warmup_steps: int, end_factor: float = 0.1
) -> optax.Schedule:
    """Step -> fraction of the peak learning rate.

    All warm up linearly; "constant" stays, "cosine" and "linear" fall until
    `num_steps`, "wsd" (warm up, stay, decay) falls in the last fifth.
    """
    if name not in SCHEDULES:
        raise ValueError(
            f'optim.schedule="{name}" is not one of {", ".join(SCHEDULES)}'
        )
    if not 0 <= warmup_steps <= num_steps:
        raise ValueError(
            f"optim.warmup_steps={warmup_steps} is not between 0 and "
            f"num_steps={num_steps}"
        )
    rest = max(num_steps - warmup_steps, 1)
    decay = max(rest // 5, 1)
    after = {
        "constant": optax.constant_schedule(1.0),
        "cosine": optax.cosine_decay_schedule(1.0, rest, end_factor),
        "linear": optax.linear_schedule(1.0, end_factor, rest),
        "wsd": optax.linear_schedule(1.0, end_factor, decay, rest - decay),
    }[name]
    if not warmup_steps:
        return after
    # The first step already learns: (step + 1) / warmup_steps.
    warmup = optax.linear_schedule(1 / warmup_steps, 1.0, max(warmup_steps - 1, 1))
    return optax.join_schedules([warmup, after], [warmup_steps])


def _is_matrix(params: Any) -> Any:
    """True where weight decay applies: the norms of all layers are stacked too."""
    return jax.tree.map_with_path(
        lambda path, x: x.ndim - _is_stacked(path) == 2, params
    )


def _muon_axes(params: Any) -> Any:
    """Which axes of a parameter form a matrix for Muon; None is for AdamW."""

    def axes(path, x):
        if _is_stacked(path) and x.ndim == 3:
            return optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=2)
        return None

    return jax.tree.map_with_path(axes, params)


def _is_stacked(path) -> bool:
    return any(getattr(entry, "key", None) == "layers" for entry in path)
