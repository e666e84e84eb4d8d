"""Every mesh computes the same, and arrays are sharded by the rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from openagent_jax import optim, sharding
from openagent_jax.models import transformer
from openagent_jax.types import TrainState

CONFIG = transformer.ModelConfig(
    vocab_size=64,
    width=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_size=8,
    mlp_width=48,
)
POLICY = transformer.make_policy(CONFIG)
AXES = transformer.logical_axes(CONFIG)
MESHES = [(8, 1, 1), (1, 8, 1), (2, 2, 2)]


def make_state(key, name="adamw"):
    params = POLICY.init(key)
    optimizer = optim.make_optimizer(name, learning_rate=0.1, num_updates=5)
    step = jnp.zeros((), jnp.int32)
    return TrainState(step, params, optimizer.init(params), key)


def loss_and_grads(params, tokens):
    positions = jnp.tile(jnp.arange(tokens.shape[1])[None], (tokens.shape[0], 1))
    valid = positions < 4 + jnp.arange(tokens.shape[0])[:, None]

    def loss(params):
        hidden = POLICY.hidden(params, tokens, positions, valid)
        log_probs = jax.nn.log_softmax(POLICY.head(params, hidden)[:, :-1])
        picked = jnp.take_along_axis(log_probs, tokens[:, 1:, None], -1)[..., 0]
        return -jnp.sum(picked * valid[:, 1:]) / jnp.sum(valid[:, 1:])

    return jax.value_and_grad(loss)(params)


@pytest.fixture(scope="module")
def one_device():
    """Return parameters, tokens, and loss and gradients on a single device."""
    params = jax.jit(POLICY.init)(jax.random.key(1))
    params = jax.tree.map(lambda x: x * 3, params)
    tokens = jax.random.randint(jax.random.key(2), (8, 12), 0, CONFIG.vocab_size)
    return params, tokens, jax.jit(loss_and_grads)(params, tokens)


@pytest.mark.parametrize("sizes", MESHES)
def test_every_mesh_computes_the_same(one_device, sizes):
    params, tokens, expected = one_device
    mesh = sharding.make_mesh(*sizes)
    shardings = sharding.state_shardings(mesh, AXES, params)
    got = jax.jit(loss_and_grads, out_shardings=(sharding.replicated(mesh), shardings))(
        jax.device_put(params, shardings),
        jax.device_put(tokens, sharding.batch_sharding(mesh)),
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        got,
        expected,
    )


@pytest.mark.parametrize("sizes", MESHES[1:])
def test_sharded_init_equals_plain_init(sizes):
    mesh = sharding.make_mesh(*sizes)
    key = jax.random.key(3)
    state, _ = sharding.init_sharded(mesh, AXES, make_state, key)
    plain = jax.jit(POLICY.init)(key)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), state.params, plain
    )
    assert len(state.params["embed"].sharding.device_set) == 8


@pytest.mark.parametrize("name", optim.OPTIMIZERS)
def test_optimizer_state_is_sharded_like_its_parameters(name):
    mesh = sharding.make_mesh(2, 2, 2)
    abstract = jax.eval_shape(lambda key: make_state(key, name), jax.random.key(0))
    shardings = sharding.state_shardings(mesh, AXES, abstract)
    params = shardings.params
    assert params["embed"].spec == PartitionSpec("tensor", "fsdp")
    assert params["layers"]["up"].spec == PartitionSpec(None, "fsdp", "tensor")
    assert params["layers"]["down"].spec == PartitionSpec(None, "tensor", "fsdp")
    assert shardings.step.spec == shardings.key.spec == PartitionSpec()

    split = [
        x
        for x, s in zip(*map(jax.tree.leaves, (abstract, shardings)), strict=True)
        if not s.is_fully_replicated
    ]
    # Of 8 matrices, the parameter and two moments each; Muon has one moment for 7.
    assert len(split) == {"adamw": 24, "muon": 17}[name]


def test_sizes_that_do_not_divide_are_not_split():
    mesh = sharding.make_mesh(1, 1, 8)
    spec = sharding.partition_spec(mesh, ("embed", "mlp"), (32, 12), sharding.Rules())
    assert spec == PartitionSpec("fsdp", None)


def test_colliding_rules():
    mesh = sharding.make_mesh(2, 2, 2)
    rules = sharding.Rules(mlp="fsdp")
    with pytest.raises(ValueError, match="two axes of"):
        sharding.state_shardings(
            mesh, AXES, jax.eval_shape(make_state, jax.random.key(0)), rules
        )
    with pytest.raises(ValueError, match='embed="model"'):
        sharding.Rules(embed="model")


def test_mesh_sizes():
    assert dict(sharding.make_mesh(-1, 2, 2).shape) == dict(data=2, fsdp=2, tensor=2)
    assert dict(sharding.make_mesh(devices=jax.devices()[:3]).shape)["data"] == 3
    for sizes in [(3, 1, 1), (-1, 3, 1), (4, 4, 1)]:
        with pytest.raises(ValueError, match="does not fit 8 devices"):
            sharding.make_mesh(*sizes)
    for sizes in [(-1, -1, 1), (0, 1, 1), (-2, 1, 1)]:
        with pytest.raises(ValueError, match="at most one may be -1"):
            sharding.make_mesh(*sizes)


def test_bad_batch_size():
    mesh = sharding.make_mesh(2, 2, 2)
    sharding.check_batch_size(mesh, 12)
    with pytest.raises(ValueError, match="train.batch_size=6.*mesh.data.*mesh.fsdp"):
        sharding.check_batch_size(mesh, 6, "train.batch_size")
