"""Eight CPU devices, no silent rank promotion, one stream of keys per test."""

import itertools
import os
from pathlib import Path

import jax
import pytest

from tests.commands import Commands

# The tests compile more than they compute: without LLVM's optimizations they take
# about half the time. To test what users run: XLA_FLAGS="" pytest
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

jax.config.update("jax_num_cpu_devices", 8)  # before any array exists
jax.config.update("jax_numpy_rank_promotion", "raise")

# Each compiled program takes memory maps of its process. Linux allows 65,530 of them,
# and XLA crashes when there is none left (jax-ml/jax#27201).
MAX_MAPS = 20_000


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Lets go of compiled programs after a file where many have gathered."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MAX_MAPS:
        jax.clear_caches()


@pytest.fixture
def getkey():
    """A function that gives another key at each call."""
    counter = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(0), next(counter))


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Starts `launch` commands and waits for them; see tests/commands.py."""
    made = Commands(tmp_path_factory.mktemp("commands"))
    yield made
    made.close()
