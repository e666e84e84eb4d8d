"""The disk that a run writes to."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TRIED = 64_000_000  # bytes that are written
LEAST_FREE = 2_000_000_000  # bytes
SLOW = 20e6  # bytes per second


def findings(workdir: Path) -> Iterator[str]:
    """Yield how much is free where a workdir is or will be, and how fast it is.

    A file is written there and removed.
    """
    folder = workdir.absolute()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        yield f"! disk: {folder} cannot be written to; choose another --workdir"
        return
    free = shutil.disk_usage(folder).free
    if free < TRIED:
        yield f"! disk: {folder} has {free / 1e9:.1f} GB free; make room"
        return
    data = os.urandom(TRIED)
    with tempfile.TemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        speed = TRIED / (time.perf_counter() - start)
    line = f"disk: {folder} has {free / 1e9:.1f} GB free, writes {speed / 1e6:.0f} MB/s"
    if free < LEAST_FREE:
        yield f"! {line}; make room, or keep fewer checkpoints (checkpoint.keep_last)"
    elif speed < SLOW:
        yield f"! {line}; save less often (checkpoint.every), or elsewhere (--workdir)"
    else:
        yield line
