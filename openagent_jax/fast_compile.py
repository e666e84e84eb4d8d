"""Compile faster on CPUs, where compilation is a large part of a short run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version

# On CPUs: LLVM optimises less, in one module for each program instead of many.
_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
}
if jaxlib.version.__version_info__ < (0, 11):  # later ones do not know this option
    _OPTIONS["xla_cpu_use_fusion_emitters"] = False


def jit(function: Callable[..., Any], platform: str = "", **options: Any) -> Any:
    """Return `jax.jit` of a function, with fewer optimisations by the compiler.

    For functions that run briefly but take long to compile.

    Integers and booleans are the same as those of `jax.jit`; floats may differ in their
    last bits.

    Args:
      function: the function.
      platform: where it runs; by default on the platform that JAX uses.
      **options: those of `jax.jit`.

    >>> int(jit(lambda x: x + 1)(1))
    2
    """
    on_cpu = (platform or jax.default_backend()) == "cpu"
    return jax.jit(function, compiler_options=_OPTIONS if on_cpu else None, **options)


def noinline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is compiled as a computation of its own on CPUs.

    The time of XLA's passes grows faster than the size of a computation, and XLA
    inlines every call. It does not inline the branches of a condition, so the function
    becomes a branch of a condition that always holds, which the compiler cannot know.

    >>> int(jax.jit(noinline(lambda x: x + 1))(1))
    2
    """

    function = jax.jit(function)  # which is traced once for all branches

    def as_branch(*args: Any) -> Any:
        def never(*args):
            made = jax.eval_shape(function, *args)
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), made)

        holds = jax.lax.optimization_barrier(jnp.bool_(True))
        return jax.lax.cond(holds, function, never, *args)

    # Chosen when it is compiled, since CPUs also compile for other platforms.
    return lambda *args: jax.lax.platform_dependent(
        *args, cpu=as_branch, default=function
    )
