"""Several processes of one run: how they find one another, and that they agree."""

import os

import numpy as np

from launch.common.errors import UsageError

ADDRESS, NUMBER, INDEX = (
    f"JAX_{name}" for name in ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID")
)


def join() -> None:
    """Connect this process with the others of the run.

    TPU pods, SLURM and Open MPI say who they are. Elsewhere three environment variables
    do, of which the last one differs between processes: JAX_COORDINATOR_ADDRESS
    ("host:port" of the first process), JAX_NUM_PROCESSES and JAX_PROCESS_ID.

    Raises:
      UsageError: it is not known which the others are.
    """
    import jax

    known = {}
    for name, argument in ((NUMBER, "num_processes"), (INDEX, "process_id")):
        if (text := os.environ.get(name)) is not None:
            if not text.isdecimal():
                raise UsageError(f'--distributed: {name}="{text}" is not a number')
            known[argument] = int(text)
    try:
        jax.distributed.initialize(**known)
    except ValueError as error:
        raise UsageError(
            f"--distributed: {error} Outside of TPU pods, SLURM and Open MPI, set "
            f"{ADDRESS}, {NUMBER} and {INDEX}"
        ) from None


def check_same(**values: str) -> None:
    """Check that all processes have the same values; each of them raises if not.

    Args:
      **values: ASCII texts of at most 64 characters, by what they are.

    Raises:
      UsageError: a value differs between processes.
    """
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
