"""How much memory the host needs to load weights, measured in a process of its own."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from openagent_jax.models import hf, transformer

CONFIG = transformer.ModelConfig(
    vocab_size=12_000,
    width=768,
    num_layers=6,
    num_heads=12,
    num_kv_heads=12,
    head_size=64,
    mlp_width=2304,
    tied=False,
)
# Prints, in bytes, the peak memory of the process beyond what it used before loading,
# the size of the weights, and the size of the largest shard of each, summed.
LOAD = """
import resource, sys
import jax
from openagent_jax import sharding
from openagent_jax.models import hf, transformer

folder, num_devices = sys.argv[1], int(sys.argv[2])
jax.config.update("jax_num_cpu_devices", num_devices)
config = hf.load_config(folder)
shapes = jax.eval_shape(transformer.make_policy(config).init, jax.random.key(0))
shardings = None
if num_devices > 1:
    mesh = sharding.make_mesh(1, num_devices, 1)
    axes = transformer.logical_axes(config)
    shardings = sharding.state_shardings(mesh, axes, shapes)

def memory(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(x.split()[1]) * 1024 for x in lines if x.startswith(field))

jax.jit(lambda x: x + 1)(1.0).block_until_ready()
before = memory("VmRSS")
_, params = hf.load(folder, shardings)
jax.block_until_ready(params)
per_device = sum(
    max(x.addressable_shards, key=lambda part: part.data.nbytes).data.nbytes
    for x in jax.tree.leaves(params)
)
weights = sum(x.nbytes for x in jax.tree.leaves(params))
print(memory("VmHWM") - before, weights, per_device)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of about 240 MB in shards of at most 80 MB."""
    folder = tmp_path_factory.mktemp("model")
    numbers = np.random.default_rng(0)
    shapes = jax.eval_shape(transformer.make_policy(CONFIG).init, jax.random.key(0))
    params = jax.tree.map(
        lambda x: numbers.standard_normal(x.shape, np.float32), shapes
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hf, "MAX_SHARD", 80 * 10**6)
        hf.save(folder, CONFIG, params)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("num_devices", [1, 4])
def test_the_host_needs_little_memory_beyond_the_weights(folder, num_devices):
    largest = max(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert len(list(folder.glob("*.safetensors"))) >= 3
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder), str(num_devices)],
        capture_output=True,
        text=True,
        check=True,
    )
    peak, weights, per_device = map(int, done.stdout.split())
    assert per_device < weights * (1.2 / num_devices)
    assert weights <= peak <= weights + 1.3 * largest
