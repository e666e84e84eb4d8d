"""Batches that are functions of the step: from a mix of worlds, and made ahead."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from openagent_jax.types import Batch

MakeBatch = Callable[[int], Batch]  # of a step
STEP = "step"  # key in the state of `Ahead`


def in_turn(
    makes: Sequence[MakeBatch], shares: Sequence[float], seed: Sequence[int]
) -> MakeBatch:
    """Return a function that makes each batch in one of several worlds.

    The world of a batch is drawn at random, from the seed and the step.

    Args:
      makes: for each world, the function that makes the batch of a step.
      shares: how often each of them is drawn, relative to the others.
      seed: integers, none of them negative: the seed of the draws.

    >>> made = in_turn([lambda step: "a", lambda step: "b"], [3, 1], seed=[0])
    >>> sum(made(step) == "b" for step in range(100))
    26
    """
    probabilities = np.asarray(shares, float) / np.sum(shares)

    def make(step: int) -> Batch:
        rng = np.random.default_rng((*seed, step))
        return makes[rng.choice(len(makes), p=probabilities)](step)

    return make


class Ahead(Iterator[Batch]):
    """An iterator over the batches of a run, in the place of `data.feed.Feed`.

    >>> batches = Ahead(lambda step: step, num_threads=2)
    >>> [next(batches) for _ in range(3)], batches.state()
    ([0, 1, 2], {'step': 3})
    >>> batches.restore({"step": 1})
    >>> next(batches)
    1
    """

    def __init__(
        self,
        make: MakeBatch,
        num_threads: int = 0,
        put: Callable[[Batch], Batch] = lambda batch: batch,
        abstract: Any = None,
    ):
        """
        Args:
          make: makes the batch of a step; threads call it at the same time.
          num_threads: threads that make batches, and how many are made ahead; with 0,
            each is made when it is asked for.
          put: moves a batch to the devices that train on it.
          abstract: the shapes, dtypes and shardings of a batch.
        """
        self.abstract = abstract
        self._make, self._put, self._num_ahead = make, put, num_threads
        self._pool = ThreadPoolExecutor(num_threads) if num_threads else None
        self._step = 0
        self._waiting: dict[int, Future[Batch]] = {}

    def __next__(self) -> Batch:
        step, self._step = self._step, self._step + 1
        if not self._pool:
            return self._put(self._make(step))
        for ahead in range(step, step + 1 + self._num_ahead):
            if ahead not in self._waiting:
                self._waiting[ahead] = self._pool.submit(self._ready, ahead)
        return self._put(self._waiting.pop(step).result())

    def state(self) -> dict[str, int]:
        """Return the position, to be stored in a checkpoint."""
        return {STEP: self._step}

    def restore(self, state: Mapping[str, int]) -> None:
        """Go on from a position."""
        self._step = state[STEP]
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()

    def _ready(self, step: int) -> Batch:
        """Return a batch once it is computed, which takes up the thread until then."""
        return jax.block_until_ready(self._make(step))
