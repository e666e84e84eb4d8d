"""Compile what runs once or for a moment: fast to compile rather than fast to run."""

from collections.abc import Callable
from typing import Any

import jax


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function that runs briefly, but would take long to compile.

    On CPUs, LLVM optimises less. Integers and booleans are the same as those of
    `jax.jit`; floats may differ in their last bits.

    >>> int(jit(lambda x: x + 1)(1))
    2
    """
    on_cpu = jax.default_backend() == "cpu"
    options = {"xla_backend_optimization_level": 0} if on_cpu else None
    return jax.jit(function, compiler_options=options)
