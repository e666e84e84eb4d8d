"""Several processes of one run: how they find one another, and that they agree."""

import os
import re
import sys
import threading
from typing import Any

from launch.common.errors import UsageError

ADDRESS, NUMBER, INDEX = (
    f"JAX_{name}" for name in ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID")
)

# Timeouts in seconds: for all processes to connect, for a running process to send a
# heartbeat, and for the others to end after this one has failed.
CONNECT_TIMEOUT, HEARTBEAT_TIMEOUT, SHUTDOWN_TIMEOUT = 300, 30, 20
# What the runtime says when a process of the run is gone.
_LOST = re.compile(
    r"gloo|(closed|reset) by peer|coordination service|distributed service|heartbeat",
    re.IGNORECASE,
)


def join() -> None:
    """Connect this process with the others of the run.

    TPU pods, SLURM and Open MPI say who they are. Elsewhere three environment variables
    do, of which the last one differs between processes: JAX_COORDINATOR_ADDRESS
    ("host:port" of the first process), JAX_NUM_PROCESSES and JAX_PROCESS_ID.

    Raises:
      UsageError: the other processes cannot be found from the environment.
    """
    import jax

    known: dict[str, Any] = {}
    for name, argument in ((NUMBER, "num_processes"), (INDEX, "process_id")):
        if (text := os.environ.get(name)) is not None:
            if not text.isdecimal():
                raise UsageError(f'--distributed: {name}="{text}" is not a number')
            known[argument] = int(text)
    # The runtime aborts the process if the others do not come, with pages of text.
    clock = threading.Timer(CONNECT_TIMEOUT, _not_connected)
    clock.daemon = True
    clock.start()
    try:
        jax.distributed.initialize(
            **known,
            local_device_ids=_visible(),
            initialization_timeout=2 * CONNECT_TIMEOUT,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
            shutdown_timeout_seconds=SHUTDOWN_TIMEOUT,
        )
    except ValueError as error:
        raise UsageError(
            f"--distributed: {error} Outside of TPU pods, SLURM and Open MPI, set "
            f"{ADDRESS}, {NUMBER} and {INDEX}"
        ) from None
    finally:
        clock.cancel()


def _visible() -> list[int] | None:
    """Return the GPU of this process if it sees no other one, under SLURM.

    JAX would take the GPU with the number of the process on its node, which is not
    there if SLURM shows each process its own GPU only (--gpus-per-task).
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    is_only = "SLURM_LOCALID" in os.environ and shown and "," not in shown
    return [0] if is_only else None


def _not_connected() -> None:
    """End this process with a line that says that the others have not come."""
    where = os.environ.get(ADDRESS, "the first one")
    print(
        f"{os.path.basename(sys.argv[0])}: --distributed: after {CONNECT_TIMEOUT} s, "
        f"not all processes of this run have connected to {where}; start the same "
        f"command in each, and check {ADDRESS} and {NUMBER}",
        file=sys.stderr,
    )
    leave(2)


def lost(error: BaseException) -> str:
    """Return a message if an error says that another process of the run is gone."""
    import jax

    if not jax.distributed.is_initialized() or not _LOST.search(str(error)):
        return ""
    return (
        "another process of this run has ended; start the same command again, in as "
        "many processes or fewer (with data.path: in as many), to resume from the last "
        "checkpoint"
    )


def leave(code: int) -> None:
    """End this process without waiting for others, which would take minutes."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def check_same(**values: str) -> None:
    """Check that all processes have the same values; each of them raises if not.

    Args:
      **values: ASCII texts of at most 64 characters, by what they are.

    Raises:
      UsageError: a value differs between processes.
    """
    import numpy as np
    from jax.experimental import multihost_utils

    mine = np.array([text.encode() for text in values.values()], "S64")
    every = multihost_utils.process_allgather(mine.view(np.uint8).reshape(-1, 64))
    texts = np.ascontiguousarray(every).view("S64")[..., 0]
    for name, column in zip(values, texts.reshape(-1, len(values)).T, strict=True):
        first, *others = (text.decode() for text in column)
        for i, text in enumerate(others, 1):
            if text != first:
                raise UsageError(
                    f"--distributed: process 0 has the {name} {first} and process {i} "
                    f"has {text}; start the same command in each, from one checkout"
                )
