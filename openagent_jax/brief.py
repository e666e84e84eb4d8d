"""Compile what runs once or for a moment: fast to compile rather than fast to run."""

from collections.abc import Callable
from typing import Any

import jax
import jaxlib.version

# On CPUs: LLVM optimises less, in one module for each program instead of many.
_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
}
if jaxlib.version.__version_info__ < (0, 11):  # later ones do not know this option
    _OPTIONS["xla_cpu_use_fusion_emitters"] = False


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function that runs briefly, but would take long to compile.

    Integers and booleans are the same as those of `jax.jit`; floats may differ in their
    last bits.

    >>> int(jit(lambda x: x + 1)(1))
    2
    """
    on_cpu = jax.default_backend() == "cpu"
    return jax.jit(function, compiler_options=_OPTIONS if on_cpu else None)
