"""Keep compiled programs between runs."""

import os


def use(folder: str) -> None:
    """Use a folder as JAX's persistent compilation cache; "" uses none."""
    import jax

    if folder:
        jax.config.update("jax_compilation_cache_dir", os.path.expanduser(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
