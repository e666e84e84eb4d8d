"""Measure run times and the peak memory."""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import jax


class Medians(Protocol):
    """`medians` with a fixed number of repeats."""

    def __call__(self, *runs: Callable[[], Any]) -> list[float]: ...


def medians(*runs: Callable[[], Any], repeats: int) -> list[float]:
    """Return for each function the median seconds of `repeats` calls.

    The functions are called in turn, so that a machine that is slow for a while slows
    all of them down. The first call of each, which compiles, is not counted.
    """
    times: list[list[float]] = [[] for _ in runs]
    for repeat in range(repeats + 1):
        for run, kept in zip(runs, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(run())
            if repeat:
                kept.append(time.perf_counter() - start)
    return [statistics.median(kept) for kept in times]


def peak_memory() -> float:
    """Return the peak memory in GB: that of the first device if it has memory of its
    own, otherwise that of the process."""
    import resource  # not on Windows

    stats = jax.devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9
