"""Eight CPU devices, no silent rank promotion, a stream of keys for each test."""

import atexit
import ctypes
import gc
import itertools
import os
import shutil
import tempfile
from pathlib import Path

import jax
import jaxlib.version
import pytest

from tests.commands import Commands

# The tests spend more time on compiling than on computing; without optimizations they
# take a third of the time. To test what users run: XLA_FLAGS="" pytest
FLAGS = [
    "--xla_backend_optimization_level=0",
    "--xla_cpu_opt_preset=fast_compile",
    "--xla_cpu_parallel_codegen_split_count=1",
]
if jaxlib.version.__version_info__ < (0, 11):  # later ones do not know this flag
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
# Traced programs are many objects and few of them garbage.
gc.set_threshold(100_000, 20, 100)

# Where in Python an operation is from costs a tenth of the time to compile it.
TRACEBACK = "JAX_TRACEBACK_IN_LOCATIONS_LIMIT"
LIMIT = os.environ.setdefault(TRACEBACK, "0")  # commands that tests start inherit it
jax.config.update("jax_traceback_in_locations_limit", int(LIMIT))

jax.config.update("jax_num_cpu_devices", 8)  # before any array exists
jax.config.update("jax_numpy_rank_promotion", "raise")

# What one process has compiled, the other workers read, and the commands that tests
# start, which inherit these variables.
CACHE = "JAX_COMPILATION_CACHE_DIR"
if CACHE not in os.environ:  # else this is a worker, or a user keeps the programs
    os.environ[CACHE] = tempfile.mkdtemp(prefix="openagent_jax_tests_")
    atexit.register(shutil.rmtree, os.environ[CACHE], ignore_errors=True)
SECONDS = os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
jax.config.update("jax_compilation_cache_dir", os.environ[CACHE])
jax.config.update("jax_persistent_cache_min_compile_time_secs", float(SECONDS))

# Each compiled program takes memory maps of its process. Linux allows 65,530 of them,
# and XLA crashes when none is left (jax-ml/jax#27201). A worker with 18,000 has 7 GB of
# memory, so that two with 40,000 would have more than a machine of 24 GB.
MAX_MAPS = 15_000


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Clear compiled programs after a test file that leaves many of them."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MAX_MAPS:
        from tests import helpers, tiny  # not before the devices are set

        tiny.TRAINERS.clear()
        jax.clear_caches()
        helpers.TRACES.clear()  # what was traced is traced again
        # What is freed would stay with this process otherwise; not all C libraries can.
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)


@pytest.fixture
def getkey():
    """A function that returns a new key in each call."""
    counter = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(0), next(counter))


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """Start `launch` commands and wait for them; see tests/commands.py."""
    made = Commands(tmp_path_factory.mktemp("commands"))
    yield made
    made.close()
