"""Compiled programs are kept from run to run."""

import os


def keep(folder: str) -> None:
    """Use a folder as the persistent compilation cache; "" uses none."""
    import jax

    if folder:
        jax.config.update("jax_compilation_cache_dir", os.path.expanduser(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
