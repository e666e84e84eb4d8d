"""Batches of several worlds in turn: each step draws one of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from openagent_jax.types import Batch

STEP = "step"  # key in the state


class InTurn:
    """An iterator over the batches of a run, in the place of `data.feed.Feed`.

    Which world a batch is from, is a function of the seed and the step.

    >>> made = InTurn([lambda step: (0, step), lambda step: (1, step)], [1, 1], seed=0)
    >>> first = [next(made) for _ in range(5)]
    >>> made.restore({"step": 3})
    >>> [next(made), next(made)] == first[3:]
    True
    """

    def __init__(
        self,
        makes: Sequence[Callable[[int], Batch]],
        shares: Sequence[float],
        seed: int,
        abstract: Any = None,
    ):
        """
        Args:
          makes: for each world, the function that makes the batch of a step.
          shares: how often each of them is drawn, relative to the others.
          seed: the seed of the order.
          abstract: the shapes, dtypes and shardings of a batch.
        """
        self.abstract = abstract
        self._makes, self._seed, self._step = makes, seed, 0
        self._shares = np.asarray(shares, float) / np.sum(shares)

    def __next__(self) -> Batch:
        rng = np.random.default_rng((self._seed, self._step))
        chosen = rng.choice(len(self._makes), p=self._shares)
        batch = self._makes[chosen](self._step)
        self._step += 1
        return batch

    def state(self) -> dict[str, int]:
        """Return the position, to be stored in a checkpoint."""
        return {STEP: self._step}

    def restore(self, state: Mapping[str, int]) -> None:
        """Go on from a position."""
        self._step = state[STEP]
