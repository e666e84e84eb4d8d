"""Measure run times and the peak memory."""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax


class Timer:
    """Takes the median times of functions, and notes how much they vary.

    Attributes:
      repeats: how often each function is called.
      first_s: seconds of the first calls of all functions, which are not counted: they
        compile, unless the functions have been called before.
      spread: the largest difference between two times of the same function, as a share
        of their median.
    """

    def __init__(self, repeats: int):
        self.repeats, self.first_s, self.spread = repeats, 0.0, 0.0

    def __call__(self, *runs: Callable[[], Any]) -> list[float]:
        """Return the median seconds of each function.

        The functions are called in turn, so that a machine that is slow for a while
        slows all of them down. The first call of each is not among these times.
        """
        times: list[list[float]] = [[] for _ in runs]
        for repeat in range(self.repeats + 1):
            for run, kept in zip(runs, times, strict=True):
                start = time.perf_counter()
                jax.block_until_ready(run())
                seconds = time.perf_counter() - start
                if repeat:
                    kept.append(seconds)
                else:
                    self.first_s += seconds
        medians = [statistics.median(kept) for kept in times]
        for kept, median in zip(times, medians, strict=True):
            self.spread = max(self.spread, (max(kept) - min(kept)) / median)
        return medians


def peak_memory() -> float:
    """Return the peak memory in GB: that of the first device if it has memory of its
    own, otherwise that of the process."""
    import resource  # not on Windows

    stats = jax.devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9
